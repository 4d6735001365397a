"""The methods of a checkpointer, each written once for sync and async, as a procedure (see `running`).

A large value that changed is stored inside its checkpoint, by the same statement: an agent's messages change in
each step. The next checkpoint with the same value also writes the value as a document, and later checkpoints refer
to this document. A checkpoint with a missing value was deleted during the read: the read starts again.

No checkpoint refers to a deleted value:

1. A checkpoint that refers to values of its parent is inserted beside the parent. A deletion of the parent waits
   for the insert.
2. A deletion takes two transactions. The first deletes checkpoints. The second deletes the values without a
   checkpoint: the second sees all earlier inserts, and later checkpoints find no parent and write their own values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from threading import Lock
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    CheckpointTuple,
    get_checkpoint_metadata,
    writes_sort_key,
)

from ... import (
    Document,
    DocumentNotFound,
    DuplicateKey,
    InvalidFilter,
    InvalidOption,
    Path,
    Sort,
)
from .records import (
    CHECKPOINTS,
    INLINE,
    LARGE,
    VALUES,
    Address,
    at_checkpoint,
    checkpoint_of,
    config_of,
    digest,
    join,
    pack,
    packed,
    plain,
    typed,
    under,
    unpack,
    value_id,
    version_key,
)
from .running import InTransaction, Steps, call, steps_of

V = TypeVar("V")
Config: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, tuple[str, bytes]]
"""Large values as the serializer wrote them, by their digests."""
BATCH: Final = 100
"""Documents that are read at once."""
CACHED_BYTES: Final = 16 * 2**20
"""Bytes of large values that a checkpointer remembers."""
CACHED_CHECKPOINTS: Final = 1000
"""Checkpoints of which a checkpointer remembers where their large values are."""
STRATEGIES: Final = ("keep_latest", "delete")
_COUNTERS: Final = "counters_since_delta_snapshot"
"""The metadata that names the delta channels whose values are spread over ancestors."""
_SCALARS: Final = (str, int, float, bool, type(None))
_NO_WRITE: Final = {"task": {"$exists": False}}
_FIRST_FIRST: Final = Sort.parse([("$id", 1)])
_LAST_FIRST: Final = Sort.parse([("$id", -1)])
_LATEST_FIRST: Final = Sort.parse([("id", -1)])


@dataclass(frozen=True, slots=True)
class Listing:
    """The checkpoints to list: a filter, a sort, and the metadata to be equal. `ids`: the range of ids of a list in a
    single namespace; None: any other list.
    """

    filter: dict[Any, Any]
    sort: Sort
    metadata: Mapping[str, Any]
    ids: dict[str, str] | None = None

    @classmethod
    def parse(
        cls,
        config: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        before: Mapping[str, Any] | None,
    ) -> Listing:
        """Read the arguments of `list`."""
        at = Address.of(config) if config else None
        is_one = at is not None and at.namespace is not None
        found: dict[Any, Any] = {"$id": under(_prefix(at))}
        if at is not None and at.checkpoint is not None:
            found["id"] = {"$eq": at.checkpoint}
        if before is not None and (last := before.get("configurable", {}).get("checkpoint_id")):
            if at is not None and is_one:
                found["$id"]["$lt"] = at.id(CHECKPOINTS, str(last))
            else:
                found["id"] = found.get("id", {}) | {"$lt": str(last)}
        for key, value in (metadata or {}).items():
            if not isinstance(key, str):
                raise InvalidFilter(str(key), "must be a key of the metadata, a string")
            if isinstance(value, _SCALARS):  # others are compared after reading
                found[Path("metadata", key)] = {"$eq": value}
        ids = found["$id"] if is_one and "id" not in found else None
        if (metadata or ids is None) and all(
            value is None or not isinstance(value, _SCALARS) for value in (metadata or {}).values()
        ):
            found |= _NO_WRITE  # no write has metadata
        return cls(found, _LAST_FIRST if is_one else _LATEST_FIRST, metadata or {}, ids)

    def matches(self, document: Document) -> bool:
        """Return whether the metadata has the wanted values. Arrays and objects are compared as a whole."""
        found = document.body["metadata"]
        return all(found.get(key) == value for key, value in self.metadata.items())


def _prefix(at: Address | None) -> str:
    if at is None:
        return CHECKPOINTS
    if at.namespace is None:
        return join(CHECKPOINTS, at.thread)
    return at.id(CHECKPOINTS)


class BoundedCache(Generic[V]):
    """The most recently used values, by id, up to a total `size`. Threads share the cache."""

    def __init__(self, size: int, size_of: Callable[[V], int]) -> None:
        self._left, self._size_of, self._lock = size, size_of, Lock()
        self._values: OrderedDict[str, V] = OrderedDict()

    def get(self, ids: Iterable[str]) -> dict[str, V]:
        """Return the cached values of the ids."""
        found: dict[str, V] = {}
        with self._lock:
            for id in ids:
                if id in self._values:
                    found[id] = self._values[id]
                    self._values.move_to_end(id)
        return found

    def add(self, values: Mapping[str, V]) -> None:
        """Add or replace values, and drop the least recently used values beyond the size."""
        with self._lock:
            for id, value in values.items():
                if id in self._values:
                    self._left += self._size_of(self._values.pop(id))
                self._values[id] = value
                self._left -= self._size_of(value)
            while self._left < 0:
                self._left += self._size_of(self._values.popitem(last=False)[1])


class Caches(NamedTuple):
    """The caches of a checkpointer, by id: large values as written by the serializer, and the positions of the
    large values of written checkpoints, by channel. Neither changes: the id of a value is its digest, and no
    checkpoint is written again with other values. `tasks`: the written documents of writes; a document may have
    been deleted since.
    """

    values: BoundedCache[tuple[str, bytes]]
    places: BoundedCache[dict[str, Any]]
    tasks: BoundedCache[bool]

    @classmethod
    def empty(cls) -> Caches:
        """Return caches of the default size."""
        values = BoundedCache[tuple[str, bytes]](CACHED_BYTES, lambda written: len(written[1]))
        places = BoundedCache[dict[str, Any]](CACHED_CHECKPOINTS, lambda _: 1)
        return cls(values, places, BoundedCache(CACHED_CHECKPOINTS, lambda _: 1))


@dataclass(slots=True)
class Checkpoints:
    """The procedures, with LangGraph's serializer."""

    serde: Any
    caches: Caches

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

    def get_tuple(self, config: Mapping[str, Any]) -> Steps[CheckpointTuple | None]:
        at = Address.of(config)
        seen = None
        while found := (yield from self._read(at)):
            document, writes = found
            values: Values = {}
            if large := _value_ids(document):
                values = yield from self._values(large.values())
            each = self._tuple(document.body, large, values, writes, at.checkpoint and config)
            if isinstance(each, CheckpointTuple):
                return each
            if document == seen:
                raise _deleted(document, each)
            seen = document
        return None

    def _read(self, at: Address) -> Steps[tuple[Document, list[Document]] | None]:
        """Return a checkpoint, by default the latest of the namespace, and the writes of the checkpoint."""
        if at.checkpoint is not None:
            return (yield from self._read_one(at.id(CHECKPOINTS, at.checkpoint)))
        within = under(at.id(CHECKPOINTS))
        while last := (yield call("find", {"$id": within}, sort=_LAST_FIRST, limit=1)):
            [document] = last
            if "task" not in document.body:
                return document, []
            id = checkpoint_of(document.id)
            if (found := (yield from self._read_one(id))) is not None:
                return found
            within["$lt"] = id  # there are writes only
        return None

    def _read_one(self, id: str) -> Steps[tuple[Document, list[Document]] | None]:
        stored = yield call("find", {"$id": at_checkpoint(id)}, sort=_FIRST_FIRST)
        return (stored[0], stored[1:]) if stored and stored[0].id == id else None

    def list_batch(
        self, listing: Listing, after: str | None, limit: int
    ) -> Steps[tuple[list[CheckpointTuple], str | None]]:
        """Return the next checkpoints, and the cursor for the following batch."""
        if listing.ids is not None:
            wanted, writes, cursor = yield from _read_down(listing, listing.ids, after, limit)
        else:
            page = yield call("page", listing.filter, sort=listing.sort, limit=limit, after=after)
            wanted, cursor = [each for each in page if listing.matches(each)], page.cursor
        if listing.ids is None or listing.metadata:
            writes = yield from self._writes(wanted)
        found: list[CheckpointTuple] = []
        for document, each in zip(wanted, (yield from self.tuples(wanted, writes)), strict=True):
            if not isinstance(each, CheckpointTuple):
                each = yield from self.get_tuple(Address.of_body(document.body).config())  # noqa: PLW2901
            if each is not None:
                found.append(each)
        return found, cursor

    def tuples(
        self, found: Sequence[Document], writes: Mapping[str, Sequence[Document]]
    ) -> Steps[list[CheckpointTuple | str]]:
        """Return the tuples of stored checkpoints with their writes, by id. If a value of a checkpoint is missing,
        return the channel instead of the tuple.
        """
        large = [_value_ids(document) for document in found]
        values = yield from self._values(chain.from_iterable(each.values() for each in large))
        return [
            self._tuple(document.body, ids, values, writes.get(document.id, ()))
            for document, ids in zip(found, large, strict=True)
        ]

    def _tuple(
        self,
        body: Mapping[str, Any],
        large: Mapping[str, str],
        values: Values,
        writes: Sequence[Document],
        config: Any = None,
    ) -> CheckpointTuple | str:
        """Return the tuple of a stored checkpoint with a caller's `config`, by default its own; or the channel of a
        missing value.
        """
        checkpoint = unpack(self.serde, body)
        for channel, id in large.items():
            if id not in values:
                return channel
            checkpoint["channel_values"][channel] = self.serde.loads_typed(values[id])
        thread, namespace, parent = body["thread"], body["namespace"], body["parent"]
        return CheckpointTuple(
            config or config_of(thread, namespace, body["id"]),
            checkpoint,
            body["metadata"],
            config_of(thread, namespace, parent) if parent else None,
            self._pending(writes) if writes else [],
        )

    def _values(self, ids: Iterable[str]) -> Steps[Values]:
        """Return large values as written by the serializer."""
        wanted = set(ids)
        values = self.caches.values.get(wanted)
        if missing := wanted - values.keys():
            bodies = yield call("get_many", missing)
            read = {id: typed(body) for id, body in bodies.items()}
            self.caches.values.add(read)
            values |= read
        return values

    def _pending(self, documents: Iterable[Document]) -> list[tuple[str, str, Any]]:
        """Return the writes of a checkpoint, in LangGraph's order."""
        keyed = [
            (writes_sort_key(body["path"], body["task"], write["index"]), body["task"], write)
            for body in (document.body for document in documents)
            for write in body["writes"]
        ]
        keyed.sort(key=itemgetter(0))
        return [(task, write["channel"], unpack(self.serde, write)) for _, task, write in keyed]

    def _writes(self, found: Sequence[Document]) -> Steps[dict[str, list[Document]]]:
        """Return the writes of checkpoints, by the checkpoints' ids."""
        writes: dict[str, list[Document]] = {each.id: [] for each in found}
        for _, group in groupby(sorted(found, key=_space), _space):
            ids = sorted(document.id for document in group)
            within = {"$id": at_checkpoint(ids[-1]) | {"$gte": ids[0]}}
            only_writes = {"task": {"$exists": True}} if len(ids) > 1 else {}
            for document in (yield call("find", within | only_writes)):
                if (id := checkpoint_of(document.id)) in writes and id != document.id:
                    writes[id].append(document)
        return writes

    def history(
        self, config: Mapping[str, Any], channels: Sequence[str]
    ) -> Steps[dict[str, dict[str, Any]]]:
        """Return for each channel the nearest stored value among the ancestors, and all writes since."""
        target = yield from self._read(Address.of(config))
        line = [] if target is None else (yield from self._ancestors(target[0], set(channels)))
        writes = yield from self._writes(line)
        pending = {id: self._pending(documents) for id, documents in writes.items()}
        found: dict[str, dict[str, Any]] = {}
        for channel in channels:
            entry: dict[str, Any] = {"writes": []}
            for document in line:
                entry["writes"][:0] = [each for each in pending[document.id] if each[1] == channel]
                if channel in document.body["channels"]:
                    entry["seed"] = yield from self._value(document, channel)
                    break
            found[channel] = entry
        return found

    def _value(self, document: Document, channel: str) -> Steps[Any]:
        """Return the value of a channel."""
        id = _value_ids(document).get(channel)
        if id is None:
            return unpack(self.serde, document.body)["channel_values"][channel]
        values = yield from self._values({id})
        if id not in values:
            raise _deleted(document, channel)
        return self.serde.loads_typed(values[id])

    def _ancestors(self, document: Document, channels: set[str]) -> Steps[list[Document]]:
        """Return the ancestors, back to the nearest stored value of each channel."""
        line: list[Document] = []
        while channels and (parent := document.body["parent"]) is not None:
            above = Address.of_body(document.body).id(CHECKPOINTS, parent)
            found = yield call("document", above)
            if found is None:
                break
            document = found
            line.append(document)
            channels = channels - document.body["channels"].keys()
        return line

    def delete_thread(self, thread: str) -> Steps[None]:
        yield call("delete_many", {"$id": under(join(CHECKPOINTS, thread))})
        yield InTransaction(lambda: self._delete_unused_values(thread))

    def delete_for_runs(self, runs: Iterable[str]) -> Steps[None]:
        wanted = {
            "$id": under(CHECKPOINTS),
            **_NO_WRITE,
            "metadata.run_id": {"$in": _names("run_ids", runs)},
        }
        yield from self._delete(lambda: steps_of(call("find", wanted)))

    def copy_thread(self, source: str, target: str) -> Steps[None]:
        yield InTransaction(lambda: self._copy(source, target))

    def _copy(self, source: str, target: str) -> Steps[None]:
        for kind in (VALUES, CHECKPOINTS):
            old, new = join(kind, source), join(kind, target)
            cursor, within = None, {"$id": under(old)}
            while True:
                page = yield call("page", within, sort=[("$id", 1)], limit=BATCH, after=cursor)
                bodies = {new + each.id.removeprefix(old): each.body for each in page}
                for body in bodies.values():
                    if "thread" in body:
                        body["thread"] = target
                if bodies:
                    yield call("put_many", bodies)
                if (cursor := page.cursor) is None:
                    break

    def prune(self, threads: Iterable[str], strategy: str) -> Steps[None]:
        if strategy not in STRATEGIES:
            raise InvalidOption("strategy", f"must be one of {STRATEGIES}, got {strategy!r}")
        for thread in _names("thread_ids", threads):
            if strategy == "delete":
                yield from self.delete_thread(thread)
            else:
                yield from self._delete(partial(self._superseded, thread))

    def _superseded(self, thread: str) -> Steps[list[Document]]:
        """Return the checkpoints of a thread that the latest checkpoints do not need."""
        within = {"$id": under(join(CHECKPOINTS, thread)), **_NO_WRITE}
        stored = yield call("find", within, sort=[("$id", 1)])
        latest = {each.body["namespace"]: each for each in stored}
        kept: set[str] = set()
        for document in latest.values():
            spread = set(document.body["metadata"].get(_COUNTERS) or ())
            line = yield from self._ancestors(document, spread - document.body["channels"].keys())
            kept |= {each.id for each in (document, *line)}
        return [each for each in stored if each.id not in kept]

    def delete_idle(self, seconds: float) -> Steps[int]:
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        recent = {**_NO_WRITE, "$updated_at": {"$gte": since}}
        threads = yield call("distinct", "thread", {"$id": under(CHECKPOINTS), **_NO_WRITE})
        active = yield call("distinct", "thread", {"$id": under(CHECKPOINTS), **recent})
        deleted = 0
        for thread in sorted(set(threads) - set(active)):
            deleted += yield InTransaction(partial(self._delete_idle_thread, thread, recent))
            yield InTransaction(partial(self._delete_unused_values, thread))
        return deleted

    def _delete_idle_thread(self, thread: str, recent: dict[str, Any]) -> Steps[bool]:
        """Delete the checkpoints of a thread without recent checkpoints; return whether the thread was deleted."""
        within = {"$id": under(join(CHECKPOINTS, thread))}
        if (yield call("count", within | recent)):
            return False
        yield call("delete_many", within)
        return True

    def _delete(self, choose: Callable[[], Steps[list[Document]]]) -> Steps[None]:
        """Delete the chosen checkpoints with their writes, and the values without another checkpoint."""

        def delete() -> Steps[set[tuple[str, str]]]:
            found = yield from choose()
            for start in range(0, len(found), BATCH):
                ids = [{"$id": at_checkpoint(each.id)} for each in found[start : start + BATCH]]
                yield call("delete_many", {"$or": ids})
            return set(map(_space, found))

        for space in (yield InTransaction(delete)):
            yield InTransaction(partial(self._delete_unused_values, *space))

    def _delete_unused_values(self, *space: str) -> Steps[None]:
        """Delete the values of a thread, or of a namespace, without a checkpoint."""
        checkpoints = {"$id": under(join(CHECKPOINTS, *space)), **_NO_WRITE}
        left = yield call("find", checkpoints, projection=["thread", "namespace", "channels"])
        used = set(chain.from_iterable(_value_ids(each).values() for each in left))
        values = {"$id": under(join(VALUES, *space))}
        stored = yield call("find", values, projection=["type"])
        unused = [each.id for each in stored if each.id not in used]
        if unused:
            yield call("remove_many", unused)


def _read_down(
    listing: Listing, ids: Mapping[str, str], after: str | None, limit: int
) -> Steps[tuple[list[Document], dict[str, list[Document]], str | None]]:
    """Return up to `limit` checkpoints of a namespace before the id `after`, latest first; their writes by id; and
    the id for the next batch, or None at the end. In this order, writes precede their checkpoint. A list by metadata
    finds no writes.
    """
    found: list[Document] = []
    writes: dict[str, list[Document]] = {}
    before: list[Document] = []
    within, size = {**ids, "$lt": after or ids["$lt"]}, 2 * limit
    while True:
        wanted = {**listing.filter, "$id": within}
        stored = yield call("find", wanted, sort=_LAST_FIRST, limit=size)
        for document in stored:
            if "task" in document.body:
                before.append(document)
                continue
            if listing.metadata and not listing.matches(document):
                continue
            found.append(document)
            its = [each for each in before if checkpoint_of(each.id) == document.id]
            writes[document.id], before = its[::-1], []
            if len(found) == limit:
                return found, writes, document.id
        if len(stored) < size:
            return found, writes, None
        within["$lt"] = stored[-1].id


def _with_values(insert: Callable[[Any], Any], values: Mapping[str, Any]) -> Steps[None]:
    """Insert a checkpoint, and write its own values."""
    yield insert
    yield call("put_many", values, atomic=True)


def _deleted(document: Document, channel: str) -> LookupError:
    return LookupError(
        f"checkpoint {document.body['id']}: the value of channel {channel!r} was deleted"
    )


def _names(option: str, given: Iterable[Any]) -> list[str]:
    if isinstance(given, str):
        raise InvalidOption(option, f"must be a list of strings, got {given!r}")
    return [str(each) for each in given]


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
    return isinstance(value, _SCALARS) and (not isinstance(value, str) or len(value) <= LARGE // 4)


def _value_ids(document: Document) -> dict[str, str]:
    """Return the ids of the large values of a stored checkpoint, by channel."""
    found = {}
    for channel, place in document.body["channels"].items():
        if place:
            found[channel] = value_id(document.id, place["digest"])
    return found


def _space(document: Document) -> tuple[str, str]:
    return document.body["thread"], document.body["namespace"]
