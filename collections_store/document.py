"""What collections hold and methods return: documents, pages, expiry times, write requests and results.

Times are microseconds. An object whose `expires_at` is not after now is gone for every verb at once;
`purge_expired` deletes its row later.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .errors import (
    CollectionsStoreError,
    InvalidId,
    InvalidName,
    InvalidOption,
    outcome_of,
    shortened,
)

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

    if not TYPE_CHECKING:  # a type checker shall see that a document has no fields of its own

        def __getitem__(self, field: object) -> Any:
            raise TypeError(f"a Document has no fields: its body has, document.body[{field!r}]")

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
    """The slots of a `Document`, which can be set."""

    __slots__ = ("body", "created_us", "expires_us", "id", "updated_us", "version")


_allocate: Final = object.__new__


def new_document(  # noqa: PLR0917 - keywords take longer
    id: str, body: Any, version: int, created: int, updated: int, expires: int | None
) -> Document:
    """Return `Document(...)` in a fifth of the time: a frozen class sets each slot by a call, which is most of what a
    row costs beside its body.
    """
    document: Any = _allocate(_Unfrozen)
    document.id, document.body, document.version = id, body, version
    document.created_us, document.updated_us, document.expires_us = created, updated, expires
    document.__class__ = Document
    return document  # type: ignore[no-any-return]


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
    """Return `ids` if each can be one; a single string is not a list of them."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidId(ids, "give a list of ids")
    return tuple(map(check_id, ids))


def _check_bytes(id: str) -> None:
    try:
        size = len(id.encode())
    except UnicodeEncodeError:
        raise InvalidId(id, "it holds a lone surrogate, which is not Unicode") from None
    if size > MAX_ID_BYTES:
        raise InvalidId(id, f"{size:,} bytes are more than {MAX_ID_BYTES:,}")


FOREVER: Final = 0
"""A time to live without end, as opposed to none given: then the collection's own counts."""
MAX_TTL: Final = 1000 * 365 * 86_400
"""Seconds; with much more, no calendar knows the day."""
_MICROSECOND: Final = timedelta(microseconds=1)


def read_ttl(ttl: Any, option: str = "ttl") -> int | None:
    """Return a time to live in microseconds, `FOREVER` for infinity, None for None; raises
    `InvalidOption` for what cannot be honoured.

    >>> read_ttl(1.5), read_ttl(timedelta(minutes=1)), read_ttl(math.inf)
    (1500000, 60000000, 0)
    """
    if ttl is None:
        return None
    if isinstance(ttl, timedelta):
        found = ttl // _MICROSECOND
    elif isinstance(ttl, bool) or not isinstance(ttl, int | float) or ttl != ttl:  # noqa: PLR0124
        raise InvalidOption(option, f"{shortened(ttl)} is neither seconds nor a timedelta")
    elif ttl == math.inf:
        return FOREVER
    else:
        found = int(min(max(ttl, -1), MAX_TTL + 1) * 1_000_000)
    if not 0 < found <= MAX_TTL * 1_000_000:
        raise InvalidOption(
            option,
            f"{shortened(ttl)} is not between a microsecond and 1,000 years; "
            "math.inf is for objects that never expire",
        )
    return found


class Request:
    """What all of them are, so that a list of several kinds has a type."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class InsertOne(Request):
    """Insert an object, under a new id unless one is given: see `Collection.insert_one`."""

    body: Any
    id: str | None = field(default=None, kw_only=True)
    ttl: float | timedelta | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class UpdateOne(Request):
    """Change the first object that matches: see `Collection.update_one`."""

    filter: Any
    update: Any
    upsert: bool = False
    array_filters: Any = field(default=None, kw_only=True)
    sort: Any = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class UpdateMany(Request):
    """Change the objects that match: see `Collection.update_many`."""

    filter: Any
    update: Any
    upsert: bool = False
    array_filters: Any = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ReplaceOne(Request):
    """Give the first object that matches another body: see `Collection.replace_one`."""

    filter: Any
    replacement: Any
    upsert: bool = False
    sort: Any = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class DeleteOne(Request):
    """Delete the first object that matches: see `Collection.delete_one`."""

    filter: Mapping[str, Any] | Any


@dataclass(frozen=True, slots=True)
class DeleteMany(Request):
    """Delete the objects that match: see `Collection.delete_many`."""

    filter: Mapping[str, Any] | Any


@dataclass(frozen=True, slots=True)
class InsertOneResult:
    """The id of the object that was inserted."""

    inserted_id: str


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """How many objects were deleted."""

    deleted_count: int


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """How many objects an update was for, how many of them it changed, and the id of the one that it
    inserted because there was none. `version` is that of the object after an update of one, or of the one
    that was inserted; None: there is none, or `update_many` found some.
    """

    matched_count: int
    modified_count: int
    upserted_id: str | None = None
    version: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not written and why: `position` counts from 0, in the order given."""

    position: int
    id: str | None
    error: CollectionsStoreError


@dataclass(frozen=True, slots=True)
class PutManyResult:
    """What became of the objects given: new ones, those that took the place of others, those that
    were left as they are (`mode="ignore"`), and those that were refused.
    """

    inserted_count: int = 0
    replaced_count: int = 0
    unchanged_count: int = 0
    refused: tuple[Refusal, ...] = field(default=(), repr=False)

    @property
    def written_count(self) -> int:
        """How many objects were written."""
        return self.inserted_count + self.replaced_count

    def __add__(self, other: PutManyResult) -> PutManyResult:
        return PutManyResult(
            self.inserted_count + other.inserted_count,
            self.replaced_count + other.replaced_count,
            self.unchanged_count + other.unchanged_count,
            self.refused + other.refused,
        )


@dataclass(frozen=True, slots=True)
class InsertManyResult:
    """The ids of the objects that were inserted, in their order."""

    inserted_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkWriteResult:
    """What the requests of a bulk came to, added up; `inserted_ids` and `upserted_ids` hold ids by the
    positions of their requests, `refused` the requests that failed.
    """

    inserted_count: int = 0
    matched_count: int = 0
    modified_count: int = 0
    deleted_count: int = 0
    upserted_ids: dict[int, str] = field(default_factory=dict)
    inserted_ids: dict[int, str] = field(default_factory=dict, repr=False)
    refused: tuple[Refusal, ...] = field(default=(), repr=False)

    @property
    def upserted_count(self) -> int:
        """How many objects were inserted because an update found none."""
        return len(self.upserted_ids)

    def __add__(self, other: Any) -> BulkWriteResult:
        return BulkWriteResult(
            self.inserted_count + other.inserted_count,
            self.matched_count + other.matched_count,
            self.modified_count + other.modified_count,
            self.deleted_count + other.deleted_count,
            {**self.upserted_ids, **other.upserted_ids},
            {**self.inserted_ids, **other.inserted_ids},
            self.refused + other.refused,
        )


def partial_result(error: BaseException) -> PutManyResult | BulkWriteResult | None:
    """Return the counts of what `put_many`, `insert_many` or `bulk_write` had written when it was cancelled, or
    failed between two batches; None: `error` does not come from such a call, or nothing was written.

    >>> partial_result(ValueError()) is None
    True
    """
    outcome = outcome_of(error)
    result = None if outcome is None else outcome.result
    return result if isinstance(result, PutManyResult | BulkWriteResult) else None


R = TypeVar("R", PutManyResult, BulkWriteResult)


def in_order(result: R) -> R:
    """Return a result whose refusals are in the order of their positions."""
    return replace(result, refused=tuple(sorted(result.refused, key=lambda each: each.position)))
