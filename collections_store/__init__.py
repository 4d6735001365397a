"""JSON objects in named collections, on an SQLite file or on PostgreSQL, sync and async.

>>> from collections_store import Store
>>> with Store("sqlite://") as store:
...     cities = store.get_sync_collection("cities")
...     version = cities.put("berlin", {"country": {"code": "de"}})
...     [city.id for city in cities.find("country.code", "de")]
['berlin']
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import (
    BulkWriteError,
    ChangesLost,
    CollectionExists,
    CollectionNotFound,
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    DialogueConflict,
    DialogueNotFound,
    DialoguesNotSaved,
    DocumentNotFound,
    DuplicateKey,
    IndexExists,
    InvalidBody,
    InvalidCursor,
    InvalidDialogueMessage,
    InvalidFilter,
    InvalidId,
    InvalidIndex,
    InvalidName,
    InvalidOperand,
    InvalidOption,
    InvalidPipeline,
    InvalidProjection,
    InvalidSort,
    InvalidToken,
    InvalidUpdate,
    InvalidUrl,
    MemoryLimitExceeded,
    MissingExtra,
    NotTheCreator,
    PatternLimitExceeded,
    RepeatedMessage,
    SchemaError,
    SchemaOutdated,
    SchemaTooNew,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
    UpdateRefused,
    VersionConflict,
    was_committed,
)

if TYPE_CHECKING:
    from .aio.change_stream import AsyncChangeStream
    from .aio.collection import AsyncCollection
    from .aio.store import AsyncStore
    from .aio.transaction import AsyncTransaction
    from .changes.watch import ChangeStream
    from .collection import Collection
    from .document import (
        BulkWriteResult,
        CollectionInfo,
        DeleteMany,
        DeleteOne,
        DeleteResult,
        Document,
        InsertManyResult,
        InsertOne,
        InsertOneResult,
        Page,
        PutManyResult,
        Refusal,
        ReplaceOne,
        UpdateMany,
        UpdateOne,
        UpdateResult,
        partial_result,
    )
    from .operations.procedures import ReturnDocument
    from .options import ChangeSettings, CollectionSettings, StoreOptions
    from .query.change import Change
    from .query.explain import Explanation
    from .query.filter import F, Filter
    from .query.index import Index
    from .query.path import Path
    from .query.projection import Projection
    from .query.sort import Sort
    from .store import Store, Transaction
    from .update import Update


__all__ = [
    "AsyncChangeStream",
    "AsyncCollection",
    "AsyncStore",
    "AsyncTransaction",
    "BulkWriteError",
    "BulkWriteResult",
    "Change",
    "ChangeSettings",
    "ChangeStream",
    "ChangesLost",
    "Collection",
    "CollectionExists",
    "CollectionInfo",
    "CollectionNotFound",
    "CollectionSettings",
    "CollectionsStoreError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "DeleteMany",
    "DeleteOne",
    "DeleteResult",
    "DialogueConflict",
    "DialogueNotFound",
    "DialoguesNotSaved",
    "Document",
    "DocumentNotFound",
    "DuplicateKey",
    "Explanation",
    "F",
    "Filter",
    "Index",
    "IndexExists",
    "InsertManyResult",
    "InsertOne",
    "InsertOneResult",
    "InvalidBody",
    "InvalidCursor",
    "InvalidDialogueMessage",
    "InvalidFilter",
    "InvalidId",
    "InvalidIndex",
    "InvalidName",
    "InvalidOperand",
    "InvalidOption",
    "InvalidPipeline",
    "InvalidProjection",
    "InvalidSort",
    "InvalidToken",
    "InvalidUpdate",
    "InvalidUrl",
    "MemoryLimitExceeded",
    "MissingExtra",
    "NotTheCreator",
    "Page",
    "Path",
    "PatternLimitExceeded",
    "Projection",
    "PutManyResult",
    "Refusal",
    "RepeatedMessage",
    "ReplaceOne",
    "ReturnDocument",
    "SchemaError",
    "SchemaOutdated",
    "SchemaTooNew",
    "Sort",
    "Store",
    "StoreClosed",
    "StoreOptions",
    "Transaction",
    "TransactionConflict",
    "TransactionEnded",
    "Update",
    "UpdateMany",
    "UpdateOne",
    "UpdateRefused",
    "UpdateResult",
    "VersionConflict",
    "partial_result",
    "was_committed",
]

_ROOMS = {
    "aio.change_stream": ("AsyncChangeStream",),
    "aio.collection": ("AsyncCollection",),
    "aio.store": ("AsyncStore",),
    "aio.transaction": ("AsyncTransaction",),
    "changes.watch": ("ChangeStream",),
    "collection": ("Collection",),
    "document": (
        "BulkWriteResult",
        "CollectionInfo",
        "DeleteMany",
        "DeleteOne",
        "DeleteResult",
        "Document",
        "InsertManyResult",
        "InsertOne",
        "InsertOneResult",
        "Page",
        "PutManyResult",
        "Refusal",
        "ReplaceOne",
        "UpdateMany",
        "UpdateOne",
        "UpdateResult",
        "partial_result",
    ),
    "operations.procedures": ("ReturnDocument",),
    "options": ("ChangeSettings", "CollectionSettings", "StoreOptions"),
    "query.change": ("Change",),
    "query.explain": ("Explanation",),
    "query.filter": ("F", "Filter"),
    "query.index": ("Index",),
    "query.path": ("Path",),
    "query.projection": ("Projection",),
    "query.sort": ("Sort",),
    "store": ("Store", "Transaction"),
    "update": ("Update",),
}
"""Where each name lives; a room is entered when one of its names is first asked for."""
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}
_DOORS = {*_ROOMS, "dialogues", "memory"}
"""Modules that are there after `import collections_store`, as `collections_store.errors` is."""

if not TYPE_CHECKING:  # a type checker that saw this would take any misspelled name

    def __getattr__(name: str) -> object:
        if name in _DOORS:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
