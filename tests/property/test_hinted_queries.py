"""Methods with a hint find the same as the matcher, for random bodies, filters, indexes and collations."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_sql_is_the_matcher import documents_of
from property.test_sql_is_the_matcher import postgres_store as postgres_store
from property.test_sql_is_the_matcher import sqlite_store as sqlite_store
from selection import sampled

from collections_store import (
    BulkWriteError,
    CollectionsStoreError,
    Document,
    Filter,
    IndexExists,
    InvalidIndex,
    InvalidOperand,
    Store,
)
from collections_store.expressions.collation import Collation
from collections_store.query.matcher import matches
from collections_store.query.sort import Sort

CASE = {"locale": "simple", "strength": 2}
LETTERS = {"locale": "simple", "strength": 1}
WORDS = st.sampled_from(["a", "A", "b", "B", "ä", "Ä", "", "aB", "Ab", "1"])
SCALARS = st.one_of(WORDS, st.none(), st.booleans(), st.integers(-1, 2), st.just(0.5))
VALUES = st.one_of(
    SCALARS,
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.sampled_from(["a", "b"]), SCALARS, max_size=2),
)
BODIES = st.lists(st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2), max_size=14)
KEYS = st.sampled_from([["a"], ["b"], ["a", "b"], [("b", -1), ("a", 1)], ["a.b"]])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "where": st.sampled_from([{"a": 1}, {"b": {"$gte": 0}}, {"a": {"$exists": True}}]),
        "collation": st.sampled_from([CASE, LETTERS]),
    },
) | st.sampled_from([{"arrays": True}, {"sparse": True}, {"hidden": True}])
FILTERS = st.one_of(
    documents_of(VALUES),
    st.dictionaries(st.sampled_from(["a", "b", "a.b"]), SCALARS, max_size=2),
    st.builds(
        lambda path, operator, value: {path: {operator: value}},
        st.sampled_from(["a", "b", "a.b"]),
        st.sampled_from(["$gte", "$lt", "$ne"]),
        SCALARS,
    ),
)
SEEN = {"$set": {"seen": True}}
COUNT = {"$group": {"_id": "$a", "n": {"$sum": 1}}}
METHODS: dict[str, Callable[..., Any]] = {
    "find": lambda c, what, _, **how: ids(c.find(what, **how)),
    "stream": lambda c, what, _, **how: ids(c.stream(what, **how)),
    "aggregate": lambda c, what, _, **how: len(c.aggregate(match(what), **how)),
    "distinct": lambda c, what, _, **how: sorted(c.distinct("$id", what, **how)),
    "sorted": lambda c, what, order, **how: listed(c.find(what, sort=order, **how)),
    "pages": lambda c, what, order, **how: pages(c, what, sort=order, limit=2, **how),
    "streamed": lambda c, what, order, **how: listed(c.stream(what, sort=order, **how)),
    "count": lambda c, what, _, **how: c.count(what, **how),
    "update": lambda c, what, _, **how: c.update_many(what, SEEN, **how).matched_count,
    "delete": lambda c, what, _, **how: c.delete_many(what, **how).deleted_count,
    "window": lambda c, what, order, **how: listed(
        c.find(what, sort=order, skip=1, limit=2, **how)
    ),
    "group": lambda c, what, _, **how: total(c.aggregate([*match(what), COUNT], **how)),
}


def match(what: Any) -> list[Any]:
    return [{"$match": what}]


def ids(found: Any) -> list[str]:
    return sorted(listed(found))


def listed(found: Any) -> list[str]:
    return [each.id for each in found]


def total(groups: Any) -> int:
    return sum(each["n"] for each in groups)


def pages(things: Any, what: Any, **options: Any) -> list[str]:
    found, cursor = [], None
    while True:
        page = things.page(what, after=cursor, **options)
        found += [each.id for each in page]
        cursor = page.cursor
        if cursor is None:
            return found


def outcome(read: Callable[[], Any]) -> Any:
    """Return an answer, or the error of a method that should have none."""
    try:
        return read()
    except CollectionsStoreError as error:
        return repr(error)


class Undone(Exception):
    """Ends a transaction without its changes."""


def undone(store: Store, name: str, method: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """Return what a method does in a transaction, which is rolled back."""
    answer: Any = None
    with suppress(Undone), store.transaction() as inside:
        answer = method(inside[name], *args, **how)
        raise Undone
    return answer


def right(documents: list[Document], what: Any, order: Any, given: Any, ordered: bool) -> Any:
    """Return the answers by the matcher."""
    collation = Collation.parse(given)
    filter, sort = Filter.parse(what).collated(collation), Sort.parse(order).collated(collation)
    found = [each for each in documents if matches(filter, each, ordered=ordered)]
    in_order = [e.id for e in sorted(found, key=lambda each: sort.key(each, ordered=ordered))]
    every = dict.fromkeys(["find", "stream", "distinct"], ids(found))
    every |= dict.fromkeys(["sorted", "pages", "streamed"], in_order)
    sizes = dict.fromkeys(["aggregate", "count", "update", "delete"], len(found))
    return {**every, **sizes, "window": in_order[1:3], "group": len(found)}


def indexes_of(things: Any) -> list[Any]:
    return list(things.indexes())


def disagreements(store: Store, question: Any, ordered: bool) -> Iterator[str]:
    bodies, indexes, filters, order, given, changes = question
    name = "recorded" if changes else "plain"
    things = store.collection(name, changes=changes)
    things.delete_many({})
    for index in things.indexes():
        things.drop_index(index.name)
    for number, (keys, options) in enumerate(indexes):
        with suppress(IndexExists, InvalidIndex):
            things.create_index(keys, name=f"i{number}", **options)
    with suppress(BulkWriteError):  # of an index of two arrays
        things.put_many((f"{number:02}", body) for number, body in enumerate(bodies))
    documents = list(things.list())
    usable = [e for e in indexes_of(things) if not e.hidden and not e.sparse]
    conditions = [
        (each.name, {} if each.where is None else each.where.to_json()) for each in usable
    ]
    for what in filters:
        for hint, where in [("_id_", {}), ({"$natural": 1}, {}), *conditions]:
            wanted = {"$and": [what, where]} if where else what
            with suppress(InvalidOperand):
                answers = right(documents, wanted, order, given, ordered)
                for each, correct in answers.items():
                    how = {"hint": hint, "collation": given}
                    ask = partial(undone, store, name, METHODS[each], wanted, order, **how)
                    answer = outcome(ask)
                    if answer != correct:
                        yield f"{each} of {wanted} by {hint}, {question}: {answer}, not {correct}"


QUESTIONS = st.tuples(
    BODIES,
    st.lists(st.tuples(KEYS, OPTIONS), min_size=1, max_size=3),
    st.lists(FILTERS, min_size=1, max_size=2),
    st.sampled_from([["a"], ["-a"], ["b", "a"], [("b", -1), ("a", 1)], ["a.b"], ["$id"]]),
    st.sampled_from([None, CASE, LETTERS]),
    st.booleans(),
)


@settings(max_examples=90 // sampled(3))
@given(question=QUESTIONS)
def test_on_sqlite(sqlite_store: Store, question: Any) -> None:
    assert not list(disagreements(sqlite_store, question, ordered=True))


@settings(max_examples=40 // sampled(3))
@given(question=QUESTIONS)
def test_on_postgresql(postgres_store: Store, question: Any) -> None:
    assert not list(disagreements(postgres_store, question, ordered=False))
