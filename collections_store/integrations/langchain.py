"""LangChain: the message histories of chats, in a collection of a store.

`LangChainHistories` has the histories of all sessions. Pass the method `history` to `RunnableWithMessageHistory`;
the method returns the `BaseChatMessageHistory` of a session. Methods come in pairs, sync and async, on the same
object and the same store, from any thread and any event loop. A sync method blocks the event loop of its caller.

Requires langchain-core: `pip install 'collections-store[langchain]'`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from .. import (
    AsyncStore,
    Document,
    InvalidBody,
    InvalidOption,
    MissingExtra,
)
from .stores import PairedCollection, PairedOwner, insert, run_anywhere

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
