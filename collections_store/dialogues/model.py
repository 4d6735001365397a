"""AEA's nouns: labels, messages, rules and dialogues. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from ..errors import InvalidDialogueMessage, InvalidOption, RepeatedMessage, check_format, shortened
from ..query.values import equal

UNASSIGNED: Final = ""
"""The reference that the other side has not given yet."""
_FIELDS: Final = (
    "dialogue_starter_reference",
    "dialogue_responder_reference",
    "dialogue_opponent_addr",
    "dialogue_starter_addr",
)


@dataclass(frozen=True, slots=True)
class DialogueLabel:
    """The label of a dialogue, as AEA has it.

    `dialogue_reference` is the starter's and the responder's; that of the responder is "" until its
    first message, and the label is *incomplete* so long. The starter is this side or the opponent.

    >>> label = DialogueLabel(("7f", ""), "bob", "ada")
    >>> label.is_complete, label.complete("c4").dialogue_reference
    (False, ('7f', 'c4'))
    """

    dialogue_reference: tuple[str, str]
    dialogue_opponent_addr: str
    dialogue_starter_addr: str

    def __post_init__(self) -> None:
        reference: Any = self.dialogue_reference
        if not isinstance(reference, tuple) or len(reference) != 2:
            raise InvalidOption("dialogue_reference", f"{shortened(reference)} is no pair of texts")
        value: Any
        for name, value in self.json.items():
            if not isinstance(value, str) or not (value or name == _FIELDS[1]):
                raise InvalidOption(name, f"{shortened(value)} is no text, or an empty one")

    @property
    def dialogue_starter_reference(self) -> str:
        """The reference that the side gave which began."""
        return self.dialogue_reference[0]

    @property
    def dialogue_responder_reference(self) -> str:
        """The reference that the other side gave; "" as long as it has not."""
        return self.dialogue_reference[1]

    @property
    def is_complete(self) -> bool:
        """Have both sides given a reference?"""
        return self.dialogue_responder_reference != UNASSIGNED

    def get_incomplete_version(self) -> DialogueLabel:
        """Return the label as it was before the responder's reference was known."""
        return self.complete(UNASSIGNED)

    def complete(self, responder_reference: str) -> DialogueLabel:
        """Return the label with the responder's reference."""
        return replace(
            self, dialogue_reference=(self.dialogue_starter_reference, responder_reference)
        )

    @property
    def json(self) -> dict[str, str]:
        """The label as JSON, with AEA's keys."""
        values = (*self.dialogue_reference, self.dialogue_opponent_addr, self.dialogue_starter_addr)
        return dict(zip(_FIELDS, values, strict=True))

    @classmethod
    def from_json(cls, json: Any) -> DialogueLabel:
        """Return the label that `json` is of; raises `InvalidOption`.

        >>> DialogueLabel.from_json(DialogueLabel(("7f", ""), "bob", "ada").json).is_complete
        False
        """
        if not isinstance(json, dict) or not json.keys() >= set(_FIELDS):
            raise InvalidOption("dialogue_label", f"{shortened(json)} has not the keys of a label")
        starter, responder, opponent, first = (json[name] for name in _FIELDS)
        return cls((starter, responder), opponent, first)

    @property
    def key(self) -> str:
        """The id that the dialogue is kept under, complete or not: 32 hexadecimal digits.

        It is a digest (SHA-256) of the incomplete version: the side that began never gives a reference
        twice.
        """
        parts = self.dialogue_starter_reference, self.dialogue_opponent_addr
        return _digest(*parts, self.dialogue_starter_addr)

    def is_in(self, json: Any) -> bool:
        """Return whether `json` is that of the label, complete or not, whatever other keys it has."""
        if isinstance(json, dict):
            json = {name: json.get(name) for name in _FIELDS}
        return json in (self.json, self.get_incomplete_version().json)

    def names(self, other: DialogueLabel) -> bool:
        """Return whether this label, complete or not, is one of the dialogue with the label `other`."""
        return self in {other, other.get_incomplete_version()}


def check_label(label: Any) -> DialogueLabel:
    """Return what is a label; raises `InvalidOption`."""
    if isinstance(label, DialogueLabel):
        return label
    raise InvalidOption("dialogue_label", f"{shortened(label)} is no DialogueLabel")


def check_address(address: Any) -> str:
    """Return what is an address; raises `InvalidOption`."""
    if isinstance(address, str):
        return address
    raise InvalidOption("counterparty", f"{shortened(address)} is no text")


@lru_cache(maxsize=1024)
def _digest(*parts: str) -> str:
    """Return the digest of texts; each message asks for that of its label several times."""
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()[:32]


_KEYS: Final = frozenset(
    ("performative", "body", "message_id", "target", "dialogue_reference", "sender", "to")
)
_TEXT: Final = frozenset({str})


MOST: Final = 10**10 - 1
"""As many as there are places (see `names.message_id`)."""


FORMAT: Final = 1
"""The highest `record_format` of a stored message that this version reads; one without is of format 1."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a dialogue.

    `message_id` counts each side's messages: 1, 2, 3 … of the side that began, -1, -2, -3 … of the other. `target`
    is the id of the message that this one answers, 0 of the first. `body` is any JSON value. `unknown` are the
    keys of its JSON that this version does not know.

    >>> Message("greet", {"text": "hello"}, sender="ada", to="bob").json["message_id"]
    1
    """

    performative: str
    body: Any = None
    message_id: int = 1
    target: int = 0
    dialogue_reference: tuple[str, str] = ("", "")
    sender: str = ""
    to: str = ""
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def json(self) -> dict[str, Any]:
        """The message as JSON."""
        return {
            "performative": self.performative,
            "body": self.body,
            "message_id": self.message_id,
            "target": self.target,
            "dialogue_reference": list(self.dialogue_reference),
            "sender": self.sender,
            "to": self.to,
            **self.unknown,
        }

    @classmethod
    def from_json(cls, json: Any) -> Message:
        """Return the message that `json` is of; raises `InvalidOption`, and `SchemaTooNew` for one of a format that
        this version does not know.

        >>> Message.from_json(Message("greet", sender="ada", to="bob").json).to
        'bob'
        """
        if not isinstance(json, dict) or not json.keys() >= _KEYS:
            raise InvalidOption("message", f"{shortened(json)} has not the keys of a message")
        check_format("a message", json.get("record_format", 1), FORMAT)
        reference = json["dialogue_reference"]
        pair = tuple(reference) if isinstance(reference, list) else reference
        known = {key: json[key] for key in _KEYS}
        unknown = {} if len(json) == len(_KEYS) else {k: json[k] for k in json.keys() - _KEYS}
        return cls(**{**known, "dialogue_reference": pair}, unknown=unknown)

    def __post_init__(self) -> None:
        reference: Any = self.dialogue_reference
        if not isinstance(reference, tuple) or len(reference) != 2:
            raise InvalidOption("dialogue_reference", f"{shortened(reference)} is no pair of texts")
        texts = (self.performative, self.sender, self.to, *reference)
        if not _TEXT.issuperset(map(type, texts)):  # quick: it halves what a message costs
            self._check_texts()
        number: Any
        for name, number in (("message_id", self.message_id), ("target", self.target)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise InvalidOption(name, f"{shortened(number)} is no whole number")
            if abs(number) > MOST:
                raise InvalidOption(name, "no dialogue has so many messages")

    def _check_texts(self) -> None:
        names = ("performative", "sender", "to")
        parts = [(name, getattr(self, name)) for name in names]
        parts += [("dialogue_reference", each) for each in self.dialogue_reference]
        text: Any
        for name, text in parts:
            if not isinstance(text, str):
                raise InvalidOption(name, f"{shortened(text)} is no text")


ACTIVE: Final = "active"
"""The state of a dialogue that goes on, unless it is given another."""
ENDED: Final = "ended"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a protocol, as AEA's `Dialogue.Rules` has them; None allows every performative.

    `terminal_performatives` end a dialogue; a mapping tells in which state each of them leaves it,
    "ended" unless it does. `valid_replies` maps a performative to those that may answer it.

    >>> rules = Rules(initial_performatives={"ask"}, terminal_performatives={"answer": "successful"})
    >>> rules.state_after("answer"), rules.state_after("ask")
    ('successful', None)
    """

    initial_performatives: Collection[str] | None = None
    terminal_performatives: Collection[str] | Mapping[str, str] = field(default_factory=frozenset)
    valid_replies: Mapping[str, Collection[str]] | None = None

    def __post_init__(self) -> None:
        initial = self.initial_performatives
        _check("initial_performatives", () if initial is None else initial)
        _check("terminal_performatives", self.terminal_performatives)
        states: Any = self.terminal_performatives
        _check(
            "terminal_performatives", list(states.values()) if isinstance(states, Mapping) else ()
        )
        replies: Any = self.valid_replies
        if not isinstance(replies, Mapping | None):
            raise InvalidOption("valid_replies", f"{shortened(replies)} is no mapping")
        for performative, answers in (replies or {}).items():
            _check("valid_replies", (performative,))
            _check("valid_replies", answers)

    def begins(self, performative: str) -> bool:
        """May a dialogue begin with it?"""
        return self.initial_performatives is None or performative in self.initial_performatives

    def answers(self, performative: str, target: str) -> bool:
        """May it answer `target`?"""
        replies = self.valid_replies
        return replies is None or performative in replies.get(target, ())

    def state_after(self, performative: str) -> str | None:
        """Return the state in which it leaves a dialogue; None: it goes on."""
        terminal = self.terminal_performatives
        if performative not in terminal:
            return None
        return terminal[performative] if isinstance(terminal, Mapping) else ENDED


def _check(name: str, words: Any) -> None:
    """Raise `InvalidOption` for what is no collection of texts; a text itself is none: "a" is in "ask"."""
    if isinstance(words, str) or not isinstance(words, Collection):
        raise InvalidOption(name, f"{shortened(words)} is no collection of texts")
    for each in words:
        if not isinstance(each, str):
            raise InvalidOption(name, f"{shortened(each)} is no text")


@dataclass(frozen=True, slots=True)
class Transition:
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
        rules: Rules = Rules(),
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

    def header(self, step: Transition | None = None) -> dict[str, Any]:
        """Return what is kept beside the messages, as it is or as `step` will have it."""
        return {
            "self_address": self._self_address,
            "role": self.role,
            "state": self.state if step is None else step.state,
            "metadata": self._metadata,
        }

    def is_same_after(self, step: Transition) -> bool:
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

    def read(self, message: Message) -> Transition:
        """Return what becomes of the dialogue by its next message; raises `InvalidDialogueMessage`."""
        problem = self._problem(message)
        if problem is not None:
            raise InvalidDialogueMessage(message, problem)
        state = self.rules.state_after(message.performative)
        label = self._label
        if self.is_self_initiated and message.sender != self._self_address:
            label = label.complete(message.dialogue_reference[1])
        return Transition(label, state or self.state, state is not None, message)

    def ended(self, state: str) -> Transition:
        """Return what becomes of the dialogue if it ends without a message."""
        return Transition(self._label, state, is_terminal=True)

    def take(self, step: Transition) -> None:
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
