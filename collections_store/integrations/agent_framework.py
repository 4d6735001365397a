"""Histories, checkpoints and sessions of Microsoft Agent Framework, in a store.

`AgentHistoryProvider` stores the messages of an agent's sessions, `AgentCheckpointStorage` the checkpoints of
workflows, and `AgentSessionStore` the sessions with their state. Each class has a collection of its own: a single
store can serve all three.

>>> import asyncio
>>> from agent_framework import Message
>>> async def main():
...     async with AgentHistoryProvider("sqlite://") as history:
...         await history.save_messages("ada", [Message(role="user", contents=["Hello"])])
...         return [message.text for message in await history.get_messages("ada")]
>>> asyncio.run(main())
['Hello']
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .. import (
    AsyncCollection,
    AsyncStore,
    AsyncTransaction,
    Document,
    DocumentNotFound,
    DuplicateKey,
    InvalidBody,
    InvalidFilter,
    InvalidId,
    InvalidOption,
    MissingExtra,
)
from .ids import escaped, under, unescaped
from .stores import StoreOwner, time_before

try:
    import agent_framework  # noqa: F401
except ImportError as error:
    raise MissingExtra("agent-framework-core", "agent-framework") from error

from agent_framework import (
    AgentSession,
    HistoryProvider,
    Message,
    SessionStore,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
)
from agent_framework._sessions import filter_new_messages
from agent_framework._workflows._checkpoint_encoding import (
    decode_checkpoint_value,
    encode_checkpoint_value,
)

LOG: Final = logging.getLogger("collections_store")
MAX_PREFIX: Final = 1_900
"""Bytes of what the ids of messages begin with; an id has up to 2,000."""
_SAVES: Final = itertools.count()
"""Orders checkpoints with equal timestamps: some clocks tick every 15 ms."""
_PAUSE: Final = 0.005
"""Seconds before messages are appended again after another task appended to the same session."""


class _Owned(StoreOwner):
    """Base class: an adapter with a single collection."""

    _index: Sequence[str] = ()

    def _use(
        self, store: AsyncStore | str, collection: str, ttl: Any, options: dict[str, Any]
    ) -> None:
        self._open(store, options)
        self._name, self._ttl, self._is_indexed = collection, ttl, not self._index

    @property
    def _documents(self) -> AsyncCollection:
        return self._store[self._name]

    async def _indexed(self) -> AsyncCollection:
        """Return the collection for writes, with its index."""
        documents = await self._prepared(self._name)
        if not self._is_indexed:
            await documents.create_index([(field, 1) for field in self._index])
            self._is_indexed = True
        return documents


class AgentHistoryProvider(_Owned, HistoryProvider):
    """The messages of sessions, in a store: a URL with the options of `AsyncStore`, or an `AsyncStore`, which stays
    open.

    Pass the provider to an agent in `context_providers`. Agents, tasks and processes can share a provider. Messages
    keep the order in which they were saved. Each `source_id` has its own messages: two providers of an agent can
    share a collection. `load_messages`, `store_inputs`, `store_outputs`, `store_context_messages` and
    `store_context_from` are parameters of `HistoryProvider`. With `skip_excluded`, reads omit messages that a
    compaction marked as excluded.

    A session id must be a non-empty string; session id and `source_id` have at most 1,900 bytes together. Any other
    session id raises `InvalidOption`. A message with NaN, NUL or an integer beyond 64 bits raises `InvalidBody`,
    and nothing is saved.
    """

    DEFAULT_SOURCE_ID: Final = "collections_store"

    def __init__(
        self,
        store: AsyncStore | str,
        *,
        source_id: str = DEFAULT_SOURCE_ID,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
        skip_excluded: bool = False,
        collection: str = "agent_messages",
        **options: Any,
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        self.skip_excluded = skip_excluded
        self._use(store, collection, None, options)

    async def get_messages(self, session_id: str | None, **_: Any) -> list[Message]:
        """Return the messages of a session, oldest first."""
        within = {"$id": under(self._prefix(session_id))}
        stored = await self._documents.find(within, sort="$id")
        messages = [Message.from_dict(each.body) for each in stored]
        return [each for each in messages if not (self.skip_excluded and _is_excluded(each))]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], **_: Any
    ) -> None:
        """Append messages to a session, all or none.

        Leading messages that repeat the end of the stored messages are not stored again, as in the framework's own
        providers: see the framework's `filter_new_messages`.
        """
        prefix, incoming = self._prefix(session_id), list(messages)
        if not incoming:
            return
        bodies, pause = [each.to_dict() for each in incoming], _PAUSE
        documents = await self._indexed()
        while True:
            stored = await _last(documents, prefix, len(incoming) + 1)
            existing = [Message.from_dict(each.body) for each in reversed(stored)]
            known = len(incoming) - len(filter_new_messages(existing, incoming))
            first = _position(stored[0]) + 1 if stored else 0
            new = {f"{prefix}/{first + n:010}": body for n, body in enumerate(bodies[known:])}
            try:
                if known:
                    await self._continue(stored[0], new)
                else:
                    await documents.put_many(new, mode="insert", atomic=True)
                return
            except (DocumentNotFound, DuplicateKey):  # others wrote since the read
                await asyncio.sleep(random.uniform(0, pause))
                pause = min(2 * pause, 0.1)

    async def _continue(self, last: Document, new: Mapping[str, Any]) -> None:
        """Append messages after the last stored message; raise `DocumentNotFound` if the session was deleted."""

        async def append(transaction: AsyncTransaction) -> None:
            documents = transaction[self._name]
            if not await documents.touch(last.id):  # so a deletion at the same time conflicts
                raise DocumentNotFound(self._name, last.id)
            await documents.put_many(new, mode="insert", atomic=True)

        await self._store.run_transaction(append)

    async def clear(self, session_id: str | None) -> None:
        """Delete the messages of a session."""
        within = {"$id": under(self._prefix(session_id))}
        await self._documents.delete_many(within)

    async def list_sessions(self) -> list[str]:
        """Return the ids of the sessions with messages, sorted."""
        return sorted([unescaped(each.id.split("/")[1]) for each in await self._latest()])

    async def delete_idle_sessions(self, seconds: float) -> int:
        """Delete the sessions without a new message in the last `seconds`; return their number.

        Raise `InvalidOption` unless `seconds` is a number of 0 or more.
        """
        since, deleted = time_before(seconds), 0
        for last in await self._latest():
            if last.created_at < since:
                deleted += await self._delete_up_to(last)
        return deleted

    async def _delete_up_to(self, last: Document) -> bool:
        """Delete a message's session, unless a later message exists."""
        prefix = last.id.rpartition("/")[0]

        async def delete(transaction: AsyncTransaction) -> bool:
            documents = transaction[self._name]
            found = await _last(documents, prefix, 1)
            is_last = [each.id for each in found] == [last.id]
            if is_last:
                await documents.delete_many({"$id": under(prefix)})
            return is_last

        return await self._store.run_transaction(delete)

    async def _latest(self) -> list[Document]:
        """Return the last message of each session: two reads by id for each."""
        documents, within = self._documents, under(_join(self.source_id))
        found: list[Document] = []
        while first := await documents.find_one({"$id": within}, sort="$id", projection=["type"]):
            prefix = first.id.rpartition("/")[0]
            found += await _last(documents, prefix, 1)
            within = {**within, "$gte": under(prefix)["$lt"]}
        return found

    def _prefix(self, session_id: str | None) -> str:
        """Return the common beginning of the ids of a session's messages; raise `InvalidOption`."""
        with suppress(UnicodeEncodeError):
            if isinstance(session_id, str) and session_id and "\0" not in session_id:
                prefix = _join(self.source_id, session_id)
                if len(prefix.encode()) <= MAX_PREFIX:
                    return prefix
        problem = (
            f"must be a non-empty string of Unicode without NUL, of up to {MAX_PREFIX:,} bytes"
        )
        raise InvalidOption("session_id", f"{problem} with source_id, got {repr(session_id)[:80]}")


class AgentCheckpointStorage(_Owned):
    """Checkpoints of workflows, in a store: a URL with the options of `AsyncStore`, or an `AsyncStore`, which stays
    open.

    Pass the storage to `WorkflowBuilder` or to `run` as `checkpoint_storage`. Tasks and processes can share a
    storage. Values are encoded as by `FileCheckpointStorage`: values beyond JSON are pickled, and only the listed
    types are read again. Listed are `allowed_checkpoint_types` ("module:qualname"), types given to
    `register_checkpoint_type`, the framework's types and simple types of Python. A program that can write to the database
    can choose the bytes to be unpickled: protect the database as you protect your program.

    `ttl`: seconds, or a timedelta, until a checkpoint expires; None: never.
    """

    _index = ("workflow", "at")

    def __init__(
        self,
        store: AsyncStore | str,
        *,
        allowed_checkpoint_types: Iterable[str] = (),
        ttl: float | timedelta | None = None,
        collection: str = "agent_checkpoints",
        **options: Any,
    ) -> None:
        if isinstance(allowed_checkpoint_types, str):
            problem = (
                f'must be a list of strings such as "module:Type", got {allowed_checkpoint_types!r}'
            )
            raise InvalidOption("allowed_checkpoint_types", problem)
        self._allowed = frozenset(allowed_checkpoint_types)
        self._use(store, collection, ttl, options)

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Write a checkpoint under its `checkpoint_id`; return this id.

        Raise `WorkflowCheckpointException` for a value that cannot be pickled and read again.
        """
        encoded = self._encode(checkpoint)
        body = {
            "workflow": checkpoint.workflow_name,
            "at": f"{_instant(checkpoint)} {next(_SAVES):012}",
            "previous": checkpoint.previous_checkpoint_id,
            "iteration": checkpoint.iteration_count,
            "data": json.dumps(
                encoded, separators=(",", ":")
            ),  # JSON of the body would lose the order of keys and NaN
        }
        with _their_errors():
            await (await self._indexed()).put(checkpoint.checkpoint_id, body, ttl=self._ttl)
        return checkpoint.checkpoint_id

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return the checkpoint; raise `WorkflowCheckpointException` if the id is unknown."""
        with _their_errors():
            body = await self._documents.get(checkpoint_id)
        if body is None:
            raise WorkflowCheckpointException(f"No checkpoint found with ID {checkpoint_id}")
        return self._decode(checkpoint_id, body)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first. Unreadable checkpoints are logged and omitted."""
        found: list[WorkflowCheckpoint] = []
        for document in await self._of(workflow_name):
            try:
                found.append(self._decode(document.id, document.body))
            except WorkflowCheckpointException as error:
                LOG.warning("%s", error)
        return found

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete the checkpoint; return False if the id is unknown."""
        with _their_errors():
            return await self._documents.remove(checkpoint_id)

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint with the latest timestamp, or None; raise `WorkflowCheckpointException` if it cannot be read."""
        with _their_errors():
            within, order = {"workflow": {"$eq": workflow_name}}, [("workflow", -1), ("at", -1)]
            document = await self._documents.find_one(within, sort=order)
        return None if document is None else self._decode(document.id, document.body)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of the checkpoints of a workflow, oldest first."""
        return [each.id for each in await self._of(workflow_name, projection=["at"])]

    async def _of(self, workflow: str, **options: Any) -> list[Document]:
        with _their_errors():
            within, order = {"workflow": {"$eq": workflow}}, [("workflow", 1), ("at", 1)]
            return await self._documents.find(within, sort=order, **options)

    def _encode(self, checkpoint: WorkflowCheckpoint) -> Any:
        """Return the checkpoint as JSON; raise `WorkflowCheckpointException` unless the JSON can be read again."""
        try:
            encoded = encode_checkpoint_value(checkpoint.to_dict())
            decode_checkpoint_value(encoded, allowed_types=self._allowed)
        except WorkflowCheckpointException:
            raise
        except Exception as error:  # pickle calls methods of the value's class
            raise WorkflowCheckpointException(
                f"checkpoint {checkpoint.checkpoint_id}: a value cannot be pickled: {error}"
            ) from error
        return encoded

    def _decode(self, id: str, body: Mapping[str, Any]) -> WorkflowCheckpoint:
        try:
            values = decode_checkpoint_value(json.loads(body["data"]), allowed_types=self._allowed)
        except WorkflowCheckpointException as error:
            raise WorkflowCheckpointException(f"checkpoint {id}: {error}") from error
        return WorkflowCheckpoint.from_dict(values)


with warnings.catch_warnings():  # SessionStore is experimental: importing the rest gives no warning
    warnings.simplefilter("ignore", FutureWarning)

    class AgentSessionStore(_Owned, SessionStore):
        """Sessions with their state, in a store: a URL with the options of `AsyncStore`, or an `AsyncStore`, which
        stays open.

        The framework's interface of session stores is experimental. `set` replaces the whole session. `ttl`:
        seconds, or a timedelta, until a session expires after its last `set`; None: never. Session ids are
        non-empty strings of up to 2,000 bytes.
        """

        def __init__(
            self,
            store: AsyncStore | str,
            *,
            ttl: float | timedelta | None = None,
            collection: str = "agent_sessions",
            **options: Any,
        ) -> None:
            SessionStore.__init__(self)
            self._use(store, collection, ttl, options)

        async def get(self, session_id: str) -> AgentSession | None:
            """Return a copy of the session, or None."""
            self.validate_session_id(session_id)
            body = await self._documents.get(session_id)
            return None if body is None else AgentSession.from_dict(body)

        async def set(self, session_id: str, session: AgentSession) -> None:
            """Write a session. Raise `InvalidBody` if the state has values that are neither JSON nor of a
            registered type.
            """
            self.validate_session_id(session_id)
            body = session.to_dict()
            await (await self._indexed()).put(session_id, body, ttl=self._ttl)

        async def delete(self, session_id: str) -> None:
            """Delete the session, if the id is known."""
            self.validate_session_id(session_id)
            await self._documents.remove(session_id)


def _join(*parts: str) -> str:
    """Return the id of names."""
    return "/".join(map(escaped, parts))


async def _last(documents: AsyncCollection, prefix: str, limit: int) -> list[Document]:
    return await documents.find({"$id": under(prefix)}, sort=[("$id", -1)], limit=limit)


def _position(document: Document) -> int:
    return int(document.id.rpartition("/")[2])


def _is_excluded(message: Message) -> bool:
    return bool(message.additional_properties.get("_excluded", False))


def _instant(checkpoint: WorkflowCheckpoint) -> str:
    """Return the timestamp in UTC with microseconds: the strings sort by time."""
    try:
        at = datetime.fromisoformat(checkpoint.timestamp)
        return (
            (at if at.tzinfo else at.replace(tzinfo=UTC))
            .astimezone(UTC)
            .isoformat(timespec="microseconds")
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise WorkflowCheckpointException(
            f"checkpoint {checkpoint.checkpoint_id}: timestamp must be an ISO 8601 time, got {checkpoint.timestamp!r}"
        ) from error


@contextmanager
def _their_errors() -> Iterator[None]:
    """Raise the framework's error instead of `InvalidBody`, `InvalidFilter` and `InvalidId`."""
    try:
        yield
    except (InvalidBody, InvalidFilter, InvalidId) as error:
        raise WorkflowCheckpointException(str(error)) from None
