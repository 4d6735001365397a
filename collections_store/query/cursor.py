"""The cursor of a page: a place in an order as an opaque text, sealed with the collection's own key.

Whoever holds it can neither change it nor use it for another collection, filter or order. It is base64 (URL-safe,
unpadded) of a byte, the format, 16 bytes of HMAC-SHA256 over question and place, and the place as JSON: `k`, a pair of
rank and value for each field of the order, and `s`, the place in natural order.

The question is JSON: the filter as a document, and the fields of the sort. Format 1, which is still read, spelled it
as Python printed the classes of version 0.1: `_NAMES_1` has these names, whatever the classes are called now.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .. import codec
from ..errors import InvalidCursor, shortened
from . import conditions
from .filter import Filter
from .path import Path
from .patterns.pattern import Pattern
from .sort import Key, Sort, SortField

_FORMAT: Final = b"\x02"
_SEAL: Final = 16
_RULES: Final = codec.Codec(max_bytes=2**40)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in an order: what its fields give, and the place in natural order."""

    keys: tuple[Key, ...]
    seq: int


def seal(position: Position, key: str, filter: Filter, sort: Sort) -> str:
    """Return the cursor of a place."""
    keys = [[rank, value] for rank, value in position.keys]
    place = _RULES.encode({"k": keys, "s": position.seq}).encode()
    return _as_text(_FORMAT + _seal(_FORMAT, place, key, filter, sort) + place)


def unseal(cursor: object, key: str, filter: Filter, sort: Sort) -> Position:
    """Return the place of a cursor; raises `InvalidCursor`."""
    if not isinstance(cursor, str):
        raise InvalidCursor(f"{shortened(cursor)} is no cursor: give a page's `cursor`")
    sealed = _from_text(cursor)
    format = sealed[:1]
    if format not in _QUESTIONS:
        raise InvalidCursor(f"{shortened(cursor)} is no cursor of this version")
    place = sealed[1 + _SEAL :]
    if not hmac.compare_digest(sealed[1 : 1 + _SEAL], _seal(format, place, key, filter, sort)):
        raise InvalidCursor("it was changed, or is of another collection, filter or order")
    read = codec.decode(place)
    return Position(tuple((rank, value) for rank, value in read["k"]), read["s"])


def _as_text(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _from_text(cursor: str) -> bytes:
    """Return what is sealed, or nothing: Python's decoder passes over what is not of its alphabet, and
    over the last bits.
    """
    try:
        sealed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except ValueError:
        return b""
    return sealed if _as_text(sealed) == cursor else b""


def _seal(format: bytes, place: bytes, key: str, filter: Filter, sort: Sort) -> bytes:
    question = hashlib.sha256(_QUESTIONS[format](filter, sort).encode()).digest()
    whole = hmac.new(key.encode(), format + question + place, hashlib.sha256)
    return whole.digest()[:_SEAL]


def _question(filter: Filter, sort: Sort) -> str:
    fields = [[_spelled(each.target), each.descending] for each in sort.fields]
    return json.dumps([_spelled(filter.to_json()), fields], separators=(",", ":"))


def _spelled(value: Any) -> Any:
    """Return a part of a filter document as JSON. A path and a pattern begin with a NUL, which no key holds."""
    match value:
        case Path(keys=keys):
            return f"\0{json.dumps(keys)}"
        case re.Pattern():
            return {"\0pattern": [value.pattern, value.flags]}
        case Mapping():
            return {_spelled(key): _spelled(each) for key, each in value.items()}
        case list() | tuple():
            return list(map(_spelled, value))
    return value


_NAMES_1: Final[dict[type, tuple[str, tuple[str, ...]]]] = {
    Filter: ("Filter", ("condition",)),
    Sort: ("Sort", ("fields",)),
    SortField: ("SortField", ("target", "descending")),
    conditions.Field: ("Field", ("path", "test")),
    conditions.Metadata: ("Metadata", ("field", "test")),
    conditions.And: ("And", ("conditions",)),
    conditions.Or: ("Or", ("conditions", "single")),
    conditions.Not: ("Not", ("condition",)),
    conditions.FitsSchema: ("FitsSchema", ("schema",)),
    conditions.Expression: ("Expression", ("formula",)),
    conditions.Equals: ("Equals", ("value",)),
    conditions.OneOf: ("OneOf", ("lists",)),
    conditions.Compare: ("Compare", ("operator", "value")),
    conditions.HasType: ("HasType", ("types",)),
    conditions.Matches: ("Matches", ("pattern",)),
    conditions.Modulo: ("Modulo", ("divisor", "remainder")),
    conditions.Bits: ("Bits", ("operator", "mask")),
    conditions.Exists: ("Exists", ()),
    conditions.HasSize: ("HasSize", ("size",)),
    conditions.HasElement: ("HasElement", ("tests",)),
    conditions.HasObject: ("HasObject", ("condition",)),
    conditions.Fails: ("Fails", ("tests",)),
    conditions.Passes: ("Passes", ("tests",)),
    conditions.Value: ("Value", ("kind", "text")),
}


def _question_1(filter: Filter, sort: Sort) -> str:
    return f"{_spelled_1(filter)} {_spelled_1(sort)}"


def _spelled_1(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_spelled_1, value))}{',' * (len(value) == 1)})"
    if isinstance(value, Path):
        return f"Path({', '.join(map(repr, value.keys))})"
    if isinstance(value, conditions.Value) and isinstance(value.value, Pattern):
        text = f"/{value.value.pattern}/{int(value.value.flags)}"
        return f"Value(kind={value.kind!r}, text={text!r})"
    if type(value) not in _NAMES_1:
        return repr(value)  # a text, a number, True or False
    name, fields = _NAMES_1[type(value)]
    parts = (f"{field}={_spelled_1(getattr(value, field))}" for field in fields)
    return f"{name}({', '.join(parts)})"


_QUESTIONS: Final[dict[bytes, Callable[[Filter, Sort], str]]] = {
    b"\x01": _question_1,
    _FORMAT: _question,
}
