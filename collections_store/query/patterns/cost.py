"""How long Python's `re` may take over a pattern, at most.

`re` tries one way through a pattern after the other. Its steps are counted over the graph of a pattern's sets of
characters (its positions), in which an edge is there as often as there are ways from one to the other:

1. Two ways from a position back to itself over the same text: the ways double with each round. This is
   exponential, and no text is short enough.
2. Else a text leads to each position of a loop in one way. A loop is left once for each character that both
   the loop and what comes behind it take, and once in all for what only the latter takes.
3. A search begins at each character, but for a pattern that begins with an anchor.

What is not a way of its own (lookarounds, atomic groups, references) is counted as if it were, which is
never less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final, TypeAlias

from .parser import (
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
    joined,
    meet,
)
from .parser import Sequence as Parts

BUDGET: Final = 10_000_000
"""Steps of `re` that nobody needs to wait for: some tens of milliseconds at worst."""
LENGTHS: Final = [int(8 * 1.3**power) for power in range(64)]
MAX_POSITIONS: Final = 2000
MAX_EDGES: Final = 20_000
UNROLLED: Final = 64
"""Positions of a repetition that is written out; one of more counts as one without an end."""

_ROUND: Final = 0.5
"""Steps that a loop of one set takes for each character: it is the fastest that `re` does."""

Ways: TypeAlias = Counter[int]


class _TooLarge(Exception):
    """A pattern is not worth the counting."""


def longest(node: Node) -> int:
    """Return the length of the longest text for which `re` is soon done; 0: there is none."""
    steps = bound(node)
    return [0, *LENGTHS][bisect_right(LENGTHS, False, key=lambda length: steps(length) > BUDGET)]


def bound(node: Node) -> Callable[[int], float]:
    """Return what gives the steps of a search at most, by the length of the text."""
    graph = _Graph()
    try:
        begin = graph.visit(node)
        loops = graph.loops(graph.follow)
        if any(graph.doubles(loop) for loop in loops):
            return lambda _: inf
    except _TooLarge:
        return lambda _: inf
    anchored = is_anchored(node)

    def steps(length: int) -> float:
        found = 1 + begin.empty + graph.most(begin.first, graph.steps(loops, length))
        return length + found if anchored else (length + 1) * found

    return steps


class _Ends:
    """How a part begins and ends, and in how many ways it is empty."""

    def __init__(self, empty: int = 0, first: Ways | None = None, last: Ways | None = None) -> None:
        self.empty = empty
        self.first: Ways = Counter() if first is None else first
        self.last: Ways = Counter() if last is None else last


class _Graph:
    def __init__(self) -> None:
        self.sets: list[int] = []
        """The number of the set of each position."""
        self.follow: list[Ways] = []
        self.bounds: dict[int, int] = {}
        """How often a position that is a loop can be gone round."""
        self._numbers: dict[Ranges, int] = {}
        self._ranges: list[Ranges] = []
        self._meeting: dict[tuple[int, int], bool] = {}
        self._groups: dict[int, Node] = {}
        self._edges = 0

    # -- the graph ---------------------------------------------------------------------------

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
        place = len(self.sets)
        if place >= MAX_POSITIONS:
            raise _TooLarge
        number = self._numbers.setdefault(ranges, len(self._ranges))
        if number == len(self._ranges):
            self._ranges.append(ranges)
        self.sets.append(number)
        self.follow.append(Counter())
        return _Ends(0, Counter({place: 1}), Counter({place: 1}))

    def _join(self, last: Ways, first: Ways) -> None:
        self._edges += len(last) * len(first)
        if self._edges > MAX_EDGES:
            raise _TooLarge
        for one, ways in last.items():
            for other, more in first.items():
                self.follow[one][other] += ways * more

    def _in_order(self, parts: Iterable[_Ends]) -> _Ends:
        whole = _Ends(1)
        for part in parts:
            self._join(whole.last, part.first)
            if whole.empty:
                for place, ways in part.first.items():
                    whole.first[place] += min(ways * whole.empty, 2**40)
            last = Counter({p: min(ways * part.empty, 2**40) for p, ways in whole.last.items()})
            whole.last = (last + part.last) if part.empty else part.last
            whole.empty = min(whole.empty * part.empty, 2**40)
        return whole

    def _repeat(self, node: Repeat) -> _Ends:
        least, most = node.least, node.most
        if most == 0:
            return _Ends(1)
        before = len(self.sets)
        part = self.visit(node.part)
        size = len(self.sets) - before
        if isinstance(node.part, Chars) and (most is None or most > 3):
            [place] = part.first
            if most is not None:
                self.bounds[place] = most
        elif (least if most is None else most) * size <= UNROLLED:
            return self._written_out(node, part)
        self._join(part.last, part.first)
        part.empty += least == 0 or part.empty > 0
        return part

    def _written_out(self, node: Repeat, part: _Ends) -> _Ends:
        least, most = node.least, node.most
        copies = [part, *(self.visit(node.part) for _ in range(max(least, most or 0) - 1))]
        if most is None:
            self._join(copies[-1].last, copies[-1].first)
            copies[-1].empty += least == 0 or copies[-1].empty > 0
            return self._in_order(copies)
        rest = _Ends(1)
        for copy in reversed(copies[least:]):
            rest = self._in_order((copy, rest))
            rest.empty += 1
        return self._in_order((*copies[:least], rest)) if least else rest

    # -- loops -------------------------------------------------------------------------------

    def loops(self, follow: Sequence[Ways]) -> list[list[int]]:
        """Return the positions that lead back to each other, what comes last first (Tarjan)."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        path: list[int] = []
        spots: dict[int, int] = {}
        found: list[list[int]] = []
        for root in range(len(follow)):
            stack = [(root, iter(follow[root]))] if root not in index else []
            while stack:
                place, others = stack[-1]
                if place not in index:
                    index[place] = low[place] = len(index)
                    spots[place] = len(path)
                    path.append(place)
                if (
                    other := next((o for o in others if low.get(o, -1) < len(follow)), None)
                ) is None:
                    stack.pop()
                    if stack:
                        low[stack[-1][0]] = min(low[stack[-1][0]], low[place])
                    if low[place] == index[place]:
                        found.append(path[spots[place] :])
                        del path[spots[place] :]
                        low.update(dict.fromkeys(found[-1], len(follow)))
                elif other in index:
                    low[place] = min(low[place], index[other])
                else:
                    stack.append((other, iter(follow[other])))
        return found

    def meet(self, one: int, other: int) -> bool:
        """Return whether two positions take a character in common."""
        key = self.sets[one], self.sets[other]
        if key not in self._meeting:
            self._meeting[key] = meet(self._ranges[key[0]], self._ranges[key[1]])
        return self._meeting[key]

    def doubles(self, loop: list[int]) -> bool:
        """Return whether two ways lead from a position of a loop to itself over one text."""
        inside = set(loop)
        ways = {place: [o for o in self.follow[place] if o in inside] for place in loop}
        if any(self.follow[place][other] > 1 for place in loop for other in ways[place]):
            return True
        if all(
            not self.meet(one, other)
            for others in ways.values()
            for number, one in enumerate(others)
            for other in others[:number]
        ):
            return False
        return self._part_and_meet(loop, ways)

    def _part_and_meet(self, loop: list[int], ways: dict[int, list[int]]) -> bool:
        before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        seen = {(place, place) for place in loop}
        left, edges = list(seen), 0
        while left:
            pair = left.pop()
            for one in ways[pair[0]]:
                for other in ways[pair[1]]:
                    edges += 1
                    if not self.meet(one, other):
                        continue
                    before.setdefault((one, other), []).append(pair)
                    if (one, other) not in seen:
                        seen.add((one, other))
                        left.append((one, other))
            if edges > MAX_EDGES:
                return True
        left = [(place, place) for place in loop]
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
        """Return the steps from each position on, of a text of that length."""
        steps = [0.0] * len(self.sets)
        for loop in loops:
            place = loop[0]
            if len(loop) == 1 and place not in self.follow[place]:
                steps[place] = 1 + self.most(self.follow[place], steps)
                continue
            inside = set(loop)
            labels = joined(
                pair for number in {self.sets[p] for p in loop} for pair in self._ranges[number]
            )
            again, once = Counter[int](), Counter[int]()
            for one in loop:
                for other, ways in self.follow[one].items():
                    if other not in inside:
                        (again if meet(labels, self._ranges[self.sets[other]]) else once)[
                            other
                        ] += ways
            rounds = min(length, self.bounds.get(place, length)) if len(loop) == 1 else length
            side_by_side = self.most(Counter(loop), [1.0] * len(self.sets))
            if len(loop) == 1:
                side_by_side *= _ROUND
            found = rounds * (side_by_side + self.most(again, steps)) + self.most(once, steps)
            for one in loop:
                steps[one] = found
        return steps

    def most(self, ways: Ways, steps: Sequence[float]) -> float:
        """Return the steps of all ways that one character can go, at most."""
        if len(ways) == 1:
            [(place, times)] = ways.items()
            return times * steps[place]
        by_set: dict[int, float] = {}
        some: dict[int, int] = {}
        for place, times in ways.items():
            number = self.sets[place]
            by_set[number] = by_set.get(number, 0.0) + times * steps[place]
            some[number] = place
        if len(by_set) > 300:
            return sum(by_set.values()) + len(ways)
        together = (
            sum(by_set[other] for other in by_set if self.meet(some[one], some[other]))
            for one in by_set
        )
        return max(together, default=0.0) + len(ways)


def _either(parts: Iterable[_Ends]) -> _Ends:
    whole = _Ends()
    for part in parts:
        whole.empty += part.empty
        whole.first.update(part.first)
        whole.last.update(part.last)
    return whole
