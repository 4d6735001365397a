"""Recorded changes, filters on them, change documents, and the tokens of positions in feeds.

A token is an opaque string. Format 1, of a collection: base64 (URL-safe) of the byte 1, the 4 bytes of the feed's key,
4 bytes of SHA-256 over the collection's name, the position in the feed as 8 bytes, and 4 bytes of SHA-256 over all
these. Format 3, of a store: the byte 3; the 8 bytes of the database's identity; for each feed, in the order of the
keys, the key, the position, the length of the collection's name in a byte, and the name; and 4 bytes of SHA-256 over
all these. Format 2 is format 3 with the byte 2, without an identity. A token is neither secret nor signed: the holder
may read every change.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeAlias, get_args

from ..codec import Codec
from ..codec.times import iso
from ..document import Body_co, Document
from ..errors import InvalidFilter, InvalidOption, InvalidToken, shortened
from ..expressions.classes import value_class
from ..expressions.nodes import Meta, nodes_of
from .conditions import Expression, Field, FitsSchema, Metadata, Text, leaves
from .filter import EVERYTHING, Filter
from .matcher import matches as filter_matches

ChangeKind: TypeAlias = Literal["insert", "update", "remove", "expire"]
KINDS: Final[frozenset[ChangeKind]] = frozenset(get_args(ChangeKind))
REMOVALS: Final[frozenset[ChangeKind]] = frozenset({"remove", "expire"})
"""The kinds after which there is no document."""
_FORMAT: Final = b"\x01"
_STORE_FORMAT: Final = b"\x03"
_ANONYMOUS: Final = b"\x02"
"""The format of a store's tokens without the identity of the database."""
_IDENTITY_SIZE: Final = 8
_SIZE: Final = 17
FeedPositions: TypeAlias = Mapping[str, tuple[str, int]]
"""For the key of each feed the collection's name, and the position in the feed."""
_OPERATIONS: Final[Mapping[ChangeKind, str]] = {
    "insert": "insert", "update": "update", "remove": "delete", "expire": "delete",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change(Generic[Body_co]):
    """A change of a document.

    `kind` is "insert", "update", "remove" or "expire". `version` is the written version or, of a removed document, the
    last. `time` is the time of the write, in UTC and by the writer's clock. `body` is the document's body after the
    change, `before` the body before; null is a body, so `has_body` and `has_before` are true for recorded bodies.
    `watch(after=token)` returns the changes after this change.
    """

    kind: ChangeKind
    id: str
    version: int
    time: datetime
    body: Body_co = None  # type: ignore[assignment]
    before: Body_co = None  # type: ignore[assignment]
    has_body: bool = field(default=False, repr=False)
    has_before: bool = field(default=False, repr=False)
    token: str = field(default="", repr=False)


class _Unfrozen(Generic[Body_co]):
    """The slots of a `Change`, without the freezing."""

    __slots__ = (
        *("kind", "id", "version", "time", "body", "before", "has_body", "has_before", "token"),
    )


_allocate: Final = object.__new__


def new_change(  # noqa: PLR0917 - keywords take longer
    kind: ChangeKind,
    id: str,
    version: int,
    time: datetime,
    body: Any,
    before: Any,
    has_body: bool,
    has_before: bool,
    token: str,
) -> Change:
    """Return `Change(...)` in a third of the time, as `new_document` does."""
    change: Any = _allocate(_Unfrozen)
    change.kind, change.id, change.version, change.time = kind, id, version, time
    change.body, change.before = body, before
    change.has_body, change.has_before, change.token = has_body, has_before, token
    change.__class__ = Change
    return change  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """A filter on changes: their kinds, and the documents they change."""

    filter: Filter = Filter()  # noqa: RUF009 - it is frozen
    kinds: frozenset[ChangeKind] = KINDS
    _needs_bodies: bool = field(init=False, compare=False, repr=False)
    _takes_all: bool = field(init=False, compare=False, repr=False)
    """Whether only the kinds decide."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_takes_all", self.filter.condition == EVERYTHING)
        leaf = Field | FitsSchema | Expression
        needs = any(isinstance(each, leaf) for each in leaves(self.filter.condition))
        object.__setattr__(self, "_needs_bodies", needs)

    @classmethod
    def parse(cls, filter: Any, kinds: Any, codec: Codec) -> ChangeFilter:
        """Read the arguments of a caller; raises `InvalidFilter` and `InvalidOption`."""
        parsed = Filter.parse(filter, codec=codec).at()
        for part in nodes_of(parsed.condition):
            if isinstance(part, Text):
                raise InvalidFilter("$text", "changes are in no text index")
            if isinstance(part, Metadata | Meta) and part.field not in {"id", "version"}:
                problem = (
                    "must be $id or $version, the only metadata of a change besides its `time`"
                )
                raise InvalidFilter(f"${part.field}", problem)
        if kinds is None:
            return cls(parsed)
        try:
            wanted = frozenset([kinds] if isinstance(kinds, str) else kinds)
        except TypeError:
            wanted = frozenset()
        if not wanted or wanted - KINDS:
            known = ", ".join(map(repr, get_args(ChangeKind)))
            raise InvalidOption("kinds", f"must be some of {known}, got {shortened(kinds)}")
        return cls(parsed, wanted)

    def check(self, bodies: str) -> None:
        """Raise `InvalidFilter` if the recorded `bodies` (see `Feed`) do not decide the filter."""
        problem = ""
        if self._needs_bodies and bodies == "none":
            problem = 'changes are recorded without bodies: open the collection with changes="both"'
        elif self._needs_bodies and bodies != "both" and self.kinds & REMOVALS:
            problem = (
                "the bodies of removed documents are not recorded: open the collection with "
                'changes="both", or pass kinds=["insert", "update"]'
            )
        if problem:
            raise InvalidFilter("", problem)

    def is_open(self, change: Change) -> bool:
        """Return whether the change was recorded without the body on which the filter depends."""
        known = change.has_before if change.kind in REMOVALS else change.has_body
        return self._needs_bodies and change.kind in self.kinds and not known

    def matches(self, change: Change, *, ordered: bool) -> bool:
        """Return whether a change matches: the document after the change or, of a removed document, before."""
        if self._takes_all or change.kind not in self.kinds:
            return change.kind in self.kinds
        body = change.before if change.kind in REMOVALS else change.body
        return filter_matches(
            self.filter, Document(change.id, body, change.version), ordered=ordered
        )


def document_of(change: Change, collection: str) -> dict[str, Any]:
    """Return the change document of a change: with MongoDB's names, and without the bodies that were not recorded."""
    document = {
        "_id": change.token,
        "operationType": _OPERATIONS[change.kind],
        "wallTime": iso(change.time),
        "ns": {"coll": collection},
        "documentKey": {"_id": change.id},
        "version": change.version,
    }
    if change.kind == "expire":
        document["expired"] = True
    if change.has_body:
        document["fullDocument"] = change.body
    if change.has_before:
        document["fullDocumentBeforeChange"] = change.before
    return document


@value_class
class ChangeResult:
    """What a pipeline makes of a change document, and the token of the change."""

    token: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """A position in a feed: behind the change of that number; 0 is before all."""

    key: str
    number: int

    def to_token(self, collection: str) -> str:
        """Return the token."""
        return tokens_of(self.key, collection)(self.number)


def tokens_of(key: str, collection: str) -> Callable[[int], str]:
    """Return the function that returns the tokens of a collection's positions."""
    beginning = _FORMAT + bytes.fromhex(key) + _digest(collection.encode())

    def token(number: int) -> str:
        text = beginning + number.to_bytes(8, "big")
        return urlsafe_b64encode(text + _digest(text)).decode()

    return token


def read_token(token: object, collection: str) -> tuple[ChangePosition, bool]:
    """Return the position of a token, and whether the token belongs to the collection; raise `InvalidToken`."""
    read = _opened(token)
    if read[:1] in {_STORE_FORMAT, _ANONYMOUS}:
        raise InvalidToken("it is of a store: give it to the store's watch")
    if read[:1] != _FORMAT or len(read) != _SIZE:
        raise _damaged(token)
    position = ChangePosition(read[1:5].hex(), int.from_bytes(read[9:17], "big"))
    return position, read[5:9] == _digest(collection.encode())


class StoreTokens:
    """Returns the tokens of positions in the feeds of a store, from `positions` on. `identity`: of the database, or ""."""

    def __init__(self, identity: str, positions: FeedPositions) -> None:
        self._text = bytearray(_STORE_FORMAT if identity else _ANONYMOUS) + bytes.fromhex(identity)
        self._at: dict[str, int] = {}
        for key, (name, number) in sorted(positions.items()):
            self._text += bytes.fromhex(key)
            self._at[key] = len(self._text)
            self._text += number.to_bytes(8, "big") + bytes([len(name)]) + name.encode()

    def after(self, key: str, number: int) -> str:
        """Return the token after the next change, which is at a position of a feed."""
        at = self._at[key]
        self._text[at : at + 8] = number.to_bytes(8, "big")
        return self.token()

    def token(self) -> str:
        """Return the token of the present positions."""
        return urlsafe_b64encode(self._text + _digest(self._text)).decode()


def read_store_token(token: object) -> tuple[str, FeedPositions]:
    """Return the identity of the database, "" if unknown, and the positions of a token of a store; raise `InvalidToken`."""
    read, positions = _opened(token), dict[str, tuple[str, int]]()
    if read[:1] == _FORMAT:
        raise InvalidToken("it is of a collection: give it to the collection's watch")
    if read[:1] not in {_STORE_FORMAT, _ANONYMOUS}:
        raise _damaged(token)
    at = 1 if read[:1] == _ANONYMOUS else 1 + _IDENTITY_SIZE
    identity = read[1:at].hex()
    try:
        while at < len(read):
            end = at + 13 + read[at + 12]
            name = read[at + 13 : end].decode("ascii")
            positions[read[at : at + 4].hex()] = name, int.from_bytes(read[at + 4 : at + 12], "big")
            at = end
    except (IndexError, UnicodeDecodeError):  # somebody made it
        raise _damaged(token) from None
    if at != len(read):
        raise _damaged(token)
    return identity, positions


def _opened(token: object) -> bytes:
    """Return what a token holds, without the digest; raise `InvalidToken`."""
    if not isinstance(token, str):
        problem = f'must be the `token` of a change, or "oldest", got {shortened(token)}'
        raise InvalidToken(problem)
    try:
        read = urlsafe_b64decode(token.encode("ascii"))
    except ValueError:
        read = b""
    if read[-4:] != _digest(read[:-4]) or urlsafe_b64encode(read).decode() != token:
        raise _damaged(token)
    return read[:-4]


def _damaged(token: object) -> InvalidToken:
    return InvalidToken(f"must be an unchanged token of this version, got {shortened(token)}")


def _digest(part: bytes | bytearray) -> bytes:
    return hashlib.sha256(part).digest()[:4]
