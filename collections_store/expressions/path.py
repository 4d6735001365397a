"""Paths: the keys from the top of a body down to one field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from ..errors import InvalidFilter, shortened
from .values import MISSING

ANY = "$**"
"""The end of a field of a wildcard index."""
MAX_CACHED = 1024
MAX_KEYS = 200
"""As deep as a body may be (see `codec.MAX_DEPTH`)."""


@dataclass(frozen=True, slots=True, init=False)
class Path:
    """The keys from the top of a body down to one field.

    `Path.parse` splits at dots. The constructor takes each key unchanged, and so can name a key that holds a dot or
    starts with `$`:

    >>> Path.parse("address.city") == Path("address", "city")
    True
    >>> print(Path("a.b", "c").keys)
    ('a.b', 'c')
    """

    keys: tuple[str, ...]

    def __init__(self, *keys: str) -> None:
        if len(keys) > MAX_KEYS:
            raise InvalidFilter(".".join(keys), f"a path has at most {MAX_KEYS} keys")
        for key in keys:
            _check(key, keys)
        object.__setattr__(self, "keys", keys)

    @classmethod
    def parse(cls, dotted: str) -> Path:
        """Read a dotted path. Every string is a path; an empty part names the empty key."""
        if not isinstance(dotted, str):
            raise InvalidFilter("", f"a path must be a string, got {shortened(dotted)}")
        return parsed(dotted)

    def __str__(self) -> str:
        return ".".join(self.keys)

    def __repr__(self) -> str:
        return path_repr(self.keys)


class Wildcard(Path):
    """All paths that begin with some keys, or equal these: of an index such as "a.$**"."""

    __slots__ = ()

    def has(self, path: Path) -> bool:
        """Return whether a path is one of these, and has no number, which is a key or a position."""
        begins = bool(path.keys) and path.keys[: len(self.keys)] == self.keys
        return begins and not any(map(is_index, path.keys))

    def __str__(self) -> str:
        return ".".join((*self.keys, ANY))

    def __repr__(self) -> str:
        return f"Wildcard({', '.join(map(repr, self.keys))})"


@lru_cache(maxsize=MAX_CACHED)
def parsed(dotted: str) -> Path:
    """Return the path of a dotted string."""
    return Path(*dotted.split("."))


class NamedField:
    """The base of `F("name")` and `F(Person).name`, which name a path wherever a field is named."""

    __slots__ = ("_path",)
    _path: str | Path


FieldLike: TypeAlias = str | Path | NamedField
"""What names a field."""


def field_name(field: Any) -> Any:
    """Return the string or the `Path` of a field of `F`, and anything else unchanged."""
    return field._path if isinstance(field, NamedField) else field


def path_or_text(path: Path) -> Path | str:
    """Return the string that filters and sorts read as the path, or the path without such a string."""
    text = str(path)
    is_other = text.startswith("$") or path.keys[:1] == ("_id",)  # metadata
    return path if is_other or parsed(text) != path else text


def path_repr(keys: Iterable[str]) -> str:
    """Return the Python expression of the path."""
    return f"Path({', '.join(map(repr, keys))})"


def path_prefixes(keys: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the prefixes of a path, itself included; the only prefix of no keys is the body itself."""
    return [keys[:depth] for depth in range(min(1, len(keys)), len(keys) + 1)]


def is_index(key: str) -> bool:
    """Return whether `key` may name an element of an array: "0", "12", not "01" or "-1".

    No array has 10**9 elements (a body ends at 16 MiB), and SQLite counts modulo 2**32.
    """
    return len(key) < 10 and key.isascii() and key.isdigit() and (key == "0" or key[0] != "0")


def walk(value: Any, keys: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Return the value at the end of a path (or `MISSING`) and no keys, or else the first array on the path and the
    remaining keys. A number leads into the element at that index.
    """
    for depth, key in enumerate(keys):
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif not isinstance(value, list):
            return MISSING, ()
        elif not is_index(key):
            return value, keys[depth:]
        else:
            value = value[int(key)] if int(key) < len(value) else MISSING
    return value, ()


def element_index(key: str) -> int | None:
    """Return the index of the element that `key` names in an update, 1 for "1" and "01"; None: no index."""
    digits = key.lstrip("0") or key[:1]
    return int(digits) if is_index(digits) else None


def _check(key: object, keys: tuple[str, ...]) -> None:
    if not isinstance(key, str):
        raise InvalidFilter("", f"a key must be a string, got {shortened(key)}")
    if "\0" in key:
        problem = "a key must not hold a NUL character: no stored body does"
        raise InvalidFilter(".".join(keys), problem)
    try:
        key.encode()
    except UnicodeEncodeError:
        problem = "a key must be valid Unicode, without lone surrogates"
        raise InvalidFilter(repr(key), problem) from None
