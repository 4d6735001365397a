"""Statements are compiled once for the shape of a filter, in a bounded cache, without values of the user."""

import re
from typing import Any

from collections_store import Filter, Store
from collections_store.operations.collections import FindTable
from collections_store.sql.query import SHAPES_CACHED

SECRET = "a value that is nobody's business"
ASKED = {"a": SECRET, "n": {"$gte": 1, "$lt": 5}, "b": {"$in": [SECRET]}, "c": {"$regex": SECRET}}


def cache_info(statement: Any) -> Any:
    return statement.__wrapped__.cache_info()


def test_filters_that_differ_in_values_share_a_statement() -> None:
    with Store("sqlite://") as store:
        store["things"].put("a", {"n": 1})
        statements = store.run(FindTable("things"))
        for number in range(40):
            filter = {"n": {"$gte": number, "$lt": number + 5}, "kind": f"kind {number}"}
            assert store["things"].find(filter) == []
        cache = cache_info(statements.exact)
        assert (cache.currsize, cache.misses, cache.hits) == (1, 1, 39)


def test_the_cache_of_statements_is_bounded() -> None:
    with Store("sqlite://") as store:
        store["things"].put("a", {"n": 1})
        statements = store.run(FindTable("things"))
        for number in range(SHAPES_CACHED + 50):
            assert store["things"].find({f"field {number}": 1}) == []
        assert cache_info(statements.exact).currsize == SHAPES_CACHED


def test_shapes_contain_no_values() -> None:
    filter = Filter.parse(ASKED)
    assert SECRET in repr(filter)
    assert SECRET not in repr(filter.shape)
    assert re.findall(r"\d+", repr(filter.shape)) == []


def test_statements_contain_no_values() -> None:
    with Store("sqlite://") as store:
        store["things"].put("a", {"n": 1})
        query = store.run(FindTable("things")).select(Filter.parse(ASKED))
        assert SECRET not in query.sql
        assert SECRET in str(query.parameters(Filter.parse(ASKED)))
