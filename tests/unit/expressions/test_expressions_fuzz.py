"""Random expressions are rejected, fail with an error of the library, or return JSON."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import InvalidFilter, InvalidOperand
from collections_store.codec import Codec
from collections_store.document import Anonymous
from collections_store.expressions.evaluation import Scope, key_of, order, sort_key
from collections_store.expressions.nodes import evaluate
from collections_store.expressions.operators import OPERATORS
from collections_store.expressions.parser import ExpressionParser
from collections_store.expressions.values import MISSING, equal

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, -1, 3, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0**53, 1e300, -1e308, 5e-324]),
    st.sampled_from(["", "a", "ab", "é", "1", "2.5", "x y", "$", "("]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abkv"), inner, max_size=3)
    ),
    max_leaves=6,
)
PATHS = st.sampled_from(["$a", "$b", "$a.b", "$b.a", "$$ROOT", "$$REMOVE", "$none", "$a.0"])
BODIES = st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2)
NAMED: dict[str, tuple[str, ...]] = {
    **{name: each.names for name, each in OPERATORS.items() if each.names},
    "$cond": ("if", "then", "else"),
    "$map": ("input", "in"),
    "$filter": ("input", "cond", "limit"),
    "$reduce": ("input", "initialValue", "in"),
    "$convert": ("input", "to", "onError"),
    "$setField": ("field", "input", "value"),
    "$unsetField": ("field", "input"),
    "$getField": ("field", "input"),
    "$sortArray": ("input", "sortBy"),
}
PLAIN = sorted(OPERATORS.keys() - NAMED.keys() - {"$let", "$switch", "$zip", "$meta"})


def calls(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw operators on expressions."""
    plain = st.sampled_from(PLAIN).flatmap(
        lambda name: st.builds(lambda operands: {name: operands}, operands_of(name, inner))
    )
    named = st.sampled_from(sorted(NAMED)).flatmap(
        lambda name: st.fixed_dictionaries(dict.fromkeys(NAMED[name], inner)).map(
            lambda operands: {name: operands}
        )
    )
    zipped = st.lists(inner, min_size=1, max_size=3).map(lambda each: {"$zip": {"inputs": each}})
    return st.one_of(plain, plain, named, zipped, st.lists(inner, max_size=2))


def operands_of(name: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    operator = OPERATORS[name]
    if operator.function is None:
        return st.lists(inner, min_size=1, max_size=3) | inner
    return st.lists(inner, min_size=operator.least, max_size=operator.most or 3)


FORMULAS = st.recursive(SCALARS | PATHS | PATHS | VALUES, calls, max_leaves=8)


@settings(max_examples=500 // sampled(3))
@given(expression=FORMULAS, body=BODIES)
def test_random_expressions(expression: Any, body: Any) -> None:
    try:
        parsed = ExpressionParser(InvalidFilter).parse(expression, "$expr")
    except InvalidFilter:
        return
    assert hash(parsed) == hash(ExpressionParser(InvalidFilter).parse(expression, "$expr"))
    before = Codec().encode(body)
    try:
        found = evaluate(parsed, Scope(Anonymous(body)))
    except InvalidOperand as error:
        assert error.operator in str(error)
    else:
        assert found is MISSING or Codec().encode(found) is not None
    assert Codec().encode(body) == before


@settings(max_examples=300 // sampled(3))
@given(left=VALUES, right=VALUES)
def test_keys_are_equal_if_values_are(left: Any, right: Any) -> None:
    for ordered in (True, False):
        same = equal(left, right, ordered=ordered)
        assert same is (key_of(left, ordered=ordered) == key_of(right, ordered=ordered))
        assert same is (order(left, right, ordered=ordered) == 0)
        assert same <= (hash(key_of(left, ordered=ordered)) == hash(key_of(right, ordered=ordered)))


@settings(max_examples=200 // sampled(3))
@given(values=st.lists(VALUES | st.just(MISSING), min_size=2, max_size=6))
def test_the_order_is_total(values: list[Any]) -> None:
    ranked = sorted(values, key=sort_key(ordered=True))
    for number, each in enumerate(ranked):
        assert all(order(each, later) <= 0 for later in ranked[number:])
        assert all(order(later, each) >= 0 for later in ranked[number:])
