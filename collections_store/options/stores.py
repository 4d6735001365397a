"""The options of stores: passed by a caller, and validated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, Self, TypeAlias, TypedDict, get_args, get_type_hints

import sqlalchemy as sa

from ..codec import MAX_BODY, Codec
from ..errors import InvalidOption, shortened
from ..observation import OperationRecord
from .checks import (
    check_choice,
    check_flag,
    check_function,
    check_integer,
    check_known,
    check_seconds,
)
from .names import Names

Durability: TypeAlias = Literal["full", "normal", "replicated"]
Isolation: TypeAlias = Literal["repeatable read", "serializable"]
Nul: TypeAlias = Literal["error", "replace"]
Upgrade: TypeAlias = Literal["auto", "manual"]
Pooler: TypeAlias = Literal["transaction", "session"]
Sharding: TypeAlias = Literal["schema", "collections"]
Echo: TypeAlias = bool | Literal["debug"]
Consistency: TypeAlias = Literal["session", "strong", "eventual"]


class StoreOptions(TypedDict, total=False):
    """The options of `Store` and `AsyncStore`.

    * `pool_size`: the maximum number of connections. Default: 4 readers and 1 writer on an SQLite file, 10 on
      PostgreSQL, where an `AsyncStore` has an additional writer. PostgreSQL ends connections after 5 idle minutes. Not
      with `engine`.
    * `busy_timeout`: seconds to wait for a lock or a connection before `DatabaseBusy`; 30.
    * `reconnect_for`: seconds for which an operation that has written nothing tries to reach a lost or a writable
      server; then `DatabaseUnavailable` or `ReadOnlyDatabase`. 0: not at all. Default: 30 on PostgreSQL, 1 on SQLite.
      The first use tries for 1 second at most.
    * `reply_timeout`: seconds for which PostgreSQL may be silent during a statement; then the connection is closed with
      `DatabaseUnavailable`, for a write `in_doubt`. Choose more than your slowest query takes; schema changes have no
      limit. Default: none. Not on SQLite, and not with `engine`.
    * `durability`: "full", the default: an acknowledged write survives a power cut. "normal": a power cut may lose the
      last moments, a crash of the process loses nothing. "replicated", on PostgreSQL: a write also survives the loss of
      the primary; a server without a synchronous standby is refused with `DatabaseUnavailable`. Not with `engine`.
    * `read_only`: the store only reads, from a standby or a primary; False. A write raises `ReadOnlyDatabase`, nothing is
      created, upgraded or swept. On PostgreSQL, and not with `engine`.
    * `max_body`: the maximum size of a body in bytes of JSON; 16 MiB.
    * `nul`: "error", the default, rejects NUL characters in bodies; "replace" stores U+FFFD instead.
    * `default`: a function that converts a value to JSON where JSON lacks the type, as in `json.dumps`.
    * `prefix`: the beginning of the tables' names; "cs_".
    * `schema`: the PostgreSQL schema of the tables. Default: the connection's own.
    * `upgrade`: "auto" upgrades an older database on opening, the default on SQLite; "manual" raises `SchemaOutdated`,
      the default on PostgreSQL.
    * `sweep_interval`: the interval in seconds at which a thread purges expired documents and changes. Default: none;
      call `purge_expired`.
    * `page_cache`: the maximum number of bytes of an SQLite file that each connection caches; 16 MiB. Not on
      PostgreSQL, whose server has a cache, and not with `engine`.
    * `pooler`: the pooler before a PostgreSQL server. "transaction": a pooler such as PgBouncer may give each
      transaction another connection of the server. "session": no pooler, or a pooler that keeps the connection of the
      server for a session. Default: detected for each connection. Also as `?pooler=transaction` in the URL. Not with
      `engine`.
    * `sharding`: how a Citus cluster (12 or newer) shares the work. "schema": all tables of the store's `schema` are on
      a single worker; Citus spreads schemas over the workers. "collections": the documents of collections created with
      `distributed=True` are spread over all workers; all remaining collections are on the coordinator. The store
      creates the tables accordingly. Also as `?sharding=schema` in the URL. Default: the tables are where the URL
      leads.
    * `replicas`: the URL of streaming replicas of a PostgreSQL server. The collections of the store read from the
      replicas. Also as `?replicas=…` in the URL. Not with `engine`, `read_only` or `sharding`. Default: reads go to the
      primary.
    * `consistency`: with `replicas`, the state that a read sees. "session", the default: at least everything the store
      has written and read before. "eventual": everything a replica has replayed. "strong": everything committed; reads
      go to the primary. Also as `?consistency=…` in the URL, and for a single collection by `with_options`.
    * `on_operation`: a function called with an `OperationRecord` after each operation, in the thread of the operation.
      Errors of the function are logged once, and reach no caller.
    * `slow_operation`: seconds; a slower operation is logged as a WARNING, with the advice of `explain`. Default: none.
    * `echo`: True logs each statement without its parameters to `collections_store.statements`, and prints the log if
      no handler is set up; "debug" logs the parameters too: bodies and values; False. With `engine` use the engine's
      own `echo`.
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
        if not isinstance(self.echo, str):
            check_flag("echo", self.echo)
        elif self.echo != "debug":
            raise InvalidOption(
                "echo", f"must be True, False or 'debug', got {shortened(self.echo)}"
            )
        self.names()

    @classmethod
    def parse(cls, options: StoreOptions) -> Self:
        """Validate the options of a store; raises `InvalidOption`, and `TypeError` for an unknown option."""
        check_known("a store", options, StoreOptions)
        return cls(**options)

    def names(self) -> Names:
        return Names(self.prefix, self.schema)

    def codec(self) -> Codec:
        return Codec(max_bytes=self.max_body, nul=self.nul, default=self.default)

    def of_replicas(self, url: sa.URL) -> Self:
        """Return the options of connections to the replicas of a URL; the URL may name a pooler."""
        pooler: Any = url.query.get("pooler")
        return replace(self, read_only=True, pooler=pooler)

    def default_consistency(self) -> Consistency:
        return "strong" if self.replicas is None else self.consistency or "session"

    def check_for_engine(self) -> None:
        """Raise `InvalidOption` for an option that a caller's engine decides."""
        for each in fields(self):
            if each.name in _NOT_WITH_ENGINE and getattr(self, each.name) != each.default:
                raise InvalidOption(each.name, _NOT_WITH_ENGINE[each.name])

    def for_url(self, url: sa.URL) -> Self:
        """Return the options of a store with a URL; the URL may set options. Raises `InvalidOption`."""
        named: dict[str, Any] = {
            name: url.query[name]
            for name in URL_OPTIONS
            if getattr(self, name) is None and name in url.query
        }
        return replace(self, **named)
