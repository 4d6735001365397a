"""Recorded changes, filters on them, and the tokens of positions in a feed.

A token is an opaque string. Format 1: base64 (URL-safe) of the byte 1, the 4 bytes of the feed's key, 4 bytes of
SHA-256 over the collection's name, the position in the feed as 8 bytes, and 4 bytes of SHA-256 over all these. A token
is neither secret nor signed: the holder may read every change.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeAlias, get_args

from ..codec import Codec
from ..document import Body_co, Document
from ..errors import InvalidFilter, InvalidOption, InvalidToken, shortened
from ..expressions.nodes import Meta, nodes_of
from .conditions import Expression, Field, FitsSchema, Metadata, Text, leaves
from .filter import EVERYTHING, Filter
from .matcher import matches as filter_matches

ChangeKind: TypeAlias = Literal["insert", "update", "remove", "expire"]
KINDS: Final[frozenset[ChangeKind]] = frozenset(get_args(ChangeKind))
REMOVALS: Final[frozenset[ChangeKind]] = frozenset({"remove", "expire"})
"""The kinds after which there is no document."""
_FORMAT: Final = b"\x01"
_SIZE: Final = 21


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
    if not isinstance(token, str):
        problem = f'must be the `token` of a change, or "oldest", got {shortened(token)}'
        raise InvalidToken(problem)
    try:
        read = urlsafe_b64decode(token.encode("ascii"))
    except ValueError:
        read = b""
    is_whole = len(read) == _SIZE and read[:1] == _FORMAT and read[-4:] == _digest(read[:-4])
    if not is_whole or urlsafe_b64encode(read).decode() != token:
        raise InvalidToken(f"must be an unchanged token of this version, got {shortened(token)}")
    position = ChangePosition(read[1:5].hex(), int.from_bytes(read[9:17], "big"))
    return position, read[5:9] == _digest(collection.encode())


def _digest(part: bytes) -> bytes:
    return hashlib.sha256(part).digest()[:4]
