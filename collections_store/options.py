"""The options of a store, checked at the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import sqlalchemy as sa

from .codec import Codec
from .dialects import Database, Durability, Isolation
from .errors import InvalidOption, InvalidUrl
from .schema import Names

Upgrade: TypeAlias = Literal["auto", "manual"]
Nul: TypeAlias = Literal["error", "replace"]

MAX_BODY: Final = 16 * 2**20
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
            raise InvalidOption("default", f"{self.default!r} is not callable")
        self.names()

    def names(self) -> Names:
        """Return what the tables are called."""
        return Names(self.prefix, self.schema)

    def codec(self) -> Codec:
        """Return the rules for values."""
        return Codec(max_bytes=self.max_body, nul=self.nul, default=self.default)

    def check_for(self, database: Database) -> None:
        """Refuse what the database does not have."""
        if self.schema is not None and not database.HAS_SCHEMAS:
            raise InvalidOption("schema", f"{database.NAME} has no schemas: use a prefix")
        if self.page_cache is not None and not database.HAS_PAGE_CACHE:
            raise InvalidOption("page_cache", f"the server of {database.NAME} has its own")

    def upgrades(self, database: Database) -> bool:
        """Is an older database upgraded when it is opened?"""
        if self.upgrade is None:
            return database.UPGRADES_ITSELF
        return self.upgrade == "auto"


def read_url(url: str | sa.URL) -> sa.URL:
    """Return the parts of a database URL; raises `InvalidUrl`, which never shows a password."""
    try:
        return sa.make_url(url)
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
        raise InvalidOption(option, f"{value!r} is not a {kind} above 0")


def _seconds(option: str, value: Any) -> None:
    _positive(option, value, (int, float))
    if not MIN_TIMEOUT <= value <= MAX_TIMEOUT:
        raise InvalidOption(
            option, f"{value!r} is not between {MIN_TIMEOUT} and {MAX_TIMEOUT:,} seconds"
        )


def _one_of(option: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise InvalidOption(option, f"{value!r} is none of {known}")


def check_flag(option: str, value: object) -> bool:
    """Return `value` if it is True or False; raises `InvalidOption`."""
    if not isinstance(value, bool):
        raise InvalidOption(option, f"{value!r} is neither True nor False")
    return value


def check_count(option: str, value: Any) -> int:
    """Return a whole number from 0 on; raises `InvalidOption`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise InvalidOption(option, f"{value!r} is not a whole number from 0 on")


def check_isolation(value: Any) -> Isolation:
    """Return `value` if it is a level of isolation; raises `InvalidOption`."""
    _one_of("isolation", value, get_args(Isolation))
    level: Isolation = value
    return level


def check_attempts(value: Any) -> int:
    """Return `value` if it is a whole number from 1 on; raises `InvalidOption`."""
    _positive("attempts", value, int)
    return int(value)
