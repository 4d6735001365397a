"""Where a memory's values are: a namespace, a session, a request; and how it ends; for asyncio."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ..bell import Bell
from ..codec import Codec
from ..collection import Ttl
from ..collection_async import AsyncCollection
from ..collection_options import Changes, Settings
from ..crossing_async import whole
from ..operations import AS_IT_IS, Configure, Operation
from .entries import Life
from .keys import Space
from .scope import REQUEST_TTL
from .telling import beside
from .values import to_json

T = TypeVar("T")


class AsyncScope(Protocol):
    """What runs operations, and hands out transactions: a store, or a transaction."""

    _codec: Codec
    _bell: Bell | None

    async def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return the context of a transaction, or of a part of one."""


class AsyncNamespace:
    """A place for values, with places in it."""

    def __init__(
        self,
        scope: AsyncScope,
        collection: str,
        space: Space = Space(),  # noqa: B008 - it is frozen
        life: Life = Life(),  # noqa: B008 - so is this
    ) -> None:
        self._scope, self._space, self._life = scope, space, life
        self._objects = AsyncCollection(scope.run, scope._codec, collection, scope._bell)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join((self._objects.name, *self._space.names))!r})"

    async def __aenter__(self) -> Self:
        self._life.check_end()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            with beside(error):
                await whole(self.end())
        except asyncio.CancelledError:
            if not isinstance(error, asyncio.CancelledError):
                raise

    def namespace(self, *names: str) -> Self:
        """Return the memory of a namespace in this one; `namespace("a", "b")` is that of "b" in "a".

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return store.memory("bot").namespace("room", "42")
        >>> asyncio.run(main())
        AsyncMemory('memory__bot/room/42')
        """
        return self._at(self._space.within(*names), replace(self._life, ends=False))

    def session(self, id: str, *, ttl: Ttl = None, sliding: bool = False) -> Self:
        """Return the memory of a session, which no namespace is the same as. What is written there lives for
        `ttl`; with `sliding`, it begins its time anew whenever it is read by its key, or changed. Without a
        `ttl` it lives as it does in what the session is in. The end of `with`, or `end`, clears it.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         async with store.memory("bot").session("ada", ttl=1800, sliding=True) as session:
        ...             version = await session.put("cart", ["tea"])
        ...         return await store.memory("bot").session("ada").get("cart", "nothing")
        >>> asyncio.run(main())
        'nothing'
        """
        return self._at(self._space.session(id), self._life.of_session(ttl, sliding))

    def request(self) -> Self:
        """Return a memory of its own, for one request: `with memory.request() as session:`. Should the process
        be killed before its end, it lives for a day.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store, store.memory("bot").request() as session:
        ...         version = await session.put("step", 1)
        ...         return await session.get("step")
        >>> asyncio.run(main())
        1
        """
        return self.session(secrets.token_hex(16), ttl=REQUEST_TTL)

    async def end(self) -> int:
        """Delete all that is in this memory, and in the namespaces and sessions within it; returns how many
        values.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store.memory("bot").namespace("room").put("topic", "tea")
        ...         return await store.memory("bot").end()
        >>> asyncio.run(main())
        1
        """
        return (await self._objects.delete_many(self._space.everything())).deleted_count

    async def configure(
        self, *, changes: Changes = None, changes_kept: int | None = None, changes_ttl: Ttl = None
    ) -> None:
        """Have the changes of this memory, and of all namespaces in it, recorded for `watch`: see
        `Store.get_sync_collection`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         await store.memory("bot").configure(changes="after", changes_kept=1000)
        >>> asyncio.run(main())
        """
        kept: dict[str, Any] = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=None, sliding=None, changes=changes, **kept)
        if settings != AS_IT_IS:
            await self._scope.run(Configure(self._objects.name, settings))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Return a context in which several verbs take place as one, or not at all: see
        `Store.transaction`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         async with store.memory("bot").transaction() as memory:
        ...             version = await memory.put("a", 1)
        ...             version = await memory.put("b", 2)
        ...         return await store.memory("bot").count()
        >>> asyncio.run(main())
        2
        """
        async with self._scope.transaction() as tx:
            yield type(self)(tx, self._objects.name, self._space, self._life)

    def _at(self, space: Space, life: Life) -> Self:
        return type(self)(self._scope, self._objects.name, space, life)

    def _json(self, value: Any) -> Any:
        return to_json(value, self._scope._codec.default)
