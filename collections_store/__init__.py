"""JSON documents in named collections, on an SQLite file or on PostgreSQL, sync and async.

>>> from collections_store import Store
>>> with Store("sqlite://") as store:
...     cities = store.collection("cities")
...     version = cities.put("berlin", {"country": {"code": "de"}})
...     [city.id for city in cities.find("country.code", "de")]
['berlin']
"""

from importlib import import_module
from typing import TYPE_CHECKING

from . import errors
from .errors import *  # noqa: F403

if TYPE_CHECKING:
    from .aio.collection import AsyncChangeDocumentStream, AsyncChangeStream, AsyncCollection
    from .aio.store import AsyncStore
    from .aio.transaction import AsyncTransaction
    from .changes import ChangeDocumentStream, ChangeStream
    from .collection import Collection
    from .document import (
        DeleteMany,
        DeleteOne,
        Document,
        InsertOne,
        ReplaceOne,
        UpdateMany,
        UpdateOne,
    )  # fmt: skip
    from .errors import Refusal
    from .expressions.path import Path
    from .models.fields import F
    from .models.indexes import Indexed
    from .operations.requests import ReturnDocument
    from .options import (
        CallOptions,
        ChangeSettings,
        CollectionSettings,
        ModelSettings,
        StoreOptions,
        VersionSettings,
    )
    from .query.change import Change
    from .query.explanation import Explanation
    from .query.filter import Filter
    from .query.index import Index
    from .query.projection import Projection
    from .query.sort import Sort
    from .query.text_index import TextIndex
    from .query.vector_index import VectorIndex
    from .results import (
        BulkWriteResult,
        CollectionInfo,
        CopiedCollection,
        CopyProgress,
        DeleteResult,
        Health,
        InsertManyResult,
        InsertOneResult,
        Invalid,
        Page,
        PutManyResult,
        SearchPage,
        SearchResult,
        Unindexed,
        UpdateResult,
        UpgradeFailure,
        UpgradeResult,
        UpgradeSample,
        partial_result,
    )  # fmt: skip
    from .store import Store
    from .transaction import Transaction
    from .update import Update

__all__ = [
    "AsyncChangeDocumentStream", "AsyncChangeStream", "AsyncCollection", "AsyncStore", "AsyncTransaction", "BulkWriteResult",
    "CallOptions", "Change", "ChangeDocumentStream", "ChangeSettings", "ChangeStream", "Collection", "CollectionInfo",
    "CollectionSettings", "CopiedCollection", "CopyProgress", "DeleteMany", "DeleteOne", "DeleteResult", "Document", "Explanation", "F",
    "Filter", "Health", "Index", "Indexed", "InsertManyResult", "InsertOne", "InsertOneResult", "Invalid", "ModelSettings", "Page", "Path",
    "Projection", "PutManyResult", "Refusal", "ReplaceOne", "ReturnDocument", "SearchPage", "SearchResult", "Sort", "Store",
    "StoreOptions", "TextIndex", "Transaction", "Unindexed", "Update", "UpdateMany", "UpdateOne", "UpdateResult",
    "UpgradeFailure", "UpgradeResult", "UpgradeSample", "VectorIndex", "VersionSettings",
    "partial_result",
]  # fmt: skip
__all__ += errors.__all__
__all__.sort()

_MODULES = {
    "aio.collection": "AsyncChangeDocumentStream AsyncChangeStream AsyncCollection",
    "aio.store": "AsyncStore",
    "aio.transaction": "AsyncTransaction",
    "changes": "ChangeDocumentStream ChangeStream",
    "collection": "Collection",
    "document": "DeleteMany DeleteOne Document InsertOne ReplaceOne UpdateMany UpdateOne",
    "errors": "Refusal",
    "models.fields": "F",
    "models.indexes": "Indexed",
    "operations.requests": "ReturnDocument",
    "options": "CallOptions ChangeSettings CollectionSettings ModelSettings StoreOptions VersionSettings",
    "query.change": "Change",
    "query.filter": "Filter",
    "query.explanation": "Explanation",
    "query.index": "Index",
    "expressions.path": "Path",
    "query.projection": "Projection",
    "query.sort": "Sort",
    "query.text_index": "TextIndex",
    "query.vector_index": "VectorIndex",
    "results": (
        "BulkWriteResult CollectionInfo CopiedCollection CopyProgress DeleteResult Health InsertManyResult InsertOneResult "
        "Invalid Page PutManyResult SearchPage SearchResult Unindexed UpdateResult UpgradeFailure UpgradeResult UpgradeSample partial_result"
    ),
    "store": "Store",
    "transaction": "Transaction",
    "update": "Update",
}
"""The names of each module, which is imported when one of its names is first used."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
_SUBMODULES = {*_MODULES, "dialogues", "memory"}
"""Modules that are attributes of the package without an import of their own."""

if not TYPE_CHECKING:  # with it, a type checker accepts any misspelled name

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
