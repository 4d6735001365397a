"""The form of a time in JSON: ISO 8601 in UTC, with `Z` and six digits of a second, so strings sort as times do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

ADVICE: Final = "convert it first, or give the store a `default` function that does"
"""How a value that is not JSON gets into a body."""
_MODEL: Final = ", or declare a model, as typed documents have"


def iso(time: datetime) -> str:
    """Return the form of a time with a time zone.

    >>> iso(datetime(2026, 11, 22, 10, tzinfo=UTC))
    '2026-11-22T10:00:00.000000Z'
    """
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


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
