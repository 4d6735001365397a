"""Dialogues of two agents: those of `shared/data`, or generated ones."""

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from conftest import SHARED

DATA = SHARED / "data" / "sgd_dialogues.jsonl.gz"
SPEAKERS = ("USER", "SYSTEM")
"""The two speakers; the first begins."""


@dataclass(frozen=True)
class Script:
    """The bodies of the messages of one dialogue, in order."""

    id: str
    bodies: tuple[dict[str, Any], ...]

    @classmethod
    def parse(cls, line: bytes) -> "Script":
        """Return the script of a line of the data: each turn is a message, USER begins."""
        dialogue = json.loads(line)
        turns = dialogue["turns"]
        assert [turn["speaker"] for turn in turns] == [
            SPEAKERS[number % 2] for number in range(len(turns))
        ]
        return cls.of(dialogue["dialogue_id"], turns)

    @classmethod
    def of(cls, id: str, turns: list[dict[str, Any]]) -> "Script":
        numbered = (
            {"dialogue_id": id, "turn": number, **turn} for number, turn in enumerate(turns)
        )
        return cls(id, tuple(numbered))

    def performative(self, turn: int) -> str:
        """Return "say", or "end" for the last message."""
        return "end" if turn == len(self.bodies) - 1 else "say"


def scripts(count: int) -> list[Script]:
    """Return real dialogues, or a few dozen generated ones."""
    if DATA.is_file():
        with gzip.open(DATA) as lines:
            return [Script.parse(line) for line in islice(lines, count)]
    return list(islice(made_up(), min(count, 40)))


def made_up() -> Iterator[Script]:
    """Yield generated dialogues."""
    draw = random.Random(1)
    for number in range(40):
        turns = [{"utterance": "hm " * draw.randrange(40)} for _ in range(draw.randrange(4, 33))]
        yield Script.of(f"made_up_{number}", turns)
