"""What is asked of a collection: MongoDB's filter language, parsed into frozen values.

A filter has a *shape* and *values*: the shape decides the SQL, and is what compiled statements are
cached under; the values travel as parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..codec import Codec
from ..errors import InvalidFilter, shortened
from ..path import Path
from .conditions import (
    And,
    Bits,
    Compare,
    Condition,
    Equals,
    Exists,
    Expression,
    Fails,
    Field,
    FitsSchema,
    Given,
    HasElement,
    HasObject,
    HasSize,
    HasType,
    Kind,
    Matches,
    Metadata,
    MetadataField,
    Modulo,
    Not,
    OneOf,
    Or,
    Passes,
    Slot,
    Test,
    Value,
    prefix_range,
)
from .nesting import check_nesting
from .parsing import Parser
from .printing import to_json
from .shapes import filled, in_words, shape_of, spelled_out, values_of
from .targets import Target, read_target

EVERYTHING = And(())


@dataclass(frozen=True, slots=True)
class Filter:
    """What is asked. Without a condition: every object.

    >>> Filter.parse({"address.city": "Berlin"}) == Filter.parse("address.city", "Berlin")
    True
    >>> print(Filter.parse({"tags": "new", "age": {"$gte": 30, "$lt": 40}}))
    {'tags': 'new', 'age': {'$gte': 30, '$lt': 40}}
    """

    condition: Condition = EVERYTHING
    _shape: Condition | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def shape(self) -> Condition:
        """The condition with slots in the place of its values."""
        if self._shape is None:
            object.__setattr__(self, "_shape", shape_of(self.condition))
        assert self._shape is not None
        return self._shape

    def __post_init__(self) -> None:
        if not isinstance(self.condition, Condition):
            raise InvalidFilter("", "Filter.parse reads what is asked")

    @classmethod
    def parse(cls, what: Any = None, equals: Any = ..., rules: Codec = Codec()) -> Filter:  # noqa: B008
        """Read the ways a caller may ask; raises `InvalidFilter` naming the place.

        `what` is None (everything), a filter document, a `Filter`, or a field (dotted text or
        `Path`) that `equals` a value.
        """
        if isinstance(what, str | Path):
            if equals is ...:
                raise InvalidFilter(str(what), "what shall the field equal? find(field, value)")
            return cls(Parser(rules).field(what, equals, str(what)))
        if equals is not ...:
            raise InvalidFilter(
                "",
                f"a value to equal goes with a field, not {shortened(what)}; the parts of bodies that "
                "are wanted are given as projection=",
            )
        match what:
            case None:
                return cls()
            case Filter():
                return what
            case Mapping():
                check_nesting(what)
                return cls(Parser(rules).document(what))
        raise InvalidFilter("", f"a filter is a document or a field, not {shortened(what)}")

    def __and__(self, other: Filter) -> Filter:
        return Filter(And((*conjuncts(self.condition), *conjuncts(other.condition))))

    def __or__(self, other: Filter) -> Filter:
        return Filter(Or((*disjuncts(self.condition), *disjuncts(other.condition))))

    def __invert__(self) -> Filter:
        inner = self.condition
        return Filter(inner.condition if isinstance(inner, Not) else Not(inner))

    def to_json(self) -> dict[Any, Any]:
        """Return the filter document. A key of it that holds a dot or begins with `$` stands in a `Path`;
        all other fields are text.
        """
        return to_json(self.condition)

    def __str__(self) -> str:
        return str(self.to_json())


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions that must all hold."""
    return condition.conditions if isinstance(condition, And) else (condition,)


def disjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions of which one must hold."""
    if isinstance(condition, Or) and not condition.single:
        return condition.conditions
    return (condition,)


__all__ = [
    "EVERYTHING",
    "And",
    "Bits",
    "Compare",
    "Condition",
    "Equals",
    "Exists",
    "Expression",
    "Fails",
    "Field",
    "Filter",
    "FitsSchema",
    "Given",
    "HasElement",
    "HasObject",
    "HasSize",
    "HasType",
    "Kind",
    "Matches",
    "Metadata",
    "MetadataField",
    "Modulo",
    "Not",
    "OneOf",
    "Or",
    "Passes",
    "Slot",
    "Target",
    "Test",
    "Value",
    "conjuncts",
    "filled",
    "in_words",
    "prefix_range",
    "read_target",
    "shape_of",
    "spelled_out",
    "values_of",
]
