"""Import of the SQLite files of the SDK's sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ... import (
    CollectionExists,
    CollectionsStoreError,
    InvalidBody,
    InvalidOption,
    Store,
    Transaction,
)
from ..sqlite_files import ExternalFile, File, OnError, Rows, read
from .collection import RECENT
from .records import (
    COLLECTION,
    COUNTS,
    DETAILS,
    MAIN,
    Json,
    as_text,
    body_of,
    header_id,
    numbered,
    start,
)

Branches: TypeAlias = dict[str, list[Json]]
"""The items of each branch, in their order."""
MESSAGES: Final = "agent_messages"
_MESSAGE: Final = ("id", "session_id", "message_data")
_STRUCTURES: Final = "message_structure"
_STRUCTURE: Final = ("session_id", "sequence_number", "branch_id", "message_id", "user_turn_number")
_USAGES: Final = "turn_usage"
_USAGE: Final = ("session_id", "branch_id", "user_turn_number", *COUNTS, *DETAILS)


def import_openai_agents(
    store: Store,
    file: File,
    *,
    collection: str = COLLECTION,
    messages_table: str = MESSAGES,
    on_error: OnError | None = None,
) -> int:
    """Copy the sessions in a file of SQLiteSession, AdvancedSQLiteSession or SQLAlchemySession into a store, in a
    transaction; return the number of items.

    Branches and the usage of turns are copied, too. The file does not change. The times are the times of the
    import. `on_error` is called with the error of each row or session that cannot be imported, and the import
    continues. Without `on_error` the first error is raised and nothing is imported.

    Raise `DatabaseUnavailable` for a missing file, another `DatabaseError` for a damaged or locked file,
    `InvalidOption` for a missing table and for a session already in the store, and `InvalidBody` for a row without
    JSON.

    >>> with Store("sqlite://") as store:
    ...     import_openai_agents(store, "conversations.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'conversations.db'
    """
    report = on_error or _raise
    messages, structure, usage = read(file, lambda external: _rows(external, file, messages_table))
    sessions: dict[str, Branches] = {}
    for session, branch, body in _items(messages_table, messages, structure, usage, report):
        sessions.setdefault(session, {MAIN: []}).setdefault(branch, []).append(body)
    with suppress(CollectionExists):
        store.create_collection(collection, body_index=False)
    store[collection].create_index(**RECENT)
    count = 0
    with store.transaction() as transaction:
        for session, branches in sessions.items():
            try:
                count += _write(transaction, collection, session, branches)
            except (InvalidBody, InvalidOption) as error:
                report(error)
    return count


def _raise(error: CollectionsStoreError) -> None:
    raise error


def _rows(external: ExternalFile, file: File, table: str) -> tuple[Rows, Rows, Rows]:
    """Return the rows of messages, of the structure of branches, and of usage; raise `InvalidOption` without
    messages.
    """
    if not external.columns(table) >= set(_MESSAGE):
        tables = ", ".join(map(repr, external.tables())) or "none"
        problem = f"{str(file)!r} has no table {table!r} ({', '.join(_MESSAGE)}); its tables are: {tables}"
        raise InvalidOption("file", problem)
    structure = external.rows(_STRUCTURES, *_STRUCTURE) if external.columns(_STRUCTURES) else []
    usage = external.rows(_USAGES, *_USAGE) if external.columns(_USAGES) else []
    return external.rows(table, *_MESSAGE), structure, usage


def _items(
    table: str, messages: Rows, structure: Rows, usage: Rows, report: OnError
) -> Iterator[tuple[str, str, Json]]:
    """Yield the items in the order of their branches: session, branch, and stored form."""
    bodies = dict(_bodies(table, messages, report))
    turns = {row[:3]: _usage(row[3:]) for row in usage}
    structured = {row[0] for row in structure}
    for session, _, branch, id, turn in sorted(structure, key=lambda row: row[:2]):
        if id in bodies and bodies[id][0] == session:
            body = bodies[id][1]
            used = turns.pop((session, branch, turn), None) if "user" in body else None
            yield session, branch, body | ({"usage": used} if used else {})
    for _, (session, body) in sorted(bodies.items()):
        if session not in structured:
            yield session, MAIN, body


def _bodies(table: str, messages: Rows, report: OnError) -> Iterator[tuple[int, tuple[str, Json]]]:
    """Yield the stored form of each message, under the id of its row."""
    for id, session, text in messages:
        try:
            yield id, (session, body_of(json.loads(text)))
        except (ValueError, TypeError, RecursionError) as error:
            report(InvalidBody(f"{table}.{id}", f"the row must hold JSON: {error}"))


def _usage(row: tuple[Any, ...]) -> Json:
    """Return the usage of a turn. The file has details as JSON; the SDK uses None for missing details."""
    usage: Json = dict(zip((*COUNTS, *DETAILS), row, strict=True))
    for name in DETAILS:
        text, usage[name] = usage[name], None
        with suppress(ValueError, TypeError):
            usage[name] = json.loads(text)
    return usage


def _write(transaction: Transaction, collection: str, session: str, branches: Branches) -> int:
    """Write a new session; return the number of its items."""
    documents, header = transaction[collection], header_id(session)
    if documents.exists(header):
        problem = f"session {session!r} is in collection {collection!r}"
        raise InvalidOption("file", f"{problem}: delete it, or choose another collection")
    try:
        documents.put_many(_documents(session, branches), mode="insert", atomic=True)
    except InvalidBody as error:
        texts = {name: [as_text(each, error) for each in some] for name, some in branches.items()}
        documents.put_many(_documents(session, texts), mode="insert", atomic=True)
    return sum(map(len, branches.values()))


def _documents(session: str, branches: Branches) -> Iterator[tuple[str, Json]]:
    before = start()
    last = before + max(map(len, branches.values()))
    yield header_id(session), {"session": session, "branches": list(branches), "last": last}
    for branch, bodies in branches.items():
        yield from numbered(session, branch, bodies, before + 1)
