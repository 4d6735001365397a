"""Memory: values under keys, in namespaces, sessions and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, Unpack

from ..changes import ChangeStream, check_notifier
from ..codec import Codec
from ..collection import Collection
from ..engine.notifier import ChangeNotifier
from ..operations.operation import Operation
from ..options import ChangeSettings, Consistency, Ttl
from .encoding import after_block
from .procedures import Entry, FoundEntry, Namespace, Procedures

T = TypeVar("T")
Strings: TypeAlias = list[str]
Entries: TypeAlias = list[Entry]
FoundEntries: TypeAlias = list[FoundEntry]


class MemoryHost(Protocol):
    """A store or a transaction."""

    _codec: Codec
    _notifier: ChangeNotifier | None

    def run(self, operation: Operation[T], consistency: Consistency = "strong") -> T:
        """Return the operation's result."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Return the context of a transaction, or of a savepoint."""


class Memory(Namespace):
    """Values under keys, in namespaces: `store.memory("bot")`.

    A key is a string. A value is JSON or one of Python's types `datetime` (with its zone), `date`, `time`,
    `timedelta`, `UUID`, `Decimal`, `bytes`, `set`, `frozenset`, `tuple`, or an integer of any size, and comes back
    equal and of the same type. Other values are rejected, unless the store's `default` function converts the value.

    `ttl` is seconds, a timedelta, or `math.inf` for ever. A value without a `ttl` never expires, except in a
    session with a `ttl`. Methods raise the errors of a collection's methods, and `InvalidOption` for an invalid key. The
    examples of the methods use a store, `store`.

    >>> from datetime import date
    >>> with Store("sqlite://") as store:
    ...     room = store.memory("bot").namespace("room", "42")
    ...     version = room.put("topic", {"name": "tea", "since": date(2026, 11, 21)})
    ...     room.get("topic")["since"].year, room.get("nothing", "of the kind")
    (2026, 'of the kind')
    """

    def __init__(self, host: MemoryHost, procedures: Procedures) -> None:
        super().__init__(host, procedures)
        parts = host._codec, procedures.collection, host._notifier
        self._collection: Collection[Any] = Collection(host.run, *parts)
        self._follow = self._collection._follow

    @property
    def collection(self) -> Collection[Any]:
        """The collection of this memory and all its namespaces, to create the indexes of `search`.

        >>> store.memory("bot").collection.create_text_index(["$body", "text"])
        'text'
        """
        return self._collection

    def __enter__(self) -> Self:
        self._procedures.check_ends()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        with after_block(error):
            self.end()

    def end(self) -> int:
        """Delete all values of this memory, its inner namespaces and sessions; return the number.

        >>> version = store.memory("bot").namespace("room").put("topic", "tea")
        >>> store.memory("bot").end()
        1
        """
        return self._follow(self._procedures.end())

    def configure(self, **settings: Unpack[ChangeSettings]) -> None:
        """Record the changes of this memory and of all its namespaces for `watch`: see `Store.collection`.

        >>> store.memory("bot").configure(changes="after", changes_kept=1000)
        """
        return self._follow(self._procedures.configure(settings))

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Return a context in which several methods are atomic: see `Store.transaction`.

        >>> with store.memory("bot").transaction() as memory:
        ...     version = memory.put("a", 1)
        ...     version = memory.put("b", 2)
        >>> store.memory("bot").count()
        2
        """
        with self._host.transaction() as tx:
            yield type(self)(tx, self._procedures)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a key, or `default` without a value; 0, "", None and False are values.

        >>> version = store.memory("bot").put("count", 0)
        >>> store.memory("bot").get("count", 7)
        0
        """
        return self._follow(self._procedures.get(key, default))

    def fetch(self, key: str) -> tuple[bool, Any]:
        """Return whether a key has a value, and the value.

        >>> store.memory("bot").fetch("name")
        (False, None)
        """
        return self._follow(self._procedures.fetch(key))

    def put(
        self,
        key: str,
        value: Any,
        *,
        ttl: Ttl = None,
        if_absent: bool = False,
        if_version: int | None = None,
    ) -> int:
        """Write a value under a key; return the version. `if_absent` writes only a new value,
        `if_version` only over this version; otherwise `VersionConflict` is raised.

        >>> store.memory("bot").put("name", "Ada", ttl=60, if_absent=True)
        1
        """
        options: dict[str, Any] = {"ttl": ttl, "if_absent": if_absent, "if_version": if_version}
        return self._follow(self._procedures.put(key, value, **options), value)

    def delete(self, key: str, default: Any = None) -> Any:
        """Delete and return the value under a key, or return `default`.

        >>> version = store.memory("bot").put("name", "Ada")
        >>> store.memory("bot").delete("name"), store.memory("bot").delete("name", "nobody")
        ('Ada', 'nobody')
        """
        return self._follow(self._procedures.delete(key, default))

    def pop(self, key: str) -> Any:
        """Delete and return the value under a key; without a value `DocumentNotFound`, a `KeyError`, is raised.

        >>> version = store.memory("bot").put("name", "Ada")
        >>> store.memory("bot").pop("name")
        'Ada'
        """
        return self._follow(self._procedures.pop(key))

    def increment(self, key: str, by: float = 1, initial: float = 0) -> Any:
        """Add to the number under a key, by default `initial`, and return the sum; atomic.

        >>> store.memory("bot").increment("visits"), store.memory("bot").increment("visits", by=2)
        (1, 3)
        """
        return self._follow(self._procedures.increment(key, by, initial))

    def change(self, key: str, function: Callable[[Any], Any], *, default: Any = ...) -> Any:
        """Read the value under a key, call a function with the value, and write and return the result.

        A function that changes the value in place returns None. To store None, call `put(key, None)`. If another writer
        was faster, the function is called again with the new value. Without a value the function gets `default`, or
        else `DocumentNotFound` is raised.

        >>> store.memory("bot").change("names", lambda names: names | {"Ada"}, default=set())
        {'Ada'}
        """
        changed = self._procedures.on_json(key, function)
        return self._follow(self._procedures.change(key, changed, default))

    def keys(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Strings:
        """Return the keys with a prefix, sorted, up to `limit` (None: all), after the key `after`: pass the
        last key of a page for the next page.

        >>> result = store.memory("bot").put_many({"user/ada": 1, "user/bob": 2, "room/1": 3})
        >>> store.memory("bot").keys("user/"), store.memory("bot").keys(limit=2, after="room/1")
        (['user/ada', 'user/bob'], ['user/ada', 'user/bob'])
        """
        return self._follow(self._procedures.keys(prefix, after, limit))

    def items(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = 100
    ) -> Entries:
        """Return the entries of the keys from `keys`, with `key`, `value`, `version` and `expires_at`.
        Each unpacks as the pair of key and value.

        >>> version = store.memory("bot").put("name", "Ada")
        >>> dict(store.memory("bot").items())
        {'name': 'Ada'}
        """
        return self._follow(self._procedures.items(prefix, after, limit))

    def count(self, prefix: str = "") -> int:
        """Return the number of keys with a prefix.

        >>> store.memory("bot").count("user/")
        0
        """
        return self._follow(self._procedures.count(prefix))

    def find(self, filter: Any = None, equals: Any = ..., *, limit: int | None = None) -> Entries:
        """Return the entries of this namespace whose values match a filter, in the order of their creation.

        A value other than a JSON object is the field `$body`. `equals` may be any value; a filter document has
        values of Python's types as they are stored: see the reference.

        >>> result = store.memory("bot").put_many({"ada": {"city": "Berlin"}, "bob": 3})
        >>> [each.key for each in store.memory("bot").find("city", "Berlin")]
        ['ada']
        """
        return self._follow(self._procedures.find(filter, equals, limit), filter, equals)

    def search(
        self,
        query: str | None = None,
        *,
        filter: Any = None,
        limit: int = 10,
        offset: int = 0,
        highlight: bool | tuple[str, str] = False,
        match: Literal["all", "any"] = "all",
        meaning: Any = None,
    ) -> FoundEntries:
        """Return the entries of this namespace with the words of a query, the best first: up to `limit`, after the first
        `offset`.

        The query, `highlight`, `match` and `meaning` are those of `Collection.search`. The words need a text index of the
        `collection`, the field "$body" of which is a value that is a string, and a `meaning` needs a vector index. Scores
        depend on all values of the memory. `filter` is a filter as in `find`. Raise `InvalidSearch`.

        >>> name = store.memory("bot").collection.create_text_index("$body")
        >>> result = store.memory("bot").put_many({"ada": "drinks green tea", "bob": "drinks milk"})
        >>> [(each.key, each.value) for each in store.memory("bot").search("tea")]
        [('ada', 'drinks green tea')]
        """
        window = {"filter": filter, "limit": limit, "offset": offset}
        options = {**window, "highlight": highlight, "match": match}
        store = self._host._notifier is not None
        steps = self._procedures.search(self._collection, query, meaning, options, store=store)
        return self._follow(steps)

    def clear(self, prefix: str = "") -> int:
        """Delete the values under the keys with a prefix; return the number. Inner namespaces and sessions
        stay: see `end`.

        >>> result = store.memory("bot").put_many({"user/ada": 1, "user/bob": 2, "room/1": 3})
        >>> store.memory("bot").clear("user/")
        2
        """
        return self._follow(self._procedures.clear(prefix))

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the existing values under several keys, in the order of the argument.

        >>> result = store.memory("bot").put_many({"a": 1, "b": 2})
        >>> store.memory("bot").get_many(["b", "c"])
        {'b': 2}
        """
        return self._follow(self._procedures.get_many(keys))

    def put_many(self, values: Mapping[str, Any], *, ttl: Ttl = None) -> int:
        """Write values under their keys, all or none; return the number.

        >>> store.memory("bot").put_many({"a": 1, "b": 2})
        2
        """
        return self._follow(self._procedures.put_many(values, ttl), values)

    def delete_many(self, keys: Iterable[str]) -> int:
        """Delete the values under several keys in one transaction; return the number of deleted values.

        >>> store.memory("bot").delete_many(["a", "b"])
        0
        """
        return self._follow(self._procedures.delete_many(keys))

    def touch(self, key: str) -> bool:
        """Restart a value's time to live; return whether the key has a value.

        >>> store.memory("bot").touch("name")
        False
        """
        return self._follow(self._procedures.touch(key))

    def expire(self, key: str, ttl: float | timedelta) -> bool:
        """Set a value's time to live, from now on; return whether the key has a value.

        >>> version = store.memory("bot").put("name", "Ada")
        >>> store.memory("bot").expire("name", ttl=60)
        True
        """
        return self._follow(self._procedures.expire(key, ttl))

    def ttl(self, key: str) -> float | None:
        """Return the seconds until a value expires; infinity: never; None: no value.

        >>> version = store.memory("bot").put("name", "Ada")
        >>> store.memory("bot").ttl("name")
        inf
        """
        return self._follow(self._procedures.ttl(key))

    def watch(
        self, prefix: str = "", *, after: str | None = None, timeout: float | None = None
    ) -> ChangeStream:
        """Return the changes of the values whose keys have a prefix, as `Collection.watch` does, with the key
        for `id` and the value for `body`. The memory must record changes: see `configure`.

        >>> memory = store.memory("bot")
        >>> memory.configure(changes="after")
        >>> version = memory.put("name", "Ada")
        >>> [(each.id, each.body) for each in memory.watch(after="oldest", timeout=0)]
        [('name', 'Ada')]
        """
        notifier = check_notifier(self._host._notifier)
        return ChangeStream(
            self._host.run, notifier, self._procedures.watch(prefix, after, timeout)
        )
