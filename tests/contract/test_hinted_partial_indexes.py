"""A hint of a partial index holds for every filter that has the condition of the index."""

from typing import Any

import pytest

from collections_store import InvalidOption, Store

CALLS: dict[str, Any] = {
    "find": lambda c, f: len(c.find(f, hint="partial")),
    "stream": lambda c, f: len(list(c.stream(f, hint="partial"))),
    "count": lambda c, f: c.count(f, hint="partial"),
    "distinct": lambda c, f: len(c.distinct("n", f, hint="partial")),
    "aggregate": lambda c, f: len(c.aggregate([{"$match": f}], hint="partial")),
    "update": lambda c, f: c.update_many(f, {"$set": {"x": 1}}, hint="partial").matched_count,
    "delete": lambda c, f: c.delete_many(f, hint="partial").deleted_count,
}
NONE: list[Any] = [{"a": {"$all": []}}, {"$id": 5}, {"$or": [{"$id": 5}, {"$version": "x"}]}]


@pytest.fixture
def things(store: Store) -> Any:
    things = store["things"]
    things.put_many({str(n): {"a": n % 3, "b": n % 2, "n": n} for n in range(12)})
    things.create_index("a", where={"b": 1}, name="partial")
    return things


@pytest.mark.parametrize("name", CALLS)
def test_a_filter_without_the_first_field_of_the_index(things: Any, name: str) -> None:
    assert CALLS[name](things, {"b": 1}) == 6
    with pytest.raises(InvalidOption, match="the filter must have its condition"):
        CALLS[name](things, {"a": 1})


@pytest.mark.parametrize("none", NONE, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_a_filter_that_is_never_true(things: Any, name: str, none: Any) -> None:
    assert CALLS[name](things, {"b": 1, **none}) == 0
