"""The verbs of a collection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from .aggregation.expressions.scope import MEMORY_LIMIT
from .changes.notify import ChangeNotifier
from .changes.watch import ChangeReader, ChangeStream, check_notifier
from .codec import Codec
from .document import (
    BulkWriteResult,
    DeleteResult,
    Document,
    InsertManyResult,
    InsertOneResult,
    Page,
    PutManyResult,
    ReplaceOne,
    Request,
    UpdateMany,
    UpdateOne,
    UpdateResult,
    check_id,
    check_ids,
    new_id,
    read_ttl,
)
from .errors import InvalidFilter, InvalidOption, missing_method
from .operations.bulk import Mode
from .operations.by_id import (
    DocumentExists,
    Get,
    GetDocument,
    GetMany,
    Insert,
    Put,
    RemoveById,
    RemoveMany,
    Replace,
    Touch,
)
from .operations.combine import Steps, follow
from .operations.explain import Explain
from .operations.find import (
    Count,
    DeleteFirst,
    DeleteMatching,
    Distinct,
    Find,
    FindPage,
    check_page,
    check_window,
    parse_required,
    read_projection,
)
from .operations.indexes import CreateIndex, DropIndex, ListIndexes
from .operations.operation import Operation
from .operations.procedures import (
    ATTEMPTS,
    CallFunction,
    Pause,
    Writing,
    bulk_write,
    change,
    check_mode,
    purge,
)
from .operations.requests import (
    ReturnDocument,
    find_and_delete,
    find_and_modify,
    update_by_id,
    update_of,
)
from .operations.stream import batches_of
from .operations.update import Increment, read_increment
from .options import (
    Ttl,
    check_attempts,
    check_flag,
    check_function,
    check_iterable,
    check_version,
)
from .query.change import ChangeFilter, ChangeKind
from .query.conditions import read_target
from .query.explain import Explanation
from .query.filter import Filter
from .query.index import Index
from .query.index import read_index_name as read_index_name
from .query.path import Path
from .query.sort import NATURAL, Sort

T = TypeVar("T")
Bodies: TypeAlias = Mapping[str, Any] | Iterable[tuple[Any, ...]]
Documents: TypeAlias = list[Document]
Values: TypeAlias = list[Any]
Indexes: TypeAlias = list[Index]
Results: TypeAlias = list[Any]


class Runner(Protocol):
    """What runs an operation: a store, or a transaction."""

    def __call__(self, operation: Operation[T]) -> T:
        """Return the operation's result."""


class Collection:
    """A named group of JSON objects, each under an id.

    Get one from a store: `store.get_sync_collection("name")`, or `store["name"]`. It comes into
    being when something is first put into it; before that, it is empty. A handle does no I/O of its
    own and may be used by many threads.
    """

    __slots__ = ("_codec", "_notifier", "_run", "name")

    def __init__(
        self, run: Runner, codec: Codec, name: str, notifier: ChangeNotifier | None = None
    ) -> None:
        self._run, self._codec, self.name, self._notifier = run, codec, name, notifier

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    if not TYPE_CHECKING:  # a type checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_method(type(self).__name__, name), name=name, obj=self)

    def put(
        self,
        id: str,
        body: Any,
        *,
        ttl: Ttl = None,
        if_version: int | None = None,
        if_absent: bool = False,
    ) -> int:
        """Write a body under an id, in the place of what was there; returns its version.

        The version is 1 for a new object and grows by one with each change. An object keeps its
        place in natural order. `ttl`: seconds, or a timedelta, after which the object is gone; None:
        as the collection says; `math.inf`: never. `if_version` writes only in the place of that
        version, `if_absent` only where there is no object; else `VersionConflict` is raised. Raises
        `InvalidId`, `InvalidBody`, `InvalidOption` and, where there is a unique index, `DuplicateKey`.
        Then nothing is written.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"population": 3_900_000})
        ...     store["cities"].put("berlin", {"population": 3_900_001}, if_version=version)
        2
        """
        if ttl is None and if_version is None and if_absent is False:  # the usual one, sooner
            return self._run(Put(self.name, check_id(id), self._codec.encode(body)))
        options = {"ttl": ttl, "if_version": if_version, "if_absent": if_absent}
        return self._run(put_of(self.name, check_id(id), self._codec.encode(body), **options))

    def get(self, id: str, default: Any = None) -> Any:
        """Return the body under an id, or `default` where there is none.

        Every call returns a fresh object. null is a body: `exists` tells it from none.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].get("atlantis", "no such city")
        'no such city'
        """
        return self._run(Get(self.name, check_id(id), default))

    def document(self, id: str) -> Document | None:
        """Return the object with its version and times, or None where there is none.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"population": 3_900_000})
        ...     store["cities"].document("berlin").version
        1
        """
        return self._run(GetDocument(self.name, check_id(id)))

    def exists(self, id: str) -> bool:
        """Return whether there is an object under an id.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].exists("atlantis")
        False
        """
        return self._run(DocumentExists(self.name, check_id(id)))

    def remove(self, id: str, *, if_version: int | None = None) -> bool:
        """Delete the object under an id; returns whether there was one.

        `if_version` deletes only that version; else `VersionConflict` is raised.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].remove("atlantis")
        False
        """
        return self._run(RemoveById(self.name, check_id(id), check_version(if_version)))

    def put_many(
        self,
        bodies: Bodies,
        *,
        mode: Mode = "replace",
        ttl: Ttl = None,
        atomic: bool = False,
    ) -> PutManyResult:
        """Write bodies under their ids, from a mapping or any iterable of pairs, however many.

        They are written in batches of up to 1,000, each of them whole or not at all, in constant
        memory; `atomic` writes all of them in one transaction, or none: they are read to their end
        before, and wait in a temporary file if they are many. What cannot be written is
        refused, be it no pair at all, and the rest is written: then `BulkWriteError` is raised, whose
        `result` tells all. With `atomic`, the first refusal is raised as what it is, with a note
        (`__notes__`) of whose it is, and nothing is written. An exception of the iterable, or of the database, ends the
        call; without `atomic` it has a note of what the batches before wrote.

        `mode`: "replace" takes the place of what is there; "insert" refuses where something is
        (`DuplicateKey`); "ignore" leaves what is there; "if_version" takes triples of id, body and the
        version that must be there (None: no object), and refuses others (`VersionConflict`). `ttl` as
        in `put`. A unique index is held to object by object: first those that take the place of others, then the
        new ones, each in their order.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].put_many({"berlin": {"country": "de"}, "paris": {"country": "fr"}})
        PutManyResult(inserted_count=2, replaced_count=0, unchanged_count=0)
        """
        writing = self._writing(check_mode(mode), read_ttl(ttl), check_flag("atomic", atomic))
        return self._follow(writing.put(check_iterable("bodies", bodies)))

    def insert_one(self, body: Any, *, id: str | None = None, ttl: Ttl = None) -> InsertOneResult:
        """Write a new object, under a new id unless one is given.

        Raises `DuplicateKey` where there is an object under that id; and what `put` raises.

        >>> with Store("sqlite://") as store:
        ...     result = store["cities"].insert_one({"country": "de"})
        ...     store["cities"].get(result.inserted_id)
        {'country': 'de'}
        """
        chosen = new_id() if id is None else check_id(id)
        text = self._codec.encode(body)
        self._run(Insert(self.name, chosen, text, read_ttl(ttl), unique=True))
        return InsertOneResult(chosen)

    def insert_many(
        self, bodies: Iterable[Any] | Mapping[str, Any], *, ttl: Ttl = None, atomic: bool = False
    ) -> InsertManyResult:
        """Write new objects under new ids, or, of a mapping, under the ids given; see `put_many`.

        The `result` of a `BulkWriteError` is a `BulkWriteResult`: its `inserted_ids` are those of what was
        inserted all the same, by position.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].insert_many({"berlin": {}, "paris": {}})
        InsertManyResult(inserted_ids=('berlin', 'paris'))
        """
        writing = self._writing("insert", read_ttl(ttl), check_flag("atomic", atomic))
        return self._follow(writing.insert(check_iterable("bodies", bodies)))

    def update(
        self,
        id: str,
        update: Any,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        if_version: int | None = None,
    ) -> UpdateResult:
        """Change the object under an id by MongoDB's operators (`$set`, `$inc`, `$push` …) or by a
        pipeline; see the reference of updates.

        `upsert`: if there is no object, one is made of the update. `array_filters` say which elements
        `$[name]` stands for. An update that changes nothing writes nothing, and the version stays; what
        changes keeps its time to live. Raises `InvalidUpdate`, `UpdateRefused` where this object cannot
        be changed so, `VersionConflict` if it is not the version `if_version`, `InvalidBody` and
        `DuplicateKey`; then nothing is changed. The result's `version` is the new one.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("ulm", {"rivers": ["Danube"]})
        ...     store["cities"].update("ulm", {"$push": {"rivers": "Iller"}})
        UpdateResult(matched_count=1, modified_count=1, upserted_id=None)
        """
        request = UpdateOne(None, update, upsert=upsert, array_filters=array_filters)
        return self._run(update_by_id(self.name, self._codec, id, request, if_version))

    def update_one(
        self,
        filter: Any,
        update: Any,
        *,
        upsert: bool = False,
        array_filters: Any = None,
        sort: Any = None,
    ) -> UpdateResult:
        """Change the first object that matches, in natural order or as `sort` says; see `update`.

        `$` in a path stands for the element that met the filter. An `upsert` inserts what the filter's
        equalities and the update make, under the `$id` that the filter asks for, or a new one.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("ulm", {"rivers": ["Danube"]})
        ...     store["cities"].update_one({"rivers": "Danube"}, {"$set": {"rivers.$": "Donau"}})
        UpdateResult(matched_count=1, modified_count=1, upserted_id=None)
        """
        options = {"upsert": upsert, "array_filters": array_filters, "sort": sort}
        return self._run(update_of(self.name, self._codec, UpdateOne(filter, update, **options)))

    def update_many(
        self, filter: Any, update: Any, *, upsert: bool = False, array_filters: Any = None
    ) -> UpdateResult:
        """Change the objects that match, all of them or, where an error is raised, none; `{}` matches
        all. See `update_one`.

        >>> with Store("sqlite://") as store:
        ...     result = store["cities"].insert_many([{"visits": 1}, {"visits": 2}])
        ...     store["cities"].update_many({}, {"$inc": {"visits": 1}})
        UpdateResult(matched_count=2, modified_count=2, upserted_id=None)
        """
        request = UpdateMany(filter, update, upsert=upsert, array_filters=array_filters)
        return self._run(update_of(self.name, self._codec, request))

    def replace_one(
        self, filter: Any, replacement: Any, *, upsert: bool = False, sort: Any = None
    ) -> UpdateResult:
        """Give the first object that matches another body; see `update_one`.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].replace_one({"$id": "ulm"}, {"country": "de"}, upsert=True)
        UpdateResult(matched_count=0, modified_count=0, upserted_id='ulm')
        """
        request = ReplaceOne(filter, replacement, upsert=upsert, sort=sort)
        return self._run(update_of(self.name, self._codec, request))

    def find_one_and_update(
        self,
        filter: Any,
        update: Any,
        *,
        projection: Any = None,
        sort: Any = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
        array_filters: Any = None,
        if_version: int | None = None,
    ) -> Document | None:
        """Change the first object that matches, and return it as it was, or, with
        `return_document=ReturnDocument.AFTER`, as it is now; None where none matches, or none did before.
        Raises
        `VersionConflict` if the object that is found is not the version `if_version`. See `update_one` and `find`.

        >>> with Store("sqlite://") as store:
        ...     version = store["jobs"].put("1", {"state": "new"})
        ...     taken = store["jobs"].find_one_and_update({"state": "new"}, {"$set": {"state": "taken"}})
        ...     taken.body
        {'state': 'new'}
        """
        options = {"upsert": upsert, "array_filters": array_filters, "sort": sort}
        request = UpdateOne(filter, update, **options)
        wanted = {
            "projection": projection,
            "return_document": return_document,
            "if_version": if_version,
        }
        return self._run(find_and_modify(self.name, self._codec, request, **wanted))

    def find_one_and_replace(
        self,
        filter: Any,
        replacement: Any,
        *,
        projection: Any = None,
        sort: Any = None,
        upsert: bool = False,
        return_document: bool = ReturnDocument.BEFORE,
    ) -> Document | None:
        """Give the first object that matches another body, and return it as `find_one_and_update` does.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("ulm", {"country": "de"})
        ...     after = {"return_document": ReturnDocument.AFTER}
        ...     found = store["cities"].find_one_and_replace({"country": "de"}, {"in": "de"}, **after)
        ...     found.version
        2
        """
        request = ReplaceOne(filter, replacement, upsert=upsert, sort=sort)
        wanted = {"projection": projection, "return_document": return_document}
        return self._run(find_and_modify(self.name, self._codec, request, **wanted))

    def find_one_and_delete(
        self, filter: Any, *, projection: Any = None, sort: Any = None
    ) -> Document | None:
        """Delete the first object that matches, and return it; None where none does. See `find`.

        >>> with Store("sqlite://") as store:
        ...     version = store["jobs"].put("1", {"state": "new"})
        ...     store["jobs"].find_one_and_delete({"state": "new"})
        Document(id='1', body={'state': 'new'}, version=1)
        """
        wanted = {"sort": sort, "projection": projection}
        return self._run(find_and_delete(self.name, self._codec, filter, **wanted))

    def bulk_write(
        self, requests: Iterable[Request], *, ordered: bool = True, atomic: bool = False
    ) -> BulkWriteResult:
        """Do many writes, from any iterable: `InsertOne`, `UpdateOne`, `UpdateMany`, `ReplaceOne`,
        `DeleteOne`, `DeleteMany`.

        They are done in batches of up to 500, each in a transaction. `ordered` ends at the first one that
        is refused; otherwise the rest is done. Then `BulkWriteError` is raised, whose `result` tells what
        was done, and what was refused why, by position. `atomic` does all in one transaction, after it has
        read all of them: the first refusal is raised as what it is, and nothing is done. What ends the call
        otherwise has a note as in `put_many`.

        >>> with Store("sqlite://") as store:
        ...     requests = [InsertOne({"n": 1}), UpdateMany({}, {"$inc": {"n": 1}}), DeleteOne({"n": 2})]
        ...     result = store["things"].bulk_write(requests)
        ...     result.inserted_count, result.modified_count, result.deleted_count
        (1, 1, 1)
        """
        options = {
            "ordered": check_flag("ordered", ordered),
            "atomic": check_flag("atomic", atomic),
        }
        return self._follow(
            bulk_write(self.name, self._codec, check_iterable("requests", requests), **options)
        )

    def increment(self, id: str, path: str | Path, by: float = 1, *, initial: float = 0) -> Any:
        """Add to a number of a body, in one statement; returns the new number.

        Where the field is missing it is `initial` before, and so it is where there is no object, which
        then comes into being. Raises `UpdateRefused` where something else than a number is there.

        >>> with Store("sqlite://") as store:
        ...     store["counters"].increment("visits", "by.page", 2)
        2
        """
        read = read_increment(path, by, initial)
        return self._run(Increment(self.name, check_id(id), read, by, initial, self._codec))

    def change(
        self,
        id: str,
        function: Callable[[Any], Any],
        *,
        default: Any = ...,
        ttl: Ttl = None,
        attempts: int = ATTEMPTS,
    ) -> Any:
        """Load a body, call `function` with it, and write what that returns; returns what was written. A
        function that returns None has changed the body in place: that body is written. To store null,
        call `put(id, None)`.

        If somebody else changed the object meanwhile, all of it begins anew, after a short pause of
        random length: nothing is lost, however many do this at once. `function` may be called
        several times, and must not change anything else. `default` is what it gets where there is no
        object; without it, `DocumentNotFound` is raised. `ttl` is for an object that is made, as in `put`; one
        that is there lives on as it was. After so many `attempts` `VersionConflict` is raised.

        >>> with Store("sqlite://") as store:
        ...     store["counters"].change("visits", lambda count: count + 1, default=0)
        1
        """
        life, most = read_ttl(ttl), check_attempts(attempts)
        options = {"default": default, "ttl": life, "attempts": most}
        return self._follow(
            change(
                self.name, self._codec, check_id(id), check_function("function", function), options
            )
        )

    def touch(self, id: str, ttl: Ttl = None) -> bool:
        """Have an object live from now on, for `ttl` (see `put`) or for as long as it last was to; tells
        whether it is there. Its version stays.

        >>> with Store("sqlite://") as store:
        ...     version = store["sessions"].put("1", {}, ttl=60)
        ...     store["sessions"].touch("1"), store["sessions"].touch("1", ttl=3600)
        (True, True)
        """
        return self._run(Touch(self.name, check_id(id), read_ttl(ttl)))

    def purge_expired(self) -> int:
        """Delete the rows of objects that have expired; returns how many.

        Nobody sees such objects anyway: this frees the space.

        >>> with Store("sqlite://") as store:
        ...     store["sessions"].purge_expired()
        0
        """
        return self._follow(purge(self.name))

    def get_many(self, ids: Iterable[str]) -> dict[str, Any]:
        """Return the bodies under those ids that are there, by id, in the order asked.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"country": "de"})
        ...     store["cities"].get_many(["atlantis", "berlin"])
        {'berlin': {'country': 'de'}}
        """
        return self._run(GetMany(self.name, check_ids(ids)))

    def remove_many(self, ids: Iterable[str]) -> int:
        """Delete the objects under those ids, all at once; returns how many there were.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].remove_many(["atlantis", "berlin"])
        0
        """
        return self._run(RemoveMany(self.name, check_ids(ids)))

    def list(self, *, skip: int = 0, limit: int | None = None) -> Documents:
        """Return all objects in natural order: the order in which they came into being.

        >>> with Store("sqlite://") as store:
        ...     count = store["cities"].put_many({"paris": {}, "berlin": {}})
        ...     [id for id, body in store["cities"].list()]
        ['paris', 'berlin']
        """
        return self._run(Find(self.name, Filter(), Sort(), *check_window(skip, limit)))

    def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        skip: int = 0,
        limit: int | None = None,
        projection: Any = None,
    ) -> Documents:
        """Return the objects that match, in natural order or as `sort` says.

        `find("address.city", "Berlin")` and `find({"address.city": "Berlin", "age": 30})` ask for
        fields, with MongoDB's meaning: types never mix (1 is not true, "1" is not 1), null matches
        null and missing, an array matches by each of its elements and as a whole. `$id`,
        `$version`, `$created_at`, `$updated_at`, `$expires_at` ask for what the store knows, `$body`
        for the whole body.

        MongoDB's operators ask for more: `find({"age": {"$gte": 30}, "likes": {"$all": ["tea"]}})`,
        and so does Python: `find((F("age") >= 30) & ~F("likes").exists())`.

        `sort` is a field (ascending), a list of (field, 1 or -1) pairs, or a mapping. Types come in
        MongoDB's order, an array by its smallest element (its largest when descending), equal ones
        in natural order. `projection` says which parts of the bodies are wanted: a list of fields,
        or MongoDB's mapping. Raises `InvalidFilter`, `InvalidSort` and `InvalidProjection`.

        >>> with Store("sqlite://") as store:
        ...     count = store["cities"].put_many({"paris": {"people": 2}, "berlin": {"people": 4}})
        ...     [city.id for city in store["cities"].find(sort=[("people", -1)], limit=1)]
        ['berlin']
        """
        asked = Filter.parse(filter, equals, self._codec)
        window = check_window(skip, limit)
        parts = read_projection(projection, asked, self._codec)
        order = NATURAL if sort is None else Sort.parse(sort)
        return self._run(Find(self.name, asked, order, *window, parts))

    def find_one(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        skip: int = 0,
        projection: Any = None,
    ) -> Document | None:
        """Return the first object that matches, or None where none does; see `find`.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"rivers": ["Spree", "Havel"]})
        ...     print(store["cities"].find_one("rivers", "Seine"))
        None
        """
        options = {"sort": sort, "skip": skip, "projection": projection}
        found = self.find(filter, equals, limit=1, **options)
        return found[0] if found else None

    def page(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        limit: int = 100,
        after: str | None = None,
        projection: Any = None,
    ) -> Page:
        """Return up to `limit` objects in order, and the `cursor` to go on with: `after=cursor`.

        A page costs the same wherever it is, if an index serves the order. Objects that others
        write meanwhile come once at most, unless the write changes their place in the order; all
        others come exactly once. A cursor is an opaque text for the same collection, filter and
        order, in any process and after any time. Raises `InvalidCursor` for any other.

        >>> with Store("sqlite://") as store:
        ...     count = store["numbers"].put_many((str(n), n) for n in range(5))
        ...     page = store["numbers"].page(sort="$body", limit=3)
        ...     [number.body for number in store["numbers"].page(sort="$body", after=page.cursor)]
        [3, 4]
        """
        asked = Filter.parse(filter, equals, self._codec)
        parts = read_projection(projection, asked, self._codec)
        page = FindPage(self.name, asked, Sort.parse(sort), check_page(limit), after, parts)
        return self._run(page)

    def count(self, filter: Any = None, equals: Any = ...) -> int:
        """Tell how many objects match; without a filter, how many there are.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].count({"country": "de"})
        0
        """
        return self._run(Count(self.name, Filter.parse(filter, equals, self._codec)))

    def distinct(self, field: str | Path, filter: Any = None) -> Values:
        """Return the different values that a field has in the objects that match, in MongoDB's order
        of values; of an array its elements, of a missing field nothing.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("ulm", {"rivers": ["Danube", "Iller"]})
        ...     store["cities"].distinct("rivers")
        ['Danube', 'Iller']
        """
        asked = Filter.parse(filter, codec=self._codec)
        return self._run(Distinct(self.name, read_target(field, InvalidFilter), asked))

    def delete_one(self, filter: Any, equals: Any = ...) -> DeleteResult:
        """Delete the first object in natural order that matches.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].delete_one("country", "de")
        DeleteResult(deleted_count=0)
        """
        return self._run(DeleteFirst(self.name, parse_required(filter, equals, self._codec)))

    def delete_many(self, filter: Any, equals: Any = ...) -> DeleteResult:
        """Delete the objects that match, all of them or, where an error is raised, none; `{}` matches
        all.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].delete_many({"country": "de"})
        DeleteResult(deleted_count=0)
        """
        return self._run(DeleteMatching(self.name, parse_required(filter, equals, self._codec)))

    def create_index(
        self,
        keys: Any,
        *,
        unique: bool = False,
        where: Any = None,
        arrays: bool = False,
        name: str | None = None,
    ) -> str:
        """Have an index over fields of the body; returns its name.

        `keys` is a field, (field, 1 or -1) pairs or a mapping, as for a sort: up to 5 fields. Without a
        `name` it is made of them, "country_1_people_-1", "tags_arrays". It serves filters by these fields, from the
        first on, and orders by them.

        `unique` forbids two objects with the same values: types are kept apart (1 is not "1"), what
        is missing counts as null, an array counts as a whole. `where`, a filter of simple conditions,
        limits the index to the objects that match; it serves filters that ask the same. `arrays` makes
        SQLite look into the arrays on the way to the one field; PostgreSQL's index over whole bodies
        does so anyway.

        An index that is there already is left alone. Writers wait while it is made, readers do not.
        Raises `InvalidIndex`, `IndexExists`, and `DuplicateKey` where objects stand in the way.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].create_index([("country", 1), ("people", -1)])
        'country_1_people_-1'
        """
        made = Index.parse(keys, unique=unique, where=where, arrays=arrays, name=name)
        return self._run(CreateIndex(self.name, made))

    def drop_index(self, name: str) -> bool:
        """Drop an index; returns whether there was one. Raises `InvalidIndex` for a name that is no string.

        >>> with Store("sqlite://") as store:
        ...     store["cities"].drop_index("country_1")
        False
        """
        return self._run(DropIndex(self.name, read_index_name(name)))

    def indexes(self) -> Indexes:
        """Return the indexes, in the order in which they were made.

        >>> with Store("sqlite://") as store:
        ...     name = store["cities"].create_index("country", unique=True)
        ...     [str(index) for index in store["cities"].indexes()]
        ["country_1: {'country': 1}, unique"]
        """
        return self._run(ListIndexes(self.name))

    def explain(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> Explanation:
        """Tell how `find` answers: what the database decides and what Python, by which indexes, and
        which index would help. Nothing but the plan is computed.

        Raises `CollectionNotFound` where there is no collection yet.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {"country": "de"})
        ...     name = store["cities"].create_index("country")
        ...     print(str(store["cities"].explain("country", "de")).partition("order")[0])
        the database decides {'country': 'de'}
        indexes: country_1
        all objects are read: no
        <BLANKLINE>
        """
        asked = Filter.parse(filter, equals, self._codec)
        window = check_window(skip, limit)
        return self._run(Explain(self.name, asked, Sort.parse(sort), *window))

    def aggregate(self, pipeline: Any, *, memory_limit: int = MEMORY_LIMIT) -> Results:
        """Run MongoDB's aggregation pipeline over the collection; returns what comes out of it.

        The stages are `$match`, `$project`, `$addFields` (`$set`), `$unset`, `$sort`, `$skip`, `$limit`,
        `$count`, `$group`, `$unwind`, `$sortByCount`, `$replaceRoot` (`$replaceWith`) and `$lookup`. All
        is read in one transaction. A stage that must hold rows, such as `$sort` or `$group`, holds up
        to about `memory_limit` bytes. Raises `InvalidPipeline`, `InvalidOperand` and
        `MemoryLimitExceeded`.

        >>> with Store("sqlite://") as store:
        ...     count = store["cities"].put_many({"berlin": {"in": "de"}, "bonn": {"in": "de"}})
        ...     store["cities"].aggregate([{"$group": {"_id": "$in", "cities": {"$count": {}}}}])
        [{'_id': 'de', 'cities': 2}]
        """
        from .aggregation.pipeline import Pipeline
        from .operations.aggregate import Aggregate, check_memory

        read = Pipeline.parse(pipeline, self._codec)
        return self._run(Aggregate(self.name, read, check_memory(memory_limit)))

    def stream(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        sort: Any = None,
        projection: Any = None,
    ) -> Iterator[Document]:
        """Yield the objects that match, in natural order or as `sort` says, in constant memory.

        No connection is held and no transaction is open between objects: the collection may be
        written meanwhile. Each object is yielded at most once; one that is written while the
        stream runs may be seen as it was or as it is. One that is removed and put again meanwhile is
        a new object, and may come twice.

        Where no index has the order of `sort`, what is sorted by is read first and held, with the ids. One
        that is written so that it has another place meanwhile comes where it was, and one that is new
        may not come.

        >>> with Store("sqlite://") as store:
        ...     count = store["numbers"].put_many((str(n), n) for n in range(1000))
        ...     sum(document.body for document in store["numbers"].stream())
        499500
        """
        asked = Filter.parse(filter, equals, self._codec)
        batches = batches_of(self.name, asked, sort, projection, self._codec)
        while (page := batches.next()) is not None:
            yield from batches.advance(self._run(page))

    def watch(
        self,
        filter: Any = None,
        *,
        after: str | None = None,
        kinds: Iterable[ChangeKind] | None = None,
        timeout: float | None = None,
    ) -> ChangeStream:
        """Return the changes of the collection as they come, in the order of their commits.

        The collection must record them: open it with `changes=True`, or "after" or "both" for their
        bodies. Iteration waits for what comes, from this and from other processes; `timeout` is for
        how many seconds without a change. `after` is where to begin: None is now; "oldest" is the first
        change that is kept; the `token` of a change or of a stream is behind that, in any process
        and after any time. Each change comes once, and none is left out.

        `filter` is asked of the object after the change or, where it was removed or expired, before:
        of `$id`, `$version` and what was recorded of its body. `kinds` are some of "insert", "update",
        "remove" and "expire". Raises `InvalidFilter`, `InvalidToken`, `InvalidOption` where no changes
        are recorded, and `ChangesLost` where not all of them are kept that come after the token.

        >>> with Store("sqlite://") as store:
        ...     cities = store.get_sync_collection("cities", changes="after")
        ...     version = cities.put("berlin", {"country": "de"})
        ...     for change in cities.watch({"country": "de"}, after="oldest", kinds=["insert"], timeout=0):
        ...         print(change.kind, change.id, change.body)
        insert berlin {'country': 'de'}
        """
        notifier = check_notifier(self._notifier)
        wanted = ChangeFilter.parse(filter, kinds, self._codec)
        reader = ChangeReader(self.name, wanted, after=after, timeout=timeout)
        return ChangeStream(self._run, notifier, reader)

    def _writing(self, mode: Mode, ttl: int | None, atomic: bool) -> Writing:
        return Writing(self.name, self._codec, mode, ttl, atomic)

    def _follow(self, steps: Steps[T]) -> T:
        return follow(self._step, steps)

    def _step(self, step: Any) -> Any:
        match step:
            case Pause(seconds):
                return time.sleep(seconds)
            case CallFunction(function, argument):
                return function(argument)
        return self._run(step)


def put_of(
    collection: str, id: str, text: str, *, ttl: Any, if_version: Any, if_absent: Any
) -> Put | Insert | Replace:
    """Return the operation of a `put`; raises `InvalidOption`."""
    life, expected = read_ttl(ttl), check_version(if_version)
    if not check_flag("if_absent", if_absent):
        if expected is None:
            return Put(collection, id, text, life)
        return Replace(collection, id, text, expected, life)
    if expected is not None:
        raise InvalidOption("if_absent", "no object has the version of if_version")
    return Insert(collection, id, text, life)
