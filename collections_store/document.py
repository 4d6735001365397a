"""Documents, their ids and times, names of collections, and write requests.

Times are microseconds. No method finds a document after its `expires_at`; `purge_expired` deletes the row later.
"""

from __future__ import annotations

import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeGuard,
    TypeVar,
    get_args,
)

from .engine.forks import at_fork
from .errors import (
    InvalidId,
    InvalidName,
    InvalidOption,
    shortened,
)

if TYPE_CHECKING:  # Python has defaults of type variables from 3.13 on
    import typing_extensions as later

    Body = later.TypeVar("Body", default=Any)
    Body_co = later.TypeVar("Body_co", covariant=True, default=Any)
else:
    Body, Body_co = TypeVar("Body"), TypeVar("Body_co", covariant=True)

MetadataField: TypeAlias = Literal["id", "version", "created_at", "updated_at", "expires_at"]
METADATA: Final[tuple[MetadataField, ...]] = get_args(MetadataField)
TEXT_SCORE: Final = "textScore"
"""The score of a `$text`: the metadata of a `Scored` document."""
NO_TEXT: Final = "textScore needs a $text in the filter, or in the first stage, a $match"
SKILL_MEMORY: Final = "skill_memory"
"""The default collection of `skill_memory`."""
SCHEMA_VERSION: Final = "schema_version"
"""The field at the top of a body that holds its schema version; without it, that is 1."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OTHERS: Final = re.compile(rb"[^A-Za-z0-9]")
_SPELLED: Final = re.compile(rb"_([0-9a-f]{2})")
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document(Generic[Body_co]):
    """A document of a collection: id, body, version and times. The body is JSON, or an instance of the collection's
    model.

    `version` starts at 1, and every write increments it. A document unpacks as the pair that AEA's storage returns:

    >>> id, body = Document("berlin", {"population": 3_900_000})
    >>> id
    'berlin'
    """

    id: str
    body: Body_co
    version: int = 1
    created_us: int = field(default=0, repr=False)
    updated_us: int = field(default=0, repr=False)
    expires_us: int | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Any]:
        yield self.id
        yield self.body

    if not TYPE_CHECKING:  # a type checker must see that a document has no items

        def __getitem__(self, field: object) -> Any:
            raise TypeError(f"a Document has no fields: its body has, document.body[{field!r}]")

    @property
    def created_at(self) -> datetime:
        """The time of the first write, in UTC."""
        return moment(self.created_us)

    @property
    def updated_at(self) -> datetime:
        """The time of the last write, in UTC."""
        return moment(self.updated_us)

    @property
    def expires_at(self) -> datetime | None:
        """The time of expiry, in UTC; None: never."""
        return None if self.expires_us is None else moment(self.expires_us)

    def _repr_html_(self) -> str:
        from .codec.html import html_of_document

        facts = {"version": self.version, "created": self.created_at, "updated": self.updated_at}
        if self.expires_us is not None:
            facts["expires"] = self.expires_at
        return html_of_document(self.id, self.body, facts)


@dataclass(frozen=True, slots=True)
class Scored(Document[Any]):
    """A document that a `$text` found, with its score."""

    score: float = 0.0


class _Unfrozen(Generic[Body_co]):
    """The slots of a `Document`, without the freezing."""

    __slots__ = ("body", "created_us", "expires_us", "id", "updated_us", "version")


_allocate: Final = object.__new__


def new_document(  # noqa: PLR0917 - keywords take longer
    id: str, body: Any, version: int, created: int, updated: int, expires: int | None
) -> Document:
    """Return `Document(...)` in a fifth of the time.

    A frozen class sets each slot by a call, which would cost more than the rest of a row.
    """
    document: Any = _allocate(_Unfrozen)
    document.id, document.body, document.version = id, body, version
    document.created_us, document.updated_us, document.expires_us = created, updated, expires
    document.__class__ = Document
    return document  # type: ignore[no-any-return]


def with_other_body(document: Document, body: Any) -> Document:
    """Return the document with another body."""
    created, updated, expires = document.created_us, document.updated_us, document.expires_us
    return new_document(document.id, body, document.version, created, updated, expires)


def documents_of(
    rows: list[Any],
    decode: Callable[[str], Any],
    collection: str,
    refuse: Callable[[str, str, ValueError], None],
) -> Iterator[Document]:
    """Yield the documents of rows: a position, an id, the text of a body, and the rest of `new_document`. Empty the
    list: a body and its text do not take memory at once. A document without a body is left out, if `refuse` returns,
    which takes the collection, the id and the error of `decode`.
    """
    take = rows.pop
    rows.reverse()
    while rows:  # as `new_document`, whose call would take as long as the rest
        row: Any = _allocate(_Unfrozen)
        _, row.id, text, row.version, row.created_us, row.updated_us, row.expires_us = take()
        try:
            row.body = decode(text)
        except ValueError as error:
            refuse(collection, row.id, error)
            continue
        row.__class__ = Document
        yield row


@dataclass(frozen=True, slots=True)
class Anonymous:
    """A body outside a collection: an element of an array, or the result of a pipeline stage."""

    body: Any


def metadatum(document: Document, name: str) -> Any:
    """Return a document's metadata as a filter compares it: times in microseconds. Only a `Scored` document has a score."""
    if name == TEXT_SCORE:
        return getattr(document, "score", None)
    return getattr(document, name if name in {"id", "version"} else f"{name[:-3]}_us")


def now() -> int:
    """Return the microseconds since 1970."""
    return time.time_ns() // 1000


def moment(microseconds: int) -> datetime:
    """Return the UTC time of microseconds since 1970."""
    return EPOCH + timedelta(0, 0, microseconds)  # keywords take half as long again


def microseconds(time: datetime) -> int:
    """Return the exact microseconds from 1970 to a `time` with a time zone."""
    return (time - EPOCH) // timedelta(microseconds=1)


def check_name(name: object) -> str:
    """Return a valid collection name; raise `InvalidName`."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return str.__str__(name)
    raise InvalidName(name)


def check_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return valid names of collections, None for all; raise `InvalidName` and `InvalidOption`."""
    if names is None:
        return None
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise InvalidOption("collections", f"must be a list of names, got {shortened(names)}")
    return tuple(map(check_name, names))


def spelled(text: str) -> str:
    """Return a string in the characters of names: letters, digits, and `_xx` for each other byte. Different strings
    differ, and none contains `__`.

    >>> spelled("my-shop")
    'my_2dshop'
    """
    spelt = _OTHERS.sub(
        lambda byte: b"_%02x" % byte.group()[0], text.encode(errors="surrogatepass")
    )
    return spelt.decode()


def unspelled(text: str) -> str:
    """Return the string of `spelled`; other text is returned as it is.

    >>> unspelled("my_2dshop"), unspelled("_ff")
    ('my-shop', '_ff')
    """
    read = _SPELLED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())
    found = read.decode(errors="replace")
    return found if spelled(found) == text else text


MAX_ID_BYTES = 2000
"""PostgreSQL's index entries end at 2,704 bytes."""


def check_id(id: object) -> str:
    """Return a valid id, a string of up to 2,000 bytes without NUL; raise `InvalidId`."""
    if not isinstance(id, str):
        raise InvalidId(id, f"it is {type(id).__name__}, not a string")
    if "\0" in id:
        raise InvalidId(id, "it holds a NUL character")
    if len(id) * 4 > MAX_ID_BYTES or not id.isascii():
        try:
            size = len(id.encode())
        except UnicodeEncodeError:
            raise InvalidId(id, "it holds a lone surrogate, which is not Unicode") from None
        if size > MAX_ID_BYTES:
            raise InvalidId(id, f"{size:,} bytes are more than {MAX_ID_BYTES:,}")
    return id if type(id) is str else str.__str__(id)


def first_after(prefix: str) -> str:
    """Return the first string after all ids with the `prefix`.

    >>> first_after("users/")
    'users0'
    """
    if not prefix:
        return "\U0010ffff" * MAX_ID_BYTES
    last = ord(prefix[-1])
    if last == 0x10FFFF:
        return first_after(prefix[:-1])
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)


def is_plain_id(id: object) -> TypeGuard[str]:
    """Return whether `id` is a string of ASCII without NUL: every database stores and compares such strings alike."""
    return type(id) is str and id.isascii() and "\0" not in id


def new_id() -> str:
    """Return a new id of 32 characters, greater than all ids of this process: 48 bits of milliseconds, 20 of
    nanoseconds, and 60 random bits. Indexes grow at their end.
    """
    global _newest  # noqa: PLW0603
    with _ids_lock:
        _newest = time_ns = max(time.time_ns(), _newest + 1)
    milliseconds, rest = divmod(time_ns, 1_000_000)
    return f"{milliseconds:012x}{rest:05x}{secrets.token_hex(8)[1:]}"


_newest = 0
_ids_lock = threading.RLock()  # a signal handler may write, too


def _after_fork() -> None:
    """Replace a lock of another thread."""
    global _ids_lock  # noqa: PLW0603
    _ids_lock = threading.RLock()


at_fork("ids", in_child=_after_fork)


def check_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Return valid ids; a single string is not a list of ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidId(ids, "give a list of ids")
    return tuple(map(check_id, ids))


FOREVER: Final = 0
"""A time to live without end; None means the collection's own."""
MAX_TTL: Final = 1000 * 365 * 86_400
"""Seconds. `datetime` ends soon after the year 9000."""
_MICROSECOND: Final = timedelta(microseconds=1)


def read_ttl(ttl: Any, option: str = "ttl") -> int | None:
    """Return a time to live in microseconds, `FOREVER` for infinity, None for None; raise `InvalidOption`.

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
            "math.inf is for documents that never expire",
        )
    return found


class Request:
    """Base class of write requests, the type of a list of several kinds."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class InsertOne(Request):
    """Insert a document, under a new id by default: see `Collection.insert_one`."""

    body: Any
    id: str | None = field(default=None, kw_only=True)
    ttl: float | timedelta | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class UpdateOne(Request):
    """Update the first matching document: see `Collection.update_one`."""

    filter: Any
    update: Any
    upsert: bool = False
    array_filters: Any = field(default=None, kw_only=True)
    sort: Any = field(default=None, kw_only=True)
    hint: Any = field(default=None, kw_only=True)
    collation: Any = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class UpdateMany(Request):
    """Update all matching documents: see `Collection.update_many`."""

    filter: Any
    update: Any
    upsert: bool = False
    array_filters: Any = field(default=None, kw_only=True)
    hint: Any = field(default=None, kw_only=True)
    collation: Any = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ReplaceOne(Request):
    """Replace the body of the first matching document: see `Collection.replace_one`."""

    filter: Any
    replacement: Any
    upsert: bool = False
    sort: Any = field(default=None, kw_only=True)
    hint: Any = field(default=None, kw_only=True)
    collation: Any = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class DeleteOne(Request):
    """Delete the first matching document: see `Collection.delete_one`."""

    filter: Mapping[str, Any] | Any
    hint: Any = field(default=None, kw_only=True)
    collation: Any = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class DeleteMany(Request):
    """Delete all matching documents: see `Collection.delete_many`."""

    filter: Mapping[str, Any] | Any
    hint: Any = field(default=None, kw_only=True)
    collation: Any = field(default=None, kw_only=True)
