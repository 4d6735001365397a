"""Patterns as programs, for the matchers of this package.

An instruction is a name and two operands. What stands behind a `char` or a `save` is where it goes on.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from .parser import (
    WORD,
    Alternatives,
    Anchor,
    At,
    Atomic,
    Back,
    Chars,
    If,
    Look,
    Members,
    Node,
    Ranges,
    Repeat,
    Sequence,
    Subpattern,
    width,
)

CHAR: Final = 0
"""Takes one of a set: its `Members`."""
SPLIT: Final = 1
"""Goes on in one place, or else in another."""
JUMP: Final = 2
SAVE: Final = 3
"""Notes the place in the text."""
AGAIN: Final = 4
"""Goes back to the first operand, unless nothing was taken since the `SAVE` of the second (-1: something was)."""
MATCH: Final = 5
AT: Final = 6
BACK: Final = 7
LOOK: Final = 8
"""Runs what follows up to its `MATCH`: the node, and where to go on."""
IF: Final = 9
"""Goes on behind, or in the second operand if a group captured nothing."""

Instruction: TypeAlias = tuple[int, Any, Any]
Program: TypeAlias = list[Instruction]

LAST_NEWLINE: Final = "\n$"
"""A newline that ends the text."""
_WORDS: Final = Members(WORD)


def program(node: Node, groups: int) -> tuple[Program, int]:
    """Return the program, and how many places it notes."""
    writer = _Writer(2 * groups + 2)
    writer.write(node)
    writer.add(MATCH)
    return writer.program, writer.slots


def is_regular(program: Program) -> bool:
    """Return whether what follows depends on nothing but the place."""
    return all(name < BACK for name, _, _ in program)


def is_at(anchor: Anchor, before: str | None, after: str) -> bool:
    """Return whether an anchor holds between two characters; "" is the end of the text."""
    match anchor:
        case "start":
            return before is None
        case "end":
            return after == ""
        case "last line":
            return after in {"", LAST_NEWLINE}
        case "line start":
            return before is None or (before == "\n" and after != "")
        case "line end":
            return after == "" or after[0] == "\n"
    edge = (before is not None and _WORDS[before]) != (after != "" and _WORDS[after[0]])
    return edge == (anchor == "word")


class _Writer:
    def __init__(self, slots: int) -> None:
        self.program: Program = []
        self.slots = slots
        self._members: dict[Ranges, Members] = {}

    def add(self, name: int, one: Any = None, other: Any = None) -> int:
        self.program.append((name, one, other))
        return len(self.program) - 1

    @property
    def here(self) -> int:
        return len(self.program)

    def write(self, node: Node) -> None:
        match node:
            case Chars(ranges):
                self.add(CHAR, self._members.setdefault(ranges, Members(ranges)))
            case Sequence(parts):
                for part in parts:
                    self.write(part)
            case Alternatives(parts):
                self._choice(list(parts))
            case Repeat(greed="possessive"):
                self.write(Atomic(Repeat(node.part, node.least, node.most, "greedy")))
            case Repeat():
                self._repeat(node)
            case Subpattern(part, number):
                self.add(SAVE, 2 * number)
                self.write(part)
                self.add(SAVE, 2 * number + 1)
            case Atomic() | Look():
                self._apart(node)
            case At(anchor):
                self.add(AT, anchor)
            case Back(number, caseless):
                self.add(BACK, number, caseless)
            case If():
                self._if(node)

    def _choice(self, parts: list[Node]) -> None:
        ends = []
        for part in parts[:-1]:
            split = self.add(SPLIT)
            self.write(part)
            ends.append(self.add(JUMP))
            self.program[split] = SPLIT, split + 1, self.here
        self.write(parts[-1])
        for end in ends:
            self.program[end] = JUMP, self.here, None

    def _repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self.write(node.part)
        if node.most is None:
            self._loop(node)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self.add(SPLIT))
            self.write(node.part)
        for split in splits:
            self._split(split, split + 1, self.here, node)

    def _split(self, place: int, on: int, out: int, node: Repeat) -> None:
        self.program[place] = (SPLIT, out, on) if node.greed == "lazy" else (SPLIT, on, out)

    def _loop(self, node: Repeat) -> None:
        split = self.add(SPLIT)
        slot = -1
        if width(node.part) in {0, None}:
            slot, self.slots = self.slots, self.slots + 1
            self.add(SAVE, slot)
        self.write(node.part)
        self.add(AGAIN, split, slot)
        self._split(split, split + 1, self.here, node)

    def _apart(self, node: Look | Atomic) -> None:
        look = self.add(LOOK)
        self.write(node.part)
        self.add(MATCH)
        self.program[look] = LOOK, node, self.here

    def _if(self, node: If) -> None:
        test = self.add(IF)
        self.write(node.yes)
        end = self.add(JUMP)
        self.program[test] = IF, node.number, self.here
        self.write(node.no)
        self.program[end] = JUMP, self.here, None
