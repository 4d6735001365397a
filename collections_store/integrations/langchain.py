"""LangChain: the message histories of chats, in a collection of a store.

`LangChainHistories` has the histories of all sessions. Pass the method `history` to `RunnableWithMessageHistory`;
the method returns the `BaseChatMessageHistory` of a session. Methods come in pairs, sync and async, on the same
object and the same store, from any thread and any event loop. A sync method blocks the event loop of its caller.

Requires langchain-core: `pip install 'collections-store[langchain]'`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from .. import (
    AsyncCollection,
    AsyncStore,
    Document,
    InvalidBody,
    InvalidOption,
    MissingExtra,
)
from .stores import PairedOwner, open_store

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
except ImportError as error:
    raise MissingExtra("langchain-core", "langchain") from error


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
        self._store = open_store(AsyncStore, store, options)
        self._is_owner = self._store is not store
        self._sync = self._store.get_sync_collection(collection)
        self._async: AsyncCollection = self._store[collection]
        self._is_indexed = False

    async def aclose(self) -> None:
        """Async counterpart of `close`."""
        if self._is_owner:
            await self._store.aclose()

    def history(self, session_id: str) -> LangChainHistory:
        """Return the history of a session, without a read or a write. Raise `InvalidOption` unless the id is a
        string.
        """
        return LangChainHistory(self, session_id)

    def sessions(self) -> list[str]:
        """Return the ids of the sessions with messages, sorted."""
        ids: list[str] = []
        after: dict[str, Any] = {}  # each id is a search in the index
        while (
            found := self._sync.find_one(after, sort="session", projection=["session"])
        ) is not None:
            ids.append(found.body["session"])
            after = {"session": {"$gt": ids[-1]}}
        return ids

    async def asessions(self) -> list[str]:
        """Async counterpart of `sessions`."""
        return await asyncio.to_thread(self.sessions)

    def _add(self, bodies: list[dict[str, Any]]) -> None:
        if not self._is_indexed:
            self._sync.create_index("session")
            self._is_indexed = True
        _insert(self._sync, bodies)

    async def _aadd(self, bodies: list[dict[str, Any]]) -> None:
        if not self._is_indexed:
            await self._async.create_index("session")
            self._is_indexed = True
        await _insert(self._async, bodies)


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
        self._histories, self.session_id = histories, _checked(session_id)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages. Each access reads all messages again."""
        return _messages(self._histories._sync.find("session", self.session_id))

    async def aget_messages(self) -> list[BaseMessage]:
        """Async counterpart of `messages`."""
        return _messages(await self._histories._async.find("session", self.session_id))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, all or none.

        Values are stored as LangChain writes values with `json`: tuples as lists. Raise `InvalidBody` for a message
        without a JSON form, and for a message of a class unknown to LangChain's reader.
        """
        self._histories._add([self._body(message) for message in messages])

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Async counterpart of `add_messages`."""
        await self._histories._aadd([self._body(message) for message in messages])

    def clear(self) -> None:
        """Delete the messages of the session."""
        self._histories._sync.delete_many("session", self.session_id)

    async def aclear(self) -> None:
        """Async counterpart of `clear`."""
        await self._histories._async.delete_many("session", self.session_id)

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


def _insert(collection: Any, bodies: list[dict[str, Any]]) -> Any:
    """Insert documents, all or none: return the result, or a coroutine. The insert of a single document shares a
    commit with concurrent writes.
    """
    if len(bodies) == 1:
        return collection.insert_one(bodies[0])
    return collection.insert_many(bodies, atomic=True)


def _checked(session_id: Any) -> str:
    if not isinstance(session_id, str):
        problem = f"must be a string, got {type(session_id).__name__}"
        raise InvalidOption("session_id", problem)
    return session_id


def _messages(found: Iterable[Document]) -> list[BaseMessage]:
    return messages_from_dict([each.body["message"] for each in found])
