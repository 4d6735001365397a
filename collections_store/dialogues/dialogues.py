"""Dialogues, sync: `Dialogues`, `DialogueStore` and `HostDialogues`, and the bases of sync and async classes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from ..aio.store import AsyncStore
from ..collection import Collection
from ..engine.workers import Background
from ..operations.operation import Steps, follow
from ..store import Store
from .cache import Lock, StripedLocks
from .manager import (
    DialogueManager,
    DialogueOptions,
    MessageManager,
    Restored,
    RoleOf,
    Save,
    starter_or_responder,
)
from .model import ENDED, Dialogue, DialogueLabel, Message, Rules, check_instance
from .records import DialogueCodec, DialogueNamespace, FoundDialogue, PlainCodec, Quarantined
from .repository import LOG, DialogueRepository

D = TypeVar("D")
S = TypeVar("S", Store, AsyncStore)
T = TypeVar("T")
PAGE: Final = 100
JOIN_TIMEOUT: Final = 30.0
"""Seconds to wait for the end of a background save."""


class BaseDialogueStore(Generic[S, D]):
    """Base of `DialogueStore` and `AsyncDialogueStore`."""

    _STORE: ClassVar[type]
    _LOCK: ClassVar[Any]

    def __init__(
        self, store: S, agent: str, component: str = "dialogues", *, codec: DialogueCodec[D]
    ) -> None:
        self._store: S = check_instance("store", store, self._STORE)
        self._repository = _repository(store, DialogueNamespace(agent, component), codec)
        self._lookup: DialogueRepository[D] | DialogueManager[D] = self._repository
        self._lock = self._LOCK()

    def _settled(self, steps: Steps[T]) -> Steps[T]:
        """Undo the writes in doubt, then run steps."""
        yield from self._repository.settle()
        return (yield from steps)


def _repository(
    store: Store | AsyncStore, names: DialogueNamespace, codec: DialogueCodec[D]
) -> DialogueRepository[D]:
    core = store.core
    return DialogueRepository(names, codec, core.codec, ordered=core.database.ordered_keys)


class DialogueStore(BaseDialogueStore[Store, D]):
    """Stores dialogues of any class in collections of a store; `codec` converts the dialogues.

    Each pair of `agent` and `component` has its own collections. Active and terminal dialogues have separate
    collections. A `DialogueStore` holds no dialogue in memory; `Dialogues` and `HostDialogues` do. It holds the stored header
    of each active dialogue that it saved or read, to detect the writes of other processes. Of several objects of a
    dialogue save only the one read last: the header of an older object would overwrite that of a later one.

    >>> from collections_store import Store
    >>> with Store("sqlite://") as store:
    ...     dialogues = DialogueStore(store, "ada", codec=PlainCodec())
    ...     dialogue = Dialogue(DialogueLabel(("7f", ""), "bob", "ada"), "ada", "buyer")
    ...     dialogues.save(dialogue)
    ...     [each.role for each in dialogues.restore()]
    1
    ['buyer']
    """

    _STORE, _LOCK = Store, threading.Lock

    def save(self, *dialogues: D) -> int:
        """Save the changes of dialogues in one transaction; return the number of changed dialogues.

        A save writes only the new messages of a stored dialogue, and the header if the header has changed. An ended
        dialogue moves to the terminal dialogues. A dialogue with an error, such as `DialogueConflict` after the write of
        another process, does not prevent the save of the rest: then `DialoguesNotSaved` is raised with the errors by
        label.
        """
        return self._run_locked(self._settled(self._repository.save(dialogues)), dialogues)

    def restore(self, *, terminal: bool = False) -> Iterator[D]:
        """Yield the active or the terminal dialogues, read in batches.

        A record that restores no dialogue moves to the quarantine, with a line in the log of `collections_store`; see
        `quarantined`.
        """
        after: str | None = ""
        while after is not None:
            steps = self._repository.restore(after, is_terminal=terminal)
            found, after = self._run(steps)
            yield from found

    def get(self, label: DialogueLabel) -> D | None:
        """Return the dialogue with a label, complete or not, or None."""
        return self._run(self._lookup.get(label))

    def remove(self, label: DialogueLabel, *, remember: bool = False) -> bool:
        """Delete a dialogue; return whether the dialogue was stored. With `remember=True` its key stays, and `is_known`
        remains true.
        """
        return self._run_locked(self._repository.remove(label, remember=remember))

    def is_known(self, label: DialogueLabel) -> bool:
        """Return whether a label, complete or not, is of a stored dialogue, or of a deleted dialogue whose key stayed."""
        steps = self._repository.is_known(label)
        if self._repository.is_settled:
            return self._run(steps)
        return self._run_locked(self._settled(steps))

    def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool = False,
        limit: int | None = None,
    ) -> list[D]:
        """Return the matching active or terminal dialogues, in the order of their beginning or end.

        To the filter a dialogue is its header (`dialogue_label`, `role`, `state`, `metadata` …) with
        `messages`, an array. Raises `InvalidFilter`.
        """
        return self._run(self._lookup.find(filter, equals, limit, terminal))

    @property
    def message_collection(self) -> Collection[Any]:
        """The collection of the messages of all dialogues, to create the text index of `search`. Do not write to it."""
        return self._store.collection(self._repository.names.messages)

    def search(
        self,
        query: str,
        *,
        terminal: bool | None = None,
        limit: int = 10,
        highlight: bool | tuple[str, str] = False,
        match: Literal["all", "any"] = "all",
    ) -> list[FoundDialogue[D]]:
        """Return the dialogues with the words of a query in a message: see `Dialogues.search`. A result has the JSON of the
        message.
        """
        steps = self._lookup.search(query, match, limit, highlight, *parts_of(terminal))
        return self._run(steps)

    def get_dialogues_with_counterparty(self, address: str) -> list[D]:
        """Return the dialogues with an address: active dialogues, then terminal ones."""
        return self._run(self._lookup.with_counterparty(address))

    def messages(self, label: DialogueLabel, *, after: int = 0, limit: int = PAGE) -> list[Any]:
        """Return messages of a dialogue as JSON: up to `limit`, past the first `after`."""
        return self._run(self._repository.messages(label, after, limit))

    def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Delete dialogues that ended more than `ttl` ago (seconds, or a timedelta), and the oldest terminal
        dialogues beyond the number `kept`; return the number of deleted dialogues.
        """
        return self._run(self._lookup.purge(ttl, kept))

    def restore_quarantined(self) -> list[D]:
        """Move records back from the quarantine, and return the restored dialogues, for example after an upgrade. Bad
        records return to the quarantine; records whose dialogue has begun again stay.
        """
        return self._run_locked(self._repository.restore_quarantined())

    def quarantined(self) -> list[Quarantined]:
        """Return the records in the quarantine, the oldest first."""
        return self._run(self._repository.quarantined())

    def _run(self, steps: Steps[T]) -> T:
        return follow(self._store.run, steps)

    def _run_locked(self, steps: Steps[T], *_: Any) -> T:
        with self._lock:
            return self._run(steps)


class HostDialogues(DialogueStore[D]):
    """The dialogues of a framework whose own classes accept messages: all are stored, the active dialogues also in
    memory.

    The framework calls `add` with new dialogues, and `accepted` after each message of a dialogue. `setup`
    restores the active dialogues of an earlier process. Searches return the objects in memory, and `purge` deletes
    dialogues from memory too. `options` are for ended dialogues.
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        component: str = "dialogues",
        *,
        codec: DialogueCodec[D],
        options: DialogueOptions = DialogueOptions(),  # noqa: B008 - it is frozen
    ) -> None:
        super().__init__(store, agent, component, codec=codec)
        self._lookup = self._manager = DialogueManager(self._repository, options)

    def move_to(self, store: Store) -> None:
        """Use another store from now on."""
        self._store = check_instance("store", store, Store)
        self._repository.forget()

    @property
    def active(self) -> list[D]:
        """The active dialogues, in the order of `add`; no I/O."""
        return list(self._manager.cache.active)

    @property
    def terminal(self) -> list[D]:
        """All terminal dialogues, read in batches."""
        return [self.add(each) for each in self.restore(terminal=True)]

    def setup(self) -> None:
        """Purge, and restore the active dialogues."""
        self._run(self._manager.purge_now_and_then(force=True))
        self._run(self._manager.restore())

    def teardown(self) -> None:
        """Save changes without a message."""
        self.save(*self._manager.cache.changed(self._manager.is_dirty))

    def add(self, dialogue: D) -> D:
        """Add a dialogue, unless an object of the dialogue is in memory; return the object in memory."""
        return self._manager.cache.add(dialogue)

    def forget(self, label: DialogueLabel) -> None:
        """Remove a dialogue from memory."""
        self._manager.cache.forget(label.key)

    def in_memory(self, label: DialogueLabel) -> D | None:
        """Return the dialogue with a label, complete or not, if the dialogue is in memory; no I/O."""
        return self._manager.in_memory(label)

    def accepted(self, dialogue: D, count: int) -> None:
        """Persist a dialogue to which a message was added after the first `count`.

        After an error, remove the message from the dialogue: the message is not stored, or will be undone before the
        next write.
        """
        self._run_locked(self._manager.accepted(dialogue, count))

    def remove(self, label: DialogueLabel, *, remember: bool = False) -> bool:
        """Delete a dialogue from memory and database; return whether the database had the dialogue."""
        if self.in_memory(label) is not None:
            self.forget(label)
        return super().remove(label, remember=remember)


class BaseDialogues(Generic[S]):
    """Base of `Dialogues` and `AsyncDialogues`."""

    _STORE: ClassVar[type]
    _LOCKS: ClassVar[Any]

    def __init__(
        self,
        store: S,
        self_address: str,
        *,
        component: str = "dialogues",
        rules: Rules = Rules(),  # noqa: B008 - it is frozen
        role_from_first_message: RoleOf = starter_or_responder,
        keep_terminal_state_dialogues: bool = True,
        offload: bool = True,
        cached: int = 100,
        save: Save = "message",
        terminal_ttl: float | timedelta | None = None,
        terminal_kept: int | None = None,
    ) -> None:
        self._store: S = check_instance("store", store, self._STORE)
        options = DialogueOptions(
            keep_terminal_state_dialogues, offload, cached, terminal_ttl, terminal_kept
        )
        names, codec = DialogueNamespace(self_address, component), PlainCodec(rules, self_address)
        self._manager = MessageManager(
            _repository(store, names, codec),
            self_address,
            options,
            save=save,
            rules=rules,
            role_from_first_message=role_from_first_message,
        )
        self._locks = self._LOCKS()
        self._saver: Background | None = None
        self._inside = threading.local()
        store.attach(self)  # type: ignore[arg-type]  # the subclass has setup and teardown

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._manager.repository.names})"

    @property
    def self_address(self) -> str:
        """The address of this agent."""
        return self._manager.self_address

    @property
    def dialogues_in_active_state(self) -> tuple[Dialogue, ...]:
        """The active dialogues, restored or begun here; no I/O."""
        return self._manager.cache.active

    def _lock_of(self, subject: Any) -> Any:
        """Return the lock for the dialogue of a message, a label or a dialogue; None: a lock for a search."""
        return self._locks.of(None if subject is None else self._manager.group_of(subject))

    def _start_saving(self) -> None:
        """Start the thread of `save=seconds`: a task would end with its event loop."""
        if self._manager.is_set_up and self._manager.interval is not None and self._saver is None:
            self._saver = _saver(self._manager.interval, self._save_in_background)

    def _save_in_background(self) -> bool:
        """Save all changes; return False when the store is closed."""
        core = self._store.core
        if core.closed is None and not self._manager.is_flushed():
            with self._locks:
                follow(core.run, self._manager.flush())
        return core.closed is None


def parts_of(terminal: bool | None) -> tuple[bool, ...]:
    """Return the values of `is_terminal` of a search."""
    return (False, True) if terminal is None else (terminal,)


def _saver(seconds: float, save: Callable[[], bool]) -> Background:
    """Return a thread for periodic calls of a method, until the object is deleted or the method returns False; errors
    are logged.
    """
    method: weakref.WeakMethod[Any] = weakref.WeakMethod(save)

    def save_again() -> bool:
        found = method()
        if found is None:
            return False
        try:
            return bool(found())
        except Exception:  # noqa: BLE001 - the next attempt may succeed
            LOG.exception("%r could not be saved; the next attempt follows", found.__self__)
            return True

    return Background("dialogues", seconds, save_again)


class Dialogues(BaseDialogues[Store]):
    """The dialogues of a component of an agent: all are stored, the active dialogues also in memory.

    A message is committed before `create`, `update` or `reply` returns. The next process with the same `self_address` and
    `component` restores the dialogues. Every other pair has its own collections. Entering
    the store, or else the first use, calls `setup`; closing the store calls `teardown`.

    Options:

    * `rules`: the protocol. By default every performative is valid, and none ends a dialogue.
    * `role_from_first_message`: a function of the first message and `self_address`, which returns the role of this
      agent, by default "starter" or "responder". The function must not call methods of these dialogues.
    * `keep_terminal_state_dialogues`: True keeps ended dialogues. False deletes ended dialogues from memory
      and database, and remembers only the keys.
    * `offload`: True removes terminal dialogues from memory, except the `cached` dialogues used last. False restores all
      dialogues, and keeps all in memory.
    * `save`: when a message is committed. "message": as above; a number of seconds, or a timedelta: within this time,
      by a thread; "teardown": when the store is closed. The end of a dialogue is always committed at once.
    * `terminal_ttl`, `terminal_kept`: the maximum age, in seconds or as a timedelta, and number of stored terminal
      dialogues; None: no limit. `setup` and, periodically, the end of a dialogue delete older dialogues.

    Any number of threads may use the object. Raises `InvalidOption`; each method also raises the store's errors.

    >>> with Store("sqlite://") as store:
    ...     ada, bob = Dialogues(store, "ada"), Dialogues(store, "bob")
    ...     question, dialogue = ada.create("bob", "ask", {"text": "What time is it?"})
    ...     answer = bob.reply(bob.update(question), "tell", {"text": "Four."})
    ...     [each.body["text"] for each in ada.update(answer).messages]
    ['What time is it?', 'Four.']
    """

    _STORE, _LOCKS = (
        Store,
        staticmethod(partial(StripedLocks, threading.Lock)),
    )  # 3.14 binds a partial

    def setup(self) -> Restored:
        """Restore the active dialogues; return their number, and the bad records, which move to the quarantine. The first
        call of any other method calls `setup`.
        """
        self._refuse_nested()
        with self._locks:
            return self._set_up()

    def teardown(self) -> None:
        """Save all changes in one transaction, and remove the dialogues from memory. Closing the store calls `teardown`.

        Raises `DialoguesNotSaved` after errors: the other dialogues are saved, and all stay in memory.
        """
        self._refuse_nested()
        with self._locks:
            self._follow(self._manager.teardown())
            saver, self._saver = self._saver, None
        if saver is not None:
            saver.stop()
            saver.join(JOIN_TIMEOUT)

    def create(
        self, counterparty: str, performative: str, body: Any = None
    ) -> tuple[Message, Dialogue]:
        """Begin a dialogue; return the message to send, and the dialogue.

        Raises `InvalidDialogueMessage`, `InvalidOption` and `InvalidBody`; then no dialogue begins.
        """
        label = self._manager.new_label(counterparty)
        return self._run(self._manager.create(label, performative, body), label, body)

    def update(self, message: Message) -> Dialogue:
        """Accept a message of the counterparty; return its dialogue, which may be new.

        Raises `RepeatedMessage` for an accepted message that comes again, `InvalidDialogueMessage` for a message that cannot
        follow in its dialogue, `DialogueNotFound` for a message of no known dialogue; then nothing changes.
        """
        return self._run(self._manager.update(message), message, message)

    def reply(
        self, dialogue: Dialogue, performative: str, body: Any = None, *, target: int | None = None
    ) -> Message:
        """Add a message of this agent; return the message to send. The message answers the last message, or the message with
        the id `target`. Raises as `create` does.
        """
        steps = self._manager.reply(dialogue, performative, body, target)
        return self._run(steps, dialogue, body)

    def finish(self, dialogue: Dialogue, state: str = ENDED) -> None:
        """End a dialogue in a state, without a message: after a timeout, for example."""
        return self._run(self._manager.finish(dialogue, state), dialogue)

    def save(self, dialogue: Dialogue) -> None:
        """Save a dialogue's metadata, and all messages not yet saved by `save=`.

        Raises `DialoguesNotSaved`; then the dialogue stays in memory unchanged.
        """
        return self._run(self._manager.save(dialogue), dialogue, dialogue)

    def reload(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Discard a dialogue's state in memory, with unsaved changes, and return the stored dialogue, or None, to resolve a
        `DialogueConflict`. Older objects of the dialogue are no longer valid.

        A write in doubt needs no `reload`: the next write to the dialogue reads the stored state, and undoes a write that
        was not acknowledged.
        """
        return self._run(self._manager.reload(dialogue_label), dialogue_label)

    def remove(self, dialogue_label: DialogueLabel) -> bool:
        """Delete a dialogue from memory and database; return whether the dialogue existed."""
        return self._run_within(self._locks, self._manager.remove(dialogue_label))

    def get_dialogue(self, message: Message) -> Dialogue | None:
        """Return the dialogue of a message, or None."""
        return self._run(self._manager.get_dialogue(message), message)

    def get_dialogue_from_label(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Return the dialogue with a label, complete or not, active or terminal, or None."""
        return self._run(self._manager.get(dialogue_label), dialogue_label)

    def get_dialogues_with_counterparty(self, counterparty: str) -> list[Dialogue]:
        """Return the dialogues with an address: active dialogues, then terminal ones."""
        return self._run(self._manager.with_counterparty(counterparty))

    def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool | None = None,
        limit: int | None = None,
    ) -> list[Dialogue]:
        """Return the matching dialogues: active dialogues in the order of their beginning, then terminal dialogues in
        the order of their end. `terminal=False` searches only active, `terminal=True` only terminal dialogues.

        To the filter a dialogue is an object with `dialogue_label`, `self_address`, `role`, `state`,
        `is_terminal`, `metadata` and `messages`, an array. Raises `InvalidFilter`.

        >>> with Store("sqlite://") as store:
        ...     dialogues = Dialogues(store, "ada")
        ...     message, dialogue = dialogues.create("bob", "ask", {"intent": "time"})
        ...     [each.role for each in dialogues.find({"messages.body.intent": "time"})]
        ['starter']
        """
        steps = self._manager.find(filter, equals, limit, *parts_of(terminal))
        self._refuse_nested()
        self._flush()
        return self._run(steps)

    @property
    def message_collection(self) -> Collection[Any]:
        """The collection of the messages of all dialogues, to create the text index of `search`. Do not write to it."""
        return self._store.collection(self._manager.repository.names.messages)

    def search(
        self,
        query: str,
        *,
        terminal: bool | None = None,
        limit: int = 10,
        highlight: bool | tuple[str, str] = False,
        match: Literal["all", "any"] = "all",
    ) -> list[FoundDialogue[Dialogue]]:
        """Return the active and terminal dialogues with the words of a query in a message, the best first, up to `limit`,
        each with its best message. `terminal` is as in `find`.

        The query, `highlight` and `match` are those of `Collection.search`. The words are those of the fields in a text index of
        the `message_collection`, such as "body.text". Raise `InvalidSearch`, also without an index.

        >>> with Store("sqlite://") as store:
        ...     dialogues = Dialogues(store, "ada")
        ...     name = dialogues.message_collection.create_text_index("body.text")
        ...     message, dialogue = dialogues.create("bob", "ask", {"text": "What time is it?"})
        ...     [(each.dialogue.role, each.message.performative) for each in dialogues.search("time")]
        [('starter', 'ask')]
        """
        steps = self._manager.search(query, match, limit, highlight, *parts_of(terminal))
        self._refuse_nested()
        self._flush()
        return self._run(steps)

    def messages(
        self, dialogue_label: DialogueLabel, *, after: int = 0, limit: int = PAGE
    ) -> list[Message]:
        """Return messages of a dialogue: up to `limit`, past the first `after`."""
        return self._run(self._manager.messages(dialogue_label, after, limit))

    def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Delete dialogues that ended more than `ttl` ago (seconds, or a timedelta), and the oldest terminal
        dialogues beyond the number `kept`; return the number of deleted dialogues.
        """
        return self._run_within(self._locks, self._manager.purge(ttl, kept))

    def restore_quarantined(self) -> list[Dialogue]:
        """Move records back from the quarantine, and return the restored dialogues, for example after an upgrade. Bad
        records return to the quarantine; records whose dialogue has begun again stay.
        """
        return self._run_within(self._locks, self._manager.restore_quarantined())

    def quarantined(self) -> list[Quarantined]:
        """Return the records in the quarantine, the oldest first."""
        return self._run(self._manager.repository.quarantined())

    def _run(self, steps: Steps[T], subject: Any = None, *_: Any) -> T:
        return self._run_within(self._lock_of(subject), steps)

    def _run_within(self, lock: Lock, steps: Steps[T]) -> T:
        self._refuse_nested()
        while True:
            self._prepare()
            with lock:
                if not self._manager.is_set_up:  # another thread has torn it down
                    continue
                self._inside.a_method = True
                try:
                    return self._follow(steps)
                finally:
                    self._inside.a_method = False

    def _refuse_nested(self) -> None:
        if getattr(self._inside, "a_method", False):
            raise RuntimeError(
                "a method of these dialogues was called within another, for example by "
                "role_from_first_message: it would wait for itself"
            )

    def _prepare(self) -> None:
        self._manager.check_open(self._store.core.closed)
        if not self._manager.is_set_up:
            with self._locks:
                self._manager.check_open(None)  # another thread may have torn it down
                self._set_up()
        if self._manager.cache.has_excess:
            with self._locks:
                self._follow(self._manager.evict())

    def _set_up(self) -> Restored:
        try:
            return self._follow(self._manager.setup())
        finally:
            self._start_saving()

    def _follow(self, steps: Steps[T]) -> T:
        return follow(self._store.run, steps)

    def _flush(self) -> None:
        if not self._manager.is_flushed():
            with self._locks:
                self._follow(self._manager.flush())
