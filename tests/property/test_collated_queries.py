"""Queries under a collation find, order and group the same on a database as in Python, for random bodies and filters."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_orders import FIELDS, SORTS
from property.test_sql_is_the_matcher import KEYS, documents_of, outcome
from property.test_sql_is_the_matcher import postgres_store as postgres_store
from property.test_sql_is_the_matcher import sqlite_store as sqlite_store
from selection import sampled

from collections_store import Document, Filter, IndexExists, InvalidIndex, Store
from collections_store.aggregation.pipeline import Pipeline
from collections_store.expressions.collation import Collation, under
from collections_store.query.matcher import matches
from collections_store.query.sort import Sort

pytest.importorskip("icu")
WORDS = st.text("aAbB\u00e4\u00c4\u00e9e\u0301\u00df sS19-\u0431\u0411\u4e2d", max_size=3)
SCALARS = st.one_of(WORDS, WORDS, st.none(), st.booleans(), st.integers(-1, 2))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)
BODIES = st.lists(
    st.one_of(st.dictionaries(st.sampled_from(["a", "b"]), SCALARS), VALUES), max_size=12
)
COLLATIONS = st.one_of(
    st.fixed_dictionaries(
        {"locale": st.sampled_from(["en", "de@collation=phonebook", "sv"])},
        optional={"strength": st.integers(1, 3), "numericOrdering": st.booleans()},
    ),
    st.fixed_dictionaries({"locale": st.just("simple"), "strength": st.integers(1, 2)}),
)
INDEXES = st.sampled_from(
    [
        (["a"], {}),
        (["b", "a"], {}),
        (["a"], {"arrays": True}),
        (["a"], {"where": {"a": {"$gte": "B"}}}),
        (["a"], {"collation": True}),
        ([("b", -1), ("a", 1)], {"collation": True, "name": "both"}),
        (["a"], {"collation": True, "sparse": True, "name": "sparse"}),
        (["b"], {"collation": True, "where": {"a": {"$gte": 0}}, "name": "partial"}),
        (["a", "b"], {"collation": {"locale": "simple", "strength": 2}, "name": "other"}),
    ]
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Any, ...]:
    named = {Sort.parse(name).fields[0].target: (name, way) for name, way in draw(SORTS)}
    filters = st.lists(documents_of(VALUES), min_size=1, max_size=3)
    parts = st.sampled_from([each for each in FIELDS if each and "." not in each])
    window = draw(st.integers(1, 4)), draw(parts), draw(st.lists(INDEXES, max_size=2))
    return draw(BODIES), draw(filters), list(named.values()), draw(COLLATIONS), *window


def pages(things: Any, what: Any, **options: Any) -> Iterator[Any]:
    cursor = None
    while True:
        page = things.page(what, after=cursor, **options)
        yield from page
        cursor = page.cursor
        if cursor is None:
            return


def asked(things: Any, what: Any, question: Any) -> dict[str, Callable[[], Any]]:
    """Return what the database answers."""
    _, _, sort, collation, size, field, _ = question
    options: dict[str, Any] = {"collation": collation}
    ordered = {"sort": sort, **options}
    match = [{"$match": what}, *group(field)]
    return {
        "find": lambda: things.find(what, **options),
        "sort": lambda: things.find(what, **ordered),
        "window": lambda: things.find(what, skip=1, limit=size, **ordered),
        "pages": lambda: list(pages(things, what, limit=size, **ordered)),
        "stream": lambda: list(things.stream(what, **options)),
        "sorted stream": lambda: list(things.stream(what, **ordered)),
        "count": lambda: things.count(what, **options),
        "group": lambda: things.aggregate(match, **options),
        "delete": lambda: things.delete_many(what, **options).deleted_count,
    }


def wanted(
    documents: list[Document], what: Any, question: Any, ordered: bool
) -> dict[str, Callable[[], Any]]:
    """Return the same from Python alone."""
    _, _, sort, given, size, field, _ = question
    collation = Collation.parse(given)
    filter, order = Filter.parse(what).collated(collation), Sort.parse(sort).collated(collation)

    def found() -> list[Document]:
        return [each for each in documents if matches(filter, each, ordered=ordered)]

    def in_order() -> list[Document]:
        return sorted(found(), key=lambda each: order.key(each, ordered=ordered))

    def grouped() -> list[Any]:
        return list(Pipeline.parse(group(field)).run(found(), ordered=under(collation, ordered)))

    return {
        "find": found,
        "sort": in_order,
        "window": lambda: in_order()[1 : 1 + size],
        "pages": in_order,
        "stream": found,
        "sorted stream": in_order,
        "count": lambda: len(found()),
        "group": grouped,
        "delete": lambda: len(found()),
    }


def group(field: str) -> list[Any]:
    return [{"$group": {"_id": f"${field}", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]


def disagreements(store: Store, question: Any, ordered: bool) -> Iterator[str]:
    bodies, filters, _, collation, *_, indexes = question
    things = store["things"]
    things.delete_many({})
    for index in things.indexes():
        things.drop_index(index.name)
    for keys, options in indexes:
        rules = {"collation": collation} if options.get("collation") is True else {}
        with suppress(InvalidIndex, IndexExists):
            things.create_index(keys, **{**options, **rules})
    things.put_many((str(number), body) for number, body in enumerate(bodies))
    for what in filters:
        right = wanted(list(things.list()), what, question, ordered)
        for name, ask in asked(things, what, question).items():
            answer, correct = outcome(ask), outcome(right[name])
            if isinstance(answer, str):
                answer = answer.removeprefix("pipeline, at '0.$match': ")
            if answer != correct:
                yield f"{name} of {what}, {question}: {answer}, not {correct}"


@settings(max_examples=90 // sampled(3))
@given(question=questions())
def test_on_sqlite(sqlite_store: Store, question: Any) -> None:
    assert not list(disagreements(sqlite_store, question, ordered=True))


@settings(max_examples=40 // sampled(3))
@given(question=questions())
def test_on_postgresql(postgres_store: Store, question: Any) -> None:
    assert not list(disagreements(postgres_store, question, ordered=False))
