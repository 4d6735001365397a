"""Large queries: the right result, or an error of the library before a statement is sent; never a RecursionError or a
syntax error of the database.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from backends import Backend
from selection import in_turns, sampled

from collections_store import Document, Filter, InvalidFilter, InvalidSort, Path, Store
from collections_store.query.matcher import matches
from collections_store.query.sort import Sort

DOCUMENTS = 20
LONG_LIST = 100_000
MANY = 5_000 // sampled(2)


def nested(times: int, around: Callable[[Any], Any], inner: Any) -> Any:
    for _ in range(times):
        inner = around(inner)
    return inner


LARGE_FILTERS: dict[str, Callable[[], Any]] = {
    "10,000 in a list": lambda: {"n": {"$in": list(range(0, 20_000, 2))}},
    "10,000 texts in a list": lambda: {"s": {"$in": [f"t{n}" for n in range(0, 20_000, 2)]}},
    "10,000 not in a list": lambda: {"n": {"$nin": list(range(0, 20_000, 2))}},
    "2,000 in all": lambda: {"tags": {"$all": list(range(2000))}},
    "99 nested $or": lambda: nested(99, lambda f: {"$or": [f, {"n": -1}]}, {"n": 1}),
    "99 nested $and": lambda: nested(99, lambda f: {"$and": [f, {"s": "t1"}]}, {"n": 1}),
    "99 nested $nor": lambda: nested(99, lambda f: {"$nor": [f, {"n": 5}]}, {"n": 1}),
    "98 nested $not": lambda: {"n": nested(98, lambda f: {"$not": f}, {"$gt": 3})},
    "49 nested $elemMatch": lambda: nested(49, lambda f: {"a": {"$elemMatch": f}}, {"b": 1}),
    "1,000 in $or": lambda: {"$or": [{"n": n} for n in range(1000)]},
    f"{MANY:,} conditions on a field": lambda: {"$and": [{"n": {"$gt": -n}} for n in range(MANY)]},
    f"{MANY:,} fields": lambda: {**{f"f{n}": None for n in range(MANY)}, "n": {"$lt": 5}},
    "a path of 200 keys": lambda: {".".join("a" * 200): None, "n": {"$lt": 5}},
    "a pattern of 32,764 letters": lambda: {"$or": [{"s": {"$regex": "t" * 32_764}}, {"n": 3}]},
    "a prefix of 32,763 letters": lambda: {"s": {"$regex": "^" + "t" * 32_763}},
    "a value of 199 levels": lambda: {"deep": nested(199, lambda value: [value], 1)},
}
TOO_LARGE: dict[str, Callable[[], Any]] = {
    "100 nested $or": lambda: nested(100, lambda f: {"$or": [f, {"n": -1}]}, {"n": 1}),
    "200 nested $or": lambda: nested(200, lambda f: {"$or": [f, {"n": -1}]}, {"n": 1}),
    "1,000 nested $not": lambda: {"n": nested(1000, lambda f: {"$not": f}, {"$gt": 3})},
    "50 nested $elemMatch": lambda: nested(50, lambda f: {"a": {"$elemMatch": f}}, {"b": 1}),
    "1,000 nested $elemMatch": lambda: nested(1000, lambda f: {"a": {"$elemMatch": f}}, {"b": 1}),
    "a pattern of 32,765 letters": lambda: {"s": {"$regex": "t" * 32_765}},
    "a path of 201 keys": lambda: {".".join("a" * 201): 1},
    "a path of 300 keys": lambda: {".".join("a" * 300): {"$gt": 1}},
    "a value of 201 levels": lambda: {"deep": nested(201, lambda value: [value], 1)},
    "a value of 100,000 levels": lambda: {"deep": nested(100_000, lambda value: [value], 1)},
    "a schema of 201 levels": lambda: {"$jsonSchema": nested(201, lambda s: {"not": s}, {})},
}


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path_factory.mktemp('limits') / 'store.db'}") as store:
        yield filled(store)


@pytest.fixture(scope="module")
def on_postgresql(module_postgres_backend: Backend) -> Iterator[Store]:
    with Store(module_postgres_backend.url, **module_postgres_backend.options) as store:
        yield filled(store)


def filled(store: Store) -> Store:
    """Two collections of the same documents; one has indexes."""
    for name in ("plain", "indexed"):
        bodies = ({"n": n, "s": f"t{n}", "tags": [n, n + 1], "a": [{"b": n}]} for n in range(20))
        store[name].put_many((str(n), body) for n, body in enumerate(bodies))
        store[name].put("deep", {"deep": nested(199, lambda value: [value], 1)})
    indexed = store["indexed"]
    indexed.create_index("n")
    indexed.create_index([("s", 1), ("n", -1)])
    indexed.create_index("tags", arrays=True)
    return store


DATABASES = ["on_sqlite", "on_postgresql"]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Store:
    store: Store = request.getfixturevalue(request.param)
    return store


@pytest.mark.parametrize("name", ["indexed", "plain"][:: sampled(2)])
@pytest.mark.parametrize(
    ("database", "size"), in_turns(DATABASES, LARGE_FILTERS), indirect=["database"]
)
def test_a_large_filter_finds_the_right_documents(
    database: Store, name: str, size: str, request: pytest.FixtureRequest
) -> None:
    """The calls after the first two compile the same condition: one database gets each, both with `--whole-matrix`."""
    things, filter = database[name], LARGE_FILTERS[size]()
    parsed = Filter.parse(filter)
    right = [document for document in things.list() if matches(parsed, document)]
    assert ids(things.find(filter)) == ids(right)
    assert things.count(filter) == len(right)
    by_n = Sort.parse([("n", -1)])
    first = ids(sorted(right, key=by_n.key))[:5]
    if "on_sqlite" in request.node.name or sampled(2) == 1:
        assert ids(things.find(filter, sort=by_n, limit=5)) == first
        assert str(things.explain(filter)).startswith("uses: ")
    if "on_postgresql" in request.node.name or sampled(2) == 1:
        page = things.page(filter, sort=by_n, limit=5)
        assert ids(page) == first
        if page.cursor is not None:
            assert things.page(filter, sort=by_n, after=page.cursor)


@pytest.mark.parametrize(
    ("name", "field"),
    [("plain", "n"), ("indexed", "n"), ("plain", "s"), ("indexed", "s")][:: sampled(3)],
)
def test_a_list_of_100_000_values(database: Store, name: str, field: str) -> None:
    numbers = range(0, 2 * LONG_LIST, 2)
    values: list[Any] = list(numbers) if field == "n" else [f"t{n}" for n in numbers]
    found = database[name].find({field: {"$in": values}})
    assert ids(found) == [str(n) for n in range(0, DOCUMENTS, 2)]
    assert database[name].count({field: {"$nin": values}}) == DOCUMENTS // 2 + 1


@pytest.mark.parametrize("name", ["plain", "indexed"])
@pytest.mark.parametrize("size", TOO_LARGE)
def test_filters_that_are_too_large_are_rejected(database: Store, name: str, size: str) -> None:
    things, filter = database[name], TOO_LARGE[size]()
    with pytest.raises(InvalidFilter):
        things.find(filter)
    with pytest.raises(InvalidFilter):
        things.explain(filter)
    with pytest.raises(InvalidFilter):
        things.delete_many(filter)
    assert things.count() == DOCUMENTS + 1


def test_a_recursive_filter_is_rejected() -> None:
    filter: dict[str, Any] = {}
    filter["$and"] = [filter]
    with pytest.raises(InvalidFilter, match="100 levels"):
        Filter.parse(filter)


@pytest.mark.parametrize("name", ["indexed", "plain"][:: sampled(2)])
def test_a_sort_has_up_to_32_fields(database: Store, name: str) -> None:
    things, fields = database[name], [f"f{n}" for n in range(31)]
    found = ids(things.find(sort=[*fields, ("n", -1)]))
    assert found == [*(str(n) for n in reversed(range(DOCUMENTS))), "deep"]
    page = things.page(sort=[*fields, ("n", -1)], limit=7)
    rest = things.page(sort=[*fields, ("n", -1)], after=page.cursor)
    assert [*ids(page), *ids(rest)] == found
    with pytest.raises(InvalidSort, match="there must be 32 fields at most, got"):
        things.find(sort=[*fields, "n", "s"])


@pytest.mark.parametrize("name", ["plain", "indexed"])
def test_a_sort_path_has_up_to_200_keys(database: Store, name: str) -> None:
    things, path = database[name], Path(*("a" * 200))
    everything = ids(things.list())
    assert ids(things.find(sort=path)) == everything
    assert things.distinct(path) == []
    with pytest.raises(InvalidSort, match="at most 200 keys"):
        things.find(sort=".".join("a" * 201))


def ids(documents: Iterable[Document]) -> list[str]:
    return [document.id for document in documents]
