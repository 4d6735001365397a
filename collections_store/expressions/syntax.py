"""The operators with a syntax of their own: a function parses each."""

from __future__ import annotations

from typing import Any, Final

from ..document import METADATA, NO_TEXT, TEXT_SCORE
from ..errors import shortened
from . import nodes
from .declared import Operator
from .nodes import Constant, Node, OperatorCall, Reference, nodes_of
from .operand_parser import OperandParser, check_keys
from .strings import type_named
from .values import is_number

MAX_SORTED: Final = 32
"""Fields that `$sortArray` sorts by: as many as `$sort` does."""


def literal(_parser: OperandParser, _operator: Operator, operand: Any, _place: str) -> Node:
    """Parse `$literal`."""
    return Constant.of(operand)


def logic(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$and` or `$or`."""
    name: Any = operator.name
    return nodes.Logic(name, parser.operands(0, None, operand, place))


def if_null(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$ifNull`."""
    return nodes.IfNull(parser.operands(2, None, operand, place))


def meta(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$meta`."""
    if operand == TEXT_SCORE:
        if parser.scores is None:
            parser.refuse(place, NO_TEXT)
        parser.scores.append(place)
        return nodes.Meta(TEXT_SCORE)
    if operand not in METADATA:
        known = ", ".join(METADATA)
        parser.refuse(place, f"must be one of {known}, got {shortened(operand)}")
    return nodes.Meta(operand)


def member(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$in`."""
    value, array = operands = parser.operands(2, 2, operand, place)
    if isinstance(array, Constant) and isinstance(array.value, list):
        return nodes.InConstant(value, array)
    return OperatorCall.of(operator, operands)


def cond(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$cond`."""
    if isinstance(operand, list):
        case, then, default = parser.operands(3, 3, operand, place)
    else:
        given = parser.named(operand, place, ("if", "then", "else"))
        case, then, default = (parser.field(given, n, place) for n in ("if", "then", "else"))
    return nodes.Switch(((case, then),), default)


def switch(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$switch`."""
    given = parser.named(operand, place, ("branches",), ("default",))
    branches = given["branches"]
    if not isinstance(branches, list) or not branches:
        parser.refuse(f"{place}.branches", "must be a list of at least one branch")
    pairs = []
    for i, each in enumerate(branches):
        here = f"{place}.branches.{i}"
        branch = parser.named(each, here, ("case", "then"))
        pairs.append((parser.field(branch, "case", here), parser.field(branch, "then", here)))
    default = parser.field(given, "default", place) if "default" in given else None
    return nodes.Switch(tuple(pairs), default)


def let(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$let`."""
    given = parser.named(operand, place, ("vars", "in"))
    variables = parser.variables(given["vars"], f"{place}.vars")
    inner = parser.within(*(each for each, _ in variables))
    return nodes.Let(variables, inner.field(given, "in", place))


def map_elements(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$map`."""
    given = parser.named(operand, place, ("input", "in"), ("as",))
    variable = parser.variable(given.get("as", "this"), f"{place}.as")
    inside = parser.within(variable).field(given, "in", place)
    return nodes.Map(parser.field(given, "input", place), variable, inside)


def filter_elements(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$filter`."""
    given = parser.named(operand, place, ("input", "cond"), ("as", "limit"))
    variable = parser.variable(given.get("as", "this"), f"{place}.as")
    condition = parser.within(variable).field(given, "cond", place)
    limit = parser.field(given, "limit", place) if "limit" in given else None
    return nodes.FilterElements(parser.field(given, "input", place), variable, condition, limit)


def reduce(parser: OperandParser, _operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$reduce`."""
    given = parser.named(operand, place, ("input", "initialValue", "in"))
    inside = parser.within("value", "this").field(given, "in", place)
    initial = parser.field(given, "initialValue", place)
    return nodes.Reduce(parser.field(given, "input", place), initial, inside, _only_adds(inside))


def convert(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$convert`."""
    found = parser.named_call(operator, operand, place)
    to = parser.field(operand, "to", place)
    if isinstance(to, Constant) and to.value is not None:
        parser.check(type_named, to.value, place=f"{place}.to")
    return found


def date_from_parts(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$dateFromParts`."""
    by_week = isinstance(operand, dict) and "isoWeekYear" in operand
    date = ("isoWeekYear", "isoWeek", "isoDayOfWeek") if by_week else ("year", "month", "day")
    others = {"hour": 0, "minute": 0, "second": 0, "millisecond": 0, "timezone": "UTC"}
    given = parser.named(operand, place, date[:1], (*date[1:], *others))
    parts = {date[1]: 1, date[2]: 1, **others, **given}
    names = (*date, *others)
    found = (parser.field(parts, each, place) for each in names)
    return OperatorCall.of(operator, (Constant.of(by_week), *found))


def percentile(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$median` or `$percentile`."""
    value, points = percentile_of(parser, operator.name, operand, place)
    return OperatorCall.of(operator, (value, Constant.of([*points])))


def rand(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$rand`."""
    if operand not in ({}, []):
        parser.refuse(place, f"takes an empty document, got {shortened(operand)}")
    return OperatorCall.of(operator, ())


def get_field(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$getField`."""
    current: Node = Reference("CURRENT")
    if isinstance(operand, dict) and not str(next(iter(operand), "")).startswith("$"):
        given = parser.named(operand, place, ("field", "input"))
        current = parser.field(given, "input", place)
        operand, place = given["field"], f"{place}.field"
    field = parser.parse(operand, place)
    if isinstance(field, Constant):
        _check_name(parser, field, place)
    return OperatorCall.of(operator, (field, current))


def set_field(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$setField` or `$unsetField`."""
    found = parser.by_name(operator, operand, place)
    _check_name(parser, found[0], f"{place}.field")
    return OperatorCall.of(operator, found)


def sort_array(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$sortArray`."""
    given = parser.named(operand, place, ("input", "sortBy"))
    by, place_of_by = given["sortBy"], f"{place}.sortBy"
    directions = by.values() if isinstance(by, dict) else [by]
    if not directions or any(each not in (1, -1) or each is True for each in directions):
        parser.refuse(place_of_by, "must be 1, -1, or a document of fields and these")
    if len(directions) > MAX_SORTED:
        parser.refuse(place_of_by, f"must be at most {MAX_SORTED} fields")
    for path in by if isinstance(by, dict) else ():
        if path.startswith("$"):
            problem = "an element of an array has no metadata: the path begins with $"
            parser.refuse(f"{place_of_by}.{path}", problem)
        check_keys(path.split("."), f"{place_of_by}.{path}", parser.error)
    return OperatorCall.of(operator, (parser.field(given, "input", place), Constant.of(by)))


def zipped(parser: OperandParser, operator: Operator, operand: Any, place: str) -> Node:
    """Parse `$zip`."""
    given = parser.named(operand, place, ("inputs",), ("useLongestLength", "defaults"))
    inputs, longest = given["inputs"], given.get("useLongestLength", False)
    defaults = given.get("defaults")
    if not isinstance(inputs, list) or not inputs:
        parser.refuse(f"{place}.inputs", "must be a list of at least one array")
    if not isinstance(longest, bool):
        problem = f"must be true or false, got {shortened(longest)}"
        parser.refuse(f"{place}.useLongestLength", problem)
    operands = (parser.field(given, "inputs", place), Constant.of(longest))
    if defaults is None:
        return OperatorCall.of(operator, operands)
    if not isinstance(defaults, list) or not longest or len(defaults) != len(inputs):
        problem = "must be a list as long as inputs, with useLongestLength"
        parser.refuse(f"{place}.defaults", problem)
    return OperatorCall.of(operator, (*operands, parser.field(given, "defaults", place)))


def percentile_of(
    parser: OperandParser, name: str, operand: Any, place: str
) -> tuple[Node, tuple[float, ...]]:
    """Parse `$median` or `$percentile`: the input and the points from 0 to 1."""
    points = ("p",) if name == "$percentile" else ()
    given = parser.named(operand, place, ("input", *points, "method"))
    if given["method"] != "approximate":
        problem = f"must be 'approximate', got {shortened(given['method'])}"
        parser.refuse(f"{place}.method", problem)
    found = parser.constant(given.get("p", [0.5]), f"{place}.p").value
    if not isinstance(found, list) or not found or not all(map(_is_point, found)):
        problem = f"must be a list of numbers from 0 to 1, got {shortened(found)}"
        parser.refuse(f"{place}.p", problem)
    return parser.field(given, "input", place), tuple(found)


def _check_name(parser: OperandParser, field: Node, place: str) -> None:
    if not isinstance(field, Constant) or not isinstance(field.value, str):
        problem = "must be the name of a field; one that begins with $ goes in $literal"
        parser.refuse(place, problem)


def _only_adds(inside: Node) -> bool:
    """Return whether a `$reduce` uses `$$value` only to add to it."""
    if not isinstance(inside, OperatorCall) or inside.operator not in nodes.IN_PLACE:
        return False
    first, *others = inside.operands or (None,)
    uses = (isinstance(n, Reference) and n.variable == "value" for n in nodes_of((*others,)))
    return first == Reference("value") and len(others) > 0 and not any(uses)


def _is_point(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1
