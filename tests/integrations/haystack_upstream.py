"""Haystack's own tests of document stores, sync and async, on our stores; `test_haystack.py` runs these tests."""

from collections.abc import Iterator
from typing import Any

import pytest
from backends import Backend
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    DocumentStoreBaseExtendedTests,
)
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)

from collections_store.integrations.haystack import CollectionsDocumentStore


@pytest.fixture
def document_store(backend: Backend) -> Iterator[Any]:
    with CollectionsDocumentStore(backend.url, **backend.options) as store:
        yield store


class TestDocumentStore(DocumentStoreBaseExtendedTests, CountDocumentsByFilterTest):
    @pytest.fixture
    def document_store(self, document_store: Any) -> Any:
        return document_store

    def test_write_documents(self, document_store: Any) -> None:
        """The suite leaves the default policy to each store."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])


class TestAsyncDocumentStore(
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
):
    @pytest.fixture
    def document_store(self, document_store: Any) -> Any:
        return document_store

    async def test_write_documents_async(self, document_store: Any) -> None:
        """The suite leaves the default policy to each store."""
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])
