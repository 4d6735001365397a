"""Checks of arguments for several layers. Every `check_*` function returns the value, or raises `InvalidOption`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Final, TypeVar

from ..errors import InvalidOption, did_you_mean, shortened

MAX_COUNT: Final = 2**63 - 1
"""The largest limit that the databases take."""
MIN_TIMEOUT: Final = 0.001
"""Seconds; PostgreSQL counts milliseconds, and 0 would mean no timeout."""
MAX_TIMEOUT: Final = 2_000_000
"""Seconds; the databases count milliseconds in 32 bits."""

T = TypeVar("T")


def check_known(owner: str, given: Mapping[str, Any], declared: type) -> None:
    """Raise `TypeError` for an option that is not declared."""
    known = declared.__annotations__
    for option in given.keys() - known.keys():
        hint = did_you_mean(option, known) or f": it has {', '.join(known)}"
        raise TypeError(f"{owner} has no option {option!r}{hint}")


def check_flag(option: str, value: object) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise InvalidOption(option, f"must be True or False, got {shortened(value)}")
    return value


def check_integer(option: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """Return an integer from `least` to `most`."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value >= least and (most is None or value <= most):
        return int(value)
    span = f"{least:,} on" if most is None else f"{least:,} to {most:,}"
    raise InvalidOption(option, f"must be an integer from {span}, got {shortened(value)}")


def check_count(option: str, value: Any) -> int:
    """Return an integer from 0 to the largest limit of the databases."""
    return check_integer(option, value, least=0, most=MAX_COUNT)


def check_version(value: Any, option: str = "if_version") -> int | None:
    """Return a version, or None."""
    return None if value is None else check_integer(option, value, most=MAX_COUNT)


def check_seconds(option: str, value: Any, *, least: float = MIN_TIMEOUT) -> float:
    """Return a timeout."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and least <= value <= MAX_TIMEOUT:
        return float(value)
    must = f"must be from {least} to {MAX_TIMEOUT:,} seconds"
    raise InvalidOption(option, f"{must}, got {shortened(value)}")


def check_choice(option: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Return a choice: a string, or None."""
    if isinstance(value, str | None) and value in choices:
        return value
    known = " or ".join(map(repr, choices))
    raise InvalidOption(option, f"must be {known}, got {shortened(value)}")


def check_function(option: str, value: Any) -> Callable[..., Any]:
    """Return a callable."""
    if not callable(value):
        raise InvalidOption(option, f"must be a function, got {shortened(value)}")
    function: Callable[..., Any] = value
    return function


def check_awaitable(result: Awaitable[T]) -> Awaitable[T]:
    """Return the result of an async function."""
    if isawaitable(result):
        return result
    raise InvalidOption(
        "function", f"must be an async function, got one that returned {shortened(result)}"
    )


def check_iterable(option: str, value: Any) -> Any:
    """Return a mapping or another iterable, but no string."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return value
    must = "must be a mapping or a (synchronous) iterable"
    raise InvalidOption(option, f"{must}, got {shortened(value)}")
