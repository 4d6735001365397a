"""AEA's `DialogueStats`, whose numbers go on after a restart."""

from __future__ import annotations

import json
from typing import Any, Final

from aea.protocols.dialogue.base import Dialogue, Dialogues, DialogueStats

from ... import Store

NAME: Final = "dialogues__stats"
"""The collection of all of them; that of dialogues has a longer name."""


class KeptStats:
    """Has each end that a skill counts on the disk before `add_dialogue_endstate` returns."""

    def __init__(self, dialogues: Dialogues, store: Store, agent: str, component: str) -> None:
        self.store, self._stats = store, dialogues.dialogue_stats
        self._id = json.dumps([agent, component])
        changed: Any = self._stats
        changed.add_dialogue_endstate = self._add

    def load(self) -> None:
        """Let the numbers be those on the disk."""
        kept = self.store[NAME].get(self._id)
        for side, numbers in self._sides.items():
            found = kept.get(side) if isinstance(kept, dict) else None
            if isinstance(found, dict):
                numbers.update({each: _count(found, each.name) for each in numbers})

    @property
    def _sides(self) -> dict[str, dict[Dialogue.EndState, int]]:
        stats = self._stats
        return {"self_initiated": stats.self_initiated, "other_initiated": stats.other_initiated}

    def _add(self, end_state: Dialogue.EndState, is_self_initiated: bool) -> None:
        DialogueStats.add_dialogue_endstate(self._stats, end_state, is_self_initiated)
        side = "self_initiated" if is_self_initiated else "other_initiated"
        try:
            one_more = {"$inc": {f"{side}.{end_state.name}": 1}}
            self.store[NAME].update(self._id, one_more, upsert=True)
        except BaseException:
            self._sides[side][end_state] -= 1
            raise


def _count(found: dict[str, Any], name: str) -> int:
    number = found.get(name, 0)
    return number if isinstance(number, int) else 0
