"""Memories for asyncio: namespaces, memories, and memories of skills."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from inspect import isawaitable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ..aio.bridge import whole
from ..aio.change_stream import AsyncChangeStream
from ..aio.collection import AsyncCollection
from ..changes.notify import ChangeNotifier
from ..changes.watch import ChangeReader, check_notifier
from ..codec import Codec
from ..collection import Ttl
from ..document import SKILL_MEMORY
from ..operations.catalogue import AS_IT_IS, Configure
from ..operations.operation import Operation
from ..operations.procedures import check_function
from ..options import Changes, Settings
from ..query.change import ChangeFilter
from .entries import (
    ABSENT,
    REQUEST_TTL,
    Entries,
    Life,
    Strings,
    Take,
    adding,
    asking,
    check_given,
    check_mapping,
    entries_of,
    entry_of,
    left,
    listing,
    read_limit,
    seen_by,
    sliding,
    tolerant,
)
from .keys import Space, beside, bodies_of, missing, named, told_apart, within
from .skills import Keeping, Policy
from .values import Default, from_json, to_json, value_of

T = TypeVar("T")


class AsyncMemoryHost(Protocol):
    """What runs operations, and hands out transactions: a store, or a transaction."""

    _codec: Codec
    _notifier: ChangeNotifier | None

    async def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return the context of a transaction, or of a part of one."""


class AsyncNamespace:
    """A place for values, with places in it."""

    def __init__(
        self,
        scope: AsyncMemoryHost,
        collection: str,
        space: Space = Space(),  # noqa: B008 - it is frozen
        life: Life = Life(),  # noqa: B008 - so is this
    ) -> None:
        self._scope, self._space, self._life = scope, space, life
        self._objects = AsyncCollection(scope.run, scope._codec, collection, scope._notifier)

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
        `ttl`; with `sliding`, it begins its time anew whenever it is read by its key, or changed; what has a
        `ttl` of its own ends with that or with the session, whichever is first. Without a `ttl` it lives as it does in what the session is in. The end of `with`, or `end`, clears it.

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


class AsyncMemory(AsyncNamespace):
    """Values under keys, in namespaces: `store.memory("bot")`.

    A key is text, a value is JSON or one of Python's types `datetime` (with its zone), `date`, `time`, `timedelta`,
    `UUID`, `Decimal`, `bytes`, `set`, `frozenset`, `tuple`, an integer of any size; it comes back as it was, and
    what would not is refused. The store's `default` function makes values of others.

    `ttl` is seconds, or a timedelta, and `math.inf` for ever; a value written without one lives as long as the
    memory says: for ever, but for those of a session that has a `ttl`. Each verb raises what a collection's does, and
    `InvalidOption` for what cannot be a key.

    >>> from datetime import date
    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         room = store.memory("bot").namespace("room", "42")
    ...         version = await room.put("topic", {"name": "tea", "since": date(2026, 11, 21)})
    ...         return (await room.get("topic"))["since"].year, await room.get("nothing", "of the kind")
    >>> asyncio.run(main())
    (2026, 'of the kind')
    """

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key, or `default` where there is none; 0, "", None and False are values.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store.memory("bot").put("count", 0)
        ...         return await store.memory("bot").get("count", 7)
        >>> asyncio.run(main())
        0
        """
        found, value = await self.fetch(key)
        return value if found else default

    async def fetch(self, key: str) -> tuple[bool, Any]:
        """Return whether there is a value under a key, and the value.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").fetch("name")
        >>> asyncio.run(main())
        (False, None)
        """
        id = self._space.id_of(key)
        body = await self._objects.get(id, ABSENT)
        if body is ABSENT:
            return False, None
        await self._slide([id])
        return True, value_of(key, body)

    async def put(
        self,
        key: str,
        value: Any,
        *,
        ttl: Ttl = None,
        if_absent: bool = False,
        if_version: int | None = None,
    ) -> int:
        """Write a value under a key; returns its version. `if_absent` writes only where there is none,
        `if_version` only in the place of that version; else `VersionConflict` is raised.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").put("name", "Ada", ttl=60, if_absent=True)
        >>> asyncio.run(main())
        1
        """
        life = self._life.chosen(ttl)
        how: dict[str, Any] = {"ttl": life, "if_absent": if_absent, "if_version": if_version}
        id = self._space.id_of(key)
        with named(self._objects.name, self._space, key), within(key):
            version = await self._objects.put(id, self._json(value), **how)
        if self._life.exceeds(life):
            await self._slide([id])
        return version

    async def delete(self, key: str, default: Any = None) -> Any:
        """Delete the value under a key, and return it; `default` where there is none.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store.memory("bot").put("name", "Ada")
        ...         return await store.memory("bot").delete("name"), await store.memory("bot").delete("name", "nobody")
        >>> asyncio.run(main())
        ('Ada', 'nobody')
        """
        found = await self._scope.run(Take(self._objects.name, self._space.id_of(key), key))
        return default if found is ABSENT else found

    async def pop(self, key: str) -> Any:
        """Delete the value under a key, and return it; raises `DocumentNotFound`, a `KeyError`, where there is
        none.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store.memory("bot").put("name", "Ada")
        ...         return await store.memory("bot").pop("name")
        >>> asyncio.run(main())
        'Ada'
        """
        value = await self.delete(key, ABSENT)
        if value is ABSENT:
            raise missing(self._objects.name, self._space, key)
        return value

    async def increment(self, key: str, by: float = 1, initial: float = 0) -> Any:
        """Add to the number under a key, which is `initial` where there is none; returns the new one. However
        many do this at once, none is lost.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").increment("visits"), await store.memory("bot").increment("visits", by=2)
        >>> asyncio.run(main())
        (1, 3)
        """
        return await self.change(key, adding(key, by), default=initial)

    async def change(self, key: str, function: Callable[[Any], Any], *, default: Any = ...) -> Any:
        """Load the value under a key, call a function with it, and write what that returns; returns it. A function
        that returns None has changed the value in place: that value is written. To store None, call
        `put(key, None)`. If somebody else changed the value meanwhile, all of it begins anew. `default` is what the function gets where
        there is no value; without it, `DocumentNotFound` is raised.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").change("names", lambda names: names | {"Ada"}, default=set())
        >>> asyncio.run(main())
        {'Ada'}
        """
        begun = default if default is ... else self._json(default)
        id, changed = self._space.id_of(key), _as_json(key, function, self._scope._codec.default)
        with named(self._objects.name, self._space, key):
            body = await self._objects.change(id, changed, default=begun, ttl=self._life.ttl)
        await self._slide([id])
        return from_json(body)

    async def keys(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Strings:
        """Return the keys that begin with a prefix, in order, up to `limit` (None: all), past the key
        `after`: the last of one page begins the next.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         result = await store.memory("bot").put_many({"user/ada": 1, "user/bob": 2, "room/1": 3})
        ...         return await store.memory("bot").keys("user/"), await store.memory("bot").keys(limit=2, after="room/1")
        >>> asyncio.run(main())
        (['user/ada', 'user/bob'], ['user/ada', 'user/bob'])
        """
        asked = listing(self._objects.name, self._space.keys(prefix, after), read_limit(limit))
        return [self._space.key_of(id) for id in await self._scope.run(asked)]

    async def items(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Entries:
        """Return what is under these keys, as `keys` gives them: entries with `key`, `value`, `version` and `expires_at`. Each
        unpacks as the pair of key and value.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store.memory("bot").put("name", "Ada")
        ...         return dict(await store.memory("bot").items())
        >>> asyncio.run(main())
        {'name': 'Ada'}
        """
        asked = self._space.keys(prefix, after)
        found = await self._objects.find(asked, sort="$id", limit=read_limit(limit))
        return [entry_of(self._space, each) for each in found]

    async def count(self, prefix: str = "") -> int:
        """Return how many keys begin with a prefix.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").count("user/")
        >>> asyncio.run(main())
        0
        """
        return await self._objects.count(self._space.keys(prefix))

    async def find(
        self, filter: Any = None, equals: Any = ..., *, limit: int | None = None
    ) -> Entries:
        """Return the entries of this namespace whose values match a filter, in the order in which they came
        into being. A value that is no JSON object is `$body` to it. `equals` may be any value; in a filter,
        one of Python's types is asked for as it is kept: see the reference.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         result = await store.memory("bot").put_many({"ada": {"city": "Berlin"}, "bob": 3})
        ...         return [each.key for each in await store.memory("bot").find("city", "Berlin")]
        >>> asyncio.run(main())
        ['ada']
        """
        asked = asking(self._space, filter, equals, self._scope._codec)
        return [
            entry_of(self._space, each) for each in await self._objects.find(asked, limit=limit)
        ]

    async def clear(self, prefix: str = "") -> int:
        """Delete the values under the keys that begin with a prefix; returns how many. Namespaces and sessions
        within this one stay: see `end`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         result = await store.memory("bot").put_many({"user/ada": 1, "user/bob": 2, "room/1": 3})
        ...         return await store.memory("bot").clear("user/")
        >>> asyncio.run(main())
        2
        """
        return (await self._objects.delete_many(self._space.keys(prefix))).deleted_count

    async def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values under those keys that there are, in the order asked.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         result = await store.memory("bot").put_many({"a": 1, "b": 2})
        ...         return await store.memory("bot").get_many(["b", "c"])
        >>> asyncio.run(main())
        {'b': 2}
        """
        found = await self._objects.get_many(self._space.ids_of(keys))
        await self._slide(found)
        return entries_of(self._space, found)

    async def put_many(self, values: Mapping[str, Any], *, ttl: Ttl = None) -> int:
        """Write values under their keys, all or none; returns how many.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").put_many({"a": 1, "b": 2})
        >>> asyncio.run(main())
        2
        """
        codec, life = self._scope._codec, self._life.chosen(ttl)
        bodies = bodies_of(self._space, check_mapping(values), codec)
        with told_apart(self._space, bodies, codec):
            await self._objects.put_many(bodies, ttl=life, atomic=True)
        if self._life.exceeds(life):
            await self._slide(bodies)
        return len(bodies)

    async def delete_many(self, keys: Iterable[str]) -> int:
        """Delete the values under those keys, all at once; returns how many there were.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").delete_many(["a", "b"])
        >>> asyncio.run(main())
        0
        """
        return await self._objects.remove_many(self._space.ids_of(keys))

    async def touch(self, key: str) -> bool:
        """Have a value live from now on for as long as it was given; returns whether it is there.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         return await store.memory("bot").touch("name")
        >>> asyncio.run(main())
        False
        """
        return await self._objects.touch(self._space.id_of(key))

    async def expire(self, key: str, ttl: float | timedelta) -> bool:
        """Have a value live for `ttl` from now on; returns whether it is there.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store.memory("bot").put("name", "Ada")
        ...         return await store.memory("bot").expire("name", ttl=60)
        >>> asyncio.run(main())
        True
        """
        return await self._objects.touch(self._space.id_of(key), ttl=check_given(ttl))

    async def ttl(self, key: str) -> float | None:
        """Return for how many seconds a value will live; infinity: for ever; None: there is none.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         version = await store.memory("bot").put("name", "Ada")
        ...         return await store.memory("bot").ttl("name")
        >>> asyncio.run(main())
        inf
        """
        return left(await self._objects.document(self._space.id_of(key)))

    def watch(
        self, prefix: str = "", *, after: str | None = None, timeout: float | None = None
    ) -> AsyncChangeStream:
        """Return the changes of the values whose keys begin with a prefix, as they come: as `Collection.watch`
        does, with the key for `id` and the value for `body`. The memory must record them: see `configure`.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         memory = store.memory("bot")
        ...         await memory.configure(changes="after")
        ...         version = await memory.put("name", "Ada")
        ...         return [(each.id, each.body) async for each in memory.watch(after="oldest", timeout=0)]
        >>> asyncio.run(main())
        [('name', 'Ada')]
        """
        notifier, codec = check_notifier(self._scope._notifier), self._scope._codec
        wanted, how = (
            ChangeFilter.parse(self._space.keys(prefix), None, codec),
            seen_by(self._space),
        )
        reader = ChangeReader(self._objects.name, wanted, after=after, timeout=timeout, convert=how)
        return AsyncChangeStream(self._scope.run, notifier, reader)

    async def _slide(self, ids: Iterable[str]) -> None:
        """Begin the time of values anew that were used, where the session slides."""
        found = list(ids)
        if found and self._life.sliding:
            with tolerant(self._objects.name):
                await self._scope.run(sliding(self._objects.name, found, self._life))


def _as_json(key: str, function: Any, default: Default) -> Callable[[Any], Any]:
    """Return a function of values, or what awaits one, as one of JSON; raises `InvalidOption` for what cannot be
    called.
    """
    called = check_function(function)

    async def changed(json: Any) -> Any:
        value = value_of(key, json)
        result = called(value)
        made = await result if isawaitable(result) else result
        return to_json(value if made is None else made, default)

    return changed


class AsyncSkillMemory:
    """What the skills of a session remember: `store.skill_memory()`.

    A memory has a name, a value, perhaps a session_id of its own, and a scope: PRIVATE (which None means too) is
    for the skill that made it, PUBLIC for all skills of the session. Name, session_id and scope tell which it is.
    Memories are dicts, or objects with these attributes; `load` makes what `model` makes of them. Values are those
    of `Memory`, and come back as they were.

    `policy` says what becomes of a PUBLIC memory that a skill changes though another one made it: "creator" leaves
    it as it is, "anyone" changes it, "raise" raises `NotTheCreator`. `ttl`: seconds, or a timedelta, after which a
    session is gone if nobody saves.

    >>> async def main():
    ...     async with AsyncStore("sqlite://") as store:
    ...         skills = store.skill_memory()
    ...         name = {"name": "name", "value": "Ada", "scope": "PUBLIC"}
    ...         count = await skills.save("session 1", "greeter", [name, {"name": "greeted", "value": True}])
    ...         return [each["value"] for each in await skills.load("session 1", "weather")]
    >>> asyncio.run(main())
    ['Ada']
    """

    def __init__(
        self,
        scope: AsyncMemoryHost,
        collection: str = SKILL_MEMORY,
        *,
        policy: Policy = "creator",
        model: Callable[..., Any] | None = None,
        ttl: Ttl = None,
    ) -> None:
        self._scope = scope
        self._keeping = Keeping.of(collection, scope._codec, policy=policy, model=model, ttl=ttl)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._keeping.collection!r}, policy={self._keeping.policy!r})"
        )

    async def load(self, session: str, skill: str) -> list[Any]:
        """Return what a skill is shown: what is PRIVATE to it, and all that is PUBLIC in the session, in the order
        in which it came into being.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         count = await store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...         return await store.skill_memory().load("session 1", "weather")
        >>> asyncio.run(main())
        [{'name': 'city', 'value': 'Bonn', 'session_id': None, 'scope': 'PRIVATE'}]
        """
        return self._keeping.shown(await self._scope.run(self._keeping.load(session, skill)))

    async def save(self, session: str, skill: str, memories: Iterable[Any]) -> int:
        """Do what a skill's response asks; returns how many memories were written or deleted. It takes place as
        one, and so that skills that save at once do not lose each other's.

        What is PRIVATE to the skill and not in `memories` is deleted, so a list must be given, even an empty one;
        what is PUBLIC stays for as long as the session, and can only be given a value such as None. Of several
        memories that are the same the last counts. Raises `NotTheCreator`, `InvalidOption` and `InvalidBody`; then
        nothing is written.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         skills = store.skill_memory()
        ...         count = await skills.save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...         return await skills.save("session 1", "weather", [])
        >>> asyncio.run(main())
        1
        """
        count: int = await self._scope.run(self._keeping.save(session, skill, memories))
        return count

    async def end_session(self, session: str) -> int:
        """Delete all memories of a session, and of no other; returns how many.

        >>> async def main():
        ...     async with AsyncStore("sqlite://") as store:
        ...         count = await store.skill_memory().save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...         return await store.skill_memory().end_session("session 1")
        >>> asyncio.run(main())
        1
        """
        count: int = await self._scope.run(self._keeping.end(session))
        return count
