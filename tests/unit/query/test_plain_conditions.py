"""The short way to read plain filter documents has the result of the parser."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collections_store import InvalidBody, InvalidFilter
from collections_store.codec import Codec
from collections_store.query.conditions import plain_condition
from collections_store.query.filter import Filter
from collections_store.query.parser import FilterParser

CODEC = Codec(max_bytes=100)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.sampled_from(["", "a", "é", "\0", "\ud800", "x" * 90, "x" * 200]),
)
COMPARED = st.dictionaries(
    st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$in", "x"]), SCALARS, max_size=2
)
DOCUMENTS: st.SearchStrategy[dict[Any, Any]] = st.dictionaries(
    st.sampled_from(["a", "b", "a.b", "a.0", "", "é", "_id", "$id", "_x", "\0", "$and", "a..b"]),
    st.one_of(SCALARS, SCALARS, COMPARED, st.lists(SCALARS, max_size=2)),
    max_size=3,
)


def outcome(read: Any, document: Any) -> Any:
    try:
        return read(document)
    except (InvalidFilter, InvalidBody) as error:
        return type(error)


@given(document=DOCUMENTS)
def test_a_plain_document_has_the_condition_of_the_parser(document: dict[Any, Any]) -> None:
    found = outcome(lambda given: plain_condition(given, CODEC), document)
    parsed = outcome(FilterParser(CODEC).document, document)
    if found is InvalidBody:
        assert parsed is InvalidFilter
    elif found is not None:
        assert found == parsed
    expected = outcome(lambda given: Filter.parse(given, codec=CODEC).condition, document)
    assert expected == parsed


def test_most_documents_are_plain() -> None:
    document = {"a": 1, "b.c": "x", "d": {"$gte": 1.5}, "e": None}
    assert plain_condition(document, CODEC) == FilterParser(CODEC).document(document)
    assert plain_condition({"a": {"$gte": None}}, CODEC) is None
    assert plain_condition({"a": [1]}, CODEC) is None
