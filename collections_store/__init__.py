"""JSON objects in named collections, on an SQLite file or on PostgreSQL, sync and async.

>>> from collections_store import Store
>>> with Store("sqlite://") as store:
...     cities = store.get_sync_collection("cities")
...     version = cities.put("berlin", {"country": {"code": "de"}})
...     [city.id for city in cities.find("country.code", "de")]
['berlin']
"""

from .collection import Collection
from .collection_async import AsyncCollection
from .document import CollectionInfo, Document
from .errors import (
    CollectionExists,
    CollectionNotFound,
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    InvalidBody,
    InvalidFilter,
    InvalidId,
    InvalidName,
    InvalidOperand,
    InvalidOption,
    InvalidPipeline,
    InvalidUrl,
    MemoryLimitExceeded,
    MissingExtra,
    SchemaError,
    SchemaOutdated,
    SchemaTooNew,
    StoreClosed,
    TransactionConflict,
    was_committed,
)
from .filter import Filter
from .filter.fields import F
from .path import Path
from .store import Store, Transaction
from .store_async import AsyncStore, AsyncTransaction

__all__ = [
    "AsyncCollection",
    "AsyncStore",
    "AsyncTransaction",
    "Collection",
    "CollectionExists",
    "CollectionInfo",
    "CollectionNotFound",
    "CollectionsStoreError",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseUnavailable",
    "Document",
    "F",
    "Filter",
    "InvalidBody",
    "InvalidFilter",
    "InvalidId",
    "InvalidName",
    "InvalidOperand",
    "InvalidOption",
    "InvalidPipeline",
    "InvalidUrl",
    "MemoryLimitExceeded",
    "MissingExtra",
    "Path",
    "SchemaError",
    "SchemaOutdated",
    "SchemaTooNew",
    "Store",
    "StoreClosed",
    "Transaction",
    "TransactionConflict",
    "was_committed",
]
