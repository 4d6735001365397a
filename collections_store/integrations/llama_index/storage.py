"""The key-value store, the chat store, and the messages of LlamaIndex's `Memory`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.storage.chat_store import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.kvstore.types import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_COLLECTION,
    BaseKVStore,
)

from ... import (
    AsyncStore,
    AsyncTransaction,
    DeleteMany,
    Document,
    InsertOne,
    InvalidBody,
    InvalidOption,
)
from ..ids import sized, under
from ..stores import PairedCollection, PairedOwner, insert, run_anywhere

ACTIVE: Final = MessageStatus.ACTIVE


class LlamaIndexKVStore(PairedOwner, BaseKVStore):
    """A `BaseKVStore`: the storage of `KVDocumentStore`, `KVIndexStore` and `IngestionCache`.

    `store` is an `AsyncStore`, or a URL with `options` of `AsyncStore`. `namespace` is the collection of the store
    for all values. A value is a dict, stored as LlamaIndex writes values with `json`: tuples as lists, for example.
    The names of a collection and of a key have at most 2,000 bytes together, and no NUL. Raise `InvalidId` and
    `InvalidBody`; then nothing is written.

    >>> with LlamaIndexKVStore("sqlite://") as values:
    ...     values.put("ada", {"likes": ["tea"]}, collection="users")
    ...     values.get_all("users")
    {'ada': {'likes': ['tea']}}
    """

    def __init__(
        self, store: AsyncStore | str, *, namespace: str = "llama_index_values", **options: Any
    ) -> None:
        self._opened = PairedCollection(store, namespace, (), options)

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """Write a value under a key."""
        self._opened.sync.put(_id(collection, key), _plain(val))

    async def aput(
        self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION
    ) -> None:
        """Async counterpart of `put`."""
        await self._opened.aio.put(_id(collection, key), _plain(val))

    def put_all(
        self,
        kv_pairs: Iterable[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,  # noqa: ARG002
    ) -> None:
        """Write values under keys, all or none, whatever the `batch_size`; of several values for a key, the last
        counts.
        """
        self._opened.sync.put_many(_pairs(collection, kv_pairs), atomic=True)

    async def aput_all(
        self,
        kv_pairs: Iterable[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,  # noqa: ARG002
    ) -> None:
        """Async counterpart of `put_all`."""
        await self._opened.aio.put_many(_pairs(collection, kv_pairs), atomic=True)

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """Return the value under a key, or None."""
        found: dict[str, Any] | None = self._opened.sync.get(_id(collection, key))
        return found

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """Async counterpart of `get`."""
        found: dict[str, Any] | None = await self._opened.aio.get(_id(collection, key))
        return found

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """Return the values of a collection by key, in the order of the keys' first writes."""
        return _by_key(collection, self._opened.sync.find(_all(collection)))

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """Async counterpart of `get_all`."""
        return _by_key(collection, await self._opened.aio.find(_all(collection)))

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Delete the value under a key; return False if the key had no value."""
        return self._opened.sync.remove(_id(collection, key))

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Async counterpart of `delete`."""
        return await self._opened.aio.remove(_id(collection, key))


class LlamaIndexChatStore(PairedOwner, BaseChatStore):
    """A `BaseChatStore`: the messages of `ChatMemoryBuffer` and `ChatSummaryMemoryBuffer`, a document each.

    `store` is an `AsyncStore`, or a URL with `options` of `AsyncStore`; `collection` has the messages. Messages
    keep the order in which they were written. A key is listed as long as the key has messages. Raise `InvalidBody`
    for a message without a JSON form, and `InvalidOption` unless a key is a string; then nothing is written.

    >>> from llama_index.core.llms import ChatMessage
    >>> with LlamaIndexChatStore("sqlite://") as chats:
    ...     chats.add_message("ada", ChatMessage(role="user", content="Hello."))
    ...     [message.content for message in chats.get_messages("ada")]
    ['Hello.']
    """

    _opened: _Messages = PrivateAttr()

    def __init__(
        self, store: AsyncStore | str, *, collection: str = "llama_index_chats", **options: Any
    ) -> None:
        super().__init__()
        self._opened = _Messages(store, collection, ("key",), options)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the class."""
        return "LlamaIndexChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace all messages of a key, in a transaction."""
        self._opened.indexed().bulk_write(_replacing(key, messages), atomic=True)

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Async counterpart of `set_messages`."""
        await (await self._opened.aindexed()).bulk_write(_replacing(key, messages), atomic=True)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages of a key."""
        return _messages(self._opened.sync.find(_of(key)))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """Async counterpart of `get_messages`."""
        return _messages(await self._opened.aio.find(_of(key)))

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message."""
        self._opened.indexed().insert_one(_body(key, message))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        """Async counterpart of `add_message`."""
        await (await self._opened.aindexed()).insert_one(_body(key, message))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete and return all messages of a key; None if the key has no messages."""
        return run_anywhere(self.adelete_messages(key))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """Async counterpart of `delete_messages`."""
        return await self._opened.take(_of(key), 0, None) or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete and return the message at a position, or None; -1 is the last message."""
        return run_anywhere(self.adelete_message(key, idx))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Async counterpart of `delete_message`."""
        return next(iter(await self._opened.take(_of(key), idx, 1)), None)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete and return the last message, or None."""
        return self.delete_message(key, -1)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """Async counterpart of `delete_last_message`."""
        return await self.adelete_message(key, -1)

    def get_keys(self) -> list[str]:
        """Return the keys with messages, sorted."""
        return run_anywhere(self.aget_keys())

    async def aget_keys(self) -> list[str]:
        """Async counterpart of `get_keys`."""
        return await self._opened.keys()


class LlamaIndexMemoryStore(PairedOwner, AsyncDBChatStore):
    """An `AsyncDBChatStore`: the messages of `Memory`, active and archived, a document each.

    `store` is an `AsyncStore`, or a URL with `options` of `AsyncStore`; `collection` has the messages. Messages
    keep the order in which they were written. Raise the errors of `LlamaIndexChatStore`.

    >>> from llama_index.core.memory import Memory
    >>> from llama_index.core.llms import ChatMessage
    >>> async def main():
    ...     async with LlamaIndexMemoryStore("sqlite://") as messages:
    ...         memory = Memory(sql_store=messages, session_id="ada", token_limit=1000, tokenizer_fn=str.split)
    ...         await memory.aput(ChatMessage(role="user", content="Hello."))
    ...         return [message.content for message in await memory.aget_all()]
    >>> asyncio.run(main())
    ['Hello.']
    """

    _opened: _Messages = PrivateAttr()

    def __init__(
        self, store: AsyncStore | str, *, collection: str = "llama_index_memory", **options: Any
    ) -> None:
        super().__init__()
        self._opened = _Messages(store, collection, ("key", "status"), options)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the class."""
        return "LlamaIndexMemoryStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Return up to `limit` messages of a key with a status (None: any), after the first `offset`."""
        found = self._opened.aio.find(_of(key, status), sort=[], limit=limit, skip=offset or 0)
        return _messages(await found)

    async def count_messages(self, key: str, status: MessageStatus | None = ACTIVE) -> int:
        """Return the number of messages of a key with a status, None: any."""
        return await self._opened.aio.count(_of(key, status))

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = ACTIVE
    ) -> None:
        """Append a message."""
        await (await self._opened.aindexed()).insert_one(_body(key, message, status))

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = ACTIVE
    ) -> None:
        """Append messages, all or none."""
        bodies = [_body(key, message, status) for message in messages]
        await insert(await self._opened.aindexed(), bodies)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = ACTIVE
    ) -> None:
        """Replace all messages of a key, of any status, in a transaction."""
        requests = _replacing(key, messages, status)
        await (await self._opened.aindexed()).bulk_write(requests, atomic=True)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete and return the active message at a position, or None; -1 is the last message."""
        return next(iter(await self._opened.take(_of(key, ACTIVE), idx, 1)), None)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Delete the messages of a key with a status, None: any."""
        await self._opened.aio.delete_many(_of(key, status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Delete and return the oldest `n` active messages. Raise `InvalidOption` unless `n` is an integer of 0 or
        more.
        """
        return await self._opened.take(_of(key, ACTIVE), 0, _count(n))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Change the status of the oldest `n` active messages to archived; return the messages. Raise
        `InvalidOption` unless `n` is an integer of 0 or more.
        """
        archived = {"$set": {"status": MessageStatus.ARCHIVED.value}}
        return await self._opened.take(_of(key, ACTIVE), 0, _count(n), archived)

    async def get_keys(self) -> list[str]:
        """Return the keys with messages, sorted."""
        return await self._opened.keys()


class _Messages(PairedCollection):
    """A collection of messages."""

    async def take(
        self, filter: Any, position: int, limit: int | None, update: Any = None
    ) -> list[ChatMessage]:
        """Delete or update the messages from a position on (negative: from the end), in a transaction; return the
        messages.
        """

        async def attempt(transaction: AsyncTransaction) -> list[Document]:
            collection = transaction[self.name]
            skip = position if position >= 0 else position + await collection.count(filter)
            if skip < 0:
                return []
            found = await collection.find(filter, sort=[], skip=skip, limit=limit)
            ids = [each.id for each in found]
            if update is None:
                await collection.remove_many(ids)
            else:
                await collection.update_many({"$id": {"$in": ids}}, update)
            return found

        return _messages(await self.store.run_transaction(attempt))


def _string(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidOption(what, f"must be a string, got {type(value).__name__}")
    return value


def _count(n: Any) -> int:
    if type(n) is not int or n < 0:
        raise InvalidOption(
            "n", f"must be an integer of 0 or more, got {n!r}: the number of messages"
        )
    return n


# -- values ----------------------------------------------------------------------------------


def _prefix(collection: str) -> str:
    return sized(_string("collection", collection))


def _id(collection: str, key: str) -> str:
    return f"{_prefix(collection)}/{_string('key', key)}"


def _all(collection: str) -> dict[str, Any]:
    return {"$id": under(_prefix(collection))}


def _by_key(collection: str, found: Iterable[Document]) -> dict[str, dict[str, Any]]:
    prefix = f"{_prefix(collection)}/"
    return {each.id.removeprefix(prefix): each.body for each in found}


def _pairs(
    collection: str, pairs: Iterable[tuple[str, Mapping[str, Any]]]
) -> list[tuple[str, Any]]:
    return [(_id(collection, key), _plain(value)) for key, value in pairs]


def _plain(value: Any) -> Any:
    """Return a value after a round trip through `json`."""
    if not isinstance(value, Mapping):
        raise InvalidBody("", f"a value must be a dict, got {type(value).__name__}")
    try:
        return json.loads(json.dumps(value))
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidBody("", f"the value is not JSON: {error}") from None


# -- messages --------------------------------------------------------------------------------


def _of(key: str, status: MessageStatus | None = None) -> dict[str, Any]:
    """Return the filter of a key's messages with a status, None: any."""
    filter = {"key": _string("key", key)}
    return filter if status is None else {**filter, "status": MessageStatus(status).value}


def _body(key: str, message: ChatMessage, status: MessageStatus | None = None) -> dict[str, Any]:
    body = _of(key, status)
    try:
        return {**body, "message": message.model_dump(mode="json")}
    except ValueError as error:
        raise InvalidBody("message", f"is not JSON: {error}") from None


def _replacing(
    key: str, messages: Iterable[ChatMessage], status: MessageStatus | None = None
) -> list[DeleteMany | InsertOne]:
    """Return the requests of a transaction. The id of the first message depends on the key alone: of two concurrent
    transactions for a key without messages, the second conflicts and runs again.
    """
    every, first = _of(key), hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    bodies = enumerate(_body(key, each, status) for each in messages)
    return [DeleteMany(every), *(InsertOne(each, id=None if n else first) for n, each in bodies)]


def _messages(found: Iterable[Document]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(each.body["message"]) for each in found]
