"""The manager of a component's dialogues: its options, those in memory, and the steps that sync and async share.

Each verb is a procedure that yields operations. It changes nothing in memory before the disk has it.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ..codec import decode
from ..document import read_ttl
from ..errors import (
    CollectionsStoreError,
    DialogueConflict,
    DialogueNotFound,
    DialoguesNotSaved,
    InvalidDialogueMessage,
    InvalidOption,
    StoreClosed,
    shortened,
)
from ..operations.combine import Steps
from ..options import check_count, check_flag
from ..query.filter import Filter
from ..sql.schema import now
from .model import (
    UNASSIGNED,
    Dialogue,
    DialogueLabel,
    Message,
    Rules,
    Transition,
    check_address,
    check_label,
)
from .records import NOTHING
from .repository import LOG, Keeper, Quarantined
from .storage import by_opponent

Save: TypeAlias = Literal["message", "teardown"] | float | timedelta
S = TypeVar("S")
LONGEST: Final = 86_400.0


def check_store(store: Any, kind: type[S]) -> S:
    """Return a store of the right colour; raises `InvalidOption`."""
    if not isinstance(store, kind):
        raise InvalidOption("store", f"{shortened(store)} is no {kind.__name__}")
    return store


def read_save(save: Any) -> float | None:
    """Return after how many seconds what changed is saved by a thread; None: there is none. Raises
    `InvalidOption`.
    """
    if isinstance(save, str) and save in {"message", "teardown"}:
        return None
    seconds = save.total_seconds() if isinstance(save, timedelta) else save
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption("save", f"{shortened(save)} is not 'message', 'teardown' or seconds")
    if not 0 < seconds <= LONGEST:
        raise InvalidOption("save", f"{shortened(save)} is not between 0 seconds and a day")
    return float(seconds)


def options_of(
    *, terminal_ttl: Any, terminal_kept: Any, cached: Any, rules: Any, **others: Any
) -> DialogueOptions:
    """Return the options if they make sense; raises `InvalidOption`."""
    for name in ("keep_terminal_state_dialogues", "offload"):
        check_flag(name, others[name])
    if not isinstance(rules, Rules):
        raise InvalidOption("rules", f"{shortened(rules)} is no Rules")
    if not callable(others["role_from_first_message"]):
        raise InvalidOption("role_from_first_message", "it is no function")
    return DialogueOptions(
        terminal_ttl=read_ttl(terminal_ttl, "terminal_ttl") or None,
        terminal_kept=None
        if terminal_kept is None
        else check_count("terminal_kept", terminal_kept),
        cached=check_count("cached", cached),
        rules=rules,
        **others,
    )


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that talk."""

    self_address: str

    def new_label(self, counterparty: str) -> DialogueLabel:
        """Return the label of a dialogue that this side is about to begin."""
        given: Any = counterparty
        if not isinstance(given, str) or given in {"", self.self_address} or "\0" in given:
            raise InvalidOption("counterparty", f"{shortened(given)} is no address of another")
        return DialogueLabel((secrets.token_hex(16), UNASSIGNED), counterparty, self.self_address)

    def family_of(self, thing: Any) -> tuple[Any, ...]:
        """Return what all messages and labels of a dialogue have in common; it may be anything."""
        label = thing.dialogue_label if isinstance(thing, Dialogue) else thing
        if isinstance(label, DialogueLabel):
            return label.dialogue_starter_reference, label.dialogue_opponent_addr
        if isinstance(thing, Message):
            own = thing.sender == self.self_address
            return thing.dialogue_reference[0], thing.to if own else thing.sender
        return ()

    def labels_of(self, message: Message) -> list[DialogueLabel]:
        """Return the labels, incomplete, that the dialogue of a message may have."""
        reference = (message.dialogue_reference[0], UNASSIGNED)
        other = message.to if message.sender == self.self_address else message.sender
        if not reference[0] or not other:
            return []
        return [DialogueLabel(reference, other, starter) for starter in (other, self.self_address)]

    def check_incoming(self, message: Message) -> Message:
        given: Any = message
        if not isinstance(given, Message):
            raise InvalidDialogueMessage(given, "it is no Message")
        if message.to != self.self_address or message.sender in {"", self.self_address}:
            raise InvalidDialogueMessage(
                message, f"it is not from another to {self.self_address!r}"
            )
        if not message.dialogue_reference[0]:
            raise InvalidDialogueMessage(message, "its dialogue_reference has no starter's part")
        if "\0" in "".join((message.sender, *message.dialogue_reference)):
            raise InvalidDialogueMessage(message, "its sender or dialogue_reference holds NUL")
        return message


class DialogueCache:
    """Dialogues by their keys. Of those that have ended it holds so many, the last used, or all: None.

    There is one object for a dialogue: one that was let go is found for as long as anybody has it. Any
    number of threads may use it.
    """

    def __init__(self, cached: int | None) -> None:
        self.unsaved: set[str] = set()
        """The keys of those that hold messages which are not on the disk."""
        self.new: set[str] = set()
        """The keys of those that are not on the disk at all."""
        self._cached = cached
        self._active: dict[str, Dialogue] = {}
        self._terminal: OrderedDict[str, Dialogue] = OrderedDict()
        self._let_go: weakref.WeakValueDictionary[str, Dialogue] = weakref.WeakValueDictionary()
        self._by_counterparty: dict[str, dict[str, Dialogue]] = {}
        self._lock = threading.Lock()

    @property
    def active(self) -> tuple[Dialogue, ...]:
        """Those that go on, in the order in which they came."""
        with self._lock:
            return tuple(self._active.values())

    def find(self, key: str) -> Dialogue | None:
        """Return the dialogue with a key."""
        with self._lock:
            if key in self._active:
                return self._active[key]
            return self._used(key)

    def add(self, dialogue: Dialogue) -> Dialogue:
        """Hold a dialogue; returns it, or the one that is there already."""
        key, address = _place(dialogue)
        with self._lock:
            known = self._active.get(key) or self._used(key)
            if known is not None:
                return known
            if dialogue.is_terminal:
                self._hold(key, dialogue)
            else:
                self._active[key] = dialogue
                self._by_counterparty.setdefault(address, {})[key] = dialogue
        return dialogue

    def forget(self, key: str) -> None:
        """Hold a dialogue no longer."""
        with self._lock:
            self._forget(key)

    def forget_all(self, keys: Iterable[str]) -> None:
        """Hold dialogues no longer."""
        with self._lock:
            for key in keys:
                self._forget(key)

    def clear(self) -> None:
        """Hold none."""
        with self._lock:
            for some in (self._active, self._terminal, self._let_go, self._by_counterparty):
                some.clear()
            self.unsaved.clear()
            self.new.clear()

    def with_counterparty(self, address: str) -> list[Dialogue]:
        """Return those with an address that go on."""
        with self._lock:
            return list(self._by_counterparty.get(address, {}).values())

    def changed(self) -> list[Dialogue]:
        """Return those that may not be on the disk as they are."""
        unsaved = self.unsaved
        return [each for key, each in self._items() if each.touched or key in unsaved]

    def lent(self) -> list[Dialogue]:
        """Return these, and those of which somebody may have changed the metadata by a reference to it."""
        unsaved = self.unsaved
        return [each for key, each in self._items() if each.lent or key in unsaved]

    def crowd(self) -> list[Dialogue]:
        """Return those that have ended and are too many, but may not be on the disk as they are."""
        with self._lock:
            return [self._terminal[key] for key in self._spare()]

    def _items(self) -> list[tuple[str, Dialogue]]:
        with self._lock:
            parts = self._active, self._terminal, self._let_go
            return [item for some in parts for item in some.items()]

    def let_go(self) -> None:
        """Hold no more than so many of those that have ended."""
        with self._lock:
            self._drop()

    def _used(self, key: str) -> Dialogue | None:
        found = self._terminal.get(key)
        if found is not None:
            self._terminal.move_to_end(key)
            return found
        found = self._let_go.pop(key, None)
        if found is not None:
            self._hold(key, found)
        return found

    def _hold(self, key: str, dialogue: Dialogue) -> None:
        self._terminal[key] = dialogue
        self._drop()

    def _drop(self) -> None:
        """Let go of those that were not used for long; not of what is to be saved."""
        for key in self._spare():
            if not self._terminal[key].touched:
                self._let_go[key] = self._terminal.pop(key)

    def _spare(self) -> list[str]:
        """Return the keys of those that are too many."""
        if self._cached is None or len(self._terminal) <= self._cached:
            return []
        return list(self._terminal)[: len(self._terminal) - self._cached]

    def _forget(self, key: str) -> None:
        self._terminal.pop(key, None)
        self._let_go.pop(key, None)
        self.unsaved.discard(key)
        self.new.discard(key)
        dialogue = self._active.pop(key, None)
        if dialogue is None:
            return
        _, address = _place(dialogue)
        others = self._by_counterparty[address]
        del others[key]
        if not others:
            del self._by_counterparty[address]


def _place(dialogue: Dialogue) -> tuple[str, str]:
    label = dialogue.dialogue_label
    return label.key, label.dialogue_opponent_addr


RoleOf: TypeAlias = Callable[[Message, str], str]
PURGE_EVERY: Final = 1000
"""Dialogues that end before those are looked for that are kept no longer."""


def starter_or_responder(message: Message, self_address: str) -> str:
    """Return "starter" to the side that says the first message, "responder" to the other."""
    return "starter" if message.sender == self_address else "responder"


@dataclass(frozen=True, slots=True)
class Restored:
    """How many dialogues go on, and the records of which none could be made."""

    active: int
    quarantined: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class DialogueOptions:
    """What a caller asks of a container; times are microseconds."""

    keep_terminal_state_dialogues: bool = True
    offload: bool = True
    cached: int = 100
    saves_at_once: bool = True
    terminal_ttl: int | None = None
    terminal_kept: int | None = None
    rules: Rules = field(default_factory=Rules)
    role_from_first_message: RoleOf = starter_or_responder


class Container:
    """The dialogues of one component, in memory and on the disk."""

    def __init__(
        self, keeper: Keeper[Dialogue], self_address: str, options: DialogueOptions
    ) -> None:
        self.keeper, self.side, self.options = keeper, Side(self_address), options
        self.self_address = self_address
        self.memory = DialogueCache(options.cached if options.offload else None)
        self._ended = self._purged = 0
        self._told = ""
        self.is_set_up = self.is_torn_down = False

    def setup(self) -> Steps[Restored]:
        """Restore what goes on."""
        if self.is_set_up:
            return Restored(len(self.memory.active))
        self.memory.clear()  # of an attempt that failed
        self.keeper.forget()
        self.keeper.reported.clear()
        yield from self._restore(is_terminal=False)
        if not self.options.offload:
            yield from self._restore(is_terminal=True)
        self.is_set_up, self.is_torn_down = True, False
        yield from self._purge_some()
        return Restored(len(self.memory.active), tuple(self.keeper.reported))

    def _restore(self, *, is_terminal: bool) -> Steps[None]:
        after, more = "", True
        while more:
            found, after = yield from self.keeper.restore(after, is_terminal=is_terminal)
            for dialogue in found:
                self.memory.add(dialogue)
            more = after != ""

    def check(self) -> None:
        """Raise `StoreClosed` after the end: what is said then would be lost."""
        if self.is_torn_down:
            raise StoreClosed(
                "the dialogues were torn down, as the store's end does: setup() begins anew"
            )

    def teardown(self) -> Steps[None]:
        """Save what changed, and forget all; what cannot be saved stays in memory."""
        yield from self._save(self.memory.lent())
        yield from self.keeper.settle()
        self.memory.clear()
        self.keeper.forget()
        self.is_set_up, self.is_torn_down = False, True

    def flush(self) -> Steps[int]:
        """Save what changed, in one transaction; returns of how many dialogues."""
        return (yield from self._save(self.memory.changed()))

    def make_room(self) -> Steps[None]:
        """Let go of what has ended and is too much in memory; what may have changed of it is saved first."""
        try:
            yield from self._save(self.memory.crowd())
        except CollectionsStoreError as error:
            if str(error) != self._told:  # once, not with every verb
                LOG.exception("what has ended cannot be saved now, and stays in memory")
            self._told = str(error)
        self.memory.let_go()

    def _save(self, dialogues: list[Dialogue], *, asked: bool = False) -> Steps[int]:
        """Save dialogues; unless one is `asked` for, those that have ended may have been purged by others."""
        ended = [each for each in dialogues if each.is_terminal and not asked]
        purgeable = {each.dialogue_label.key for each in ended}
        counts = {each.dialogue_label.key: each.message_count for each in dialogues}
        there = counts.keys() - self.memory.new
        for each in dialogues:
            each.touched = False
        try:
            saved: int = yield from self.keeper.save(dialogues, there, purgeable)
        except DialoguesNotSaved as error:
            for each in dialogues:
                each.touched = each.touched or each.dialogue_label in error.errors
            self._settled(dialogues, counts, error.errors)
            raise
        except BaseException:
            for each in dialogues:
                each.touched = True
            raise
        self._settled(dialogues, counts, ())
        return saved

    def _settled(
        self, dialogues: Iterable[Dialogue], counts: dict[str, int], but: Iterable[Any]
    ) -> None:
        """Note what was saved, unless more was said meanwhile."""
        for each in dialogues:
            key = each.dialogue_label.key
            if each.dialogue_label not in but and each.message_count == counts[key]:
                self.memory.unsaved.discard(key)
            if each.dialogue_label not in but:
                self.memory.new.discard(key)

    def create(
        self, label: DialogueLabel, performative: str, body: Any
    ) -> Steps[tuple[Message, Dialogue]]:
        """Begin a dialogue with a message of this side."""
        message = self._own(
            Message(
                performative,
                body,
                dialogue_reference=label.dialogue_reference,
                sender=self.self_address,
                to=label.dialogue_opponent_addr,
            )
        )
        dialogue = yield from self._begin(label, message)
        return message, dialogue

    def update(self, message: Message) -> Steps[Dialogue]:
        """Take a message of the other side."""
        message = self._own(self.side.check_incoming(message))
        dialogue = yield from self._dialogue_of(message)
        if dialogue is not None:
            yield from self._go_on(dialogue, dialogue.read(message))
            return dialogue
        if message.message_id != 1 or message.dialogue_reference[1] != UNASSIGNED:
            raise DialogueNotFound(message, "it belongs to no dialogue that is known here")
        label = DialogueLabel(message.dialogue_reference, message.sender, message.sender)
        yield from self.keeper.settle({label.key})
        if (yield from self.keeper.is_known(label)):
            if (yield from self.keeper.get([label])) is not None:
                raise DialogueConflict(label)  # it goes on, and is not in memory
            raise InvalidDialogueMessage(
                message, "its dialogue has ended, and is not kept any more"
            )
        return (yield from self._begin(label.complete(secrets.token_hex(16)), message))

    def reply(
        self, dialogue: Dialogue, performative: str, body: Any, target: int | None
    ) -> Steps[Message]:
        """Say the next message of this side."""
        message = self._own(self._mine(dialogue).reply(performative, body, target))
        yield from self._go_on(dialogue, dialogue.read(message))
        return message

    def finish(self, dialogue: Dialogue, state: str) -> Steps[None]:
        """End a dialogue without a message."""
        if not isinstance(state, str):
            raise InvalidOption("state", f"{shortened(state)} is no text")
        if not self._mine(dialogue).is_terminal:
            yield from self._go_on(dialogue, dialogue.ended(state))

    def save(self, dialogue: Dialogue) -> Steps[None]:
        """Save what changed of a dialogue."""
        yield from self._save([self._mine(dialogue)], asked=True)

    def reload(self, label: DialogueLabel) -> Steps[Dialogue | None]:
        """Forget what is in memory of a dialogue, and hold it as it is on the disk."""
        found = yield from self.keeper.reload(label)
        self.memory.forget(label.key)
        return None if found is None else self.memory.add(found)

    def remove(self, label: DialogueLabel) -> Steps[bool]:
        """Delete a dialogue from memory and disk."""
        found = yield from self.get_dialogue_from_label(label)
        if found is None:
            return False
        how: dict[str, Any] = {"remember": by_opponent(label), "known": found.message_count}
        removed: bool = yield from self.keeper.remove(label, **how)
        is_new = label.key in self.memory.new
        self.memory.forget(label.key)
        return removed or is_new

    def get_dialogue(self, message: Message) -> Steps[Dialogue | None]:
        """Return the dialogue that a message is of."""
        given: Any = message
        if not isinstance(given, Message):
            raise InvalidOption("message", f"{shortened(given)} is no Message")
        found = yield from self._dialogue_of(message)
        return found if found is not None and found.has_reference(message) else None

    def _dialogue_of(self, message: Message) -> Steps[Dialogue | None]:
        """Return the dialogue that a message is of if its responder's reference is right."""
        labels = self.side.labels_of(message)
        for label in labels:
            if (known := self.memory.find(label.key)) is not None:
                return known
        return (yield from self._load(labels))

    def get_dialogue_from_label(self, label: DialogueLabel) -> Steps[Dialogue | None]:
        """Return the dialogue with a label, complete or not."""
        found = self.memory.find(check_label(label).key)
        if found is None:
            found = yield from self._load([label])
        return found if found is not None and label.names(found.dialogue_label) else None

    def get_dialogues_with_counterparty(self, address: str) -> Steps[list[Dialogue]]:
        """Return the dialogues with an address: those that go on, then those that have ended."""
        check_address(address)
        active = self.memory.with_counterparty(address)
        ended = yield from self.keeper.with_counterparty(address, is_terminal=True)
        return list(dict.fromkeys([*active, *filter(None, map(self._known, ended))]))

    def find(
        self, asked: Filter, is_terminal: bool | None, limit: int | None
    ) -> Steps[list[Dialogue]]:
        """Return the dialogues that match: those that go on, then those that have ended."""
        found: list[Dialogue] = []
        for ended in (False, True) if is_terminal is None else (is_terminal,):
            left = None if limit is None else limit - len(found)
            if left != 0:
                some = yield from self.keeper.find(asked, left, is_terminal=ended)
                if left is not None and not all(map(self._is_known, some)):
                    some = yield from self.keeper.find(asked, None, is_terminal=ended)
                found += list(filter(None, map(self._known, some)))[:left]
        return list(dict.fromkeys(found))  # one may have ended between the two

    def messages(self, label: DialogueLabel, after: int, limit: int) -> Steps[list[Message]]:
        """Return some messages of a dialogue past a place."""
        found = self.memory.find(check_label(label).key)
        if found is not None:
            named = label.names(found.dialogue_label)
            return found.messages_after(after)[:limit] if named else []
        json = yield from self.keeper.messages(label, after, limit)
        return list(map(Message.from_json, json))

    def restore_quarantined(self) -> Steps[list[Dialogue]]:
        """Put back what was put aside, and hold what can be made of it."""
        return (yield from self.keeper.restore_quarantined(self.memory.add))

    def purge(self, age: int | None, kept: int | None) -> Steps[int]:
        """Delete terminal dialogues that are old, or many."""
        gone = yield from self.keeper.purge(age, kept)
        self.memory.forget_all(gone)
        return sum(gone.values())

    def _begin(self, label: DialogueLabel, message: Message) -> Steps[Dialogue]:
        options = self.options
        role: Any = options.role_from_first_message(message, self.self_address)
        if not isinstance(role, str):
            raise InvalidOption("role_from_first_message", f"{shortened(role)} is no text")
        dialogue = Dialogue(label, self.self_address, role, rules=options.rules)
        yield from self._go_on(dialogue, dialogue.read(message), new=True)
        return dialogue

    def _go_on(self, dialogue: Dialogue, step: Transition, *, new: bool = False) -> Steps[None]:
        """Have a step on the disk, then in memory."""
        try:
            yield from self._write_step(dialogue, step, new=new)
            dialogue.take(step)
        except BaseException:
            self.keeper.withdraw(step.label, dialogue.message_count)
            raise
        if step.is_terminal:
            yield from self._retire(dialogue)
        elif new:
            self.memory.add(dialogue)

    def _write_step(self, dialogue: Dialogue, step: Transition, *, new: bool) -> Steps[None]:
        if step.is_terminal and not self.options.keep_terminal_state_dialogues:
            how: dict[str, Any] = {"remember": by_opponent(step.label)}
            yield from self.keeper.remove(step.label, known=dialogue.message_count, **how)
        elif self.options.saves_at_once or step.is_terminal:
            yield from self._write(dialogue, step)
        else:
            self.keeper.recorder.rules.encode(dialogue.header(step) if new else None)
            self.memory.unsaved.add(step.label.key)
            if new:
                self.memory.new.add(step.label.key)

    def _own(self, message: Message) -> Message:
        """Return a message as it comes back from the disk, which nobody else can change; raises
        `InvalidBody` now, whenever it is written.
        """
        return Message.from_json(decode(self.keeper.recorder.rules.encode(message.json)))

    def _write(self, dialogue: Dialogue, step: Transition) -> Steps[None]:
        yield from self.keeper.settle({step.label.key})
        kept = self.keeper.kept.get(step.label.key, NOTHING)
        new = [each.json for each in dialogue.messages_after(kept.messages)]
        new += [] if step.message is None else [step.message.json]
        is_same = kept.header is not None and dialogue.is_same_after(step)
        touched, dialogue.touched = dialogue.touched, False
        try:
            header, how = dialogue.header(step), {"is_terminal": step.is_terminal}
            recorder = self.keeper.recorder
            draft = (
                recorder.drawn_on(step.label, new, kept)
                if is_same
                else recorder.drawn(step.label, header, new, kept, **how)
            )
            yield from self.keeper.write([draft])
        except BaseException:
            dialogue.touched = touched
            raise

    def _retire(self, dialogue: Dialogue) -> Steps[None]:
        """Take a dialogue that has ended out of those that go on."""
        key = dialogue.dialogue_label.key
        self.memory.forget(key)
        self.keeper.kept.pop(key, None)
        if self.options.keep_terminal_state_dialogues:
            self.memory.add(dialogue)
        self._ended += 1
        ttl, kept = self.options.terminal_ttl, self.options.terminal_kept
        often = self._ended % min(PURGE_EVERY, 1 + (PURGE_EVERY if kept is None else kept)) == 0
        if often or (ttl is not None and now() - self._purged > ttl):
            yield from self._purge_some()

    def _purge_some(self) -> Steps[None]:
        """Delete what is kept no longer. It is done again later: no verb fails because of it."""
        self._purged, options = now(), self.options
        if options.terminal_ttl is None and options.terminal_kept is None:
            return
        try:
            yield from self.purge(options.terminal_ttl, options.terminal_kept)
        except CollectionsStoreError:
            LOG.exception("what has ended cannot be purged now")

    def _load(self, labels: list[DialogueLabel]) -> Steps[Dialogue | None]:
        found = yield from self.keeper.get(labels)
        return None if found is None else self._known(found)

    def _is_known(self, dialogue: Dialogue) -> bool:
        return dialogue.is_terminal or self._known(dialogue) is not None

    def _known(self, dialogue: Dialogue) -> Dialogue | None:
        """Return the dialogue that is in memory already, or put this one there. One that goes on and is
        not there is just about to begin, or to be removed: None.
        """
        if dialogue.is_terminal:
            return self.memory.add(dialogue)
        return self.memory.find(dialogue.dialogue_label.key)

    def _mine(self, dialogue: Dialogue) -> Dialogue:
        """Return a dialogue of this container; another object for the same one would lose messages."""
        given: Any = dialogue
        if not isinstance(given, Dialogue):
            raise InvalidOption("dialogue", f"{shortened(given)} is no Dialogue")
        if self.memory.find(dialogue.dialogue_label.key) is dialogue:
            return dialogue
        raise DialogueNotFound(
            dialogue.dialogue_label, "it is not, or no longer, of these dialogues"
        )
