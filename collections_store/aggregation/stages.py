"""The values a pipeline is made of: one for each stage, immutable, parsed from MongoDB's documents.

Some stages are others in disguise: `$set` is `$addFields`, `$unset` a `$project` that leaves out,
`$sortByCount` a `$group` and a `$sort`, `{"$count": {}}` in a `$group` is `{"$sum": 1}`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..query.conditions import MetadataField, values_of
from ..query.filter import Filter
from ..query.sort import Sort
from ..query.values import value_class
from .expressions.nodes import Node

Keys: TypeAlias = tuple[str, ...]
Side: TypeAlias = Keys | MetadataField
"""One of the two fields that `$lookup` compares: of the body, or what the store knows."""
AccumulatorName: TypeAlias = Literal[
    "$sum", "$avg", "$min", "$max", "$first", "$last", "$push", "$addToSet"
]


@value_class(eq=True)
class Named:
    """The field itself: to be kept, or to be left out."""


@value_class(eq=True)
class Tree:
    """What is to become of an object's fields, each by its name."""

    entries: tuple[tuple[str, Entry], ...]


Entry: TypeAlias = Tree | Named | Node


@value_class(eq=True)
class Match:
    """Let through what the filter asks for (`$match`)."""

    filter: Filter

    def computes(self) -> bool:
        """Return whether there is an expression in the filter (`$expr`)."""
        return any(each.kind == "expression" for each in values_of(self.filter.condition))


@value_class(eq=True)
class Project:
    """Keep the named fields and add the computed ones (`$project`)."""

    fields: Tree


@value_class(eq=True)
class LeaveOut:
    """Leave out the named fields (`$project` with zeros, `$unset`)."""

    fields: Tree


@value_class(eq=True)
class AddFields:
    """Add computed fields (`$addFields`, `$set`)."""

    fields: Tree


@value_class(eq=True)
class SortRows:
    """Sort (`$sort`); ties stay as they came."""

    sort: Sort


@value_class(eq=True)
class Skip:
    """Pass over the first (`$skip`)."""

    count: int


@value_class(eq=True)
class Limit:
    """End after so many (`$limit`)."""

    count: int


@value_class(eq=True)
class CountRows:
    """One object that tells how many there were, or none for none (`$count`)."""

    field: str


@value_class(eq=True)
class Accumulator:
    """What becomes of the values of one expression in a group."""

    operator: AccumulatorName
    operand: Node


@value_class(eq=True)
class Group:
    """One object for each value of `key` (`$group`)."""

    key: Node
    fields: tuple[tuple[str, Accumulator], ...]


@value_class(eq=True)
class Unwind:
    """One object for each element of an array (`$unwind`)."""

    path: Keys
    index: Keys | None = None
    preserve: bool = False


@value_class(eq=True)
class ReplaceRoot:
    """Another object in the place of each (`$replaceRoot`, `$replaceWith`)."""

    body: Node


@value_class(eq=True)
class Lookup:
    """Add an array of what is found in another collection (`$lookup`).

    `local` and `foreign` are the fields that must be equal; `steps` run over what is found, with
    `variables`.
    """

    collection: str
    into: Keys
    local: Side | None = None
    foreign: Side | None = None
    variables: tuple[tuple[str, Node], ...] = ()
    steps: tuple[PlacedStage, ...] = ()


Stage: TypeAlias = (
    Match
    | Project
    | LeaveOut
    | AddFields
    | SortRows
    | Skip
    | Limit
    | CountRows
    | Group
    | Unwind
    | ReplaceRoot
    | Lookup
)


@value_class(eq=True)
class PlacedStage:
    """A stage and its place in the pipeline, by which errors name it: `2.$group`."""

    place: str
    stage: Stage
