"""The methods of a checkpointer that read, as procedures (see `running`).

A checkpoint with a missing value was deleted during the read: the read starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, TypeAlias

from langgraph.checkpoint.base import CheckpointTuple, writes_sort_key

from ... import Document, Sort
from .caches import Caches
from .listing import LAST_FIRST, Listing
from .records import (
    CHECKPOINTS,
    Address,
    at_checkpoint,
    checkpoint_of,
    config_of,
    space_of,
    typed,
    under,
    unpack,
    value_ids,
)
from .running import Steps, call

Values: TypeAlias = Mapping[str, tuple[str, bytes]]
"""Large values as the serializer wrote them, by their digests."""
_FIRST_FIRST: Final = Sort.parse([("$id", 1)])


@dataclass(slots=True)
class CheckpointReader:
    """The procedures that read, with LangGraph's serializer."""

    serde: Any
    caches: Caches

    def get_tuple(self, config: Mapping[str, Any]) -> Steps[CheckpointTuple | None]:
        at = Address.of(config)
        seen = None
        while found := (yield from self._read(at)):
            document, writes = found
            values: Values = {}
            if large := value_ids(document):
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
        while last := (yield call("find", {"$id": within}, sort=LAST_FIRST, limit=1)):
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
        large = [value_ids(document) for document in found]
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
        for _, group in groupby(sorted(found, key=space_of), space_of):
            ids = sorted(document.id for document in group)
            within = {"$id": at_checkpoint(ids[-1]) | {"$gte": ids[0]}}
            only_writes = {"task": {"$exists": True}} if len(ids) > 1 else {}
            for document in (yield call("find", within | only_writes, sort=_FIRST_FIRST)):
                if (id := checkpoint_of(document.id)) in writes and id != document.id:
                    writes[id].append(document)
        return writes

    def history(
        self, config: Mapping[str, Any], channels: Sequence[str]
    ) -> Steps[dict[str, dict[str, Any]]]:
        """Return for each channel the nearest stored value among the ancestors, and all writes since."""
        target = yield from self._read(Address.of(config))
        line = [] if target is None else (yield from self.ancestors(target[0], set(channels)))
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
        id = value_ids(document).get(channel)
        if id is None:
            return unpack(self.serde, document.body)["channel_values"][channel]
        values = yield from self._values({id})
        if id not in values:
            raise _deleted(document, channel)
        return self.serde.loads_typed(values[id])

    def ancestors(self, document: Document, channels: set[str]) -> Steps[list[Document]]:
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
        stored = yield call("find", wanted, sort=LAST_FIRST, limit=size)
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


def _deleted(document: Document, channel: str) -> LookupError:
    return LookupError(
        f"checkpoint {document.body['id']}: the value of channel {channel!r} was deleted"
    )
