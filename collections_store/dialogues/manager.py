"""The manager of a component's dialogues: each method of `Dialogues` as a procedure, which yields operations, for sync and
async. `DialogueManager` works with any class of dialogue, `MessageManager` with `Dialogue`.

Rules:

1. Locks: a procedure about one dialogue holds the lock of the dialogue's stripe: no other procedure writes to the dialogue.
   A search holds a search lock: a search writes to no dialogue, but adds terminal dialogues to memory.
   `setup`, `teardown`, `flush`, `evict`, `remove` and `purge` hold all locks.
2. Order: all locks are taken in the order of their list, search locks first. Who waits for a search does not hold
   up writers.
3. The database comes first: memory changes when the database has acknowledged. An error, a full disk or a
   cancellation leaves both as they were.
4. A crash leaves the acknowledged writes, and at most one unacknowledged write per dialogue. The next process restores
   both, and rejects a message as a `RepeatedMessage` when the message is delivered again.
5. A write in doubt (interrupted thread, lost connection) is undone before the next write to its dialogue
   (`DialogueRepository.settle`).
6. A dialogue has one object. A second object would lose messages.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from ..codec import decode
from ..document import now, read_ttl
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
from ..operations.operation import Steps
from ..options import check_count, check_flag, check_function
from .cache import DialogueCache
from .model import (
    UNASSIGNED,
    Dialogue,
    DialogueLabel,
    Message,
    Rules,
    Transition,
    check_instance,
    check_label,
    check_string,
)
from .records import NOTHING, DialogueCodec, FoundDialogue, Quarantined
from .repository import COUNTERPARTY, LOG, DialogueRepository

D = TypeVar("D")
Save: TypeAlias = Literal["message", "teardown"] | float | timedelta
RoleOf: TypeAlias = Callable[[Message, str], str]
PURGE_EVERY: Final = 1000
"""Dialogues that end between two purges, at most."""
_MAX_INTERVAL: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Restored:
    """The number of restored active dialogues, and the bad records."""

    active: int
    quarantined: tuple[Quarantined, ...] = ()


@dataclass(frozen=True, slots=True)
class DialogueOptions:
    """The options of `Dialogues` for ended dialogues, with the same names. Raises `InvalidOption`.

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


class DialogueManager(Generic[D]):
    """The dialogues of one component: the active and the last used terminal dialogues in memory, all stored."""

    codec: DialogueCodec[D]
    label: Callable[[D], DialogueLabel]
    repository: DialogueRepository[D]
    options: DialogueOptions
    cache: DialogueCache[D]

    def __init__(self, repository: DialogueRepository[D], options: DialogueOptions) -> None:
        self.repository, self.options = repository, options
        self.codec, self.label = repository.codec.dialogues, repository.label
        cached = options.cached if options.offload else None
        self.cache = DialogueCache(self.codec, cached, self.is_dirty)
        self._ended = self._purged = 0

    def is_dirty(self, dialogue: D) -> bool:
        """Return whether a dialogue may have changed since the last save: a host's active dialogues at any time."""
        return not self.codec.is_terminal(dialogue) and self.codec.message_count(dialogue) > 0

    def restore(self) -> Steps[None]:
        """Add the active dialogues to memory; without `offload` all dialogues."""
        self.repository.reported.clear()
        for is_terminal in (False,) if self.options.offload else (False, True):
            after: str | None = ""
            while after is not None:
                found, after = yield from self.repository.restore(after, is_terminal=is_terminal)
                for dialogue in found:
                    self.cache.add(dialogue)

    def accepted(self, dialogue: D, count: int) -> Steps[None]:
        """Persist a dialogue to which the host has added a message after the first `count`. After an error the host
        must remove the message; the next write undoes a stored message.
        """
        is_terminal = self.codec.is_terminal(dialogue)
        try:
            if is_terminal and not self.options.keep_terminal_state_dialogues:
                label = check_label(self.label(dialogue))
                yield from self.repository.remove(label, remember=label.is_by_counterparty)
            else:
                yield from self.repository.settle()
                yield from self.repository.save([dialogue])
        except BaseException:
            with suppress(InvalidOption):  # without a valid label nothing was stored
                self.repository.withdraw(self.label(dialogue), count)
            raise
        if is_terminal:
            yield from self.retire(dialogue)

    # -- lookups ----------------------------------------------------------------------------------

    def in_memory(self, label: DialogueLabel) -> D | None:
        """Return the dialogue with a label, complete or not, from memory."""
        return self._named(label, self.cache.find(check_label(label).key))

    def get(self, label: DialogueLabel) -> Steps[D | None]:
        found = self.cache.find(check_label(label).key)
        if found is None:
            found = yield from self.load([label])
        return self._named(label, found)

    def _named(self, label: DialogueLabel, found: D | None) -> D | None:
        """Return a dialogue with the label's key if the dialogue has the label; a complete label may differ."""
        return found if found is not None and label.names(self.label(found)) else None

    def load(self, labels: list[DialogueLabel]) -> Steps[D | None]:
        """Return the stored dialogue with any of the labels."""
        found = yield from self.repository.get(*labels, note=False)
        return None if found is None else self._known(found)

    def _known(self, dialogue: D) -> D | None:
        """Return the object in memory for a dialogue from the database, or add the dialogue. None for an active dialogue
        that is not in memory: another thread is beginning or removing the dialogue.
        """
        if self.codec.is_terminal(dialogue):
            return self.cache.add(dialogue)
        return self.cache.find(self.label(dialogue).key)

    def with_counterparty(self, address: str) -> Steps[list[D]]:
        check_string("counterparty", address)
        active = self.cache.with_counterparty(address)
        terminal = yield from self.find(COUNTERPARTY, address, None, True)
        return list({id(each): each for each in (*active, *terminal)}.values())

    def find(self, filter: Any, equals: Any, limit: Any, *parts: bool) -> Steps[list[D]]:
        """Return the matching dialogues, by their objects in memory; `parts` are values of `is_terminal`."""
        return self.repository.find(filter, equals, limit, *parts, hold=self._known)

    def search(
        self, query: Any, match: Any, limit: Any, highlight: Any, *parts: bool
    ) -> Steps[list[FoundDialogue[D]]]:
        """Return the dialogues with the words of a query, by their objects in memory."""
        return self.repository.search(query, match, limit, highlight, *parts, hold=self._known)

    # -- the end of dialogues ---------------------------------------------------------------------

    def retire(self, dialogue: D) -> Steps[None]:
        """Move an ended dialogue to the terminal dialogues in memory."""
        key = self.label(dialogue).key
        self.cache.forget(key)
        self.repository.persisted.forget(key)
        if self.options.keep_terminal_state_dialogues:
            self.cache.add(dialogue)
        self._ended += 1
        yield from self.purge_now_and_then()

    def purge_now_and_then(self, *, force: bool = False) -> Steps[None]:
        """Purge according to the options, from time to time. A failure is logged, and the next purge tries again."""
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
        """Delete terminal dialogues older than `ttl`, or more than `kept`, from memory too."""
        return self.repository.purge(ttl, kept, self.cache.forget)


class MessageManager(DialogueManager[Dialogue]):
    """The manager of `Dialogue`s. `create` is the procedure of `Dialogues.create`, and so on."""

    self_address: str
    interval: float | None
    is_set_up: bool

    def __init__(
        self,
        repository: DialogueRepository[Dialogue],
        self_address: str,
        options: DialogueOptions,
        *,
        save: Save,
        rules: Any,
        role_from_first_message: Any,
    ) -> None:
        super().__init__(repository, options)
        self.self_address, self.interval = self_address, _save_interval(save)
        self._saves_at_once = save == "message"
        self._rules = check_instance("rules", rules, Rules)
        self._role_of = check_function("role_from_first_message", role_from_first_message)
        self._last_error = ""
        self.is_set_up = self._is_torn_down = False

    def is_dirty(self, dialogue: Dialogue) -> bool:
        """Return whether the metadata may have changed since they were saved."""
        return dialogue.dirty

    # -- set-up, teardown and saving --------------------------------------------------------------

    def setup(self) -> Steps[Restored]:
        if not self.is_set_up:
            self.cache.clear()  # of an attempt that failed
            self.repository.forget()
            yield from self.restore()
            self.is_set_up, self._is_torn_down = True, False
            yield from self.purge_now_and_then(force=True)
            return Restored(len(self.cache.active), tuple(self.repository.reported))
        return Restored(len(self.cache.active))

    def check_open(self, closed: str | None) -> None:
        """Raise `StoreClosed` after the teardown, and after the store was closed for a reason: a message would
        be lost.
        """
        if self._is_torn_down:
            raise StoreClosed(
                "the dialogues are torn down, because the store was closed: call setup()"
            )
        if closed is not None:  # without a teardown, where not everything could be saved
            raise StoreClosed(closed)

    def teardown(self) -> Steps[None]:
        if not self.is_set_up:
            return
        yield from self._save(self.cache.changed(lambda each: each.borrowed))
        yield from self.repository.settle()
        self.cache.clear()
        self.repository.forget()
        self.is_set_up, self._is_torn_down = False, True

    def is_flushed(self) -> bool:
        return not self.is_set_up or not self.cache.changed(self.is_dirty)

    def flush(self) -> Steps[None]:
        """Save all changes in one transaction. Other dialogues stay in memory, and are logged."""
        try:
            yield from self._save(self.cache.changed(self.is_dirty) if self.is_set_up else [])
        except DialoguesNotSaved:
            LOG.exception(
                "%s: not all dialogues could be saved; they stay in memory", self.repository.names
            )

    def evict(self) -> Steps[None]:
        """Evict excess terminal dialogues from memory; dirty dialogues are saved first."""
        try:
            yield from self._save(self.cache.excess())
        except CollectionsStoreError as error:
            if str(error) != self._last_error:  # once, not with every method
                LOG.exception("terminal dialogues could not be saved; each stays in memory")
            self._last_error = str(error)
        self.cache.evict()

    def save(self, dialogue: Dialogue) -> Steps[None]:
        yield from self._save([self._check_known(dialogue)], strict=True)

    def _save(self, dialogues: list[Dialogue], *, strict: bool = False) -> Steps[None]:
        """Save dialogues. Unless `strict`, other processes may have purged the terminal dialogues."""
        counts = {each.dialogue_label.key: each.message_count for each in dialogues}
        ended = [] if strict else [each for each in dialogues if each.is_terminal]
        purgeable, failed = {each.dialogue_label.key for each in ended}, {}
        for each in dialogues:
            each.dirty = False
        try:
            yield from self.repository.save(dialogues, counts.keys() - self.cache.new, purgeable)
        except DialoguesNotSaved as error:
            failed = error.errors
            raise
        except BaseException:
            failed = {each.dialogue_label: None for each in dialogues}
            raise
        finally:
            self._saved(dialogues, counts, failed)

    def _saved(self, dialogues: list[Dialogue], counts: dict[str, int], failed: Any) -> None:
        """Note the save of dialogues, except the `failed` dialogues, and messages added since."""
        for each in dialogues:
            key = each.dialogue_label.key
            if each.dialogue_label in failed:
                each.dirty = True
                continue
            self.cache.new.discard(key)
            if each.message_count == counts[key]:
                self.cache.unsaved.discard(key)

    # -- messages ---------------------------------------------------------------------------------

    def new_label(self, counterparty: str) -> DialogueLabel:
        address: Any = counterparty
        if not isinstance(address, str) or address in {"", self.self_address} or "\0" in address:
            raise InvalidOption(
                "counterparty", f"must be another agent's address, got {shortened(address)}"
            )
        return DialogueLabel((secrets.token_hex(16), UNASSIGNED), counterparty, self.self_address)

    def group_of(self, subject: Any) -> tuple[str, ...]:
        """Return the common key of the messages and labels of a dialogue; `subject` may be anything."""
        label = subject.dialogue_label if isinstance(subject, Dialogue) else subject
        if isinstance(label, DialogueLabel):
            return label.dialogue_starter_reference, label.dialogue_opponent_addr
        if isinstance(subject, Message):
            return subject.dialogue_reference[0], self._counterparty(subject)
        return ()

    def create(
        self, label: DialogueLabel, performative: str, body: Any
    ) -> Steps[tuple[Message, Dialogue]]:
        reference, address = label.dialogue_reference, label.dialogue_opponent_addr
        message = self._copy(
            Message(performative, body, 1, 0, reference, self.self_address, address)
        )
        return message, (yield from self._begin(label, message))

    def update(self, message: Message) -> Steps[Dialogue]:
        message = self._copy(self._check_incoming(message))
        dialogue = yield from self._dialogue_of(message)
        if dialogue is not None:
            yield from self._continue(dialogue, dialogue.read(message))
            return dialogue
        if message.message_id != 1 or message.dialogue_reference[1] != UNASSIGNED:
            raise DialogueNotFound(message, "it belongs to no known dialogue")
        label = DialogueLabel(message.dialogue_reference, message.sender, message.sender)
        yield from self.repository.settle({label.key})
        if (yield from self.repository.is_known(label)):
            if (yield from self.repository.get(label, note=False)) is not None:
                raise DialogueConflict(label)  # active, and not in memory
            raise InvalidDialogueMessage(message, "its dialogue has ended, and is deleted")
        return (yield from self._begin(label.complete(secrets.token_hex(16)), message))

    def reply(
        self, dialogue: Dialogue, performative: str, body: Any, target: int | None
    ) -> Steps[Message]:
        message = self._copy(self._check_known(dialogue).reply(performative, body, target))
        yield from self._continue(dialogue, dialogue.read(message))
        return message

    def finish(self, dialogue: Dialogue, state: str) -> Steps[None]:
        check_string("state", state)
        if not self._check_known(dialogue).is_terminal:
            end = Transition(dialogue.dialogue_label, state, is_terminal=True)
            yield from self._continue(dialogue, end)

    def _begin(self, label: DialogueLabel, message: Message) -> Steps[Dialogue]:
        role = check_string("role_from_first_message", self._role_of(message, self.self_address))
        dialogue = Dialogue(label, self.self_address, role, rules=self._rules)
        yield from self._continue(dialogue, dialogue.read(message), is_new=True)
        return dialogue

    def _continue(
        self, dialogue: Dialogue, step: Transition, *, is_new: bool = False
    ) -> Steps[None]:
        """Persist a step, and then apply the step."""
        label = step.label
        try:
            if step.is_terminal and not self.options.keep_terminal_state_dialogues:
                remember, count = label.is_by_counterparty, dialogue.message_count
                yield from self.repository.remove(label, remember=remember, expected=count)
            elif self._saves_at_once or step.is_terminal:
                yield from self._write(dialogue, step)
            else:
                self.cache.unsaved.add(label.key)
                if is_new:
                    self.repository.codec.json.encode(dialogue.header(step))  # `InvalidBody` now
                    self.cache.new.add(label.key)
            dialogue.apply(step)
        except BaseException:
            self.repository.withdraw(label, dialogue.message_count)
            raise
        if step.is_terminal:
            yield from self.retire(dialogue)
        elif is_new:
            self.cache.add(dialogue)

    def _write(self, dialogue: Dialogue, step: Transition) -> Steps[None]:
        yield from self.repository.settle({step.label.key})
        before = self.repository.persisted.get(step.label.key) or NOTHING
        new = [each.json for each in dialogue.messages_after(before.messages)]
        new += [] if step.message is None else [step.message.json]
        header = None if before.header and dialogue.keeps_header(step) else dialogue.header(step)
        dirty, dialogue.dirty = dialogue.dirty, False
        try:
            draft = self.repository.codec.compose(
                step.label, header, new, before, is_terminal=step.is_terminal
            )
            yield from self.repository.write([draft])
        except BaseException:
            dialogue.dirty = dirty
            raise

    # -- other methods of `Dialogues` -------------------------------------------------------------

    def get_dialogue(self, message: Message) -> Steps[Dialogue | None]:
        found = yield from self._dialogue_of(check_instance("message", message, Message))
        return found if found is not None and found.has_reference(message) else None

    def messages(self, label: DialogueLabel, after: int, limit: int) -> Steps[list[Message]]:
        window = check_count("after", after), check_count("limit", limit)
        found = self.cache.find(check_label(label).key)
        if found is None:
            json = yield from self.repository.messages(label, *window)
            return list(map(Message.from_json, json))
        return found.messages_after(after)[:limit] if self._named(label, found) else []

    def search(
        self, query: Any, match: Any, limit: Any, highlight: Any, *parts: bool
    ) -> Steps[list[FoundDialogue[Dialogue]]]:
        found = yield from super().search(query, match, limit, highlight, *parts)
        return [replace(each, message=Message.from_json(each.message)) for each in found]

    def remove(self, label: DialogueLabel) -> Steps[bool]:
        found = yield from self.get(label)
        if found is None:
            return False
        remember, count = label.is_by_counterparty, found.message_count
        removed = yield from self.repository.remove(label, remember=remember, expected=count)
        is_new = label.key in self.cache.new
        self.cache.forget(label.key)
        return removed or is_new

    def reload(self, label: DialogueLabel) -> Steps[Dialogue | None]:
        found = yield from self.repository.reload(label)
        self.cache.forget(label.key)
        return None if found is None else self.cache.add(found)

    def restore_quarantined(self) -> Steps[list[Dialogue]]:
        return self.repository.restore_quarantined(self.cache.add)

    def _counterparty(self, message: Message) -> str:
        return message.to if message.sender == self.self_address else message.sender

    def _check_incoming(self, message: Message) -> Message:
        given: Any = message
        if not isinstance(given, Message):
            raise InvalidDialogueMessage(given, "it must be a Message")
        if message.to != self.self_address or message.sender in {"", self.self_address}:
            problem = f"it must be from another agent to {self.self_address!r}"
            raise InvalidDialogueMessage(message, problem)
        if not message.dialogue_reference[0]:
            raise InvalidDialogueMessage(message, "it must have the starter's dialogue_reference")
        if "\0" in "".join((message.sender, *message.dialogue_reference)):
            raise InvalidDialogueMessage(message, "its sender or dialogue_reference holds NUL")
        return message

    def _check_known(self, dialogue: Dialogue) -> Dialogue:
        """Return a dialogue of this manager; a second object of the dialogue would lose messages."""
        check_instance("dialogue", dialogue, Dialogue)
        if self.cache.find(dialogue.dialogue_label.key) is dialogue:
            return dialogue
        raise DialogueNotFound(
            dialogue.dialogue_label, "it is not, or no longer, of these dialogues"
        )

    def _copy(self, message: Message) -> Message:
        """Return a message with the body that the database will return, which no caller can change; raises `InvalidBody`
        now, whenever the message is written.
        """
        return Message.from_json(decode(self.repository.codec.json.encode(message.json)))

    def _dialogue_of(self, message: Message) -> Steps[Dialogue | None]:
        """Return the dialogue of a message, for any reference of the responder."""
        reference = (message.dialogue_reference[0], UNASSIGNED)
        other = self._counterparty(message)
        if not reference[0] or not other:
            return None
        labels = [DialogueLabel(reference, other, each) for each in (other, self.self_address)]
        for label in labels:
            if (known := self.cache.find(label.key)) is not None:
                return known
        return (yield from self.load(labels))


def starter_or_responder(message: Message, self_address: str) -> str:
    """Return "starter" to the sender of the first message, "responder" to the receiver."""
    return "starter" if message.sender == self_address else "responder"


def _save_interval(save: Any) -> float | None:
    """Return the seconds between two saves of the background thread; None: no thread. Raises `InvalidOption`."""
    if isinstance(save, str) and save in {"message", "teardown"}:
        return None
    seconds = save.total_seconds() if isinstance(save, timedelta) else save
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= _MAX_INTERVAL:
        raise InvalidOption(
            "save",
            f"must be 'message', 'teardown', or seconds up to a day, got {shortened(save)}",
        )
    return float(seconds)
