"""What one side says to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..errors import InvalidOption, shortened

_TEXT: Final = frozenset({str})


MOST: Final = 10**10 - 1
"""As many as there are places (see `names.message_id`)."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a dialogue.

    `message_id` counts each side's messages: 1, 2, 3 … of the side that began, -1, -2, -3 … of the other. `target`
    is the id of the message that this one answers, 0 of the first. `body` is any JSON value.

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
        }

    @classmethod
    def from_json(cls, json: Any) -> Message:
        """Return the message that `json` is of; raises `InvalidOption`.

        >>> Message.from_json(Message("greet", sender="ada", to="bob").json).to
        'bob'
        """
        if not isinstance(json, dict) or json.keys() != set(cls.__slots__):
            raise InvalidOption("message", f"{shortened(json)} has not the keys of a message")
        reference = json["dialogue_reference"]
        pair = tuple(reference) if isinstance(reference, list) else reference
        return cls(**{**json, "dialogue_reference": pair})

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
