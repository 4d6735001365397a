"""The parser of the stages that group rows: `$group`, `$sortByCount`, `$bucket` and `$bucketAuto`, and of accumulators."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, Final

from ..errors import InvalidPipeline, shortened
from ..expressions.language import ABSENT
from ..expressions.nodes import Bucket, Constant, Node
from ..expressions.path import Path
from ..expressions.syntax import percentile_of
from ..expressions.values import RANKS, compare
from ..query.sort import Sort
from . import stages
from .accumulators import ACCUMULATORS
from .granularity import SERIES
from .operands import check_choice, integer_of, name_of
from .order import parse_sort
from .parser import PipelineParser
from .stages import Accumulator, Stage
from .windows import FUNCTIONS

_COUNT: Final = {"count": {"$sum": 1}}


def parse_group(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$group`."""
    if not isinstance(operand, dict) or "_id" not in operand:
        raise InvalidPipeline(place, "must be a document with _id, the expression to group by")
    fields = _parse_accumulators(parser, {k: v for k, v in operand.items() if k != "_id"}, place)
    key, here = operand["_id"], f"{place}._id"
    for name, each in key.items() if isinstance(key, dict) else ():
        # in MongoDB a number or boolean in it would look as if a field was chosen
        if isinstance(each, bool | int | float) and not name.startswith("$"):
            problem = (
                f"{shortened(each)} does not choose a field: name it ('${name}'), or use $literal"
            )
            raise InvalidPipeline(f"{here}.{name}", problem)
    return stages.Group(parser.expressions.parse(key, here), fields)


def parse_sort_by_count(parser: PipelineParser, operand: Any, place: str) -> list[Stage]:
    """Parse `$sortByCount` as a `$group` and a `$sort`."""
    fields = (("count", Accumulator("$sum", Constant.of(1))),)
    group = stages.Group(_parse_key(parser, operand, place), fields)
    return [group, stages.SortRows(Sort.parse({"count": -1}))]


def _parse_key(parser: PipelineParser, expression: Any, place: str) -> Node:
    first = next(iter(expression), "") if isinstance(expression, dict) else expression
    if not isinstance(first, str) or not first.startswith("$"):
        raise InvalidPipeline(place, "must be a path that begins with $, or an operator")
    return parser.expressions.parse(expression, place)


def parse_bucket(parser: PipelineParser, operand: Any, place: str) -> list[Stage]:
    """Parse `$bucket` as a `$group` by the bucket, and a `$sort`, as MongoDB's server does."""
    given = parser.expressions.named(
        operand, place, ("groupBy", "boundaries"), ("default", "output")
    )
    _parse_key(parser, given["groupBy"], f"{place}.groupBy")
    limits = given["boundaries"]
    if not isinstance(limits, list) or len(limits) < 2:
        problem = f"must be a list of at least two values, got {shortened(limits)}"
        raise InvalidPipeline(f"{place}.boundaries", problem)
    boundaries = tuple([
        parser.expressions.constant(each, f"{place}.boundaries.{n}")
        for n, each in enumerate(limits)
    ])  # fmt: skip
    limits = [each.value for each in boundaries]
    compared = partial(compare, ordered=parser.ordered)
    for number, (lower, upper) in enumerate(pairwise(limits), 1):
        if RANKS[type(lower)] != RANKS[type(upper)] or compared(lower, upper) >= 0:
            problem = "must be of the type of the value before it, and greater"
            raise InvalidPipeline(f"{place}.boundaries.{number}", problem)
    default = None
    if "default" in given:
        here = f"{place}.default"
        default = parser.expressions.constant(given["default"], here)
        if RANKS[type(default.value)] == RANKS[type(limits[0])] and (
            compared(limits[0], default.value) <= 0 < compared(limits[-1], default.value)
        ):
            raise InvalidPipeline(
                here, "must be less than the first boundary, or at least the last"
            )
    value = parser.expressions.parse(given["groupBy"], f"{place}.groupBy")
    key = Bucket(value, boundaries, default)
    fields = _parse_accumulators(parser, given.get("output", _COUNT), f"{place}.output")
    return [stages.Group(key, fields), stages.SortRows(Sort.parse([(Path("_id"), 1)]))]


def parse_bucket_auto(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$bucketAuto`."""
    given = parser.expressions.named(
        operand, place, ("groupBy", "buckets"), ("output", "granularity")
    )
    granularity = given.get("granularity")
    if "granularity" in given:
        check_choice(granularity, (*SERIES,), f"{place}.granularity")
    key = _parse_key(parser, given["groupBy"], f"{place}.groupBy")
    count = integer_of(given["buckets"], 1, f"{place}.buckets", 2**31 - 1)
    output = given.get("output", _COUNT)
    fields = _parse_accumulators(parser, _COUNT if output == {} else output, f"{place}.output")
    return stages.BucketAuto(key, count, fields, granularity)


def _parse_accumulators(
    parser: PipelineParser, fields: Any, place: str
) -> tuple[tuple[str, Accumulator], ...]:
    if not isinstance(fields, dict):
        problem = f"must be a document of accumulators, got {shortened(fields)}"
        raise InvalidPipeline(place, problem)
    if "_id" in fields:
        raise InvalidPipeline(f"{place}._id", "must be another field: _id is the bucket")
    return tuple([
        (name_of(name, f"{place}.{name}"), parse_accumulator(parser, each, f"{place}.{name}"))
        for name, each in fields.items()
    ])  # fmt: skip


def parse_accumulator(parser: PipelineParser, operand: Any, place: str) -> Accumulator:
    """Parse an accumulator, such as `{'$sum': '$price'}`."""
    if not isinstance(operand, dict) or len(operand) != 1:
        raise InvalidPipeline(place, "must be one accumulator, such as {'$sum': '$price'}")
    ((name, value),) = operand.items()
    here = f"{place}.{name}"
    if name == "$count":
        if value != {}:
            raise InvalidPipeline(here, "takes an empty document")
        return Accumulator("$sum", Constant.of(1))
    declared = ACCUMULATORS.get(name)
    if declared is None:
        known = name in ABSENT["accumulators"]
        problem = "this accumulator is not supported" if known else "no such accumulator"
        if name in FUNCTIONS:
            problem = "is a function of $setWindowFields"
        raise InvalidPipeline(here, problem)
    if declared.form == "value":
        if isinstance(value, list):
            raise InvalidPipeline(here, "takes one operand, got a list")
        return Accumulator(name, parser.expressions.parse(value, here))
    if declared.form in {"median", "percentile"}:
        input, points = percentile_of(parser.expressions, name, value, here)
        return Accumulator(name, input, points=points)
    return _several(parser, name, declared.form, value, here)


def _several(parser: PipelineParser, name: str, form: str, operand: Any, place: str) -> Accumulator:
    """Parse an accumulator of several values, or of a sorted one."""
    what = "output" if form.startswith("sorted") else "input"
    names = (
        what,
        *(["sortBy"] if what == "output" else []),
        *(["n"] if form[-1] == "n" else []),
    )
    given = parser.expressions.named(operand, place, names)
    parse, count, sort = parser.expressions.parse, None, None
    if "n" in given:
        count = parse(given["n"], f"{place}.n")
        if isinstance(count, Constant):
            integer_of(count.value, 1, f"{place}.n")
    if "sortBy" in given:
        sort = parse_sort(parser, given["sortBy"], f"{place}.sortBy").sort
    return Accumulator(name, parse(given[what], f"{place}.{what}"), count, sort)
