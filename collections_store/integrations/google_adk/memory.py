"""The memories of users: the text of their sessions, found by words, and by meaning with an embedding model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Unpack

from google.adk.events import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.platform.uuid import new_uuid
from google.adk.sessions import Session
from google.genai.types import Content

from ... import AsyncCollection, AsyncStore, InvalidOption, StoreOptions
from ..stores import StoreOwner
from ..words import any_word
from .paths import escaped, path, under
from .refusals import UNREADABLE, UNWRITABLE, refused


class CollectionsMemoryService(StoreOwner, BaseMemoryService):
    """ADK's memory in a store: an `AsyncStore`, which stays open, or a URL with `options` of `AsyncStore`.

    `collection` has the memories of all users. A search returns at most `limit` memories. `ttl`: seconds, or a
    timedelta, until a memory expires; None: never. With `embed` and `dimensions` searches are by meaning too: these and
    `model` are the arguments of `AsyncCollection.create_vector_index`. Invalid names and values raise the errors of
    `CollectionsSessionService`.

    >>> import asyncio
    >>> from google.genai.types import UserContent
    >>> from collections_store.integrations.google_adk import CollectionsMemoryService
    >>> ada = {"app_name": "weather", "user_id": "ada"}
    >>> async def main():
    ...     async with CollectionsMemoryService("sqlite://") as memory:
    ...         await memory.add_memory(**ada, memories=[MemoryEntry(content=UserContent("I live in Rome."))])
    ...         found = await memory.search_memory(**ada, query="rome?")
    ...         return [each.content.parts[0].text for each in found.memories]
    >>> asyncio.run(main())
    ['I live in Rome.']
    """

    def __init__(
        self,
        store: AsyncStore | str,
        *,
        collection: str = "adk_memory",
        limit: int = 10,
        ttl: float | timedelta | None = None,
        embed: Any = None,
        dimensions: int | None = None,
        model: str | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        if type(limit) is not int or limit < 1:
            raise InvalidOption("limit", f"must be a positive integer, got {limit!r}")
        if embed is None and (dimensions is not None or model is not None):
            raise InvalidOption("embed", "must be given with dimensions and model")
        self._open(store, options)
        self._collection, self._limit, self._ttl = collection, limit, ttl
        self._embedder = {"embed": embed, "dimensions": dimensions, "model": model}
        self._is_indexed = embed is None

    async def add_session_to_memory(self, session: Session) -> None:
        """Add the events of a session that have text. Events already added, or deleted since, stay unchanged."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            session_id=session.id,
            events=session.events,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add the events with text, all or none, as `add_session_to_memory` does. A search returns
        `custom_metadata` with each.
        """
        within = path(app_name=app_name, user_id=user_id)
        session = escaped(session_id or "", "session_id")
        bodies = {
            f"{within}/{session}/{escaped(event.id, 'id')}": {
                "app": app_name,
                "user": user_id,
                "author": event.author,
                "timestamp": datetime.fromtimestamp(event.timestamp, UTC).isoformat(),
                "metadata": {
                    **(custom_metadata or {}),
                    "session_id": session_id,
                    "event_id": event.id,
                },
                **_searchable(event.content),
            }
            for event in events
            if event.content and event.content.parts
        }
        spoken = {id: body for id, body in bodies.items() if body["words"]}
        memories = await self._memories()
        await memories.put_many(spoken, mode="ignore", ttl=self._ttl, atomic=True)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Add memories, all or none; a memory replaces a stored memory of the same `id`. `custom_metadata` is added
        to each memory's own.
        """
        within = path(app_name=app_name, user_id=user_id)
        bodies = {
            f"{within}/{new_uuid() if each.id is None else each.id}": {
                "app": app_name,
                "user": user_id,
                "author": each.author,
                "timestamp": each.timestamp,
                "metadata": {**(custom_metadata or {}), **each.custom_metadata},
                **_searchable(each.content),
            }
            for each in memories
        }
        await (await self._memories()).put_many(bodies, ttl=self._ttl, atomic=True)

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return the memories of a user with the most words of the query; of equal matches the earlier memory comes
        first.

        Case does not matter. A Latin word must match a whole word. A word of another script may match a part of a
        longer word, since not all scripts separate words by spaces. The search reads the words of all memories of
        the user, and the contents of the results.

        With `embed` the memories nearest to the query come first, and those with any whole word of the query:
        `AsyncCollection.search` fuses both rankings. Texts that changed are embedded first.
        """
        within = path(app_name=app_name, user_id=user_id)
        words = words_of(query)
        if not words:
            return SearchMemoryResponse()
        if self._embedder["embed"] is not None:
            page = await (await self._memories()).search(
                any_word(query) or None, meaning=query, filter=under(within), limit=self._limit
            )
            entries = [self._entry(within, each.id, each.body) for each in page]
            return SearchMemoryResponse(memories=entries)
        memories = self._store[self._collection]
        parts = [word for word in words if not _is_latin(word[0])]
        tests: list[Any] = [{"words": {"$in": sorted(words)}}]
        tests += [{"words": {"$regex": re.escape(part)}} for part in parts]
        found = await memories.find({**under(within), "$or": tests}, projection=["words"])
        scores = {each.id: _score(words, parts, each.body["words"]) for each in found}
        best = sorted(scores, key=lambda each: -scores[each])[: self._limit]
        bodies = await memories.get_many(best)
        entries = [self._entry(within, *each) for each in bodies.items()]
        return SearchMemoryResponse(memories=entries)

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Delete a memory by the `id` from a search result.

        The document stays, without content: adding the session again does not restore the memory.
        """
        if memory_id:
            id = f"{path(app_name=app_name, user_id=user_id)}/{memory_id}"
            deleted = {"app": app_name, "user": user_id, "deleted": True}
            await self._store[self._collection].replace_one({"$id": id}, deleted)

    def _entry(self, within: str, id: str, body: Mapping[str, Any]) -> MemoryEntry:
        with refused("content", UNREADABLE, self._collection, id):
            content = Content.model_validate(body["content"])
        return MemoryEntry(
            id=id.removeprefix(f"{within}/"),
            content=content,
            author=body["author"],
            timestamp=body["timestamp"],
            custom_metadata=body["metadata"],
        )

    async def _memories(self) -> AsyncCollection:
        memories = await self._prepared(self._collection)
        if not self._is_indexed:
            await memories.create_text_index("words")
            await memories.create_vector_index("text", **self._embedder)
            self._is_indexed = True
        return memories


def words_of(text: str) -> set[str]:
    """Return the words of a text in lower case. A word ends where Latin letters meet another script.

    >>> sorted(words_of("Rome, ROME! 私はPythonを使う"))
    ['python', 'rome', 'を使う', '私は']
    """
    runs = re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())
    return {"".join(part) for run in runs for _, part in groupby(run, _is_latin)}


def _is_latin(character: str) -> bool:
    return character.isascii() or unicodedata.name(character, "").startswith("LATIN")


def _searchable(content: Content) -> dict[str, Any]:
    """Return the content, and its text and words, without a model's thoughts."""
    texts = [part.text for part in content.parts or () if part.text and not part.thought]
    words = sorted(words_of(" ".join(texts)))
    with refused("content", UNWRITABLE):
        dumped = content.model_dump(mode="json", exclude_none=True)
    return {"content": dumped, "text": "\n\n".join(texts), "words": words}


def _score(words: set[str], parts: Sequence[str], found: Sequence[str]) -> int:
    """Return how many words were found."""
    inside = {part for part in parts if any(part in each for each in found)}
    return len(words & set(found) | inside)
