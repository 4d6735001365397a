"""`value_class`, the decorator of value classes, and `lazy_type`, an annotation whose module is imported on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ForwardRef, TypeVar, dataclass_transform, overload

T = TypeVar("T")


def lazy_type(module: str, name: str) -> Any:
    """Return a reference to a type that `typing.get_type_hints` resolves, by importing the module then."""
    return ForwardRef(f"__import__({module!r}, fromlist=('',)).{name}")


@overload
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def value_class(cls: type[T], /) -> type[T]: ...


@overload
@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def value_class(*, eq: bool) -> Callable[[type[T]], type[T]]: ...


def value_class(
    cls: type[T] | None = None, /, *, eq: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a dataclass with slots, frozen for the type checker. With `eq`, objects compare and hash by their fields.
    All print their fields, for errors.

    Freezing at run time as well makes the import of a class take four times as long and the creation of an object
    three times (measured). A hundred such classes exist, and every call creates objects. Classes of users' objects are
    frozen at run time too: `dataclass(frozen=True, slots=True)`.

    >>> @value_class(eq=True)
    ... class Point:
    ...     x: int
    >>> Point(1) == Point(1)
    True
    """
    if cls is None:
        return partial(_value_class, eq=eq)
    return _value_class(cls, eq=eq)


def _value_class(cls: type[T], *, eq: bool) -> type[T]:
    made = dataclass(slots=True, eq=eq, unsafe_hash=eq, repr=False)(cls)
    made.__repr__ = _repr  # type: ignore[method-assign] # one for all: nothing to compile
    return made


def _repr(self: Any) -> str:
    """Print as dataclasses do."""
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"
