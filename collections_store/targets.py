"""Which database a store is for: a URL, or an engine of the caller's."""

from __future__ import annotations

import sqlalchemy as sa

from .dialects import Database
from .errors import InvalidOption
from .options import Options, read_url


def check_driver(option: str, dialect: sa.Dialect, database: Database) -> None:
    """Raise `InvalidOption` unless a caller's engine or connection has a driver that can be used."""
    if dialect.is_async and option == "engine":
        raise InvalidOption(option, "give a synchronous engine, or use bind(connection)")
    if dialect.name != database.NAME:
        raise InvalidOption(option, f"it leads to {dialect.name}, not {database.NAME}")
    if dialect.driver not in database.DRIVERS:
        known = " or ".join(sorted(database.DRIVERS))
        raise InvalidOption(option, f"its driver is {dialect.driver}: use {known}")


def check_engine(engine: sa.Engine, options: Options, database: Database) -> None:
    """Raise `InvalidOption` for an engine that cannot be used, or not with these options."""
    if options.pool_size is not None:
        raise InvalidOption("pool_size", "the engine that was given has a pool of its own")
    if options.durability != "full":
        raise InvalidOption("durability", "the engine that was given has settings of its own")
    if options.page_cache is not None:
        raise InvalidOption("page_cache", "the engine that was given has settings of its own")
    if database.is_private(engine.url) and not isinstance(engine.pool, sa.StaticPool):
        raise InvalidOption(
            "engine", "each of its connections is a database of its own: use poolclass=StaticPool"
        )


def read_target(
    url: str | sa.URL | None, engine: sa.Engine | None
) -> tuple[sa.URL, sa.Engine | None]:
    """Return the URL that is meant, and the caller's engine if there is one; raises `InvalidOption` and
    `InvalidUrl`.
    """
    if (url is None) == (engine is None):
        raise InvalidOption("url", "give a store either a URL or an engine")
    if engine is not None:
        if not isinstance(engine, sa.Engine):
            raise InvalidOption("engine", f"{engine!r} is not a (synchronous) sqlalchemy.Engine")
        return engine.url, engine
    assert url is not None
    return read_url(url), None
