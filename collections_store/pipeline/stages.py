"""The values a pipeline is made of: one for each stage, frozen, parsed from MongoDB's documents.

Some stages are others in disguise: `$set` is `$addFields`, `$unset` a `$project` that leaves out,
`$sortByCount` a `$group` and a `$sort`, `{"$count": {}}` in a `$group` is `{"$sum": 1}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..filter import Filter, MetadataField, values_of
from ..formula import Formula
from ..ordering import Sort

Keys: TypeAlias = tuple[str, ...]
Side: TypeAlias = Keys | MetadataField
"""One of the two fields that `$lookup` compares: of the body, or what the store knows."""
AccumulatorName: TypeAlias = Literal[
    "$sum", "$avg", "$min", "$max", "$first", "$last", "$push", "$addToSet"
]


@dataclass(frozen=True, slots=True)
class Named:
    """The field itself: to be kept, or to be left out."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What is to become of an object's fields, each by its name."""

    entries: tuple[tuple[str, Entry], ...]


Entry: TypeAlias = Tree | Named | Formula


@dataclass(frozen=True, slots=True)
class Match:
    """Let through what the filter asks for (`$match`)."""

    filter: Filter

    def computes(self) -> bool:
        """Tell whether there is a formula in the filter (`$expr`)."""
        return any(each.kind == "expression" for each in values_of(self.filter.condition))


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the named fields and add the computed ones (`$project`)."""

    fields: Tree


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Leave out the named fields (`$project` with zeros, `$unset`)."""

    fields: Tree


@dataclass(frozen=True, slots=True)
class AddFields:
    """Add computed fields (`$addFields`, `$set`)."""

    fields: Tree


@dataclass(frozen=True, slots=True)
class SortRows:
    """Sort (`$sort`); ties stay as they came."""

    sort: Sort


@dataclass(frozen=True, slots=True)
class Skip:
    """Pass over the first (`$skip`)."""

    count: int


@dataclass(frozen=True, slots=True)
class Limit:
    """End after so many (`$limit`)."""

    count: int


@dataclass(frozen=True, slots=True)
class Count:
    """One object that tells how many there were, or none for none (`$count`)."""

    field: str


@dataclass(frozen=True, slots=True)
class Accumulator:
    """What becomes of the values of one formula in a group."""

    operator: AccumulatorName
    operand: Formula


@dataclass(frozen=True, slots=True)
class Group:
    """One object for each value of `key` (`$group`)."""

    key: Formula
    fields: tuple[tuple[str, Accumulator], ...]


@dataclass(frozen=True, slots=True)
class Unwind:
    """One object for each element of an array (`$unwind`)."""

    path: Keys
    index: Keys | None = None
    preserve: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceRoot:
    """Another object in the place of each (`$replaceRoot`, `$replaceWith`)."""

    body: Formula


@dataclass(frozen=True, slots=True)
class Lookup:
    """Add an array of what is found in another collection (`$lookup`).

    `local` and `foreign` are the fields that must be equal; `steps` run over what is found, with
    `variables`.
    """

    collection: str
    into: Keys
    local: Side | None = None
    foreign: Side | None = None
    variables: tuple[tuple[str, Formula], ...] = ()
    steps: tuple[Step, ...] = ()


Stage: TypeAlias = (
    Match
    | Keep
    | LeaveOut
    | AddFields
    | SortRows
    | Skip
    | Limit
    | Count
    | Group
    | Unwind
    | ReplaceRoot
    | Lookup
)


@dataclass(frozen=True, slots=True)
class Step:
    """A stage and its place in the pipeline, by which errors name it: `2.$group`."""

    place: str
    stage: Stage
