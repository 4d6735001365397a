"""The form of a time in JSON: ISO 8601 in UTC, with `Z` and six digits of a second, so strings sort as times do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

ADVICE: Final = "convert it first, or give the store a `default` function that does"
"""How a value that is not JSON gets into a body."""
_WRITTEN: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_MODEL: Final = ", or declare a model, as typed documents have"


def iso(time: datetime) -> str:
    """Return the form of a time with a time zone.

    >>> iso(datetime(2026, 11, 22, 10, tzinfo=UTC))
    '2026-11-22T10:00:00.000000Z'
    """
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def in_form(text: str) -> str | None:
    """Return a string of ISO 8601 with a date and a time of day in the form of times, UTC without a zone; None for any
    other string, and for a time with more than six digits of a second.

    >>> in_form("2026-11-22T12:00+02:00")
    '2026-11-22T10:00:00.000000Z'
    """
    if not _WRITTEN.fullmatch(text):
        return None
    try:
        time = datetime.fromisoformat(text)
        return iso(time.replace(tzinfo=UTC) if time.tzinfo is None else time)
    except (ValueError, OverflowError):
        return None


def with_times(value: Any, keys: tuple[str, ...]) -> Any:
    """Return a value with the times at a path in their form. The path leads into all elements of arrays."""
    if isinstance(value, list):
        return [with_times(each, keys) for each in value]
    if not keys:
        return (in_form(value) or value) if isinstance(value, str) else value
    if not isinstance(value, dict) or keys[0] not in value:
        return value
    return {**value, keys[0]: with_times(value[keys[0]], keys[1:])}


def written_times(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of each time in a value, and how the time is written: the text with the digits 0, and the offset."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from written_times(each, (*keys, key))
    elif isinstance(value, list):
        for each in value:
            yield from written_times(each, keys)
    elif isinstance(value, str) and in_form(value) and (written := _WRITTEN.fullmatch(value)):
        offset = written[3] or ""
        yield keys, re.sub(r"\d", "0", value.removesuffix(offset)) + offset


def advice_for(value: object) -> str:
    """Return how a value gets into a body."""
    return ADVICE + _MODEL if isinstance(value, datetime) else ADVICE


def query_value(default: Callable[[Any], Any] | None, value: Any) -> Any:
    """Return a value of a filter, an update or a pipeline as JSON: by `default`, or else the form of a time. Raise
    `TypeError` for any other value, and for a time without a time zone.
    """
    if default is not None:
        try:
            return default(value)
        except TypeError:
            if not isinstance(value, datetime):
                raise
    if not isinstance(value, datetime):
        raise TypeError(ADVICE)
    if value.tzinfo is None:
        raise TypeError("a time requires a time zone, as datetime.now(UTC) has")
    return iso(value)
