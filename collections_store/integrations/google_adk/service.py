"""What both services have: a store, collections that are created on first use, and errors without values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self, Unpack

from ... import AsyncStore, CollectionExists, InvalidBody, InvalidOption, StoreOptions

UNWRITABLE: Final = "holds a value that ADK cannot convert to JSON, or a key that is not a string"
UNREADABLE: Final = "cannot be read by the installed google-adk: a newer one may have written it"


class Service:
    """A service on an `AsyncStore`, which stays open at the end, or on the URL of one, with its options."""

    def __init__(
        self, store: AsyncStore | str, collections: tuple[str, ...], **options: Unpack[StoreOptions]
    ) -> None:
        self._is_owner = not isinstance(store, AsyncStore)
        if options and not self._is_owner:
            raise InvalidOption(next(iter(options)), "is for a URL: the store has its own options")
        self._given = AsyncStore(store, **options) if not isinstance(store, AsyncStore) else store
        self._missing = collections

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, if the service was given a URL."""
        if self._is_owner:
            await self._given.aclose()

    async def _store(self) -> AsyncStore:
        """Return the store, with the collections."""
        for name in self._missing:
            with suppress(CollectionExists):
                await self._given.create_collection(name, body_index=False)
        self._missing = ()
        return self._given


@contextmanager
def refused(
    path: str, problem: str, collection: str | None = None, id: str | None = None
) -> Iterator[None]:
    """Raise `InvalidBody` in place of pydantic's errors, which show the values."""
    try:
        yield
    except ValueError:
        raise InvalidBody(path, problem, collection, id) from None
