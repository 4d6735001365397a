"""The dialogues of a component of an agent, in memory and on the disk."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any, TypeVar

from ..background import Background
from ..errors import StoreClosed
from ..expiry import read_ttl
from ..filter import Filter
from ..operations import Steps, follow
from ..options import check_count
from ..store import Store
from .coding import PlainCodec
from .container import Container, Restored, RoleOf, starter_or_responder
from .dialogue import Dialogue
from .dialogue_store import PAGE, keeper_of
from .keeper import Quarantined
from .label import DialogueLabel
from .locks import Lock, Locks
from .message import Message
from .names import Namespace
from .rules import ENDED, Rules
from .saving import PATIENCE, saver, saving
from .settings import Save, check_store, options_of, read_save

T = TypeVar("T")


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
            store, Namespace(self_address, component), PlainCodec(rules, self_address)
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
        it is not there. This is the way out after `DialogueConflict`, and after an error that leaves in doubt
        whether a message was written. Older objects of the dialogue are of no more use.
        """
        return self._do(self._container.reload(dialogue_label), dialogue_label)

    def remove(self, dialogue_label: DialogueLabel) -> bool:
        """Delete a dialogue from memory and disk; tells whether it was there."""
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
