"""Which dialogue it is: the references that both sides gave it, and who they are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from ..errors import InvalidOption, shortened

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
        if not isinstance(json, dict) or json.keys() != set(_FIELDS):
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

    def names(self, other: DialogueLabel) -> bool:
        """Tell whether this label, complete or not, is one of the dialogue with the label `other`."""
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
