"""What may be said in a dialogue, after what, and what ends it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import InvalidOption, shortened

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
