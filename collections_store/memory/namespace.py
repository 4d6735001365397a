"""Where a memory's values are: a namespace, a session, a request; and how it ends."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from ..collection import Collection, Ttl
from ..collection_options import Changes, Settings
from ..operations import AS_IT_IS, Configure
from .entries import Life
from .keys import Space
from .scope import REQUEST_TTL, Scope
from .telling import beside
from .values import to_json


class Namespace:
    """A place for values, with places in it."""

    def __init__(
        self,
        scope: Scope,
        collection: str,
        space: Space = Space(),  # noqa: B008 - it is frozen
        life: Life = Life(),  # noqa: B008 - so is this
    ) -> None:
        self._scope, self._space, self._life = scope, space, life
        self._objects = Collection(scope.run, scope._codec, collection, scope._bell)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'/'.join((self._objects.name, *self._space.names))!r})"

    def __enter__(self) -> Self:
        self._life.check_end()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with beside(error):
            self.end()

    def namespace(self, *names: str) -> Self:
        """Return the memory of a namespace in this one; `namespace("a", "b")` is that of "b" in "a".

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").namespace("room", "42")
        Memory('memory__bot/room/42')
        """
        return self._at(self._space.within(*names), replace(self._life, ends=False))

    def session(self, id: str, *, ttl: Ttl = None, sliding: bool = False) -> Self:
        """Return the memory of a session, which no namespace is the same as. What is written there lives for
        `ttl`; with `sliding`, it begins its time anew whenever it is read by its key, or changed. Without a
        `ttl` it lives as it does in what the session is in. The end of `with`, or `end`, clears it.

        >>> with Store("sqlite://") as store:
        ...     with store.memory("bot").session("ada", ttl=1800, sliding=True) as session:
        ...         version = session.put("cart", ["tea"])
        ...     store.memory("bot").session("ada").get("cart", "nothing")
        'nothing'
        """
        return self._at(self._space.session(id), self._life.of_session(ttl, sliding))

    def request(self) -> Self:
        """Return a memory of its own, for one request: `with memory.request() as session:`. Should the process
        be killed before its end, it lives for a day.

        >>> with Store("sqlite://") as store, store.memory("bot").request() as session:
        ...     version = session.put("step", 1)
        ...     session.get("step")
        1
        """
        return self.session(secrets.token_hex(16), ttl=REQUEST_TTL)

    def end(self) -> int:
        """Delete all that is in this memory, and in the namespaces and sessions within it; returns how many
        values.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").namespace("room").put("topic", "tea")
        ...     store.memory("bot").end()
        1
        """
        return self._objects.delete_many(self._space.everything()).deleted_count

    def configure(
        self, *, changes: Changes = None, changes_kept: int | None = None, changes_ttl: Ttl = None
    ) -> None:
        """Have the changes of this memory, and of all namespaces in it, recorded for `watch`: see
        `Store.get_sync_collection`.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").configure(changes="after", changes_kept=1000)
        """
        kept: dict[str, Any] = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=None, sliding=None, changes=changes, **kept)
        if settings != AS_IT_IS:
            self._scope.run(Configure(self._objects.name, settings))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a context in which several verbs take place as one, or not at all: see
        `Store.transaction`.

        >>> with Store("sqlite://") as store:
        ...     with store.memory("bot").transaction() as memory:
        ...         version = memory.put("a", 1)
        ...         version = memory.put("b", 2)
        ...     store.memory("bot").count()
        2
        """
        with self._scope.transaction() as tx:
            yield type(self)(tx, self._objects.name, self._space, self._life)

    def _at(self, space: Space, life: Life) -> Self:
        return type(self)(self._scope, self._objects.name, space, life)

    def _json(self, value: Any) -> Any:
        return to_json(value, self._scope._codec.default)
