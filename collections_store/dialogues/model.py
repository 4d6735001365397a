"""AEA's terms: labels, messages, rules and dialogues. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from ..errors import InvalidDialogueMessage, InvalidOption, RepeatedMessage, check_format, shortened
from ..expressions.values import equal

T = TypeVar("T")
UNASSIGNED: Final = ""
"""The responder's reference in an incomplete label."""
_LABEL_KEYS: Final = (
    "dialogue_starter_reference",
    "dialogue_responder_reference",
    "dialogue_opponent_addr",
    "dialogue_starter_addr",
)


def check_instance(option: str, value: Any, kind: type[T]) -> T:
    """Return `value` if it is of a class; raises `InvalidOption`."""
    if isinstance(value, kind):
        return value
    raise InvalidOption(option, f"must be {kind.__name__}, got {shortened(value)}")


def check_string(option: str, value: Any) -> str:
    """Return `value` if it is a string; raises `InvalidOption`."""
    if isinstance(value, str):
        return value
    raise InvalidOption(option, f"must be a string, got {shortened(value)}")


def _check_reference(value: Any) -> None:
    if not isinstance(value, tuple) or len(value) != 2:
        raise InvalidOption("dialogue_reference", f"must be a pair, got {shortened(value)}")


@dataclass(frozen=True, slots=True)
class DialogueLabel:
    """AEA's label of a dialogue.

    `dialogue_reference` is the pair of the starter's and the responder's reference. The label is
    *incomplete*, with "" for the responder, until the responder has sent the first message. The starter is this
    agent or the opponent.

    >>> label = DialogueLabel(("7f", ""), "bob", "ada")
    >>> label.is_complete, label.complete("c4").dialogue_reference
    (False, ('7f', 'c4'))
    """

    dialogue_reference: tuple[str, str]
    dialogue_opponent_addr: str
    dialogue_starter_addr: str

    def __post_init__(self) -> None:
        _check_reference(self.dialogue_reference)
        for name, value in self.json.items():
            if not check_string(name, value) and name != "dialogue_responder_reference":
                raise InvalidOption(name, "must not be empty")

    @property
    def dialogue_starter_reference(self) -> str:
        """The starter's reference."""
        return self.dialogue_reference[0]

    @property
    def dialogue_responder_reference(self) -> str:
        """The responder's reference; "" in an incomplete label."""
        return self.dialogue_reference[1]

    @property
    def is_complete(self) -> bool:
        """Whether both references are known."""
        return self.dialogue_responder_reference != UNASSIGNED

    def get_incomplete_version(self) -> DialogueLabel:
        """Return the label without the responder's reference."""
        return self.complete(UNASSIGNED)

    def complete(self, responder_reference: str) -> DialogueLabel:
        """Return the label with the responder's reference."""
        return replace(self, dialogue_reference=(self.dialogue_reference[0], responder_reference))

    @property
    def json(self) -> dict[str, str]:
        """The label as JSON, with AEA's keys."""
        values = (*self.dialogue_reference, self.dialogue_opponent_addr, self.dialogue_starter_addr)
        return dict(zip(_LABEL_KEYS, values, strict=True))

    @classmethod
    def from_json(cls, json: Any) -> DialogueLabel:
        """Return the label of its JSON; raises `InvalidOption`.

        >>> DialogueLabel.from_json(DialogueLabel(("7f", ""), "bob", "ada").json).is_complete
        False
        """
        if not isinstance(json, dict) or not json.keys() >= set(_LABEL_KEYS):
            raise InvalidOption("dialogue_label", f"{shortened(json)} lacks keys of a label")
        starter, responder, opponent, first = (json[name] for name in _LABEL_KEYS)
        return cls((starter, responder), opponent, first)

    @property
    def key(self) -> str:
        """The id of the dialogue's records, complete or not: 32 hexadecimal digits.

        The key is a digest (SHA-256) of the incomplete label: a starter never uses a reference twice.
        """
        reference, _ = self.dialogue_reference
        return _digest(reference, self.dialogue_opponent_addr, self.dialogue_starter_addr)

    @property
    def is_by_counterparty(self) -> bool:
        """Whether the counterparty began the dialogue, so that its first message may be delivered again."""
        return self.dialogue_opponent_addr == self.dialogue_starter_addr

    def is_in(self, json: Any) -> bool:
        """Return whether `json` is the JSON of the label, complete or not; unknown keys are ignored."""
        if isinstance(json, dict):
            json = {name: json.get(name) for name in _LABEL_KEYS}
        return json in (self.json, self.get_incomplete_version().json)

    def names(self, other: DialogueLabel) -> bool:
        """Return whether this label, complete or not, is of the dialogue with the label `other`."""
        return self in {other, other.get_incomplete_version()}


def check_label(label: Any) -> DialogueLabel:
    """Return `label` if it is a `DialogueLabel`; raises `InvalidOption`."""
    return check_instance("dialogue_label", label, DialogueLabel)


@lru_cache(maxsize=1024)  # each message needs the key of its label several times
def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()[:32]


_MESSAGE_KEYS: Final = frozenset(
    ("performative", "body", "message_id", "target", "dialogue_reference", "sender", "to")
)
_STRING: Final = frozenset({str})
MAX_MESSAGE_ID: Final = 10**10 - 1
"""The largest number in the id of a stored message (see `records.message_id`)."""
FORMAT: Final = 1
"""The highest `record_format` of a stored message that this version reads; the default is 1."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a dialogue.

    `message_id` counts the starter's messages as 1, 2, 3 … and the responder's as -1, -2, -3 …. `target`
    is the id of the answered message; 0 in the first message. `body` is any JSON value. `unknown` holds the
    keys of a newer version.

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
        """Return the message of its JSON; raises `InvalidOption`, and `SchemaTooNew` for a newer format.

        >>> Message.from_json(Message("greet", sender="ada", to="bob").json).to
        'bob'
        """
        if not isinstance(json, dict) or not json.keys() >= _MESSAGE_KEYS:
            raise InvalidOption("message", f"{shortened(json)} lacks keys of a message")
        check_format("a message", json.get("record_format", 1), FORMAT)
        known = {key: json[key] for key in _MESSAGE_KEYS}
        if isinstance(known["dialogue_reference"], list):
            known["dialogue_reference"] = tuple(known["dialogue_reference"])
        return cls(**known, unknown={key: json[key] for key in json.keys() - _MESSAGE_KEYS})

    def __post_init__(self) -> None:
        _check_reference(self.dialogue_reference)
        strings = (self.performative, self.sender, self.to, *self.dialogue_reference)
        if not _STRING.issuperset(map(type, strings)):  # one test of all halves a message's cost
            names = ("performative", "sender", "to", *["dialogue_reference"] * 2)
            for name, value in zip(names, strings, strict=True):
                check_string(name, value)
        number: Any
        for name, number in (("message_id", self.message_id), ("target", self.target)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise InvalidOption(name, f"must be an integer, got {shortened(number)}")
            if abs(number) > MAX_MESSAGE_ID:
                raise InvalidOption(name, f"must be at most {MAX_MESSAGE_ID} in absolute value")


ACTIVE: Final = "active"
"""The state of an active dialogue."""
ENDED: Final = "ended"
"""The state of a terminal dialogue, unless the rules or `finish` give another."""


def _check_strings(name: str, values: Any) -> None:
    """Raise `InvalidOption` unless `values` is a collection of strings, and not a single string."""
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidOption(name, f"must be a collection of strings, got {shortened(values)}")
    for each in values:
        check_string(name, each)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a protocol, as AEA's `Dialogue.Rules`; None allows every performative.

    `terminal_performatives` end a dialogue; a mapping gives the final state for each performative, by
    default "ended". `valid_replies` maps a performative to the performatives of valid answers.

    >>> rules = Rules(initial_performatives={"ask"}, terminal_performatives={"answer": "successful"})
    >>> rules.state_after("answer"), rules.state_after("ask")
    ('successful', None)
    """

    initial_performatives: Collection[str] | None = None
    terminal_performatives: Collection[str] | Mapping[str, str] = field(default_factory=frozenset)
    valid_replies: Mapping[str, Collection[str]] | None = None

    def __post_init__(self) -> None:
        if self.initial_performatives is not None:
            _check_strings("initial_performatives", self.initial_performatives)
        _check_strings("terminal_performatives", self.terminal_performatives)
        if isinstance(self.terminal_performatives, Mapping):
            _check_strings("terminal_performatives", [*self.terminal_performatives.values()])
        replies: Any = self.valid_replies
        if not isinstance(replies, Mapping | None):
            raise InvalidOption("valid_replies", f"must be a mapping, got {shortened(replies)}")
        for performative, answers in (replies or {}).items():
            check_string("valid_replies", performative)
            _check_strings("valid_replies", answers)

    def begins(self, performative: str) -> bool:
        """Return whether a dialogue may begin with a performative."""
        return self.initial_performatives is None or performative in self.initial_performatives

    def answers(self, performative: str, target: str) -> bool:
        """Return whether a performative may answer `target`."""
        replies = self.valid_replies
        return replies is None or performative in replies.get(target, ())

    def state_after(self, performative: str) -> str | None:
        """Return the state in which a performative leaves a dialogue; None: the dialogue stays active."""
        terminal = self.terminal_performatives
        if performative not in terminal:
            return None
        return terminal[performative] if isinstance(terminal, Mapping) else ENDED


@dataclass(frozen=True, slots=True)
class Transition:
    """The change of a dialogue by a message, or by an end without a message."""

    label: DialogueLabel
    state: str
    is_terminal: bool
    message: Message | None = None


class Dialogue:
    """A dialogue: its label, the role of this agent, its messages in order, its state.

    `metadata` is a JSON object for the application's own data, saved with the next message, by `Dialogues.save`
    or when the store is closed. The other attributes change by the methods of `Dialogues` only.
    """

    __slots__ = (
        "__weakref__",
        "_by_id",
        "_by_responder",
        "_label",
        "_messages",
        "_metadata",
        "_self_address",
        "borrowed",
        "dirty",
        "is_terminal",
        "role",
        "rules",
        "state",
    )

    role: str
    rules: Rules
    dirty: bool
    borrowed: bool
    state: str
    is_terminal: bool

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
        self.dirty = False
        """True if `metadata` may have changed since the last save."""
        self.borrowed = False
        """True if a caller may hold a reference to `metadata`."""
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
        """The label; incomplete until the responder's first message."""
        return self._label

    @property
    def self_address(self) -> str:
        """The address of this agent."""
        return self._self_address

    @property
    def is_self_initiated(self) -> bool:
        """Whether this agent began the dialogue."""
        return not self._label.is_by_counterparty

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of both agents in the order in which they were accepted."""
        return tuple(self._messages)

    def messages_after(self, count: int) -> list[Message]:
        """Return all messages except the first `count`."""
        return self._messages[count:]

    @property
    def message_count(self) -> int:
        """The number of messages."""
        return len(self._messages)

    @property
    def last_message(self) -> Message | None:
        """The last message of either agent."""
        return self._messages[-1] if self._messages else None

    @property
    def metadata(self) -> dict[str, Any]:
        """A JSON object for the application's own data."""
        self.dirty = self.borrowed = True
        return self._metadata

    def header(self, step: Transition | None = None) -> dict[str, Any]:
        """Return the header, at present or after `step`."""
        return {
            "self_address": self._self_address,
            "role": self.role,
            "state": self.state if step is None else step.state,
            "metadata": self._metadata,
        }

    def keeps_header(self, step: Transition) -> bool:
        """Return whether the header is certainly the same after a step."""
        if self.dirty or self.borrowed or step.is_terminal != self.is_terminal:
            return False
        return step.state == self.state and step.label == self._label

    def get_message_by_id(self, message_id: int) -> Message | None:
        """Return the message with an id, or None."""
        return self._by_id.get(message_id)

    def next_message_id(self, *, outgoing: bool) -> int:
        """Return the id of the next message of this agent, or of the counterparty."""
        if outgoing == self.is_self_initiated:
            return len(self._messages) - self._by_responder + 1
        return -self._by_responder - 1

    def reply(self, performative: str, body: Any, target: int | None) -> Message:
        """Return the next message of this agent; `target` None answers the last message."""
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
        """Return the transition by the next message; raises `InvalidDialogueMessage`."""
        known = self._by_id.get(message.message_id)
        if known == message and equal(known.json, message.json, ordered=False):  # True is not 1
            raise RepeatedMessage(message, self)
        if self.is_terminal:
            ended = f"the dialogue has ended: its state is {self.state!r}"
            raise InvalidDialogueMessage(message, self._of_others(message) or ended)
        problem = self._misplaced(message) or self._against_rules(message)
        if problem is not None:
            raise InvalidDialogueMessage(message, problem)
        state = self.rules.state_after(message.performative)
        label = self._label
        if self.is_self_initiated and message.sender != self._self_address:
            label = label.complete(message.dialogue_reference[1])
        return Transition(label, state or self.state, state is not None, message)

    def apply(self, step: Transition) -> None:
        """Change the dialogue by a transition."""
        self._label, self.state, self.is_terminal = step.label, step.state, step.is_terminal
        if step.message is not None:
            self._add(step.message)

    def replay(self, message: Message) -> None:
        """Add a stored message, which other rules may have accepted; raises `ValueError`."""
        problem = self._misplaced(message)
        if problem is not None:
            raise ValueError(f"message {len(self._messages) + 1}: {problem}")
        self._add(message)

    def _add(self, message: Message) -> None:
        self._messages.append(message)
        self._by_id[message.message_id] = message
        self._by_responder += message.message_id < 0

    def _of_others(self, message: Message) -> str | None:
        """Return the problem if sender and receiver are not the two agents of the dialogue."""
        outgoing = message.sender == self._self_address
        pair = [self._self_address, self._label.dialogue_opponent_addr]
        if [message.sender, message.to] == (pair if outgoing else pair[::-1]):
            return None
        return f"it is from {message.sender!r} to {message.to!r}; the dialogue is between {pair}"

    def _misplaced(self, message: Message) -> str | None:
        """Return the problem of a message that cannot be the next under any rules."""
        if (problem := self._of_others(message)) is not None:
            return problem
        if not self.has_reference(message):
            return f"its dialogue_reference is not that of the dialogue, {self._label.dialogue_reference}"
        expected = self.next_message_id(outgoing=message.sender == self._self_address)
        if message.message_id != expected:
            return f"its message_id must be {expected}, got {message.message_id}"
        if not self._messages and message.target != 0:
            return f"the target of the first message must be 0, got {message.target}"
        if self._messages and message.target not in self._by_id:
            return f"its target, message {message.target}, is not in the dialogue"
        return None

    def _against_rules(self, message: Message) -> str | None:
        if not self._messages:
            allowed = self.rules.begins(message.performative)
            return None if allowed else f"a dialogue cannot begin with {message.performative!r}"
        target = self._by_id[message.target]
        if not self.rules.answers(message.performative, target.performative):
            return f"{message.performative!r} cannot answer {target.performative!r}"
        return None

    def has_reference(self, message: Message) -> bool:
        """Return whether the message's reference is the dialogue's.

        The starter may omit the responder's reference, and receives it with the responder's first message.
        """
        label, (starter, responder) = self._label, message.dialogue_reference
        if starter != label.dialogue_starter_reference:
            return False
        if (message.sender == self._self_address) == self.is_self_initiated:  # from the starter
            return responder in {UNASSIGNED, label.dialogue_responder_reference}
        if label.is_complete:
            return responder == label.dialogue_responder_reference
        return responder != UNASSIGNED
