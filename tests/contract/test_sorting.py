"""MongoDB's sort order, rule by rule: with and without an index, in one query and in pages."""

import tracemalloc
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import InvalidSort, Path, Store
from collections_store.codec import decode
from collections_store.operations import find as streaming
from collections_store.operations import read as reading

pytestmark = pytest.mark.each_backend

LONG = "x" * 150


def in_order(things: Any, sort: Any) -> list[str]:
    """Return the sorted ids, which must not depend on how they are read."""
    found = [document.id for document in things.find(sort=sort)]
    for size in (1, 3):
        page = things.page(sort=sort, limit=size)
        paged = [document.id for document in page]
        while page.cursor is not None:
            page = things.page(sort=sort, limit=size, after=page.cursor)
            paged += [document.id for document in page]
        assert paged == found
    windows = [things.find(sort=sort, skip=n, limit=1) for n in range(len(found))]
    assert [document.id for [document] in windows] == found
    return found


@pytest.fixture(params=["without an index", "with an index"])
def indexed(request: pytest.FixtureRequest, things: Any) -> Any:
    """An empty collection, perhaps with indexes that could serve the orders below."""
    if request.param == "with an index":
        for keys in ("v", [("a.x", 1), ("a.y", -1)], [("v", -1), ("w", 1)]):
            things.create_index(keys)
    return things


def fill(things: Any, *bodies: Any) -> None:
    things.put_many((str(n), body) for n, body in enumerate(bodies))


# -- 1. types --------------------------------------------------------------------------------


TYPES: list[Any] = [
    [],
    None,
    -1,
    0.5,
    2**53,
    2**53 + 1,
    "",
    "10",
    "9",
    "Z",
    "a",
    "é",
    "\uffff",
    "\U0001f600",
    {},
    {"a": 1},
    {"a": 1, "b": 0},
    {"b": 0},
    [[]],
    [[1]],
    False,
    True,
]


@pytest.mark.parametrize("rank", range(len(TYPES)))
def test_types_come_in_mongodbs_order(things: Any, rank: int) -> None:
    """Adjacent in the order: all are tried at once below."""
    fill(things, *({"v": value} for value in reversed(TYPES[rank : rank + 2])))
    many = len(TYPES[rank : rank + 2])
    assert [d.id for d in things.find(sort="v")] == [str(n) for n in reversed(range(many))]


def test_all_types_at_once(indexed: Any) -> None:
    fill(indexed, *({"v": value} for value in reversed(TYPES)))
    upwards = [str(n) for n in reversed(range(len(TYPES)))]
    assert in_order(indexed, "v") == upwards
    assert in_order(indexed, [("v", -1)]) == upwards[::-1]


def test_null_and_missing_are_equal(indexed: Any) -> None:
    fill(indexed, {"v": 1}, {"v": None}, {}, 5, "text", None, {"v": None})
    assert in_order(indexed, "v") == ["1", "2", "3", "4", "5", "6", "0"]
    assert in_order(indexed, [("v", -1)]) == ["0", "1", "2", "3", "4", "5", "6"]


def test_numbers_sort_by_value_and_strings_by_code_point(indexed: Any) -> None:
    numbers: list[Any] = [2**63 - 1, 1.0, -(2**63), 1, 1e300, -1e300, 5e-324, 0, -0.0]
    fill(indexed, *({"v": number} for number in numbers))
    assert in_order(indexed, "v") == ["5", "2", "7", "8", "6", "1", "3", "0", "4"]
    indexed.delete_many({})
    fill(indexed, *({"v": text} for text in ("a", "B", "ä", "z", "A", "aa", "\uffff", "😀")))
    assert in_order(indexed, "v") == ["4", "1", "0", "5", "3", "2", "6", "7"]


def test_strings_with_a_common_prefix_are_distinguished(indexed: Any) -> None:
    fill(indexed, *({"v": LONG + end} for end in ("b", "a", "", "ab")))
    assert in_order(indexed, "v") == ["2", "1", "3", "0"]
    assert in_order(indexed, [("v", -1)]) == ["0", "3", "1", "2"]


def test_objects_compare_by_type_key_and_value_of_each_field(indexed: Any) -> None:
    values: list[Any] = [
        {"b": 1},
        {"a": "x"},
        {"a": 2},
        {},
        {"a": 1, "c": 1},
        {"a": 1},
        {"a": None},
    ]
    fill(indexed, *({"v": value} for value in values))
    assert in_order(indexed, "v") == ["3", "6", "5", "4", "2", "0", "1"]


# -- 2. arrays -------------------------------------------------------------------------------


def test_arrays_sort_by_their_smallest_or_largest_element(indexed: Any) -> None:
    fill(indexed, {"v": [5, 1]}, {"v": 2}, {"v": [3]}, {"v": [4, "x"]}, {"v": []}, {"v": None})
    assert in_order(indexed, "v") == ["4", "5", "0", "1", "2", "3"]
    assert in_order(indexed, [("v", -1)]) == ["3", "0", "2", "1", "5", "4"]


def test_a_nested_array_is_one_value(indexed: Any) -> None:
    fill(indexed, {"v": [[1]]}, {"v": [{"a": 1}]}, {"v": [True]}, {"v": [[]]}, {"v": "x"})
    assert in_order(indexed, "v") == ["4", "1", "3", "0", "2"]


def test_an_array_within_the_path(indexed: Any) -> None:
    fill(
        indexed,
        {"a": [{"x": 5}, {"x": 1}]},
        {"a": {"x": 2}},
        {"a": [{"x": 3}, {"x": [9, 0]}]},
        {"a": [{"y": 1}, {"x": 7}]},
        {"a": []},
        {"a": [1, "scalar"]},
    )
    assert in_order(indexed, "a.x") == ["3", "4", "5", "2", "0", "1"]
    assert in_order(indexed, [("a.x", -1)]) == ["2", "3", "0", "1", "4", "5"]


def test_an_index_in_the_path_selects_one_element(indexed: Any) -> None:
    fill(indexed, {"v": [3, 9]}, {"v": [1, 2]}, {"v": {"0": 2}}, {"v": []}, {"v": [[7, 0]]})
    assert in_order(indexed, "v.0") == ["3", "4", "1", "2", "0"]
    assert in_order(indexed, [("v.0", -1)]) == ["4", "0", "2", "1", "3"]
    assert in_order(indexed, "v.1") == ["2", "3", "4", "1", "0"]


# -- 3. several fields through one array -----------------------------------------------------


def test_fields_through_one_array_are_taken_from_one_element(indexed: Any) -> None:
    fill(
        indexed,
        {"a": [{"x": 1, "y": 9}, {"x": 2, "y": 1}]},
        {"a": [{"x": 1, "y": 5}]},
        {"a": {"x": 1, "y": 1}},
        {"a": [{"x": 1, "y": 7}, {"x": 1, "y": 3}]},
    )
    # by the smallest y of any element, the first would come before the second
    assert in_order(indexed, [("a.x", 1), ("a.y", 1)]) == ["2", "3", "1", "0"]
    assert in_order(indexed, [("a.x", 1), ("a.y", -1)]) == ["0", "3", "1", "2"]
    assert in_order(indexed, [("a.x", -1), ("a.y", 1)]) == ["0", "2", "3", "1"]
    assert in_order(indexed, [("a.y", 1), ("a.x", 1)]) == ["2", "0", "3", "1"]


def test_fields_missing_in_an_element_are_null(indexed: Any) -> None:
    fill(
        indexed,
        {"a": [{"x": 1}, {"y": 0}]},
        {"a": [{"x": 1, "y": 2}]},
        {"a": [{"y": 0}]},
        {"a": [{"x": 0, "y": 5}, 7]},
    )
    # a missing x is null, which sorts before every number
    assert in_order(indexed, [("a.x", 1), ("a.y", 1)]) == ["3", "0", "2", "1"]
    assert in_order(indexed, [("a.x", -1), ("a.y", 1)]) == ["0", "1", "3", "2"]


def test_sort_by_an_array_and_its_elements(indexed: Any) -> None:
    fill(
        indexed,
        {"a": [{"x": 2, "y": 0}, {"x": 3, "y": 5}]},
        {"a": [{"x": 2, "y": 1}]},
        {"a": [{"x": 2, "y": [8, 0]}]},
    )
    assert in_order(indexed, [("a", 1), ("a.y", 1)]) == ["0", "1", "2"]
    assert in_order(indexed, [("a.x", 1), ("a.y", -1)]) == ["2", "1", "0"]


def test_different_arrays_are_traversed_independently(indexed: Any) -> None:
    fill(indexed, {"v": [1, 4], "w": [9, 2]}, {"v": [1], "w": [3]}, {"v": [1, 0], "w": [5]})
    assert in_order(indexed, [("v", 1), ("w", 1)]) == ["2", "0", "1"]
    assert in_order(indexed, [("v", -1), ("w", 1)]) == ["0", "1", "2"]


# -- 4. ties ---------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [1, -1])
def test_equal_keys_keep_natural_order(indexed: Any, direction: int) -> None:
    fill(indexed, *({"v": value} for value in (1, 1.0, 1, [1], 1, True, 1)))
    indexed.put("2", {"v": 1, "changed": True})  # keeps its position
    ones = ["0", "1", "2", "3", "4", "6"]
    assert in_order(indexed, [("v", direction)]) == (
        [*ones, "5"] if direction > 0 else ["5", *ones]
    )
    assert in_order(indexed, {"w": direction}) == [str(n) for n in range(7)]


# -- fields ----------------------------------------------------------------------------------


def test_sort_by_metadata(things: Any) -> None:
    for id in ("b", "c", "a"):
        things.put(id, {"v": id == "c"})
    things.put("b", {"v": True})
    assert in_order(things, "$id") == ["a", "b", "c"]
    assert in_order(things, [("$id", -1)]) == ["c", "b", "a"]
    assert in_order(things, [("$version", -1), ("$id", 1)]) == ["b", "a", "c"]
    assert in_order(things, "$created_at") == ["b", "c", "a"]
    assert in_order(things, [("$updated_at", -1)]) == ["b", "a", "c"]
    assert in_order(things, [("$expires_at", -1), ("v", -1)]) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("$id", [*range(8)]), ([("n", -1), ("$id", 1)], [4, 5, 6, 7, 0, 1, 2, 3])],
    ids=str,
)
def test_long_ids_are_sorted_in_one_statement(
    postgres_backend: Backend, sort: Any, expected: list[int]
) -> None:
    url = sa.make_url(postgres_backend.url).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    sorting: list[str] = []

    def count(_: Any, __: Any, statement: str, *___: Any) -> None:
        sorting.extend([statement] if "ORDER BY" in statement else [])

    with Store(engine=engine, **postgres_backend.options) as store:
        things = store["things"]
        things.put_many((f"{LONG}{n}", {"n": n // 4}) for n in range(8))
        sa.event.listen(engine, "before_cursor_execute", count)
        found = [each.id for each in things.find(sort=sort)]
        assert [int(id[-1]) for id in found] == expected
        assert [each.id for each in things.find(sort=sort, skip=3, limit=2)] == found[3:5]
        assert [each.id for each in things.page(sort=sort, limit=3)] == found[:3]
        assert len(sorting) == 3


def test_sort_by_the_body(things: Any) -> None:
    fill(things, "x", 2, [7, 1], None, {"b": 1}, {"a": 1}, True, [])
    assert in_order(things, "$body") == ["7", "3", "2", "1", "0", "5", "4", "6"]
    assert in_order(things, "$body.a")[-1] == "5"


def test_keys_of_a_path_are_literal(things: Any) -> None:
    fill(things, {"a.b": 2, "a": {"b": 1}}, {"a.b": 1, "a": {"b": 2}}, {"$id": 5})
    assert in_order(things, "a.b") == ["2", "0", "1"]
    assert in_order(things, Path("a.b")) == ["2", "1", "0"]
    assert in_order(things, [(Path("$id"), -1)]) == ["2", "0", "1"]


@pytest.mark.parametrize(
    "sort",
    ["v", ["v"], ("v",), [("v", 1)], [["v", 1.0]], {"v": 1}, Path("v"), [Path("v")]],
    ids=str,
)
def test_every_form_of_a_sort(things: Any, sort: Any) -> None:
    fill(things, {"v": 2}, {"v": 1})
    assert in_order(things, sort) == ["1", "0"]


@pytest.mark.parametrize(
    "sort",
    [5, [5], {"v": 2}, {"v": True}, {"v": "asc"}, [("v", 1, 1)], ["v", "v"], "$size", {"$id.x": 1}],
    ids=str,
)
def test_invalid_sorts_are_rejected(things: Any, sort: Any) -> None:
    for method in (things.find, things.page, things.find_one):
        with pytest.raises(InvalidSort):
            method(sort=sort)


# -- sorted streams ----------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "n", "list"])
@pytest.mark.parametrize("sort", ["n", [("n", -1)], {"list": 1, "n": -1}, "$id", "text"])
def test_stream_has_the_order_of_find(
    things: Any, monkeypatch: pytest.MonkeyPatch, sort: Any, index: str | None
) -> None:
    monkeypatch.setattr(streaming, "FIRST_BATCH", 2)
    monkeypatch.setattr(streaming, "MAX_BATCH", 5)
    for n in range(17):
        text = "x" * 150 + str(n % 4)
        things.put(f"{n:02}", {"n": n % 5, "list": [n % 3, n % 7], "text": text, "o": {"a": n}})
    if index is not None:
        things.create_index(index)
    for filter in (None, {"n": {"$gt": 1}}, {"n": {"$in": [1, 2, {"a": 1}]}}):
        found = things.find(filter, sort=sort)
        assert list(things.stream(filter, sort=sort)) == found
        parts = things.find(filter, sort=sort, projection=["n"])
        assert list(things.stream(filter, sort=sort, projection=["n"])) == parts
    assert list(things.stream({"n": 99}, sort=sort)) == []


def test_writes_during_a_sorted_stream(things: Any) -> None:
    things.put_many((str(n), {"n": n}) for n in range(200))
    stream = iter(things.stream({"n": {"$gte": 0}}, sort=[("n", -1)]))
    assert [next(stream).id for _ in range(3)] == ["199", "198", "197"]
    things.remove("0")
    things.put("1", {"n": -1})
    things.put("2", {"n": 500})
    assert [each.id for each in stream] == [str(n) for n in range(196, 1, -1)]


def test_an_invalid_sort_of_a_stream_is_rejected(things: Any) -> None:
    with pytest.raises(InvalidSort):
        list(things.stream(sort={"n": 2}))
    assert list(things.stream(sort="n")) == []


@pytest.mark.parametrize("projection", [None, ["n"]])
def test_a_stream_in_an_order_holds_no_bodies(
    things: Any, monkeypatch: pytest.MonkeyPatch, projection: Any
) -> None:
    monkeypatch.setattr(streaming, "BATCH_SIZE", 2**18)
    things.put_many((str(n), {"n": -n, "text": f"{n}" + "x" * 20_000}) for n in range(1000))
    for _ in range(2):
        tracemalloc.start()
        try:
            assert sum(1 for _ in things.stream(sort="n", projection=projection)) == 1000
            assert tracemalloc.get_traced_memory()[1] < 1000 * 20_000 / 8
        finally:
            tracemalloc.stop()
        things.create_index("n")


UNSORTED: list[tuple[list[Any], dict[str, Any], str]] = [
    ([], {"n": {"$gte": 2}}, "5324"),
    (["n"], {"n": {"$gte": 2}}, "2345"),
    (["n"], {"n": {"$gte": 2}, "kind": 1}, "35"),
    (["n"], {"n": {"$gte": 2}, "l": {"$bitsAllClear": 1}}, "24"),  # the matcher decides
    (["n"], {"n": {"$mod": [2, 1]}}, "531"),
    (["n"], {"$or": [{"n": {"$gte": 4}}, {"n": 1}]}, "514"),
    ([[("n", -1)]], {"n": {"$gte": 2}}, "5432"),
    (["kind"], {"kind": 1, "n": {"$gte": 2}}, "53"),
    (["kind", "n"], {"kind": 1, "n": {"$gte": 2}}, "53"),
    (["n", [("kind", 1), ("n", -1)]], {"kind": 0}, "42"),
    ([[("kind", 1), ("l", -1), ("n", 1)], "n"], {"kind": 1, "l": {"$lt": 5}}, "31"),
    (["$created_at"], {"$created_at": {"$gt": 0}, "n": {"$lt": 4}}, "312"),
    (["arrays"], {"arrays": {"$gt": 0}}, "32145"),
    ([{"keys": "n", "where": {"kind": 1}}], {"kind": 1, "n": {"$gte": 2}}, "35"),
    ([{"keys": "n", "where": {"kind": 1}}], {"kind": {"$gte": 1}, "n": {"$gte": 2}}, "53"),
    ([], {"$id": {"$gt": "1"}}, "2345"),
    ([], {"$id": {"$gte": "2", "$lt": "5"}}, "234"),
    ([[("n", -1)]], {"$id": {"$gt": "1"}, "n": {"$gt": 0}}, "5432"),
    (["kind"], {"$id": {"$gt": "0"}, "kind": 1}, "531"),
    ([{"keys": "arrays", "arrays": True}], {"arrays": {"$gt": 0}}, "53124"),
]


@pytest.mark.each_backend
@pytest.mark.parametrize(("indexes", "filter", "expected"), UNSORTED)
def test_a_limit_without_a_sort_takes_the_order_of_the_index(
    things: Any, indexes: list[Any], filter: Any, expected: str
) -> None:
    for n in (5, 3, 1, 2, 4):
        body = {"n": n, "kind": n % 2, "l": n, "arrays": [7 - n, 9] if n < 4 else n + 3}
        things.put(str(n), body)
    natural = [each.id for each in things.find(filter)]
    for each in indexes:
        options = each if isinstance(each, dict) else {"keys": each}
        things.create_index(**options)
    assert [each.id for each in things.find(filter)] == natural
    assert [each.id for each in things.find(filter, sort=[], limit=9)] == natural
    assert [each.id for each in things.page(filter, limit=9).documents] == natural
    for limit in range(1, 7):
        found = things.find(filter, limit=limit)
        assert "".join(each.id for each in found) == expected[:limit]
        found = things.find(filter, limit=limit, skip=1)
        assert "".join(each.id for each in found) == expected[1 : limit + 1]
    assert things.find_one(filter).id == expected[0]
    assert things.find_one_and_update(filter, {"$set": {"m": 1}}).id == expected[0]
    things.update_one(filter, {"$set": {"u": 1}})
    assert [each.id for each in things.find("u", 1)] == [expected[0]]
    things.delete_one(filter)
    assert things.get(expected[0]) is None
    assert things.find_one_and_delete(filter).id == expected[1]


STOPPING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"keys": "n"}, {"n": {"$lt": 0}}),
    ({"keys": ["odd", "n"]}, {"odd": 1}),
    ({"keys": "n", "where": {"odd": 1}}, {"n": {"$lt": 0}, "odd": 1}),
]


@pytest.mark.each_backend
@pytest.mark.parametrize(("index", "filter"), STOPPING)
def test_a_limited_find_stops_early(
    things: Any, monkeypatch: pytest.MonkeyPatch, index: Any, filter: Any
) -> None:
    things.create_index(**index)
    things.put_many((str(n), {"n": -n, "odd": n % 2, "k": [n]}) for n in range(2000))
    read: list[str] = []

    def counted(text: str) -> Any:
        read.append(text)
        return decode(text)

    monkeypatch.setattr(reading, "decode", counted)
    odd = {"$mod": [{"$arrayElemAt": ["$k", 0]}, 2]}
    filter = {**filter, "$expr": {"$eq": [odd, 1]}}  # by the matcher
    assert things.explain(filter, limit=3).order in {"index", "database"}  # not Python
    found = things.find(filter, limit=3)
    assert [each.id for each in found] == ["1999", "1997", "1995"]
    assert 0 < len(read) < 300
