"""The syntax tree of a regular expression, and sets of characters.

Options are resolved: a set of characters holds both cases under `i`, and every anchor has one meaning.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import groupby
from typing import Final, Literal, TypeAlias

from ..classes import value_class

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""A set of characters: sorted ranges of code points that neither overlap nor touch."""

LAST: Final = 0x10FFFF
EVERY: Final[Ranges] = ((0, LAST),)
MAX_REMEMBERED: Final = 4096
"""Characters that `Members` remembers."""


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union of ranges."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def complement(ranges: Ranges) -> Ranges:
    """Return the characters outside a set."""
    edges = [-1, *(edge for low, high in ranges for edge in (low, high)), LAST + 1]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low + 1, high - 1) for low, high in pairs if low + 1 < high)


def overlap(left: Ranges, right: Ranges) -> bool:
    """Return whether two sets have a character in common."""
    one = other = 0
    while one < len(left) and other < len(right):
        if left[one][1] < right[other][0]:
            one += 1
        elif right[other][1] < left[one][0]:
            other += 1
        else:
            return True
    return False


class Members(dict[str, bool]):
    """A dictionary from characters to membership in a set."""

    def __init__(self, ranges: Ranges) -> None:
        self._lows, self._highs = [low for low, _ in ranges], [high for _, high in ranges]

    def __missing__(self, character: str) -> bool:
        index = bisect_right(self._lows, ord(character)) - 1
        found = index >= 0 and ord(character) <= self._highs[index]
        if len(self) < MAX_REMEMBERED:
            self[character] = found
        return found


def _between(*pairs: str) -> Ranges:
    return union((ord(pair[0]), ord(pair[1])) for pair in pairs)


NEWLINE: Final[Ranges] = ((10, 10),)
WORD: Final = _between("az", "AZ", "09", "__")
HORIZONTAL: Final[Ranges] = (
    (9, 9), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
)  # fmt: skip
VERTICAL: Final[Ranges] = ((10, 13), (0x85, 0x85), (0x2028, 0x2029))

POSIX: Final[Mapping[str, Ranges]] = {
    "alnum": _between("az", "AZ", "09"),
    "alpha": _between("az", "AZ"),
    "ascii": ((0, 127),),
    "blank": _between("  ", "\t\t"),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _between("09"),
    "graph": _between("!~"),
    "lower": _between("az"),
    "print": _between(" ~"),
    "punct": _between("!/", ":@", "[`", "{~"),
    "space": _between("\t\r", "  "),
    "upper": _between("AZ"),
    "word": WORD,
    "xdigit": _between("09", "AF", "af"),
}

_LAST_CASED: Final = 0x1E943
_DOTLESS_I: Final = 0x131
"""Its capital is the I of all others, but it is no case of theirs."""
_CASE_FAMILIES: Final = {
    code: family
    for family in (
        (0x4b, 0x6b, 0x212a), (0x53, 0x73, 0x17f), (0xb5, 0x39c, 0x3bc), (0xc5, 0xe5, 0x212b),
        (0xdf, 0x1e9e), (0x345, 0x399, 0x3b9, 0x1fbe), (0x392, 0x3b2, 0x3d0), (0x395, 0x3b5, 0x3f5),
        (0x398, 0x3b8, 0x3d1, 0x3f4), (0x39a, 0x3ba, 0x3f0), (0x3a0, 0x3c0, 0x3d6), (0x3a1, 0x3c1, 0x3f1),
        (0x3a3, 0x3c2, 0x3c3), (0x3a6, 0x3c6, 0x3d5), (0x3a9, 0x3c9, 0x2126), (0x412, 0x432, 0x1c80),
        (0x414, 0x434, 0x1c81), (0x41e, 0x43e, 0x1c82), (0x421, 0x441, 0x1c83), (0x422, 0x442, 0x1c84, 0x1c85),
        (0x42a, 0x44a, 0x1c86), (0x462, 0x463, 0x1c87), (0x1c88, 0xa64a, 0xa64b), (0x1e60, 0x1e61, 0x1e9b),
    )
    for code in family
}  # fmt: skip
"""Characters with a case that is not the capital or the small letter of any of the others."""


def caseless(ranges: Ranges) -> Ranges:
    """Return a set with all cases of its characters, by Unicode's simple folding."""
    codes = (code for low, high in ranges for code in range(low, min(high, _LAST_CASED) + 1))
    return union([*ranges, *((case, case) for code in codes for case in _cases(code))])


def _cases(code: int) -> Iterable[int]:
    if code in _CASE_FAMILIES or code == _DOTLESS_I:
        return _CASE_FAMILIES.get(code, ())
    letter = chr(code)
    small, capital = letter.lower(), letter.upper()
    found = (small, capital, small.upper(), capital.lower(), small.title())
    return [ord(each) for each in found if len(each) == 1]


@cache
def category(name: str) -> Ranges | None:
    """Return the characters of a general category of Unicode's, such as `L` or `Lu`; None: no such category."""
    if name == "Any":
        return EVERY
    wanted = ("Lu", "Ll", "Lt") if name in {"LC", "L&"} else (name,)
    by_name = _categories()
    names = [each for each in by_name if each.startswith(wanted)]
    return union(pair for each in names for pair in by_name[each]) if names else None


_ASSIGNED: Final = ((0, 0x323FF), (0xE0000, 0xE01FF))
"""The characters of mixed categories. Between them are planes without any, behind them those for private use."""


@cache
def _categories() -> Mapping[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {
        "Cn": [(0x32400, 0xDFFFF), (0xE0200, 0xEFFFF), (0xFFFFE, 0xFFFFF), (0x10FFFE, LAST)],
        "Co": [(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)],
    }
    for low, high in _ASSIGNED:
        start = low
        for name, same in groupby(map(unicodedata.category, map(chr, range(low, high + 1)))):
            end = start + sum(1 for _ in same)
            found.setdefault(name, []).append((start, end - 1))
            start = end
    return found


Anchor: TypeAlias = Literal["start", "end", "last line", "line start", "line end", "word", "inside"]
"""`\\A`, `\\z`, `\\Z`, `^` and `$` of lines, `\\b`, `\\B`."""


@value_class(eq=True)
class Chars:
    """A character of a set."""

    ranges: Ranges


@value_class(eq=True)
class Sequence:
    """A part after the other; without parts, the empty string."""

    parts: tuple[Node, ...]


@value_class(eq=True)
class Alternatives:
    """The first of several parts that leads to a match."""

    parts: tuple[Node, ...]


@value_class(eq=True)
class Repeat:
    """A part, `least` to `most` times; None: without a limit."""

    part: Node
    least: int
    most: int | None
    lazy: bool


@value_class(eq=True)
class Subpattern:
    """A capturing group."""

    part: Node
    number: int


@value_class(eq=True)
class Atomic:
    """An atomic group: no backtracking into the group."""

    part: Node


@value_class(eq=True)
class Look:
    """A lookahead or a lookbehind."""

    part: Node
    behind: bool
    negative: bool


@value_class(eq=True)
class At:
    """An anchor."""

    anchor: Anchor


@value_class(eq=True)
class Back:
    """A backreference."""

    number: int
    caseless: bool


@value_class(eq=True)
class If:
    """A part if a group captured text, else the alternative."""

    number: int
    yes: Node
    no: Node


Node: TypeAlias = (
    Chars | Sequence | Alternatives | Repeat | Subpattern | Atomic | Look | At | Back | If
)


def width(node: Node) -> int | None:
    """Return how many characters a node matches, or None if the number varies."""
    match node:
        case Chars():
            return 1
        case Sequence(parts):
            widths = [width(part) for part in parts]
            return None if None in widths else sum(each or 0 for each in widths)
        case Alternatives(parts):
            [first, *others] = {width(part) for part in parts}
            return None if others else first
        case Repeat(part, least, most):
            inner = width(part)
            return None if inner is None or least != most else inner * least
        case Subpattern(part) | Atomic(part):
            return width(part)
        case Look() | At():
            return 0
    return None


def size(node: Node) -> int:
    """Return the number of sets of characters in a node, repetitions written out."""
    match node:
        case Sequence(parts) | Alternatives(parts):
            return sum(map(size, parts))
        case Repeat(part, least, most):
            return size(part) * max(least, most or 1, 1)
        case Subpattern(part) | Atomic(part) | Look(part):
            return size(part)
        case If(_, yes, no):
            return size(yes) + size(no)
    return 1


def is_anchored(node: Node) -> bool:
    """Return whether a match begins only where the text does."""
    match node:
        case At(anchor):
            return anchor == "start"
        case Sequence((first, *_)) | Subpattern(first) | Atomic(first):
            return is_anchored(first)
        case Alternatives(parts):
            return all(map(is_anchored, parts))
    return False


def first_of(node: Node) -> tuple[Ranges, bool]:
    """Return the possible first characters of a match, and whether the match can be empty."""
    match node:
        case Chars(ranges):
            return ranges, False
        case Sequence(parts):
            found: list[tuple[int, int]] = []
            for part in parts:
                ranges, empty = first_of(part)
                found += ranges
                if not empty:
                    return union(found), False
            return union(found), True
        case Alternatives(parts):
            firsts = [first_of(part) for part in parts]
            ranges = union(pair for ranges, _ in firsts for pair in ranges)
            return ranges, any(empty for _, empty in firsts)
        case Repeat(part, least):
            ranges, empty = first_of(part)
            return ranges, empty or least == 0
        case Subpattern(part) | Atomic(part):
            return first_of(part)
        case If(_, yes, no):
            return first_of(Alternatives((yes, no)))
        case Back():
            return EVERY, True
    return (), True


def literal_of(node: Node) -> str:
    """Return the longest known string in every match, or ""."""
    runs = [""]
    for part in node.parts if isinstance(node, Sequence) else (node,):
        match part:
            case Chars(((low, high),)) if low == high:
                runs[-1] += chr(low)
            case At():
                pass
            case Subpattern(inner) | Atomic(inner) | Repeat(Subpattern(inner), 1):
                runs += [literal_of(inner), ""]
            case _:
                runs.append("")
    return max(runs, key=len)


_MAX_CASES: Final = 8


@value_class(eq=True)
class Characters:
    """Sets of a few characters, one after the other; `anchored`: a match begins where the text does."""

    sets: tuple[str, ...]
    anchored: bool

    @property
    def text(self) -> str | None:
        """The only string that matches; None: several match."""
        return "".join(self.sets) if all(len(each) == 1 for each in self.sets) else None


def characters_of(node: Node) -> Characters | None:
    """Return the characters of a pattern; None if the pattern is more than characters behind an optional anchor."""
    parts = node.parts if isinstance(node, Sequence) else (node,)
    anchored = bool(parts) and parts[0] == At("start")
    sets: list[str] = []
    for part in parts[anchored:]:
        if not isinstance(part, Chars) or not part.ranges:
            return None
        if sum(high - low + 1 for low, high in part.ranges) > _MAX_CASES:
            return None
        sets.append("".join(chr(c) for low, high in part.ranges for c in range(low, high + 1)))
    return Characters(tuple(sets), anchored)


def letters_of(node: Node) -> tuple[str, dict[int, int]] | None:
    """Return the string that matches, in one case, and the table of `str.translate` that gives any text this case.
    None if the pattern is more than characters, each in all cases.
    """
    found = characters_of(node)
    if found is None or found.anchored:
        return None
    letters: list[str] = []
    ranges: dict[int, str] = {}
    for characters in found.sets:
        cases = [ord(each) for each in characters]
        if any(ranges.setdefault(code, characters) != characters for code in cases):
            return None
        letters.append(characters[0])
    return "".join(letters), {code: ord(its[0]) for code, its in ranges.items()}
