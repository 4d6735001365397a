"""What a collection holds, and what the verbs answer with."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from .errors import InvalidId, InvalidName

SKILL_MEMORY: Final = "skill_memory"
"""The collection of `skill_memory`, unless told otherwise."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OTHERS: Final = re.compile(rb"[^A-Za-z0-9]")
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document:
    """An object of a collection: its id, its JSON body, and what the store knows of it.

    `version` is 1 when the object comes into being and grows by one with each write. It unpacks as
    the pair that AEA's storage returns:

    >>> id, body = Document("berlin", {"population": 3_900_000})
    >>> id
    'berlin'
    """

    id: str
    body: Any
    version: int = 1
    created_us: int = field(default=0, repr=False)
    updated_us: int = field(default=0, repr=False)
    expires_us: int | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Any]:
        yield self.id
        yield self.body

    @property
    def created_at(self) -> datetime:
        """When the object came into being, in UTC."""
        return moment(self.created_us)

    @property
    def updated_at(self) -> datetime:
        """When the object was last written, in UTC."""
        return moment(self.updated_us)

    @property
    def expires_at(self) -> datetime | None:
        """When the object ceases to be, in UTC; None: never."""
        return None if self.expires_us is None else moment(self.expires_us)


class _Unfrozen:
    """A document that is being made. A frozen class sets each of its slots by a call: this takes a fifth of the
    time, which is most of what a row costs beside its body.
    """

    __slots__ = ("body", "created_us", "expires_us", "id", "updated_us", "version")

    def __init__(  # noqa: PLR0917 - keywords take longer
        self, id: str, body: Any, version: int, created: int, updated: int, expires: int | None
    ) -> None:
        self.id, self.body, self.version = id, body, version
        self.created_us, self.updated_us, self.expires_us = created, updated, expires


def made(  # noqa: PLR0917
    id: str, body: Any, version: int, created: int, updated: int, expires: int | None
) -> Document:
    """Return `Document(...)`, sooner."""
    document: Any = _Unfrozen(id, body, version, created, updated, expires)
    document.__class__ = Document
    found: Document = document
    return found


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects in order; `cursor` leads to the next page and is None when there is none.

    >>> [document.id for document in Page((Document("berlin", {}),))]
    ['berlin']
    """

    documents: tuple[Document, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)


@dataclass(frozen=True, slots=True)
class Anonymous:
    """A body that is no object of a collection: an element of an array, or what a stage of a
    pipeline made.
    """

    body: Any


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection as `Store.collections` lists it.

    `count` is exact. `size` is in bytes: table and indexes on disk where the database can tell,
    else the sum of the bodies.
    """

    name: str
    count: int
    size: int
    created_at: datetime


def metadatum(document: Document, name: str) -> Any:
    """Return what the store knows of an object as a filter sees it: times in microseconds."""
    return getattr(document, name if name in {"id", "version"} else f"{name[:-3]}_us")


def moment(microseconds: int) -> datetime:
    """Return the UTC time that many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def microseconds(time: datetime) -> int:
    """Return the microseconds from 1970 to an aware `time`, exactly."""
    return (time - EPOCH) // timedelta(microseconds=1)


def check_name(name: object) -> str:
    """Return `name` if a collection can have it; raises `InvalidName`."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return str.__str__(name)
    raise InvalidName(name)


def spelled(text: str) -> str:
    """Spell a text with what names may have: letters, digits and, each other byte, `_xx`. No two texts are
    spelled alike, and `__` does not come of any.

    >>> spelled("my-shop")
    'my_2dshop'
    """
    spelt = _OTHERS.sub(
        lambda byte: b"_%02x" % byte.group()[0], text.encode(errors="surrogatepass")
    )
    return spelt.decode()


MAX_ID_BYTES = 2000
"""PostgreSQL's index takes rows up to 2,704 bytes."""


def check_id(id: object) -> str:
    """Return `id` if an object can have it: text of up to 2,000 bytes without NUL; raises `InvalidId`."""
    if not isinstance(id, str):
        raise InvalidId(id, f"it is {type(id).__name__}, not a string")
    if "\0" in id:
        raise InvalidId(id, "it holds a NUL character")
    if len(id) * 4 > MAX_ID_BYTES or not id.isascii():
        _check_bytes(id)
    return id if type(id) is str else str.__str__(id)


def new_id() -> str:
    """Return an id that no other object has: 48 bits of milliseconds first, so that indexes grow at
    their end, then 80 random ones; 32 characters.
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def check_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Return `ids` if each can be one; a single text is not a list of them."""
    if isinstance(ids, str):
        raise InvalidId(ids, "give a list of ids")
    return tuple(map(check_id, ids))


def _check_bytes(id: str) -> None:
    try:
        size = len(id.encode())
    except UnicodeEncodeError:
        raise InvalidId(id, "it holds a lone surrogate, which is not Unicode") from None
    if size > MAX_ID_BYTES:
        raise InvalidId(id, f"{size:,} bytes are more than {MAX_ID_BYTES:,}")
