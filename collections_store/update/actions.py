"""The values that an update is made of: what is to change where, frozen."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from .. import codec
from ..query.conditions import Condition, Value
from ..query.values import value_class

BitOperator: TypeAlias = Literal["and", "or", "xor"]


# -- where -------------------------------------------------------------------------------------


@value_class(eq=True)
class Matched:
    """`$`: the element that met the filter."""

    def __str__(self) -> str:
        return "$"


@value_class(eq=True)
class Elements:
    """`$[name]`: the elements that the array filter of that name lets through; `$[]`: all."""

    name: str = ""

    def __str__(self) -> str:
        return f"$[{self.name}]"


Piece: TypeAlias = str | Matched | Elements
Way: TypeAlias = tuple[Piece, ...]
"""From the top of a body down to what changes."""
MATCHED: Final = Matched()


@value_class(eq=True)
class ArrayFilter:
    """Which elements `$[name]` means; the condition has the element as its field `name`."""

    name: str
    condition: Condition


# -- what --------------------------------------------------------------------------------------


@value_class(eq=True)
class Assign:
    """Put a value there (`$set`, `$setOnInsert`)."""

    value: Value


@value_class(eq=True)
class Remove:
    """Take the field away (`$unset`); an element of an array becomes null."""


@value_class(eq=True)
class Add:
    """Add a number (`$inc`)."""

    number: Value


@value_class(eq=True)
class Multiply:
    """Multiply by a number (`$mul`)."""

    number: Value


@value_class(eq=True)
class AtMost:
    """Put the value there if it comes before what is there (`$min`)."""

    value: Value


@value_class(eq=True)
class AtLeast:
    """Put the value there if it comes after what is there (`$max`)."""

    value: Value


@value_class(eq=True)
class Arrive:
    """Put there what is at `source` (`$rename`, where it leads to)."""

    source: tuple[str, ...]


@value_class(eq=True)
class Leave:
    """Take away what arrives elsewhere (`$rename`, where it comes from)."""


@value_class(eq=True)
class PutTime:
    """Put the present time there (`$currentDate`)."""

    kind: Literal["date", "timestamp"]


@value_class(eq=True)
class SortElements:
    """In which order `$push` leaves the array: of the elements, or of fields of theirs."""

    fields: tuple[tuple[tuple[str, ...], bool], ...]
    """Keys, and whether it is descending; no keys lead to the element itself."""


@value_class(eq=True)
class Push:
    """Add elements to an array (`$push`), sort it, cut it."""

    values: tuple[Value, ...]
    position: int | None = None
    sort: SortElements | None = None
    slice: int | None = None


@value_class(eq=True)
class AddToSet:
    """Add those elements to an array that it has not (`$addToSet`)."""

    values: tuple[Value, ...]


@value_class(eq=True)
class Pop:
    """Take away the first element of an array, or the last (`$pop`)."""

    first: bool


@value_class(eq=True)
class Pull:
    """Take away the elements for which a condition holds (`$pull`).

    The condition is on the object that an element is, or, if `wrapped`, on its field "".
    """

    condition: Condition
    wrapped: bool


@value_class(eq=True)
class PullAll:
    """Take away the elements that equal one of the values (`$pullAll`, `$pull`)."""

    values: tuple[Value, ...]


@value_class(eq=True)
class Bitwise:
    """Combine a whole number's bits with others (`$bit`), one after the other."""

    steps: tuple[tuple[BitOperator, int], ...]


Action: TypeAlias = (
    Assign
    | Remove
    | Add
    | Multiply
    | AtMost
    | AtLeast
    | Arrive
    | Leave
    | PutTime
    | Push
    | AddToSet
    | Pop
    | Pull
    | PullAll
    | Bitwise
)


@value_class(eq=True)
class FieldChange:
    """An action, the way to where it takes place, and the operator that asks for it."""

    operator: str
    way: Way
    action: Action

    @property
    def place(self) -> str:
        """The operator and the path, as errors name them."""
        return f"{self.operator}.{dotted(self.way)}"

    @property
    def weight(self) -> int:
        """How many characters of JSON it puts into a body, about."""
        match self.action:
            case Assign(value) | AtMost(value) | AtLeast(value):
                return len(value.text)
            case Push(values) | AddToSet(values):
                return sum(len(value.text) + 1 for value in values)
        return 0

    def is_for(self, inserting: bool) -> bool:
        """Return whether it takes place: `$setOnInsert` does only where an upsert inserts."""
        return inserting or self.operator != "$setOnInsert"


def dotted(way: Way) -> str:
    """Return a way as a path is written."""
    return ".".join(map(str, way))


def fresh(value: Value) -> Any:
    """Return what was asked for, so that who changes it does not change the update."""
    return codec.decode(value.text) if value.kind in {"array", "object"} else value.value
