"""Dialogues, sync: `Dialogues`, `DialogueStore`, and delayed saving."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from ..document import read_ttl
from ..engine.workers import Background
from ..errors import DialoguesNotSaved, StoreClosed
from ..operations.combine import Steps, follow
from ..options import check_count, check_flag
from ..query.filter import Filter
from ..store import Store
from .locks import Lock, Locks
from .manager import (
    Container,
    Restored,
    RoleOf,
    Save,
    check_store,
    options_of,
    read_save,
    starter_or_responder,
)
from .model import ENDED, Dialogue, DialogueLabel, Message, Rules
from .records import DialogueCodec, DialogueNamespace, PlainCodec
from .repository import LOG, Keeper, Quarantined

PATIENCE: Final = 30.0
"""Seconds to wait for the end of what a thread saves."""


def saving(container: Container) -> Steps[None]:
    """Save what changed, as far as it can be: the rest stays in memory, and is told to the log."""
    if not container.is_set_up:
        return
    try:
        yield from container.flush()
    except DialoguesNotSaved:
        LOG.exception("%s: some cannot be saved now, and stay in memory", container.keeper.names)


def saver(seconds: float, save: Callable[[], bool]) -> Background:
    """Return a thread that calls a method every so many seconds, whatever that raises, for as long as its
    object lives and it returns True.
    """
    method: weakref.WeakMethod[Any] = weakref.WeakMethod(save)

    def save_again() -> bool:
        found = method()
        if found is None:
            return False
        try:
            return bool(found())
        except Exception:  # noqa: BLE001 - whatever it is, others can perhaps be saved next time
            LOG.exception("%r: cannot save now, and will try again", found.__self__)
            return True

    return Background("dialogues", seconds, save_again)


D = TypeVar("D")
T = TypeVar("T")
PAGE: Final = 100


class DialogueStore(Generic[D]):
    """Keeps dialogues of any class in collections of a store; `codec` takes them apart.

    `agent` and `component` say whose they are: others have collections of their own. Dialogues that have
    ended are kept apart from those that go on. It holds no dialogue in memory; `Dialogues` does.

    >>> from collections_store import Store
    >>> with Store("sqlite://") as store:
    ...     kept = DialogueStore(store, "ada", codec=PlainCodec())
    ...     dialogue = Dialogue(DialogueLabel(("7f", ""), "bob", "ada"), "ada", "buyer")
    ...     kept.save(dialogue)
    ...     [each.role for each in kept.restore()]
    1
    ['buyer']
    """

    def __init__(
        self,
        store: Store,
        agent: str,
        component: str = "dialogues",
        *,
        codec: DialogueCodec[D],
    ) -> None:
        self._store = check_store(store, Store)
        self._keeper = keeper_of(store, DialogueNamespace(agent, component), codec)
        self._lock = threading.Lock()

    def save(self, *dialogues: D) -> int:
        """Write what is new of dialogues, in one transaction; returns of how many there was anything.

        Of a dialogue that was saved before these are the messages since, and the header if it has changed.
        One that has ended moves to the terminal ones. What cannot be taken apart or stored, and what
        somebody else wrote to (`DialogueConflict`), keeps none of the others from being saved:
        `DialoguesNotSaved` is raised in the end, and tells which and why.
        """
        with self._lock:
            self._do(self._keeper.settle())
            return self._do(self._keeper.save(dialogues))

    def restore(self, *, terminal: bool = False) -> Iterator[D]:
        """Yield the dialogues that go on, or those that have ended, some at a time.

        A record of which none can be made is put aside, with a line in the log of `collections_store`;
        see `quarantined`.
        """
        after, more = "", True
        while more:
            found, after = self._do(
                self._keeper.restore(after, is_terminal=check_flag("terminal", terminal))
            )
            yield from found
            more = after != ""

    def get(self, label: DialogueLabel) -> D | None:
        """Return the dialogue with a label, complete or not; None: there is none."""
        return self._do(self._keeper.get([label], note=True))

    def remove(self, label: DialogueLabel, *, remember: bool = False) -> bool:
        """Delete a dialogue; returns whether it was there. `remember` it: then `is_known` is true for
        ever.
        """
        with self._lock:
            return self._do(self._keeper.remove(label, remember=remember))

    def is_known(self, label: DialogueLabel) -> bool:
        """Is there a dialogue with that label, complete or not, or was there one that is remembered?"""
        if not self._keeper.is_settled:
            with self._lock:
                self._do(self._keeper.settle())
        return self._do(self._keeper.is_known(label))

    def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool = False,
        limit: int | None = None,
    ) -> list[D]:
        """Return the dialogues that match, of those that go on or of those that have ended, in the order
        in which they did.

        To the filter a dialogue is its header (`dialogue_label`, `role`, `state`, `metadata` …) with
        `messages`, an array. Raises `InvalidFilter`.
        """
        asked = Filter.parse(filter, equals, self._keeper.recorder.rules)
        some = None if limit is None else check_count("limit", limit)
        return self._do(
            self._keeper.find(asked, some, is_terminal=check_flag("terminal", terminal))
        )

    def get_dialogues_with_counterparty(self, address: str) -> list[D]:
        """Return the dialogues with an address: those that go on, then those that have ended."""
        steps = (self._keeper.with_counterparty(address, is_terminal=e) for e in (False, True))
        return [each for some in steps for each in self._do(some)]

    def messages(self, label: DialogueLabel, *, after: int = 0, limit: int = PAGE) -> list[Any]:
        """Return messages of a dialogue as JSON: up to `limit` past the first `after`."""
        window = check_count("after", after), check_count("limit", limit)
        return self._do(self._keeper.messages(label, *window))

    def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Delete dialogues that ended more than `ttl` ago (seconds, or a timedelta), and the oldest that
        are more than `kept`; returns how many.
        """
        many = None if kept is None else check_count("kept", kept)
        return sum(self._do(self._keeper.purge(read_ttl(ttl) or None, many)).values())

    def restore_quarantined(self) -> list[D]:
        """Put the records that were put aside back where they were, and return the dialogues of those that can be
        read by now: after an update, say. The others are put aside again, and one whose dialogue has begun
        anew stays aside.
        """
        with self._lock:
            return self._do(self._keeper.restore_quarantined())

    def quarantined(self) -> list[Quarantined]:
        """Return the records that were put aside, in that order."""
        return self._do(self._keeper.quarantined())

    def _do(self, steps: Steps[T]) -> T:
        return follow(self._store.run, steps)


def keeper_of(store: Store, names: DialogueNamespace, codec: DialogueCodec[D]) -> Keeper[D]:
    """Return what keeps dialogues in a store."""
    return Keeper(names, codec, store._codec, ordered=store._database.ORDERED_KEYS)


class Dialogues:
    """The dialogues of a component of an agent: those that go on are in memory, and all are on the disk.

    A message is on the disk before the verb that accepts it returns, and restored by the next process that
    makes `Dialogues` with the same `self_address` and `component`. Others have collections of their own.
    They are set up by their first use, or when the store is entered, and torn down when it is closed.

    Options:

    * `rules`: what may be said, and what ends a dialogue; anything may, unless they are given.
    * `role_from_first_message`: called with the first message and `self_address`, returns the role of
      this side; "starter" or "responder". It calls no verb of these dialogues.
    * `keep_terminal_state_dialogues`: True keeps those that have ended; False deletes them from memory and
      disk, and remembers only that they were.
    * `offload`: True takes those that have ended out of memory, but for the `cached` ones that were last
      used; False keeps, and restores, all of them in memory.
    * `save`: "message": as above; a number of seconds, or a timedelta: within that time, by a thread;
      "teardown": not before that. What ends a dialogue is saved at once in any case.
    * `terminal_ttl`, `terminal_kept`: how long, in seconds or as a timedelta, and how many of those that
      have ended are kept; None: without end. Older ones are deleted in setup and now and then.

    It is used by any number of threads. Raises `InvalidOption`; each verb raises what the store does.

    >>> with Store("sqlite://") as store:
    ...     ada, bob = Dialogues(store, "ada"), Dialogues(store, "bob")
    ...     question, dialogue = ada.create("bob", "ask", {"text": "What time is it?"})
    ...     answer = bob.reply(bob.update(question), "tell", {"text": "Four."})
    ...     [each.body["text"] for each in ada.update(answer).messages]
    ['What time is it?', 'Four.']
    """

    def __init__(
        self,
        store: Store,
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
        self._store = check_store(store, Store)
        self._interval = read_save(save)
        options = options_of(
            keep_terminal_state_dialogues=keep_terminal_state_dialogues,
            offload=offload,
            cached=cached,
            saves_at_once=save == "message",
            terminal_ttl=terminal_ttl,
            terminal_kept=terminal_kept,
            rules=rules,
            role_from_first_message=role_from_first_message,
        )
        keeper = keeper_of(
            store, DialogueNamespace(self_address, component), PlainCodec(rules, self_address)
        )
        self._container = Container(keeper, self_address, options)
        self._locks = Locks(threading.Lock)
        self._inside = threading.local()
        self._saver: Background | None = None
        store.attach(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._container.keeper.names})"

    @property
    def self_address(self) -> str:
        """The address of this side."""
        return self._container.self_address

    @property
    def dialogues_in_active_state(self) -> tuple[Dialogue, ...]:
        """Those that go on, as far as they were restored or began here; no I/O."""
        return self._container.memory.active

    def setup(self) -> Restored:
        """Restore the dialogues that go on; tells how many, and what could not be read: such records are put
        aside (see `quarantined`), and the rest is restored. Any other verb does so too, once.
        """
        self._check_outside()
        with self._locks:
            return self._set_up()

    def teardown(self) -> None:
        """Save what has changed, and only that, in one transaction; then forget all. The store calls it
        when it is closed.

        Raises `DialoguesNotSaved` if some could not be saved: the others were, and all stay in memory.
        """
        self._check_outside()
        with self._locks:
            if self._container.is_set_up:
                self._follow(self._container.teardown())
            saver, self._saver = self._saver, None
        if saver is not None:
            saver.stop()
            saver.join(PATIENCE)

    def create(
        self, counterparty: str, performative: str, body: Any = None
    ) -> tuple[Message, Dialogue]:
        """Begin a dialogue; returns the message to be sent, and the dialogue.

        Raises `InvalidDialogueMessage`, `InvalidOption` and `InvalidBody`; then there is no dialogue.
        """
        label = self._container.side.new_label(counterparty)
        return self._do(self._container.create(label, performative, body), label)

    def update(self, message: Message) -> Dialogue:
        """Take a message that the other side sent; returns its dialogue, which may be new.

        Raises `RepeatedMessage` if it was taken before, `InvalidDialogueMessage` if it is not the next one
        of its dialogue, `DialogueNotFound` if it belongs to none; then nothing is changed.
        """
        return self._do(self._container.update(message), message)

    def reply(
        self, dialogue: Dialogue, performative: str, body: Any = None, *, target: int | None = None
    ) -> Message:
        """Say something in a dialogue; returns the message to be sent. It answers the last message, or the
        one with the id `target`. Raises as `create` does.
        """
        return self._do(self._container.reply(dialogue, performative, body, target), dialogue)

    def finish(self, dialogue: Dialogue, state: str = ENDED) -> None:
        """End a dialogue without a message, in a state: because of a timeout, say."""
        self._do(self._container.finish(dialogue, state), dialogue)

    def save(self, dialogue: Dialogue) -> None:
        """Have what changed of a dialogue on the disk: its metadata, or, with another `save`, its messages.

        Raises `DialoguesNotSaved`; then it stays as it is in memory.
        """
        self._do(self._container.save(dialogue), dialogue)

    def reload(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Forget what is in memory of a dialogue, unsaved changes too, and return it as it is on the disk; None:
        it is not there. This is the way out after `DialogueConflict`. Older objects of the dialogue are of no more use.

        After an error that leaves in doubt whether a message was written it is not needed: the next verb that
        writes to the dialogue reads it again, and undoes what was written and not acknowledged.
        """
        return self._do(self._container.reload(dialogue_label), dialogue_label)

    def remove(self, dialogue_label: DialogueLabel) -> bool:
        """Delete a dialogue from memory and disk; returns whether it was there."""
        return self._do_within(self._locks, self._container.remove(dialogue_label))

    def get_dialogue(self, message: Message) -> Dialogue | None:
        """Return the dialogue that a message belongs to, if there is one."""
        return self._do(self._container.get_dialogue(message), message)

    def get_dialogue_from_label(self, dialogue_label: DialogueLabel) -> Dialogue | None:
        """Return the dialogue with a label, complete or not, be it active or terminal."""
        return self._do(self._container.get_dialogue_from_label(dialogue_label), dialogue_label)

    def get_dialogues_with_counterparty(self, counterparty: str) -> list[Dialogue]:
        """Return the dialogues with an address: those that go on, then those that have ended."""
        return self._do(self._container.get_dialogues_with_counterparty(counterparty))

    def find(
        self,
        filter: Any = None,
        equals: Any = ...,
        *,
        terminal: bool | None = None,
        limit: int | None = None,
    ) -> list[Dialogue]:
        """Return the dialogues that match: those that go on in the order in which they began, then those
        that have ended in the order in which they did; `terminal` asks for one of these only.

        To the filter a dialogue is an object with `dialogue_label`, `self_address`, `role`, `state`,
        `is_terminal`, `metadata` and `messages`, an array. Raises `InvalidFilter`.

        >>> with Store("sqlite://") as store:
        ...     dialogues = Dialogues(store, "ada")
        ...     message, dialogue = dialogues.create("bob", "ask", {"intent": "time"})
        ...     [each.role for each in dialogues.find({"messages.body.intent": "time"})]
        ['starter']
        """
        asked = Filter.parse(filter, equals, self._container.keeper.recorder.rules)
        some = None if limit is None else check_count("limit", limit)
        if terminal is not None:
            check_flag("terminal", terminal)
        self._flush()
        return self._do(self._container.find(asked, terminal, some))

    def messages(
        self, dialogue_label: DialogueLabel, *, after: int = 0, limit: int = PAGE
    ) -> list[Message]:
        """Return messages of a dialogue: up to `limit` past the first `after`."""
        window = check_count("after", after), check_count("limit", limit)
        return self._do(self._container.messages(dialogue_label, *window))

    def purge(self, *, ttl: float | timedelta | None = None, kept: int | None = None) -> int:
        """Delete dialogues that ended more than `ttl` ago (seconds, or a timedelta), and the oldest of
        them that are more than `kept`; returns how many.
        """
        many = None if kept is None else check_count("kept", kept)
        steps = self._container.purge(read_ttl(ttl) or None, many)
        return self._do_within(self._locks, steps)

    def restore_quarantined(self) -> list[Dialogue]:
        """Put the records that were put aside back where they were, and return the dialogues of those that can be
        read by now: after an update, say. The others are put aside again, and one whose dialogue has begun
        anew stays aside.
        """
        return self._do_within(self._locks, self._container.restore_quarantined())

    def quarantined(self) -> list[Quarantined]:
        """Return the records that could not be read and were put aside."""
        return self._do(self._container.keeper.quarantined())

    def _do(self, steps: Steps[T], about: Any = None) -> T:
        """Follow steps; those about a message, a label or a dialogue while nobody else writes to that."""
        if about is None:
            return self._do_within(self._locks.of_search(), steps)
        return self._do_within(self._locks.of(self._container.side.family_of(about)), steps)

    def _do_within(self, lock: Lock, steps: Steps[T]) -> T:
        self._check_outside()
        while True:
            self._prepare()
            with lock:
                if self._container.is_set_up:  # it may have been torn down meanwhile
                    return self._follow_alone(steps)

    def _check_outside(self) -> None:
        if getattr(self._inside, "a_verb", False):
            raise RuntimeError(
                "a verb of these dialogues was called within another, by role_from_first_message "
                "for instance: it would wait for itself"
            )

    def _follow_alone(self, steps: Steps[T]) -> T:
        self._inside.a_verb = True
        try:
            return self._follow(steps)
        finally:
            self._inside.a_verb = False

    def _prepare(self) -> None:
        self._container.check()
        if (
            self._store._closed is not None
        ):  # and not all could be saved: nothing more shall be lost
            raise StoreClosed(self._store._closed)
        if not self._container.is_set_up:
            with self._locks:
                self._container.check()  # it may have been torn down meanwhile
                self._set_up()
        if self._container.memory.crowd():
            with self._locks:
                self._follow(self._container.make_room())

    def _set_up(self) -> Restored:
        try:
            return self._follow(self._container.setup())
        finally:
            if self._container.is_set_up:
                self._begin_saving()

    def _follow(self, steps: Steps[T]) -> T:
        return follow(self._store.run, steps)

    def _flush(self) -> None:
        self._check_outside()
        if self._container.memory.changed():
            with self._locks:
                self._follow(saving(self._container))

    def _begin_saving(self) -> None:
        if self._interval is not None and self._saver is None:
            self._saver = saver(self._interval, self._save_again)

    def _save_again(self) -> bool:
        """Save, in a thread; there is no more to be done when the store is closed."""
        if self._store._closed is None:
            self._flush()
        return self._store._closed is None
