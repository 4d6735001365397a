"""How long an object lives: a time to live as callers give it, and as rows keep it.

Times are microseconds. An object whose `expires_at` is not after now is gone for every verb at once;
`purge_expired` deletes its row later.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Final

from .errors import InvalidOption, shortened

FOREVER: Final = 0
"""A time to live without end, as opposed to none given: then the collection's own counts."""
MAX_TTL: Final = 1000 * 365 * 86_400
"""Seconds; with much more, no calendar knows the day."""
_MICROSECOND: Final = timedelta(microseconds=1)


def read_ttl(ttl: Any, option: str = "ttl") -> int | None:
    """Return a time to live in microseconds, `FOREVER` for infinity, None for None; raises
    `InvalidOption` for what cannot be honoured.

    >>> read_ttl(1.5), read_ttl(timedelta(minutes=1)), read_ttl(math.inf)
    (1500000, 60000000, 0)
    """
    if ttl is None:
        return None
    if isinstance(ttl, timedelta):
        found = ttl // _MICROSECOND
    elif isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl != ttl:  # noqa: PLR0124
        raise InvalidOption(option, f"{shortened(ttl)} is neither seconds nor a timedelta")
    elif ttl == math.inf:
        return FOREVER
    else:
        found = int(min(max(ttl, -1), MAX_TTL + 1) * 1_000_000)
    if not 0 < found <= MAX_TTL * 1_000_000:
        raise InvalidOption(
            option,
            f"{shortened(ttl)} is not between a microsecond and 1,000 years; "
            "math.inf is for objects that never expire",
        )
    return found


def chosen(ttl: int | None, default: int | None) -> int | None:
    """Return the time to live of an object that is written; None: it lives for ever."""
    return (default if ttl is None else ttl) or None


def expiry(now: int, ttl: int | None) -> int | None:
    """Return when an object that is written now expires; None: never."""
    return None if ttl is None else now + ttl


def is_gone(expires: int | None, now: int) -> bool:
    """Tell whether an object is gone."""
    return expires is not None and expires <= now
