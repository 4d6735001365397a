"""A dialogue as one side has it, and what may come next in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidDialogueMessage, RepeatedMessage
from ..values import equal
from .label import UNASSIGNED, DialogueLabel
from .message import Message
from .rules import ACTIVE, Rules


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of a dialogue by a message, or by its end: all of it that changes."""

    label: DialogueLabel
    state: str
    is_terminal: bool
    message: Message | None = None


class Dialogue:
    """A dialogue: its label, the role of this side, its messages in order, its state.

    `metadata` is a JSON object for whatever belongs to it: it is kept with the next message, by
    `Dialogues.save` or when the store is closed. Everything else changes by `Dialogues` only.
    """

    __slots__ = (
        "__weakref__",
        "_by_id",
        "_by_responder",
        "_label",
        "_messages",
        "_metadata",
        "_self_address",
        "is_terminal",
        "lent",
        "role",
        "rules",
        "state",
        "touched",
    )

    def __init__(
        self,
        dialogue_label: DialogueLabel,
        self_address: str,
        role: str,
        *,
        rules: Rules = Rules(),  # noqa: B008 - it is frozen
        messages: Iterable[Message] = (),
        metadata: dict[str, Any] | None = None,
        state: str = ACTIVE,
        is_terminal: bool = False,
    ) -> None:
        self._label, self._self_address, self.role = dialogue_label, self_address, role
        self.rules, self.state, self.is_terminal = rules, state, is_terminal
        self._metadata = {} if metadata is None else metadata
        self.touched = False
        """May `metadata` have been changed since it was last kept?"""
        self.lent = False
        """Has anybody a reference to `metadata`?"""
        self._messages: list[Message] = []
        self._by_id: dict[int, Message] = {}
        self._by_responder = 0
        for each in messages:
            self._add(each)

    def __repr__(self) -> str:
        ended = ", terminal" if self.is_terminal else ""
        return f"Dialogue({self._label}, {len(self._messages)} messages, {self.state!r}{ended})"

    @property
    def dialogue_label(self) -> DialogueLabel:
        """The label: incomplete until the other side has answered."""
        return self._label

    @property
    def self_address(self) -> str:
        """The address of this side."""
        return self._self_address

    @property
    def is_self_initiated(self) -> bool:
        """Did this side begin?"""
        return self._label.dialogue_opponent_addr != self._label.dialogue_starter_addr

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of both sides in the order in which they were accepted."""
        return tuple(self._messages)

    def messages_after(self, count: int) -> list[Message]:
        """Return all but the first `count` messages."""
        return self._messages[count:]

    @property
    def message_count(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    @property
    def last_message(self) -> Message | None:
        """The last message of either side."""
        return self._messages[-1] if self._messages else None

    @property
    def metadata(self) -> dict[str, Any]:
        """A JSON object for whatever belongs to the dialogue."""
        self.touched = self.lent = True
        return self._metadata

    def header(self, step: Step | None = None) -> dict[str, Any]:
        """Return what is kept beside the messages, as it is or as `step` will have it."""
        return {
            "self_address": self._self_address,
            "role": self.role,
            "state": self.state if step is None else step.state,
            "metadata": self._metadata,
        }

    def is_same_after(self, step: Step) -> bool:
        """Is the header the same after a step, as far as nobody can have changed the metadata?"""
        if self.touched or self.lent or step.is_terminal != self.is_terminal:
            return False
        return step.state == self.state and step.label == self._label

    def get_message_by_id(self, message_id: int) -> Message | None:
        """Return the message with an id, if there is one."""
        return self._by_id.get(message_id)

    def next_message_id(self, *, outgoing: bool) -> int:
        """Return the id of the next message of this side, or of the other."""
        if outgoing == self.is_self_initiated:
            return len(self._messages) - self._by_responder + 1
        return -self._by_responder - 1

    def reply(self, performative: str, body: Any, target: int | None) -> Message:
        """Return the message that this side may say next; `target` None: it answers the last one."""
        last = self.last_message
        if target is None:
            target = 0 if last is None else last.message_id
        return Message(
            performative,
            body,
            self.next_message_id(outgoing=True),
            target,
            self._label.dialogue_reference,
            self._self_address,
            self._label.dialogue_opponent_addr,
        )

    def read(self, message: Message) -> Step:
        """Return what becomes of the dialogue by its next message; raises `InvalidDialogueMessage`."""
        problem = self._problem(message)
        if problem is not None:
            raise InvalidDialogueMessage(message, problem)
        state = self.rules.state_after(message.performative)
        label = self._label
        if self.is_self_initiated and message.sender != self._self_address:
            label = label.complete(message.dialogue_reference[1])
        return Step(label, state or self.state, state is not None, message)

    def ended(self, state: str) -> Step:
        """Return what becomes of the dialogue if it ends without a message."""
        return Step(self._label, state, is_terminal=True)

    def take(self, step: Step) -> None:
        """Go on as `read` foresaw."""
        self._label, self.state, self.is_terminal = step.label, step.state, step.is_terminal
        if step.message is not None:
            self._add(step.message)

    def take_back(self, message: Message) -> None:
        """Take a message that was accepted before, by whatever rules; raises `ValueError`."""
        problem = self._misplaced(message)
        if problem is not None:
            raise ValueError(f"message {len(self._messages) + 1}: {problem}")
        self._add(message)

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._by_id[message.message_id] = message
        self._by_responder += message.message_id < 0

    def _problem(self, message: Message) -> str | None:
        """Tell why a message is not the next one; raises `RepeatedMessage`."""
        if self._is_there(message):
            raise RepeatedMessage(message, self)
        if self.is_terminal:
            return self._of_others(message) or f"the dialogue has ended: it is {self.state!r}"
        return self._misplaced(message) or self._wrong_words(message)

    def _is_there(self, message: Message) -> bool:
        """Is it there already? To JSON, True is not 1."""
        known = self._by_id.get(message.message_id)
        return known == message and equal(known.json, message.json, ordered=False)

    def _of_others(self, message: Message) -> str | None:
        """Tell whose the message is if it is not of the two sides."""
        outgoing = message.sender == self._self_address
        sides = [self._self_address, self._label.dialogue_opponent_addr]
        if [message.sender, message.to] == (sides if outgoing else sides[::-1]):
            return None
        return f"it is from {message.sender!r} to {message.to!r}, the dialogue between {sides}"

    def _misplaced(self, message: Message) -> str | None:
        """Tell why a message cannot be the next one, whatever it says."""
        outgoing = message.sender == self._self_address
        label, expected = self._label, self.next_message_id(outgoing=outgoing)
        if (problem := self._of_others(message)) is not None:
            return problem
        if not self._has_reference(message.dialogue_reference, outgoing=outgoing):
            return f"its reference is not that of the dialogue, {label.dialogue_reference}"
        if message.message_id != expected:
            return f"its message_id is {message.message_id}, and {expected} comes next"
        if not self._messages and message.target != 0:
            return f"it is the first message, and answers {message.target}"
        if self._messages and message.target not in self._by_id:
            return f"it answers message {message.target}, which there is not"
        return None

    def _wrong_words(self, message: Message) -> str | None:
        if not self._messages:
            allowed = self.rules.begins(message.performative)
            return None if allowed else f"no dialogue begins with {message.performative!r}"
        target = self._by_id[message.target]
        if not self.rules.answers(message.performative, target.performative):
            return f"{message.performative!r} does not answer {target.performative!r}"
        return None

    def has_reference(self, message: Message) -> bool:
        """Is the message's reference the dialogue's?"""
        outgoing = message.sender == self._self_address
        return self._has_reference(message.dialogue_reference, outgoing=outgoing)

    def _has_reference(self, reference: tuple[str, str], *, outgoing: bool) -> bool:
        """Is it the dialogue's reference? The starter may not know the other half yet, and gets to know
        it by the responder's first message.
        """
        label = self._label
        if reference[0] != label.dialogue_starter_reference:
            return False
        if outgoing == self.is_self_initiated:  # from the starter
            return reference[1] in {UNASSIGNED, label.dialogue_responder_reference}
        if label.is_complete:
            return reference[1] == label.dialogue_responder_reference
        return reference[1] != UNASSIGNED
