"""Where a pattern is found, and what its groups capture: one way through its program after the other.

It ends: no way of a regular program is gone twice, and there is a limit to the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ...errors import PatternLimitExceeded
from ..budget import spend
from .parser import Atomic, Look, Members, caseless, width
from .programs import (
    AGAIN,
    AT,
    BACK,
    CHAR,
    IF,
    JUMP,
    LAST_NEWLINE,
    MATCH,
    SAVE,
    SPLIT,
    Program,
    is_at,
)

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Where the match begins and ends, and then each group; -1 where it captured nothing."""

LIMIT: Final = 2_000_000
"""Steps of a search."""
MOST_SEEN: Final = 500_000
"""Ways that are remembered: some 50 MB."""
CHECKED: Final = 1024
"""Steps between two looks whether to go on."""


class Backtracker:
    """One search of a program in a text."""

    def __init__(self, program: Program, slots: int, text: str, *, regular: bool) -> None:
        self._program, self._text = program, text
        self._places = [-1] * slots
        self._seen: set[int] | None = set() if regular else None
        self._left = LIMIT
        self._end = 0

    def search(self, start: int, groups: int, next_start: Callable[[int], int]) -> Spans | None:
        """Return the first match; `next_start` is where one can begin, -1: nowhere."""
        while 0 <= (start := next_start(start)) <= len(self._text):
            if self._run(0, start) is not None:
                found = self._places[2 : 2 * groups + 2]
                spans = zip(found[::2], found[1::2], strict=True)
                return (start, self._end), *((b, e) if e >= 0 else (-1, -1) for b, e in spans)
            start += 1
        return None

    def _count(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise PatternLimitExceeded(LIMIT)
        spend(steps)

    def _run(self, at: int, place: int) -> list[tuple[int, int]] | None:
        """Run from an instruction to a `MATCH`; returns what undoes what was noted on the way."""
        program, text, places, end = self._program, self._text, self._places, len(self._text)
        stack: list[tuple[int, int]] = []
        steps = CHECKED
        while True:
            steps -= 1
            if not steps:
                self._count(CHECKED)
                steps = CHECKED
            name, one, other = program[at]
            if name == CHAR:
                if place < end and one[text[place]] and self._is_new(at, place):
                    at, place = at + 1, place + 1
                    continue
            elif name == SPLIT:
                stack.append((other, place))
                at = one
                continue
            elif name == SAVE:
                stack.append((-1 - one, places[one]))
                places[one] = place
                at += 1
                continue
            elif name == MATCH:
                self._end = place
                self._count(CHECKED - steps)
                return [entry for entry in stack if entry[0] < 0]
            else:
                found = self._other(at, place, stack)
                if found is not None:
                    at, place = found
                    continue
            while stack:
                at, place = stack.pop()
                if at >= 0:
                    break
                places[-1 - at] = place
            else:
                self._count(CHECKED - steps)
                return None

    def _is_new(self, at: int, place: int) -> bool:
        if self._seen is None:
            return True
        key = place * len(self._program) + at
        if key in self._seen:
            return False
        if len(self._seen) < MOST_SEEN:
            self._seen.add(key)
        return True

    def _other(self, at: int, place: int, stack: list[tuple[int, int]]) -> tuple[int, int] | None:
        """Do what is rarer; returns where to go on, None: nowhere."""
        name, one, other = self._program[at]
        if name == JUMP:
            return one, place
        if name == AGAIN:
            return (at + 1 if other >= 0 and self._places[other] == place else one), place
        if name == AT:
            before = self._text[place - 1] if place else None
            return (at + 1, place) if is_at(one, before, self._after(place)) else None
        if name == IF:
            return (at + 1 if self._places[2 * one + 1] >= 0 else other), place
        if name == BACK:
            end = self._repeated(one, other, place)
            return None if end is None else (at + 1, end)
        end = self._apart(at + 1, one, place, stack)
        return None if end is None else (other, end)

    def _after(self, place: int) -> str:
        if place == len(self._text) - 1 and self._text[place] == "\n":
            return LAST_NEWLINE
        return self._text[place : place + 1]

    def _repeated(self, number: int, ignore_case: bool, place: int) -> int | None:
        begin, end = self._places[2 * number : 2 * number + 2]
        if end < 0:
            return None
        taken = place + end - begin
        captured, found = self._text[begin:end], self._text[place:taken]
        if captured == found:
            return taken
        if not ignore_case or len(captured) != len(found):
            return None
        same = all(map(_is_same_letter, captured, found))
        return taken if same else None

    def _apart(
        self, at: int, node: Look | Atomic, place: int, stack: list[tuple[int, int]]
    ) -> int | None:
        """Run a lookaround or an atomic group; returns where it leads."""
        behind = (width(node.part) or 0) if isinstance(node, Look) and node.behind else 0
        undo = None if place < behind else self._run(at, place - behind)
        if isinstance(node, Look) and node.negative:
            if undo is None:
                return place
            self._undone(undo)
            return None
        if undo is None:
            return None
        stack += undo
        return place if isinstance(node, Look) else self._end

    def _undone(self, undo: list[tuple[int, int]]) -> None:
        for slot, place in reversed(undo):
            self._places[-1 - slot] = place


def _is_same_letter(one: str, other: str) -> bool:
    return one == other or Members(caseless(((ord(one), ord(one)),)))[other]
