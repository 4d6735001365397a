"""Wildcard indexes: the queries that they serve, and what they hold."""

import pickle
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from backends import Backend

from collections_store import Index, Indexed, IndexExists, InvalidIndex, InvalidOption, Path, Store

pytestmark = pytest.mark.each_backend

EQUAL: list[Any] = [
    {"a.b": 7},
    {"a.tags": "u7"},
    {"a.tags": {"$in": ["u7", "t7"]}},
    {"a.tags": {"$all": ["u7", "t7"]}},
    {"a.items.sku": "s7"},
    {"a.items": {"$elemMatch": {"sku": "s7", "size": {"$lt": 3}}}},
    {"a.b": 7, "n": {"$ne": 5}},
    {"a.one.two.three.four.five.six": 7},
    {Path("a", "d.t", "", "é🙂'"): "7"},
]
RANGES: list[Any] = [
    {"a.b": {"$gt": 480}},
    {"a.b": {"$gte": 100, "$lt": 110}},
    {"a.tags": {"$regex": "^u29"}},
]
NOT_SERVED: list[Any] = [
    {"a.b": None},
    {"a.b": {"$in": [7, None]}},
    {"a.b": {"$ne": 7}},
    {"a.b": {"$exists": True}},
    {"a.tags.0": {"$gt": "t99"}},
    {"$or": [{"a.b": {"$lt": 2}}, {"a.b": {"$gt": 497}}]},
    {"n": {"$gt": 490}},
]


def body(n: int) -> Any:
    items = [{"sku": f"s{n % 100}", "size": n % 5}, {"sku": n}]
    deep = {"two": {"three": [{"four": {"five": {"six": n}}}]}}
    own = {"b": n, "tags": [f"t{n % 70}", f"u{n % 300}"], "items": items, "one": deep}
    return {"n": n, "a": {**own, "d.t": {"": {"é🙂'": str(n)}}}}


def ids(things: Any, filters: list[Any]) -> list[list[str]]:
    return [[each.id for each in things.find(filter)] for filter in filters]


@pytest.mark.parametrize("field", ["$**", "a.$**", "$body.a.$**"])
def test_an_index_serves_all_paths_below_a_field(shared_backend: Backend, field: str) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        check_served(store["things"], field, indexes_arrays=not shared_backend.is_postgresql)


def check_served(things: Any, field: str, *, indexes_arrays: bool) -> None:
    every = [*EQUAL, *RANGES, *NOT_SERVED]
    things.put_many((str(n), body(n)) for n in range(500))
    before = ids(things, every)
    name = things.create_index(field)
    assert name == f"{field.removeprefix('$body.')}_1"
    assert things.create_index(field) == name
    if indexes_arrays:
        for filter in EQUAL + RANGES:
            explained = things.explain(filter)
            assert (explained.indexes, explained.scans) == ((name,), False), filter
        for filter in NOT_SERVED[:-1]:
            assert things.explain(filter).indexes == (), filter
        used = things.explain(NOT_SERVED[-1]).indexes
        assert used == ((name,) if field == "$**" else ())
    assert ids(things, every) == before
    assert [things.count(each) for each in every] == [len(each) for each in before]
    assert things.drop_index(name)
    assert ids(things, every) == before


def test_an_index_follows_writes(things: Any) -> None:
    things.create_index("a.$**")
    things.put_many({"1": {"a": {"b": [1, 1.0, True, "1"]}}, "2": {"a": 5}, "3": [{"a": 5}]})
    assert ids(things, [{"a.b": 1}, {"a.b": True}, {"a": 5}, {"a.b": "1"}]) == [
        ["1"],
        ["1"],
        ["2"],
        ["1"],
    ]
    things.update("1", {"$set": {"a.b": [2]}})
    things.put("2", {"a": [{"b": 2}, [{"b": 3}], [4]]})
    assert ids(things, [{"a.b": 1}, {"a.b": 2}, {"a.b": 3}, {"a": 4}, {"a": 5}]) == [
        [],
        ["1", "2"],
        [],
        [],
        [],
    ]
    things.remove("1")
    assert things.delete_many({"a.b": {"$gte": 2}}).deleted_count == 1
    assert things.count({"a.b": 2}) == 0


def test_the_body_itself_is_no_field_of_the_index(things: Any) -> None:
    things.create_index("$**")
    bodies: list[Any] = [5, [5], {"": 5}, {"": [[5], {"": 5}]}]
    things.put_many((str(n), each) for n, each in enumerate(bodies))
    assert ids(things, [{"$body": 5}, {Path(""): 5}, {Path("", ""): 5}]) == [
        ["0", "1"],
        ["2"],
        ["3"],
    ]


def test_a_wildcard_is_beside_other_indexes(things: Any) -> None:
    things.put_many((str(n), body(n)) for n in range(300))
    for keys, options in (("a.b", {}), ("a.tags", {"arrays": True}), ("a.$**", {}), ("$**", {})):
        things.create_index(keys, **options)
    assert list(map(str, things.indexes())) == [
        "a.b_1: {'a.b': 1}",
        "a.tags_arrays: {'a.tags': 1}, arrays",
        "a.$**_1: {'a.$**': 1}, arrays",
        "$**_1: {'$**': 1}, arrays",
    ]
    assert "a.b_1" in things.explain({"a.b": 7}).indexes
    found = things.find(sort="a.b", limit=2, hint="a.b_1")
    assert [each.id for each in found] == ["0", "1"]
    for hint in ("a.$**_1", {"a.$**": 1}, {"$**": 1}):
        assert [each.id for each in things.find({"a.tags": "u7"}, hint=hint)] == ["7"]
    with pytest.raises(InvalidOption, match="must be an index of fields"):
        things.count({}, hint={"b.$**": 1})
    with pytest.raises(InvalidOption, match="must name an index or its keys"):
        things.count({}, hint={"a\0.$**": 1})
    assert ids(things, [{"a.tags": "u7"}, {"a.items.sku": 7}]) == [["7"], ["7"]]
    things.put("array", {"a": {"b": [7]}})
    assert ids(things, [{"a.b": 7}]) == [["7", "array"]]
    with pytest.raises(IndexExists):
        things.create_index("a.$**", name="other")


def test_a_key_of_that_name_is_a_field_like_others(things: Any) -> None:
    assert things.create_index([(Path("a", "$**"), 1)], name="key") == "key"
    things.create_index("a.$**", name="all")
    assert [type(each.paths[0]) is Path for each in things.indexes()] == [True, False]
    assert [pickle.loads(pickle.dumps(each)) for each in things.indexes()] == things.indexes()
    things.put("1", {"a": {"$**": 1}})
    assert ids(things, [{Path("a", "$**"): 1}]) == [["1"]]


def test_the_index_follows_its_collection(store: Any) -> None:
    store["one"].create_index("a.$**")
    store["one"].put("x", {"a": {"b": 1}})
    store.rename("one", "two")
    store["two"].put("y", {"a": {"b": 1}})
    assert ids(store["two"], [{"a.b": 1}]) == [["x", "y"]]


def test_a_copy_has_the_index(shared_backend: Backend) -> None:
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        Store("sqlite://") as target,
    ):
        store["things"].create_index("a.$**")
        store["things"].put("1", {"a": {"b": 7}})
        store.copy_to(target)
        assert target["things"].indexes() == store["things"].indexes()
        assert target["things"].explain({"a.b": 7}).indexes == ("a.$**_1",)
        assert ids(target["things"], [{"a.b": 7}]) == [["1"]]


class Declared(msgspec.Struct):
    __indexes__: ClassVar = [Index.parse("$**")]
    attributes: Annotated[dict[str, Any], Indexed(wildcard=True)]


def test_a_model_declares_wildcard_indexes(store: Any) -> None:
    things = store.collection("things", model=Declared)
    things.put("1", Declared(attributes={"color": "red"}))
    assert [each.name for each in things.indexes()] == ["attributes.$**_1", "$**_1"]
    assert ids(things, [{"attributes.color": "red"}]) == [["1"]]


class Dotted(msgspec.Struct):
    attributes: Annotated[dict[str, Any], Indexed(wildcard=True)] = msgspec.field(name="a.b")


def test_a_wildcard_needs_keys_without_dots(store: Any) -> None:
    with pytest.raises(InvalidIndex, match="no keys with dots"):
        store.collection("things", model=Dotted)


def test_other_indexes_take_no_wildcard(things: Any) -> None:
    with pytest.raises(InvalidIndex, match=r"\$\*\*"):
        things.create_text_index({"a.$**": 1})
    with pytest.raises(InvalidIndex, match=r"\$\*\*"):
        things.create_vector_index("$**", dimensions=3)
