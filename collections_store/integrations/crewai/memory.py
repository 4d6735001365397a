"""The storage of memories: a document for each record, found by the meaning of its content."""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeAlias

from crewai.memory.storage.backend import EmbeddingDimensionMismatchError
from crewai.memory.types import MemoryRecord, ScopeInfo
from crewai.memory.utils import normalize_scope_path

from ... import AsyncStore, IndexExists, InvalidBody, InvalidSearch, Path, VectorIndex
from .. import ids
from ..stores import PairedCollection, PairedOwner

Found: TypeAlias = list[tuple[MemoryRecord, float]]


class CollectionsMemoryStorage(PairedOwner):
    """CrewAI's storage of memories in a store: an `AsyncStore`, which stays open, or a URL with `options` of
    `AsyncStore`.

    Pass it as `Memory(storage=...)`. `collection` has a document for each record. The database runs all filters. A
    scope holds the scopes below it: `/team` holds `/team/a`, not `/teams`. The first embedding sets the dimensions of
    the storage until `reset` deletes all records; another length raises CrewAI's `EmbeddingDimensionMismatchError`.
    Records without an embedding, or with zeros alone, are listed and not found by `search`.

    >>> from crewai.memory.types import MemoryRecord
    >>> with CollectionsMemoryStorage("sqlite://") as memories:
    ...     memories.save([MemoryRecord(content="Tea, please.", scope="/ada", embedding=[1.0, 0.0])])
    ...     [(record, score)] = memories.search([2.0, 1.0], scope_prefix="/ada")
    ...     record.content, round(score, 3), memories.list_scopes()
    ('Tea, please.', 0.894, ['/ada'])
    """

    def __init__(
        self, store: AsyncStore | str, *, collection: str = "crewai_memories", **options: Any
    ) -> None:
        self._opened = PairedCollection(store, collection, ("scope",), options)
        self._sync, self._aio = self._opened.sync, self._opened.aio

    def save(self, records: Sequence[MemoryRecord]) -> None:
        """Store records, all or none; a record replaces a record of the same id. Raise `InvalidBody`."""
        bodies, size = _bodies(records)
        self._index(size)
        self._opened.indexed().put_many(bodies, atomic=True)

    async def asave(self, records: Sequence[MemoryRecord]) -> None:
        """Async counterpart of `save`."""
        bodies, size = _bodies(records)
        try:
            if size:
                await self._aio.create_vector_index("embedding", dimensions=size)
        except IndexExists:
            _is_indexed(await self._aio.indexes(), size)
        await (await self._opened.aindexed()).put_many(bodies, atomic=True)

    def search(  # noqa: PLR0917
        self,
        query_embedding: Sequence[float],
        scope_prefix: str | None = None,
        categories: Sequence[str] | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> Found:
        """Return the `limit` nearest records in a scope that have one of the categories and all of the metadata, with
        the cosines of the angles, if these are `min_score` or more; the best first.
        """
        options = _options(scope_prefix, categories, metadata_filter, limit, min_score)
        try:
            found = self._sync.nearest(list(query_embedding), **options)
        except InvalidSearch:
            if _is_indexed(self._sync.indexes(), len(query_embedding)) and any(query_embedding):
                raise
            found = []
        return [(self._record(each), each.score) for each in found]

    async def asearch(
        self, query_embedding: Sequence[float], *conditions: Any, **options: Any
    ) -> Found:
        """Async counterpart of `search`."""
        try:
            wanted = _options(*conditions, **options)
            found = await self._aio.nearest(list(query_embedding), **wanted)
        except InvalidSearch:
            indexes = await self._aio.indexes()
            if _is_indexed(indexes, len(query_embedding)) and any(query_embedding):
                raise
            found = []
        return [(self._record(each), each.score) for each in found]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: Sequence[str] | None = None,
        record_ids: Iterable[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
    ) -> int:
        """Delete the records that meet all of the given conditions; return their number. No record has one of no
        categories: an empty list deletes nothing.
        """
        conditions = scope_prefix, categories, record_ids, older_than, metadata_filter
        return self._sync.delete_many(_filter(*conditions)).deleted_count

    async def adelete(self, *conditions: Any, **options: Any) -> int:
        """Async counterpart of `delete`."""
        return (await self._aio.delete_many(_filter(*conditions, **options))).deleted_count

    def update(self, record: MemoryRecord) -> None:
        """Replace the stored record of the same id, if there is one."""
        bodies, size = _bodies([record])
        self._index(size)
        self._sync.replace_one({"$id": record.id}, bodies[record.id])

    def touch_records(self, record_ids: Iterable[str]) -> None:
        """Set `last_accessed` of records to now. CrewAI calls it with the results of a search."""
        now = {"last_accessed": _text(datetime.now(UTC).replace(tzinfo=None))}
        self._sync.update_many({"$id": {"$in": list(record_ids)}}, {"$set": now})

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record, or None."""
        document = self._sync.document(record_id)
        return None if document is None else self._record(document)

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return the records in a scope, the newest first: up to `limit`, after the first `offset`."""
        if limit < 1 or offset < 0:
            return []
        order = [("created_at", -1)]
        found = self._sync.find(_filter(scope_prefix), sort=order, skip=offset, limit=limit)
        return [self._record(each) for each in found]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return the number of records in a scope, their categories, first and last times, and the scopes below."""
        filter = _filter(scope)
        times = [
            self._sync.find_one(filter, sort=[("created_at", order)], projection=["created_at"])
            for order in (1, -1)
        ]
        oldest, newest = (
            each and datetime.fromisoformat(each.body["created_at"]) for each in times
        )
        return ScopeInfo(
            path=normalize_scope_path(scope),
            record_count=self.count(scope),
            categories=sorted(self._sync.distinct("categories", filter)),
            oldest_record=oldest,
            newest_record=newest,
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes directly below a scope, sorted."""
        prefix = f"{normalize_scope_path(parent).rstrip('/')}/"
        scopes = self._sync.distinct("scope", _filter(parent))
        below = {each[len(prefix) :].split("/")[0] for each in scopes if each.startswith(prefix)}
        return sorted(prefix + name for name in below if name)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return the categories in a scope, sorted, with their numbers of records."""
        stages: list[Any] = [{"$match": _filter(scope_prefix)}, {"$unwind": "$categories"}]
        stages += [{"$sortByCount": "$categories"}, {"$sort": {"_id": 1}}]
        return {row["_id"]: row["count"] for row in self._sync.aggregate(stages)}

    def count(self, scope_prefix: str | None = None) -> int:
        """Return the number of records in a scope."""
        return self._sync.count(_filter(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete the records in a scope. None and "/" are all: then embeddings of any length can be saved."""
        self.delete(scope_prefix)
        if normalize_scope_path(scope_prefix or "/") == "/":
            self._sync.drop_index("embedding_vector")

    def _index(self, size: int) -> None:
        try:
            if size:
                self._sync.create_vector_index("embedding", dimensions=size)
        except IndexExists:
            _is_indexed(self._sync.indexes(), size)

    def _record(self, document: Any) -> MemoryRecord:
        fields = dict(document.body)
        try:
            if "embedding" in fields:
                numbers = struct.iter_unpack("<f", b64decode(fields["embedding"]))
                fields["embedding"] = [number for (number,) in numbers]
            return MemoryRecord.model_validate(fields)
        except (TypeError, ValueError, struct.error):
            problem = "cannot be read by the installed crewai: a newer one may have written it"
            raise InvalidBody("", problem, self._opened.name, document.id) from None


def _bodies(records: Iterable[MemoryRecord]) -> tuple[dict[str, Any], int]:
    """Return the bodies of records by id, and the length of the embeddings, 0 without any."""
    bodies, size = {}, 0
    for each in records:
        body = {**each.model_dump(), "scope": normalize_scope_path(each.scope)}
        body |= {name: _text(body[name]) for name in ("created_at", "last_accessed")}
        if each.embedding:
            size = size or len(each.embedding)
            if len(each.embedding) != size:
                raise EmbeddingDimensionMismatchError(size, len(each.embedding))
            body["embedding"] = _packed(each.embedding)
        bodies[each.id] = body
    return bodies, size


def _packed(numbers: Sequence[float]) -> str:
    """Return an embedding as 32-bit floats in base64."""
    with suppress(OverflowError):
        if all(map(isfinite, numbers)):
            return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    raise InvalidBody("embedding", "must have finite numbers of 32 bits")


def _text(time: datetime) -> str:
    """Return a time as a text whose order is the order of times."""
    if time.tzinfo is None:
        return time.isoformat(timespec="microseconds")
    return f"{_text(time.astimezone(UTC).replace(tzinfo=None))}Z"


def _filter(
    scope_prefix: str | None = None,
    categories: Sequence[str] | None = None,
    record_ids: Iterable[str] | None = None,
    older_than: datetime | None = None,
    metadata_filter: Mapping[str, Any] | None = None,
) -> dict[Any, Any]:
    scope = normalize_scope_path(scope_prefix or "/")
    metadata = (metadata_filter or {}).items()
    filter: dict[Any, Any] = {Path("metadata", key): {"$eq": value} for key, value in metadata}
    if scope != "/":
        filter["$or"] = [{"scope": scope}, {"scope": ids.under(scope)}]
    if categories is not None:
        filter["categories"] = {"$in": list(categories)}
    if record_ids is not None:
        filter["$id"] = {"$in": list(record_ids)}
    if older_than is not None:
        filter["created_at"] = {"$lt": _text(older_than)}
    return filter


def _options(
    scope_prefix: str | None = None,
    categories: Sequence[str] | None = None,
    metadata_filter: Mapping[str, Any] | None = None,
    limit: int = 10,
    min_score: float = 0.0,
) -> dict[str, Any]:
    # CrewAI searches with an empty list for all categories
    filter = _filter(scope_prefix, categories or None, metadata_filter=metadata_filter)
    return {"filter": filter, "k": limit, "min_score": min_score}


def _is_indexed(indexes: Iterable[Any], size: int) -> bool:
    """Return whether embeddings are stored. Raise CrewAI's error if these have another length."""
    stored = [each.dimensions for each in indexes if isinstance(each, VectorIndex)]
    if stored and stored != [size]:
        raise EmbeddingDimensionMismatchError(stored[0], size) from None
    return bool(stored)
