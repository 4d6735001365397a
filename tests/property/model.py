"""A model of stores in plain Python: collections are dicts.

The meaning of filters, updates, orders and projections is the pure rooms'. Versions, times, natural order,
expiry, what is counted and what is refused is said here a second time. A verb that raises may leave a mess:
`Model.attempt` takes it back, for a failing call changes nothing.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cmp_to_key
from typing import Any, TypeVar

from conftest import Clock

from collections_store import (
    BulkWriteError,
    BulkWriteResult,
    CollectionExists,
    CollectionNotFound,
    CollectionsStoreError,
    DeleteMany,
    DeleteOne,
    DeleteResult,
    Document,
    DocumentNotFound,
    DuplicateKey,
    Filter,
    IndexExists,
    InsertManyResult,
    InsertOne,
    InsertOneResult,
    Path,
    Projection,
    PutManyResult,
    Refusal,
    ReplaceOne,
    Sort,
    Update,
    UpdateMany,
    UpdateOne,
    UpdateResult,
    VersionConflict,
)
from collections_store.aggregation.pipeline import Pipeline
from collections_store.codec import Codec
from collections_store.document import check_id, read_ttl
from collections_store.expressions.values import MISSING, compare
from collections_store.query.index import Index, limits_of
from collections_store.query.matcher import distinct_values, found_at, matches, values_at
from collections_store.query.multikey import EMPTY, index_keys
from collections_store.query.serving import every_conjunct, implies, plan_order
from collections_store.update import read_replacement
from collections_store.update.apply import seed, seed_id

T = TypeVar("T")
RULES = Codec()
MADE_UP = "#" * 31
"""Prefix of ids that replace generated ids which were not returned; the length is the same."""


@dataclass
class Stored:
    """A stored document; times are microseconds."""

    body: Any
    version: int
    created: int
    updated: int
    expires: int | None
    ttl: int | None


@dataclass
class Box:
    """A collection; `rows` are in natural order, and contain expired documents until they are purged."""

    name: str
    clock: Clock
    ordered: bool
    rows: dict[str, Stored] = field(default_factory=dict)
    indexes: dict[str, Index] = field(default_factory=dict)
    ttl: int | None = None
    sliding: bool = False
    exists: bool = False
    recorded: dict[str, int] | None = None
    """The versions when recording of changes was enabled; None if it is not."""
    was_unique: bool = False
    """Whether there was ever a unique index, which purges expired duplicates."""
    fresh: dict[int, str] = field(default_factory=dict)
    """The generated ids, by the positions of their requests."""

    # Reads

    def live(self, id: str) -> Stored | None:
        stored = self.rows.get(id)
        return None if stored is None or self._has_expired(stored) else stored

    def expired(self) -> list[str]:
        return [id for id, stored in self.rows.items() if self._has_expired(stored)]

    def documents(self) -> list[Document]:
        return [
            self._document(id) for id, stored in self.rows.items() if not self._has_expired(stored)
        ]

    def _has_expired(self, stored: Stored) -> bool:
        return stored.expires is not None and stored.expires <= self.clock()

    def _document(self, id: str) -> Document:
        stored = self.rows[id]
        times = stored.created, stored.updated, stored.expires
        return Document(id, deepcopy(stored.body), stored.version, *times)

    def _matching(self, filter: Any, equals: Any = ..., sort: Any = None) -> list[Document]:
        parsed = Filter.parse(filter, equals)
        found = [d for d in self.documents() if matches(parsed, d, ordered=self.ordered)]
        order = sort if isinstance(sort, Sort) else Sort.parse(sort)
        return sorted(found, key=lambda d: order.key(d, ordered=self.ordered)) if order else found

    def _first(
        self, filter: Any, sort: Any = None, skip: int = 0, limit: int = 1
    ) -> list[Document]:
        """Return the first matching documents; without a sort in the order of the index that serves the filter."""
        if sort is None:
            condition = Filter.parse(filter).condition
            given = list(every_conjunct(condition))
            usable = (
                index.sort
                for index in self.indexes.values()
                if not index.arrays
                and all(
                    any(implies(each, part) for part in limit for each in given)
                    for limit in limits_of(index)
                )
            )
            sort = plan_order(condition, usable)
        return self._matching(filter, ..., sort)[skip:][:limit]

    def _shaped(self, found: Document, filter: Any, projection: Any) -> Document:
        if projection is None:
            return found
        wanted = Projection.parse(projection)
        return wanted.apply(found, Filter.parse(filter), ordered=self.ordered)

    # Writes

    def _write(self, id: str, body: Any, ttl: Any = None) -> int:
        """Write a new document, or replace one."""
        now, given = self.clock(), read_ttl(ttl)
        life = (self.ttl if given is None else given) or None
        until = None if life is None else now + life
        stored = self.live(id)
        if stored is None:
            self.rows.pop(id, None)  # expired documents lose their position
            self.rows[id] = Stored(deepcopy(body), 1, now, now, until, life)
        else:
            changed = {"body": deepcopy(body), "updated": now, "expires": until, "ttl": life}
            self.rows[id] = replace(stored, version=stored.version + 1, **changed)
        self._check_unique(id)
        return self.rows[id].version

    def _rewrite(self, id: str, body: Any) -> None:
        """Change a body; the document keeps its expiry time."""
        stored, now = self.rows[id], self.clock()
        slides = self.sliding and stored.ttl is not None
        until = now + stored.ttl if slides and stored.ttl is not None else stored.expires
        changed = {"body": deepcopy(body), "updated": now, "expires": until}
        self.rows[id] = replace(stored, version=stored.version + 1, **changed)
        self._check_unique(id)

    def _check_unique(self, id: str) -> None:
        for index in self.indexes.values():
            if index.unique:
                mine = self._keys(index, self._document(id))
                others = (d for d in self.documents() if d.id != id)
                if any(key in mine for each in others for key in self._keys(index, each)):
                    raise DuplicateKey(self.name, index.name, {}, id)

    def _keys(self, index: Index, document: Document) -> list[Any]:
        """Return the keys in a unique index."""
        if index.where is not None and not matches(index.where, document, ordered=self.ordered):
            return []
        if index.arrays:
            every = index_keys(document.body, index.paths, sparse=index.sparse)
            return [[self._alike(value) for value in key] for key in every]
        key = [found_at(document.body, path.keys) for path in index.paths]
        if index.sparse and all(value is MISSING for value in key):
            return []
        return [[self._alike(None if value is MISSING else value) for value in key]]

    def _alike(self, value: Any) -> Any:
        if value is EMPTY:
            return "empty"
        if isinstance(value, dict | list):
            return "spelled", spelled(value, self.ordered)
        return ("boolean", value) if isinstance(value, bool) else ("scalar", value)

    def _new_id(self, position: int) -> str:
        return self.fresh.get(position, f"{MADE_UP}{position}")

    # Methods by id

    def put(
        self,
        id: str,
        body: Any,
        *,
        ttl: Any = None,
        if_version: Any = None,
        if_absent: bool = False,
    ) -> int:
        check_id(id)
        RULES.encode(body)
        stored = self.live(id)
        found = None if stored is None else stored.version
        if if_absent and stored is not None:
            raise VersionConflict(self.name, id, None, found)
        if if_version is not None and found != if_version:
            raise VersionConflict(self.name, id, if_version, found)
        return self._write(id, body, ttl)

    def get(self, id: str, default: Any = None) -> Any:
        stored = self.live(id)
        return default if stored is None else stored.body

    def document(self, id: str) -> Document | None:
        return self._document(id) if self.live(id) else None

    def has(self, id: str) -> bool:
        return self.live(id) is not None

    def get_many(self, ids: Iterable[str]) -> list[tuple[str, Any]]:
        found = dict.fromkeys(id for id in ids if self.live(id))
        return [(id, self.rows[id].body) for id in found]

    def remove(self, id: str, *, if_version: int | None = None) -> bool:
        stored = self.live(id)
        found = None if stored is None else stored.version
        if if_version is not None and found != if_version:
            raise VersionConflict(self.name, id, if_version, found)
        if stored is not None:
            del self.rows[id]
        return stored is not None

    def remove_many(self, ids: Iterable[str]) -> int:
        return sum([self.remove(id) for id in ids])

    def insert_one(self, body: Any, *, id: str | None = None, ttl: Any = None) -> InsertOneResult:
        chosen = self._new_id(0) if id is None else check_id(id)
        RULES.encode(body)
        if self.live(chosen):
            raise DuplicateKey(self.name, "$id", {}, chosen)
        self._write(chosen, body, ttl)
        return InsertOneResult(chosen)

    def put_many(
        self, bodies: Iterable[Any], *, mode: str = "replace", ttl: Any = None, atomic: bool = False
    ) -> PutManyResult:
        result = PutManyResult()
        for position, (id, body, *version) in enumerate(bodies):
            try:
                step = self._attempt(lambda: self._put(id, body, mode, ttl, version))  # noqa: B023
            except CollectionsStoreError as error:
                if atomic:
                    raise
                if isinstance(error, VersionConflict) and self.live(id) is None:
                    self.rows.pop(id, None)  # the call has deleted the expired document
                step = PutManyResult(refused=(Refusal(position, id, error),))
            result += step
        if result.refused:
            raise BulkWriteError(self.name, result)
        return result

    def _put(self, id: str, body: Any, mode: str, ttl: Any, version: list[Any]) -> PutManyResult:
        check_id(id)
        RULES.encode(body)
        stored = self.live(id)
        found = None if stored is None else stored.version
        if mode == "if_version" and found != version[0]:
            raise VersionConflict(self.name, id, version[0], found)
        if mode == "insert" and stored:
            raise DuplicateKey(self.name, "$id", {}, id)
        if mode == "ignore" and stored:
            return PutManyResult(unchanged_count=1)
        self._write(id, body, ttl)
        return PutManyResult(replaced_count=1) if stored else PutManyResult(inserted_count=1)

    def insert_many(
        self, bodies: Any, *, ttl: Any = None, atomic: bool = False
    ) -> InsertManyResult:
        pairs: list[tuple[str, Any]] = []
        if isinstance(bodies, Mapping):
            pairs = list(bodies.items())
        else:
            pairs = [(self._new_id(number), body) for number, body in enumerate(bodies)]
        try:
            self.put_many(pairs, mode="insert", ttl=ttl, atomic=atomic)
        except BulkWriteError as error:
            refused = error.result.refused
            bad = {each.position for each in refused}
            ids = {number: id for number, (id, _) in enumerate(pairs) if number not in bad}
            result = BulkWriteResult(len(ids), inserted_ids=ids, refused=refused)
            raise BulkWriteError(self.name, result) from None
        return InsertManyResult(tuple(id for id, _ in pairs))

    def change(self, id: str, function: Callable[[Any], Any], *, default: Any = ...) -> Any:
        stored = self.live(id)
        if stored is None and default is ...:
            raise DocumentNotFound(self.name, id)
        body = function(deepcopy(default if stored is None else stored.body))
        if stored is None:
            self._write(id, body)
        else:
            self._rewrite(id, body)
        return body

    def increment(self, id: str, path: str, by: Any = 1, initial: Any = 0) -> Any:
        keys = Path.parse(path).keys
        there = self.live(id) is not None
        document = self._document(id) if there else Document(id, {})
        missing = all(each is MISSING for each in values_at(document.body, keys, leaf=False))
        for number in ([initial] if missing else []) + [by]:
            body = self._changed(document, Update.parse({"$inc": {path: number}}), Filter())
            document = replace(document, body=body)
        if there:
            self._rewrite(id, document.body)
        else:
            self._write(id, document.body)
        return next(
            each for each in values_at(document.body, keys, leaf=False) if each is not MISSING
        )

    def touch(self, id: str, ttl: Any = None) -> bool:
        stored, given = self.live(id), read_ttl(ttl)
        if stored is None:
            return False
        if given == 0:
            stored.ttl = stored.expires = None
        else:
            stored.ttl = stored.ttl if given is None else given
            stored.expires = stored.expires if stored.ttl is None else self.clock() + stored.ttl
        return True

    def purge_expired(self) -> int:
        expired = self.expired()
        for id in expired:
            del self.rows[id]
        return len(expired)

    # Methods that update

    def update(
        self,
        id: str,
        update: Any,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        if_version: Any = None,
    ) -> UpdateResult:
        change = Update.parse(update, array_filters=array_filters)
        stored = self.live(id)
        found = None if stored is None else stored.version
        if if_version is not None and found != if_version:
            raise VersionConflict(self.name, id, if_version, found)
        some = [] if stored is None else [self._document(id)]
        return self._modify(some, change, {}, upsert=upsert, id=id)

    def update_one(
        self,
        filter: Any,
        update: Any,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        sort: Any = None,
    ) -> UpdateResult:
        change = Update.parse(update, array_filters=array_filters)
        return self._modify(self._first(filter, sort), change, filter, upsert=upsert)

    def update_many(
        self, filter: Any, update: Any, *, upsert: bool = False, array_filters: Any = None
    ) -> UpdateResult:
        change = Update.parse(update, array_filters=array_filters)
        result = self._modify(self._matching(filter), change, filter, upsert=upsert)
        return replace(result, version=None if result.matched_count else result.version)

    def replace_one(
        self, filter: Any, replacement: Any, *, upsert: bool = False, sort: Any = None
    ) -> UpdateResult:
        body = read_replacement(replacement, RULES)
        some = self._first(filter, sort)
        return self._modify(some, ("body", body), filter, upsert=upsert)

    def _modify(
        self, found: list[Document], what: Any, filter: Any, *, upsert: bool, id: Any = None
    ) -> UpdateResult:
        parsed = Filter.parse(filter)
        modified = 0
        for document in found:
            body = self._changed(document, what, parsed)
            if spelled(body, self.ordered) != spelled(document.body, self.ordered):
                self._rewrite(document.id, body)
                modified += 1
        if found or not upsert:
            version = self.rows[found[0].id].version if found else None
            return UpdateResult(len(found), modified, version=version)
        chosen = id or seed_id(parsed) or self._new_id(0)
        begun = Document(chosen, seed(parsed) if isinstance(what, Update) else {})
        body = self._changed(begun, what, parsed, inserting=True)
        if self.live(chosen):
            raise DuplicateKey(self.name, "$id", {}, chosen)
        return UpdateResult(0, 0, chosen, self._write(chosen, body))

    def _changed(
        self, document: Document, what: Any, filter: Filter, *, inserting: bool = False
    ) -> Any:
        if not isinstance(what, Update):
            return what[1]
        options: Any = {"now": self.clock(), "inserting": inserting, "ordered": self.ordered}
        body = what.apply(document, filter=filter, **options)
        RULES.encode(body)
        return body

    def find_one_and_update(
        self, filter: Any, update: Any, *, array_filters: Any = None, **options: Any
    ) -> Document | None:
        change = Update.parse(update, array_filters=array_filters)
        return self._find_and_modify(filter, change, **options)

    def find_one_and_replace(
        self, filter: Any, replacement: Any, **options: Any
    ) -> Document | None:
        body = read_replacement(replacement, RULES)
        return self._find_and_modify(filter, ("body", body), **options)

    def _find_and_modify(
        self,
        filter: Any,
        what: Any,
        *,
        projection: Any = None,
        sort: Any = None,
        upsert: bool = False,
        return_document: bool = False,
    ) -> Document | None:
        found = self._first(filter, sort)
        result = self._modify(found, what, filter, upsert=upsert)
        before = found[0] if found else None
        id = result.upserted_id or (before.id if before else None)
        told = self._document(id) if return_document and id is not None else before
        return None if told is None else self._shaped(told, filter, projection)

    def find_one_and_delete(
        self, filter: Any, *, projection: Any = None, sort: Any = None
    ) -> Document | None:
        for found in self._first(filter, sort):
            del self.rows[found.id]
            return self._shaped(found, filter, projection)
        return None

    def delete_one(self, filter: Any) -> DeleteResult:
        return self._delete(self._first(filter))

    def delete_many(self, filter: Any) -> DeleteResult:
        return self._delete(self._matching(filter))

    def _delete(self, found: list[Document]) -> DeleteResult:
        for each in found:
            del self.rows[each.id]
        return DeleteResult(len(found))

    def bulk_write(
        self, requests: Iterable[Any], *, ordered: bool = True, atomic: bool = False
    ) -> BulkWriteResult:
        result = BulkWriteResult()
        fresh = self.fresh
        for position, request in enumerate(requests):
            self.fresh = {0: fresh.get(position, f"{MADE_UP}{position}")}
            try:
                result += self._attempt(lambda: self._request(position, request))  # noqa: B023
            except CollectionsStoreError as error:
                if atomic:
                    raise
                id = request.id if isinstance(request, InsertOne) else None
                result += BulkWriteResult(refused=(Refusal(position, id, error),))
                if ordered:
                    break
        if result.refused:
            raise BulkWriteError(self.name, result)
        return result

    def _request(self, position: int, request: Any) -> BulkWriteResult:
        options = {each.name: getattr(request, each.name) for each in fields(request)}
        options.pop("hint", None)  # it changes no result
        options.pop("collation", None)  # the model has none
        match request:
            case InsertOne():
                id = self.insert_one(**options).inserted_id
                return BulkWriteResult(inserted_count=1, inserted_ids={position: id})
            case DeleteOne() | DeleteMany():
                method = self.delete_one if isinstance(request, DeleteOne) else self.delete_many
                return BulkWriteResult(deleted_count=method(**options).deleted_count)
            case UpdateOne():
                done = self.update_one(**options)
            case UpdateMany():
                done = self.update_many(**options)
            case ReplaceOne():
                done = self.replace_one(**options)
        if done.upserted_id is not None:
            return BulkWriteResult(upserted_ids={position: done.upserted_id})
        return BulkWriteResult(matched_count=done.matched_count, modified_count=done.modified_count)

    # Methods that read

    def find(
        self,
        filter: Any = None,
        *,
        sort: Any = None,
        skip: int = 0,
        limit: int | None = None,
        projection: Any = None,
    ) -> list[Document]:
        if limit is None:
            found = self._matching(filter, ..., sort)[skip:]
        else:
            found = self._first(filter, sort, skip, limit)
        return [self._shaped(each, filter, projection) for each in found]

    def everything(self, **window: Any) -> list[Document]:
        return self.find(**window)

    def find_one(self, filter: Any = None, **options: Any) -> Document | None:
        return next(iter(self.find(filter, limit=1, **options)), None)

    def stream(self, filter: Any = None, *, projection: Any = None) -> Any:
        return self.find(filter, projection=projection)

    def count(self, filter: Any = None) -> int:
        return len(self._matching(filter))

    def distinct(self, field: str, filter: Any = None) -> Any:
        keys = Path.parse(field).keys
        values = [v for each in self._matching(filter) for v in distinct_values(each.body, keys)]

        def against(left: Any, right: Any) -> int:
            return compare(left, right, ordered=self.ordered)

        different: Any = []
        for value in sorted(values, key=cmp_to_key(against)):
            if not different or against(different[-1], value):
                different.append(value)
        return different

    def aggregate(self, pipeline: Any) -> Any:
        return [*Pipeline.parse(pipeline).run(self.documents(), ordered=self.ordered)]

    # Indexes

    def create_index(self, keys: Any, **options: Any) -> str:
        made = Index.parse(keys, **options)
        for other in self.indexes.values():
            if other == made:
                return made.name
            if made.name == other.name or replace(other, name=made.name) == made:
                raise IndexExists(made.name, str(other))
        self.indexes[made.name] = made
        if made.unique:
            self.was_unique = True
            seen: list[Any] = []
            for each in self.documents():
                keys = self._keys(made, each)
                if any(key in seen for key in keys):
                    raise DuplicateKey(self.name, made.name, {}, each.id)
                seen.extend(keys)
        return made.name

    def drop_index(self, name: str) -> bool:
        return self.indexes.pop(name, None) is not None

    def names_of_indexes(self) -> Any:
        return [*self.indexes]

    def _attempt(self, work: Callable[[], T]) -> T:
        """Execute one of many writes; undo it if it is rejected."""
        before = deepcopy(self.rows)
        try:
            return work()
        except CollectionsStoreError:
            self.rows = before
            raise


@dataclass
class Model:
    """The collections of a store."""

    clock: Clock
    ordered: bool
    boxes: dict[str, Box] = field(default_factory=dict)

    def box(self, name: str) -> Box:
        return self.boxes.setdefault(name, Box(name, self.clock, self.ordered))

    def attempt(self, work: Callable[[], Any]) -> Any:
        """Return the outcome of a function; if it is an error, undo its changes."""
        before = deepcopy(self.boxes)
        told = outcome(work, self.ordered)
        if told[0] == "raised" and not told[1].startswith("BulkWriteError"):
            for (
                name,
                box,
            ) in before.items():  # a unique index that is refused purges expired documents
                box.was_unique |= self.boxes[name].was_unique
            self.boxes = before
        return told

    def listing(self) -> list[tuple[str, int]]:
        boxes = sorted(self.boxes.items())
        return [(name, len(box.documents())) for name, box in boxes if box.exists]

    def create(self, name: str, settings: Mapping[str, Any]) -> None:
        if self.box(name).exists:
            raise CollectionExists(name)
        self.configure(name, settings)

    def configure(self, name: str, settings: Mapping[str, Any]) -> None:
        box = self.box(name)
        box.exists = True
        if settings.get("ttl") is not None:
            box.ttl = read_ttl(settings["ttl"]) or None
        if settings.get("sliding") is not None:
            box.sliding = settings["sliding"]
        if settings.get("changes") is False:
            box.recorded = None
        elif settings.get("changes") and box.recorded is None:
            box.recorded = {each.id: each.version for each in box.documents()}

    def drop(self, name: str) -> bool:
        return self.boxes.pop(name, Box(name, self.clock, self.ordered)).exists

    def rename(self, old: str, new: str) -> None:
        if self.box(new).exists:
            raise CollectionExists(new)
        if not self.box(old).exists:
            raise CollectionNotFound(old)
        self.boxes[new] = self.boxes.pop(old)
        self.boxes[new].name = new


def outcome(work: Callable[[], Any], ordered: bool) -> tuple[str, str]:
    """Return the outcome of a call in a comparable form."""
    try:
        return "returned", repr(plainly(work(), ordered))
    except CollectionsStoreError as error:
        return "raised", facts(error)


def facts(error: CollectionsStoreError) -> str:
    """Return the comparable attributes of an error: messages may differ."""
    match error:
        case VersionConflict():
            return f"VersionConflict {error.expected} {error.found}"
        case BulkWriteError():
            return f"BulkWriteError {plainly(error.result, ordered=True)}"
        case DuplicateKey():
            own = "made up" if len(error.id or "") >= 32 else error.id
            return f"DuplicateKey {error.index == '$id'} {own}"
    return type(error).__name__


def plainly(value: Any, ordered: bool) -> Any:
    """Return a result as plain values; `ordered` says whether the order of keys matters."""
    match value:
        case CollectionsStoreError():
            return facts(value)
        case Document():
            times = value.created_us, value.updated_us, value.expires_us
            return "Document", value.id, plainly(value.body, ordered), value.version, *times
        case dict():
            items = value.items() if ordered else sorted(value.items())
            return {key: plainly(each, ordered) for key, each in items}
        case list() | tuple():
            return [plainly(each, ordered) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        parts = [plainly(getattr(value, each.name), ordered) for each in fields(value)]
        return type(value).__name__, *parts
    return value


def spelled(value: Any, ordered: bool) -> str:
    """Return the text of a JSON value; `ordered` says whether the order of keys matters."""
    return json.dumps(value, sort_keys=not ordered)
