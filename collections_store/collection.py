"""The methods of a collection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, Unpack, get_args, overload

from .changes import ChangeDocumentStream, ChangeReader, ChangeStream, check_notifier
from .codec import Codec
from .document import (
    Body,
    Document,
    ReplaceOne,
    Request,
    UpdateMany,
    UpdateOne,
    check_id,
    check_ids,
    read_ttl,
)
from .engine.notifier import ChangeNotifier
from .errors import InvalidOption
from .expressions.evaluation import MEMORY_LIMIT
from .expressions.path import FieldLike
from .models.versioned import VersionedCodec
from .operations import by_id
from .operations.bulk import Mode
from .operations.editing import EDIT_ATTEMPTS, Editing
from .operations.embedding import CallEmbedder, store_backlog
from .operations.indexes import DropIndex, HideIndex, ListIndexes, UnhideIndex
from .operations.operation import Operation, Steps, follow
from .operations.procedures import ATTEMPTS, CallFunction, Pause, purge
from .operations.requests import OperationBuilder, ReturnDocument
from .operations.upgrades import Progress, upgrade_documents, versioned_steps
from .operations.vectors import ListUnindexed
from .options import CallOptions, Consistency, Ttl, check_choice, check_integer, check_version
from .options.calls import PLAIN
from .query.change import ChangeKind
from .query.explanation import Explanation
from .query.filter import FilterLike
from .query.index import Index, read_hidden_name, read_index_name
from .query.sort import SortLike
from .query.text_index import TextFields, TextIndex
from .query.vector_index import VectorFields, VectorIndex
from .results import (
    BulkWriteResult,
    DeleteResult,
    FoundDocuments,
    InsertManyResult,
    InsertOneResult,
    Page,
    PutManyResult,
    SearchPage,
    SearchResult,
    Unindexed,
    UpdateResult,
    UpgradeResult,
)
from .search.vectors import Method, Metric
from .update import UpdateLike

T = TypeVar("T")
Default = TypeVar("Default")
Bodies: TypeAlias = (
    Mapping[str, Body] | Iterable[tuple[str, Body] | tuple[str, Body, int | Document[Any] | None]]
)
Documents: TypeAlias = list[Document[Body]]
Values: TypeAlias = list[Any]
Indexes: TypeAlias = list[Index | TextIndex | VectorIndex]
SearchResults: TypeAlias = list[SearchResult[Body]]
Backlog: TypeAlias = list[Unindexed]
Prefixes: TypeAlias = list[str]
Results: TypeAlias = list[Any]


class Untyped:
    """For type checkers: a collection without a model, with bodies of type `Any`, is a subtype."""


class Runner(Protocol):
    """Runs an operation: a store or a transaction."""

    def __call__(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result."""


class VersionedRunner:
    """Runs the operations of a collection with a schema version."""

    def __init__(self, run: Runner, codec: VersionedCodec) -> None:
        self._inner, self._codec = run, codec

    def __call__(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result."""
        run = partial(self._inner, consistency=consistency)
        result: T = follow(run, versioned_steps(operation, self._codec))
        return result


class _EditContext:
    """The context of an edit. Not a generator, for the same reason as a transaction's context."""

    def __init__(self, follow: Callable[[Steps[Any]], Any], editing: Editing) -> None:
        self._follow, self._editing = follow, editing

    def __enter__(self) -> Any:
        return self._follow(self._editing.begin())

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._follow(self._editing.end())


class Collection(OperationBuilder, Generic[Body]):
    """A named group of JSON documents, each under an id.

    A store returns collections: `store.collection("name")` or `store["name"]`. The first write creates the
    collection. Threads can share a collection. The examples below use a store, `store`.
    """

    __slots__ = ("_notifier", "_read", "_run")

    name: str

    def __init__(
        self,
        run: Runner,
        codec: Codec,
        name: str,
        notifier: ChangeNotifier | None = None,
        consistency: Consistency = "strong",
    ) -> None:
        self._run, self._codec, self.name, self._notifier = run, codec, name, notifier
        self._read = run if consistency == "strong" else partial(run, consistency=consistency)

    def with_options(self, *, consistency: Consistency) -> Collection[Body]:
        """Return this collection with another consistency of reads, in a store with `replicas`; see `StoreOptions`.

        Without replicas, and in a transaction, all reads are "strong". Raise `InvalidOption`.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> store["cities"].with_options(consistency="eventual").count()
        1
        """
        checked = check_choice("consistency", consistency, get_args(Consistency))
        return Collection(self._run, self._codec, self.name, self._notifier, checked)

    def put(
        self,
        id: str,
        body: Body,
        *,
        ttl: Ttl = None,
        if_version: int | None = None,
        if_absent: bool = False,
    ) -> int:
        """Write a body under an id, replacing an existing document; return the version.

        The version of a new document is 1, and every write increments the version. A replaced document keeps its
        position in natural order. `ttl`: seconds, or a timedelta, until the document expires; None: the
        collection's `ttl`; `math.inf`: never. `if_version` replaces only this version; `if_absent` writes only a
        new document; otherwise raise `VersionConflict`. Raise `InvalidId`, `InvalidBody`, `InvalidOption`, and
        `DuplicateKey` for a unique index. After an error nothing is written.

        >>> version = store["cities"].put("berlin", {"population": 3_900_000})
        >>> store["cities"].put("berlin", {"population": 3_900_001}, if_version=version)
        2
        """
        if ttl is None and if_version is None and if_absent is False:  # the usual call, sooner
            return self._run(by_id.Put(self.name, check_id(id), self._codec.encode_body(body)))
        return self._run(self._put(id, body, ttl, if_version, if_absent))

    @overload
    def get(self: Collection[Untyped], id: str, default: Any = None) -> Any: ...
    @overload
    def get(self, id: str) -> Body | None: ...
    @overload
    def get(self, id: str, default: Default) -> Body | Default: ...
    def get(self, id: str, default: Any = None) -> Any:
        """Return the body under an id, or `default` for a missing document.

        Every call returns a new object. null is a body: `exists` distinguishes null from a missing document.

        >>> store["cities"].get("atlantis", "no such city")
        'no such city'
        """
        return self._read(by_id.Get(self.name, check_id(id), default, self._codec.decode_body))

    def document(self, id: str) -> Document[Body] | None:
        """Return the document with version and times, or None.

        >>> version = store["cities"].put("berlin", {"population": 3_900_000})
        >>> store["cities"].document("berlin").version
        1
        """
        return self._read(by_id.GetDocument(self.name, check_id(id), self._codec.decode_body))

    def exists(self, id: str) -> bool:
        """Return whether a document exists under an id.

        >>> store["cities"].exists("atlantis")
        False
        """
        return self._read(by_id.DocumentExists(self.name, check_id(id)))

    def remove(self, id: str, *, if_version: int | None = None) -> bool:
        """Delete the document under an id; return False if the document did not exist.

        `if_version` deletes only this version, and otherwise raises `VersionConflict`.

        >>> store["cities"].remove("atlantis")
        False
        """
        return self._run(by_id.RemoveById(self.name, check_id(id), check_version(if_version)))

    def put_many(
        self, bodies: Bodies[Body], *, mode: Mode = "replace", ttl: Ttl = None, atomic: bool = False
    ) -> PutManyResult:
        """Write bodies under ids, from a mapping or any iterable of pairs.

        Batches of up to 1,000 documents are written atomically, in constant memory. Items that cannot be written
        are refused; all valid items are written; then raise `BulkWriteError`, whose `result` lists both. `atomic`
        first reads the whole iterable (a large iterable into a temporary file), then writes everything in a
        transaction: the first refusal is raised, with a note of its position, and nothing is written. An exception
        of the iterable or of the database ends the call; without `atomic` a note of the exception counts the writes
        of earlier batches.

        `mode`: "replace" replaces existing documents; "insert" refuses their ids (`DuplicateKey`); "ignore" skips
        existing documents; "if_version" takes triples of id, body and the expected version (None: no document), and
        refuses any other version (`VersionConflict`). A deleted document that is written again repeats its versions:
        a `Document` in place of the version expects this document in this version. `ttl` as in `put`. A unique index checks the
        documents in their order.

        >>> store["cities"].put_many({"berlin": {"country": "de"}, "paris": {"country": "fr"}})
        PutManyResult(inserted_count=2, replaced_count=0, unchanged_count=0)
        """
        return self._follow(self._put_many(bodies, mode, ttl, atomic))

    def insert_one(
        self, body: Body, *, id: str | None = None, ttl: Ttl = None, beside: str | None = None
    ) -> InsertOneResult:
        """Write a new document, by default under a new id.

        Raise `DuplicateKey` if the id exists, and the errors of `put`.

        `beside` is the id of a parent document in the same collection: write only while the parent exists,
        otherwise raise `DocumentNotFound`. A concurrent deletion of the parent waits until the new document is
        committed. To delete a parent with all children, delete the parent, then the children.

        >>> result = store["cities"].insert_one({"country": "de"})
        >>> store["cities"].get(result.inserted_id)
        {'country': 'de'}
        """
        operation = self._insert_one(body, id, ttl, beside)
        self._run(operation)
        return InsertOneResult(operation.id)

    def insert_many(
        self, bodies: Iterable[Body] | Mapping[str, Body], *, ttl: Ttl = None, atomic: bool = False
    ) -> InsertManyResult:
        """Write new documents under new ids, or the values of a mapping under its keys; see `put_many`.

        The `result` of a `BulkWriteError` is a `BulkWriteResult`; `inserted_ids` has the ids of the written
        documents by position.

        >>> store["cities"].insert_many({"berlin": {}, "paris": {}})
        InsertManyResult(inserted_ids=('berlin', 'paris'))
        """
        return self._follow(self._insert_many(bodies, ttl, atomic))

    def update(
        self,
        id: str,
        update: UpdateLike,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        if_version: int | None = None,
    ) -> UpdateResult:
        """Update the document under an id by MongoDB's operators (`$set`, `$inc`, `$push` …) or by a pipeline.

        `upsert` inserts a missing document. `array_filters` select the elements of `$[name]`. An update without
        effect writes nothing and keeps the version. The time to live stays. The result has the new `version`. Raise
        `InvalidUpdate`, `UpdateRefused` if the update does not fit the document, `VersionConflict` unless the
        version is `if_version`, `InvalidBody` and `DuplicateKey`; then nothing is changed.

        >>> version = store["cities"].put("ulm", {"rivers": ["Danube"]})
        >>> store["cities"].update("ulm", {"$push": {"rivers": "Iller"}})
        UpdateResult(matched_count=1, modified_count=1, upserted_id=None)
        """
        request = UpdateOne(None, update, upsert, array_filters=array_filters)
        return self._run(self._update(id, request, if_version))

    def update_one(
        self,
        filter: FilterLike,
        update: UpdateLike,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        sort: SortLike | None = None,
        **options: Unpack[CallOptions],
    ) -> UpdateResult:
        """Update the first matching document by `sort`; without `sort`, in the order of `find` with a limit. See
        `update`.

        `$` in a path is the array element that matched the filter. An `upsert` inserts the filter's equalities with
        the update applied, under the filter's `$id` or a new id.

        >>> version = store["cities"].put("ulm", {"rivers": ["Danube"]})
        >>> store["cities"].update_one({"rivers": "Danube"}, {"$set": {"rivers.$": "Donau"}})
        UpdateResult(matched_count=1, modified_count=1, upserted_id=None)
        """
        request = UpdateOne(filter, update, upsert, array_filters=array_filters, sort=sort)
        return self._run(self._modify(request, call=self._call(options) if options else PLAIN))

    def update_many(
        self,
        filter: FilterLike,
        update: UpdateLike,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        **options: Unpack[CallOptions],
    ) -> UpdateResult:
        """Update all matching documents, or none if an error is raised; `{}` matches all. See `update_one`.

        >>> result = store["cities"].insert_many([{"visits": 1}, {"visits": 2}])
        >>> store["cities"].update_many({}, {"$inc": {"visits": 1}})
        UpdateResult(matched_count=2, modified_count=2, upserted_id=None)
        """
        request = UpdateMany(filter, update, upsert, array_filters=array_filters)
        return self._run(self._modify(request, call=self._call(options) if options else PLAIN))

    def replace_one(
        self,
        filter: FilterLike,
        replacement: Body,
        *,
        upsert: bool = False,
        sort: SortLike | None = None,
        **options: Unpack[CallOptions],
    ) -> UpdateResult:
        """Replace the body of the first matching document; see `update_one`.

        >>> store["cities"].replace_one({"$id": "ulm"}, {"country": "de"}, upsert=True)
        UpdateResult(matched_count=0, modified_count=0, upserted_id='ulm')
        """
        request = ReplaceOne(filter, replacement, upsert, sort=sort)
        return self._run(self._modify(request, call=self._call(options) if options else PLAIN))

    def find_one_and_update(
        self,
        filter: FilterLike,
        update: UpdateLike,
        *,
        projection: Any = None,
        sort: SortLike | None = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
        array_filters: Any = None,
        if_version: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Document[Body] | None:
        """Update the first matching document. Return the document before the update, or with
        `return_document=ReturnDocument.AFTER` after the update.

        Return None without a match, and for the document before an upsert. Raise `VersionConflict` unless the
        version is `if_version`. See `update_one` and `find`.

        >>> version = store["jobs"].put("1", {"state": "new"})
        >>> taken = store["jobs"].find_one_and_update({"state": "new"}, {"$set": {"state": "taken"}})
        >>> taken.body
        {'state': 'new'}
        """
        request = UpdateOne(filter, update, upsert, array_filters=array_filters, sort=sort)
        wanted = projection, return_document, options, if_version
        return self._run(self._find_and_modify(request, *wanted))

    def find_one_and_replace(
        self,
        filter: FilterLike,
        replacement: Body,
        *,
        projection: Any = None,
        sort: SortLike | None = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
        **options: Unpack[CallOptions],
    ) -> Document[Body] | None:
        """Replace the body of the first matching document, and return it as `find_one_and_update` does.

        >>> version = store["cities"].put("ulm", {"country": "de"})
        >>> after = {"return_document": ReturnDocument.AFTER}
        >>> found = store["cities"].find_one_and_replace({"country": "de"}, {"in": "de"}, **after)
        >>> found.version
        2
        """
        request = ReplaceOne(filter, replacement, upsert, sort=sort)
        return self._run(self._find_and_modify(request, projection, return_document, options))

    def find_one_and_delete(
        self,
        filter: FilterLike,
        *,
        projection: Any = None,
        sort: SortLike | None = None,
        **options: Unpack[CallOptions],
    ) -> Document[Body] | None:
        """Delete and return the first matching document, or None. See `find`.

        >>> version = store["jobs"].put("1", {"state": "new"})
        >>> store["jobs"].find_one_and_delete({"state": "new"})
        Document(id='1', body={'state': 'new'}, version=1)
        """
        return self._run(self._find_and_delete(filter, sort, projection, options))

    def bulk_write(
        self,
        requests: Iterable[Request],
        *,
        ordered: bool = True,
        atomic: bool = False,
        **options: Unpack[CallOptions],
    ) -> BulkWriteResult:
        """Execute write requests: `InsertOne`, `UpdateOne`, `UpdateMany`, `ReplaceOne`, `DeleteOne`, `DeleteMany`.

        Each batch of up to 500 requests is a transaction. `ordered` stops at the first refused request; otherwise
        all further requests run. Then raise `BulkWriteError`, whose `result` has the counts and the refused
        requests by position. `atomic` first reads all requests (many inserts into a temporary file, others into memory),
        then runs them in a single transaction: the first refusal is raised, and nothing is written. Further exceptions
        end the call as in `put_many`. `options` are `comment`, `let` and `collation` of `CallOptions`; a request takes
        `hint=`, and `collation=` in place of the call's.

        >>> requests = [InsertOne({"n": 1}), UpdateMany({}, {"$inc": {"n": 1}}), DeleteOne({"n": 2})]
        >>> result = store["things"].bulk_write(requests)
        >>> result.inserted_count, result.modified_count, result.deleted_count
        (1, 1, 1)
        """
        return self._follow(self._bulk_write(requests, ordered, atomic, options))

    def increment(self, id: str, path: FieldLike, by: float = 1, *, initial: float = 0) -> Any:
        """Add to a number in a body, in a single statement; return the new number.

        A missing field starts at `initial`. A missing document is created. Raise `UpdateRefused` if the field is
        not a number.

        >>> store["counters"].increment("visits", "by.page", 2)
        2
        """
        return self._run(self._increment(id, path, by, initial))

    def change(
        self,
        id: str,
        function: Callable[[Body], Any],
        *,
        default: Body | Any = ...,
        ttl: Ttl = None,
        attempts: int = ATTEMPTS,
    ) -> Body:
        """Load a body, call `function` with the body, and write the result; return the written body.

        If the function returns None, write the body as changed in place; to store null, call `put(id, None)`. If
        the document changed since the load, load again and call `function` again, after a short random pause, up to
        `attempts` times; then raise `VersionConflict`. No update is lost. `function` may run several times and must
        have no other effects. For a missing document, `function` gets `default`; without a default raise
        `DocumentNotFound`. `ttl` applies to a new document; an existing document keeps its time.

        >>> store["counters"].change("visits", lambda count: count + 1, default=0)
        1
        """
        changed: Body = self._follow(self._change(id, function, default, ttl, attempts))
        return changed

    def edit(self, id: str, *, attempts: int = EDIT_ATTEMPTS) -> AbstractContextManager[Body]:
        """Return a context whose value is the body. Change the body in the block; the end of the block writes the
        changes.

        Only changed fields are written, and nothing after an exception in the block. If a concurrent write came
        first, the changes are applied to the new document, up to `attempts` times. Raise `VersionConflict` if the
        concurrent write changed the same field (an array is a single field) or removed the document, or after the
        last attempt; `DocumentNotFound`, and the errors of `put`. Bodies that cannot be changed in place need
        `change`.

        >>> version = store["cities"].put("ulm", {"people": 126_000, "rivers": ["Danube"]})
        >>> with store["cities"].edit("ulm") as city:
        ...     city["rivers"].append("Iller")
        >>> store["cities"].get("ulm")
        {'people': 126000, 'rivers': ['Danube', 'Iller']}
        """
        return _EditContext(self._follow, self._edit(id, attempts))

    def touch(self, id: str, ttl: Ttl = None) -> bool:
        """Restart a document's time to live, with `ttl` (see `put`) or the previous time to live; return whether
        the document exists. The version stays.

        >>> version = store["sessions"].put("1", {}, ttl=60)
        >>> store["sessions"].touch("1"), store["sessions"].touch("1", ttl=3600)
        (True, True)
        """
        return self._run(by_id.Touch(self.name, check_id(id), read_ttl(ttl)))

    def purge_expired(self) -> int:
        """Delete the rows of expired documents, already invisible, and the documents that expired by an index with
        `expire_after_seconds`; return their number.

        >>> store["sessions"].purge_expired()
        0
        """
        return self._follow(purge(self.name))

    def get_many(self, ids: Iterable[str]) -> dict[str, Body]:
        """Return the bodies of existing documents by id, in the order of `ids`.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> store["cities"].get_many(["atlantis", "berlin"])
        {'berlin': {'country': 'de'}}
        """
        return self._read(by_id.GetMany(self.name, check_ids(ids), self._codec.decode_body))

    def id_prefixes(
        self,
        delimiter: str,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> Prefixes:
        """Return the distinct prefixes of ids, each up to and including a delimiter, in order. An id without the
        delimiter is returned whole.

        `prefix` selects ids with this prefix, up to the first delimiter that ends after the prefix. `after`: a result; return
        only later results. The call is a single statement, with a lookup in the index of ids for each result,
        however many ids share a prefix. Raise `InvalidOption`, and `InvalidFilter` for the limit.

        >>> count = store["files"].put_many({"a/x/1": 1, "a/x/2": 2, "a/y/1": 3, "a/z": 4, "b/1": 5})
        >>> store["files"].id_prefixes("/", prefix="a/")
        ['a/x/', 'a/y/', 'a/z']
        """
        return self._read(self._id_prefixes(delimiter, prefix, after, limit))

    def remove_many(self, ids: Iterable[str]) -> int:
        """Delete the documents under the ids in a transaction; return the number of deleted documents.

        >>> store["cities"].remove_many(["atlantis", "berlin"])
        0
        """
        return self._run(by_id.RemoveMany(self.name, check_ids(ids)))

    def list(self, *, skip: int = 0, limit: int | None = None) -> Documents[Body]:
        """Return all documents in natural order, the order of their insertion.

        All documents are in memory at once: 300,000 small documents take 430 MB. `stream` returns any number in
        constant memory.

        >>> count = store["cities"].put_many({"paris": {}, "berlin": {}})
        >>> [id for id, body in store["cities"].list()]
        ['paris', 'berlin']
        """
        return FoundDocuments(
            self._read(self._find(None, ..., None, skip, limit, None, method="list"))
        )

    def find(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        skip: int = 0,
        limit: int | None = None,
        projection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Documents[Body]:
        """Return the matching documents by `sort`. Without `sort`, documents come in natural order or, with a
        `limit`, in the order of the index that serves the filter. `sort=[]` is always the natural order.

        A filter is a field and a value, `find("address.city", "Berlin")`, or a filter document with MongoDB's
        operators, `find({"age": {"$gte": 30}, "likes": {"$all": ["tea"]}})`, or Python, `find((F("age") >= 30) &
        ~F("likes").exists())`. Values of different types are never equal, null equals null and missing, and an
        array matches by its elements or as a whole. `$id`, `$version`, `$created_at`, `$updated_at` and
        `$expires_at` match metadata, `$body` the whole body.

        `sort` is a field (ascending), a list of (field, 1 or -1) pairs, or a mapping. Types sort in MongoDB's
        order, an array by its smallest element (descending: its largest), equal documents in natural order.
        `projection` selects parts of the bodies: a list of fields, or MongoDB's mapping, which may also compute fields.
        All returned documents are in memory at once, as in `list`: use `stream` for many. `options`: see `CallOptions`.
        Raise `InvalidFilter`, `InvalidSort`, `InvalidProjection`, `InvalidOperand` and `InvalidOption`.

        >>> count = store["cities"].put_many({"paris": {"people": 2}, "berlin": {"people": 4}})
        >>> [city.id for city in store["cities"].find(sort=[("people", -1)], limit=1)]
        ['berlin']
        """
        found = self._read(self._find(filter, equals, sort, skip, limit, projection, options))
        return FoundDocuments(found)

    def find_one(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        skip: int = 0,
        projection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Document[Body] | None:
        """Return the first matching document, or None; see `find`.

        >>> version = store["cities"].put("berlin", {"rivers": ["Spree", "Havel"]})
        >>> print(store["cities"].find_one("rivers", "Seine"))
        None
        """
        arguments = filter, equals, sort, skip, 1, projection, options, "find_one"
        found = self._read(self._find(*arguments))
        return found[0] if found else None

    def page(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        limit: int = 100,
        after: str | None = None,
        projection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Page[Body]:
        """Return up to `limit` documents, and the `cursor` of the next page for `after=`.

        With an index in the order of the sort all pages cost the same. A document written during the paging comes at most
        once, unless the write moves the document; every other document comes exactly once. A cursor is an
        opaque string for the same collection, filter and sort, valid in any process at any time. Raise
        `InvalidCursor` otherwise.

        >>> count = store["numbers"].put_many((str(n), n) for n in range(5))
        >>> page = store["numbers"].page(sort="$body", limit=3)
        >>> [number.body for number in store["numbers"].page(sort="$body", after=page.cursor)]
        [3, 4]
        """
        return self._read(self._page(filter, equals, sort, limit, after, projection, options))

    def search(
        self,
        query: str | None = None,
        *,
        filter: FilterLike | None = None,
        limit: int = 10,
        offset: int = 0,
        after: str | None = None,
        highlight: bool | tuple[str, str] = False,
        match: Literal["all", "any"] = "all",
        meaning: Any = None,
        index: str | None = None,
        diversity: float | None = None,
    ) -> SearchPage[Body]:
        """Return the documents with the words of a query, the best first: up to `limit`, after the first `offset`.

        The query has words, all of which a document must have: `tea "green tea" chin* milk OR sugar -cake
        title:cup`. The collection needs a text index (`create_text_index`). `filter` is any filter. A result has
        the document, the score, and with `highlight` the snippets: `**` is around the found words, or two strings
        of your own. The `cursor` of the page is for `after=`. Documents of the same score are in the order of their
        ids. Scores depend on all documents of the collection.

        `match="any"` takes a text, such as a question, in which no character has a meaning: a document must have any of
        its words (the first 100). The score is higher for more of the words, for repetitions, and for a shorter text; on
        SQLite also for rarer words, on PostgreSQL it does not depend on how rare a word is.

        `meaning` is a text or a vector, as of `nearest`, with or without a query. The results of both searches are
        fused by their ranks: a result's score is the sum of 1 / (10 + rank). `place` is the field that is near. `index`
        names one of several vector indexes. `diversity` from 0 to 1 also counts how little a result resembles better
        ones, by their vectors. There is no cursor: use `offset`. The first 100 results of both searches are fused, then
        the next 100, and so on: without writes in between no result is on two pages, and none is left out.

        Raise `InvalidSearch` for a query without words, and without a text index.

        >>> name = store["notes"].create_text_index("text")
        >>> version = store["notes"].put("1", {"text": "Green tea with milk"})
        >>> [(each.id, each.snippets) for each in store["notes"].search("tea -cake", highlight=True)]
        [('1', {'text': 'Green **tea** with milk'})]
        """
        if meaning is None:
            for option, value in {"index": index, "diversity": diversity}.items():
                if value is not None:
                    raise InvalidOption(option, "goes with meaning= alone")
            words = self._search(query, filter, limit, offset, after, highlight, match)
            return self._read(words)
        window = {"filter": filter, "limit": limit, "offset": offset, "after": after}
        options = {**window, "highlight": highlight, "match": match}
        store = self._notifier is not None
        steps = self._hybrid(query, meaning, options, index, diversity, store=store)
        return self._follow(steps)

    def count(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        **options: Unpack[CallOptions],
    ) -> int:
        """Return the number of matching documents, or of all without a filter.

        >>> store["cities"].count({"country": "de"})
        0
        """
        return self._read(self._count(filter, equals, options))

    def distinct(
        self,
        field: FieldLike,
        filter: FilterLike | None = None,
        **options: Unpack[CallOptions],
    ) -> Values:
        """Return the distinct values of a field in the matching documents, sorted; an array contributes its
        elements.

        >>> version = store["cities"].put("ulm", {"rivers": ["Danube", "Iller"]})
        >>> store["cities"].distinct("rivers")
        ['Danube', 'Iller']
        """
        return self._read(self._distinct(field, filter, options))

    def delete_one(
        self, filter: FilterLike, equals: Any = ..., **options: Unpack[CallOptions]
    ) -> DeleteResult:
        """Delete the first matching document in the order of `find` with a limit.

        >>> store["cities"].delete_one("country", "de")
        DeleteResult(deleted_count=0)
        """
        return self._run(
            self._delete_one(filter, equals, call=self._call(options) if options else PLAIN)
        )

    def delete_many(
        self, filter: FilterLike, equals: Any = ..., **options: Unpack[CallOptions]
    ) -> DeleteResult:
        """Delete all matching documents, or none if an error is raised; `{}` matches all.

        >>> store["cities"].delete_many({"country": "de"})
        DeleteResult(deleted_count=0)
        """
        return self._run(
            self._delete_many(filter, equals, call=self._call(options) if options else PLAIN)
        )

    def create_index(
        self,
        keys: Any,
        *,
        unique: bool = False,
        where: Any = None,
        arrays: bool = False,
        sparse: bool = False,
        expire_after_seconds: int | None = None,
        collation: Mapping[str, Any] | None = None,
        hidden: bool = False,
        name: str | None = None,
    ) -> str:
        """Create an index on fields of the body, unless the index exists; return the name.

        `keys` is a field, (field, 1 or -1) pairs or a mapping, as for a sort: up to 5 fields. The default `name` is
        made of the keys: "country_1_people_-1", "tags_arrays". The index serves filters and sorts on its first
        fields.

        `unique` rejects documents with the same values: types differ (1 is not "1"), missing counts as null, an
        array as a whole. `where`, a filter of simple conditions, limits the index to matching documents; the index
        serves filters with the same conditions. `arrays` indexes the elements of arrays on SQLite; PostgreSQL's
        index over whole bodies already covers elements.

        `sparse` limits the index to documents with at least one of the fields, null included; the index serves filters
        that imply this, and several documents may lack the fields of a unique index.

        `unique` with `arrays` rejects documents that share an element. A compound index of `arrays` refuses documents
        with arrays in two of its fields (`InvalidBody`), unless the fields share the array.

        The field "a.$**" makes a wildcard index: on SQLite of the scalars at "a" and at all paths below, on "$**" at all
        paths; PostgreSQL's index over whole bodies already covers these. It takes no other option than `name`.

        `expire_after_seconds`, an integer from 0 on, lets a document expire this long after the time in the field: a string
        such as "2026-11-22T10:00:00.000000Z", or the earliest such string in an array. `purge_expired` and the sweeper
        delete such documents; until then every method finds them.

        `collation` is the rule by which the index compares strings: that of `CallOptions`. The index serves
        the strings of queries under the same collation, and `unique` compares so. It does not go with `arrays`,
        `expire_after_seconds`, and strings in `where`.

        `hidden`: no query uses the index, see `hide_index`.

        Writers wait while the index is created, readers do not, except for an index with a `collation` on PostgreSQL. Raise `InvalidIndex`, for a unique or compound index of
        `arrays` on PostgreSQL also in a transaction that has read before, `IndexExists`, and `DuplicateKey` if existing
        documents are duplicates.

        >>> store["cities"].create_index([("country", 1), ("people", -1)])
        'country_1_people_-1'
        """
        options = {
            "unique": unique,
            "where": where,
            "arrays": arrays,
            "sparse": sparse,
            "expire_after_seconds": expire_after_seconds,
            "collation": collation,
            "hidden": hidden,
            "name": name,
        }
        return self._run(self._create_index(keys, options))

    def create_vector_index(
        self,
        fields: VectorFields,
        *,
        dimensions: int,
        metric: Metric = "cosine",
        method: Method = "exact",
        embed: Any = None,
        model: str | None = None,
        chunks: Any = None,
        name: str | None = None,
    ) -> str:
        """Create an index of vectors on fields of the body, unless the index exists; return the name.

        `fields` is a field, or a list of up to 8 fields. Without `embed` the fields have vectors: arrays of numbers, or
        32-bit floats in base64. An array of vectors, or a path through arrays of objects, leads to several vectors. A
        document scores by its best vector. `metric`: the score is the cosine of the angle ("cosine"), the negative
        distance ("l2") or the dot product ("dot").

        With `embed` the fields have texts. `embed` is a function of a list of texts that returns a list of vectors,
        sync or async; or an embedding model of LangChain, LlamaIndex, sentence-transformers or model2vec, or a client of
        OpenAI. Each search first stores the vectors of changed documents: `embed` runs outside of transactions and
        locks, and only for changed texts. Call this method in every process that searches: the database has the name
        `model`, not the function. By default the object's name is the `model`. Long texts are cut at the ends of
        paragraphs and sentences: `chunks` is a number of characters, by default 2,000, or a function that returns the
        (start, stop) pairs of a text's chunks.

        `method`: "exact" compares a query with all vectors; "hnsw" uses an index of the extension pgvector on PostgreSQL,
        which needs no memory of this process and may miss some of the nearest documents. Such an index has at most 2,000
        dimensions, or 4,000 with "cosine", and the extension version 0.8 or newer.

        Requires the extra `vector`. Raise `InvalidIndex`, on PostgreSQL also in a transaction that has not created the
        collection, and `IndexExists`, also for another model: see `reindex`.

        >>> store["notes"].create_vector_index("embedding", dimensions=2)
        'embedding_vector'
        >>> version = store["notes"].put("tea", {"embedding": [0.6, 0.8]})
        >>> [(each.id, round(each.score, 6)) for each in store["notes"].nearest([3.0, 4.0])]
        [('tea', 1.0)]
        """
        options: dict[str, Any] = {"dimensions": dimensions, "metric": metric, "method": method}
        options |= {"model": model, "name": name}
        return self._follow(self._create_vector_index(fields, options, embed, chunks))

    def reindex(
        self,
        fields: VectorFields,
        *,
        dimensions: int,
        metric: Metric = "cosine",
        method: Method = "exact",
        embed: Any = None,
        model: str | None = None,
        chunks: Any = None,
        name: str | None = None,
    ) -> str:
        """Replace a vector index by another of the same name, with another model, dimensions, metric or method; return the name.

        The arguments are those of `create_vector_index`. The vectors of all documents are computed again, by the next
        search or by `store_vectors`. Raise `InvalidIndex` as `create_vector_index` does, and `InvalidSearch` if there is
        no such index.

        >>> name = store["points"].create_vector_index("at", dimensions=2, metric="l2")
        >>> version = store["points"].put("origin", {"at": [0, 0, 0]})
        >>> name = store["points"].reindex("at", dimensions=3, metric="l2")
        >>> [each.score for each in store["points"].nearest([0, 3, 4])]
        [-5.0]
        """
        options: dict[str, Any] = {"dimensions": dimensions, "metric": metric, "method": method}
        options |= {"model": model, "name": name}
        return self._follow(self._create_vector_index(fields, options, embed, chunks, again=True))

    def nearest(
        self,
        query: Any,
        k: int = 10,
        *,
        filter: FilterLike | None = None,
        min_score: float | None = None,
        index: str | None = None,
    ) -> SearchResults[Body]:
        """Return the `k` documents whose vectors are the nearest to a vector or a text, best first, equal scores by id.

        The search is exact, except for indexes of the method "hnsw". `filter` limits the search, also to a range of
        ids: `{"$id": {"$gte": "a/", "$lt": "a0"}}`. `min_score` leaves out lower scores. `index` names one of several
        vector indexes. A text requires an index with `embed`. The vectors of changed documents are stored first; a document that cannot be indexed is not found, see
        `search_backlog`. In a transaction, in a store that only reads, and while another holds a lock for longer than
        `busy_timeout`, nothing is stored: documents with changed texts are not found there.

        Raise `InvalidSearch`, `InvalidFilter` and `MissingExtra`, and what `embed` raises for the text.

        >>> name = store["drinks"].create_vector_index("embedding", dimensions=2)
        >>> drinks = {"tea": [1, 0], "ice": [0, 1]}
        >>> count = store["drinks"].put_many({id: {"embedding": each} for id, each in drinks.items()})
        >>> [found] = store["drinks"].nearest([2, 1], k=1)
        >>> found.id, round(found.score, 3), found.place
        ('tea', 0.894, 'embedding')
        """
        store = self._notifier is not None
        return self._follow(self._nearest(query, k, filter, min_score, index, store=store))

    def store_vectors(self, index: str | None = None) -> int:
        """Store the vectors of all changed documents, failed ones too, which searches retry after a minute; return how many
        documents remain.

        Call it after many writes: the next search is then fast. Raise `InvalidSearch`, also in a transaction.

        >>> name = store["sights"].create_vector_index("embedding", dimensions=2)
        >>> version = store["sights"].put("tower", {"embedding": [1, 2, 3]})
        >>> store["sights"].store_vectors()
        1
        >>> print(store["sights"].search_backlog()[0].problem)
        embedding must have 2 numbers, got 3
        """
        name = None if index is None else read_index_name(index)
        store = self._notifier is not None
        return self._follow(store_backlog(self.name, name, store=store))

    def search_backlog(self, limit: int = 100) -> Backlog:
        """Return the documents whose vectors are not stored, with the problem if there is one; up to `limit` of each
        index.

        >>> name = store["shops"].create_vector_index("embedding", dimensions=2)
        >>> version = store["shops"].put("bakery", {"embedding": [1, 2]})
        >>> store["shops"].search_backlog()
        [Unindexed(id='bakery', index='embedding_vector', problem=None)]
        """
        return self._run(ListUnindexed(self.name, check_integer("limit", limit)))

    def create_text_index(
        self,
        fields: TextFields,
        *,
        language: str | None = None,
        substring: bool = False,
        name: str | None = None,
    ) -> str:
        """Create the index of the words in fields of the body, unless the index exists; return the name.

        A collection has at most one index of words. `fields` maps up to 4 fields to their weights, numbers above 0; a list
        of fields, or a single field, has the weight 1. A field is a string, an array of strings, or in objects of an
        array; "$body" is a body that is itself one of these. The default `name` is "text".

        `language` None finds words as they are, without case and diacritics, the same on every database. "english"
        also finds other forms of a word ("running", "run"); PostgreSQL has more languages.

        `substring` creates the index of substrings instead, with the default `name` "substring": a collection has at most one,
        beside the index of words. The index serves `F(field).has(text)` and `F(field).starts_with(text)` for texts of 3 to
        1,000 characters, unless `ignore_case`. Weights and a language are rejected. PostgreSQL needs the extension pg_trgm,
        which the call installs if the role may do so.

        Every write maintains the index in its transaction. Writers wait while the index is created, readers do not.
        Raise `InvalidIndex`, on PostgreSQL also in a transaction that has not created the collection, and `IndexExists`
        if the collection has another index of the same kind.

        >>> store["notes"].create_text_index({"title": 3, "body": 1})
        'text'
        >>> store["notes"].create_text_index(["title", "body"], substring=True)
        'substring'
        """
        options: dict[str, Any] = {"language": language, "substring": substring, "name": name}
        return self._run(self._create_text_index(fields, **options))

    def drop_index(self, name: str) -> bool:
        """Drop an index; return False for an unknown name. Raise `InvalidIndex` unless the name is a string.

        >>> store["cities"].drop_index("country_1")
        False
        """
        return self._run(DropIndex(self.name, read_index_name(name)))

    def hide_index(self, name: str) -> bool:
        """Hide an index of fields from queries, so that `explain` shows their cost without the index. Return False for an
        unknown name.

        A hidden index is maintained, refuses duplicates, and lets documents expire. A `hint` of the index raises
        `InvalidOption`. The database creates the index again, except one of arrays: readers and writers wait. Raise
        `InvalidIndex` for the index of the ids, and for one of words, substrings or vectors.

        >>> name = store["cities"].create_index("people")
        >>> store["cities"].hide_index(name)
        True
        >>> store["cities"].explain({"people": 5}).advice
        "unhide_index('people_1')"
        """
        return self._run(HideIndex(self.name, read_hidden_name(name)))

    def unhide_index(self, name: str) -> bool:
        """Let queries use a hidden index again, as `hide_index` hides it; return False for an unknown name.

        >>> name = store["cities"].create_index("people", hidden=True)
        >>> store["cities"].unhide_index(name)
        True
        """
        return self._run(UnhideIndex(self.name, read_hidden_name(name)))

    def indexes(self) -> Indexes:
        """Return the indexes in the order of their creation.

        >>> name = store["cities"].create_index("country", unique=True)
        >>> [str(index) for index in store["cities"].indexes()]
        ["country_1: {'country': 1}, unique"]
        """
        return self._run(ListIndexes(self.name))

    def explain(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        skip: int = 0,
        limit: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Explanation:
        """Return how `find` would run: the parts that the database and Python evaluate, the indexes in use, and an
        index to create.

        The query does not run; SQLite counts the documents of a collection that the query scans. Raise
        `CollectionNotFound` for a missing collection.

        >>> version = store["cities"].put("berlin", {"country": "de"})
        >>> name = store["cities"].create_index("country")
        >>> print(store["cities"].explain("country", "de"))
        uses: index country_1
        scans: a part of the collection
        documents: unknown, the database has no estimate
        order: natural
        advice: none
        """
        return self._run(self._explain(filter, equals, sort, skip, limit, options))

    def aggregate(
        self,
        pipeline: Any,
        *,
        memory_limit: int = MEMORY_LIMIT,
        allow_disk_use: bool = False,
        **options: Unpack[CallOptions],
    ) -> Results:
        """Run an aggregation pipeline over the collection; return the results.

        All stages see a single snapshot. `$merge` and `$out` write the results into a collection, in the same transaction;
        the returned list is then empty. A stage that holds rows, such as `$sort` or `$group`, uses up to about `memory_limit` bytes.
        `allow_disk_use`: `$sort`, `$group` and stages like these then sort in a temporary file. Raise `InvalidPipeline`,
        `InvalidOperand`, `MemoryLimitExceeded`, and `OSError` for a temporary file on a full disk. See `CallOptions`.

        >>> count = store["cities"].put_many({"berlin": {"in": "de"}, "bonn": {"in": "de"}})
        >>> store["cities"].aggregate([{"$group": {"_id": "$in", "cities": {"$count": {}}}}])
        [{'_id': 'de', 'cities': 2}]
        """
        operation = self._aggregate(pipeline, memory_limit, allow_disk_use, options)
        return self._run(operation) if operation.writes else self._read(operation)

    def explain_aggregate(self, pipeline: Any, **options: Unpack[CallOptions]) -> Explanation:
        """Return how `aggregate` would run: the stages that the database and Python run, the indexes in use, and an index
        to create.

        The pipeline does not run. Where a statement turns out to be inexact, such as for more than 50,000 different values of a `$group`,
        `aggregate` lets Python run more stages than named here. Raise `InvalidPipeline`, and `CollectionNotFound` for a missing collection.

        >>> count = store["cities"].put_many({"berlin": {"in": "de"}, "bonn": {"in": "de"}})
        >>> name = store["cities"].create_index("in")
        >>> pipeline = [{"$match": {"in": "de"}}, {"$group": {"_id": "$in", "n": {"$sum": 1}}}, {"$sort": {"n": -1}}]
        >>> print(store["cities"].explain_aggregate(pipeline))
        in the database: $match, $group
        in Python: $sort
        uses: index in_1
        scans: a part of the collection
        documents: unknown, the database has no estimate
        advice: none
        """
        return self._run(self._explain_aggregate(pipeline, options))

    def stream(
        self,
        filter: FilterLike | None = None,
        equals: Any = ...,
        *,
        sort: SortLike | None = None,
        projection: Any = None,
        **options: Unpack[CallOptions],
    ) -> Iterator[Document[Body]]:
        """Yield the matching documents, in natural order or by `sort`, in constant memory.

        Between documents the stream holds no connection and no transaction: the collection can be written. Each
        document comes at most once, in a current or earlier state. A document removed and put again counts as new
        and may come again.

        Without an index in the order of `sort`, the sort fields and ids of all documents are read first, and many of
        them go to a temporary file; a full disk raises `OSError`. A document that moves during the stream comes at its
        old position, and a new document may not come.

        >>> count = store["numbers"].put_many((str(n), n) for n in range(1000))
        >>> sum(document.body for document in store["numbers"].stream())
        499500
        """
        batches = self._stream(filter, equals, sort, projection, options)
        while (page := batches.next()) is not None:
            yield from batches.advance(self._read(page))

    def stream_aggregate(
        self,
        pipeline: Any,
        *,
        memory_limit: int = MEMORY_LIMIT,
        allow_disk_use: bool = False,
        **options: Unpack[CallOptions],
    ) -> Iterator[Any]:
        """Yield the results of an aggregation pipeline, the same as `aggregate` returns.

        A pipeline of stages that need only one document (`$match`, `$project`, `$addFields`, `$unset`, `$replaceRoot`,
        `$unwind`, `$redact`, `$lookup`, `$graphLookup`, also `$skip` and `$limit`) takes constant memory: the documents
        are read in batches, in natural order. Between results the stream then holds no connection and no transaction,
        and each batch sees a snapshot of its own. With any other stage, such as `$sort` or `$group`, the whole pipeline
        runs at the first result, in one snapshot, and its results are in memory. A batch, or all such results, and each
        stage take up to about `memory_limit` bytes; see `aggregate` for `allow_disk_use`. Raise `InvalidPipeline`, also
        for `$merge` and `$out`, `InvalidOperand` and `MemoryLimitExceeded`.

        >>> count = store["numbers"].put_many((str(n), {"n": n}) for n in range(1000))
        >>> doubled = [{"$project": {"twice": {"$multiply": ["$n", 2]}}}, {"$skip": 900}]
        >>> sum(each["twice"] for each in store["numbers"].stream_aggregate(doubled))
        189900
        """
        batches = self._stream_aggregate(pipeline, memory_limit, allow_disk_use, options)
        while (page := batches.next()) is not None:
            yield from batches.advance(self._read(page))

    def upgrade_documents(
        self,
        *,
        dry_run: bool = False,
        quarantine: str | None = None,
        progress: Progress | None = None,
    ) -> UpgradeResult:
        """Bring all documents to the collection's `schema_version`; return the counts and failures.

        Each batch is a transaction, concurrent with readers and writers; a document is written only over the
        version that was read. Run an interrupted call again to continue. A document whose function fails does not
        change; with `quarantine`, the name of another collection, the document moves to the other collection under
        its id, as an object with `reason`, `version` and `body`, unless the id exists there. `dry_run` writes
        nothing, and returns samples. `progress` is called after each batch with the number of finished documents
        and the number of all documents to upgrade. Raise `InvalidOption` without a `schema_version`.

        >>> version = store["people"].put("ada", {"name": "Ada"})
        >>> def rename(body):
        ...     return {"first": body["name"]}
        >>> people = store.collection("people", schema_version=2, upgrades={1: rename})
        >>> people.upgrade_documents().upgraded_count, people.find("first", "Ada")[0].body
        (1, {'first': 'Ada'})
        """
        options = {"dry_run": dry_run, "quarantine": quarantine, "progress": progress}
        return self._follow(upgrade_documents(self.name, self._codec, **options))

    @overload
    def watch(
        self,
        filter: FilterLike | None = None,
        *,
        pipeline: None = None,
        after: str | None = None,
        kinds: Iterable[ChangeKind] | None = None,
        timeout: float | None = None,
    ) -> ChangeStream[Body]: ...
    @overload
    def watch(
        self,
        *,
        pipeline: Sequence[Any],
        after: str | None = None,
        timeout: float | None = None,
    ) -> ChangeDocumentStream: ...
    def watch(
        self,
        filter: FilterLike | None = None,
        *,
        pipeline: Sequence[Any] | None = None,
        after: str | None = None,
        kinds: Iterable[ChangeKind] | None = None,
        timeout: float | None = None,
    ) -> ChangeStream[Body] | ChangeDocumentStream:
        """Return a stream of the collection's changes in commit order.

        The collection must record changes: open the collection with `changes=True`, or "after" or "both" to record
        bodies. Iteration waits for changes of this and other processes, up to `timeout` seconds without a change.
        `after` is the start: None is now, "oldest" the first recorded change, and the `token` of a change or a
        stream the position after it, in any process at any time. Each change comes exactly once.

        `filter` matches the document after the change, or before a removal or expiry, by `$id`, `$version` and the
        recorded body. `kinds` selects from "insert", "update", "remove" and "expire". In place of both, `pipeline` has
        stages over change documents; the stream then returns dicts, as pymongo does. The stages are $match, $project,
        $addFields, $set, $unset, $replaceRoot, $replaceWith and $redact; they must keep `_id`, the token.

        Raise `InvalidFilter`, `InvalidPipeline`, `InvalidToken`, `InvalidOption` if changes are not recorded, and
        `ChangesLost` if changes after the token were deleted.

        >>> cities = store.collection("cities", changes="after")
        >>> version = cities.put("berlin", {"country": "de"})
        >>> for change in cities.watch({"country": "de"}, after="oldest", kinds=["insert"], timeout=0):
        ...     print(change.kind, change.id, change.body)
        insert berlin {'country': 'de'}
        >>> pipeline = [{"$match": {"fullDocument.country": "de"}}, {"$project": {"documentKey": 1}}]
        >>> [each["documentKey"] for each in cities.watch(pipeline=pipeline, after="oldest", timeout=0)]
        [{'_id': 'berlin'}]
        """
        notifier = check_notifier(self._notifier)
        wanted = partial(self._watched, filter, kinds, pipeline)
        reader = ChangeReader(self.name, wanted, after=after, timeout=timeout, codec=self._codec)
        stream = ChangeStream[Body] if pipeline is None else ChangeDocumentStream
        return stream(self._run, notifier, reader)

    def _follow(self, steps: Steps[T], *_: Any) -> T:
        return follow(self._step, steps)

    def _step(self, step: Any) -> Any:
        match step:
            case Pause(seconds):
                return time.sleep(seconds)
            case CallFunction(function, argument):
                return function(argument)
            case CallEmbedder(function, texts):
                from .aio.bridge import wait_for

                return wait_for(function(texts))
        return self._run(step)
