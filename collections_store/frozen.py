"""Classes of values that nobody outside the house makes or changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen(made: type[T], /) -> type[T]: ...


@overload
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen(*, eq: bool) -> Callable[[type[T]], type[T]]: ...


def frozen(
    made: type[T] | None = None, /, *, eq: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a dataclass with slots, which the type checker holds to be frozen; with `eq`, its objects
    compare and hash by their fields. All print theirs: errors tell by it what was going on.

    To freeze at run time as well costs four times as long for each class when it is imported, and three
    times as long for each object (measured): there are a hundred such classes, and each call of a verb makes
    some of their objects. What users get and keep is frozen for good: `dataclass(frozen=True, slots=True)`.

    >>> @frozen(eq=True)
    ... class Point:
    ...     x: int
    >>> Point(1) == Point(1)
    True
    """
    if made is None:
        return dataclass(slots=True, eq=eq, unsafe_hash=eq, repr=eq)
    slotted = dataclass(slots=True, eq=False, repr=False)(made)
    slotted.__repr__ = _shown  # type: ignore[method-assign] # one for all: nothing to compile
    return slotted


def _shown(self: Any) -> str:
    """Print as dataclasses do."""
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"
