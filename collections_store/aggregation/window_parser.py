"""The parser of the stages over the rows around a row: `$setWindowFields` and `$fill`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import InvalidPipeline, shortened
from ..expressions.fields import NAMED, Keys, tree_of
from ..expressions.nodes import IfNull, Node, Reference
from ..expressions.path import Path
from ..expressions.values import is_number
from ..query.sort import NATURAL, Sort
from . import stages
from .group_parser import parse_accumulator
from .operands import fields_of, integer_of, path_of, unit_of
from .order import parse_sort
from .parser import PipelineParser
from .stages import Stage, Window, WindowField, WindowFunction
from .windows import FUNCTIONS, DeclaredFunction

_FIXED: Final = frozenset({"week", "day", "hour", "minute", "second", "millisecond"})
_WHOLE: Final = Window()
_MOST: Final = 2**31 - 1
"""The greatest distance between two positions."""


def parse_set_window_fields(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$setWindowFields`."""
    given = parser.expressions.named(operand, place, ("output",), ("partitionBy", "sortBy"))
    key = parser.expressions.parse(given.get("partitionBy"), f"{place}.partitionBy")
    sort = _sort(parser, given, place)
    output = given["output"]
    if not isinstance(output, dict):
        problem = f"must be a document of fields, got {shortened(output)}"
        raise InvalidPipeline(f"{place}.output", problem)
    tree_of(
        [(path_of(n, f"{place}.output.{n}"), NAMED, f"{place}.output.{n}") for n in output],
        InvalidPipeline,
    )
    fields = [
        _field(parser, name, each, sort, f"{place}.output.{name}") for name, each in output.items()
    ]
    return stages.SetWindowFields(key, sort, tuple(fields))


def parse_fill(parser: PipelineParser, operand: Any, place: str) -> list[Stage]:
    """Parse `$fill` as `$setWindowFields` and `$addFields`, as MongoDB's server does."""
    optional = "partitionBy", "partitionByFields", "sortBy"
    given = parser.expressions.named(operand, place, ("output",), optional)
    key = _partition(parser, given, place)
    sort = _sort(parser, given, place)
    windows, values = list[WindowField](), list[tuple[Keys, Node, str]]()
    for name, each in fields_of(given["output"], f"{place}.output").items():
        here = f"{place}.output.{name}"
        keys, field = path_of(name, here), Reference("CURRENT", path_of(name, here))
        if not isinstance(each, dict) or len(each) != 1 or not set(each) <= {"value", "method"}:
            raise InvalidPipeline(here, "must be a document of either value or method")
        if "value" in each:
            value = parser.expressions.parse(each["value"], f"{here}.value")
            values.append((keys, IfNull((field, value)), here))
            continue
        operator = {"locf": "$locf", "linear": "$linearFill"}.get(str(each["method"]))
        if operator is None:
            raise InvalidPipeline(f"{here}.method", "must be locf or linear")
        _check_sort(FUNCTIONS[operator], sort, here)
        windows.append(WindowField(keys, WindowFunction(operator, (field,)), _WHOLE))
    by = given.get("partitionBy")
    if not windows and isinstance(by, str) and not by.startswith("$"):
        problem = f"must be a path that begins with $, got {shortened(by)}"
        raise InvalidPipeline(f"{place}.partitionBy", problem)
    found: list[Stage] = []
    if windows:  # MongoDB's server sorts only then
        found.append(stages.SetWindowFields(key, sort, tuple(windows)))
    return [*found, stages.AddFields(tree_of(values, InvalidPipeline))] if values else found


def _partition(parser: PipelineParser, given: Mapping[str, Any], place: str) -> Node:
    if "partitionByFields" not in given:
        by = given.get("partitionBy")
        if not isinstance(by, str | dict | None):
            problem = f"must be an expression, got {shortened(by)}"
            raise InvalidPipeline(f"{place}.partitionBy", problem)
        return parser.expressions.parse(by, f"{place}.partitionBy")
    names, here = given["partitionByFields"], f"{place}.partitionByFields"
    if "partitionBy" in given or not isinstance(names, list):
        raise InvalidPipeline(here, "must be a list of fields, without partitionBy beside it")
    paths = {str(n): f"${'.'.join(path_of(each, here))}" for n, each in enumerate(names)}
    return parser.expressions.parse(paths, here)


def _sort(parser: PipelineParser, given: Mapping[str, Any], place: str) -> Sort:
    if "sortBy" not in given:
        return NATURAL
    return parse_sort(parser, given["sortBy"], f"{place}.sortBy").sort


def _field(parser: PipelineParser, name: str, given: Any, sort: Sort, place: str) -> WindowField:
    keys = path_of(name, place)
    if not isinstance(given, dict):
        raise InvalidPipeline(place, f"must be a document of one function, got {shortened(given)}")
    rest = {key: each for key, each in given.items() if key != "window"}
    if len(rest) != 1:
        raise InvalidPipeline(place, "must have one function, and a window beside it or none")
    ((operator, operand),) = rest.items()
    here = f"{place}.{operator}"
    declared = FUNCTIONS.get(operator)
    window = _WHOLE
    if "window" in given:
        window = _window(parser, given["window"], sort, f"{place}.window")
    if declared is None:
        return WindowField(keys, parse_accumulator(parser, rest, place), window)
    _check_sort(declared, sort, here)
    if declared.window == ("none" if "window" in given else "required"):
        takes = "takes no" if "window" in given else "requires a"
        raise InvalidPipeline(f"{place}.window", f"{operator} {takes} window")
    if declared.form == "scale" and not (window.lower or 0) <= 0 <= (window.upper or 0):
        raise InvalidPipeline(f"{place}.window", f"{operator} requires the document itself")
    return WindowField(keys, _function(parser, operator, declared.form, operand, here), window)


def _function(
    parser: PipelineParser, operator: str, form: str, operand: Any, place: str
) -> WindowFunction:
    named, parse = parser.expressions.named, parser.expressions.parse
    operands: tuple[Node, ...] = ()
    number: float = 0
    unit = None
    match form:
        case "empty" if operand != {}:
            raise InvalidPipeline(place, "takes an empty document")
        case "value":
            operands = (parse(operand, place),)
        case "shift":
            given = named(operand, place, ("output", "by"), ("default",))
            default = parser.expressions.constant(given.get("default"), f"{place}.default")
            operands = (parse(given["output"], f"{place}.output"), default)
            number = integer_of(given["by"], -_MOST - 1, f"{place}.by", _MOST)
        case "average":
            given = named(operand, place, ("input",), ("N", "alpha"))
            operands = (parse(given["input"], f"{place}.input"),)
            number = _weight(given, place)
        case "slope":
            given = named(operand, place, ("input",), ("unit",))
            operands, unit = (parse(given["input"], f"{place}.input"),), unit_of(given, place)
            if unit is not None and unit not in _FIXED:
                problem = f"must be one of {', '.join(sorted(_FIXED))}"
                raise InvalidPipeline(f"{place}.unit", problem)
        case "pair":
            if not isinstance(operand, list) or len(operand) != 2:
                raise InvalidPipeline(place, "takes a list of two operands")
            operands = tuple(parse(each, f"{place}.{n}") for n, each in enumerate(operand))
        case "scale":
            operands = _scale(parser, operand, place)
    return WindowFunction(operator, operands, number, unit)


def _scale(parser: PipelineParser, operand: Any, place: str) -> tuple[Node, ...]:
    """Parse `$minMaxScaler`: an input, and the ends of the scale."""
    if not isinstance(operand, dict) or next(iter(operand), "").startswith("$"):
        operand = {"input": operand}
    given = parser.expressions.named(operand, place, ("input",), ("min", "max"))
    if ("min" in given) is not ("max" in given):
        raise InvalidPipeline(place, "requires both min and max, or neither")
    ends = [
        parser.expressions.constant(given.get(n, d), f"{place}.{n}")
        for n, d in (("min", 0), ("max", 1))
    ]
    low, high = (each.value for each in ends)
    if not is_number(low) or not is_number(high) or low >= high:
        got = f"{shortened(low)} and {shortened(high)}"
        raise InvalidPipeline(place, f"min must be a number less than the number max, got {got}")
    return (parser.expressions.parse(given["input"], f"{place}.input"), *ends)


def _check_sort(declared: DeclaredFunction, sort: Sort, place: str) -> None:
    if declared.sort and sort is NATURAL:
        raise InvalidPipeline(place, "requires sortBy")
    if declared.sort in {"one", "body"} and len(sort.fields) > 1:
        raise InvalidPipeline(place, "requires a sortBy of one field")
    if declared.sort == "body" and not isinstance(sort.fields[0].target, Path):
        raise InvalidPipeline(place, "requires a sortBy of a field of the body")


def _weight(given: Mapping[str, Any], place: str) -> float:
    if ("N" in given) is ("alpha" in given):
        raise InvalidPipeline(place, "requires either N or alpha")
    if "N" in given:
        return 2 / (integer_of(given["N"], 1, f"{place}.N") + 1)
    alpha = given["alpha"]
    if not is_number(alpha) or not 0 < alpha < 1:
        raise InvalidPipeline(f"{place}.alpha", f"must be between 0 and 1, got {shortened(alpha)}")
    return float(alpha)


def _window(parser: PipelineParser, given: Any, sort: Sort, place: str) -> Window:
    names = "documents", "range", "unit"
    if given == {}:
        return _WHOLE
    if (
        not isinstance(given, dict)
        or not set(given) <= set(names)
        or ("documents" in given) is ("range" in given)
    ):
        raise InvalidPipeline(place, "must be a document of either documents or range, and of unit")
    kind = "range" if "range" in given else "documents"
    bounds, unit = given[kind], unit_of(given, place)
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise InvalidPipeline(
            f"{place}.{kind}", f"must be a list of two bounds, got {shortened(bounds)}"
        )
    is_whole = kind == "documents" or unit is not None
    low, high = (
        _end(parser, each, is_whole, f"{place}.{kind}.{n}") for n, each in enumerate(bounds)
    )
    if low is not None and high is not None and low > high:
        raise InvalidPipeline(
            f"{place}.{kind}", "the lower bound must not be greater than the upper"
        )
    if kind == "documents":
        for n, end in enumerate((low, high)):
            integer_of(end or 0, -_MOST - 1, f"{place}.documents.{n}", _MOST)
        if unit is not None:
            raise InvalidPipeline(f"{place}.unit", "requires a range")
        if sort is NATURAL and (low is not None or high is not None):
            raise InvalidPipeline(f"{place}.documents", "a window with an end requires sortBy")
        return Window(low, high)
    field = sort.fields[0] if len(sort.fields) == 1 else None
    if field is None or field.descending or not isinstance(field.target, Path):
        raise InvalidPipeline(
            f"{place}.range", "requires a sortBy of one ascending field of the body"
        )
    return Window(low, high, is_range=True, unit=unit)


def _end(parser: PipelineParser, given: Any, is_whole: bool, place: str) -> float | None:
    if given == "unbounded":
        return None
    if given == "current":
        return 0
    value = parser.expressions.constant(given, place).value
    if not is_number(value) or (is_whole and value != int(value)):
        kind = "an integer" if is_whole else "a number"
        raise InvalidPipeline(
            place, f"must be {kind}, current or unbounded, got {shortened(value)}"
        )
    return int(value) if is_whole else value
