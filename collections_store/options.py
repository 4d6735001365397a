"""What the catalogue keeps of a collection, and what a caller may set of it.

The options of a store, checked at the door.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias, get_args

import sqlalchemy as sa

from . import codec
from .codec import Codec
from .document import read_ttl
from .errors import (
    InvalidOption,
    InvalidUrl,
    check_format,
    shortened,
)
from .query.index import Index, unknown_keys

if TYPE_CHECKING:
    from .sql.dialects.protocols import Database


_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,19}", re.ASCII)


_SCHEMA: Final = re.compile(r"[ -$&-~]{1,63}", re.ASCII)


_SLUG_LENGTH: Final = 20


@dataclass(frozen=True, slots=True)
class Names:
    """What the tables of one store are called."""

    prefix: str = "cs_"
    schema: str | None = None

    def __post_init__(self) -> None:
        prefix: Any = self.prefix
        schema: Any = self.schema
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise InvalidOption(
                "prefix", f"{shortened(prefix)} must be 1 to 20 of a-z, 0-9 and _, a letter first"
            )
        if re.search("_[0-9]+(_|$)", prefix):  # cs_1_collections may be a collection's, of cs_
            raise InvalidOption(
                "prefix",
                f"{shortened(prefix)} may name another prefix's tables: no number after a _",
            )
        if schema is not None and not (isinstance(schema, str) and _SCHEMA.fullmatch(schema)):
            raise InvalidOption(
                "schema", f"{shortened(schema)} must be 1 to 63 ASCII characters without %"
            )

    @property
    def revision(self) -> str:
        """Name the table that holds the schema's revision (alembic's version table)."""
        return f"{self.prefix}revision"

    @property
    def catalogue(self) -> str:
        """Name the table of collections."""
        return f"{self.prefix}collections"

    def documents(self, number: int, collection: str) -> str:
        """Name a collection's table. No prefix holds a $, so that number 11 of `zz` is not 1 of `zz1`."""
        apart = "" if self.prefix.endswith("_") else "$"
        return f"{self.prefix}{apart}{number}_{collection[:_SLUG_LENGTH].lower()}"

    def index(self, table: str, number: int) -> str:
        """Name an index of a collection's table; no table has such a name."""
        return f"{self._stem(table)}$i{number}"

    def expiry_index(self, table: str) -> str:
        """Name the index of those objects of a collection's table that expire."""
        return f"{self._stem(table)}$x"

    def feed(self, table: str) -> str:
        """Name the table of the recorded changes of a collection's table; no collection has it."""
        return f"{self._stem(table)}$changes"

    def owns(self, table: str) -> bool:
        """Return whether a store with this prefix may have a table of that name: its own two, those of
        collections, and what lies beside these.
        """
        known = f"{self.prefix}(revision|collections|\\$?[0-9]+[_$].*)"
        return re.fullmatch(known, table) is not None

    def _stem(self, table: str) -> str:
        """Return the name of a collection's table up to its number; older ones are without $."""
        found = re.match(f"{self.prefix}\\$?[0-9]+", table)
        assert found is not None
        return found[0]


Durability: TypeAlias = Literal["full", "normal"]


Isolation: TypeAlias = Literal["repeatable read", "serializable"]


Bodies: TypeAlias = Literal["none", "after", "both"]
"""Which bodies a change is recorded with: those that were written, or also those before."""
Changes: TypeAlias = bool | Literal["after", "both"] | None
"""The same as callers say it."""
FORMAT: Final = 1
_KEYS: Final = (
    "format",
    "cursor_key",
    "body_index",
    "indexes",
    "ways",
    "counter",
    "ttl",
    "sliding",
    "feed",
    "jsonb",
)
CHANGES_KEPT: Final = 100_000
MAX_CHANGES: Final = 10**9
_RULES: Final = codec.Codec()


@dataclass(frozen=True, slots=True)
class Feed:
    """How the changes of a collection are recorded: in the table `physical`, the last `limit` of them,
    none older than `age` microseconds. `key` begins the tokens.
    """

    physical: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(4))
    bodies: Bodies = "none"
    limit: int = CHANGES_KEPT
    age: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return what the catalogue keeps."""
        return {
            "physical": self.physical,
            "key": self.key,
            "bodies": self.bodies,
            "limit": self.limit,
            "age": self.age,
            **self.unknown,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """Read what the catalogue keeps."""
        names = ("physical", "key", "bodies", "limit", "age")
        known = {name: kept[name] for name in names if name in kept}
        return cls(**known, unknown=unknown_keys(kept, names))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a caller wants of a collection; None: whatever it is."""

    ttl: int | None = None
    sliding: bool | None = None
    bodies: Bodies | Literal["off"] | None = None
    limit: int | None = None
    age: int | None = None

    @classmethod
    def parse(
        cls,
        *,
        ttl: Any = None,
        sliding: Any = None,
        changes: Any = None,
        changes_kept: Any = None,
        changes_ttl: Any = None,
    ) -> Self:
        """Read what a caller says; raises `InvalidOption`."""
        if sliding is not None and not isinstance(sliding, bool):
            raise InvalidOption("sliding", f"{shortened(sliding)} is neither True nor False")
        life, age = read_ttl(ttl), read_ttl(changes_ttl, "changes_ttl")
        return cls(life, sliding, _bodies(changes), _limit(changes_kept), age)

    def apply(self, options: CollectionOptions) -> CollectionOptions:
        """Return the options as they shall be; a new `Feed` has no table yet."""
        return replace(
            options,
            ttl=options.ttl if self.ttl is None else (self.ttl or None),
            sliding=options.sliding if self.sliding is None else self.sliding,
            feed=self._feed(options.feed),
        )

    def _feed(self, feed: Feed | None) -> Feed | None:
        """Return the recording as it shall be, by what it is."""
        if self.bodies == "off" or (feed is None and self.bodies is None):
            if self.limit is not None or self.age is not None:
                raise InvalidOption(
                    "changes", "none are recorded, so none are kept: say changes=True"
                )
            return None
        feed = feed or Feed()
        return replace(
            feed,
            bodies=feed.bodies if self.bodies is None else self.bodies,
            limit=feed.limit if self.limit is None else self.limit,
            age=feed.age if self.age is None else (self.age or None),
        )


@dataclass(frozen=True, slots=True)
class CollectionOptions:
    """What the catalogue keeps of a collection besides its name and table.

    `body_index`: has PostgreSQL an index over whole bodies? `cursor_key` seals the cursors of its pages;
    `counter` numbers its indexes. `ways` are the places at which the objects with an array are
    indexed, with the names of these indexes. An object lives for `ttl` microseconds unless its writer
    says otherwise (None: for ever), anew with each update if `sliding`. `feed` tells how changes are
    recorded; None: they are not. `jsonb`: does SQLite keep bodies as JSONB?

    The JSON has a format; that of a version before has none, and is of format 1. `unknown` are keys of a newer
    version, which are kept. A change that older versions must not pass over takes a higher format.
    """

    cursor_key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    body_index: bool = True
    indexes: tuple[Index, ...] = ()
    ways: tuple[tuple[tuple[str, ...], str], ...] = ()
    counter: int = 1
    ttl: int | None = None
    sliding: bool = False
    feed: Feed | None = None
    jsonb: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_text(self) -> str:
        """Return the JSON that the catalogue keeps."""
        kept = {
            **self.unknown,
            "format": FORMAT,
            "cursor_key": self.cursor_key or secrets.token_hex(16),
            "body_index": self.body_index,
            "indexes": [index.to_json() for index in self.indexes],
            "ways": self.ways,
            "counter": self.counter,
            "ttl": self.ttl,
            "sliding": self.sliding,
            "feed": None if self.feed is None else self.feed.to_json(),
            "jsonb": self.jsonb,
        }
        return _RULES.encode(_lists(kept))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read it; raises `SchemaTooNew`."""
        kept = codec.decode(text)
        check_format("the catalogue's entry of a collection", kept.get("format"), FORMAT)
        return cls(
            kept.get("cursor_key", ""),  # none where a version before 0003 made the collection
            kept.get("body_index", True),
            tuple(map(Index.from_json, kept.get("indexes", ()))),
            tuple((tuple(way), physical) for way, physical in kept.get("ways", ())),
            kept.get("counter", 1),
            kept.get("ttl"),
            kept.get("sliding", False),
            Feed.from_json(kept["feed"]) if kept.get("feed") else None,
            kept.get("jsonb", False),
            unknown_keys(kept, _KEYS),
        )

    def find(self, name: str) -> Index | None:
        """Return the index of that name."""
        return next((index for index in self.indexes if index.name == name), None)

    def paths(self) -> frozenset[tuple[str, ...]]:
        """Return the fields over which a whole index goes, first or not."""
        whole = (index for index in self.indexes if index.where is None and not index.arrays)
        return frozenset(path.keys for index in whole for path in index.paths)


def _bodies(changes: Any) -> Bodies | Literal["off"] | None:
    match changes:
        case None:
            return None
        case False:
            return "off"
        case True:
            return "none"
        case str() if changes in {"after", "both"}:
            return changes  # type: ignore[return-value]
    raise InvalidOption(
        "changes", f"{shortened(changes)} is none of True, False, 'after' and 'both'"
    )


def _limit(kept: Any) -> int | None:
    if kept is None:
        return None
    if isinstance(kept, bool) or not isinstance(kept, int) or not 0 < kept <= MAX_CHANGES:
        raise InvalidOption(
            "changes_kept", f"{shortened(kept)} is not between 1 and {MAX_CHANGES:,}"
        )
    return kept


def _lists(value: Any) -> Any:
    """Make lists of tuples."""
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    return [_lists(each) for each in value] if isinstance(value, list | tuple) else value


Upgrade: TypeAlias = Literal["auto", "manual"]
Nul: TypeAlias = Literal["error", "replace"]

MAX_BODY: Final = 16 * 2**20
MAX_COUNT: Final = 2**63 - 1
"""What the databases take for a limit."""
MIN_TIMEOUT: Final = 0.001
"""Seconds; of less, PostgreSQL would make no milliseconds, and wait for ever."""
MAX_TIMEOUT: Final = 2_000_000
"""Seconds; the databases count milliseconds in 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `Store` and `AsyncStore` take; their docstrings explain each."""

    pool_size: int | None = None
    busy_timeout: float = 30.0
    durability: Durability = "full"
    max_body: int = MAX_BODY
    nul: Nul = "error"
    default: Callable[[Any], Any] | None = None
    prefix: str = "cs_"
    schema: str | None = None
    upgrade: Upgrade | None = None
    sweep_interval: float | None = None
    page_cache: int | None = None

    def __post_init__(self) -> None:
        if self.pool_size is not None:
            _positive("pool_size", self.pool_size, int)
        _seconds("busy_timeout", self.busy_timeout)
        if self.sweep_interval is not None:
            _seconds("sweep_interval", self.sweep_interval)
        if self.page_cache is not None:
            _positive("page_cache", self.page_cache, int)
        _positive("max_body", self.max_body, int)
        _one_of("durability", self.durability, get_args(Durability))
        _one_of("nul", self.nul, get_args(Nul))
        _one_of("upgrade", self.upgrade, (None, *get_args(Upgrade)))
        if self.default is not None and not callable(self.default):
            raise InvalidOption("default", f"{shortened(self.default)} is not callable")
        self.names()

    def names(self) -> Names:
        """Return what the tables are called."""
        return Names(self.prefix, self.schema)

    def codec(self) -> Codec:
        """Return the rules for values."""
        return Codec(max_bytes=self.max_body, nul=self.nul, default=self.default)

    def check_for(self, database: Database) -> None:
        """Refuse what the database does not have."""
        if self.schema is not None and not database.has_schemas:
            raise InvalidOption("schema", f"{database.name} has no schemas: use a prefix")
        if self.page_cache is not None and not database.has_page_cache:
            raise InvalidOption("page_cache", f"the server of {database.name} has its own")

    def upgrades(self, database: Database) -> bool:
        """Is an older database upgraded when it is opened?"""
        if self.upgrade is None:
            return database.upgrades_on_open
        return self.upgrade == "auto"


def read_url(url: str | sa.URL) -> sa.URL:
    """Return the parts of a database URL; raises `InvalidUrl`, which never shows a password."""
    if not isinstance(url, str | sa.URL):
        raise InvalidUrl(f"a URL must be a string or a sqlalchemy.URL, got {shortened(url)}")
    try:
        read = sa.make_url(url)
        return read.set(drivername="postgresql") if read.drivername == "postgres" else read
    except (sa.exc.ArgumentError, ValueError):
        raise InvalidUrl(
            "the URL cannot be read: use sqlite:///file.db, sqlite:// (in memory) or "
            "postgresql://user:password@host/database"
        ) from None


def safe_url(url: sa.URL) -> str:
    """Return a URL without its passwords: that before the host, and those of its options.

    >>> import sqlalchemy as sa
    >>> safe_url(sa.make_url("postgresql://me:secret@host/db?sslpassword=secret&sslmode=require"))
    'postgresql://me:***@host/db?sslmode=require&sslpassword=...'
    """
    hidden = {option: "..." for option in url.query if "passw" in option.lower()}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _positive(option: str, value: Any, types: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, types) or not value > 0:
        kind = "whole number" if types is int else "number"
        raise InvalidOption(option, f"{shortened(value)} is not a {kind} above 0")


def _seconds(option: str, value: Any) -> None:
    _positive(option, value, (int, float))
    if not MIN_TIMEOUT <= value <= MAX_TIMEOUT:
        raise InvalidOption(
            option, f"{shortened(value)} is not between {MIN_TIMEOUT} and {MAX_TIMEOUT:,} seconds"
        )


def _one_of(option: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not isinstance(value, str | None) or value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise InvalidOption(option, f"{shortened(value)} is none of {known}")


def check_flag(option: str, value: object) -> bool:
    """Return `value` if it is True or False; raises `InvalidOption`."""
    if not isinstance(value, bool):
        raise InvalidOption(option, f"{shortened(value)} is neither True nor False")
    return value


def check_count(option: str, value: Any) -> int:
    """Return a whole number from 0 on; raises `InvalidOption`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    raise InvalidOption(option, f"must be an integer from 0 to 2**63 - 1, got {shortened(value)}")


def check_isolation(value: Any) -> Isolation:
    """Return `value` if it is a level of isolation; raises `InvalidOption`."""
    _one_of("isolation", value, get_args(Isolation))
    level: Isolation = value
    return level


def check_attempts(value: Any) -> int:
    """Return `value` if it is a whole number from 1 on; raises `InvalidOption`."""
    _positive("attempts", value, int)
    return int(value)
