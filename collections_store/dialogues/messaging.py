"""Messages of `Dialogue`: procedures of the manager that begin, continue and end dialogues."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from ..codec import decode
from ..errors import (
    DialogueConflict,
    DialogueNotFound,
    InvalidDialogueMessage,
    InvalidOption,
    shortened,
)
from ..operations.operation import Steps
from ..options import check_count
from .manager import DialogueManager, DialogueOptions
from .model import (
    UNASSIGNED,
    Dialogue,
    DialogueLabel,
    Message,
    Rules,
    Transition,
    check_label,
    check_string,
)
from .records import NOTHING
from .repository import DialogueRepository

Save: TypeAlias = Literal["message", "teardown"] | float | timedelta
RoleOf: TypeAlias = Callable[[Message, str], str]
_MAX_INTERVAL: Final = 86_400.0


def starter_or_responder(message: Message, self_address: str) -> str:
    """Return "starter" to the sender of the first message, "responder" to the receiver."""
    return "starter" if message.sender == self_address else "responder"


def save_interval(save: Any) -> float | None:
    """Return the seconds between two saves of the background thread; None: there is none. Raises `InvalidOption`."""
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


class MessageManager(DialogueManager[Dialogue]):
    """The manager of `Dialogue`s: it decides what a message changes, and persists that before it changes memory."""

    self_address: str
    interval: float | None

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
        if not isinstance(rules, Rules):
            raise InvalidOption("rules", f"must be Rules, got {shortened(rules)}")
        if not callable(role_from_first_message):
            raise InvalidOption("role_from_first_message", "must be callable")
        self.self_address, self.interval = self_address, save_interval(save)
        self._saves_at_once = save == "message"
        self._rules, self._role_of = rules, role_from_first_message

    def is_dirty(self, dialogue: Dialogue) -> bool:
        """Return whether the metadata may have changed since it was saved."""
        return dialogue.dirty

    def is_borrowed(self, dialogue: Dialogue) -> bool:
        """Return whether a caller may have a reference to the metadata."""
        return dialogue.borrowed

    def mark(self, dialogue: Dialogue, *, dirty: bool) -> None:
        """Record whether the metadata may have changed."""
        dialogue.dirty = dirty

    def new_label(self, counterparty: str) -> DialogueLabel:
        """Return the label of a new dialogue."""
        address: Any = counterparty
        if not isinstance(address, str) or address in {"", self.self_address} or "\0" in address:
            raise InvalidOption(
                "counterparty", f"must be another agent's address, got {shortened(address)}"
            )
        return DialogueLabel((secrets.token_hex(16), UNASSIGNED), counterparty, self.self_address)

    def group_of(self, subject: Any) -> tuple[str, ...]:
        """Return what all messages and labels of a dialogue have in common; `subject` may be anything."""
        label = subject.dialogue_label if isinstance(subject, Dialogue) else subject
        if isinstance(label, DialogueLabel):
            return label.dialogue_starter_reference, label.dialogue_opponent_addr
        if isinstance(subject, Message):
            return subject.dialogue_reference[0], self._counterparty(subject)
        return ()

    def create(
        self, label: DialogueLabel, performative: str, body: Any
    ) -> Steps[tuple[Message, Dialogue]]:
        """Begin a dialogue by a message of this agent."""
        reference, address = label.dialogue_reference, label.dialogue_opponent_addr
        message = self._copy(
            Message(performative, body, 1, 0, reference, self.self_address, address)
        )
        dialogue = yield from self._begin(label, message)
        return message, dialogue

    def update(self, message: Message) -> Steps[Dialogue]:
        """Accept a message of the counterparty."""
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
            if (yield from self.repository.get([label])) is not None:
                raise DialogueConflict(label)  # active, and not in memory
            raise InvalidDialogueMessage(message, "its dialogue has ended, and is deleted")
        return (yield from self._begin(label.complete(secrets.token_hex(16)), message))

    def reply(
        self, dialogue: Dialogue, performative: str, body: Any, target: int | None
    ) -> Steps[Message]:
        """Add the next message of this agent."""
        message = self._copy(self._check_known(dialogue).reply(performative, body, target))
        yield from self._continue(dialogue, dialogue.read(message))
        return message

    def finish(self, dialogue: Dialogue, state: str) -> Steps[None]:
        """End a dialogue without a message."""
        check_string("state", state)
        if not self._check_known(dialogue).is_terminal:
            end = Transition(dialogue.dialogue_label, state, is_terminal=True)
            yield from self._continue(dialogue, end)

    def save(self, dialogue: Dialogue) -> Steps[None]:
        """Save what changed of a dialogue."""
        yield from self._save([self._check_known(dialogue)], strict=True)

    def get_dialogue(self, message: Message) -> Steps[Dialogue | None]:
        """Return the dialogue of a message."""
        given: Any = message
        if not isinstance(given, Message):
            raise InvalidOption("message", f"must be a Message, got {shortened(given)}")
        found = yield from self._dialogue_of(message)
        return found if found is not None and found.has_reference(message) else None

    def messages(self, label: DialogueLabel, after: int, limit: int) -> Steps[list[Message]]:
        """Return some messages of a dialogue past a number."""
        window = check_count("after", after), check_count("limit", limit)
        found = self.cache.find(check_label(label).key)
        if found is not None:
            is_named = label.names(found.dialogue_label)
            return found.messages_after(after)[:limit] if is_named else []
        json = yield from self.repository.messages(label, *window)
        return list(map(Message.from_json, json))

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
        """Return a dialogue of this manager; another object for it would lose messages."""
        given: Any = dialogue
        if not isinstance(given, Dialogue):
            raise InvalidOption("dialogue", f"must be a Dialogue, got {shortened(given)}")
        if self.cache.find(dialogue.dialogue_label.key) is dialogue:
            return dialogue
        raise DialogueNotFound(
            dialogue.dialogue_label, "it is not, or no longer, of these dialogues"
        )

    def _copy(self, message: Message) -> Message:
        """Return a message as it is read from the database, so that no caller can change it later; raises `InvalidBody`
        now, whenever it is written.
        """
        return Message.from_json(decode(self.repository.codec.json.encode(message.json)))

    def _dialogue_of(self, message: Message) -> Steps[Dialogue | None]:
        """Return the dialogue of a message, whatever the responder's reference is."""
        reference = (message.dialogue_reference[0], UNASSIGNED)
        other = self._counterparty(message)
        if not reference[0] or not other:
            return None
        labels = [DialogueLabel(reference, other, each) for each in (other, self.self_address)]
        for label in labels:
            if (known := self.cache.find(label.key)) is not None:
                return known
        return (yield from self.load(labels))

    def _begin(self, label: DialogueLabel, message: Message) -> Steps[Dialogue]:
        role = check_string("role_from_first_message", self._role_of(message, self.self_address))
        dialogue = Dialogue(label, self.self_address, role, rules=self._rules)
        yield from self._continue(dialogue, dialogue.read(message), is_new=True)
        return dialogue

    def _continue(
        self, dialogue: Dialogue, step: Transition, *, is_new: bool = False
    ) -> Steps[None]:
        """Persist a step, and then apply it."""
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
        before = self.repository.persisted.get(step.label.key, NOTHING)
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
