"""The options of stores and collections, the names of tables, and the checks of arguments.

`StoreOptions` and `CollectionSettings` declare what a caller passes; `Options` and `Settings` are the same, validated.
`CollectionOptions` is what the catalogue stores of a collection. Every `check_*` function returns its value or raises
`InvalidOption`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from inspect import isawaitable
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    get_args,
    get_type_hints,
)
from urllib.parse import unquote

import sqlalchemy as sa

from . import codec
from .codec import MAX_BODY, Codec
from .document import MAX_TTL, read_ttl
from .errors import InvalidOption, InvalidUrl, check_format, did_you_mean, shortened
from .observation import OperationRecord
from .query.index import Index, unknown_keys

if TYPE_CHECKING:
    from .sql.dialects.protocols import Database

Durability: TypeAlias = Literal["full", "normal", "replicated"]
Isolation: TypeAlias = Literal["repeatable read", "serializable"]
Nul: TypeAlias = Literal["error", "replace"]
Upgrade: TypeAlias = Literal["auto", "manual"]
Pooler: TypeAlias = Literal["transaction", "session"]
Sharding: TypeAlias = Literal["schema", "collections"]
Echo: TypeAlias = bool | Literal["debug"]
Consistency: TypeAlias = Literal["session", "strong", "eventual"]
Ttl: TypeAlias = float | timedelta | None
Changes: TypeAlias = bool | Literal["after", "both"] | None

MAX_COUNT: Final = 2**63 - 1
"""The largest limit that the databases take."""
MIN_TIMEOUT: Final = 0.001
"""Seconds; PostgreSQL counts milliseconds, and 0 of them would mean no timeout."""
MAX_TIMEOUT: Final = 2_000_000
"""Seconds; the databases count milliseconds in 32 bits."""


# -- stores ----------------------------------------------------------------------------------


class StoreOptions(TypedDict, total=False):
    """The options of `Store` and `AsyncStore`.

    * `pool_size`: the maximum number of connections. Default: 4 that read and 1 that writes on an SQLite file, 10 on
      PostgreSQL, where an `AsyncStore` has one more that writes. PostgreSQL ends those that are idle for 5 minutes. Not
      with `engine`.
    * `busy_timeout`: seconds to wait for a lock or a connection before `DatabaseBusy`; 30.
    * `reconnect_for`: seconds for which an operation that has written nothing tries to reach a server that went away, or
      one that can write; then `DatabaseUnavailable` or `ReadOnlyDatabase`. 0: not at all. Default: 30 on PostgreSQL, 1 on
      SQLite. The first use tries for 1 second at most.
    * `reply_timeout`: seconds for which PostgreSQL may be silent during a statement; then its connection is closed with
      `DatabaseUnavailable`, for a write `in_doubt`. Choose more than your slowest query takes; schema changes have no
      limit. Default: none. Not on SQLite, and not with `engine`.
    * `durability`: "full", the default: an acknowledged write survives a power cut. "normal": a power cut may lose
      the last moments, a crash of the process loses nothing. "replicated", on PostgreSQL: it also survives the loss of
      the primary; a server without a synchronous standby is refused with `DatabaseUnavailable`. Not with `engine`.
    * `read_only`: the store only reads, from a standby or a primary; False. A write raises `ReadOnlyDatabase`, nothing is
      created, upgraded or swept. On PostgreSQL, and not with `engine`.
    * `max_body`: the maximum size of a body in bytes of JSON; 16 MiB.
    * `nul`: "error", the default, rejects NUL characters in bodies; "replace" stores U+FFFD in their place.
    * `default`: a function that is called with each value that is not JSON and returns one that is, as in
      `json.dumps`.
    * `prefix`: the beginning of the tables' names; "cs_".
    * `schema`: the PostgreSQL schema of the tables. Default: the connection's own.
    * `upgrade`: "auto" upgrades an older database when it is opened, the default on SQLite; "manual" raises
      `SchemaOutdated`, the default on PostgreSQL.
    * `sweep_interval`: the interval in seconds at which a thread purges expired documents and changes. Default: none;
      call `purge_expired`.
    * `page_cache`: the maximum number of bytes of an SQLite file that each connection caches; 16 MiB. Not on
      PostgreSQL, whose server has its own cache, and not with `engine`.
    * `pooler`: what stands before a PostgreSQL server. "transaction": a pooler such as PgBouncer, which may give each
      transaction another connection of the server. "session": no pooler, or one that keeps the connection of the server
      for a session. Default: found out for each connection. Also as `?pooler=transaction` in the URL. Not with `engine`.
    * `sharding`: how a Citus cluster (12 or newer) shares the work. "schema": the tables of the store's `schema` are on
      one of the workers, and other schemas on others. "collections": the collections that are created with
      `distributed=True` are on all workers, a part of the documents on each, and the others on the coordinator. The store
      creates its tables that way. Also as `?sharding=schema` in the URL. Default: the tables are where the URL leads.
    * `replicas`: the URL of streaming replicas of a PostgreSQL server, from which the collections of the store read.
      Also as `?replicas=…` in the URL. Not with `engine`, `read_only` or `sharding`. Default: reads go to the server that
      writes.
    * `consistency`: with `replicas`, what a read sees. "session", the default: what the store has written and read before.
      "eventual": what a replica has replayed. "strong": what is committed; it reads where it writes. Also
      as `?consistency=…` in the URL, and for one collection by its `with_options`.
    * `on_operation`: a function that is called with an `OperationRecord` after each operation, in the thread that ran
      the operation. What it raises is logged once, and reaches no caller.
    * `slow_operation`: seconds; an operation that takes longer is logged as a WARNING, with the advice of its explanation.
      Default: none.
    * `echo`: True logs each statement without its parameters to `collections_store.statements`, and prints the log if no
      handler is set up; "debug" logs the parameters too, which are bodies and values; False. With `engine` use the
      engine's own `echo`.
    """

    pool_size: int | None
    busy_timeout: float
    reconnect_for: float | None
    reply_timeout: float | None
    durability: Durability
    read_only: bool
    max_body: int
    nul: Nul
    default: Callable[[Any], Any] | None
    prefix: str
    schema: str | None
    upgrade: Upgrade | None
    sweep_interval: float | None
    page_cache: int | None
    pooler: Pooler | None
    sharding: Sharding | None
    replicas: str | sa.URL | None
    consistency: Consistency | None
    on_operation: Callable[[OperationRecord], object] | None
    slow_operation: float | None
    echo: Echo


def option_types() -> dict[str, type]:
    """Return the options that a URI or a configuration file can set, with their types: int, float or str.

    >>> option_types()["busy_timeout"]
    <class 'float'>
    """
    hints = {
        name: (*get_args(hint), hint)[0] for name, hint in get_type_hints(StoreOptions).items()
    }
    for name in ("default", "read_only", "on_operation", "echo"):
        del hints[name]
    return {name: hint if isinstance(hint, type) else str for name, hint in hints.items()}


_NOT_EVERYWHERE: Final = {
    "sharding": "{} has no servers to distribute over",
    "schema": "{} has no schemas: use a prefix",
    "page_cache": "the server of {} has its own",
    "durability": "must be 'full' or 'normal': {} has no standbys",
    "pooler": "{} has no server",
    "read_only": "not for {}: open its file with ?mode=ro in the URL",
    "reply_timeout": "{} is no server",
    "replicas": "{} has no replicas",
}
"""Options that a database may lack: `Database.options` has those that it supports."""
_EVERYWHERE: Final = (None, False, "full", "normal")
"""Their values that no database lacks."""
URL_OPTIONS: Final = ("pooler", "sharding", "replicas", "consistency")
"""Options of a store that a URL may name, too."""
_NOT_WITH_ENGINE: Final = {
    "pool_size": "the engine that was given has a pool of its own",
    "durability": "the engine that was given has settings of its own",
    "page_cache": "the engine that was given has settings of its own",
    "pooler": "the engine that was given has settings of its own",
    "read_only": "the engine that was given has settings of its own",
    "reply_timeout": "the engine that was given has settings of its own",
    "replicas": "give the store a URL instead of an engine",
    "echo": "use create_engine(..., echo=True)",
}


_OF_STORE: Final = frozenset(URL_OPTIONS) - {"pooler"}
_NOT_WITH_REPLICAS: Final = {
    "read_only": "not with read_only: a store that only reads takes the URL of the replicas as its own",
    "sharding": "not with sharding: each worker has replicas of its own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Validated `StoreOptions`."""

    pool_size: int | None = None
    busy_timeout: float = 30.0
    reconnect_for: float | None = None
    reply_timeout: float | None = None
    durability: Durability = "full"
    read_only: bool = False
    max_body: int = MAX_BODY
    nul: Nul = "error"
    default: Callable[[Any], Any] | None = None
    prefix: str = "cs_"
    schema: str | None = None
    upgrade: Upgrade | None = None
    sweep_interval: float | None = None
    page_cache: int | None = None
    pooler: Pooler | None = None
    sharding: Sharding | None = None
    replicas: str | sa.URL | None = field(default=None, repr=False)
    consistency: Consistency | None = None
    on_operation: Callable[[OperationRecord], object] | None = None
    slow_operation: float | None = None
    echo: Echo = False

    def __post_init__(self) -> None:
        check_seconds("busy_timeout", self.busy_timeout)
        if self.reconnect_for is not None:
            check_seconds("reconnect_for", self.reconnect_for, least=0)
        check_flag("read_only", self.read_only)
        check_choice("durability", self.durability, get_args(Durability))
        check_integer("max_body", self.max_body)
        check_choice("nul", self.nul, get_args(Nul))
        check_choice("upgrade", self.upgrade, (None, *get_args(Upgrade)))
        check_choice("pooler", self.pooler, (None, *get_args(Pooler)))
        check_choice("sharding", self.sharding, (None, *get_args(Sharding)))
        check_choice("consistency", self.consistency, (None, *get_args(Consistency)))
        if self.sharding == "schema" and self.schema in {None, "public"}:
            problem = "name the schema to distribute by schema=, another than public"
            raise InvalidOption("sharding", problem)
        if self.sharding is not None and self.durability == "replicated":
            problem = (
                "must be 'full' or 'normal' with sharding: each worker has standbys of its own"
            )
            raise InvalidOption("durability", problem)
        for option in ("pool_size", "page_cache"):
            if (value := getattr(self, option)) is not None:
                check_integer(option, value)
        for option in ("sweep_interval", "reply_timeout"):
            if (value := getattr(self, option)) is not None:
                check_seconds(option, value)
        if self.default is not None:
            check_function("default", self.default)
        if self.on_operation is not None:
            check_function("on_operation", self.on_operation)
        if self.slow_operation is not None:
            check_seconds("slow_operation", self.slow_operation, least=0)
        if self.echo != "debug":
            check_flag("echo", self.echo)
        self.names()

    @classmethod
    def parse(cls, options: StoreOptions) -> Self:
        """Validate the options of a store; raises `InvalidOption`, and `TypeError` for an unknown one."""
        check_known("a store", options, StoreOptions)
        return cls(**options)

    def names(self) -> Names:
        """Return the names of the tables."""
        return Names(self.prefix, self.schema)

    def codec(self) -> Codec:
        """Return the codec of bodies."""
        return Codec(max_bytes=self.max_body, nul=self.nul, default=self.default)

    def check_for(self, database: Database) -> None:
        """Raise `InvalidOption` for an option that the database does not support."""
        for option, problem in _NOT_EVERYWHERE.items():
            if getattr(self, option) not in _EVERYWHERE and option not in database.options:
                raise InvalidOption(option, problem.format(database.name))
        self.replica_url(database)

    def replica_url(self, database: Database) -> sa.URL | None:
        """Return the URL of the replicas; raises `InvalidOption`, which never shows a password."""
        if self.replicas is None:
            if self.consistency is not None:
                problem = "needs replicas, the URL of the servers to read from"
                raise InvalidOption("consistency", problem)
            return None
        for option in ("read_only", "sharding"):
            if getattr(self, option):
                raise InvalidOption("replicas", _NOT_WITH_REPLICAS[option])
        try:
            url = read_url(self.replicas)
            if url.get_backend_name() != database.name:
                must = f"must be a URL of {database.name}, as the store's"
                raise InvalidOption("replicas", f"{must}, got one of {url.drivername}")
            for option in _OF_STORE & {*url.query}:
                raise InvalidOption("replicas", f"the URL has {option!r}, an option of the store")
            self.of_replicas(url)  # checks its pooler
            return database.urls.normal_url(url)
        except InvalidUrl as error:
            raise InvalidOption("replicas", str(error)) from None

    def of_replicas(self, url: sa.URL) -> Self:
        """Return the options of connections to the replicas of this URL, which may name a pooler."""
        pooler: Any = url.query.get("pooler")
        return replace(self, read_only=True, pooler=pooler)

    def default_consistency(self) -> Consistency:
        """Return what the reads of a collection see."""
        return "strong" if self.replicas is None else self.consistency or "session"

    def check_for_engine(self) -> None:
        """Raise `InvalidOption` for an option that a caller's engine decides."""
        for each in fields(self):
            if each.name in _NOT_WITH_ENGINE and getattr(self, each.name) != each.default:
                raise InvalidOption(each.name, _NOT_WITH_ENGINE[each.name])

    def reconnects_for(self, database: Database) -> float:
        """Return for how many seconds an operation tries to reach a database that went away."""
        given = self.reconnect_for
        return database.reconnect_for if given is None else float(given)

    def for_url(self, url: sa.URL) -> Self:
        """Return the options of a store with this URL, which may name some; raises `InvalidOption`."""
        named: dict[str, Any] = {
            name: url.query[name]
            for name in URL_OPTIONS
            if getattr(self, name) is None and name in url.query
        }
        return replace(self, **named)

    def upgrades(self, database: Database) -> bool:
        """Return whether an older database is upgraded when it is opened."""
        if self.read_only:
            return False
        return database.upgrades_on_open if self.upgrade is None else self.upgrade == "auto"


def read_url(url: str | sa.URL) -> sa.URL:
    """Return a parsed database URL; raises `InvalidUrl`, which never shows a password."""
    if not isinstance(url, str | sa.URL):
        raise InvalidUrl(f"a URL must be a string or a sqlalchemy.URL, got {shortened(url)}")
    try:
        read = sa.make_url(_with_hosts_as_options(url) if isinstance(url, str) else url)
        return read.set(drivername="postgresql") if read.drivername == "postgres" else read
    except (sa.exc.ArgumentError, ValueError):
        path = _PATH.fullmatch(url) if isinstance(url, str) else None
        if path is not None:
            use = "sqlite://" if path[1] == ":memory:" else f"sqlite:///{path[1]}"
            raise InvalidUrl(f"{url!r} is a path, not a URL: use {use}") from None
        raise InvalidUrl(
            "the URL cannot be read: use sqlite:///file.db, sqlite:// (in memory) or "
            "postgresql://user:password@host/database"
        ) from None


_PATH: Final = re.compile(
    r"(?:sqlite:)?(:memory:|(?:[A-Za-z]:(?=[\\/]))?(?=.*[.\\/])[^:@=?#%,~\0]+)"
)
"""A path where a URL should be, but no other form of a URL: that may hold a password."""
_LIBPQ_HOSTS: Final = re.compile(
    "(postgres[^/]*://(?:[^@/?]*@)?)([^@/?]*[,%][^@/?]*)((?:/[^@?]*)?(?:[?].*)?)", re.DOTALL
)
_HOST: Final = re.compile(r"(\[[^]]*\]|[^:]*)(?::([0-9]*))?")


def _with_hosts_as_options(url: str) -> sa.URL | str:
    """Return libpq's URLs of several hosts, `//h1:p1,h2:p2/db`, and of a socket, `//%2Frun/db`, as SQLAlchemy has them."""
    found = _LIBPQ_HOSTS.fullmatch(url)
    if found is None:
        return url
    hosts = [_HOST.fullmatch(each) for each in found[2].split(",")]
    if None in hosts:
        raise ValueError("no host and port")
    names, ports = zip(
        *((unquote(each[1].strip("[]")), each[2] or "") for each in hosts if each), strict=True
    )
    options = {"host": ",".join(names)} | ({"port": ",".join(ports)} if any(ports) else {})
    return sa.make_url(found[1] + found[3]).update_query_dict(options)


def safe_url(url: sa.URL) -> str:
    """Return a URL without its passwords: the one before the host, those of its options, and of its replicas.

    >>> import sqlalchemy as sa
    >>> safe_url(sa.make_url("postgresql://me:secret@host/db?sslpassword=secret&sslmode=require"))
    'postgresql://me:***@host/db?sslmode=require&sslpassword=...'
    """
    hidden = {
        option: "..." for option in url.query if "passw" in option.lower() or option == "replicas"
    }
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


# -- tables ----------------------------------------------------------------------------------

_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,19}", re.ASCII)
_SCHEMA: Final = re.compile(r"[ -$&-~]{1,63}", re.ASCII)
_SLUG_LENGTH: Final = 20


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a store's tables."""

    prefix: str = "cs_"
    schema: str | None = None

    def __post_init__(self) -> None:
        prefix: Any = self.prefix
        schema: Any = self.schema
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            must = "must be 1 to 20 of a-z, 0-9 and _, beginning with a letter"
            raise InvalidOption("prefix", f"{must}, got {shortened(prefix)}")
        if re.search("_[0-9]+(_|$)", prefix):  # cs_1_collections may be a collection's, of cs_
            must = "must have no number after a _, as the tables of another prefix have"
            raise InvalidOption("prefix", f"{must}, got {shortened(prefix)}")
        if schema is not None and not (isinstance(schema, str) and _SCHEMA.fullmatch(schema)):
            must = "must be 1 to 63 ASCII characters without %"
            raise InvalidOption("schema", f"{must}, got {shortened(schema)}")

    @property
    def revision(self) -> str:
        """The table of the schema's revision: alembic's version table."""
        return f"{self.prefix}revision"

    @property
    def catalogue(self) -> str:
        """The table of collections."""
        return f"{self.prefix}collections"

    @property
    def checksums(self) -> str:
        """The table of the checksums in a backup that is a database file."""
        return f"{self.prefix}checksums"

    def documents(self, number: int, collection: str) -> str:
        """Return a collection's table. No prefix holds a $, so that number 11 of `zz` is not 1 of `zz1`."""
        separator = "" if self.prefix.endswith("_") else "$"
        return f"{self.prefix}{separator}{number}_{collection[:_SLUG_LENGTH].lower()}"

    def index(self, table: str, number: int) -> str:
        """Return an index of a collection's table; no table has such a name."""
        return f"{self._stem(table)}$i{number}"

    def expiry_index(self, table: str) -> str:
        """Return the index of the documents that expire."""
        return f"{self._stem(table)}$x"

    def feed(self, table: str) -> str:
        """Return the table of a collection's recorded changes."""
        return f"{self._stem(table)}$changes"

    def owns(self, table: str) -> bool:
        """Return whether a store with this prefix may have a table of that name."""
        known = f"{self.prefix}(revision|collections|checksums|\\$?[0-9]+[_$].*)"
        return re.fullmatch(known, table) is not None

    def _stem(self, table: str) -> str:
        """Return the name of a collection's table up to its number; older names have no $."""
        found = re.match(f"{self.prefix}\\$?[0-9]+", table)
        assert found is not None
        return found[0]


# -- collections -----------------------------------------------------------------------------

Bodies: TypeAlias = Literal["none", "after", "both"]
"""The bodies that a change is recorded with: none, the new one, or the new and the old one."""
FORMAT: Final = 2
"""The newest form of a stored entry: that of a distributed collection. The entry of any other has the format 1."""
CHANGES_KEPT: Final = 100_000
MAX_CHANGES: Final = 10**9
_CODEC: Final = codec.Codec()
_FEED_KEYS: Final = ("physical", "key", "bodies", "limit", "age")
_KEYS: Final = (
    "format", "cursor_key", "body_index", "indexes", "ways", "counter", "ttl", "sliding", "feed", "jsonb", "copy_of",
    "versions", "distributed",
)  # fmt: skip
_LOCAL: Final = ("cursor_key", "ways", "counter", "copy_of", "versions")
"""Keys that a copy of the collection does not take over; of a feed and an index these are `_LOCAL_NAMES`."""
_LOCAL_NAMES: Final = ("physical", "key")


@dataclass(frozen=True, slots=True)
class Feed:
    """How a collection's changes are recorded: in the table `physical`, the last `limit` of them, none older than
    `age` microseconds. Tokens begin with `key`. `unknown` are keys of a newer version.
    """

    physical: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(4))
    bodies: Bodies = "none"
    limit: int = CHANGES_KEPT
    age: int | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form."""
        return {**{name: getattr(self, name) for name in _FEED_KEYS}, **self.unknown}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Read the stored form."""
        known = {name: stored[name] for name in _FEED_KEYS if name in stored}
        return cls(**known, unknown=unknown_keys(stored, _FEED_KEYS))


class ChangeSettings(TypedDict, total=False):
    """How a collection records its changes.

    * `changes`: True records the id and version of each change for `watch`, "after" also the new body, "both" also
      the old one. False, the default of a new collection, records none and deletes the record.
    * `changes_kept`: the number of changes that are kept at least; 100,000.
    * `changes_ttl`: seconds, or a timedelta, for which changes are kept at most; `math.inf`.
    """

    changes: Changes
    changes_kept: int | None
    changes_ttl: Ttl


class CollectionSettings(ChangeSettings, total=False):
    """The options of a collection: `ChangeSettings` and these. None leaves an option as it is.

    * `ttl`: seconds, or a timedelta, until a written document expires, unless the write has a `ttl` of its own;
      `math.inf`, the default of a new collection: never.
    * `sliding`: each update of a document with a time to live starts that time again; False.
    """

    ttl: Ttl
    sliding: bool | None


class BodyFunction(Protocol):
    """A function that upgrades a body. No `Callable` of `Any`: with one among the options, mypy finds no single overload."""

    def __call__(self, body: Any, /) -> object:
        """Return the new body, or None for the same object."""


class VersionSettings(CollectionSettings, total=False):
    """The arguments of `collection`: `CollectionSettings`, and these, which hold for the returned object only.

    * `schema_version`: the version of the documents that this program reads and writes, an integer from 1 on. It is
      stored in each body as the field `schema_version`; a document without it has version 1.
    * `upgrades`: functions that convert a body of one version to the next, by the version that they begin with:
      `{1: one_to_two, 2: two_to_three}`. The classes in a function's annotations are models of its argument and result.
    * `downgrades`: functions that convert a newer body to the version before it, likewise; without them a newer
      document raises `DocumentTooNew`.
    * `write_back`: `get`, `document` and `get_many` write what they upgrade; False.
    """

    schema_version: int
    upgrades: Mapping[int, BodyFunction] | None
    downgrades: Mapping[int, BodyFunction] | None
    write_back: bool


class ReadSettings(VersionSettings, total=False):
    """`ModelSettings` without `invalid`, which decides the type of the bodies."""

    trusted: bool
    extra: codec.Extra


class ModelSettings(ReadSettings, total=False):
    """The arguments of `collection` with a model: `VersionSettings`, and these, which hold for the returned object only.

    * `invalid`: what a read does with a stored body that does not fit the model. "raise" raises `InvalidBody`, which
      names the document; "return" returns an `Invalid` in the place of the body; "skip" leaves the document out and logs
      a warning. A change stream returns an `Invalid` in each case. "raise".
    * `trusted`: reads skip the "after" validators of pydantic models. Types and constraints are checked in the step that
      decodes, which pydantic and msgspec cannot do without. False.
    * `extra`: whether filters, sort orders, indexes and updates may name fields that the model does not declare. "forbid"
      raises `UnknownField`; "allow" checks no names. "forbid".
    """

    invalid: codec.Unreadable


@dataclass(frozen=True, slots=True)
class Settings:
    """Validated `CollectionSettings`."""

    ttl: int | None = None
    sliding: bool | None = None
    bodies: Bodies | Literal["off"] | None = None
    limit: int | None = None
    age: int | None = None

    @classmethod
    def parse(cls, settings: Mapping[str, object], declared: type = CollectionSettings) -> Self:
        """Validate settings; raises `InvalidOption`, and `TypeError` for one that is not declared."""
        check_known("a collection", settings, declared)
        sliding, limit = settings.get("sliding"), settings.get("changes_kept")
        return cls(
            read_ttl(settings.get("ttl")),
            sliding if sliding is None else check_flag("sliding", sliding),
            _bodies(settings.get("changes")),
            limit if limit is None else check_integer("changes_kept", limit, most=MAX_CHANGES),
            read_ttl(settings.get("changes_ttl"), "changes_ttl"),
        )

    def apply(self, options: CollectionOptions) -> CollectionOptions:
        """Return the options with these settings; a new `Feed` has no table yet."""
        return replace(
            options,
            ttl=options.ttl if self.ttl is None else (self.ttl or None),
            sliding=options.sliding if self.sliding is None else self.sliding,
            feed=self._feed(options.feed),
        )

    def _feed(self, feed: Feed | None) -> Feed | None:
        if self.bodies == "off" or (feed is None and self.bodies is None):
            if self.limit is not None or self.age is not None:
                raise InvalidOption(
                    "changes",
                    "must be set for changes_kept and changes_ttl: no changes are recorded",
                )
            return None
        feed = feed or Feed()
        return replace(
            feed,
            bodies=feed.bodies if self.bodies is None else self.bodies,
            limit=feed.limit if self.limit is None else self.limit,
            age=feed.age if self.age is None else (self.age or None),
        )


def _bodies(changes: Any) -> Bodies | Literal["off"] | None:
    if changes is None or isinstance(changes, bool):
        return None if changes is None else "none" if changes else "off"
    if isinstance(changes, str) and changes in {"after", "both"}:
        return changes  # type: ignore[return-value]
    raise InvalidOption(
        "changes", f"must be True, False, 'after' or 'both', got {shortened(changes)}"
    )


@dataclass(frozen=True, slots=True)
class CollectionOptions:
    """What the catalogue stores of a collection besides its name and table.

    `body_index`: PostgreSQL has an index over whole bodies. `cursor_key` seals the cursors of its pages; `counter`
    numbers its indexes. `array_guards` are the path prefixes whose arrays are indexed, with the names of these indexes. A
    document expires after `ttl` microseconds unless its write has a `ttl` (None: never), again with each update if
    `sliding`. `feed`: how changes are recorded; None: they are not. `jsonb`: SQLite stores bodies as JSONB. `copy_of` identifies
    what is being copied into the collection, until the copy is complete. `versions` are the declared schema versions, with
    the names of the indexes of the documents that have others. `distributed`: the documents are on several servers.

    The JSON has a format; that of older versions has none and is of format 1. `unknown` are keys of a newer version,
    which are preserved. A change that older versions must not ignore takes a higher format.
    """

    cursor_key: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    body_index: bool = True
    indexes: tuple[Index, ...] = ()
    array_guards: tuple[tuple[tuple[str, ...], str], ...] = ()
    counter: int = 1
    ttl: int | None = None
    sliding: bool = False
    feed: Feed | None = None
    jsonb: bool = False
    copy_of: str = ""
    versions: tuple[tuple[int, str], ...] = ()
    distributed: bool = False
    unknown: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_text(self) -> str:
        """Return the stored form, JSON."""
        stored = {
            **self.unknown,
            "format": FORMAT if self.distributed else 1,
            "cursor_key": self.cursor_key or secrets.token_hex(16),
            "body_index": self.body_index,
            "indexes": [index.to_json() for index in self.indexes],
            "ways": self.array_guards,
            "counter": self.counter,
            "ttl": self.ttl,
            "sliding": self.sliding,
            "feed": None if self.feed is None else self.feed.to_json(),
            "jsonb": self.jsonb,
        }
        if self.copy_of:
            stored["copy_of"] = self.copy_of
        if self.versions:
            stored["versions"] = self.versions
        if self.distributed:
            stored["distributed"] = True
        return _CODEC.encode(_lists(stored))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the stored form; raises `SchemaTooNew`."""
        stored = codec.decode(text)
        check_format("the catalogue's entry of a collection", stored.get("format"), FORMAT)
        return cls(
            stored.get("cursor_key", ""),  # none where a version before 0003 created the collection
            stored.get("body_index", True),
            tuple(map(Index.from_json, stored.get("indexes", ()))),
            tuple((tuple(prefix), physical) for prefix, physical in stored.get("ways", ())),
            stored.get("counter", 1),
            stored.get("ttl"),
            stored.get("sliding", False),
            Feed.from_json(stored["feed"]) if stored.get("feed") else None,
            stored.get("jsonb", False),
            stored.get("copy_of", ""),
            tuple((version, physical) for version, physical in stored.get("versions", ())),
            stored.get("distributed", False),
            unknown_keys(stored, _KEYS),
        )

    def to_portable(self) -> dict[str, Any]:
        """Return the stored form, without what belongs to this store alone: names of tables, keys, a copy's state."""
        stored = codec.decode(self.to_text())
        portable = unknown_keys(stored, _LOCAL)
        portable["indexes"] = [unknown_keys(each, _LOCAL_NAMES) for each in stored["indexes"]]
        portable["feed"] = stored["feed"] and unknown_keys(stored["feed"], _LOCAL_NAMES)
        return portable

    @classmethod
    def from_portable(cls, portable: Mapping[str, Any]) -> Self:
        """Read `to_portable`, without what would belong to a store alone. Raises `SchemaTooNew`, `InvalidOption`, and any
        error for what is not of that form.
        """
        check_format("the collection", portable.get("format"), FORMAT)
        _check_portable(portable)
        stored = unknown_keys(portable, _LOCAL)
        stored["indexes"] = [{**each, "physical": ""} for each in portable.get("indexes", ())]
        stored["feed"] = portable.get("feed") and unknown_keys(portable["feed"], _LOCAL_NAMES)
        return cls.from_text(_CODEC.encode(stored))

    def find(self, name: str) -> Index | None:
        """Return the index of that name."""
        return next((index for index in self.indexes if index.name == name), None)

    def paths(self) -> frozenset[tuple[str, ...]]:
        """Return the fields of the indexes that cover every document, arrays apart."""
        whole = (index for index in self.indexes if index.where is None and not index.arrays)
        return frozenset(path.keys for index in whole for path in index.paths)


def _check_portable(portable: Mapping[str, Any]) -> None:
    """Raise `InvalidOption` for an option that the catalogue cannot have."""
    for option in ("body_index", "jsonb", "sliding", "distributed"):
        check_flag(option, portable.get(option, False))
    check_integer("format", portable.get("format", FORMAT))
    _check_age("ttl", portable.get("ttl"))
    feed = portable.get("feed")
    if feed is not None:
        if not isinstance(feed, Mapping):
            raise InvalidOption("feed", f"must be an object or null, got {shortened(feed)}")
        check_choice("feed.bodies", feed.get("bodies", "none"), get_args(Bodies))
        check_integer("feed.limit", feed.get("limit", CHANGES_KEPT), most=MAX_CHANGES)
        _check_age("feed.age", feed.get("age"))


def _check_age(option: str, value: Any) -> None:
    if value is not None:
        check_integer(option, value, most=MAX_TTL * 1_000_000)


def _lists(value: Any) -> Any:
    """Return a value with lists in place of its tuples."""
    if isinstance(value, dict):
        return {key: _lists(each) for key, each in value.items()}
    return [_lists(each) for each in value] if isinstance(value, list | tuple) else value


# -- checks of arguments ---------------------------------------------------------------------

T = TypeVar("T")


def check_known(owner: str, given: Mapping[str, Any], declared: type) -> None:
    """Raise `TypeError` for an option that is not declared."""
    known = declared.__annotations__
    for option in given.keys() - known.keys():
        hint = did_you_mean(option, known) or f": it has {', '.join(known)}"
        raise TypeError(f"{owner} has no option {option!r}{hint}")


def check_flag(option: str, value: object) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise InvalidOption(option, f"must be True or False, got {shortened(value)}")
    return value


def check_integer(option: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """Return an integer from `least` to `most`."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value >= least and (most is None or value <= most):
        return int(value)
    span = f"{least:,} on" if most is None else f"{least:,} to {most:,}"
    raise InvalidOption(option, f"must be an integer from {span}, got {shortened(value)}")


def check_count(option: str, value: Any) -> int:
    """Return an integer from 0 to the largest limit of the databases."""
    return check_integer(option, value, least=0, most=MAX_COUNT)


def check_version(value: Any, option: str = "if_version") -> int | None:
    """Return a version, or None."""
    return None if value is None else check_integer(option, value, most=MAX_COUNT)


def check_seconds(option: str, value: Any, *, least: float = MIN_TIMEOUT) -> float:
    """Return a timeout."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and least <= value <= MAX_TIMEOUT:
        return float(value)
    must = f"must be from {least} to {MAX_TIMEOUT:,} seconds"
    raise InvalidOption(option, f"{must}, got {shortened(value)}")


def check_choice(option: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Return one of some strings, or None if that is one of the choices."""
    if isinstance(value, str | None) and value in choices:
        return value
    known = " or ".join(map(repr, choices))
    raise InvalidOption(option, f"must be {known}, got {shortened(value)}")


def check_function(option: str, value: Any) -> Callable[..., Any]:
    """Return a callable."""
    if not callable(value):
        raise InvalidOption(option, f"must be a function, got {shortened(value)}")
    function: Callable[..., Any] = value
    return function


def check_awaitable(result: Awaitable[T]) -> Awaitable[T]:
    """Return the result of an async function."""
    if isawaitable(result):
        return result
    raise InvalidOption(
        "function", f"must be an async function, got one that returned {shortened(result)}"
    )


def check_iterable(option: str, value: Any) -> Any:
    """Return a mapping or another iterable, but no string."""
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return value
    must = "must be a mapping or a (synchronous) iterable"
    raise InvalidOption(option, f"{must}, got {shortened(value)}")
