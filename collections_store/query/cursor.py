"""Cursors of pages: a position in an order as an opaque string, sealed with the collection's own key.

A cursor cannot be changed, nor used for another collection, filter or order. A cursor is base64 (URL-safe, unpadded)
of a byte, the format, 16 bytes of HMAC-SHA256 over query and position, and the position as JSON: `k`, a pair of rank
and value for each field of the order, and `s`, the position in natural order.

The query is JSON: the filter as a document, and the fields of the sort. Format 1, which is still read, has the query
as Python printed the classes of version 0.1: `_NAMES_1` has these names, whatever the names of the classes are now.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, TypeAlias

from .. import codec
from ..errors import InvalidCursor, shortened
from ..expressions.path import Path
from ..expressions.patterns import Pattern
from . import conditions
from .filter import Filter
from .sort import Key, Sort, SortField

_FORMAT: Final = b"\x02"
_SEAL: Final = 16
_CODEC: Final = codec.Codec(max_bytes=2**40)
Query: TypeAlias = Callable[[Filter, Sort], str]


@dataclass(frozen=True, slots=True)
class Position:
    """A position in an order: the keys of its fields, and the position in natural order."""

    keys: tuple[Key, ...]
    seq: int


def seal(position: Position, key: str, filter: Filter, sort: Sort) -> str:
    """Return the cursor of a position."""
    keys = [[rank, value] for rank, value in position.keys]
    encoded = _CODEC.encode({"k": keys, "s": position.seq}).encode()
    return _as_text(_FORMAT + _seal(_FORMAT, _query(filter, sort), encoded, key) + encoded)


def unseal(cursor: object, key: str, filter: Filter, sort: Sort) -> Position:
    """Return the position of a cursor; raises `InvalidCursor`."""
    if not isinstance(cursor, str):
        raise InvalidCursor(f"must be the `cursor` of a page, got {shortened(cursor)}")
    sealed = _from_text(cursor)
    format = sealed[:1]
    if format not in _QUERIES:
        raise InvalidCursor(f"must be a cursor of this version, got {shortened(cursor)}")
    encoded = sealed[1 + _SEAL :]
    queries = (query(filter, sort) for query in _QUERIES[format])
    seals = (_seal(format, query, encoded, key) for query in queries)
    if not any(hmac.compare_digest(sealed[1 : 1 + _SEAL], each) for each in seals):
        raise InvalidCursor("it was changed, or is of another collection, filter or order")
    read = codec.decode(encoded)
    return Position(tuple((rank, value) for rank, value in read["k"]), read["s"])


def _as_text(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _from_text(cursor: str) -> bytes:
    """Return the sealed bytes, or none: Python's decoder ignores characters outside the alphabet, and the last bits."""
    try:
        sealed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
    except ValueError:
        return b""
    return sealed if _as_text(sealed) == cursor else b""


def _seal(format: bytes, query: str, encoded: bytes, key: str) -> bytes:
    digest = hashlib.sha256(query.encode()).digest()
    return hmac.digest(key.encode(), format + digest + encoded, "sha256")[:_SEAL]


def _query(filter: Filter, sort: Sort, *, spelled: bool = False) -> str:
    """Return the query as JSON; `spelled`: with the collation's options as given, as older versions sealed them."""
    order = [[_as_json(each.target), each.descending] for each in sort.fields]
    query = [_as_json(filter.to_json()), order]
    if sort.collation is not None:  # the position has keys of the collation
        options = dict(sort.collation.spelled if spelled else sort.collation.options)
        version = sort.collation.version.removeprefix("icu ")
        query.append([{"locale": sort.collation.locale, **options}, version])
    return json.dumps(query, separators=(",", ":"))


def _as_json(value: Any) -> Any:
    """Return a part of a filter document as JSON. A path and a pattern begin with a NUL, as no key does."""
    match value:
        case Path(keys=keys):
            return f"\0{json.dumps(keys)}"
        case re.Pattern():
            return {"\0pattern": [value.pattern, value.flags]}
        case Mapping():
            return {_as_json(key): _as_json(each) for key, each in value.items()}
        case list() | tuple():
            return list(map(_as_json, value))
    return value


_NAMES_1: Final[dict[type, tuple[str, tuple[str, ...]]]] = {
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


_PLAIN_1: Final = re.compile(r"\^?[A-Za-z0-9 _/@,;=-]{1,1000}")
"""The patterns that were printed as plain."""


def _printed_1(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_printed_1, value))}{',' * (len(value) == 1)})"
    if isinstance(value, Path):
        return f"Path({', '.join(map(repr, value.keys))})"
    if isinstance(value, Filter):
        return f"Filter(condition={_printed_1(value.condition)})"
    if isinstance(value, conditions.Value) and isinstance(value.value, Pattern):
        pattern = value.value
        kind = (
            "regex"
            if pattern.options or not _PLAIN_1.fullmatch(pattern.pattern)
            else ("prefix regex" if pattern.pattern.startswith("^") else "plain regex")
        )
        text = f"/{pattern.pattern}/{int(pattern.flags)}"
        return f"Value(kind={kind!r}, text={text!r})"
    if type(value) not in _NAMES_1:
        return repr(value)  # a string, a number, True or False
    name, labels = _NAMES_1[type(value)]
    pairs = zip(labels, fields(value), strict=False)  # those without a label came later
    parts = (f"{label}={_printed_1(getattr(value, field.name))}" for label, field in pairs)
    return f"{name}({', '.join(parts)})"


_QUERIES: Final[dict[bytes, tuple[Query, ...]]] = {
    b"\x01": (lambda what, sort: f"{_printed_1(what)} {_printed_1(sort)}",),
    _FORMAT: (_query, partial(_query, spelled=True)),
}
