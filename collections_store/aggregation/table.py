"""The stages of a pipeline: `STAGES` declares each once.

To add a name for existing classes of `stages`, write a parser and a row. A new class also needs a branch in `pipeline`, to
run the stage.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import InvalidPipeline
from . import (
    buckets,
    changed,
    combined,
    densify,
    graph,
    group_parser,
    lookup,
    order,
    output,
    redact,
    stages,
    unwind,
    window_parser,
)
from .operands import collection_of, integer_of, name_of
from .parser import DeclaredStage, PipelineParser, Where
from .stages import Stage

_BY_ROW: Final[frozenset[Where]] = frozenset({"inner", "facet", "changes"})
_CHANGE: Final[frozenset[Where]] = _BY_ROW | {"update"}
_INNER: Final[frozenset[Where]] = frozenset({"inner"})
_LAST: Final[frozenset[Where]] = frozenset()


def _count(_parser: PipelineParser, operand: Any, place: str) -> Stage:
    if operand == "_id":
        raise InvalidPipeline(place, "must be a field other than _id")
    return stages.CountRows(name_of(operand, place))


def _out(_parser: PipelineParser, operand: Any, place: str) -> Stage:
    return stages.Output(collection_of(operand, place), replaces=True)


def _always(_operand: Any) -> bool:
    return True


STAGES: Final[dict[str, DeclaredStage]] = {
    "$match": DeclaredStage(PipelineParser.match, _BY_ROW, holds_filters=True),
    "$addFields": DeclaredStage(changed.parse_add_fields, _CHANGE, makes_id=changed.adds_id),
    "$set": DeclaredStage(changed.parse_add_fields, _CHANGE, makes_id=changed.adds_id),
    "$project": DeclaredStage(changed.parse_project, _CHANGE, makes_id=changed.computes_id),
    "$unset": DeclaredStage(changed.parse_unset, _CHANGE),
    "$sort": DeclaredStage(order.parse_sort),
    "$skip": DeclaredStage(lambda _, operand, place: stages.Skip(integer_of(operand, 0, place))),
    "$limit": DeclaredStage(lambda _, operand, place: stages.Limit(integer_of(operand, 1, place))),
    "$count": DeclaredStage(_count, makes_id=_always),
    "$group": DeclaredStage(group_parser.parse_group, makes_id=_always, is_shared=True),
    "$unwind": DeclaredStage(unwind.parse_unwind),
    "$sortByCount": DeclaredStage(group_parser.parse_sort_by_count, makes_id=_always),
    "$replaceRoot": DeclaredStage(changed.parse_replace_root, _CHANGE, makes_id=_always),
    "$replaceWith": DeclaredStage(changed.parse_replace_with, _CHANGE, makes_id=_always),
    "$lookup": DeclaredStage(lookup.parse_lookup, holds_filters=True),
    "$merge": DeclaredStage(output.parse_merge, _LAST, holds_filters=True),
    "$out": DeclaredStage(_out, _LAST),
    "$setWindowFields": DeclaredStage(window_parser.parse_set_window_fields),
    "$fill": DeclaredStage(window_parser.parse_fill),
    "$densify": DeclaredStage(densify.parse_densify),
    "$bucket": DeclaredStage(group_parser.parse_bucket, makes_id=_always),
    "$bucketAuto": DeclaredStage(group_parser.parse_bucket_auto, makes_id=_always),
    "$sample": DeclaredStage(buckets.parse_sample),
    "$redact": DeclaredStage(redact.parse_redact, _BY_ROW),
    "$documents": DeclaredStage(combined.parse_documents, _INNER, makes_id=_always),
    "$facet": DeclaredStage(combined.parse_facet, _INNER, holds_filters=True, makes_id=_always),
    "$unionWith": DeclaredStage(combined.parse_union_with, holds_filters=True),
    "$graphLookup": DeclaredStage(graph.parse_graph_lookup, holds_filters=True),
}


def allowed(where: Where) -> tuple[str, ...]:
    """Return the stages that may stand in a place."""
    return tuple(name for name, each in STAGES.items() if where in each.where)
