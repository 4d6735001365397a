"""Every method, nested transactions, expiry, reopened stores and killed processes: a store behaves like a dict (see
`model`), on each database, sync and async.
"""

import math
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from backends import Opener
from conftest import Clock
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from property.crashing import Victim
from property.model import MADE_UP, Box, Model, outcome

from collections_store import (
    BulkWriteError,
    DeleteMany,
    DeleteOne,
    InsertOne,
    InvalidOption,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
)

NAMES = st.sampled_from(["things", "things", "things", "others"])
EVERY_NAME = st.sampled_from(["things", "others", "third"])
IDS = st.sampled_from(["a", "b", "c", "d", "é"])
SMALL = st.integers(0, 3)
SCALARS = st.one_of(SMALL, st.sampled_from([None, True, False, 1.0, 0.5, -1, "", "a", "b", 2**53]))
TAGS = st.lists(st.sampled_from([1, 2, 1.0, "a", "b", None]), max_size=3)
INNER = st.dictionaries(st.sampled_from(["x", "y", "long"]), SMALL, max_size=2)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "s": st.sampled_from(["a", "b"]),
        "n": st.one_of(SMALL, SMALL, SCALARS),
        "tags": st.one_of(TAGS, TAGS, SCALARS),
        "o": st.one_of(INNER, INNER, SCALARS),
    },
)
BODIES = st.one_of(OBJECTS, OBJECTS, OBJECTS, OBJECTS, SCALARS, TAGS)
NAN = math.nan
WRONG = st.just({"n": NAN})
TTLS = st.sampled_from([None, None, None, 1, 2, 5, math.inf])
VERSIONS = st.sampled_from([None, None, 1, 1, 2, 3])
FLAGS = st.booleans()

FILTERS: st.SearchStrategy[Any] = st.one_of(
    st.just({}),
    st.builds(lambda n: {"n": n}, SCALARS),
    st.builds(lambda n: {"n": {"$gte": n}}, SMALL),
    st.builds(lambda n: {"tags": n}, st.sampled_from([1, 2, "a", None])),
    st.builds(lambda own: {"$id": own}, IDS),
    st.builds(lambda own, n: {"$id": own, "n": n}, IDS, SMALL),
    st.builds(lambda x: {"o.x": x}, SMALL),
    st.builds(lambda o: {"o": o}, INNER),
    st.builds(lambda n, s: {"$or": [{"n": n}, {"s": s}]}, SMALL, st.sampled_from("ab")),
    st.builds(lambda flag: {"s": {"$exists": flag}}, FLAGS),
    st.sampled_from(
        [
            {"$version": {"$gt": 1}},
            {"$expires_at": None},
            {"tags": {"$size": 1}},
            {"tags": {"$elemMatch": {"$gte": 1}}},
            {"$body": 1},
            {"$expr": {"$gt": ["$n", "$o.x"]}},
            {"n": {"$not": {"$type": "number"}}},
        ]
    ),
)
SORTS = st.sampled_from(
    [None, None, "n", [("n", -1), ("s", 1)], "tags", [("$version", -1)], [("o", -1)], "$id"]
)
PROJECTIONS = st.sampled_from([None, None, ["n", "o.x"], {"tags": 0}, {"tags": {"$slice": 1}}])
UPDATES: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda n: ({"$set": {"n": n}}, None), SCALARS),
    st.builds(lambda o: ({"$set": {"o": o}}, None), INNER),
    st.builds(
        lambda n, s: ({"$inc": {"n": n}, "$set": {"s": s}}, None), SMALL, st.sampled_from("ab")
    ),
    st.builds(lambda t: ({"$push": {"tags": t}}, None), SMALL),
    st.builds(lambda t: ({"$addToSet": {"tags": t}}, None), SCALARS),
    st.builds(lambda t: ({"$pull": {"tags": {"$gte": t}}}, None), SMALL),
    st.builds(lambda n: ({"$max": {"n": n}, "$min": {"o.x": n}}, None), SCALARS),
    st.builds(lambda n: ([{"$set": {"m": {"$add": ["$n", n]}}}], None), SMALL),
    st.builds(lambda t: ({"$set": {"tags.$[t]": 9}}, [{"t": t}]), SMALL),
    st.sampled_from(
        [
            ({"$unset": {"s": ""}}, None),
            ({"$unset": {"n": ""}}, None),
            ({"$rename": {"s": "t"}}, None),
            ({"$pop": {"tags": 1}}, None),
            ({"$mul": {"n": 2}}, None),
            ({"$setOnInsert": {"born": 1}, "$set": {"s": "a"}}, None),
            ({"$currentDate": {"at": {"$type": "timestamp"}}}, None),
            ({"$set": {"tags.$": 7}}, None),
            ({"$set": {}}, None),
            ([{"$unset": "n"}], None),
        ]
    ),
)
CHANGES: st.SearchStrategy[Callable[[Any], Any]] = st.sampled_from(
    [
        lambda body: {**body, "n": 1} if isinstance(body, dict) else {"was": body},
        lambda body: [body] if not isinstance(body, list) else body[:1],
        lambda body: body,
    ]
)
KEYS = st.sampled_from(["n", "s", [("n", 1), ("s", -1)], "tags", "o.x", "o"])
INDEXES: st.SearchStrategy[tuple[Any, dict[str, Any]]] = st.one_of(
    st.tuples(KEYS, st.just({})),
    st.tuples(KEYS, st.just({"unique": True})),
    st.tuples(KEYS, st.just({"unique": True, "where": {"n": {"$gte": 1}}})),
    st.tuples(st.just("tags"), st.just({"arrays": True})),
    st.tuples(st.sampled_from(["$**", "o.$**"]), st.just({})),
    st.tuples(KEYS, st.just({"unique": True, "sparse": True})),
    st.tuples(st.sampled_from(["tags", "o.x"]), st.just({"unique": True, "arrays": True})),
    st.tuples(st.just("tags"), st.just({"unique": True, "arrays": True, "sparse": True})),
    st.tuples(KEYS, st.just({"name": "mine"})),
)
INDEX_NAMES = st.sampled_from(
    ["n_1", "s_1", "n_1_s_-1", "tags_1", "tags_arrays", "o.x_arrays", "o_1", "o.$**_1", "mine"]
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "ttl": st.sampled_from([2, 5, math.inf]),
        "sliding": st.sampled_from([True, True, False]),
        "changes": st.sampled_from([True, False, "after", "both"]),
    },
)
PIPELINES = st.sampled_from(
    [
        [{"$match": {"n": {"$gte": 1}}}, {"$sort": {"n": -1}}, {"$limit": 2}],
        [{"$group": {"_id": "$n", "count": {"$sum": 1}, "s": {"$first": "$s"}}}],
        [{"$group": {"_id": "$s", "n": {"$sum": "$n"}}}, {"$sort": {"_id": 1}}],
        [{"$unwind": "$tags"}, {"$sortByCount": "$tags"}],
        [{"$match": {"s": "a"}}, {"$count": "many"}],
        [{"$project": {"o": 1, "double": {"$eq": ["$n", 1]}}}, {"$skip": 1}],
    ]
)
REQUESTS: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda body, own, ttl: InsertOne(body, id=own, ttl=ttl), BODIES, IDS, TTLS),
    st.builds(lambda body, own: InsertOne(body, id=own), BODIES, IDS),
    st.builds(
        lambda condition, update, upsert, sort: UpdateOne(
            condition, update[0], upsert=upsert, array_filters=update[1], sort=sort
        ),
        FILTERS,
        UPDATES,
        FLAGS,
        SORTS,
    ),
    st.builds(
        lambda condition, update, upsert: UpdateMany(
            condition, update[0], upsert=upsert, array_filters=update[1]
        ),
        FILTERS,
        UPDATES,
        FLAGS,
    ),
    st.builds(lambda f, body, up: ReplaceOne(f, body, upsert=up), FILTERS, OBJECTS, FLAGS),
    st.builds(DeleteOne, FILTERS),
    st.builds(DeleteMany, FILTERS),
)
MODEL_METHODS = {"list": "everything", "exists": "has"}
"""Methods that have another name in the model."""


def _born(result: Any) -> dict[int, str]:
    """Return the generated ids of a bulk write, by the positions of their requests."""
    inserted, upserted = (getattr(result, f"{way}_ids", {}) for way in ("inserted", "upserted"))
    return {**inserted, **upserted} if isinstance(inserted, dict) else {}


class RolledBack(Exception):
    """Raised to roll back a transaction."""


class Machine(RuleBasedStateMachine):
    """A store and its model. Writes go to the innermost open transaction."""

    def __init__(self, opener: Opener, clock: Clock, spare: list[Victim]) -> None:
        super().__init__()
        self.opener, self.clock, self.spare = opener, clock, spare
        self.backend = opener.backend
        self.store = self.here = self._open()
        self.other = self.store if self.backend.is_private else self._open()
        self.blocks: list[tuple[Any, Any, Model]] = []
        self.model = Model(clock, not self.backend.is_postgresql)
        self.exclusive = self.crashed = False
        """Return whether the transaction has changed tables, so that others would wait for it."""

    def _open(self) -> Any:
        return self.opener(durability="normal")

    @initialize(
        settings=SETTINGS,
        index=st.one_of(st.none(), INDEXES),
        bodies=st.lists(st.tuples(IDS, OBJECTS), max_size=4),
        ttl=TTLS,
    )
    def initialize_collection(self, settings: Any, index: Any, bodies: Any, ttl: Any) -> None:
        """Begin with options, an index and documents, which find more errors than an empty collection."""
        self.create("things", settings, body_index=True)
        if index is not None:
            self.create_index("things", index)
        self.do("things", "put_many", bodies, ttl=ttl)

    # Methods by id

    @rule(name=NAMES, id=IDS, body=BODIES, ttl=TTLS, if_version=VERSIONS)
    def put(self, name: str, id: str, body: Any, ttl: Any, if_version: Any) -> None:
        self.do(name, "put", id, body, ttl=ttl, if_version=if_version)

    @rule(name=NAMES, id=IDS, body=st.one_of(BODIES, WRONG), ttl=TTLS)
    def put_if_absent(self, name: str, id: str, body: Any, ttl: Any) -> None:
        self.do(name, "put", id, body, ttl=ttl, if_absent=True)

    @rule(name=NAMES, id=IDS, ids=st.lists(IDS, max_size=4))
    def read_by_id(self, name: str, id: str, ids: list[str]) -> None:
        self.do(name, "get", id, "nothing")
        self.do(name, "document", id)
        self.do(name, "exists", id)
        self.same(
            lambda: list(self.here[name].get_many(ids).items()),
            lambda: self.model.box(name).get_many(ids),
        )

    @rule(name=NAMES, id=IDS, if_version=VERSIONS)
    def remove(self, name: str, id: str, if_version: Any) -> None:
        self.do(name, "remove", id, if_version=if_version)

    @rule(name=NAMES, ids=st.lists(IDS, max_size=3))
    def remove_many(self, name: str, ids: list[str]) -> None:
        self.do(name, "remove_many", list(dict.fromkeys(ids)))

    @rule(
        name=NAMES,
        given=st.lists(st.tuples(IDS, st.one_of(BODIES, BODIES, OBJECTS, WRONG)), max_size=6),
        mode=st.sampled_from(["replace", "replace", "insert", "ignore"]),
        ttl=TTLS,
        atomic=FLAGS,
    )
    def put_many(self, name: str, given: Any, mode: str, ttl: Any, atomic: bool) -> None:
        if atomic:  # invalid bodies are found one batch before rejected documents
            given = [(id, body) for id, body in given if body != {"n": NAN}]
        self.do(name, "put_many", given, mode=mode, ttl=ttl, atomic=atomic)

    @rule(name=NAMES, given=st.lists(st.tuples(IDS, BODIES, VERSIONS), max_size=4), atomic=FLAGS)
    def put_versions(self, name: str, given: Any, atomic: bool) -> None:
        self.do(name, "put_many", given, mode="if_version", atomic=atomic)

    @rule(name=NAMES, id=st.one_of(st.none(), IDS), body=st.one_of(BODIES, WRONG), ttl=TTLS)
    def insert_one(self, name: str, id: Any, body: Any, ttl: Any) -> None:
        self.do(name, "insert_one", body, id=id, ttl=ttl)

    @rule(name=NAMES, bodies=st.dictionaries(IDS, BODIES, max_size=3), atomic=FLAGS)
    def insert_many(self, name: str, bodies: dict[str, Any], atomic: bool) -> None:
        self.do(name, "insert_many", bodies, atomic=atomic)

    @rule(name=NAMES, id=IDS, function=CHANGES, default=st.sampled_from([..., None, {}]))
    def change(self, name: str, id: str, function: Any, default: Any) -> None:
        self.do(name, "change", id, function, default=default)

    @rule(
        name=NAMES,
        id=IDS,
        path=st.sampled_from(["n", "n", "o.x", "tags"]),
        by=st.sampled_from([1, 1, -2, 0, 0.5]),
        initial=st.sampled_from([0, 0, 10]),
    )
    def increment(self, name: str, id: str, path: str, by: Any, initial: int) -> None:
        self.do(name, "increment", id, path, by=by, initial=initial)

    # Time

    @rule(name=NAMES, id=IDS, ttl=TTLS)
    def touch(self, name: str, id: str, ttl: Any) -> None:
        self.do(name, "touch", id, ttl)

    @rule(seconds=st.sampled_from([0.5, 1, 1, 3, 10]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.compare_all()

    @rule(name=NAMES)
    def purge_expired(self, name: str) -> None:
        box = self.model.box(name)
        most, count = box.purge_expired(), self.here[name].purge_expired()
        assert count <= most
        assert count == most or box.was_unique  # expired duplicates are purged at once

    # Methods by filter

    @rule(name=NAMES, id=IDS, update=UPDATES, upsert=FLAGS, if_version=VERSIONS)
    def update(self, name: str, id: str, update: Any, upsert: bool, if_version: Any) -> None:
        options = {"upsert": upsert, "array_filters": update[1], "if_version": if_version}
        self.do(name, "update", id, update[0], **options)

    @rule(name=NAMES, filter=FILTERS, update=UPDATES, upsert=FLAGS, sort=SORTS)
    def update_one(self, name: str, filter: Any, update: Any, upsert: bool, sort: Any) -> None:
        options = {"upsert": upsert, "array_filters": update[1], "sort": sort}
        self.do(name, "update_one", filter, update[0], **options)

    @rule(name=NAMES, filter=FILTERS, update=UPDATES, upsert=FLAGS)
    def update_many(self, name: str, filter: Any, update: Any, upsert: bool) -> None:
        options = {"upsert": upsert, "array_filters": update[1]}
        self.do(name, "update_many", filter, update[0], **options)

    @rule(name=NAMES, filter=FILTERS, body=BODIES, upsert=FLAGS, sort=SORTS)
    def replace_one(self, name: str, filter: Any, body: Any, upsert: bool, sort: Any) -> None:
        self.do(name, "replace_one", filter, body, upsert=upsert, sort=sort)

    @rule(name=NAMES, filter=FILTERS, update=UPDATES, flags=st.tuples(FLAGS, FLAGS), sort=SORTS)
    def find_one_and_update(
        self, name: str, filter: Any, update: Any, flags: tuple[bool, bool], sort: Any
    ) -> None:
        options = {"upsert": flags[0], "return_document": flags[1], "array_filters": update[1]}
        self.do(name, "find_one_and_update", filter, update[0], sort=sort, **options)

    @rule(
        name=NAMES,
        filter=FILTERS,
        body=OBJECTS,
        flags=st.tuples(FLAGS, FLAGS),
        projection=PROJECTIONS,
    )
    def find_one_and_replace(
        self, name: str, filter: Any, body: Any, flags: tuple[bool, bool], projection: Any
    ) -> None:
        options = {"upsert": flags[0], "return_document": flags[1], "projection": projection}
        self.do(name, "find_one_and_replace", filter, body, **options)

    @rule(name=NAMES, filter=FILTERS, sort=SORTS, projection=PROJECTIONS)
    def find_one_and_delete(self, name: str, filter: Any, sort: Any, projection: Any) -> None:
        self.do(name, "find_one_and_delete", filter, sort=sort, projection=projection)

    @rule(name=NAMES, filter=FILTERS, many=FLAGS)
    def delete(self, name: str, filter: Any, many: bool) -> None:
        self.do(name, "delete_many" if many else "delete_one", filter)

    @rule(name=NAMES, requests=st.lists(REQUESTS, max_size=5), ordered=FLAGS, atomic=FLAGS)
    def bulk_write(self, name: str, requests: Any, ordered: bool, atomic: bool) -> None:
        self.do(name, "bulk_write", requests, ordered=ordered, atomic=atomic)

    @rule(
        name=NAMES,
        filter=FILTERS,
        sort=SORTS,
        window=st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 3))),
        projection=PROJECTIONS,
    )
    def find(self, name: str, filter: Any, sort: Any, window: Any, projection: Any) -> None:
        skip, limit = window
        options = {"sort": sort, "skip": skip, "projection": projection}
        self.do(name, "find", filter, limit=limit, **options)
        self.do(name, "find_one", filter, **options)
        self.do(name, "count", filter)
        self.do(name, "list", skip=skip, limit=limit)
        self.same(
            lambda: list(self.here[name].stream(filter, projection=projection)),
            lambda: self.model.box(name).stream(filter, projection=projection),
        )

    @rule(name=NAMES, filter=FILTERS, sort=SORTS, limit=st.integers(1, 3))
    def pages(self, name: str, filter: Any, sort: Any, limit: int) -> None:
        def walk() -> Iterator[Any]:
            page = self.here[name].page(filter, sort=sort, limit=limit)
            yield from page
            while page.cursor is not None:
                page = self.here[name].page(filter, sort=sort, limit=limit, after=page.cursor)
                yield from page

        self.same(lambda: list(walk()), lambda: self.model.box(name).find(filter, sort=sort))

    @rule(name=NAMES, filter=FILTERS, field=st.sampled_from(["n", "tags", "o", "o.x", "tags.0"]))
    def distinct(self, name: str, filter: Any, field: str) -> None:
        self.do(name, "distinct", field, filter)

    @rule(name=NAMES, pipeline=PIPELINES)
    def aggregate(self, name: str, pipeline: Any) -> None:
        self.do(name, "aggregate", pipeline)

    # Collections

    @rule(name=NAMES, index=INDEXES)
    def create_index(self, name: str, index: tuple[Any, dict[str, Any]]) -> None:
        is_unique_of_arrays = {"unique", "arrays"} <= index[1].keys()
        if self.blocks and is_unique_of_arrays and self.backend.is_postgresql:
            return  # refused in a transaction that has read
        self.exclusive = True
        self.do(name, "create_index", index[0], **index[1])
        self.indexes(name)

    @rule(name=NAMES, index=INDEX_NAMES)
    def drop_index(self, name: str, index: str) -> None:
        self.exclusive = True
        self.do(name, "drop_index", index)
        self.indexes(name)

    def indexes(self, name: str) -> None:
        assert [each.name for each in self.here[name].indexes()] == [*self.model.box(name).indexes]

    @rule(name=EVERY_NAME, settings=SETTINGS, body_index=FLAGS)
    def create(self, name: str, settings: dict[str, Any], body_index: bool) -> None:
        def create() -> None:
            self.here.create_collection(name, body_index=body_index, **settings)

        self.same(create, lambda: self.model.create(name, settings))

    @rule(name=NAMES, settings=SETTINGS.filter(bool))
    def configure(self, name: str, settings: dict[str, Any]) -> None:
        self.exclusive = True
        method = {"sync": "get_sync_collection", "async": "get_collection"}[self.opener.variant]
        getattr(self.here, method)(name, **settings)
        self.model.configure(name, settings)
        self.compare(name)

    @rule(name=EVERY_NAME)
    def drop(self, name: str) -> None:
        self.exclusive = True
        self.same(lambda: self.here.drop(name), lambda: self.model.drop(name))
        self.compare(name)

    @rule(old=EVERY_NAME, new=EVERY_NAME)
    def rename(self, old: str, new: str) -> None:
        self.exclusive = True
        self.same(lambda: self.here.rename(old, new), lambda: self.model.rename(old, new))
        self.compare_all()

    # Transactions

    @precondition(lambda self: len(self.blocks) < 3)
    @rule()
    def begin(self) -> None:
        context = self.here.transaction()
        self.blocks.append((context, self.here, deepcopy(self.model)))
        self.here = context.__enter__()

    @precondition(lambda self: self.blocks)
    @rule()
    def commit(self) -> None:
        context, self.here, _ = self.blocks.pop()
        context.__exit__(None, None, None)
        self.compare_all()

    @precondition(lambda self: self.blocks)
    @rule()
    def roll_back(self) -> None:
        context, self.here, self.model = self.blocks.pop()
        undone = RolledBack()
        assert not context.__exit__(RolledBack, undone, None)
        self.compare_all()

    @precondition(lambda self: not self.blocks)
    @rule(name=NAMES, id=IDS, body=OBJECTS, fails=FLAGS)
    def run_transaction(self, name: str, id: str, body: Any, fails: bool) -> None:
        def work(transaction: Any) -> None:
            transaction[name].put(id, body)
            transaction[name].increment("counter", "n")
            if fails:
                raise RolledBack

        def in_model(box: Box) -> None:
            box.put(id, body)
            box.increment("counter", "n")
            box.exists = True

        if fails:
            with pytest.raises((RolledBack, ValueError)):
                self.store.run_transaction(work)
        else:
            box = self.model.box(name)
            self.same(lambda: self.store.run_transaction(work), lambda: in_model(box))
        self.compare(name)

    # Others

    @precondition(lambda self: not self.backend.is_private)
    @rule()
    def compare_from_another_store(self) -> None:
        """Compare the committed documents, as another store reads them."""
        if self.blocks and self.exclusive and self.backend.is_postgresql:
            return
        committed = self.blocks[0][2] if self.blocks else self.model
        self.compare_all(self.other, committed)

    @precondition(lambda self: not self.blocks and not self.backend.is_private)
    @rule(name=NAMES, id=IDS, body=BODIES, ttl=TTLS)
    def write_from_another_process(self, name: str, id: str, body: Any, ttl: Any) -> None:
        self.do(name, "put", id, body, ttl=ttl, through=self.other)

    @precondition(lambda self: not self.blocks)
    @rule(name=NAMES)
    def replay(self, name: str) -> None:
        """Replay the recorded changes, and compare the result."""
        box = self.model.box(name)
        if box.recorded is None:
            with pytest.raises(InvalidOption):
                list(self.store[name].watch(after="oldest", timeout=0))
            return
        versions = dict(box.recorded)
        for change in self.store[name].watch(after="oldest", timeout=0):
            if change.kind in {"insert", "update"}:
                assert change.version == (1 if change.kind == "insert" else versions[change.id] + 1)
                versions[change.id] = change.version
            elif change.kind == "remove" or change.id in versions:
                assert versions.pop(change.id) == change.version
        live = {each.id: each.version for each in box.documents()}
        assert live == {id: versions[id] for id in versions if id not in box.expired()}

    @precondition(lambda self: not self.blocks and not self.backend.is_private)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.here = self._open()
        self.compare_all()

    @precondition(lambda self: not self.blocks and not self.backend.is_private and not self.crashed)
    @rule(written=st.lists(st.tuples(NAMES, IDS, SMALL), max_size=3), name=NAMES, id=IDS)
    def crash(self, written: list[tuple[str, str, int]], name: str, id: str) -> None:
        """Kill another process that has committed a write and has an open transaction."""
        if any(
            self.model.box(each).indexes for each in [name, *(first for first, _, _ in written)]
        ):
            return  # it might be rejected
        self.crashed = True
        victim = self.spare.pop()
        self.spare.append(Victim())
        task = {"committed": written, "lost": [(name, id, 1)], "time": self.clock()}
        try:
            versions = victim.work(url=self.backend.url, options=self.backend.options, **task)
        finally:
            victim.kill()
        assert versions == [self.model.box(each[0]).put(each[1], each[2]) for each in written]
        for each in written:
            self.model.box(each[0]).exists = True
        self.compare_all()

    # Invariants

    def do(
        self, name: str, method: str, /, *given: Any, through: Any = None, **options: Any
    ) -> None:
        """Call the method of the store and of the model, and compare the outcomes and the documents."""
        self.clock.advance(0.000001)
        box, handle = self.model.box(name), (through or self.here)[name]
        born: dict[int, str] = {}

        def real() -> Any:
            copies = [each if callable(each) else deepcopy(each) for each in given]
            try:
                result = getattr(handle, method)(*copies, **deepcopy(options))
            except BulkWriteError as error:
                born.update(_born(error.result))
                raise
            born.update(_born(result))
            return result

        found = outcome(real, self.model.ordered)
        there = handle.list()
        if there and there[-1].id not in box.rows and len(there[-1].id) >= len(MADE_UP):
            born.setdefault(0, there[-1].id)
        box.fresh = born
        model_method = getattr(box, MODEL_METHODS.get(method, method))
        expected = self.model.attempt(lambda: model_method(*given, **options))
        if options.get("atomic") and method != "bulk_write":
            found, expected = without_message(found), without_message(expected)
        assert found == expected or is_another_refusal(method, found, expected)
        self.adopt(name)
        self.compare(name, there)

    def same(self, real: Callable[[], Any], modelled: Callable[[], Any]) -> None:
        found = outcome(real, self.model.ordered)
        expected = self.model.attempt(modelled)
        assert found == expected

    def adopt(self, name: str) -> None:
        """A collection may be created by a write without effect."""
        box = self.model.box(name)
        if box.rows or box.indexes:
            box.exists = True
        if not box.exists:
            box.exists = name in {each.name for each in self.here.collections()}

    def compare(self, name: str, found: Any = None, store: Any = None, model: Any = None) -> None:
        model, store = model or self.model, store or self.here
        box = model.boxes.get(name)
        expected = [] if box is None else box.documents()
        found = store[name].list() if found is None else found
        ordered = self.model.ordered
        assert outcome(lambda: found, ordered) == outcome(lambda: expected, ordered)

    def compare_all(self, store: Any = None, model: Any = None) -> None:
        if not self.blocks:
            self.exclusive = False
        store, model = store or self.here, model or self.model
        listing = [(each.name, each.count) for each in store.collections()]
        assert listing == model.listing()
        for name in ("things", "others", "third"):
            self.compare(name, None, store, model)

    def teardown(self) -> None:
        """Delete everything after each run."""
        try:
            while self.blocks:
                self.roll_back()
            self.compare_all()
        finally:
            for context, _, _ in reversed(self.blocks):
                context.__exit__(RolledBack, RolledBack(), None)
            for each in self.store.collections():
                self.store.drop(each.name)
            self.opener.close_stores()


def without_message(outcome: tuple[str, str]) -> tuple[str, str]:
    """An atomic batch reports one rejected document; which one depends on the implementation."""
    return outcome if outcome[0] == "returned" else (outcome[0], "")


def is_another_refusal(method: str, found: tuple[str, str], expected: tuple[str, str]) -> bool:
    """Return whether an update of many documents refused one of two: the store changes all before it writes the first."""
    if method not in {"update_many", "bulk_write"} or "UpdateRefused" not in found[1]:
        return False
    return found == (
        expected[0],
        re.sub(r"DuplicateKey False (made up|\w+)", "UpdateRefused", expected[1]),
    )


def run(opener: Opener, clock: Clock, examples: int, steps: int) -> None:
    spare = [] if opener.backend.is_private else [Victim()]
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        report_multiple_bugs=False,
    )
    try:
        new: Any = lambda: Machine(opener, clock, spare)  # noqa: E731 - a class is needed
        run_state_machine_as_test(new, settings=profile)
    finally:
        for victim in spare:
            victim.kill()


@pytest.mark.timeout(600)
def test_a_store_behaves_like_a_dict(open_store: Opener, clock: Clock) -> None:
    quick = open_store.backend.is_private and open_store.variant == "sync"
    run(open_store, clock, 20 if quick else 8, 30)


def test_the_model_knows_what_a_refused_index_and_the_order_of_an_index_change(
    open_store: Opener, clock: Clock
) -> None:
    """Random steps rarely meet these: both failed for the model's fault."""
    machine = Machine(open_store, clock, [])
    bodies = [("a", {"n": 1}), ("b", {"n": 1}), ("d", {"n": 0})]
    machine.initialize_collection({}, None, bodies, None)
    machine.put("things", "c", {}, ttl=1, if_version=None)
    machine.wait(1)
    machine.create_index("things", ("n", {"unique": True}))
    machine.purge_expired("things")
    machine.create_index("things", ("n", {}))
    machine.bulk_write("things", [DeleteOne({"n": {"$gte": 0}})], ordered=True, atomic=False)
    machine.teardown()


def test_the_model_knows_that_a_refused_version_deletes_an_expired_document(
    open_store: Opener, clock: Clock
) -> None:
    machine = Machine(open_store, clock, [])
    machine.initialize_collection({"ttl": 2}, None, [("a", {})], None)
    machine.wait(3)
    machine.put_versions("things", [("a", {}, 1)], atomic=False)
    machine.purge_expired("things")
    machine.teardown()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_store_behaves_like_a_dict_for_longer(open_store: Opener, clock: Clock) -> None:
    for _ in range(15):  # Hypothesis keeps all examples of a run in memory
        run(open_store, clock, 100, 60)
