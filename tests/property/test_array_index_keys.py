"""An index through arrays refuses what its keys in Python refuse, and changes no result."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_sql_is_the_matcher import postgres_store as postgres_store
from property.test_sql_is_the_matcher import sqlite_store as sqlite_store
from selection import sampled

from collections_store import (
    DuplicateKey,
    Filter,
    InvalidBody,
    Path,
    Store,
)
from collections_store.query.matcher import matches
from collections_store.query.multikey import EMPTY, ParallelArrays, index_keys
from collections_store.query.sort import key_of

SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, "", "1", "x" * 101, "x" * 102, "é"])
LISTED = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.lists(st.lists(SCALARS, max_size=2)))
INNER = st.dictionaries(st.sampled_from("bc"), LISTED, max_size=2)
VALUES = st.one_of(LISTED, INNER, st.lists(st.one_of(INNER, SCALARS, st.lists(INNER)), max_size=3))
BODIES = st.one_of(
    st.dictionaries(st.sampled_from("ad"), VALUES), st.lists(INNER, max_size=1), SCALARS
)
FIELDS = st.lists(
    st.sampled_from(["a", "d", "a.b", "a.c", "d.b"]), min_size=1, max_size=3, unique=True
)
FILTERS = st.dictionaries(
    st.sampled_from(["a", "d", "a.b", "a.c"]),
    st.one_of(
        SCALARS,
        st.builds(lambda value: {"$gte": value}, SCALARS),
        st.builds(lambda value: {"$in": value}, st.lists(SCALARS, max_size=2)),
        st.builds(lambda value: {"$elemMatch": {"b": value, "c": {"$gt": 0}}}, SCALARS),
        st.builds(lambda value: {"$exists": value}, st.booleans()),
    ),
    max_size=3,
)


def comparable(value: Any) -> Any:
    rank, inner = key_of(value)
    nested = isinstance(inner, dict | list)
    return "empty" if value is EMPTY else (rank, repr(inner) if nested else inner)


def keys(body: Any, paths: list[Path], sparse: bool) -> set[Any] | None:
    """Return the comparable keys; None: two arrays are side by side."""
    try:
        return {tuple(map(comparable, key)) for key in index_keys(body, paths, sparse=sparse)}
    except ParallelArrays:
        return None


def check(store: Store, data: st.DataObject) -> None:
    things, fields = store["things"], data.draw(FIELDS)
    unique, sparse = data.draw(st.booleans()), data.draw(st.booleans())
    things.delete_many({})
    for index in things.indexes():
        things.drop_index(index.name)
    things.create_index(fields, unique=unique, arrays=True, sparse=sparse)
    has_entries = unique or len(fields) > 1
    paths, held = [Path(*each.split(".")) for each in fields], dict[str, set[Any]]()
    bodies: dict[str, Any] = {}
    for body in data.draw(st.lists(BODIES, min_size=2, max_size=8)):
        id, own = data.draw(st.sampled_from("123456")), keys(body, paths, sparse)
        others = set[Any]().union(*(each for other, each in held.items() if other != id))
        if has_entries and own is None:
            with pytest.raises(InvalidBody):
                things.put(id, body)
        elif unique and own is not None and own & others:
            with pytest.raises(DuplicateKey) as caught:
                things.put(id, body)
            assert (caught.value.id, list(caught.value.key)) == (id, fields)
        else:
            things.put(id, body)
            held[id], bodies[id] = own or set(), body
    assert {each.id: each.body for each in things.find()} == bodies
    for document in data.draw(st.lists(FILTERS, min_size=3, max_size=5)):
        filter = Filter.parse(document)
        found = [each.id for each in things.find(filter)]
        assert found == [each.id for each in things.find() if matches(filter, each)], document


@settings(max_examples=200 // sampled(3), deadline=None)
@given(data=st.data())
def test_array_keys_on_sqlite(sqlite_store: Store, data: st.DataObject) -> None:
    check(sqlite_store, data)


@settings(max_examples=100 // sampled(3), deadline=None)
@given(data=st.data())
def test_array_keys_on_postgresql(postgres_store: Store, data: st.DataObject) -> None:
    check(postgres_store, data)
