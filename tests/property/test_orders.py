"""Order, pages and distinct values in SQL equal those in Python, for random bodies and sorts."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_sql_is_the_matcher import KEYS, SCALARS, VALUES, documents_of
from property.test_sql_is_the_matcher import postgres_store as postgres_store
from property.test_sql_is_the_matcher import sqlite_store as sqlite_store
from selection import sampled

from collections_store import Document, Filter, IndexExists, InvalidIndex, Path, Projection, Store
from collections_store.expressions.values import compare
from collections_store.query.matcher import distinct_values, matches
from collections_store.query.sort import Sort

LONG = "x" * 100
FIELDS = ["a", "b", "a.b", "a.0", 'q"', "d.t", "é", ""]
TEXTS = st.sampled_from(
    ["", "a", "Z", "é", "😀", "\uffff", LONG, f"{LONG}a", f"{LONG}b", f"{LONG}ab"]
)
PLAIN = st.one_of(SCALARS, TEXTS, st.integers(-3, 3))
FLAT = st.dictionaries(st.sampled_from(["a", "b", 'q"', "é", ""]), PLAIN, max_size=4)
NESTED = st.dictionaries(st.just("a"), FLAT, max_size=1)
WILD = st.dictionaries(KEYS, VALUES, max_size=3)
BODIES = st.lists(st.one_of(FLAT, FLAT, NESTED), min_size=3, max_size=14)
TARGETS = st.one_of(
    st.sampled_from(FIELDS),
    st.sampled_from(["$body", "$id", "$version", "$created_at", "$expires_at", "$body.a"]),
    st.lists(KEYS, min_size=1, max_size=3).map(lambda keys: Path(*keys)),
)
SORTS = st.lists(
    st.tuples(TARGETS, st.sampled_from([1, -1])), min_size=1, max_size=3, unique_by=lambda p: p[0]
)


Question = tuple[list[Any], Filter, Sort, int, list[Any], Any]
INDEXES: st.SearchStrategy[list[Any]] = st.lists(
    st.one_of(
        st.tuples(
            st.lists(st.sampled_from(FIELDS), min_size=1, max_size=3, unique=True), st.just({})
        ),
        st.tuples(st.sampled_from(["a", "b", "a.b", "é", ""]), st.just({"arrays": True})),
        st.tuples(
            st.sampled_from(["a", "b", "a.b"]),
            st.sampled_from(
                [{"a": {"$gte": 0}}, {"b": {"$exists": True}}, {"a": {"$in": [1, None]}}]
            ).map(lambda where: {"where": where}),
        ),
        st.tuples(
            st.lists(st.sampled_from(["a", "b", "a.b"]), min_size=1, max_size=2, unique=True),
            st.just({"sparse": True}),
        ),
    ),
    max_size=2,
)


RANGES: st.SearchStrategy[Any] = st.tuples(
    st.sampled_from(FIELDS), st.sampled_from(["$eq", "$gt", "$gte", "$lt", "$lte", "$regex"]), PLAIN
).map(lambda each: {each[0]: {each[1]: "^x" if each[1] == "$regex" else each[2]}})
"""Filters by which an index may have all values of a field in an exact order."""


PROJECTIONS: st.SearchStrategy[Any] = st.one_of(
    st.lists(st.sampled_from(["b", "a.b", "é", 'q"']), min_size=1, max_size=2, unique=True),
    st.dictionaries(st.sampled_from(["a.b", "b", "é", "a.a"]), st.just(0), min_size=1, max_size=2),
    st.builds(lambda n: {"a": {"$slice": n}}, st.integers(-2, 2)),
    st.builds(lambda value: {"a": {"$elemMatch": {"$gte": value}}, "b": 1}, SCALARS),
    st.just({"a": {"$elemMatch": {"b": {"$exists": True}}}}),
)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    bodies = draw(
        st.one_of(BODIES, BODIES, st.lists(WILD, max_size=10), st.lists(VALUES, max_size=8))
    )
    filter = draw(st.one_of(st.just({}), RANGES, documents_of(PLAIN, deep=False)))
    fields = draw(SORTS)
    named = {Sort.parse(name).fields[0].target: (name, way) for name, way in fields}
    return (
        bodies,
        Filter.parse(filter),
        Sort.parse(list(named.values())),
        draw(st.integers(1, 5)),
        draw(INDEXES),
        draw(PROJECTIONS),
    )


def disagreements(store: Store, question: Question, *, ordered: bool) -> Iterator[str]:
    bodies, filter, sort, size, indexes, parts = question
    things = store["things"]
    things.delete_many({})
    for index in things.indexes():
        things.drop_index(index.name)
    for keys, options in indexes:
        with suppress(InvalidIndex, IndexExists):  # a double quote, or the same again
            things.create_index(keys, **options)
    things.put_many((str(number), body) for number, body in enumerate(bodies))
    stored = [d for d in things.list() if matches(filter, d, ordered=ordered)]
    expected = sorted(stored, key=lambda d: sort.key(d, ordered=ordered))
    found = {
        "find": (things.find(filter, sort=sort), expected),
        "window": (things.find(filter, sort=sort, skip=1, limit=size), expected[1 : 1 + size]),
        "pages": (list(pages(things, filter, sort, size)), expected),
        "pages in natural order": (list(pages(things, filter, Sort(), size)), stored),
        "find in natural order": (things.find(filter), stored),
        "stream": (list(things.stream(filter)), stored),
    }
    for what, (answer, right) in found.items():
        if [d.id for d in answer] != [d.id for d in right]:
            yield f"{what} of {filter}, {sort}: {answer}, not {right}"
    projected = things.find(filter, sort=sort, projection=parts)
    wanted = Projection.parse(parts)
    if projected != [wanted.apply(d, filter, ordered=ordered) for d in expected]:
        yield f"projection {parts} of {filter}, {sort}: {projected}"
    for field in sort.fields:
        if isinstance(field.target, Path):
            answer, right = (
                things.distinct(field.target, filter),
                different(stored, field.target, ordered),
            )
            if repr(answer) != repr(right):
                yield f"distinct {field.target!r} of {filter}: {answer}, not {right}"
    if things.count(filter) != len(stored):
        yield f"count of {filter}: {things.count(filter)}, not {len(stored)}"
    first = [document.id for document in things.find(filter, limit=1)]
    if things.delete_one(filter).deleted_count != len(first) or len(first) != len(stored[:1]):
        yield f"delete_one {filter}"
    if [d.id for d in stored if d.id not in {e.id for e in things.list()}] != first:
        yield f"delete_one {filter}: another one"
    if things.delete_many(filter).deleted_count != len(stored) - len(first) or things.count(filter):
        yield f"delete_many {filter}"
    if things.count() != len(bodies) - len(stored):
        yield f"delete_many {filter}: too many"


def pages(things: Any, filter: Filter, sort: Sort, size: int) -> Iterator[Document]:
    page = things.page(filter, sort=sort, limit=size)
    while True:
        assert len(page) <= size
        yield from page
        if page.cursor is None:
            return
        assert len(page) == size
        page = things.page(filter, sort=sort, limit=size, after=page.cursor)


def different(stored: list[Document], path: Path, ordered: bool) -> list[Any]:
    """Return the distinct values in order; of equal ones (1 and 1.0) the one stored first."""
    found: list[Document] = []
    for document in stored:
        for value in distinct_values(document.body, path.keys):
            if all(compare(value, other.body, ordered=ordered) for other in found):
                found.append(Document("", value))
    return [d.body for d in sorted(found, key=lambda d: Key(d.body, ordered))]


class Key:
    """A value that compares as MongoDB compares."""

    def __init__(self, value: Any, ordered: bool) -> None:
        self.value, self.ordered = value, ordered

    def __lt__(self, other: "Key") -> bool:
        return compare(self.value, other.value, ordered=self.ordered) < 0


@settings(max_examples=100 // sampled(3))
@given(question=questions())
def test_on_sqlite(sqlite_store: Store, question: Any) -> None:
    assert not list(disagreements(sqlite_store, question, ordered=True))


@settings(max_examples=60 // sampled(3))
@given(question=questions())
def test_on_postgresql(postgres_store: Store, question: Any) -> None:
    assert not list(disagreements(postgres_store, question, ordered=False))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("part")
@settings(max_examples=1000)
@given(question=questions())
def test_on_both_for_longer(sqlite_store: Store, postgres_store: Store, question: Any) -> None:
    assert not list(disagreements(sqlite_store, question, ordered=True))
    assert not list(disagreements(postgres_store, question, ordered=False))


COMPARED = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])
NAMES = st.sampled_from(["a", "b", "a.b"])
ELEMENTS = st.one_of(PLAIN, st.dictionaries(st.sampled_from(["a", "b"]), PLAIN, max_size=1))
CONDITIONS = st.one_of(
    st.tuples(NAMES, PLAIN),
    st.tuples(NAMES, st.builds(lambda name, value: {name: value}, COMPARED, PLAIN)),
    st.tuples(NAMES, st.builds(lambda name, n: {name: n}, COMPARED, st.integers(-1, 1))),
    st.tuples(NAMES, st.just({"$regex": "^x"})),
    st.tuples(NAMES, st.just({"$exists": True})),
    st.tuples(st.just("b"), st.just(1)),
    st.tuples(st.just("$id"), st.just({"$gt": "2"})),
    st.tuples(st.just("$expires_at"), st.just({"$gt": 0})),
)
CONJUNCTIONS = st.lists(CONDITIONS, min_size=1, max_size=3).map(dict)
TARGETED = st.sampled_from(["a", "b", "a.b", "$expires_at"])


@st.composite
def limited(draw: st.DrawFn) -> tuple[list[Any], list[Any], dict[str, Any], int, int]:
    """Draw bodies, indexes, a filter, skip and limit."""
    elements = st.one_of(ELEMENTS, ELEMENTS, ELEMENTS, st.lists(ELEMENTS, max_size=2))
    bodies = st.dictionaries(st.sampled_from(["a", "b"]), elements, max_size=2)
    keys = st.lists(
        st.tuples(TARGETED, st.sampled_from([1, -1])),
        min_size=1,
        max_size=3,
        unique_by=lambda p: p[0],
    )
    where = st.sampled_from([{}, {}, {"where": {"b": 1}}, {"where": {"b": {"$exists": True}}}])
    sparse = st.tuples(
        st.lists(NAMES, min_size=1, max_size=2, unique=True), st.just({"sparse": True})
    )
    arrays = st.tuples(NAMES, st.just({"arrays": True}))
    filter = draw(CONJUNCTIONS)
    if draw(st.integers(0, 4)) == 0:
        filter["$or"] = draw(st.lists(CONJUNCTIONS, min_size=1, max_size=2))
    return (
        draw(st.lists(bodies, min_size=3, max_size=10)),
        draw(st.lists(st.one_of(st.tuples(keys, where), arrays, sparse), max_size=3)),
        filter,
        draw(st.integers(0, 2)),
        draw(st.integers(1, 4)),
    )


@settings(max_examples=75 // sampled(3))
@given(question=limited())
def test_a_limit_without_a_sort_finds_the_same_on_both(
    sqlite_store: Store, postgres_store: Store, question: Any
) -> None:
    bodies, indexes, filter, skip, limit = question
    answers = []
    for store in (sqlite_store, postgres_store):
        things = store["things"]
        things.delete_many({})
        for index in things.indexes():
            things.drop_index(index.name)
        for keys, options in indexes:
            with suppress(IndexExists):
                things.create_index(keys, **options)
        for number, body in enumerate(bodies):
            things.put(str(number), body, ttl=1000 - number if number % 2 else None)
        every = [each.id for each in things.find(filter, limit=len(bodies))]
        assert sorted(every) == sorted(each.id for each in things.find(filter))
        found = things.find(filter, skip=skip, limit=limit)
        assert [each.id for each in found] == every[skip : skip + limit]
        first = [things.find_one(filter), things.find_one_and_update(filter, {"$set": {"seen": 1}})]
        assert [each.id for each in first if each] == 2 * every[:1]
        things.update_one(filter, {"$set": {"written": 1}})
        assert [each.id for each in things.find("written", 1)] == every[:1]
        assert things.delete_one(filter).deleted_count == len(every[:1])
        assert [each.id for each in things.find(filter, limit=len(bodies))] == every[1:]
        answers.append(every)
    assert answers[0] == answers[1]
