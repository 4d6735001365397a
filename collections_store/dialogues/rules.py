"""What may be said in a dialogue, after what, and what ends it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

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
