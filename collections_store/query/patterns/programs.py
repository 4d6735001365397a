"""Patterns compiled to programs, for the matchers of this package.

An instruction is an operation and two operands. Execution continues with the next instruction, if nothing else is said.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from .syntax import (
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
"""Match one character of a set: its `Members`."""
SPLIT: Final = 1
"""Continue at the first operand, and at the second if that fails."""
JUMP: Final = 2
SAVE: Final = 3
"""Store the position in the text in a slot."""
AGAIN: Final = 4
"""Return to the first operand, unless nothing was matched since the `SAVE` of the second (-1: something was)."""
MATCH: Final = 5
AT: Final = 6
BACK: Final = 7
LOOK: Final = 8
"""Run what follows up to its `MATCH`. The operands: the node, and where to continue."""
IF: Final = 9
"""Continue behind, or at the second operand if a group captured nothing."""

Instruction: TypeAlias = tuple[int, Any, Any]
Program: TypeAlias = list[Instruction]

LAST_NEWLINE: Final = "\n$"
"""A newline that ends the text."""
WORDS: Final = Members(WORD)


def is_regular(program: Program) -> bool:
    """Return whether what can match next depends on nothing but the position."""
    return all(operation < BACK for operation, _, _ in program)


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
    edge = (before is not None and WORDS[before]) != (after != "" and WORDS[after[0]])
    return edge == (anchor == "word")


class Compiler:
    """Compiler of a syntax tree to `program`, which stores positions in so many `slots`."""

    def __init__(self, node: Node, groups: int) -> None:
        self.program: Program = []
        self.slots = 2 * groups + 2
        self._members: dict[Ranges, Members] = {}
        self._write(node)
        self._add(MATCH)

    def _add(self, operation: int, one: Any = None, other: Any = None) -> int:
        self.program.append((operation, one, other))
        return len(self.program) - 1

    def _write(self, node: Node) -> None:
        match node:
            case Chars(ranges):
                self._add(CHAR, self._members.setdefault(ranges, Members(ranges)))
            case Sequence(parts):
                for part in parts:
                    self._write(part)
            case Alternatives(parts):
                self._choice(parts)
            case Repeat(greed="possessive"):
                self._write(Atomic(Repeat(node.part, node.least, node.most, "greedy")))
            case Repeat():
                self._repeat(node)
            case Subpattern(part, number):
                self._add(SAVE, 2 * number)
                self._write(part)
                self._add(SAVE, 2 * number + 1)
            case Atomic(part) | Look(part):
                look = self._add(LOOK)
                self._write(part)
                self._add(MATCH)
                self.program[look] = LOOK, node, len(self.program)
            case At(anchor):
                self._add(AT, anchor)
            case Back(number, ignores_case):
                self._add(BACK, number, ignores_case)
            case If(number, yes, no):
                test = self._add(IF)
                self._write(yes)
                end = self._add(JUMP)
                self.program[test] = IF, number, len(self.program)
                self._write(no)
                self.program[end] = JUMP, len(self.program), None

    def _choice(self, parts: tuple[Node, ...]) -> None:
        ends = []
        for part in parts[:-1]:
            split = self._add(SPLIT)
            self._write(part)
            ends.append(self._add(JUMP))
            self.program[split] = SPLIT, split + 1, len(self.program)
        self._write(parts[-1])
        for end in ends:
            self.program[end] = JUMP, len(self.program), None

    def _repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._write(node.part)
        splits = []
        if node.most is None:
            splits.append(self._loop(node))
        for _ in range((node.most or 0) - node.least):
            splits.append(self._add(SPLIT))
            self._write(node.part)
        end = len(self.program)
        for split in splits:
            targets = (end, split + 1) if node.greed == "lazy" else (split + 1, end)
            self.program[split] = SPLIT, *targets

    def _loop(self, node: Repeat) -> int:
        split = self._add(SPLIT)
        slot = -1
        if width(node.part) in {0, None}:
            slot, self.slots = self.slots, self.slots + 1
            self._add(SAVE, slot)
        self._write(node.part)
        self._add(AGAIN, split, slot)
        return split
