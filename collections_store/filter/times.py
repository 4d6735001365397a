"""Times that filters ask the metadata for: datetimes and texts, as the microseconds that rows keep."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..document import microseconds
from ..errors import InvalidFilter, shortened
from ..path import Path
from .conditions import TIMES, Compare, Equals, OneOf, Test, Value, flat
from .operands import one_of


def as_time(name: str, test: Test, place: str) -> Test:
    """Let times be asked for as datetimes or ISO 8601 text."""
    if name not in TIMES:
        return test
    match test:
        case Equals(Value() as value):
            return Equals(_time(value, place))
        case Compare(operator, Value() as value):
            return Compare(operator, _time(value, place))
        case OneOf(lists):
            values = [Value.of(each) for v in lists if isinstance(v, Value) for each in flat(v)]
            return one_of([_time(each, place) for each in values])
    return test


def in_microseconds(key: str | Path, operand: Any, place: str) -> Any:
    """Replace the datetimes that a metadata field is compared with."""
    if not isinstance(key, str) or key.removeprefix("$") not in TIMES or not key.startswith("$"):
        return operand
    match operand:
        case datetime():
            if operand.tzinfo is None:
                raise InvalidFilter(
                    place, f"{shortened(operand)} is no moment in time without a time zone"
                )
            return microseconds(operand)
        case Mapping():
            return {k: in_microseconds(key, v, f"{place}.{k}") for k, v in operand.items()}
        case list() | tuple():
            return [in_microseconds(key, v, place) for v in operand]
    return operand


def _time(value: Value, place: str) -> Value:
    if value.kind in {"null", "number"}:
        return value
    try:
        return Value.of(microseconds(datetime.fromisoformat(value.value)))
    except (TypeError, ValueError):
        raise InvalidFilter(
            place,
            f"{shortened(value.value)} is no time: give a datetime with a time zone, its ISO 8601 "
            "text, or microseconds since 1970",
        ) from None
