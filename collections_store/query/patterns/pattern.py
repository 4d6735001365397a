"""A regular expression, ready to look for.

1. Python's `re` looks, where its steps are few for a text of that length (`cost`): in nearly all cases.
2. Else an automaton tells whether there is a match, for a pattern that needs no more memory than it has states.
3. Else, and for what groups capture, a program is run, in which every so many steps can be the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final

from ..budget import spend
from . import cost
from .automaton import Automaton
from .backtracking import Backtracker, Spans
from .parser import Chars, Parser, first_of, is_anchored, literal_of
from .programs import Program, is_regular, program
from .translate import translated

_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_SHORT: Final = 4096
"""Characters of a text that nobody counts."""
STEP: Final = 256
"""Characters that are read in a step."""


class Pattern:
    """A pattern with its options; raises `InvalidPattern`."""

    def __init__(self, pattern: str, options: str = "") -> None:
        self.pattern = pattern
        self.options = "".join(each for each in "imsx" if each in options)
        parser = Parser(pattern, self.options)
        self._node = parser.read()
        self._groups, self._ignores_case = parser.groups, parser.ignores_case

    def __reduce__(self) -> tuple[Any, ...]:
        return compiled, (self.pattern, self.options)

    def __repr__(self) -> str:
        return f"/{self.pattern}/{self.options}"

    @property
    def flags(self) -> int:
        """The options as flags of `re`."""
        return re.UNICODE | sum(_FLAGS[letter] for letter in self.options)

    def for_python(self) -> re.Pattern[str]:
        """Return the pattern as a value that filters take; it may mean something else to `re`."""
        return re.compile(self.pattern, self.flags)

    def is_found(self, text: str) -> bool:
        """Return whether the pattern is found anywhere in a text; raises `PatternLimitExceeded`."""
        size = len(text)
        if size > _SHORT:
            spend(size // STEP)
        if size <= self._longest:
            return self._python_search(text) is not None
        if self._literal not in text:
            return False
        if self._automaton is not None:
            return self._automaton.finds(text)
        return self._search(text, 0) is not None

    def find(self, text: str, start: int = 0) -> Spans | None:
        """Return where the pattern is found first from `start` on; raises `PatternLimitExceeded`."""
        if len(text) - start <= self._longest:
            match = self._python_search(text, start)
            return None if match is None else match.regs
        if start == 0 and not self.is_found(text):
            return None
        return self._search(text, start)

    @cached_property
    def _python_search(self) -> Callable[..., re.Match[str] | None]:
        return translated(self._node).search

    @cached_property
    def _longest(self) -> int:
        return 0 if self._ignores_case else cost.longest(self._node)

    @cached_property
    def _literal(self) -> str:
        return literal_of(self._node)

    @cached_property
    def _program(self) -> tuple[Program, int]:
        return program(self._node, self._groups)

    @cached_property
    def _automaton(self) -> Automaton | None:
        return Automaton(self._program[0]) if is_regular(self._program[0]) else None

    @cached_property
    def _next_start(self) -> Callable[[str, int], int]:
        """What returns where a match can begin, from a place on; -1: nowhere."""
        if is_anchored(self._node):
            return lambda _, start: -1 if start else 0
        ranges, empty = first_of(self._node)
        if empty:
            return lambda _, start: start
        first = translated(Chars(ranges))

        def next_start(text: str, start: int) -> int:
            found = first.search(text, start)
            return -1 if found is None else found.start()

        return next_start

    def _search(self, text: str, start: int) -> Spans | None:
        code, slots = self._program
        runner = Backtracker(code, slots, text, regular=self._automaton is not None)
        return runner.search(start, self._groups, lambda place: self._next_start(text, place))


def options_of(pattern: re.Pattern[str]) -> str:
    """Return the flags of a pattern of `re` as options; those that MongoDB lacks are left out, as pymongo does."""
    return "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)


@lru_cache(maxsize=256)
def compiled(pattern: str, options: str = "") -> Pattern:
    """Return a pattern; raises `InvalidPattern`."""
    return Pattern(pattern, options)
