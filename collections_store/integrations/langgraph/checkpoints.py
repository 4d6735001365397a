"""The methods of a checkpointer, each written once for sync and async, as a procedure (see `running`). This module has
those that write; `reading` and `deleting` have the others.

A large value that changed is stored inside its checkpoint, by the same statement: an agent's messages change in
each step. The next checkpoint with the same value also writes the value as a document, and later checkpoints refer
to this document. `deleting` has the rules by which no checkpoint refers to a deleted value.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from langgraph.checkpoint.base import WRITES_IDX_MAP, get_checkpoint_metadata

from ... import DocumentNotFound, DuplicateKey, InvalidOption
from .deleting import CheckpointDeleter
from .reading import Values
from .records import (
    CHECKPOINTS,
    INLINE,
    LARGE,
    SCALARS,
    VALUES,
    Address,
    digest,
    join,
    pack,
    packed,
    plain,
    version_key,
)
from .running import InTransaction, Steps, call

Config: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Checkpoints(CheckpointDeleter):
    """The procedures, with LangGraph's serializer."""

    def put(
        self,
        config: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        metadata: Any,
        new_versions: Mapping[str, Any],
    ) -> Steps[Config]:
        parent = Address.of(config)
        at = parent.at(checkpoint["id"])
        id = at.id(CHECKPOINTS, checkpoint["id"])
        about = {
            "thread": at.thread,
            "namespace": at.namespace,
            "id": at.checkpoint,
            "parent": parent.checkpoint,
            "metadata": plain(get_checkpoint_metadata(config, metadata)),
        }
        above = parent.id(CHECKPOINTS, parent.checkpoint or "")
        referred = yield from self._referred(above, checkpoint, new_versions)
        if referred:
            body, large = self._draft(checkpoint, new_versions, referred)
            with suppress(DocumentNotFound, DuplicateKey):  # as if there were nothing to refer to
                insert: Any = call("insert_one", about | body, id=id, beside=above)
                if large:
                    insert = InTransaction(
                        partial(_with_values, insert, self._documents(at, large))
                    )
                yield insert
                self._remember(id, body)
                return at.config()
        body, large = self._draft(checkpoint, new_versions, {})
        if large:
            values = {**self._documents(at, large), id: about | body}
            yield call("put_many", values, atomic=True)
        else:
            yield call("put", id, about | body)
        self._remember(id, body)
        return at.config()

    def _remember(self, id: str, body: Mapping[str, Any]) -> None:
        places = {channel: place for channel, place in body["channels"].items() if place}
        self.caches.places.add({id: places})

    def _documents(self, at: Address, large: Values) -> dict[str, dict[str, str]]:
        """Return the documents of large values, by id."""
        written = {at.id(VALUES, name): value for name, value in large.items()}
        self.caches.values.add(written)
        return {id: packed(value) for id, value in written.items()}

    def _draft(
        self,
        checkpoint: Mapping[str, Any],
        new_versions: Mapping[str, Any],
        referred: Mapping[str, Any],
    ) -> tuple[dict[str, Any], Values]:
        """Return the channels and values of a checkpoint's body, and, by digest, the values to be written as
        documents. `referred`: the values already stored as documents.
        """
        versions = {**new_versions, **checkpoint["channel_versions"]}
        values = {
            channel: value
            for channel, value in checkpoint["channel_values"].items()
            if channel not in referred
        }
        large: dict[str, tuple[str, bytes]] = {}
        written = self._written(checkpoint, values, large)
        for size, changed in ((LARGE, False), (INLINE, True)):
            if len(written[1]) > size and (more := self._large(values, new_versions, changed)):
                large |= more
                written = self._written(checkpoint, values, large)
        channels: dict[str, Any] = {**referred, **dict.fromkeys(values)}
        shared: dict[str, tuple[str, bytes]] = {}
        for channel, value in large.items():
            name = digest(value)
            channels[channel] = {"version": version_key(versions.get(channel)), "digest": name}
            shared[name] = value
        return {"channels": channels, **packed(written)}, shared

    def _large(
        self, values: Mapping[str, Any], new_versions: Mapping[str, Any], changed: bool
    ) -> dict[str, tuple[str, bytes]]:
        """Return the large values as the serializer writes them: of the changed channels, or of the unchanged
        channels.
        """
        found = {
            channel: self.serde.dumps_typed(value)
            for channel, value in values.items()
            if (channel in new_versions) is changed and not _is_small(value)
        }
        return {channel: each for channel, each in found.items() if len(each[1]) > LARGE}

    def _written(
        self, checkpoint: Mapping[str, Any], values: Mapping[str, Any], large: Container[str]
    ) -> tuple[str, bytes]:
        """Return a checkpoint with its remaining values, as the serializer writes the checkpoint."""
        small = {channel: value for channel, value in values.items() if channel not in large}
        written: tuple[str, bytes] = self.serde.dumps_typed({**checkpoint, "channel_values": small})
        return written

    def _referred(
        self, above: str, checkpoint: Mapping[str, Any], new_versions: Mapping[str, Any]
    ) -> Steps[dict[str, Any]]:
        """Return the positions of the large values that a checkpoint shares with its parent, the document `above`,
        by channel.
        """
        versions = checkpoint["channel_versions"]
        kept = {
            channel: version_key(versions[channel])
            for channel, value in checkpoint["channel_values"].items()
            if channel not in new_versions and channel in versions and not _is_small(value)
        }
        if not kept:
            return {}
        known = self.caches.places.get([above])
        if not known:
            found = yield call("get", above)
            known = {above: {} if found is None else found["channels"]}
        stored = known[above]
        return {
            channel: stored[channel]
            for channel, version in kept.items()
            if stored.get(channel) and stored[channel]["version"] == version
        }

    def put_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Steps[None]:
        """Write the writes that the task has not stored yet. If the task is known to have stored writes, read
        first: a refused insert costs more than a read.
        """
        at = Address.of(config)
        id = _task_id(at, task)
        if self.caches.tasks.get([id]):
            stored = yield call("get", id, {"writes": []})
            indices = {each["index"] for each in stored["writes"]}
            if all(_index(*each) in indices for each in enumerate(writes)):
                return
        once, again = _bodies(at, id, self.written(writes), task, path)
        if len(once) + len(again) > 1:
            yield InTransaction(lambda: self._add(once, again))
        else:
            yield from self._write_one(once, again)
        if once:
            self.caches.tasks.add({id: True})

    def _write_one(self, once: Mapping[str, Any], again: Mapping[str, Any]) -> Steps[None]:
        for id, body in again.items():
            yield call("put", id, body)
        for id, body in once.items():
            try:
                yield call("insert_one", body, id=id)
            except DuplicateKey:  # the task wrote before
                stored = yield call("get", id, {"writes": []})
                if _added(body, stored):
                    yield InTransaction(lambda: self._add(once, again))

    def add_writes(
        self, config: Mapping[str, Any], written: Iterable[Mapping[str, Any]], task: str, path: str
    ) -> Steps[None]:
        """Do the work of `put_writes` in a transaction."""
        at = Address.of(config)
        yield from self._add(*_bodies(at, _task_id(at, task), written, task, path))

    def _add(self, once: Mapping[str, Any], again: Mapping[str, Any]) -> Steps[None]:
        for id, body in once.items():
            stored = yield call("get", id, {"writes": []})
            if added := _added(body, stored):
                yield call("put", id, {**body, "writes": [*stored["writes"], *added]})
        for id, body in again.items():
            yield call("put", id, body)

    def written(self, writes: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
        """Return the stored form of the writes of a task."""
        return [
            {
                "index": _index(number, write),
                "channel": write[0],
                **pack(self.serde, write[1]),
            }
            for number, write in enumerate(writes)
        ]


def _with_values(insert: Callable[[Any], Any], values: Mapping[str, Any]) -> Steps[None]:
    """Insert a checkpoint, and write its own values."""
    yield insert
    yield call("put_many", values, atomic=True)


def _index(number: int, write: tuple[str, Any]) -> int:
    """Return the index of a task's write: negative for LangGraph's own channels."""
    index: int = WRITES_IDX_MAP.get(write[0], number)
    return index


def _task_id(at: Address, task: str) -> str:
    """Return the id of the document of a task's writes."""
    if at.checkpoint is None:
        raise InvalidOption("config", "must have a checkpoint_id: writes belong to a checkpoint")
    return f"{at.id(CHECKPOINTS, at.checkpoint)} {join(task, '')}"


def _bodies(
    at: Address, id: str, written: Iterable[Mapping[str, Any]], task: str, path: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the documents of writes: the documents to be written once, and the documents to be replaced."""
    about = {"checkpoint": at.checkpoint, "task": task, "path": path}
    once: list[Mapping[str, Any]] = []
    again: dict[str, Any] = {}
    for write in written:
        if write["index"] >= 0:
            once.append(write)
        else:
            again[f"{id}{write['index']}"] = {**about, "writes": [write]}
    return {id: {**about, "writes": once}} if once else {}, again


def _added(body: Mapping[str, Any], stored: Mapping[str, Any]) -> list[Any]:
    """Return the writes of a task that are not stored yet."""
    indices = {each["index"] for each in stored["writes"]}
    return [each for each in body["writes"] if each["index"] not in indices]


def _is_small(value: Any) -> bool:
    """Return whether a value is small, judged without the serializer."""
    return isinstance(value, SCALARS) and (not isinstance(value, str) or len(value) <= LARGE // 4)
