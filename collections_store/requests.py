"""What `bulk_write` takes: pymongo's requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any


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
