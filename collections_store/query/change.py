"""Recorded changes, filters on them, and the tokens of positions in a feed.

A token is an opaque string. Format 1: base64 (URL-safe) of the byte 1, the 4 bytes of the feed's key, 4
bytes of SHA-256 over the collection's name, the place in the feed as 8 bytes, and 4 bytes of SHA-256
over all these. It is not secret and not sealed: its holder may read every change.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args

from ..aggregation.expressions.nodes import Meta
from ..codec import Codec
from ..document import Document
from ..errors import InvalidFilter, InvalidOption, InvalidToken, shortened
from .conditions import Expression, Field, FitsSchema, Metadata
from .filter import Filter
from .matcher import matches as filter_matches

ChangeKind: TypeAlias = Literal["insert", "update", "remove", "expire"]
KINDS: Final[frozenset[ChangeKind]] = frozenset(get_args(ChangeKind))
REMOVALS: Final[frozenset[ChangeKind]] = frozenset({"remove", "expire"})
"""The kinds after which there is no document."""
MAX_POSITION: Final = 2**63 - 1
_FORMAT: Final = b"\x01"
_SIZE: Final = 21
_KNOWN: Final = frozenset({"id", "version"})


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a document.

    `kind` is "insert", "update", "remove" or "expire". `version` is the one that was written or, of a
    removed document, its last. `time` is when its writer wrote it, in UTC and by the writer's clock.
    `body` is the document's body after the change and `before` the one before it; null is a body, so
    `has_body` and `has_before` say whether they were recorded. `watch(after=token)` returns the changes
    after this one.
    """

    kind: ChangeKind
    id: str
    version: int
    time: datetime
    body: Any = None
    before: Any = None
    has_body: bool = field(default=False, repr=False)
    has_before: bool = field(default=False, repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """A filter on changes: their kinds, and the documents they change."""

    filter: Filter = Filter()  # noqa: RUF009 - it is frozen
    kinds: frozenset[ChangeKind] = KINDS

    @classmethod
    def parse(cls, filter: Any, kinds: Any, codec: Codec) -> ChangeFilter:
        """Read the arguments of a caller; raises `InvalidFilter` and `InvalidOption`."""
        asked = Filter.parse(filter, codec=codec)
        for name in _metadata(asked) - _KNOWN:
            problem = "must be $id or $version, the only metadata of a change besides its `time`"
            raise InvalidFilter(f"${name}", problem)
        return cls(asked, KINDS if kinds is None else _kinds(kinds))

    def check(self, bodies: str) -> None:
        """Raise `InvalidFilter` if the recorded `bodies` (see `Feed`) do not decide the filter."""
        if not self._asks_bodies or bodies == "both":
            return
        if bodies == "none":
            raise InvalidFilter(
                "", 'changes are recorded without bodies: open the collection with changes="both"'
            )
        if self.kinds & REMOVALS:
            raise InvalidFilter(
                "",
                "the bodies of what was removed are not recorded: open the collection with "
                'changes="both", or ask for kinds=["insert", "update"]',
            )

    def is_open(self, change: Change) -> bool:
        """Return whether the change was recorded without the body that decides whether it matches."""
        known = change.has_before if change.kind in REMOVALS else change.has_body
        return self._asks_bodies and change.kind in self.kinds and not known

    def matches(self, change: Change, *, ordered: bool) -> bool:
        """Return whether a change matches: the document after it or, of a removed one, before it."""
        if change.kind not in self.kinds:
            return False
        body = change.before if change.kind in REMOVALS else change.body
        return filter_matches(
            self.filter, Document(change.id, body, change.version), ordered=ordered
        )

    @property
    def _asks_bodies(self) -> bool:
        asking = (Field, FitsSchema, Expression)
        return any(isinstance(part, asking) for part in _parts(self.filter.condition))


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """A position in a feed: behind the change of that number; 0 is before all."""

    key: str
    number: int

    def to_token(self, collection: str) -> str:
        """Return the token."""
        key, number = bytes.fromhex(self.key), self.number.to_bytes(8, "big")
        said = _FORMAT + key + _digest(collection.encode()) + number
        return urlsafe_b64encode(said + _digest(said)).decode()


def read_token(token: object, collection: str) -> tuple[ChangePosition, bool]:
    """Return the position of a token, and whether it belongs to a collection of that name; raises `InvalidToken`."""
    if not isinstance(token, str):
        raise InvalidToken(f'{shortened(token)} is no token: give a change\'s `token`, or "oldest"')
    said = _bytes(token)
    if len(said) != _SIZE or said[:1] != _FORMAT or said[-4:] != _digest(said[:-4]):
        raise InvalidToken(f"{shortened(token)} is damaged, or no token of this version")
    place = ChangePosition(said[1:5].hex(), int.from_bytes(said[9:17], "big"))
    return place, said[5:9] == _digest(collection.encode())


def _bytes(token: str) -> bytes:
    try:
        said = urlsafe_b64decode(token.encode("ascii"))
    except (ValueError, binascii.Error):
        return b""
    return said if urlsafe_b64encode(said).decode() == token else b""


def _digest(said: bytes) -> bytes:
    return hashlib.sha256(said).digest()[:4]


def _kinds(kinds: Any) -> frozenset[ChangeKind]:
    try:
        found = frozenset([kinds] if isinstance(kinds, str) else kinds)
    except TypeError:
        raise InvalidOption("kinds", f"{shortened(kinds)} is no list of kinds") from None
    if not found or found - KINDS:
        known = ", ".join(map(repr, get_args(ChangeKind)))
        raise InvalidOption("kinds", f"{shortened(kinds)} is no list of some of {known}")
    return found


def _metadata(filter: Filter) -> set[str]:
    """Return what is asked of that the store knows of an object."""
    parts = _parts(filter.condition)
    return {part.field for part in parts if isinstance(part, Metadata | Meta)}


def _parts(value: Any) -> Iterator[Any]:
    """Yield a condition, or a formula, and all of what it is made."""
    yield value
    if isinstance(value, tuple | list):
        for each in value:
            yield from _parts(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _parts(getattr(value, each.name))
