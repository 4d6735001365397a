"""Imports of the SQLite files of LangGraph's own checkpointers and stores. A file is read in a single snapshot, and
never written.

Imported documents keep their ids: run an interrupted import again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from langgraph.store.base import PutOp

from ... import InvalidOption
from ..sqlite_files import ExternalFile, File, Rows, read
from .checkpoints import Checkpoints
from .listing import BATCH
from .records import packed
from .running import Steps
from .saver import LangGraphSaver
from .store import LangGraphStore

_CHECKPOINTS: Final = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint", "metadata",
)  # fmt: skip
_WRITES: Final = (
    "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value",
)  # fmt: skip
_ITEMS: Final = ("prefix", "key", "value", "created_at", "updated_at", "expires_at", "ttl_minutes")


def import_checkpoints(file: File, saver: LangGraphSaver) -> int:
    """Copy the checkpoints and pending writes of a file of LangGraph's `SqliteSaver` or `AsyncSqliteSaver`; return
    the number of checkpoints.

    Checkpoints with the same ids are replaced; all others stay. Each transaction has 100 checkpoints. The
    serializer of `saver` reads the file. Raise `InvalidOption` for a file without a table of checkpoints, and
    `DatabaseUnavailable` for a missing file.

    >>> from collections_store.integrations.langgraph import LangGraphSaver, import_checkpoints
    >>> with LangGraphSaver("sqlite://") as saver:
    ...     import_checkpoints("missing.sqlite", saver)
    Traceback (most recent call last):
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'missing.sqlite'
    """
    rows, writes = read(file, lambda external: _checkpoints(file, external))
    for some in _batches(rows):
        saver.run_imported(partial(_put, some, writes))
    return len(rows)


def import_items(file: File, store: LangGraphStore) -> int:
    """Copy the items of a file of LangGraph's `SqliteStore` or `AsyncSqliteStore`; return their number.

    Items with the same namespace and key are replaced; all others stay. The items keep their times and order. Times
    to live start again; expired items are omitted. With an `index` the texts are embedded again. Raise the errors
    of `import_checkpoints`.

    >>> from collections_store.integrations.langgraph import LangGraphStore, import_items
    >>> with LangGraphStore("sqlite://") as memories:
    ...     import_items("missing.sqlite", memories)
    Traceback (most recent call last):
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'missing.sqlite'
    """
    rows = read(file, lambda external: _rows(file, external, "store", _ITEMS))
    now = datetime.now(UTC)
    live = [each for each in rows if each[5] is None or _time(each[5]) > now]
    live.sort(key=lambda row: _time(row[4]))
    for some in _batches(live):
        some.reverse()  # those that are written at one time are found in their order
        store.put_imported([_item(*row) for row in some])
    return len(live)


def _batches(rows: Rows) -> Iterator[Rows]:
    return (rows[start : start + BATCH] for start in range(0, len(rows), BATCH))


def _rows(file: File, external: ExternalFile, table: str, columns: tuple[str, ...]) -> Rows:
    """Return the rows of a table. Columns unknown to an older LangGraph are None."""
    existing = external.columns(table)
    if not existing.issuperset(columns[:3]):
        problem = (
            f"{str(file)!r} is no file of LangGraph: it has no table {table!r} with {columns[:3]}"
        )
        raise InvalidOption("file", problem)
    found = [each for each in columns if each in existing]
    rows = external.rows(table, *found)
    return [tuple(map(dict(zip(found, row, strict=True)).get, columns)) for row in rows]


def _checkpoints(
    file: File, external: ExternalFile
) -> tuple[Rows, dict[tuple[Any, ...], list[tuple[Any, ...]]]]:
    """Return the rows of checkpoints, parents first, and the rows of writes by the ids of their checkpoints."""
    rows = _rows(file, external, "checkpoints", _CHECKPOINTS)
    rows.sort(key=itemgetter(0, 1, 2))
    columns = (*_WRITES, "task_path")
    stored = _rows(file, external, "writes", columns)
    stored.sort(key=itemgetter(0, 1, 2, 3, 4))
    return rows, {ids: list(some) for ids, some in groupby(stored, itemgetter(0, 1, 2))}


def _put(rows: Rows, writes: dict[tuple[Any, ...], Rows], checkpoints: Checkpoints) -> Steps[None]:
    for thread, namespace, id, parent, kind, data, metadata in rows:
        config: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": namespace}
        above = config | ({"checkpoint_id": parent} if parent else {})
        checkpoint = checkpoints.serde.loads_typed((kind, data))
        described = json.loads(metadata) if metadata is not None else {}
        at = yield from checkpoints.put({"configurable": above}, checkpoint, described, {})
        for task, some in groupby(writes.get((thread, namespace, id), ()), itemgetter(3)):
            yield from _put_writes(checkpoints, at, task, list(some))


def _put_writes(checkpoints: Checkpoints, at: Any, task: str, rows: Rows) -> Steps[None]:
    written = [
        {"index": index, "channel": channel, **packed((kind, data))}
        for *_, index, channel, kind, data, _ in rows
    ]
    yield from checkpoints.add_writes(at, written, task, rows[0][-1] or "")


def _item(  # noqa: PLR0917 - as the table has them
    prefix: str, key: str, value: str, created: str, updated: str, _: Any, minutes: float | None
) -> tuple[PutOp, dict[str, str]]:
    """Return the operation that puts an item, and the item's times."""
    put = PutOp(tuple(prefix.split(".")), key, json.loads(value), ttl=minutes)
    return put, {"created_at": _time(created).isoformat(), "updated_at": _time(updated).isoformat()}


def _time(text: str) -> datetime:
    """Return a time of SQLite, by default in UTC."""
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
