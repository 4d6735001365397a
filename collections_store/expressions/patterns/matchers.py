"""The matchers of this package, which can be interrupted and always end.

A `Compiler` compiles a pattern to a program. `Automaton` decides whether a regular program matches, in time linear in
the text: a deterministic automaton, built as far as texts need. `Backtracker` returns the match of any program and its
groups, path by path. It visits no path of a regular program twice, and its steps are limited.

An instruction is an operation and two operands. Execution continues with the next instruction, unless an operation
jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...errors import PatternLimitExceeded
from ..budget import spend
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
    caseless,
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
    """Return whether the next match depends on nothing but the position."""
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
    """Compiler of a syntax tree to `program`, which stores positions in `slots`."""

    slots: int

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
            targets = (end, split + 1) if node.lazy else (split + 1, end)
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


# -- matchers ----------------------------------------------------------------------------------

PIECE: Final = 256
"""Characters between two checks of the automaton."""
MAX_TRANSITIONS: Final = 4000
"""Transitions that an automaton remembers."""
STATE_SIZE: Final = 16
"""Positions of a state that take the memory of a transition."""
MAX_WORK: Final = 20_000_000
"""Steps of an automaton over one text, without remembered transitions."""
LIMIT: Final = 2_000_000
"""Steps of a backtracker over one text."""
MAX_VISITED: Final = 500_000
"""Visits that a backtracker remembers: some 50 MB."""
CHECKED: Final = 1024
"""Steps between two checks of the backtracker."""

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Begin and end of the match, and then of each group; -1 where it captured nothing."""


class _State(dict[str, "_State"]):
    """The positions of a program and the kind of character before; a dictionary from the next character to
    the next state.
    """

    automaton: Automaton
    positions: frozenset[int]
    before: str | None

    def __init__(self, automaton: Automaton, positions: frozenset[int], before: str | None) -> None:
        self.automaton, self.positions, self.before = automaton, positions, before

    def __missing__(self, character: str) -> _State:
        after = self[character] = self.automaton.after(self, character)
        return after


class Automaton:
    """Deterministic automaton of a regular program; threads may share it."""

    def __init__(self, program: Program) -> None:
        self._program, self._work = program, 0
        self._found = _State(self, frozenset({-1}), "")
        self._forget()

    def _forget(self) -> None:
        self._transitions = 0
        self._states: dict[tuple[frozenset[int], str | None], _State] = {}
        self._begin = _State(self, frozenset({0}), None)

    def finds(self, text: str) -> bool:
        state, before = self._begin, self._work
        last = text.endswith("\n")
        end = len(text) - last
        for start in range(0, end, PIECE):
            for character in text[start : min(start + PIECE, end)]:
                state = state[character]
            if state is self._found:
                return True
            if self._work - before > MAX_WORK:
                raise PatternLimitExceeded(MAX_WORK)
            spend(PIECE >> 4)
        if last:
            state = state[LAST_NEWLINE]
        return state[""] is self._found

    def after(self, state: _State, character: str) -> _State:
        if state is self._found:
            return state
        positions = self._reached(state, character)
        self._transitions += 1 + len(positions or ()) // STATE_SIZE
        if self._transitions > MAX_TRANSITIONS:
            self._forget()
        if positions is None:
            return self._found
        if not character:
            return state
        before = "a" if WORDS[character[:1]] else "\n" if character[:1] == "\n" else " "
        key = frozenset({0, *positions}), before  # a match may begin behind each character
        return self._states.setdefault(key, _State(self, *key))

    def _reached(self, state: _State, character: str) -> list[int] | None:
        """Return the positions after the next character; None: the program matches before the character."""
        program, seen, left, reached = self._program, set[int](), list(state.positions), list[int]()
        while left:
            position = left.pop()
            if position in seen:
                continue
            seen.add(position)
            operation, one, other = program[position]
            if operation == CHAR:
                if character and one[character[0]]:
                    reached.append(position + 1)
            elif operation == SPLIT:
                left += (one, other)
            elif operation == JUMP:
                left.append(one)
            elif operation == AGAIN:
                left += (one, position + 1)
            elif operation == SAVE or (operation == AT and is_at(one, state.before, character)):
                left.append(position + 1)
            elif operation == MATCH:
                return None
        self._work += len(seen)
        spend(len(seen))
        return reached


class Backtracker:
    """A search of a program in a text."""

    def __init__(self, program: Program, slots: int, text: str, *, regular: bool) -> None:
        self._program, self._text = program, text
        self._slots = [-1] * slots
        self._visited: set[int] | None = set() if regular else None
        self._left = LIMIT
        self._end = 0

    def search(self, start: int, groups: int, next_start: Callable[[int], int]) -> Spans | None:
        """Return the first match. `next_start` returns the next possible beginning, or -1."""
        while 0 <= (start := next_start(start)) <= len(self._text):
            if self._run(0, start) is not None:
                found = self._slots[2 : 2 * groups + 2]
                spans = zip(found[::2], found[1::2], strict=True)
                return (start, self._end), *((b, e) if e >= 0 else (-1, -1) for b, e in spans)
            start += 1
        return None

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise PatternLimitExceeded(LIMIT)
        spend(steps)

    def _run(self, at: int, position: int) -> list[tuple[int, int]] | None:
        """Run from an instruction to a `MATCH`; return the entries that restore the slots."""
        program, text, slots, end = self._program, self._text, self._slots, len(self._text)
        stack: list[tuple[int, int]] = []
        steps = CHECKED
        while True:
            steps -= 1
            if not steps:
                self._count(CHECKED)
                steps = CHECKED
            operation, one, other = program[at]
            if operation == CHAR:
                if position < end and one[text[position]] and self._is_new(at, position):
                    at, position = at + 1, position + 1
                    continue
            elif operation == SPLIT:
                stack.append((other, position))
                at = one
                continue
            elif operation == SAVE:
                stack.append((-1 - one, slots[one]))
                slots[one] = position
                at += 1
                continue
            elif operation == MATCH:
                self._end = position
                self._count(CHECKED - steps)
                return [entry for entry in stack if entry[0] < 0]
            else:
                found = self._step(at, position, stack)
                if found is not None:
                    at, position = found
                    continue
            while stack:
                at, position = stack.pop()
                if at >= 0:
                    break
                slots[-1 - at] = position
            else:
                self._count(CHECKED - steps)
                return None

    def _is_new(self, at: int, position: int) -> bool:
        if self._visited is None:
            return True
        key = position * len(self._program) + at
        if key in self._visited:
            return False
        if len(self._visited) < MAX_VISITED:
            self._visited.add(key)
        return True

    def _step(self, at: int, position: int, stack: list[tuple[int, int]]) -> tuple[int, int] | None:
        """Execute a rare instruction; return where to continue, None: nowhere."""
        operation, one, other = self._program[at]
        if operation == JUMP:
            return one, position
        if operation == AGAIN:
            return (at + 1 if other >= 0 and self._slots[other] == position else one), position
        if operation == AT:
            before = self._text[position - 1] if position else None
            return (at + 1, position) if is_at(one, before, self._after(position)) else None
        if operation == IF:
            return (at + 1 if self._slots[2 * one + 1] >= 0 else other), position
        if operation == BACK:
            end = self._repeated(one, other, position)
            return None if end is None else (at + 1, end)
        end = self._isolated(at + 1, one, position, stack)
        return None if end is None else (other, end)

    def _after(self, position: int) -> str:
        if position == len(self._text) - 1 and self._text[position] == "\n":
            return LAST_NEWLINE
        return self._text[position : position + 1]

    def _repeated(self, number: int, ignores_case: bool, position: int) -> int | None:
        """Return the end of the repeated text of a group; None: the text is not repeated here."""
        begin, end = self._slots[2 * number : 2 * number + 2]
        if end < 0:
            return None
        after = position + end - begin
        captured, found = self._text[begin:end], self._text[position:after]
        if captured == found:
            return after
        if not ignores_case or len(captured) != len(found):
            return None
        return after if all(map(_is_same_letter, captured, found)) else None

    def _isolated(
        self, at: int, node: Look | Atomic, position: int, stack: list[tuple[int, int]]
    ) -> int | None:
        """Run a lookaround or an atomic group; return the position behind, None: no match."""
        behind = (width(node.part) or 0) if isinstance(node, Look) and node.behind else 0
        undo = None if position < behind else self._run(at, position - behind)
        if isinstance(node, Look) and node.negative:
            for slot, before in reversed(undo or ()):
                self._slots[-1 - slot] = before
            return position if undo is None else None
        if undo is None:
            return None
        stack += undo
        return position if isinstance(node, Look) else self._end


def _is_same_letter(one: str, other: str) -> bool:
    return one == other or Members(caseless(((ord(one), ord(one)),)))[other]
