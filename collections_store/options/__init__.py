"""Options of stores and collections, validated, and the checks of arguments for several layers.

The package knows no database. Begin with `stores`: `StoreOptions` declares the arguments of a caller, `Options` the
validated values. `settings` has the same pair for collections, `collections` the catalogue's entry of a collection,
`calls` the pair for calls, `names` the names of tables, `urls` the URLs of databases, and `checks` a function for each kind of argument.
"""

from __future__ import annotations

from .calls import CallContext, CallOptions
from .checks import (
    check_awaitable,
    check_choice,
    check_count,
    check_flag,
    check_function,
    check_integer,
    check_iterable,
    check_seconds,
    check_version,
)
from .collections import FORMAT, CollectionOptions, Feed
from .names import Names
from .settings import (
    ChangeSettings,
    CollectionSettings,
    ModelSettings,
    ReadSettings,
    Settings,
    Ttl,
    VersionSettings,
)
from .stores import (
    URL_OPTIONS,
    Consistency,
    Isolation,
    Options,
    Sharding,
    StoreOptions,
    option_types,
)
from .urls import read_url, safe_url

__all__ = ["FORMAT", "URL_OPTIONS", "CallContext", "CallOptions", "ChangeSettings", "CollectionOptions", "CollectionSettings", "Consistency", "Feed", "Isolation", "ModelSettings", "Names", "Options", "ReadSettings", "Settings", "Sharding", "StoreOptions", "Ttl", "VersionSettings", "check_awaitable", "check_choice", "check_count", "check_flag", "check_function", "check_integer", "check_iterable", "check_seconds", "check_version", "option_types", "read_url", "safe_url"]  # fmt: skip
