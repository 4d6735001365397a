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
from .document import CollectionInfo, DeleteResult, Document, Page
from .errors import (
    CollectionExists,
    CollectionNotFound,
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    DuplicateKey,
    IndexExists,
    InvalidBody,
    InvalidCursor,
    InvalidFilter,
    InvalidId,
    InvalidIndex,
    InvalidName,
    InvalidOperand,
    InvalidOption,
    InvalidPipeline,
    InvalidProjection,
    InvalidSort,
    InvalidUrl,
    MemoryLimitExceeded,
    MissingExtra,
    SchemaError,
    SchemaOutdated,
    SchemaTooNew,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
    was_committed,
)
from .explanation import Explanation
from .filter import Filter
from .filter.fields import F
from .index import Index
from .ordering import Sort
from .path import Path
from .projection import Projection
from .store import Store
from .store_async import AsyncStore
from .transaction import Transaction
from .transaction_async import AsyncTransaction

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
    "DeleteResult",
    "Document",
    "DuplicateKey",
    "Explanation",
    "F",
    "Filter",
    "Index",
    "IndexExists",
    "InvalidBody",
    "InvalidCursor",
    "InvalidFilter",
    "InvalidId",
    "InvalidIndex",
    "InvalidName",
    "InvalidOperand",
    "InvalidOption",
    "InvalidPipeline",
    "InvalidProjection",
    "InvalidSort",
    "InvalidUrl",
    "MemoryLimitExceeded",
    "MissingExtra",
    "Page",
    "Path",
    "Projection",
    "SchemaError",
    "SchemaOutdated",
    "SchemaTooNew",
    "Sort",
    "Store",
    "StoreClosed",
    "Transaction",
    "TransactionConflict",
    "TransactionEnded",
    "was_committed",
]
