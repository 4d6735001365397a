"""The sessions of a store: create their collection, list sessions, delete sessions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from ... import AsyncStore, AsyncTransaction, CollectionExists, Page
from ..stores import time_before
from .records import COLLECTION, HEADERS, Json, under

BATCH: Final = 100
"""Sessions that are read at once."""
RECENT: Final[Json] = {"keys": [("$updated_at", -1)], "where": HEADERS, "name": "recent_sessions"}
"""The index of the headers."""
_prepared: WeakKeyDictionary[AsyncStore, set[str]] = WeakKeyDictionary()
"""The collections that exist and have the index."""


async def list_sessions(
    store: AsyncStore, *, collection: str = COLLECTION, limit: int = 100, after: str | None = None
) -> Page[Any]:
    """Return the sessions of a store; the session with the latest append comes first.

    Each body has the id, `session`, and the names of the `branches`. `after`: the `cursor` of the previous page.

    >>> from collections_store.integrations.openai_agents import OpenAIAgentsSession
    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         await OpenAIAgentsSession("alice", store).add_items([{"role": "user", "content": "Hi"}])
    ...         return [each.body["session"] for each in await list_sessions(store)]
    >>> asyncio.run(main())
    ['alice']
    """
    newest = [("$updated_at", -1)]
    return await store[collection].page(HEADERS, sort=newest, limit=limit, after=after)


async def delete_idle_sessions(
    store: AsyncStore, seconds: float, *, collection: str = COLLECTION
) -> int:
    """Delete the sessions without an append in the last `seconds`, each with all items; return their number.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         return await delete_idle_sessions(store, 30 * 86_400)
    >>> asyncio.run(main())
    0
    """
    idle: Json = {"$updated_at": {"$lt": time_before(seconds)}}
    count = 0
    while found := await store[collection].find(HEADERS | idle, limit=BATCH, projection=["last"]):
        for each in found:
            count += await delete_session(store, collection, {"$id": each.id} | idle)
    return count


async def delete_session(store: AsyncStore, collection: str, header: Json) -> bool:
    """Delete the session whose header matches a filter; return False if no header matches."""

    async def delete(transaction: AsyncTransaction) -> bool:
        documents = transaction[collection]
        found = await documents.find_one_and_delete(header)  # waits for those who append to it
        if found is not None:
            await documents.delete_many({"$id": under(found.id)})
        return found is not None

    return await store.run_transaction(delete)


async def prepare(store: AsyncStore, collection: str) -> None:
    """Create a collection with its index, once for each store."""
    if collection in (done := _prepared.setdefault(store, set())):
        return
    with suppress(CollectionExists):
        await store.create_collection(collection, body_index=False)
    await store[collection].create_index(**RECENT)
    done.add(collection)
