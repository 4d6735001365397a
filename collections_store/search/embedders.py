"""Embedders: the caller's functions and objects for vectors of texts, by duck type.

An embedder is a function of a list of texts, sync or async, or an object with the methods of one of these libraries:
LangChain (`embed_documents`), LlamaIndex (`get_text_embedding_batch`), sentence-transformers and model2vec (`encode`), or a
client with the interface of OpenAI's (`embeddings.create`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Any, TypeAlias

from ..errors import InvalidIndex, shortened
from ..expressions.classes import value_class
from .chunks import Cut
from .claims import QueryClaim

Embed: TypeAlias = Callable[[list[str]], Any]
"""Returns a vector for each text, or an awaitable of them."""


@value_class
class Embedder:
    """How texts become vectors: texts of documents, and texts to search for. `cut` cuts long texts. `queried` has the
    queries that a search embeds now.
    """

    documents: Embed
    queries: Embed
    model: str | None = None
    cut: Cut | None = None
    queried: dict[str, QueryClaim] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Any, model: str | None = None, cut: Cut | None = None) -> Embedder:
        """Read a caller's function or object; raises `InvalidIndex`."""
        name = model or _name_of(given)
        if hasattr(given, "embed_documents"):
            return cls(given.embed_documents, partial(_each, given.embed_query), name, cut)
        if hasattr(given, "get_text_embedding_batch"):
            one = given.get_query_embedding
            return cls(given.get_text_embedding_batch, partial(_each, one), name, cut)
        if hasattr(given, "encode"):
            documents = getattr(given, "encode_document", given.encode)
            return cls(documents, getattr(given, "encode_query", given.encode), name, cut)
        if hasattr(given, "embeddings") and hasattr(given.embeddings, "create"):
            create = partial(_created, given.embeddings.create, name)
            return cls(create, create, name, cut)
        if callable(given):
            return cls(given, given, name, cut)
        problem = (
            f"must be a function of a list of texts, or an embedding model, got {shortened(given)}"
        )
        raise InvalidIndex("embed", problem)


def _name_of(given: Any) -> str | None:
    found = (getattr(given, name, None) for name in ("model_name", "model", "base_model_name"))
    return next((each for each in found if isinstance(each, str) and each), None)


def _each(embed: Callable[[str], Any], texts: Sequence[str]) -> list[Any]:
    return [embed(text) for text in texts]


def _created(create: Callable[..., Any], model: str | None, texts: list[str]) -> Any:
    found = create(model=model, input=texts)
    return _AwaitedEmbeddings(found) if hasattr(found, "__await__") else _embeddings(found)


def _embeddings(found: Any) -> list[Any]:
    return [each.embedding for each in sorted(found.data, key=lambda each: each.index)]


class _AwaitedEmbeddings:
    """An awaitable of the vectors of an awaitable answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __await__(self) -> Any:
        found = yield from self._answer.__await__()
        return _embeddings(found)
