"""Regular expressions: MongoDB's syntax, the same results on every database, and searches that always end.

MongoDB's patterns are PCRE's, which neither Python's `re` nor SQLite nor PostgreSQL reads. `parser` reads a pattern
into the tree of `syntax`. Nothing else in the library gives patterns of users to `re`. A `Pattern` searches in four
ways:

1. Python's `re` searches, where `cost` bounds its steps for the length of the text: in nearly all cases.
2. Otherwise `str` searches, if the pattern is a string but for the case of letters.
3. Otherwise an automaton of `matchers` decides whether there is a match, if the pattern is regular.
4. Otherwise, and for captures of groups, a program runs, which can be interrupted at any step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final

from ..budget import spend
from . import cost
from .matchers import Automaton, Backtracker, Compiler, Spans, is_regular
from .parser import InvalidPattern, Parser
from .syntax import (
    EVERY,
    LAST,
    Alternatives,
    Anchor,
    At,
    Atomic,
    Back,
    Characters,
    Chars,
    If,
    Look,
    Node,
    Ranges,
    Repeat,
    Sequence,
    Subpattern,
    characters_of,
    complement,
    first_of,
    is_anchored,
    letters_of,
    literal_of,
)

_FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}
_SHORT: Final = 4096
"""Characters of a text that is not counted."""
_SPECIAL: Final = re.compile(r"[][\\^$.|?*+(){}]")
STEP: Final = 256
"""Characters that `re` reads in a step."""


class Pattern:
    """A pattern with its options; raises `InvalidPattern`."""

    options: str

    def __init__(self, pattern: str, options: str = "") -> None:
        self.pattern = pattern
        self.options = "".join(each for each in _FLAGS if each in options)
        parser = Parser(pattern, self.options)
        self._node = parser.read()
        self._groups, self._ignores_case = parser.groups, parser.ignores_case
        self._short = -1
        """The length of texts that `is_found` gives to `re` at once; set by the first search."""

    def __reduce__(self) -> tuple[Any, ...]:
        return compiled, (self.pattern, self.options)

    def __repr__(self) -> str:
        return f"/{self.pattern}/{self.options}"

    @property
    def flags(self) -> int:
        return re.UNICODE | sum(_FLAGS[letter] for letter in self.options)

    @cached_property
    def characters(self) -> Characters | None:
        """The pattern as a string of characters, each in all its cases; None for other patterns."""
        return characters_of(self._node)

    def for_python(self) -> re.Pattern[str]:
        """Return the pattern as a value of filters; `re` may give the pattern another meaning."""
        return re.compile(self.pattern, self.flags)

    def is_found(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text; raises `PatternLimitExceeded`."""
        if len(text) <= self._short:
            return self._python_search(text) is not None
        return self._is_found(text)

    def find(self, text: str, start: int = 0) -> Spans | None:
        """Return the first match from `start` on; raises `PatternLimitExceeded`."""
        if len(text) - start <= self._longest:
            match = self._python_search(text, start)
            return None if match is None else match.regs
        if start == 0 and not self.is_found(text):
            return None
        return self._search(text, start)

    def _is_found(self, text: str) -> bool:
        size = len(text)
        if size > _SHORT:
            spend(size // STEP)
        if size <= self._longest:
            found = self._python_search(text) is not None
            self._short = min(self._longest, _SHORT)
            return found
        if self._literal not in text:
            return False
        if self._letters is not None:
            letters, table = self._letters
            return letters in text.translate(table)
        if self._automaton is not None:
            return self._automaton.finds(text)
        return self._search(text, 0) is not None

    def _search(self, text: str, start: int) -> Spans | None:
        compiler = self._compiled
        regular = self._automaton is not None
        runner = Backtracker(compiler.program, compiler.slots, text, regular=regular)
        return runner.search(start, self._groups, lambda begin: self._next_start(text, begin))

    @cached_property
    def _python_search(self) -> Callable[..., re.Match[str] | None]:
        return re.compile(_source(self._node)).search

    @cached_property
    def _longest(self) -> int:
        """The length of the longest text for `re`."""
        return 0 if self._ignores_case else cost.longest(self._node)

    @cached_property
    def _literal(self) -> str:
        return literal_of(self._node)

    @cached_property
    def _letters(self) -> tuple[str, dict[int, int]] | None:
        """The only string that the pattern matches, but for the case of letters, and the table that gives texts the
        same case; None for other patterns.
        """
        return letters_of(self._node)

    @cached_property
    def _compiled(self) -> Compiler:
        return Compiler(self._node, self._groups)

    @cached_property
    def _automaton(self) -> Automaton | None:
        program = self._compiled.program
        return Automaton(program) if is_regular(program) else None

    @cached_property
    def _next_start(self) -> Callable[[str, int], int]:
        """A function that returns the next possible beginning of a match; -1: nowhere."""
        if is_anchored(self._node):
            return lambda _, start: -1 if start else 0
        ranges, empty = first_of(self._node)
        if empty:
            return lambda _, start: start
        first = re.compile(_set(ranges))

        def next_start(text: str, start: int) -> int:
            found = first.search(text, start)
            return -1 if found is None else found.start()

        return next_start


def escaped(text: str) -> str:
    """Return the pattern that finds a string."""
    return _SPECIAL.sub(r"\\\g<0>", text).replace("\0", r"\x00")


def options_of(pattern: re.Pattern[str]) -> str:
    """Return the flags of a pattern of `re` as options, without flags that MongoDB lacks, as pymongo does."""
    return "".join(letter for letter, flag in _FLAGS.items() if pattern.flags & flag)


MAX_BYTES: Final = 32_764
"""Bytes of a pattern: MongoDB's limit."""


@lru_cache(maxsize=256)
def compiled(pattern: str, options: str = "") -> Pattern:
    """Return a pattern; raises `InvalidPattern`."""
    if len(pattern.encode(errors="surrogatepass")) > MAX_BYTES:
        raise InvalidPattern(f"there are more than {MAX_BYTES:,} bytes", MAX_BYTES)
    return Pattern(pattern, options)


# -- the syntax of `re` ------------------------------------------------------------------------

_ANCHORS: Final[dict[Anchor, str]] = {
    "start": r"\A",
    "end": r"\Z",
    "last line": "$",
    "line start": r"(?m:^)(?!(?<=\n)\Z)",  # not behind a newline that ends the text
    "line end": "(?m:$)",
    "word": r"(?a:\b)",
    "inside": r"(?!(?a:\b))",  # `\B` in an empty text depends on Python's version
}


def _source(node: Node) -> str:
    match node:
        case Chars(ranges):
            return _set(ranges)
        case Sequence(parts):
            return "".join(map(_part, parts))
        case Alternatives(parts):
            return "|".join(map(_source, parts))
        case Repeat():
            return _repeat(node)
        case Subpattern(part):
            return f"({_source(part)})"
        case Atomic(part):
            return f"(?>{_source(part)})"
        case Look(part, behind, negative):
            return f"(?{'<' if behind else ''}{'!' if negative else '='}{_source(part)})"
        case At(anchor):
            return _ANCHORS[anchor]
        case Back(number):
            return f"(?:\\{number})"
        case If(number, yes, no):
            return f"(?({number}){_part(yes)}|{_part(no)})"


def _part(node: Node) -> str:
    source = _source(node)
    return f"(?:{source})" if isinstance(node, Alternatives) else source


def _repeat(node: Repeat) -> str:
    closed = isinstance(node.part, Chars | Subpattern | Atomic)
    part = _source(node.part) if closed else f"(?:{_source(node.part)})"
    repeated = f"{part}{{{node.least},{'' if node.most is None else node.most}}}"
    return f"{repeated}?" if node.lazy else repeated


def _set(ranges: Ranges) -> str:
    if ranges == EVERY:
        return "(?s:.)"
    if not ranges:
        return "(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    if ranges[-1][1] == LAST:
        return f"[^{''.join(map(_range, complement(ranges)))}]"
    return f"[{''.join(map(_range, ranges))}]"


def _range(pair: tuple[int, int]) -> str:
    low, high = pair
    return _character(low) if low == high else f"{_character(low)}-{_character(high)}"


def _character(code: int) -> str:
    if code < 128 and chr(code).isalnum():
        return chr(code)
    return f"\\{chr(code)}" if 32 <= code < 127 else f"\\U{code:08x}"
