r"""Bodies to text and back, and what a body may hold; the only room that knows orjson.

The rules:

1. What comes back equals what went in, on every database, or the door is closed to it: the error
   names the dotted path of the offending value, and nothing is written.
2. The text is orjson's: minified, keys as they are, only `"`, `\` and control characters escaped.
   SQLite 3.40 compares a key's spelling, not its meaning, so every text and every path must be
   spelled by this room.
3. A float from 1e16 to 2**64 is spelled out in full (`10000000000000000.0`), or PostgreSQL would
   give it back as an integer.

A plain body is looked through once, level by level, and handed to orjson. Only a body in which that
look finds something unusual takes the careful way, which knows paths.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from .errors import InvalidBody, shortened

MAX_DEPTH = 200
"""Containers within containers; orjson ends at 254, SQLite 3.51 at 1,000."""
MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)

_SPELLED_OUT = 1e16
_PLAIN_LEAVES = frozenset({str, bool, type(None)})
_NUL = b"\\u0000"
_ADVICE = "convert it first, or give the store a `default` function that does"

decode: Callable[[str | bytes], Any] = orjson.loads


@dataclass(frozen=True, slots=True)
class Codec:
    """The value rules of one store.

    `max_bytes` limits the encoded body. `nul` says what becomes of NUL characters, which PostgreSQL
    cannot store: "error" refuses them, "replace" writes U+FFFD. `default` is called with each value
    that is not JSON and returns one that is, as in `json.dumps`.
    """

    max_bytes: int = 16 * 2**20
    nul: Literal["error", "replace"] = "error"
    default: Callable[[Any], Any] | None = None

    def encode(self, body: Any) -> str:
        """Return the body's text; raises `InvalidBody`."""
        text = _encode_plain(body) if _is_plain(body, self.max_bytes) else None
        if text is None or _NUL in text:
            text = orjson.dumps(self._careful(body, (), 0))
        if len(text) > self.max_bytes:
            raise InvalidBody(
                "", f"{len(text):,} bytes of JSON are more than the limit of {self.max_bytes:,}"
            )
        return text.decode()

    def _careful(self, value: Any, path: tuple[str, ...], depth: int) -> Any:
        """Return `value` as orjson shall spell it."""
        match value:
            case None | bool():
                return value
            case enum.Enum():
                return self._foreign(value, path, depth)
            case str():
                return self._text(value, path)
            case int():
                return _integer(value, path)
            case float():
                return _float(value, path)
            case dict():
                return self._object(value, path, _deeper(depth, path))
            case list():
                below = _deeper(depth, path)
                return [self._careful(v, (*path, str(i)), below) for i, v in enumerate(value)]
        return self._foreign(value, path, depth)

    def _object(self, value: dict[Any, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, below in value.items():
            if not isinstance(key, str) or isinstance(key, enum.Enum):
                raise InvalidBody(_dotted(path), f"the key {shortened(key)} is not a string")
            place = (*path, key)
            name = self._text(key, place)
            if name in result:
                raise InvalidBody(_dotted(place), "two keys become one when NUL is replaced")
            result[name] = self._careful(below, place, depth)
        return result

    def _text(self, value: str, path: tuple[str, ...]) -> str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidBody(
                _dotted(path), f"a lone surrogate at character {error.start} is not Unicode"
            ) from None
        if "\0" not in value:
            return str.__str__(value)
        if self.nul == "replace":
            return value.replace("\0", "\ufffd")
        raise InvalidBody(
            _dotted(path), "holds a NUL character; nul='replace' stores U+FFFD in its place"
        )

    def _foreign(self, value: Any, path: tuple[str, ...], depth: int) -> Any:
        kind = type(value).__name__
        if self.default is None:
            raise InvalidBody(_dotted(path), f"{kind} is not JSON: {_ADVICE}")
        try:
            replacement = self.default(value)
        except TypeError as error:
            raise InvalidBody(_dotted(path), f"{kind} is not JSON: {error}") from error
        return self._careful(replacement, path, _deeper(depth, path))


def spell(value: Any) -> str:
    """Return the one spelling of a string or a number that stored texts use."""
    return orjson.dumps(_float(value, ()) if isinstance(value, float) else value).decode()


def _encode_plain(body: Any) -> bytes | None:
    try:
        return orjson.dumps(body)
    except TypeError:
        return None


def _is_plain(body: Any, most: int) -> bool:
    """Return whether orjson spells `body` as rule 1 demands, strings and keys aside. Raises `InvalidBody` for one
    of more than `most` bytes, as far as its values tell, before it is spelled: one that holds the same list again
    and again may be far larger than the memory.
    """
    level, room, plain = [(body,)], most + 2, True
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for values in level:
            room -= 2 * len(values)  # a value is a byte at least, and so is what follows it
            for value in values:
                kind = type(value)
                if kind is str:  # most are texts
                    room -= len(value)
                elif kind in _PLAIN_LEAVES:
                    continue
                elif kind is dict:
                    below.append(value.values())
                elif kind is list:
                    below.append(value)
                elif kind is int:
                    plain = plain and MIN_INTEGER <= value <= MAX_INTEGER
                elif kind is not float or not -_SPELLED_OUT < value < _SPELLED_OUT:
                    plain = False
                    below += _values_in(value)
            if room < 0:
                raise InvalidBody("", f"its bytes of JSON are more than the limit of {most:,}")
        if not below:
            return plain
        level = below
    return False


def _values_in(value: Any) -> tuple[Any, ...]:
    """Return the values in what is a kind of object or array."""
    if isinstance(value, dict):
        return (value.values(),)
    return (value,) if isinstance(value, list) else ()


def _integer(value: int, path: tuple[str, ...]) -> int:
    if MIN_INTEGER <= value <= MAX_INTEGER:
        return int.__int__(value)
    raise InvalidBody(_dotted(path), "an integer beyond 64 bit: store it as a string")


def _float(value: float, path: tuple[str, ...]) -> float | orjson.Fragment:
    if not math.isfinite(value):
        raise InvalidBody(_dotted(path), f"{value} is not JSON: store null or a string")
    if _SPELLED_OUT <= abs(value) < 2.0**64:
        return orjson.Fragment(f"{int(value)}.0")
    return float.__float__(value)


def _deeper(depth: int, path: tuple[str, ...]) -> int:
    if depth == MAX_DEPTH:
        raise InvalidBody(_dotted(path), f"nested deeper than {MAX_DEPTH} levels")
    return depth + 1


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)
