"""Options of a store that depend on the database."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from ...errors import InvalidOption, InvalidUrl
from ...options import URL_OPTIONS, Options, read_url
from .protocols import Database

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
"""Options that a database may lack: `Database.options` has the supported ones."""
_EVERYWHERE: Final = (None, False, "full", "normal")
"""The values of these options that every database supports."""
_OF_STORE: Final = frozenset(URL_OPTIONS) - {"pooler"}
_NOT_WITH_REPLICAS: Final = {
    "read_only": "not with read_only: a store that only reads takes the URL of the replicas as its own",
    "sharding": "not with sharding: each worker has replicas of its own",
}


def check_supported(options: Options, database: Database) -> None:
    """Raise `InvalidOption` for an option unsupported by the database."""
    for option, problem in _NOT_EVERYWHERE.items():
        if getattr(options, option) not in _EVERYWHERE and option not in database.options:
            raise InvalidOption(option, problem.format(database.name))
    replica_url(options, database)


def replica_url(options: Options, database: Database) -> sa.URL | None:
    """Return the URL of the replicas; raises `InvalidOption`, never with a password in the message."""
    if options.replicas is None:
        if options.consistency is not None:
            problem = "needs replicas, the URL of the servers to read from"
            raise InvalidOption("consistency", problem)
        return None
    for option, problem in _NOT_WITH_REPLICAS.items():
        if getattr(options, option):
            raise InvalidOption("replicas", problem)
    try:
        url = read_url(options.replicas)
        if url.get_backend_name() != database.name:
            must = f"must be a URL of {database.name}, as the store's"
            raise InvalidOption("replicas", f"{must}, got one of {url.drivername}")
        for option in _OF_STORE & {*url.query}:
            raise InvalidOption("replicas", f"the URL has {option!r}, an option of the store")
        options.of_replicas(url)  # checks its pooler
        return database.urls.normal_url(url)
    except InvalidUrl as error:
        raise InvalidOption("replicas", str(error)) from None


def reconnects_for(options: Options, database: Database) -> float:
    """Return the seconds for which an operation tries to reach a lost database."""
    given = options.reconnect_for
    return database.reconnect_for if given is None else float(given)


def upgrades(options: Options, database: Database) -> bool:
    """Return whether opening an older database upgrades the database."""
    if options.read_only:
        return False
    return database.upgrades_on_open if options.upgrade is None else options.upgrade == "auto"
