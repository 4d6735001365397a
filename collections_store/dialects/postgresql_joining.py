"""Which conditions PostgreSQL is asked as one jsonpath, and how that is spelled once for all values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from ..filter import (
    And,
    Condition,
    Equals,
    Field,
    HasElement,
    HasObject,
    Kind,
    OneOf,
    Or,
    Passes,
    Test,
    Value,
    filled,
    values_of,
)
from ..filter.conditions import takes_missing
from .postgresql_filters import can_say, is_composite, parameter

_SCALARS: Final[frozenset[Kind]] = frozenset({"null", "boolean", "number", "string"})


def together(conditions: Sequence[Condition]) -> Sequence[Sequence[int]]:
    """Those that the index over bodies serves, for the planner takes each of several to let through one
    of a hundred objects, and them for less than any other index finds; and the rest.
    """
    served = [is_served(each) for each in conditions]
    groups = [[n for n, each in enumerate(served) if each is wanted] for wanted in (True, False)]
    each_said = ([n for n in group if _can_join(conditions[n])] for group in groups)
    return [group for group in each_said if len(group) > 1]


def _can_join(condition: Condition) -> bool:
    """Tell whether a shape can be a part of a jsonpath: what asks for the whole body is one by itself."""
    whole = isinstance(condition, Field) and not condition.path.keys
    return not whole and can_say(condition) and not is_composite(condition)


def binder(shape: Condition) -> Callable[[Condition], tuple[str]]:
    """Return what makes the parameter of a condition of that shape. Where all values are scalars, the jsonpath
    is spelled once, with marks in their places.
    """
    if not {slot.kind for slot in values_of(shape)} <= _SCALARS:
        return lambda condition: (parameter(condition),)
    numbers = count()
    marked = filled(shape, lambda slot: Value(slot.kind, f"\0{next(numbers)}\0", None))
    pieces = parameter(marked).split("\0")
    places = [(2 * n + 1, int(number)) for n, number in enumerate(pieces[1::2])]

    def bind(condition: Condition) -> tuple[str]:
        texts = [value.text for value in values_of(condition)]
        spelled = pieces.copy()
        for place, number in places:
            spelled[place] = texts[number]
        return ("".join(spelled),)

    return bind


def is_served(condition: Condition) -> bool:
    """Tell whether an index over bodies finds what a shape is true for: it knows the scalars at the ends of
    paths, and nothing of what is missing.
    """
    match condition:
        case Field(path, test):
            return not path.keys or (_asks_scalars(test) and not takes_missing(test))
        case And(conditions):
            return any(map(is_served, conditions))
        case Or(conditions):
            return all(map(is_served, conditions))
    return False


def _asks_scalars(test: Test) -> bool:
    match test:
        case Equals() | OneOf():
            return True
        case HasElement(tests):
            return any(map(_asks_scalars, tests))
        case Passes(tests):
            return all(map(_asks_scalars, tests))
        case HasObject(condition):
            return is_served(condition)
    return False
