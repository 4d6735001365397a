"""Memories: namespaces, sessions and requests, and the values in them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from ..changes.watch import ChangeReader, ChangeStream, check_notifier
from ..collection import Collection, Ttl
from ..operations.catalogue import AS_IT_IS, Configure
from ..options import Changes, Settings
from ..query.change import ChangeFilter
from .entries import (
    ABSENT,
    REQUEST_TTL,
    Entries,
    Life,
    MemoryHost,
    Strings,
    Take,
    adding,
    as_json,
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
from .values import from_json, to_json, value_of


class Namespace:
    """A place for values, with places in it."""

    def __init__(
        self,
        scope: MemoryHost,
        collection: str,
        space: Space = Space(),  # noqa: B008 - it is frozen
        life: Life = Life(),  # noqa: B008 - so is this
    ) -> None:
        self._scope, self._space, self._life = scope, space, life
        self._objects = Collection(scope.run, scope._codec, collection, scope._notifier)

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
        `ttl`; with `sliding`, it begins its time anew whenever it is read by its key, or changed; what has a
        `ttl` of its own ends with that or with the session, whichever is first. Without a `ttl` it lives as it does in what the session is in. The end of `with`, or `end`, clears it.

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


class Memory(Namespace):
    """Values under keys, in namespaces: `store.memory("bot")`.

    A key is text, a value is JSON or one of Python's types `datetime` (with its zone), `date`, `time`, `timedelta`,
    `UUID`, `Decimal`, `bytes`, `set`, `frozenset`, `tuple`, an integer of any size; it comes back as it was, and
    what would not is refused. The store's `default` function makes values of others.

    `ttl` is seconds, or a timedelta, and `math.inf` for ever; a value written without one lives as long as the
    memory says: for ever, but for those of a session that has a `ttl`. Each verb raises what a collection's does, and
    `InvalidOption` for what cannot be a key.

    >>> from datetime import date
    >>> with Store("sqlite://") as store:
    ...     room = store.memory("bot").namespace("room", "42")
    ...     version = room.put("topic", {"name": "tea", "since": date(2026, 11, 21)})
    ...     room.get("topic")["since"].year, room.get("nothing", "of the kind")
    (2026, 'of the kind')
    """

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key, or `default` where there is none; 0, "", None and False are values.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("count", 0)
        ...     store.memory("bot").get("count", 7)
        0
        """
        found, value = self.fetch(key)
        return value if found else default

    def fetch(self, key: str) -> tuple[bool, Any]:
        """Return whether there is a value under a key, and the value.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").fetch("name")
        (False, None)
        """
        id = self._space.id_of(key)
        body = self._objects.get(id, ABSENT)
        if body is ABSENT:
            return False, None
        self._slide([id])
        return True, value_of(key, body)

    def put(
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

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").put("name", "Ada", ttl=60, if_absent=True)
        1
        """
        life = self._life.chosen(ttl)
        how: dict[str, Any] = {"ttl": life, "if_absent": if_absent, "if_version": if_version}
        id = self._space.id_of(key)
        with named(self._objects.name, self._space, key), within(key):
            version = self._objects.put(id, self._json(value), **how)
        if self._life.exceeds(life):
            self._slide([id])
        return version

    def delete(self, key: str, default: Any = None) -> Any:
        """Delete the value under a key, and return it; `default` where there is none.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("name", "Ada")
        ...     store.memory("bot").delete("name"), store.memory("bot").delete("name", "nobody")
        ('Ada', 'nobody')
        """
        found = self._scope.run(Take(self._objects.name, self._space.id_of(key), key))
        return default if found is ABSENT else found

    def pop(self, key: str) -> Any:
        """Delete the value under a key, and return it; raises `DocumentNotFound`, a `KeyError`, where there is
        none.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("name", "Ada")
        ...     store.memory("bot").pop("name")
        'Ada'
        """
        value = self.delete(key, ABSENT)
        if value is ABSENT:
            raise missing(self._objects.name, self._space, key)
        return value

    def increment(self, key: str, by: float = 1, initial: float = 0) -> Any:
        """Add to the number under a key, which is `initial` where there is none; returns the new one. However
        many do this at once, none is lost.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").increment("visits"), store.memory("bot").increment("visits", by=2)
        (1, 3)
        """
        return self.change(key, adding(key, by), default=initial)

    def change(self, key: str, function: Callable[[Any], Any], *, default: Any = ...) -> Any:
        """Load the value under a key, call a function with it, and write what that returns; returns it. A function
        that returns None has changed the value in place: that value is written. To store None, call
        `put(key, None)`. If somebody else changed the value meanwhile, all of it begins anew. `default` is what the function gets where
        there is no value; without it, `DocumentNotFound` is raised.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").change("names", lambda names: names | {"Ada"}, default=set())
        {'Ada'}
        """
        begun = default if default is ... else self._json(default)
        id, changed = self._space.id_of(key), as_json(key, function, self._scope._codec.default)
        with named(self._objects.name, self._space, key):
            body = self._objects.change(id, changed, default=begun, ttl=self._life.ttl)
        self._slide([id])
        return from_json(body)

    def keys(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Strings:
        """Return the keys that begin with a prefix, in order, up to `limit` (None: all), past the key
        `after`: the last of one page begins the next.

        >>> with Store("sqlite://") as store:
        ...     result = store.memory("bot").put_many({"user/ada": 1, "user/bob": 2, "room/1": 3})
        ...     store.memory("bot").keys("user/"), store.memory("bot").keys(limit=2, after="room/1")
        (['user/ada', 'user/bob'], ['user/ada', 'user/bob'])
        """
        asked = listing(self._objects.name, self._space.keys(prefix, after), read_limit(limit))
        return [self._space.key_of(id) for id in self._scope.run(asked)]

    def items(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Entries:
        """Return what is under these keys, as `keys` gives them: entries with `key`, `value`, `version` and `expires_at`. Each
        unpacks as the pair of key and value.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("name", "Ada")
        ...     dict(store.memory("bot").items())
        {'name': 'Ada'}
        """
        asked = self._space.keys(prefix, after)
        found = self._objects.find(asked, sort="$id", limit=read_limit(limit))
        return [entry_of(self._space, each) for each in found]

    def count(self, prefix: str = "") -> int:
        """Return how many keys begin with a prefix.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").count("user/")
        0
        """
        return self._objects.count(self._space.keys(prefix))

    def find(self, filter: Any = None, equals: Any = ..., *, limit: int | None = None) -> Entries:
        """Return the entries of this namespace whose values match a filter, in the order in which they came
        into being. A value that is no JSON object is `$body` to it. `equals` may be any value; in a filter,
        one of Python's types is asked for as it is kept: see the reference.

        >>> with Store("sqlite://") as store:
        ...     result = store.memory("bot").put_many({"ada": {"city": "Berlin"}, "bob": 3})
        ...     [each.key for each in store.memory("bot").find("city", "Berlin")]
        ['ada']
        """
        asked = asking(self._space, filter, equals, self._scope._codec)
        return [entry_of(self._space, each) for each in self._objects.find(asked, limit=limit)]

    def clear(self, prefix: str = "") -> int:
        """Delete the values under the keys that begin with a prefix; returns how many. Namespaces and sessions
        within this one stay: see `end`.

        >>> with Store("sqlite://") as store:
        ...     result = store.memory("bot").put_many({"user/ada": 1, "user/bob": 2, "room/1": 3})
        ...     store.memory("bot").clear("user/")
        2
        """
        return self._objects.delete_many(self._space.keys(prefix)).deleted_count

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values under those keys that there are, in the order asked.

        >>> with Store("sqlite://") as store:
        ...     result = store.memory("bot").put_many({"a": 1, "b": 2})
        ...     store.memory("bot").get_many(["b", "c"])
        {'b': 2}
        """
        found = self._objects.get_many(self._space.ids_of(keys))
        self._slide(found)
        return entries_of(self._space, found)

    def put_many(self, values: Mapping[str, Any], *, ttl: Ttl = None) -> int:
        """Write values under their keys, all or none; returns how many.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").put_many({"a": 1, "b": 2})
        2
        """
        codec, life = self._scope._codec, self._life.chosen(ttl)
        bodies = bodies_of(self._space, check_mapping(values), codec)
        with told_apart(self._space, bodies, codec):
            self._objects.put_many(bodies, ttl=life, atomic=True)
        if self._life.exceeds(life):
            self._slide(bodies)
        return len(bodies)

    def delete_many(self, keys: Iterable[str]) -> int:
        """Delete the values under those keys, all at once; returns how many there were.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").delete_many(["a", "b"])
        0
        """
        return self._objects.remove_many(self._space.ids_of(keys))

    def touch(self, key: str) -> bool:
        """Have a value live from now on for as long as it was given; returns whether it is there.

        >>> with Store("sqlite://") as store:
        ...     store.memory("bot").touch("name")
        False
        """
        return self._objects.touch(self._space.id_of(key))

    def expire(self, key: str, ttl: float | timedelta) -> bool:
        """Have a value live for `ttl` from now on; returns whether it is there.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("name", "Ada")
        ...     store.memory("bot").expire("name", ttl=60)
        True
        """
        return self._objects.touch(self._space.id_of(key), ttl=check_given(ttl))

    def ttl(self, key: str) -> float | None:
        """Return for how many seconds a value will live; infinity: for ever; None: there is none.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("name", "Ada")
        ...     store.memory("bot").ttl("name")
        inf
        """
        return left(self._objects.document(self._space.id_of(key)))

    def watch(
        self, prefix: str = "", *, after: str | None = None, timeout: float | None = None
    ) -> ChangeStream:
        """Return the changes of the values whose keys begin with a prefix, as they come: as `Collection.watch`
        does, with the key for `id` and the value for `body`. The memory must record them: see `configure`.

        >>> with Store("sqlite://") as store:
        ...     memory = store.memory("bot")
        ...     memory.configure(changes="after")
        ...     version = memory.put("name", "Ada")
        ...     [(each.id, each.body) for each in memory.watch(after="oldest", timeout=0)]
        [('name', 'Ada')]
        """
        notifier, codec = check_notifier(self._scope._notifier), self._scope._codec
        wanted, how = (
            ChangeFilter.parse(self._space.keys(prefix), None, codec),
            seen_by(self._space),
        )
        reader = ChangeReader(self._objects.name, wanted, after=after, timeout=timeout, convert=how)
        return ChangeStream(self._scope.run, notifier, reader)

    def _slide(self, ids: Iterable[str]) -> None:
        """Begin the time of values anew that were used, where the session slides."""
        found = list(ids)
        if found and self._life.sliding:
            with tolerant(self._objects.name):
                self._scope.run(sliding(self._objects.name, found, self._life))
