"""The values a formula is made of: MongoDB's aggregation expressions, parsed.

All are frozen, compare and hash. What an operator needs no more for than the values of its operands
is a `OperatorCall`; those that decide what is evaluated at all, or name variables, are values of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from ... import codec
from ...query.values import value_class

MetadataField: TypeAlias = Literal["id", "version", "created_at", "updated_at", "expires_at"]
METADATA: Final[tuple[MetadataField, ...]] = get_args(MetadataField)


@value_class(eq=True)
class Constant:
    """A JSON value; `text` makes it comparable and keeps 1, 1.0 and true apart."""

    text: str
    value: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, value: Any) -> Constant:
        """Take a JSON value as `codec` decodes it."""
        return cls(codec.spell(value), value)


@value_class(eq=True)
class Reference:
    """What `keys` lead to in a variable: `$a.b` is in `CURRENT`, `$$each.b` in `each`."""

    variable: str
    keys: tuple[str, ...] = ()


@value_class(eq=True)
class Absent:
    """Nothing: `$$REMOVE`, or an optional operand that was not given."""

    given: bool = False


@value_class(eq=True)
class Meta:
    """What the store knows of the object (`$meta`)."""

    field: MetadataField


@value_class(eq=True)
class ArrayOf:
    """An array; an element that is missing becomes null."""

    elements: tuple[Formula, ...]


@value_class(eq=True)
class ObjectOf:
    """An object; a field that is missing is left out."""

    fields: tuple[tuple[str, Formula], ...]


@value_class(eq=True)
class OperatorCall:
    """An operator on the values of its operands."""

    operator: str
    operands: tuple[Formula, ...]


@value_class(eq=True)
class Logic:
    """`$and` or `$or`: evaluated up to the operand that decides."""

    operator: Literal["$and", "$or"]
    operands: tuple[Formula, ...]


@value_class(eq=True)
class Choice:
    """The value behind the first case that is true (`$cond`, `$switch`); None: there must be one."""

    branches: tuple[tuple[Formula, Formula], ...]
    otherwise: Formula | None


@value_class(eq=True)
class FirstThere:
    """The first operand that is neither null nor missing, else the last one (`$ifNull`)."""

    operands: tuple[Formula, ...]


@value_class(eq=True)
class Let:
    """`inside`, with variables (`$let`)."""

    variables: tuple[tuple[str, Formula], ...]
    inside: Formula


@value_class(eq=True)
class Map:
    """`inside` for each element (`$map`)."""

    input: Formula
    variable: str
    inside: Formula


@value_class(eq=True)
class Select:
    """The elements for which a condition is true, up to `limit` of them (`$filter`)."""

    input: Formula
    variable: str
    condition: Formula
    limit: Formula


@value_class(eq=True)
class Fold:
    """`inside` for each element, `$$value` being what it gave for those before (`$reduce`)."""

    input: Formula
    initial: Formula
    inside: Formula


@value_class(eq=True)
class Convert:
    """The input in another type (`$convert`, `$toInt` …)."""

    operator: str
    input: Formula
    to: Formula
    on_error: Formula | None = None
    on_null: Formula | None = None


Formula: TypeAlias = (
    Constant
    | Reference
    | Absent
    | Meta
    | ArrayOf
    | ObjectOf
    | OperatorCall
    | Logic
    | Choice
    | FirstThere
    | Let
    | Map
    | Select
    | Fold
    | Convert
)


def nodes_of(formula: Any) -> Iterator[Any]:
    """Yield the values that a formula is made of, itself first."""
    if isinstance(formula, tuple):
        for each in formula:
            yield from nodes_of(each)
    elif is_dataclass(formula):
        yield formula
        for each in fields(formula):
            yield from nodes_of(getattr(formula, each.name))
