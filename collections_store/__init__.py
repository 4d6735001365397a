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
    from .change import Change
    from .change_stream import ChangeStream
    from .change_stream_async import AsyncChangeStream
    from .collection import Collection
    from .collection_async import AsyncCollection
    from .document import CollectionInfo, Document, Page
    from .explanation import Explanation
    from .filter import Filter
    from .filter.fields import F
    from .index import Index
    from .ordering import Sort
    from .path import Path
    from .projection import Projection
    from .requested import ReturnDocument
    from .requests import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
    from .results import (
        BulkWriteResult,
        DeleteResult,
        InsertManyResult,
        InsertOneResult,
        PutManyResult,
        Refusal,
        UpdateResult,
    )
    from .store import Store
    from .store_async import AsyncStore
    from .transaction import Transaction
    from .transaction_async import AsyncTransaction
    from .update import Update

__all__ = [
    "AsyncChangeStream",
    "AsyncCollection",
    "AsyncStore",
    "AsyncTransaction",
    "BulkWriteError",
    "BulkWriteResult",
    "Change",
    "ChangeStream",
    "ChangesLost",
    "Collection",
    "CollectionExists",
    "CollectionInfo",
    "CollectionNotFound",
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
    "Transaction",
    "TransactionConflict",
    "TransactionEnded",
    "Update",
    "UpdateMany",
    "UpdateOne",
    "UpdateRefused",
    "UpdateResult",
    "VersionConflict",
    "was_committed",
]

_ROOMS = {
    "change": ("Change",),
    "change_stream": ("ChangeStream",),
    "change_stream_async": ("AsyncChangeStream",),
    "collection": ("Collection",),
    "collection_async": ("AsyncCollection",),
    "document": (
        "CollectionInfo",
        "Document",
        "Page",
    ),
    "explanation": ("Explanation",),
    "filter": ("Filter",),
    "filter.fields": ("F",),
    "index": ("Index",),
    "ordering": ("Sort",),
    "path": ("Path",),
    "projection": ("Projection",),
    "requested": ("ReturnDocument",),
    "requests": (
        "DeleteMany",
        "DeleteOne",
        "InsertOne",
        "ReplaceOne",
        "UpdateMany",
        "UpdateOne",
    ),
    "results": (
        "BulkWriteResult",
        "DeleteResult",
        "InsertManyResult",
        "InsertOneResult",
        "PutManyResult",
        "Refusal",
        "UpdateResult",
    ),
    "store": ("Store",),
    "store_async": ("AsyncStore",),
    "transaction": ("Transaction",),
    "transaction_async": ("AsyncTransaction",),
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
