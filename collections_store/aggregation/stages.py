"""The classes of a pipeline: one for each stage, immutable, parsed from MongoDB's documents.

Different names may be parsed as one class: `$set` is `$addFields`, `$unset` a `$project` that excludes fields, `$sortByCount` a
`$group` and a `$sort`, `{"$count": {}}` in a `$group` is `{"$sum": 1}`.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from ..document import MetadataField
from ..expressions.classes import value_class
from ..expressions.fields import Keys, Tree
from ..expressions.nodes import Node
from ..query.filter import Filter
from ..query.shapes import values_of
from ..query.sort import Sort

Side: TypeAlias = Keys | MetadataField
"""One of the two fields that `$lookup` compares: of the body, or metadata."""


@value_class(eq=True)
class Match:
    """Select the matching rows (`$match`)."""

    filter: Filter

    def computes(self) -> bool:
        """Return whether the filter has an expression (`$expr`)."""
        return any(each.kind == "expression" for each in values_of(self.filter.condition))


@value_class(eq=True)
class Project:
    """Include named fields and add computed fields (`$project`)."""

    fields: Tree


@value_class(eq=True)
class ExcludeFields:
    """Exclude the named fields (`$project` with zeros, `$unset`)."""

    fields: Tree


@value_class(eq=True)
class AddFields:
    """Add computed fields (`$addFields`, `$set`)."""

    fields: Tree


@value_class(eq=True)
class SortRows:
    """Sort; ties keep their order (`$sort`)."""

    sort: Sort


@value_class(eq=True)
class Skip:
    """Leave out the first rows (`$skip`)."""

    count: int


@value_class(eq=True)
class Limit:
    """End after `count` rows (`$limit`)."""

    count: int


@value_class(eq=True)
class CountRows:
    """A document with the number of rows, or nothing without rows (`$count`)."""

    field: str


@value_class(eq=True)
class Accumulator:
    """A field of a group: an accumulator over the values of an expression.

    `count` is the accumulator's `n`, an expression of the group's key; `sort` is `sortBy`, `points`
    is `p`.
    """

    operator: str
    operand: Node
    count: Node | None = None
    sort: Sort | None = None
    points: tuple[float, ...] = ()


@value_class(eq=True)
class Group:
    """A document for each value of `key` (`$group`)."""

    key: Node
    fields: tuple[tuple[str, Accumulator], ...]


@value_class(eq=True)
class BucketAuto:
    """A document for each of `count` ranges of `key` with about as many rows (`$bucketAuto`). The limits are numbers of the
    series `granularity`, or else values of `key`.
    """

    key: Node
    count: int
    fields: tuple[tuple[str, Accumulator], ...]
    granularity: str | None = None


@value_class(eq=True)
class Window:
    """The rows around a row, read by a function: from `lower` to `upper`, None without an end. The bounds count rows, or in
    a range the values of the sorted field, for times in a `unit`.
    """

    lower: float | None = None
    upper: float | None = None
    is_range: bool = False
    unit: str | None = None


@value_class(eq=True)
class WindowFunction:
    """A function that no group has, such as `$rank`; `number`: the rows of `$shift`, the weight of `$expMovingAvg`."""

    operator: str
    operands: tuple[Node, ...] = ()
    number: float = 0
    unit: str | None = None


@value_class(eq=True)
class WindowField:
    """A field of `$setWindowFields`."""

    into: Keys
    function: Accumulator | WindowFunction
    window: Window


@value_class(eq=True)
class SetWindowFields:
    """Add fields that are computed from rows around each row (`$setWindowFields`, `$fill`)."""

    partition: Node
    sort: Sort
    fields: tuple[WindowField, ...]


@value_class(eq=True)
class Densify:
    """Add rows where the values of a field have gaps (`$densify`).

    `bounds`: the first value and the first value beyond, or the values of each partition, or of all rows together.
    """

    field: Keys
    partition: tuple[Keys, ...]
    step: float
    unit: str | None
    bounds: tuple[Any, Any] | Literal["full", "partition"]


@value_class(eq=True)
class Sample:
    """Up to `count` random rows, in a random order (`$sample`)."""

    count: int


@value_class(eq=True)
class Unwind:
    """A document for each element of an array (`$unwind`)."""

    path: Keys
    index: Keys | None = None
    preserve: bool = False


@value_class(eq=True)
class ReplaceRoot:
    """Replace each document (`$replaceRoot`, `$replaceWith`)."""

    body: Node


@value_class(eq=True)
class Redact:
    """Keep or leave out each document, and the objects within, by an expression (`$redact`)."""

    decision: Node


@value_class(eq=True)
class Documents:
    """A row for each object of an array, in place of the rows before (`$documents`)."""

    array: Node


@value_class(eq=True)
class Facet:
    """One document with the results of several pipelines over the same rows (`$facet`)."""

    pipelines: tuple[tuple[str, tuple[PlacedStage, ...]], ...]


@value_class(eq=True)
class Union:
    """The rows, and then the rows of another collection (`$unionWith`).

    Without a collection the first of `steps` is a `Documents`, here and in a `Lookup`.
    """

    collection: str | None
    steps: tuple[PlacedStage, ...] = ()


@value_class(eq=True)
class GraphLookup:
    """Add an array of the documents that a search from document to document finds (`$graphLookup`).

    The search begins with `start`, finds documents by `to`, and goes on with their `origin`, at most `depth` times.
    `depth_field` is the field for the number of steps.
    """

    collection: str
    into: Keys
    start: Node
    origin: Side
    to: Side
    depth: int | None = None
    depth_field: Keys | None = None
    filter: Filter = Filter()


@value_class(eq=True)
class Lookup:
    """Add an array of the documents found in another collection (`$lookup`).

    The fields `local` and `foreign` must be equal; `steps` run over the documents found, with `variables`.
    """

    collection: str | None
    into: Keys
    local: Side | None = None
    foreign: Side | None = None
    variables: tuple[tuple[str, Node], ...] = ()
    steps: tuple[PlacedStage, ...] = ()


@value_class(eq=True)
class Output:
    """Write the rows into a collection, as last stage (`$merge`; `$out` if `replaces`).

    A row's document has the row's id, or the row's values at the paths `on`. `steps` with `variables` make the new body
    if `matched` is "pipeline".
    """

    collection: str
    on: tuple[Keys, ...] = ()
    matched: Literal["merge", "replace", "keepExisting", "fail", "pipeline"] = "merge"
    unmatched: Literal["insert", "discard", "fail"] = "insert"
    replaces: bool = False
    variables: tuple[tuple[str, Node], ...] = ()
    steps: tuple[PlacedStage, ...] = ()


Change: TypeAlias = Project | ExcludeFields | AddFields | ReplaceRoot
"""The stages that change each row by itself."""
Stage: TypeAlias = (
    Match | Change | SortRows | Skip | Limit | CountRows | Group | BucketAuto | SetWindowFields
    | Densify | Sample | Unwind | Redact | Documents | Facet | Union | GraphLookup | Lookup | Output
)  # fmt: skip


@value_class(eq=True)
class PlacedStage:
    """A stage and the place in the pipeline, as in errors: `2.$group`."""

    place: str
    stage: Stage

    @property
    def name(self) -> str:
        """The name in the pipeline: `$group`."""
        return self.place.rpartition(".")[2]
