"""LangChain: a vector store, and the message histories of chats, in collections of a store.

`LangChainVectorStore` is a `VectorStore`. `LangChainHistories` has the histories of all sessions: pass the method
`history` to `RunnableWithMessageHistory`; the method returns the `BaseChatMessageHistory` of a session. Methods come
in pairs, sync and async, on the same object and the same store, from any thread and any event loop. A sync method
blocks the event loop of its caller.

Requires langchain-core: `pip install 'collections-store[langchain]'`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, Self

from .. import (
    AsyncStore,
    Document,
    Filter,
    InvalidBody,
    InvalidOption,
    MissingExtra,
    SearchResult,
)
from .stores import PairedCollection, PairedOwner, insert, run_anywhere
from .vectors import VectorCollection, as_json, dimensions_of, packed, unpacked

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.documents import Document as Text
    from langchain_core.embeddings import Embeddings
    from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ImportError as error:
    raise MissingExtra("langchain-core", "langchain") from error

JOINING: Final = {"$and", "$or", "$nor"}


class LangChainVectorStore(PairedOwner, VectorStore):
    """A `VectorStore`: LangChain's documents with the vectors of their texts, a document each.

    `store` is an `AsyncStore`, or a URL with `options` of `AsyncStore`; `collection` has the documents. `embedding` is
    an embedding model of LangChain; async methods use its async methods. `metric` is "cosine", "l2" or "dot": the score
    of a document is the cosine, the negative distance, or the dot product, so the greater is the nearer. A search
    without `k` returns 4 documents. Requires numpy.

    `filter` has conditions on the metadata, in the language of MongoDB's filters: `{"year": {"$gt": 1990}}`. A `Filter`
    is on the whole document: `F("metadata.year") > 1990`. The database evaluates filters.

    Raise `InvalidBody` for metadata without a JSON form, and the errors of `create_vector_index`.

    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> with LangChainVectorStore("sqlite://", DeterministicFakeEmbedding(size=8)) as texts:
    ...     texts.add_texts(["Green tea", "Rain"], [{"year": 1990}, {"year": 2000}], ids=["1", "2"])
    ...     [found.page_content for found in texts.similarity_search("Rain", k=1, filter={"year": {"$lt": 2000}})]
    ['1', '2']
    ['Green tea']
    """

    _opened: VectorCollection

    def __init__(
        self,
        store: AsyncStore | str,
        embedding: Embeddings,
        *,
        collection: str = "langchain_documents",
        metric: str = "cosine",
        **options: Any,
    ) -> None:
        self._embedding = embedding
        self._opened = VectorCollection(store, collection, (), options, text="text", metric=metric)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a vector store with texts; `kwargs` are `store` and the other arguments of the constructor."""
        made = cls(embedding=embedding, **kwargs)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Async counterpart of `from_texts`."""
        made = cls(embedding=embedding, **kwargs)
        await made.aadd_texts(texts, metadatas, ids=ids)
        return made

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model."""
        return self._embedding

    def add_documents(
        self,
        documents: list[Text],
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> list[str]:
        """Embed and write documents, all or none; return the ids: of `ids`, else of the documents, else new ones. A document
        of the same id is replaced.
        """
        vectors = self._embedding.embed_documents([each.page_content for each in documents])
        bodies, dimensions, written = _bodies(documents, ids, vectors)
        if written:
            self._opened.ready(dimensions).put_many(bodies, atomic=True)
        return written

    async def aadd_documents(
        self,
        documents: list[Text],
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> list[str]:
        """Async counterpart of `add_documents`."""
        vectors = await self._embedding.aembed_documents([each.page_content for each in documents])
        bodies, dimensions, written = _bodies(documents, ids, vectors)
        if written:
            await (await self._opened.aready(dimensions)).put_many(bodies, atomic=True)
        return written

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:  # noqa: ARG002
        """Delete the documents of ids; without `ids`, all documents. Return True."""
        if ids is None:
            self._opened.sync.delete_many({})
        else:
            self._opened.sync.remove_many(ids)
        return True

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:  # noqa: ARG002
        """Async counterpart of `delete`."""
        if ids is None:
            await self._opened.aio.delete_many({})
        else:
            await self._opened.aio.remove_many(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Text]:
        """Return the existing documents of ids, in the order of `ids`."""
        return _texts(self._opened.sync.get_many(ids))

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Text]:
        """Async counterpart of `get_by_ids`."""
        return _texts(await self._opened.aio.get_many(ids))

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Text]:
        """Return the documents nearest to a text, best first."""
        found = self._near(self._embedding.embed_query(query), k, **kwargs)
        return list(map(_text, found))

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Text]:
        """Async counterpart of `similarity_search`."""
        found = await self._anear(await self._embedding.aembed_query(query), k, **kwargs)
        return list(map(_text, found))

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Text, float]]:
        """Return the documents nearest to a text, with their scores; a greater score is nearer."""
        found = self._near(self._embedding.embed_query(query), k, **kwargs)
        return [(_text(each), each.score) for each in found]

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Text, float]]:
        """Async counterpart of `similarity_search_with_score`."""
        found = await self._anear(await self._embedding.aembed_query(query), k, **kwargs)
        return [(_text(each), each.score) for each in found]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Text]:
        """Return the documents nearest to a vector, best first."""
        return list(map(_text, self._near(embedding, k, **kwargs)))

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Text]:
        """Async counterpart of `similarity_search_by_vector`."""
        return list(map(_text, await self._anear(embedding, k, **kwargs)))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Text]:
        """Return near documents that differ, of the `fetch_k` nearest to a text. `lambda_mult` 1 counts the nearness alone, 0
        the difference alone.
        """
        vector = self._embedding.embed_query(query)
        return _different(self._near(vector, fetch_k, **kwargs), vector, k, lambda_mult)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Text]:
        """Async counterpart of `max_marginal_relevance_search`."""
        vector = await self._embedding.aembed_query(query)
        return _different(await self._anear(vector, fetch_k, **kwargs), vector, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Text]:
        """Return near documents that differ, of the `fetch_k` nearest to a vector."""
        return _different(self._near(embedding, fetch_k, **kwargs), embedding, k, lambda_mult)

    async def amax_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Text]:
        """Async counterpart of `max_marginal_relevance_search_by_vector`."""
        found = await self._anear(embedding, fetch_k, **kwargs)
        return _different(found, embedding, k, lambda_mult)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Return the function of scores to relevances from 0 to 1."""
        if self._opened.metric == "l2":
            return lambda score: 1 / (1 - score)
        return lambda score: min(1.0, max(0.0, score))

    def _near(self, vector: list[float], k: int, *, filter: Any = None) -> list[SearchResult[Any]]:
        search = methodcaller("nearest", vector, k, filter=_filter(filter), index="embedding")
        return self._opened.found(search, len(vector))

    async def _anear(
        self, vector: list[float], k: int, *, filter: Any = None
    ) -> list[SearchResult[Any]]:
        search = methodcaller("nearest", vector, k, filter=_filter(filter), index="embedding")
        return await self._opened.afound(search, len(vector))


class LangChainHistories(PairedOwner):
    """The message histories of sessions, a document for each message.

    `store` is an `AsyncStore`, which stays open, or a URL with `options` of `AsyncStore`; `collection` has the
    messages of all sessions.

    >>> with LangChainHistories("sqlite://") as histories:
    ...     histories.history("ada").add_user_message("Hello.")
    ...     histories.sessions()
    ['ada']
    """

    def __init__(
        self, store: AsyncStore | str, *, collection: str = "langchain_messages", **options: Any
    ) -> None:
        self._opened = PairedCollection(store, collection, ("session",), options)

    def history(self, session_id: str) -> LangChainHistory:
        """Return the history of a session, without a read or a write. Raise `InvalidOption` unless the id is a
        string.
        """
        return LangChainHistory(self, session_id)

    def sessions(self) -> list[str]:
        """Return the ids of the sessions with messages, sorted."""
        return run_anywhere(self.asessions())

    async def asessions(self) -> list[str]:
        """Async counterpart of `sessions`."""
        return await self._opened.keys()


class LangChainHistory(BaseChatMessageHistory):
    """The message history of a session: a `BaseChatMessageHistory`, returned by `LangChainHistories.history`.

    Messages keep the order in which they were written.

    >>> with LangChainHistories("sqlite://") as histories:
    ...     ada = histories.history("ada")
    ...     ada.add_user_message("Hello.")
    ...     ada.add_ai_message("Hello Ada!")
    ...     print(ada)
    Human: Hello.
    AI: Hello Ada!
    """

    def __init__(self, histories: LangChainHistories, session_id: str) -> None:
        self._opened, self.session_id = histories._opened, _checked(session_id)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages. Each access reads all messages again."""
        return _messages(self._opened.sync.find("session", self.session_id))

    async def aget_messages(self) -> list[BaseMessage]:
        """Async counterpart of `messages`."""
        return _messages(await self._opened.aio.find("session", self.session_id))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none.

        Values are stored as LangChain writes values with `json`: tuples as lists. Raise `InvalidBody` for a message
        without a JSON form, and for a message of a class unknown to LangChain's reader.
        """
        insert(self._opened.indexed(), [self._body(message) for message in messages])

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Async counterpart of `add_messages`."""
        bodies = [self._body(message) for message in messages]
        await insert(await self._opened.aindexed(), bodies)

    def clear(self) -> None:
        """Delete the messages of the session."""
        self._opened.sync.delete_many("session", self.session_id)

    async def aclear(self) -> None:
        """Async counterpart of `clear`."""
        await self._opened.aio.delete_many("session", self.session_id)

    def _body(self, message: BaseMessage) -> dict[str, Any]:
        kind = type(message).__name__
        try:
            body = json.loads(json.dumps(message_to_dict(message)))
        except (RecursionError, TypeError, ValueError) as error:
            raise InvalidBody("message", f"the {kind} is not JSON: {error}") from None
        try:
            messages_from_dict([body])
        except (LookupError, TypeError, ValueError):
            raise InvalidBody("message", f"LangChain cannot read the {kind} back") from None
        return {"session": self.session_id, "message": body}


def _checked(session_id: Any) -> str:
    if not isinstance(session_id, str):
        problem = f"must be a string, got {type(session_id).__name__}"
        raise InvalidOption("session_id", problem)
    return session_id


def _messages(found: Iterable[Document]) -> list[BaseMessage]:
    return messages_from_dict([each.body["message"] for each in found])


# -- documents with vectors ------------------------------------------------------------------


def _bodies(
    documents: Sequence[Text], ids: Sequence[str | None] | None, vectors: Sequence[list[float]]
) -> tuple[dict[str, Any], int | None, list[str]]:
    """Return bodies by id, the dimensions of the vectors, and the ids of all documents."""
    given = [each.id for each in documents] if ids is None else ids
    if len(given) != len(documents):
        problem = f"must have an id for each document, got {len(given)} for {len(documents)}"
        raise InvalidOption("ids", problem)
    written = [id or str(uuid.uuid4()) for id in given]
    bodies = {
        id: {
            "text": each.page_content,
            "metadata": as_json("metadata", each.metadata),
            "embedding": packed(vector),
        }
        for id, each, vector in zip(written, documents, vectors, strict=True)
    }
    return bodies, dimensions_of(vectors), written


def _texts(bodies: Mapping[str, Any]) -> list[Text]:
    return [
        Text(id=id, page_content=body["text"], metadata=body["metadata"])
        for id, body in bodies.items()
    ]


def _text(result: SearchResult[Any]) -> Text:
    [text] = _texts({result.id: result.body})
    return text


def _different(
    found: Sequence[SearchResult[Any]], vector: list[float], k: int, lambda_mult: float
) -> list[Text]:
    import numpy as np

    vectors = [unpacked(each.body["embedding"]) for each in found]
    chosen = maximal_marginal_relevance(np.array(vector), vectors, lambda_mult, k)
    return [_text(found[n]) for n in chosen]


def _filter(given: Any) -> Any:
    """Return the filter of a caller, on the whole document."""
    if given is None or isinstance(given, Filter):
        return given
    if not isinstance(given, Mapping):
        problem = f"must be a dict of conditions on the metadata, or a Filter, got {given!r}"
        raise InvalidOption("filter", problem)
    return {
        key if str(key).startswith("$") else f"metadata.{key}": (
            [_filter(each) for each in value]
            if key in JOINING and isinstance(value, Iterable)
            else value
        )
        for key, value in given.items()
    }
