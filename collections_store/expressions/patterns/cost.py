"""An upper bound of the steps that Python's `re` takes for a pattern.

`re` backtracks. The steps are counted over the position automaton of a pattern: a position is a set of characters in
the pattern, and an edge counts the ways in which one position follows another.

1. Two paths from a position back to itself over the same text: the number of paths doubles with each round. The cost
   is exponential, and no text is short enough.
2. Else a single path over a text leads to each position of a loop. A loop is left once for each character that both
   the loop and its successors match, and once in all for the characters that only the successors match.
3. A search begins at each character, unless the pattern begins with an anchor.

Lookarounds, atomic groups and backreferences count as ordinary parts, which is never less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

from .syntax import (
    Alternatives,
    At,
    Atomic,
    Back,
    Chars,
    If,
    Look,
    Node,
    Ranges,
    Repeat,
    Subpattern,
    is_anchored,
    overlap,
    union,
)
from .syntax import Sequence as Parts

BUDGET: Final = 10_000_000
"""Steps of `re` that are fast enough: tens of milliseconds at worst."""
LENGTHS: Final = [int(8 * 1.3**power) for power in range(64)]
MAX_POSITIONS: Final = 2000
MAX_EDGES: Final = 20_000
MAX_RANGES: Final = 20_000
"""Ranges in all sets: `re` compiles about 100,000 in a second, which nothing can interrupt. `\\p{L}` has 650."""
MAX_UNROLLED: Final = 64
"""Positions of a repetition that is written out; one of more counts as one without a limit."""
_MAX_COUNT: Final = 2**40
_ROUND: Final = 0.5
"""Steps per character of a loop over one set, the fastest that `re` does."""

Paths: TypeAlias = Counter[int]
"""How many paths lead to each position."""


class _TooLarge(Exception):
    """The pattern is too large to be counted."""


@dataclass(slots=True)
class _Ends:
    """How often a part is empty, and the positions at its beginning and end."""

    empty: int = 0
    first: Paths = field(default_factory=Counter)
    last: Paths = field(default_factory=Counter)


def longest(node: Node) -> int:
    """Return the length of the longest text over which `re` is within `BUDGET`, or 0."""
    steps = bound(node)
    return [0, *LENGTHS][bisect_right(LENGTHS, False, key=lambda length: steps(length) > BUDGET)]


def bound(node: Node) -> Callable[[int], float]:
    """Return a function from the length of a text to the most steps of a search."""
    graph = _Graph()
    try:
        begin = graph.visit(node)
        loops = graph.loops()
        exponential = any(map(graph.is_ambiguous, loops))
    except _TooLarge:
        exponential = True
    if exponential:
        return lambda _: inf
    anchored = is_anchored(node)

    def steps(length: int) -> float:
        found = 1 + begin.empty + graph.most(begin.first, graph.steps(loops, length))
        return length + found if anchored else (length + 1) * found

    return steps


class _Graph:
    def __init__(self) -> None:
        self.sets: list[int] = []
        """The number of the set of each position."""
        self.follow: list[Paths] = []
        self.limits: dict[int, int] = {}
        """How often a position that is a loop repeats at most."""
        self._numbers: dict[Ranges, int] = {}
        self._ranges: list[Ranges] = []
        self._overlaps: dict[tuple[int, int], bool] = {}
        self._groups: dict[int, Node] = {}
        self._edges = self._written = 0

    # -- building ----------------------------------------------------------------------------

    def visit(self, node: Node) -> _Ends:
        match node:
            case Chars(ranges):
                return self._position(ranges)
            case Parts(parts):
                return self._in_order(self.visit(part) for part in parts)
            case Alternatives(parts):
                return _either(self.visit(part) for part in parts)
            case Repeat():
                return self._repeat(node)
            case Subpattern(part, number):
                ends = self.visit(part)
                self._groups[number] = part
                return ends
            case Atomic(part):
                return self.visit(part)
            case Look(part, behind):
                return _Ends(1, Counter() if behind else self.visit(part).first)
            case At():
                return _Ends(1)
            case Back(number):
                if number not in self._groups:
                    raise _TooLarge
                return self.visit(self._groups[number])
            case If(_, yes, no):
                return _either((self.visit(yes), self.visit(no)))

    def _position(self, ranges: Ranges) -> _Ends:
        position = len(self.sets)
        self._written += len(ranges)
        if position >= MAX_POSITIONS or self._written > MAX_RANGES:
            raise _TooLarge
        number = self._numbers.setdefault(ranges, len(self._ranges))
        if number == len(self._ranges):
            self._ranges.append(ranges)
        self.sets.append(number)
        self.follow.append(Counter())
        return _Ends(0, Counter({position: 1}), Counter({position: 1}))

    def _join(self, last: Paths, first: Paths) -> None:
        self._edges += len(last) * len(first)
        if self._edges > MAX_EDGES:
            raise _TooLarge
        for one, count in last.items():
            for other, more in first.items():
                self.follow[one][other] += count * more

    def _in_order(self, parts: Iterable[_Ends]) -> _Ends:
        ends = _Ends(1)
        for part in parts:
            self._join(ends.last, part.first)
            ends.first.update(_times(part.first, ends.empty))
            ends.last = _times(ends.last, part.empty) + part.last
            ends.empty = min(ends.empty * part.empty, _MAX_COUNT)
        return ends

    def _repeat(self, node: Repeat) -> _Ends:
        least, most = node.least, node.most
        if most == 0:
            return _Ends(1)
        before = len(self.sets)
        part = self.visit(node.part)
        size = len(self.sets) - before
        if isinstance(node.part, Chars) and (most is None or most > 3):
            [position] = part.first
            if most is not None:
                self.limits[position] = most
        elif (least if most is None else most) * size <= MAX_UNROLLED:
            return self._unrolled(node, part)
        elif part.empty and (least > 1 or most is not None):
            raise _TooLarge  # `re` tries each way to choose the rounds that are empty
        return self._loop(part, least)

    def _loop(self, part: _Ends, least: int) -> _Ends:
        self._join(part.last, part.first)
        part.empty += least == 0 or part.empty > 0
        return part

    def _unrolled(self, node: Repeat, part: _Ends) -> _Ends:
        least, most = node.least, node.most
        copies = [part, *(self.visit(node.part) for _ in range(max(least, most or 0) - 1))]
        if most is None:
            self._loop(copies[-1], least)
            return self._in_order(copies)
        rest = _Ends(1)
        for copy in reversed(copies[least:]):
            rest = self._in_order((copy, rest))
            rest.empty += 1
        return self._in_order((*copies[:least], rest)) if least else rest

    # -- loops -------------------------------------------------------------------------------

    def loops(self) -> list[list[int]]:
        """Return the strongly connected components, the last in the pattern first (Tarjan)."""
        follow, done = self.follow, len(self.follow)
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        path: list[int] = []
        depth: dict[int, int] = {}
        found: list[list[int]] = []
        for root in range(done):
            stack = [(root, iter(follow[root]))] if root not in index else []
            while stack:
                node, others = stack[-1]
                if node not in index:
                    index[node] = low[node] = len(index)
                    depth[node] = len(path)
                    path.append(node)
                other = next((each for each in others if low.get(each, -1) < done), None)
                if other is None:
                    stack.pop()
                    if stack:
                        low[stack[-1][0]] = min(low[stack[-1][0]], low[node])
                    if low[node] == index[node]:
                        found.append(path[depth[node] :])
                        del path[depth[node] :]
                        low.update(dict.fromkeys(found[-1], done))
                elif other in index:
                    low[node] = min(low[node], index[other])
                else:
                    stack.append((other, iter(follow[other])))
        return found

    def overlap(self, one: int, other: int) -> bool:
        """Return whether two positions match a character in common."""
        key = self.sets[one], self.sets[other]
        if key not in self._overlaps:
            self._overlaps[key] = overlap(self._ranges[key[0]], self._ranges[key[1]])
        return self._overlaps[key]

    def is_ambiguous(self, loop: list[int]) -> bool:
        """Return whether two paths over one text lead from a position of a loop back to the position."""
        members = set(loop)
        inside = {one: [other for other in self.follow[one] if other in members] for one in loop}
        if any(self.follow[one][other] > 1 for one in loop for other in inside[one]):
            return True
        forks = (
            self.overlap(one, other)
            for others in inside.values()
            for number, one in enumerate(others)
            for other in others[:number]
        )
        return any(forks) and self._paths_rejoin(loop, inside)

    def _paths_rejoin(self, loop: list[int], inside: dict[int, list[int]]) -> bool:
        """Return whether two paths over one text part and come together again, over pairs of positions."""
        before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        seen = {(position, position) for position in loop}
        left, edges = list(seen), 0
        while left:
            pair = left.pop()
            for one in inside[pair[0]]:
                for other in inside[pair[1]]:
                    edges += 1
                    if not self.overlap(one, other):
                        continue
                    before.setdefault((one, other), []).append(pair)
                    if (one, other) not in seen:
                        seen.add((one, other))
                        left.append((one, other))
            if edges > MAX_EDGES:
                return True
        left = [(position, position) for position in loop]
        back = set(left)
        while left:
            for pair in before.get(left.pop(), ()):
                if pair[0] != pair[1]:
                    return True
                if pair not in back:
                    back.add(pair)
                    left.append(pair)
        return False

    # -- steps -------------------------------------------------------------------------------

    def steps(self, loops: list[list[int]], length: int) -> list[float]:
        """Return the steps from each position on, for a text of `length`."""
        steps = [0.0] * len(self.sets)
        for loop in loops:
            first = loop[0]
            if len(loop) == 1 and first not in self.follow[first]:
                steps[first] = 1 + self.most(self.follow[first], steps)
                continue
            members, numbers = set(loop), {self.sets[each] for each in loop}
            labels = union(pair for number in numbers for pair in self._ranges[number])
            often, once = Counter[int](), Counter[int]()
            for one in loop:
                for other in self.follow[one].keys() - members:
                    exits = often if overlap(labels, self._ranges[self.sets[other]]) else once
                    exits[other] += self.follow[one][other]
            rounds, cost = length, self.most(Counter(loop), [1.0] * len(self.sets))
            if len(loop) == 1:
                rounds, cost = min(length, self.limits.get(first, length)), cost * _ROUND
            found = rounds * (cost + self.most(often, steps)) + self.most(once, steps)
            for one in loop:
                steps[one] = found
        return steps

    def most(self, paths: Paths, steps: Sequence[float]) -> float:
        """Return the most steps of all paths over a character."""
        if len(paths) == 1:
            [(position, count)] = paths.items()
            return count * steps[position]
        by_set: dict[int, float] = {}
        example: dict[int, int] = {}
        for position, count in paths.items():
            number = self.sets[position]
            by_set[number] = by_set.get(number, 0.0) + count * steps[position]
            example[number] = position
        if len(by_set) > 300:
            return sum(by_set.values()) + len(paths)
        together = (
            sum(by_set[other] for other in by_set if self.overlap(example[one], example[other]))
            for one in by_set
        )
        return max(together, default=0.0) + len(paths)


def _times(paths: Paths, count: int) -> Paths:
    """Return each number of paths `count` times; none for 0."""
    return Counter({each: min(n * count, _MAX_COUNT) for each, n in paths.items() if count})


def _either(parts: Iterable[_Ends]) -> _Ends:
    ends = _Ends()
    for part in parts:
        ends.empty += part.empty
        ends.first.update(part.first)
        ends.last.update(part.last)
    return ends
