"""SQL finds the same documents as the matcher, for random bodies and filters.

Keys and values come from a small alphabet, so that filters hit; paths run through arrays, numbers
and keys that need escaping.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import Document, Filter, InvalidOperand, Path, Store
from collections_store.query.conditions import MAX_INLINE_VALUES
from collections_store.query.matcher import matches

T = TypeVar("T")
KEYS = st.sampled_from(["a", "b", "0", "1", "01", 'q"', "b\\", "d.t", "é", ""])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    st.sampled_from([0.0, 1.0, 0.5, -1.0, 1e16, 2.0**53, 1e300, 5e-324, 1.2345678901234567e18]),
    st.sampled_from(["", "a", "1", "true", "null", "[1]", '"', "\\", "é", "%s", "'"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
BODIES = st.one_of(OBJECTS, OBJECTS, OBJECTS, VALUES)
PATHS = st.lists(KEYS, min_size=1, max_size=4).map(lambda keys: Path(*keys))


def paths_and_values(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the paths and values of a body at every depth, through arrays with and without the index."""
    yield Path(*keys), value
    if isinstance(value, dict):
        for key, child in value.items():
            yield from paths_and_values(child, (*keys, key))
    elif isinstance(value, list):
        for number, child in enumerate(value):
            yield from paths_and_values(child, (*keys, str(number)))
            yield from paths_and_values(child, keys)


REGEXES = st.sampled_from(["a", "^a", "1$", "[a1]", "^true", "(?s).", "\\\\", "é"])
OPTIONS = st.sampled_from(["", "i", "s", "im"])


def lengthened(values: list[Any]) -> list[Any]:
    """Return a list with more values that no body has."""
    return [*range(1000, 1000 + MAX_INLINE_VALUES), *values, "no body has this"]


def operators_of(
    value: st.SearchStrategy[Any], deep: bool = True
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw operators on one field."""
    small = st.integers(min_value=-3, max_value=3)
    listed = st.lists(value.filter(is_literal), max_size=3)
    operators: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"], value),
        "$all": listed,
        **dict.fromkeys(["$in", "$nin"], st.one_of(listed, listed.map(lengthened))),
        "$exists": st.booleans(),
        "$type": st.sampled_from(
            ["string", "number", "int", "long", "double", "array", "object", "bool", "null"]
        ),
        "$size": st.integers(min_value=0, max_value=3),
        "$mod": st.tuples(st.sampled_from([-3, -2, 2, 3, 5]), small).map(list),
        **dict.fromkeys(
            ["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"],
            st.sampled_from([0, 1, 2, 3, 2**62, [0, 1], [62]]),
        ),
        "$regex": REGEXES,
    }
    if deep:
        inner = operators_of(value, deep=False)
        operators["$not"] = inner
        operators["$elemMatch"] = st.one_of(inner, documents_of(value, deep=False))
    single = st.sampled_from(sorted(operators)).flatmap(
        lambda name: st.builds(lambda operand: {name: operand}, operators[name])
    )
    return st.lists(single, min_size=1, max_size=2).map(merged)


def documents_of(
    value: st.SearchStrategy[Any], deep: bool = True
) -> st.SearchStrategy[dict[str, Any]]:
    """Draw filter documents."""
    dotted = st.lists(KEYS.filter(lambda key: "." not in key), min_size=1, max_size=3).map(".".join)
    entry = st.builds(
        lambda key, operand: {key: operand},
        dotted.filter(lambda path: not path.startswith("$")),
        st.one_of(value.filter(is_literal), operators_of(value, deep), operators_of(value, deep)),
    )
    entries = st.lists(entry, min_size=1, max_size=2).map(merged)
    if not deep:
        return entries
    inner = st.one_of(documents_of(value, deep=False), formulas_of(value))
    branches = st.lists(inner, min_size=1, max_size=3)
    logical = st.builds(
        lambda key, inner: {key: inner}, st.sampled_from(["$and", "$or", "$nor"]), branches
    )
    both = st.tuples(entries, st.one_of(logical, formulas_of(value))).map(merged)
    return st.one_of(entries, logical, both)


def formulas_of(value: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw `$expr`, also such as many documents cannot be an operand of."""
    path = st.lists(st.sampled_from(["a", "b", "0"]), min_size=1, max_size=2).map(".".join)
    comparisons = st.builds(
        lambda name, path, operand: {"$expr": {name: [f"${path}", {"$literal": operand}]}},
        st.sampled_from(["$eq", "$ne", "$gt", "$lte"]),
        path,
        value,
    )
    erring = st.builds(
        lambda name, path: {"$expr": {name: f"${path}"}}, st.sampled_from(["$size", "$abs"]), path
    )
    return st.one_of(comparisons, comparisons, erring)


def is_literal(value: Any) -> bool:
    return not (isinstance(value, dict) and str(next(iter(value), "")).startswith("$"))


def merged(documents: Any) -> dict[str, Any]:
    return {key: value for document in documents for key, value in document.items()}


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Any], list[Filter]]:
    bodies = draw(st.lists(BODIES, min_size=5, max_size=12))
    there = [
        backend
        for body in bodies
        for backend in paths_and_values(body)
        if len(backend[0].keys) <= 8
    ]
    operands = st.one_of(SCALARS, VALUES, st.sampled_from([value for _, value in there]))
    pair = st.one_of(st.tuples(PATHS, operands), st.sampled_from(there), st.sampled_from(there))
    pairs = draw(st.lists(pair, min_size=2, max_size=5))
    filters = [Filter.parse(path if path.keys else "$body", value) for path, value in pairs]
    documents = draw(st.lists(documents_of(operands), min_size=4, max_size=8))
    filters.extend(Filter.parse(document) for document in documents)
    filters.append(Filter.parse({"$body": draw(operators_of(operands))}))
    return bodies, filters


def disagreements(
    store: Store, bodies: list[Any], filters: list[Filter], ordered: bool
) -> list[str]:
    things = store["things"]
    things.remove_many([document.id for document in things.list()])
    things.put_many((str(number), body) for number, body in enumerate(bodies))
    stored = things.list()
    assert [document.body for document in stored] == bodies
    documents = [Document(each.id, each.body) for each in stored]
    return [wrong for each in filters if (wrong := disagreement(things, documents, each, ordered))]


def disagreement(things: Any, documents: list[Document], filter: Filter, ordered: bool) -> str:
    expected = outcome(lambda: [d.id for d in documents if matches(filter, d, ordered=ordered)])
    found = outcome(lambda: [document.id for document in things.find(filter)])
    counted = outcome(lambda: things.count(filter))
    same = len(expected) if isinstance(expected, list) else expected
    if (found, counted) == (expected, same):
        return ""
    return f"{filter!r}: SQL {found}, matcher {expected}, bodies {documents}"


def outcome(function: Callable[[], T]) -> T | str:
    """Return what a function returns, or the error of an `$expr`."""
    try:
        return function()
    except InvalidOperand as error:
        return str(error)


@settings(max_examples=100 // sampled(3))
@given(batch=batches())
def test_on_sqlite(sqlite_store: Store, batch: tuple[list[Any], list[Filter]]) -> None:
    assert not disagreements(sqlite_store, *batch, ordered=True)


@settings(max_examples=60 // sampled(3))
@given(batch=batches())
def test_on_postgresql(postgres_store: Store, batch: tuple[list[Any], list[Filter]]) -> None:
    assert not disagreements(postgres_store, *batch, ordered=False)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("part")
@settings(max_examples=1000)
@given(batch=batches())
def test_on_both_for_longer(
    sqlite_store: Store, postgres_store: Store, batch: tuple[list[Any], list[Filter]]
) -> None:
    assert not disagreements(sqlite_store, *batch, ordered=True)
    assert not disagreements(postgres_store, *batch, ordered=False)


@pytest.fixture(scope="module")
def sqlite_store() -> Iterator[Store]:
    with Store("sqlite://") as store:
        yield store


@pytest.fixture
def postgres_store(postgres_backend: Any) -> Iterator[Store]:
    with Store(postgres_backend.url, durability="normal", **postgres_backend.options) as store:
        yield store
