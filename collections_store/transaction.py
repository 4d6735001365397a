"""Collections within a transaction: the store's own, or the caller's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from .bell import Bell
from .codec import Codec
from .collection import Collection, Ttl
from .collection_options import Changes, Settings
from .document import SKILL_MEMORY, CollectionInfo, check_name
from .errors import CollectionsStoreError, TransactionEnded
from .execution import translated
from .operations import (
    AS_IT_IS,
    Configure,
    Drop,
    ListCollections,
    NewCollection,
    Operation,
    Rename,
    SharedConnection,
)
from .options import check_flag

if TYPE_CHECKING:
    from .memory import Memory, SkillMemory
    from .memory.skill_values import Policy

T = TypeVar("T")

INNER_OVER: Final = "this block of the transaction is over: use what the block around it was given"
OUT_OF_ORDER: Final = (
    "a block within a transaction ended before one that began later: both were rolled back. "
    "Tasks and threads that share a transaction cannot have blocks of their own in it"
)


class Collections(ABC):
    """What a store and a transaction have in common: collections, and something that runs."""

    _codec: Codec
    _bell: Bell | None = None
    """A transaction has none."""

    @abstractmethod
    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a context in which operations take place as one, or not at all."""

    def get_sync_collection(
        self,
        name: str,
        *,
        ttl: Ttl = None,
        sliding: bool | None = None,
        changes: Changes = None,
        changes_kept: int | None = None,
        changes_ttl: Ttl = None,
    ) -> Collection:
        """Return a handle on a collection, without any I/O unless an option is given; raises
        `InvalidName` and `InvalidOption`.

        Names are 1 to 200 of the characters A-Z, a-z, 0-9 and _; upper and lower case differ. Options are
        the collection's, for every process; what is given is changed, and the collection comes into
        being:

        * `ttl`: seconds, or a timedelta, after which an object that is written is gone, unless its writer
          says otherwise; `math.inf`: never, which is the default.
        * `sliding`: has an object that has a time to live live anew with each update; False.
        * `changes`: records every change for `watch`: True tells ids and versions, "after" also bodies,
          "both" also those before; False, the default, forgets what was recorded.
        * `changes_kept`: how many changes are kept at least; 100,000.
        * `changes_ttl`: seconds, or a timedelta, for which they are kept at most; `math.inf`.

        >>> with Store("sqlite://") as store:
        ...     store.get_sync_collection("my_collection")
        Collection('my_collection')
        """
        options = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=ttl, sliding=sliding, changes=changes, **options)
        collection = Collection(self.run, self._codec, check_name(name), self._bell)
        if settings != AS_IT_IS:
            self.run(Configure(name, settings))
        return collection

    def memory(self, namespace: str) -> Memory:
        """Return a memory: values under keys, in a collection of its own. Whatever text the namespace is, it is
        no other's. Raises `InvalidOption`.

        >>> with Store("sqlite://") as store:
        ...     version = store.memory("bot").put("name", "Ada")
        ...     store.memory("bot").get("name")
        'Ada'
        """
        from .memory import Memory
        from .memory.keys import collection_of

        return Memory(self, collection_of(namespace))

    def skill_memory(
        self,
        *,
        policy: Policy = "creator",
        model: Callable[..., Any] | None = None,
        ttl: Ttl = None,
        collection: str = SKILL_MEMORY,
    ) -> SkillMemory:
        """Return what the skills of sessions remember, by the rules of Soul Machines' platform, in a collection. A
        memory is a dict, or what `model` makes of its parts; see `SkillMemory` for `policy` and `ttl`. Raises
        `InvalidName` and `InvalidOption`.

        >>> with Store("sqlite://") as store:
        ...     skills = store.skill_memory(policy="raise")
        ...     count = skills.save("session 1", "weather", [{"name": "city", "value": "Bonn"}])
        ...     [each["value"] for each in skills.load("session 1", "weather")]
        ['Bonn']
        """
        from .memory import SkillMemory

        return SkillMemory(self, collection, policy=policy, model=model, ttl=ttl)

    def __getitem__(self, name: str) -> Collection:
        return Collection(self.run, self._codec, check_name(name), self._bell)

    def create_collection(
        self,
        name: str,
        *,
        body_index: bool = True,
        jsonb: bool = False,
        ttl: Ttl = None,
        sliding: bool | None = None,
        changes: Changes = None,
        changes_kept: int | None = None,
        changes_ttl: Ttl = None,
    ) -> Collection:
        """Create a collection that is not there yet, and return its handle.

        There is no need to: a collection comes into being when something is put into it. This is for
        its options. `body_index`: PostgreSQL keeps an index over whole bodies, which serves equality
        at any depth, through arrays too; without it, writes are cheaper. SQLite has no such index.
        `jsonb`: SQLite (3.45 or newer) keeps bodies as JSONB, which it reads without parsing them: what no index
        serves is found sooner, a `get` takes longer. PostgreSQL does so anyway. For
        the others see `get_sync_collection`. Raises `InvalidName`, `InvalidOption` and
        `CollectionExists`.

        >>> with Store("sqlite://") as store:
        ...     store.create_collection("log", body_index=False, ttl=86_400)
        Collection('log')
        """
        options = {"changes_kept": changes_kept, "changes_ttl": changes_ttl}
        settings = Settings.parse(ttl=ttl, sliding=sliding, changes=changes, **options)
        bodies = check_flag("body_index", body_index), settings, check_flag("jsonb", jsonb)
        self.run(NewCollection(check_name(name), *bodies))
        return self[name]

    def collections(self) -> list[CollectionInfo]:
        """List the collections by name, with their counts and sizes.

        >>> with Store("sqlite://") as store:
        ...     version = store["cities"].put("berlin", {})
        ...     [(each.name, each.count) for each in store.collections()]
        [('cities', 1)]
        """
        return self.run(ListCollections())

    def drop(self, name: str) -> bool:
        """Delete a collection with all its objects; tells whether it was there.

        >>> with Store("sqlite://") as store:
        ...     store.drop("cities")
        False
        """
        return self.run(Drop(check_name(name)))

    def rename(self, old: str, new: str) -> None:
        """Give a collection another name; raises `CollectionNotFound` and `CollectionExists`.

        >>> with Store("sqlite://") as store:
        ...     version = store["towns"].put("berlin", {})
        ...     store.rename("towns", "cities")
        ...     store["cities"].count()
        1
        """
        self.run(Rename(check_name(old), check_name(new)))


class Scope(Protocol):
    """An open transaction: what is executed in it, and its savepoints."""

    levels: list[Any]
    """The savepoints of the blocks that are open within it, the innermost last."""

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    def mark(self) -> Any:
        """Return the place where it is: a savepoint."""

    def release(self, mark: Any) -> None:
        """Keep what was done since a savepoint."""

    def back_to(self, mark: Any) -> None:
        """Undo what was done since a savepoint; raises nothing."""


class Bound:
    """A transaction of the caller's."""

    def __init__(
        self, connection: SharedConnection, run: Callable[[Bound, Operation[Any]], Any]
    ) -> None:
        self.connection, self._run = connection, run
        self.is_ready = False
        self.levels: list[Any] = []

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""
        result: T = self._run(self, operation)
        return result

    def mark(self) -> Any:
        """Return the place where it is: a savepoint."""
        with translated(self.connection.database):
            self.connection.prepare(write=True)
            return self.connection.mark()

    def release(self, mark: Any) -> None:
        """Keep what was done since a savepoint."""
        with translated(self.connection.database):
            self.connection.release(mark)

    def back_to(self, mark: Any) -> None:
        """Undo what was done since a savepoint."""
        with suppress(CollectionsStoreError), translated(self.connection.database):
            self.connection.back_to(mark)


class Transaction(Collections):
    """Collections within a transaction: what `Store.transaction` and `Store.bind` give.

    It hands out the same collections as the store does; what is done with these takes place when the
    transaction is committed, or not at all. An operation that fails changes nothing, and the
    transaction goes on. It may be used by several threads, one at a time.
    """

    def __init__(self, scope: Scope, codec: Codec) -> None:
        self._scope, self._codec = scope, codec
        self._is_over = False

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result; it becomes real when the transaction is committed."""
        self._check()
        return self._scope.run(operation)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return a context for a part of the transaction, which is undone if it ends with an
        exception: a savepoint. The transaction goes on in either case.

        While it is open, all that is done in the transaction is done in it. Raises
        `TransactionEnded`.

        >>> with Store("sqlite://") as store, store.transaction() as tx:
        ...     version = tx["cities"].put("berlin", {})
        ...     try:
        ...         with tx.transaction():
        ...             version = tx["cities"].put("atlantis", {})
        ...             raise LookupError("no such city")
        ...     except LookupError:
        ...         tx["cities"].count()
        1
        """
        self._check()
        return _Part(self._scope, self._codec)

    def _check(self) -> None:
        if self._is_over:
            raise TransactionEnded(INNER_OVER)


class _Part:
    """The context of a part of a transaction."""

    def __init__(self, scope: Scope, codec: Codec) -> None:
        self._scope, self._codec = scope, codec
        self._open: list[tuple[Any, Transaction]] = []

    def __enter__(self) -> Transaction:
        mark, levels = self._scope.mark(), self._scope.levels
        try:
            levels.append(mark)
            part = Transaction(self._scope, self._codec)
            self._open.append((mark, part))
            return part
        except BaseException:  # of a signal
            leave(levels, mark)
            self._scope.back_to(mark)
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        mark, part = self._open.pop()
        part._is_over = True
        in_order = leave(self._scope.levels, mark)
        if in_order and kind is None:
            self._scope.release(mark)
        elif in_order is not None:
            self._scope.back_to(mark)
        if kind is None and not in_order:
            raise TransactionEnded(OUT_OF_ORDER)


def leave(levels: list[Any], mark: Any) -> bool | None:
    """Take a savepoint, and what began later, from those that are open. Was it the innermost? None:
    it was not there, for one around it ended before.
    """
    place = next((number for number, each in enumerate(levels) if each is mark), None)
    if place is None:
        return None
    in_order = levels[-1] is mark
    del levels[place:]
    return in_order
