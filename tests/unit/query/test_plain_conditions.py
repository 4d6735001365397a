"""The short way to read plain filter documents has the result of the parser."""

from enum import StrEnum
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collections_store import InvalidBody, InvalidFilter
from collections_store.codec import Codec
from collections_store.query.filter import Filter
from collections_store.query.parser import FilterParser
from collections_store.query.shapes import (
    condition_of,
    plain_condition,
    read_plain,
    shape_of,
    values_of,
)

CODEC = Codec()
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.sampled_from(["", "a", '"', "é", "\0", "\ud800", "x" * 90, "x" * 200, "x" * 201]),
)
COMPARED = st.dictionaries(
    st.sampled_from(["$gt", "$gte", "$lt", "$lte", "$eq", "$in", "x"]), SCALARS, max_size=2
)
DOCUMENTS: st.SearchStrategy[dict[Any, Any]] = st.dictionaries(
    st.sampled_from(["a", "b", "a.b", "a.0", "", "é", "_id", "$id", "_x", "\0", "$and", "a..b"]),
    st.one_of(SCALARS, SCALARS, COMPARED, st.lists(SCALARS, max_size=2)),
    max_size=3,
)


class Operator(StrEnum):
    """Operators as a caller may name them."""

    GREATER = "$gt"


def outcome(read: Any, document: Any) -> Any:
    try:
        return read(document)
    except (InvalidFilter, InvalidBody) as error:
        return type(error)


@given(document=DOCUMENTS, codec=st.sampled_from([CODEC, Codec(max_bytes=100)]))
def test_a_plain_document_has_the_condition_of_the_parser(
    document: dict[Any, Any], codec: Codec
) -> None:
    found = outcome(lambda given: read_plain(given, codec), document)
    parsed = outcome(FilterParser(codec).document, document)
    if found is InvalidFilter:
        assert parsed is InvalidFilter
    elif found is not None:
        shape, values = found
        condition = plain_condition(shape, values)
        assert condition == parsed
        assert condition_of(shape) == shape_of(condition)
        assert [each.value for each in values_of(condition)] == values
    filter = outcome(lambda given: Filter.parse(given, codec=codec), document)
    assert (filter.condition if isinstance(filter, Filter) else filter) == parsed


def test_most_documents_are_plain() -> None:
    document = {"a": 1, "b.c": "x", "d": {"$gte": 1.5}, "e": None}
    shape = ("a", "number", "b.c", "string", "d", "$gte", "number", "e", "null")
    assert read_plain(document, CODEC) == (shape, [1, "x", 1.5, None])
    others: list[dict[Any, Any]]
    others = [{"a": {"$gte": None}}, {"a": {}}, {"a": [1]}, {"a": "x" * 201}, {"a": float("inf")}]
    for other in others:
        assert read_plain(other, CODEC) is None
    assert read_plain(document, Codec(max_bytes=100)) is None


def test_the_operators_of_a_shape_are_strings() -> None:
    read = read_plain({"a": {Operator.GREATER: 1}}, CODEC)
    assert read is not None
    assert [type(word) for word in read[0]] == [str, str, str]
    assert condition_of(read[0]) == condition_of(("a", "$gt", "number"))


def test_several_comparisons_and_the_id_are_plain() -> None:
    document = {"$id": {"$gte": "a", "$lt": "b"}, "number": 1}
    shape = ("$id", "$gte", "string", "$id", "$lt", "string", "number", "number")
    assert read_plain(document, CODEC) == (shape, ["a", "b", 1])
