"""The manager of a component's dialogues: options, locks, cache, recovery, purge. It works with any class of dialogue;
`messaging` adds the methods for `Dialogue`.

Each method is a procedure that yields operations, for sync and async. Rules:

1. Locks: a procedure about one dialogue runs while nothing else writes to that dialogue, so it holds the lock of the
   dialogue's stripe. A search holds one of the search locks: it writes to no dialogue, but adds terminal ones to memory.
   `setup`, `teardown`, `flush`, `evict`, `remove` and `purge` hold all locks.
2. Order: all locks are taken in the order of their list, search locks first. So nobody holds up writers while it waits
   for a search.
3. The database comes first: memory changes when the database has acknowledged. An error, a full disk or a
   cancellation leaves both as they were.
4. A crash leaves what was acknowledged, and at most the one write per dialogue that was not. The next process restores
   it, and a message that is delivered again is a `RepeatedMessage`.
5. A write in doubt (interrupted thread, lost connection) is undone before the next write to its dialogue
   (`DialogueRepository.settle`).
6. There is one object for a dialogue. Another one would lose messages.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ..document import now, read_ttl
from ..errors import CollectionsStoreError, DialoguesNotSaved, InvalidOption, StoreClosed, shortened
from ..operations.operation import Steps
from ..options import check_count, check_flag
from ..query.filter import Filter
from .model import DialogueLabel, check_label, check_string
from .records import DialogueCodec, Quarantined
from .repository import LOG, DialogueRepository

D = TypeVar("D")
S = TypeVar("S")
PURGE_EVERY: Final = 1000
"""Dialogues that end between two purges, at most."""
STRIPES: Final = 64
"""The number of dialogues that can be written to at the same time."""
SEARCHES: Final = 16
"""The number of searches that can run at the same time."""

Lock: TypeAlias = AbstractContextManager[Any]
L = TypeVar("L", bound=Lock)


class StripedLocks(Generic[L]):
    """Locks for groups of dialogues, and for searches. Entering takes them all."""

    def __init__(self, make: Callable[[], L]) -> None:
        self._locks = [make() for _ in range(SEARCHES + STRIPES)]
        self._searches = cycle(range(SEARCHES))

    def of(self, group: Hashable) -> L:
        """Return the lock of a group of dialogues; None: of a search."""
        if group is None:
            return self._locks[next(self._searches)]
        return self._locks[SEARCHES + hash(group) % STRIPES]

    def __enter__(self) -> None:
        with ExitStack() as taken:
            for lock in self._locks:
                taken.enter_context(lock)
            taken.pop_all()

    def __exit__(self, *_: object) -> None:
        for lock in reversed(self._locks):
            lock.__exit__(None, None, None)


@dataclass(frozen=True, slots=True)
class Restored:
    """How many active dialogues were restored, and the records that could not be."""

    active: int
    quarantined: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class DialogueOptions:
    """The options of `Dialogues` for dialogues that have ended, with the same names. Raises `InvalidOption`.

    >>> DialogueOptions(terminal_kept=1000).terminal_ttl is None
    True
    """

    keep_terminal_state_dialogues: bool = True
    offload: bool = True
    cached: int = 100
    terminal_ttl: float | timedelta | None = None
    terminal_kept: int | None = None

    def __post_init__(self) -> None:
        for flag in ("keep_terminal_state_dialogues", "offload"):
            check_flag(flag, getattr(self, flag))
        check_count("cached", self.cached)
        read_ttl(self.terminal_ttl, "terminal_ttl")
        if self.terminal_kept is not None:
            check_count("terminal_kept", self.terminal_kept)


class DialogueCache(Generic[D]):
    """The active dialogues, and the `cached` terminal ones that were used last (None: all), by their keys.

    There is one object for a dialogue: an evicted one is found for as long as anybody has a reference to it. Any
    number of threads may use it.
    """

    def __init__(
        self, codec: DialogueCodec[D], cached: int | None, is_dirty: Callable[[D], bool]
    ) -> None:
        self.unsaved: set[str] = set()
        """The keys of dialogues with messages that are not stored."""
        self.new: set[str] = set()
        """The keys of dialogues of which nothing is stored."""
        self._codec, self._cached, self._is_dirty = codec, cached, is_dirty
        self._active: dict[str, D] = {}
        self._terminal: OrderedDict[str, D] = OrderedDict()
        self._evicted: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._by_counterparty: dict[str, dict[str, D]] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> tuple[D, ...]:
        """The active dialogues, in the order in which they were added."""
        with self._lock:
            return tuple(self._active.values())

    def find(self, key: str) -> D | None:
        """Return the dialogue with a key."""
        with self._lock:
            return self._find(key)

    def add(self, dialogue: D) -> D:
        """Add a dialogue; returns it, or the object that is there already."""
        label = self._codec.label(dialogue)
        with self._lock:
            known = self._find(label.key)
            if known is not None:
                return known
            if self._codec.is_terminal(dialogue):
                self._terminal[label.key] = dialogue
                self._evict()
            else:
                self._active[label.key] = dialogue
                same = self._by_counterparty.setdefault(label.dialogue_opponent_addr, {})
                same[label.key] = dialogue
        return dialogue

    def forget(self, *keys: str) -> None:
        """Remove dialogues."""
        with self._lock:
            for key in keys:
                self._forget(key)

    def clear(self) -> None:
        """Remove all dialogues."""
        with self._lock:
            for each in (self._active, self._terminal, self._evicted, self._by_counterparty):
                each.clear()
            self.unsaved.clear()
            self.new.clear()

    def with_counterparty(self, address: str) -> list[D]:
        """Return the active dialogues with an address."""
        with self._lock:
            return list(self._by_counterparty.get(address, {}).values())

    def changed(self, is_changed: Callable[[D], bool]) -> list[D]:
        """Return the dialogues that may not be stored as they are."""
        with self._lock:
            parts: Iterable[Any] = (self._active, self._terminal, self._evicted)
            items = [item for part in parts for item in part.items()]
        return [each for key, each in items if key in self.unsaved or is_changed(each)]

    def excess(self) -> list[D]:
        """Return the terminal dialogues beyond `cached`, which stay only because they are dirty."""
        with self._lock:
            return [self._terminal[key] for key in self._excess()]

    def evict(self) -> None:
        """Evict terminal dialogues beyond `cached`."""
        with self._lock:
            self._evict()

    def _find(self, key: str) -> D | None:
        if key in self._active:
            return self._active[key]
        found: D | None = self._terminal.get(key)
        if found is not None:
            self._terminal.move_to_end(key)
        elif (found := self._evicted.pop(key, None)) is not None:
            self._terminal[key] = found
            self._evict()
        return found

    def _evict(self) -> None:
        for key in self._excess():
            if not self._is_dirty(self._terminal[key]):
                self._evicted[key] = self._terminal.pop(key)

    def _excess(self) -> list[str]:
        if self._cached is None or len(self._terminal) <= self._cached:
            return []
        return list(self._terminal)[: len(self._terminal) - self._cached]

    def _forget(self, key: str) -> None:
        for some in (self._terminal, self._evicted):
            some.pop(key, None)
        self.unsaved.discard(key)
        self.new.discard(key)
        dialogue = self._active.pop(key, None)
        if dialogue is not None:
            address = self._codec.label(dialogue).dialogue_opponent_addr
            del self._by_counterparty[address][key]
            if not self._by_counterparty[address]:
                del self._by_counterparty[address]


class DialogueManager(Generic[D]):
    """The dialogues of one component: the active ones and the terminal ones used last in memory, all persisted."""

    repository: DialogueRepository[D]
    options: DialogueOptions
    codec: DialogueCodec[D]
    cache: DialogueCache[D]
    is_set_up: bool
    is_torn_down: bool

    def __init__(self, repository: DialogueRepository[D], options: DialogueOptions) -> None:
        self.repository, self.options = repository, options
        self.codec = repository.codec.dialogues
        cached = options.cached if options.offload else None
        self.cache = DialogueCache(self.codec, cached, self.is_dirty)
        self._ended = self._purged = 0
        self._last_error = ""
        self.is_set_up = self.is_torn_down = False

    # -- methods that a subclass overrides ---------------------------------------------------------

    def is_dirty(self, dialogue: D) -> bool:
        """Return whether a dialogue may have changed since it was saved: a host's active ones at any time."""
        return not self.codec.is_terminal(dialogue) and self.codec.message_count(dialogue) > 0

    def is_borrowed(self, dialogue: D) -> bool:
        """Return whether a dialogue may still change without notice."""
        return self.is_dirty(dialogue)

    def mark(self, dialogue: D, *, dirty: bool) -> None:
        """Record whether a dialogue is dirty."""

    # -- recovery ---------------------------------------------------------------------------------

    def setup(self) -> Steps[Restored]:
        """Restore the active dialogues."""
        if not self.is_set_up:
            self.cache.clear()  # of an attempt that failed
            self.repository.forget()
            yield from self.restore()
            self.is_set_up, self.is_torn_down = True, False
            yield from self.purge_now_and_then(force=True)
            return Restored(len(self.cache.active), tuple(self.repository.reported))
        return Restored(len(self.cache.active))

    def restore(self) -> Steps[None]:
        """Add the stored dialogues to memory: the active ones, and all without `offload`."""
        self.repository.reported.clear()
        for is_terminal in (False,) if self.options.offload else (False, True):
            after, more = "", True
            while more:
                found, after = yield from self.repository.restore(after, is_terminal=is_terminal)
                for dialogue in found:
                    self.cache.add(dialogue)
                more = after != ""

    def check_open(self, closed: str | None) -> None:
        """Raise `StoreClosed` after the teardown, and after the store was closed for a reason: a message would
        be lost.
        """
        if self.is_torn_down:
            raise StoreClosed(
                "the dialogues are torn down, because the store was closed: call setup()"
            )
        if closed is not None:  # without a teardown, where not everything could be saved
            raise StoreClosed(closed)

    def teardown(self) -> Steps[None]:
        """Save all changes, and remove the dialogues from memory, unless some cannot be saved."""
        if not self.is_set_up:
            return
        yield from self._save(self.cache.changed(self.is_borrowed))
        yield from self.repository.settle()
        self.cache.clear()
        self.repository.forget()
        self.is_set_up, self.is_torn_down = False, True

    # -- saving -----------------------------------------------------------------------------------

    def is_flushed(self) -> bool:
        """Return whether `flush` has nothing to do."""
        return not self.is_set_up or not self.cache.changed(self.is_dirty)

    def flush(self) -> Steps[None]:
        """Save all changes in one transaction. Dialogues that cannot be saved stay in memory, and are logged."""
        try:
            yield from self._save(self.cache.changed(self.is_dirty) if self.is_set_up else [])
        except DialoguesNotSaved:
            LOG.exception(
                "%s: not all dialogues could be saved; they stay in memory", self.repository.names
            )

    def evict(self) -> Steps[None]:
        """Evict excess terminal dialogues from memory; dirty ones are saved first."""
        try:
            yield from self._save(self.cache.excess())
        except CollectionsStoreError as error:
            if str(error) != self._last_error:  # once, not with every method
                LOG.exception("terminal dialogues could not be saved; each stays in memory")
            self._last_error = str(error)
        self.cache.evict()

    def _save(self, dialogues: list[D], *, strict: bool = False) -> Steps[int]:
        """Save dialogues. Unless `strict`, others may have purged the terminal ones."""
        codec, labels = self.codec, [self.repository.label(each) for each in dialogues]
        is_purgeable = [not strict and codec.is_terminal(each) for each in dialogues]
        purgeable = {label.key for label, is_ in zip(labels, is_purgeable, strict=True) if is_}
        counts = {x.key: codec.message_count(d) for x, d in zip(labels, dialogues, strict=True)}
        for each in dialogues:
            self.mark(each, dirty=False)
        try:
            saved: int = yield from self.repository.save(
                dialogues, counts.keys() - self.cache.new, purgeable
            )
        except DialoguesNotSaved as error:
            self._saved(dialogues, counts, error.errors)
            raise
        except BaseException:
            for each in dialogues:
                self.mark(each, dirty=True)
            raise
        self._saved(dialogues, counts, ())
        return saved

    def _saved(self, dialogues: Iterable[D], counts: dict[str, int], failed: Any) -> None:
        """Record that dialogues were saved, except those with messages added since."""
        for each in dialogues:
            label = self.repository.label(each)
            if label in failed:
                self.mark(each, dirty=True)
                continue
            self.cache.new.discard(label.key)
            if self.codec.message_count(each) == counts[label.key]:
                self.cache.unsaved.discard(label.key)

    def accepted(self, dialogue: D, count: int) -> Steps[None]:
        """Persist a dialogue to which its class has added a message after the first `count`. If this raises, the host
        must take the message out again: it is not stored, or will be undone by the next write.
        """
        is_terminal = self.codec.is_terminal(dialogue)
        try:
            if is_terminal and not self.options.keep_terminal_state_dialogues:
                label = check_label(self.repository.label(dialogue))
                yield from self.repository.remove(label, remember=label.is_by_counterparty)
            else:
                yield from self.repository.settle()
                yield from self.repository.save([dialogue])
        except BaseException:
            with suppress(InvalidOption):  # without a valid label nothing was stored
                self.repository.withdraw(self.repository.label(dialogue), count)
            raise
        if is_terminal:
            yield from self.retire(dialogue)

    # -- lookups ----------------------------------------------------------------------------------

    def get_dialogue_from_label(self, label: DialogueLabel) -> Steps[D | None]:
        """Return the dialogue with a label, complete or not."""
        found = self.cache.find(check_label(label).key)
        if found is None:
            found = yield from self.load([label])
        return found if found is not None and label.names(self.repository.label(found)) else None

    def load(self, labels: list[DialogueLabel]) -> Steps[D | None]:
        """Return the stored dialogue with one of the labels."""
        found = yield from self.repository.get(labels)
        return None if found is None else self.known(found)

    def known(self, dialogue: D) -> D | None:
        """Return the object in memory for a dialogue that was read, or add it. An active one that is not in memory is
        about to begin, or to be removed: None.
        """
        if self.codec.is_terminal(dialogue):
            return self.cache.add(dialogue)
        return self.cache.find(self.repository.label(dialogue).key)

    def get_dialogues_with_counterparty(self, address: str) -> Steps[list[D]]:
        """Return the dialogues with an address: the active ones, then the terminal ones."""
        check_string("counterparty", address)
        active = self.cache.with_counterparty(address)
        terminal = yield from self.repository.with_counterparty(address, True)
        return _distinct([*active, *filter(None, map(self.known, terminal))])

    def find(self, filter: Any, equals: Any, terminal: Any, limit: Any) -> Steps[list[D]]:
        """Return the dialogues that match: the active ones, then the terminal ones."""
        if terminal is not None:
            check_flag("terminal", terminal)
        query = self.repository.query(filter, equals, limit)
        return self._find(*query, (False, True) if terminal is None else (terminal,))

    def _find(self, query: Filter, limit: int | None, parts: tuple[bool, ...]) -> Steps[list[D]]:
        found: list[D] = []
        for is_terminal in parts:
            left = None if limit is None else limit - len(found)
            if left != 0:
                some = yield from self.repository.find(query, left, is_terminal=is_terminal)
                known = list(map(self.known, some))
                if left is not None and None in known:  # too few then
                    some = yield from self.repository.find(query, None, is_terminal=is_terminal)
                    known = list(map(self.known, some))
                found += [each for each in known if each is not None][:left]
        return _distinct(found)  # one may have ended between the two

    def remove(self, label: DialogueLabel) -> Steps[bool]:
        """Delete a dialogue from memory and database."""
        found = yield from self.get_dialogue_from_label(label)
        if found is None:
            return False
        removed: bool = yield from self.repository.remove(
            label,
            remember=label.is_by_counterparty,
            expected=self.codec.message_count(found),
        )
        is_new = label.key in self.cache.new
        self.cache.forget(label.key)
        return removed or is_new

    def reload(self, label: DialogueLabel) -> Steps[D | None]:
        """Discard a dialogue's state in memory, and read it again."""
        found = yield from self.repository.reload(label)
        self.cache.forget(label.key)
        return None if found is None else self.cache.add(found)

    def restore_quarantined(self) -> Steps[list[D]]:
        """Move records back from the quarantine, and add the dialogues restored from them."""
        return (yield from self.repository.restore_quarantined(self.cache.add))

    # -- purge ------------------------------------------------------------------------------------

    def retire(self, dialogue: D) -> Steps[None]:
        """Move a dialogue that has ended to the terminal ones in memory."""
        key = self.repository.label(dialogue).key
        self.cache.forget(key)
        self.repository.persisted.pop(key, None)
        if self.options.keep_terminal_state_dialogues:
            self.cache.add(dialogue)
        self._ended += 1
        yield from self.purge_now_and_then()

    def purge_now_and_then(self, *, force: bool = False) -> Steps[None]:
        """Purge according to the options, if it is time. A failure is logged, and the next purge tries again."""
        ttl, kept = self.options.terminal_ttl, self.options.terminal_kept
        age = read_ttl(ttl) or None
        is_time = force or (age is not None and now() - self._purged > age)
        every = PURGE_EVERY if kept is None else min(PURGE_EVERY, kept + 1)
        if not is_time and self._ended % every:
            return
        self._purged = now()
        try:
            yield from self.purge(ttl, kept)
        except CollectionsStoreError:
            LOG.exception("terminal dialogues could not be purged")

    def purge(self, ttl: Any, kept: Any) -> Steps[int]:
        """Delete terminal dialogues that are older than `ttl`, or more than `kept`."""
        purged = yield from self.repository.purge(ttl, kept)
        self.cache.forget(*purged)
        return sum(purged.values())


def _distinct(dialogues: Iterable[D]) -> list[D]:
    """Return each object once; a host's class may have no hash."""
    return list({id(each): each for each in dialogues}.values())


def check_store(store: Any, kind: type[S]) -> S:
    """Return `store` if it is of a class; raises `InvalidOption`."""
    if not isinstance(store, kind):
        raise InvalidOption("store", f"must be {kind.__name__}, got {shortened(store)}")
    return store
