"""A wildcard index changes no result: SQL with the index finds what the matcher finds."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_sql_is_the_matcher import (
    KEYS,
    OBJECTS,
    PATHS,
    SCALARS,
    VALUES,
    documents_of,
    paths_and_values,
)
from property.test_sql_is_the_matcher import postgres_store as postgres_store
from property.test_sql_is_the_matcher import sqlite_store as sqlite_store
from selection import sampled

from collections_store import Filter, Path, Store
from collections_store.query.matcher import matches

BODIES = st.one_of(OBJECTS, OBJECTS, VALUES)
FIELDS = st.sampled_from(["$**", "a.$**", "b.$**", "a.b.$**", "é.$**"])


def filters(bodies: list[Any]) -> st.SearchStrategy[Any]:
    """Draw filters, most on paths and scalars of the bodies."""
    found = [pair for body in bodies for pair in paths_and_values(body)]
    scalars = [pair for pair in found if not isinstance(pair[1], dict | list)] or [(Path("a"), 1)]
    operators = st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte", "$in", "$regex"])

    def on(pair: tuple[Path, Any], operator: str) -> Any:
        path, value = pair
        if operator == "$regex":
            return {path: {"$regex": "^" + (value[:1] if value in {"a", "1", "é"} else "a")}}
        return {path: {operator: [value, "a"] if operator == "$in" else value}}

    known = st.builds(on, st.sampled_from(scalars), operators)
    other = st.builds(lambda path, value: {path: value}, PATHS, SCALARS)
    inner = st.builds(lambda key, value: {key: value}, KEYS.filter(lambda k: "." not in k), SCALARS)
    objects = st.builds(lambda path, each: {path: {"$elemMatch": each}}, PATHS, inner)
    return st.one_of(known, known, other, objects, documents_of(SCALARS, deep=False))


def check(store: Store, data: st.DataObject) -> None:
    things, field = store["things"], data.draw(FIELDS)
    things.delete_many({})
    for index in things.indexes():
        things.drop_index(index.name)
    bodies = data.draw(st.lists(BODIES, min_size=2, max_size=6))
    things.put_many((str(n), each) for n, each in enumerate(bodies[:2]))
    things.create_index(field)  # of these documents, then of others
    for body in bodies[2:]:
        things.put(data.draw(st.sampled_from("0123")), body)
    stored = things.find()
    for document in data.draw(st.lists(filters(bodies), min_size=3, max_size=6)):
        filter = Filter.parse(document)
        found = [each.id for each in things.find(filter)]
        assert found == [each.id for each in stored if matches(filter, each)], (field, document)


@settings(max_examples=250 // sampled(3), deadline=None)
@given(data=st.data())
def test_wildcard_queries_on_sqlite(sqlite_store: Store, data: st.DataObject) -> None:
    check(sqlite_store, data)


@settings(max_examples=100 // sampled(3), deadline=None)
@given(data=st.data())
def test_wildcard_queries_on_postgresql(postgres_store: Store, data: st.DataObject) -> None:
    check(postgres_store, data)
