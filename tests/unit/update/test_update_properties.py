"""Properties of all updates and bodies."""

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import (
    CollectionsStoreError,
    Document,
    Filter,
    InvalidUpdate,
    Update,
    UpdateRefused,
)
from collections_store.query.matcher import matches
from collections_store.update.apply import seed
from collections_store.update.operators import OPERATORS

SCALARS = st.one_of(st.none(), st.booleans(), st.sampled_from([0, 1, -1, 1.5, "a", "b", ""]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)
BODIES = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
PATHS = st.sampled_from(
    ["a", "b", "c", "a.b", "a.0", "a.0.b", "b.1", "a.$", "a.$[]", "b.$[].a", "b.$[e]"]
)
MODIFIERS = [
    "$each",
    "$slice",
    "$sort",
    "$gt",
    "$in",
    "$not",
    "$elemMatch",
    "$or",
    "$regex",
    "$add",
]
NUMBERS = st.sampled_from([0, 1, -3, 2.5, 2**62])
PUSHES = st.fixed_dictionaries(
    {"$each": st.lists(VALUES, max_size=3)},
    optional={
        "$position": st.integers(-3, 3),
        "$slice": st.integers(-3, 3),
        "$sort": st.sampled_from([1, -1, {"a": 1}, {"a.b": -1, "b": 1}]),
    },
)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["$set", "$setOnInsert", "$unset", "$min", "$max", "$addToSet"]), VALUES),
    st.tuples(st.sampled_from(["$inc", "$mul"]), NUMBERS),
    st.tuples(st.just("$push"), VALUES | PUSHES),
    st.tuples(st.just("$pull"), VALUES | st.sampled_from([{"$gt": 0}, {"a": {"$exists": True}}])),
    st.tuples(st.just("$pullAll"), st.lists(VALUES, max_size=2)),
    st.tuples(st.just("$pop"), st.sampled_from([1, -1])),
    st.tuples(st.just("$rename"), st.sampled_from(["x", "y.z", "a.c"])),
    st.tuples(st.just("$bit"), st.sampled_from([{"and": 1}, {"xor": 3}])),
    st.tuples(st.just("$currentDate"), st.just(True)),
)  # fmt: skip


@st.composite
def updates(draw: st.DrawFn) -> tuple[Any, Any]:
    update: dict[str, Any] = {}
    used: set[str] = set()
    for _ in range(draw(st.integers(1, 3))):
        (operator, operand), path = draw(OPERATIONS), draw(PATHS)
        update.setdefault(operator, {})[path] = operand
        used.add(path)
    return update, [{"e": {"$gt": 0}}] if "b.$[e]" in used else None


def read(written: tuple[Any, Any]) -> Update | None:
    try:
        return Update.parse(written[0], array_filters=written[1])
    except CollectionsStoreError:
        return None


def give(update: Update, body: Any, **options: Any) -> Any:
    """Return the new body, or None if the update cannot be applied to it."""
    filter = Filter.parse({"a": {"$exists": True}, "b": {"$ne": 7}, "a.b": {"$gte": 0}})
    try:
        return update.apply(Document("1", body), filter=filter, now=0, **options)
    except CollectionsStoreError:
        return None


@settings(max_examples=200 // sampled(3))
@given(written=updates(), body=BODIES, inserting=st.booleans(), ordered=st.booleans())
def test_nothing_is_changed_in_place(
    written: Any, body: Any, inserting: bool, ordered: bool
) -> None:
    update = read(written)
    if update is None:
        return
    before, spelled = json.dumps(body), str(update)
    found = give(update, body, inserting=inserting, ordered=ordered)
    text = json.dumps(found)
    assert (json.dumps(body), str(update)) == (before, spelled)
    assert json.dumps(give(update, body, inserting=inserting, ordered=ordered)) == text
    assert found is None or (found is body) is (text == before)


@settings(max_examples=150 // sampled(3))
@given(written=updates(), body=BODIES)
def test_printed_updates_parse_to_the_same(written: Any, body: Any) -> None:
    update = read(written)
    if update is None:
        return
    again = Update.parse(update.to_json(), array_filters=written[1])
    assert (again, str(again)) == (update, str(update))
    assert json.dumps(give(again, body)) == json.dumps(give(update, body))


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=1)),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*OPERATORS, *MODIFIERS, "a", "a.$[e]", "", "$", "e"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=400 // sampled(3))
@given(
    what=ANYTHING
    | st.dictionaries(
        st.sampled_from([*OPERATORS]), st.dictionaries(PATHS, ANYTHING, min_size=1, max_size=2)
    ),
    filters=st.none() | st.lists(ANYTHING, max_size=2),
    body=BODIES,
)
def test_errors_name_the_path(what: Any, filters: Any, body: Any) -> None:
    try:
        update = Update.parse(what, array_filters=filters)
    except InvalidUpdate:
        return
    try:
        json.dumps(update.apply(Document("1", body), now=0))
    except UpdateRefused:
        return


IDEMPOTENT = frozenset({"$set", "$unset", "$min", "$max", "$addToSet", "$pull", "$pullAll", "$currentDate"})  # fmt: skip


@settings(max_examples=200 // sampled(3))
@example(written=({"$unset": {"a.0": None}}, None), body={"a": [None]})
@given(written=updates(), body=BODIES)
def test_idempotent_operators(written: Any, body: Any) -> None:
    update = read(({k: v for k, v in written[0].items() if k in IDEMPOTENT}, written[1]))
    if update is None or any("$" in path for each in written[0].values() for path in each):
        return  # a changed element may not match the filter
    once = give(update, body)
    if once is not None:
        assert give(update, once) is once


@settings(max_examples=150 // sampled(3))
@given(conditions=st.dictionaries(st.sampled_from(["a", "b.a", "b.b", "c"]), VALUES, max_size=3))
def test_a_seed_is_found_by_its_filter(conditions: Any) -> None:
    filter = Filter.parse({path: {"$eq": value} for path, value in conditions.items()})
    assert matches(filter, Document("1", seed(filter)))


def reference(body: dict[str, Any], path: str, operator: str, operand: Any) -> Any:
    """Apply an operator to a top-level field, implemented plainly; None if it cannot be applied."""
    new = dict(body)
    match operator, body.get(path):
        case "$set", _:
            new[path] = operand
        case "$unset", _:
            new.pop(path, None)
        case "$inc", None if path not in body:
            new[path] = operand
        case "$inc", int() | float() as old if not isinstance(old, bool):
            new[path] = old + operand
        case "$push", None if path not in body:
            new[path] = [operand]
        case "$push", list() as old:
            new[path] = [*old, operand]
        case "$pop", None if path not in body:
            pass
        case "$pop", list() as old:
            new[path] = old[:-1]
        case _:
            return None
    return new


@settings(max_examples=200 // sampled(3))
@given(
    body=BODIES,
    path=st.sampled_from("abc"),
    change=st.one_of(
        st.tuples(st.sampled_from(["$set", "$unset"]), VALUES),
        st.tuples(st.just("$inc"), st.sampled_from([1, 2.5])),
        st.tuples(st.just("$push"), SCALARS),
        st.tuples(st.just("$pop"), st.just(1)),
    ),
)
def test_operators_match_a_simple_model(body: Any, path: str, change: Any) -> None:
    operator, operand = change
    found = give(Update.parse({operator: {path: operand}}), body)
    assert json.dumps(found) == json.dumps(reference(body, path, operator, operand))
