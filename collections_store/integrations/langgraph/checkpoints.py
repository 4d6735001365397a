"""The methods of a checkpointer, each written once for sync and async, as a procedure (see `running`).

A checkpoint and the values that it adds are written at once. Values are never changed, so a checkpoint whose value is
not found was deleted while it was read: it is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    CheckpointTuple,
    get_checkpoint_metadata,
    writes_sort_key,
)

from ... import Document, InvalidFilter, InvalidOption, Path
from .records import (
    CHECKPOINTS,
    VALUES,
    WRITES,
    Address,
    join,
    pack,
    plain,
    typed,
    under,
    unpack,
    version_key,
)
from .running import Steps, call

Config: TypeAlias = dict[str, Any]
BATCH: Final = 100
"""Documents that are read at once."""
STRATEGIES: Final = ("keep_latest", "delete")
_COUNTERS: Final = "counters_since_delta_snapshot"
"""The metadata that names the delta channels whose values are spread over ancestors."""
_SCALARS: Final = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Listing:
    """What `list` lists: a filter, a sort, and what the metadata must equal."""

    filter: dict[Any, Any]
    sort: list[tuple[str, int]]
    metadata: Mapping[str, Any]

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
        return cls(found, [("$id" if is_one else "id", -1)], metadata or {})

    def matches(self, document: Document) -> bool:
        """Return whether the metadata has the wanted values, as a whole."""
        found = document.body["metadata"]
        return all(found.get(key) == value for key, value in self.metadata.items())


def _prefix(at: Address | None) -> str:
    if at is None:
        return CHECKPOINTS
    if at.namespace is None:
        return join(CHECKPOINTS, at.thread)
    return at.id(CHECKPOINTS)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The procedures, with LangGraph's serializer."""

    serde: Any

    def put(
        self,
        config: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        metadata: Any,
        new_versions: Mapping[str, Any],
    ) -> Steps[Config]:
        parent = Address.of(config)
        at = parent.at(checkpoint["id"])
        values = checkpoint["channel_values"]
        versions = {**new_versions, **checkpoint["channel_versions"]}
        channels: dict[str, str] = {}
        bodies: dict[str, Any] = {}
        for channel, value in values.items():
            is_versioned = channel in versions
            key = version_key(versions[channel]) if is_versioned else f"@{at.checkpoint}"
            channels[channel] = key
            if channel in new_versions or not is_versioned or parent.checkpoint is None:
                bodies[at.id(VALUES, channel, key)] = pack(self.serde, value)
        rest = {name: part for name, part in checkpoint.items() if name != "channel_values"}
        bodies[at.id(CHECKPOINTS, checkpoint["id"])] = {
            "thread": at.thread,
            "namespace": at.namespace,
            "id": at.checkpoint,
            "parent": parent.checkpoint,
            "channels": channels,
            "metadata": plain(get_checkpoint_metadata(config, metadata)),
            **pack(self.serde, rest),
        }
        yield call("put_many", bodies, atomic=True)
        return at.config()

    def put_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Steps[None]:
        at = Address.of(config)
        if at.checkpoint is None:
            raise InvalidOption(
                "config", "must have a checkpoint_id: writes belong to a checkpoint"
            )
        at = at.at(at.checkpoint)
        first: dict[str, Any] = {}
        last: dict[str, Any] = {}
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            bodies = first if index >= 0 else last
            bodies[at.id(WRITES, at.checkpoint or "", task, str(index))] = {
                "checkpoint": at.checkpoint,
                "task": task,
                "path": path,
                "index": index,
                "channel": channel,
                **pack(self.serde, value),
            }
        if first:  # a task that runs again does not replace what it wrote
            yield call("put_many", first, mode="ignore", atomic=True)
        if last:
            yield call("put_many", last, atomic=True)

    def get_tuple(self, config: Mapping[str, Any]) -> Steps[CheckpointTuple | None]:
        at = Address.of(config)
        seen = None
        while (document := (yield from self._find(at))) is not None:
            [found] = yield from self.tuples([document])
            if isinstance(found, CheckpointTuple):
                return found if at.checkpoint is None else found._replace(config=config)
            if document == seen:
                raise LookupError(
                    f"checkpoint {document.body['id']}: the value of channel {found!r} was deleted"
                )
            seen = document
        return None

    def _find(self, at: Address) -> Steps[Document | None]:
        if at.checkpoint is not None:
            id = at.id(CHECKPOINTS, at.checkpoint)
            document: Document | None = yield call("document", id)
            return document
        latest = {"$id": under(at.id(CHECKPOINTS))}
        document = yield call("find_one", latest, sort=[("$id", -1)])
        return document

    def list_batch(
        self, listing: Listing, after: str | None, limit: int
    ) -> Steps[tuple[list[CheckpointTuple], str | None]]:
        """Return the next checkpoints, and the cursor of those after them."""
        page = yield call("page", listing.filter, sort=listing.sort, limit=limit, after=after)
        wanted = [document for document in page if listing.matches(document)]
        found: list[CheckpointTuple] = []
        for document, each in zip(wanted, (yield from self.tuples(wanted)), strict=True):
            if not isinstance(each, CheckpointTuple):
                each = yield from self.get_tuple(Address.of_body(document.body).config())  # noqa: PLW2901
            if each is not None:
                found.append(each)
        return found, page.cursor

    def tuples(self, found: Sequence[Document]) -> Steps[list[CheckpointTuple | str]]:
        """Return the tuples of stored checkpoints; of one without all its values, the channel of a missing one."""
        channels = [_value_ids(document.body) for document in found]
        ids = set(chain.from_iterable(each.values() for each in channels))
        bodies = (yield call("get_many", ids)) if ids else {}
        values = {id: typed(body) for id, body in bodies.items()}
        writes = yield from self._writes(found)
        tuples: list[CheckpointTuple | str] = []
        for document, stored in zip(found, channels, strict=True):
            missing = [channel for channel, id in stored.items() if id not in values]
            if missing:
                tuples.append(missing[0])
                continue
            body, at = document.body, Address.of_body(document.body)
            checkpoint = unpack(self.serde, body)
            checkpoint["channel_values"] = {
                channel: self.serde.loads_typed(values[id]) for channel, id in stored.items()
            }
            parent = at.at(body["parent"]).config() if body["parent"] else None
            pending = writes.get(at, [])
            tuples.append(
                CheckpointTuple(at.config(), checkpoint, body["metadata"], parent, pending)
            )
        return tuples

    def _writes(self, found: Sequence[Document]) -> Steps[dict[Address, list[Any]]]:
        """Return the pending writes of checkpoints, in LangGraph's order."""
        writes: dict[Address, list[Any]] = {}
        spaces = groupby(
            sorted(map(Address.of_body, (document.body for document in found)), key=_space), _space
        )
        for _, group in spaces:
            addresses = {at.checkpoint: at for at in group}
            ids = [addresses[each].id(WRITES, each or "") for each in sorted(addresses, key=str)]
            within = {"$id": under(ids[0], ids[-1])}
            stored = yield call("find", within)
            for document in sorted(stored, key=_write_order):
                body = document.body
                if (at := addresses.get(body["checkpoint"])) is not None:
                    write = body["task"], body["channel"], unpack(self.serde, body)
                    writes.setdefault(at, []).append(write)
        return writes

    def history(
        self, config: Mapping[str, Any], channels: Sequence[str]
    ) -> Steps[dict[str, dict[str, Any]]]:
        """Return for each channel the writes of the ancestors back to its nearest stored value, and that value."""
        target = yield from self._find(Address.of(config))
        line = [] if target is None else (yield from self._ancestors(target, set(channels)))
        writes = yield from self._writes(line)
        found: dict[str, dict[str, Any]] = {}
        for channel in channels:
            entry: dict[str, Any] = {"writes": []}
            for document in line:
                at = Address.of_body(document.body)
                entry["writes"][:0] = [each for each in writes.get(at, []) if each[1] == channel]
                if (value := _value_ids(document.body).get(channel)) is not None:
                    body = yield call("get", value)
                    entry["seed"] = unpack(self.serde, body)
                    break
            found[channel] = entry
        return found

    def _ancestors(self, document: Document, channels: set[str]) -> Steps[list[Document]]:
        """Return the ancestors back to where each of the channels has a stored value."""
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
        within = [{"$id": under(join(kind, thread))} for kind in (CHECKPOINTS, VALUES, WRITES)]
        yield call("delete_many", {"$or": within})

    def delete_for_runs(self, runs: Iterable[str]) -> Steps[None]:
        """Must run in a transaction."""
        wanted = {"$id": under(CHECKPOINTS), "metadata.run_id": {"$in": [str(run) for run in runs]}}
        found = yield call("find", wanted)
        yield from self._delete(found)

    def copy_thread(self, source: str, target: str) -> Steps[None]:
        """Must run in a transaction."""
        for kind in (CHECKPOINTS, VALUES, WRITES):
            old, new = join(kind, source), join(kind, target)
            cursor, within = None, {"$id": under(old)}
            while True:
                page = yield call("page", within, sort=[("$id", 1)], limit=BATCH, after=cursor)
                bodies = {new + each.id.removeprefix(old): each.body for each in page}
                if kind == CHECKPOINTS:
                    bodies = {id: {**body, "thread": target} for id, body in bodies.items()}
                if bodies:
                    yield call("put_many", bodies)
                if (cursor := page.cursor) is None:
                    break

    def prune(self, threads: Iterable[str], strategy: str) -> Steps[None]:
        """Must run in a transaction."""
        if strategy not in STRATEGIES:
            raise InvalidOption("strategy", f"must be one of {STRATEGIES}, got {strategy!r}")
        for thread in threads:
            if strategy == "delete":
                yield from self.delete_thread(str(thread))
            else:
                yield from self._keep_latest(str(thread))

    def _keep_latest(self, thread: str) -> Steps[None]:
        within = {"$id": under(join(CHECKPOINTS, thread))}
        stored = yield call("find", within, sort=[("$id", 1)])
        latest = {each.body["namespace"]: each for each in stored}
        kept: set[str] = set()
        for document in latest.values():
            spread = set(document.body["metadata"].get(_COUNTERS) or ())
            line = yield from self._ancestors(document, spread - document.body["channels"].keys())
            kept |= {each.id for each in (document, *line)}
        yield from self._delete([each for each in stored if each.id not in kept])

    def delete_idle(self, seconds: float) -> Steps[int]:
        """Must run in a transaction."""
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        every, recent = {"$id": under(CHECKPOINTS)}, {"$updated_at": {"$gte": since}}
        threads = yield call("distinct", "thread", every)
        active = yield call("distinct", "thread", every | recent)
        idle = sorted(set(threads) - set(active))
        for thread in idle:
            yield from self.delete_thread(thread)
        return len(idle)

    def _delete(self, found: Sequence[Document]) -> Steps[None]:
        """Delete checkpoints with their writes, and the values that no other checkpoint has."""
        for start in range(0, len(found), BATCH):
            some = found[start : start + BATCH]
            addresses = [Address.of_body(each.body) for each in some]
            writes = [{"$id": under(at.id(WRITES, at.checkpoint or ""))} for at in addresses]
            checkpoints = {"$id": {"$in": [each.id for each in some]}}
            yield call("delete_many", {"$or": [checkpoints, *writes]})
        for at in {Address.of_body(each.body).at(None) for each in found}:
            yield from self._delete_unused_values(at)

    def _delete_unused_values(self, at: Address) -> Steps[None]:
        checkpoints, values = {"$id": under(at.id(CHECKPOINTS))}, {"$id": under(at.id(VALUES))}
        left = yield call("find", checkpoints, projection=["thread", "namespace", "channels"])
        used = set(chain.from_iterable(_value_ids(each.body).values() for each in left))
        stored = yield call("find", values, projection=["type"])
        unused = [each.id for each in stored if each.id not in used]
        if unused:
            yield call("remove_many", unused)


def is_mixed(writes: Iterable[tuple[str, Any]]) -> bool:
    """Return whether some writes replace what is stored, and others do not."""
    return len({channel in WRITES_IDX_MAP for channel, _ in writes}) > 1


def _value_ids(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids of the values of a stored checkpoint, by channel."""
    prefix = join(VALUES, body["thread"], body["namespace"])
    return {channel: f"{prefix}/{join(channel, key)}" for channel, key in body["channels"].items()}


def _space(at: Address) -> tuple[str, str]:
    return at.thread, at.namespace or ""


def _write_order(document: Document) -> Any:
    body = document.body
    return writes_sort_key(body["path"], body["task"], body["index"])
