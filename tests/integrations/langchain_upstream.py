"""LangChain's own tests of vector stores, sync and async, on our stores; `test_langchain_vectors.py` runs these tests."""

from collections.abc import Iterator

import pytest
from backends import Backend
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from collections_store.integrations.langchain import LangChainVectorStore


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, backend: Backend) -> Iterator[VectorStore]:  # type: ignore[override]
        model = self.get_embeddings()
        with LangChainVectorStore(backend.url, model, **backend.options) as store:
            yield store
