"""The cursor of a page: a place in an order as an opaque text, sealed with the collection's own key.

Whoever holds it can neither change it nor use it for another collection, filter or order. Format 1:
base64 (URL-safe, unpadded) of the byte 1, 16 bytes of HMAC-SHA256 over question and place, and the
place as JSON: `k`, a pair of rank and value for each field of the order, and `s`, the place in
natural order.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Final

from . import codec
from .errors import InvalidCursor, shortened
from .filter import Filter
from .ordering import Key, Sort

_FORMAT: Final = b"\x01"
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
    return _as_text(_FORMAT + _seal(place, key, filter, sort) + place)


def unseal(cursor: object, key: str, filter: Filter, sort: Sort) -> Position:
    """Return the place of a cursor; raises `InvalidCursor`."""
    if not isinstance(cursor, str):
        raise InvalidCursor(f"{shortened(cursor)} is no cursor: give a page's `cursor`")
    sealed = _from_text(cursor)
    if sealed[:1] != _FORMAT:
        raise InvalidCursor(f"{shortened(cursor)} is no cursor of this version")
    place = sealed[1 + _SEAL :]
    if not hmac.compare_digest(sealed[1 : 1 + _SEAL], _seal(place, key, filter, sort)):
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


def _seal(place: bytes, key: str, filter: Filter, sort: Sort) -> bytes:
    question = hashlib.sha256(f"{filter!r} {sort!r}".encode()).digest()
    whole = hmac.new(key.encode(), _FORMAT + question + place, hashlib.sha256)
    return whole.digest()[:_SEAL]
