r"""Sets of characters, as sorted ranges of code points.

What a regular expression is made of, once it is read.

Options are gone: a set of characters already holds both cases, and each anchor says which it is.

The reader of regular expressions: the syntax of PCRE, as MongoDB takes it.

1. Classes (`\d`, `\w`, `\s`, `\b`, `[[:alpha:]]`) are ASCII. The option `i` is Unicode's, but changes
   no class.
2. What PCRE has and this library lacks is refused by name; nothing silently means something else.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import groupby
from typing import Final, Literal, NoReturn, TypeAlias

from ..values import value_class

Ranges: TypeAlias = tuple[tuple[int, int], ...]

LAST: Final = 0x10FFFF
EVERY: Final[Ranges] = ((0, LAST),)
MOST_KNOWN: Final = 4096
"""Characters that a set remembers."""


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union of ranges, sorted."""
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def without(ranges: Ranges) -> Ranges:
    """Return the characters that are not in a set."""
    edges = [-1, *(edge for low, high in ranges for edge in (low, high)), LAST + 1]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((low + 1, high - 1) for low, high in pairs if low + 1 < high)


def meet(left: Ranges, right: Ranges) -> bool:
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
    """Whether a character is in a set."""

    def __init__(self, ranges: Ranges) -> None:
        self._lows, self._highs = [low for low, _ in ranges], [high for _, high in ranges]

    def __missing__(self, character: str) -> bool:
        place = bisect_right(self._lows, ord(character)) - 1
        found = place >= 0 and ord(character) <= self._highs[place]
        if len(self) < MOST_KNOWN:
            self[character] = found
        return found


def _ascii(text: str) -> Ranges:
    return joined((ord(each), ord(each)) for each in text)


def _between(*pairs: str) -> Ranges:
    return joined((ord(pair[0]), ord(pair[1])) for pair in pairs)


_GRAPH: Final = _between("!~")
DIGIT: Final = _between("09")
WORD: Final = _between("az", "AZ", "09", "__")
SPACE: Final = _ascii(" \t\n\v\f\r")
HORIZONTAL: Final = joined([
    (9, 9), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
])  # fmt: skip
VERTICAL: Final[Ranges] = ((10, 13), (0x85, 0x85), (0x2028, 0x2029))
NEWLINE: Final = _ascii("\n")

POSIX: Final[Mapping[str, Ranges]] = {
    "alnum": _between("az", "AZ", "09"),
    "alpha": _between("az", "AZ"),
    "ascii": ((0, 127),),
    "blank": _ascii(" \t"),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGIT,
    "graph": _GRAPH,
    "lower": _between("az"),
    "print": _between(" ~"),
    "punct": _between("!/", ":@", "[`", "{~"),
    "space": SPACE,
    "upper": _between("AZ"),
    "word": WORD,
    "xdigit": _between("09", "AF", "af"),
}


def caseless(ranges: Ranges) -> Ranges:
    """Return a set and the other cases of its characters, by Unicode's simple folding."""
    codes = (code for low, high in ranges for code in range(low, min(high, _LAST_CASED) + 1))
    cases = (case for code in codes for case in _cases(code))
    return joined([*ranges, *((case, case) for case in cases)])


_LAST_CASED: Final = 0x1E943
_DOTLESS_I: Final = 0x131
"""Its capital is the I of all others, but it is no case of theirs."""
_FAMILIES: Final = {
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


def _cases(code: int) -> Iterable[int]:
    if code in _FAMILIES or code == _DOTLESS_I:
        return _FAMILIES.get(code, ())
    letter = chr(code)
    small, capital = letter.lower(), letter.upper()
    found = (small, capital, small.upper(), capital.lower(), small.title())
    return [ord(each) for each in found if len(each) == 1]


@cache
def category(name: str) -> Ranges | None:
    """Return the characters of a general category of Unicode's, such as `L` or `Lu`; None: there is no such."""
    if name == "Any":
        return EVERY
    name = {"L&": "LC"}.get(name, name)
    wanted = ("Lu", "Ll", "Lt") if name == "LC" else (name,)
    by_name = _categories()
    names = [each for each in by_name if each.startswith(wanted)]
    return joined(pair for each in names for pair in by_name[each]) if names else None


_ASSIGNED: Final = ((0, 0x323FF), (0xE0000, 0xE01FF))
"""Where characters can be of any category; between are planes without any, and at the end those for private use."""


@cache
def _categories() -> Mapping[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {
        "Cn": [(0x32400, 0xDFFFF), (0xE0200, 0xEFFFF), (0xFFFFE, 0xFFFFF), (0x10FFFE, LAST)],
        "Co": [(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)],
    }
    for low, high in _ASSIGNED:
        place = low
        for name, same in groupby(map(unicodedata.category, map(chr, range(low, high + 1)))):
            end = place + sum(1 for _ in same)
            found.setdefault(name, []).append((place, end - 1))
            place = end
    return found


Anchor: TypeAlias = Literal["start", "end", "last line", "line start", "line end", "word", "inside"]
"""`\\A`, `\\z`, `\\Z`, `^` and `$` of lines, `\\b`, `\\B`."""
Greed: TypeAlias = Literal["greedy", "lazy", "possessive"]


@value_class(eq=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@value_class(eq=True)
class Sequence:
    """One part after the other; without any, nothing."""

    parts: tuple[Node, ...]


@value_class(eq=True)
class Alternatives:
    """The first of several that leads to a match."""

    parts: tuple[Node, ...]


@value_class(eq=True)
class Repeat:
    """A part, `least` to `most` times; None: any number of times."""

    part: Node
    least: int
    most: int | None
    greed: Greed


@value_class(eq=True)
class Subpattern:
    """A part that is captured."""

    part: Node
    number: int


@value_class(eq=True)
class Atomic:
    """A part that is not tried in another way once it was found."""

    part: Node


@value_class(eq=True)
class Look:
    """Whether a part follows, or comes before."""

    part: Node
    behind: bool
    negative: bool


@value_class(eq=True)
class At:
    """A place in the text."""

    anchor: Anchor


@value_class(eq=True)
class Back:
    """What a group captured, once more."""

    number: int
    caseless: bool


@value_class(eq=True)
class If:
    """One part if a group captured something, else the other."""

    number: int
    yes: Node
    no: Node


Node: TypeAlias = (
    Chars | Sequence | Alternatives | Repeat | Subpattern | Atomic | Look | At | Back | If
)


def width(node: Node) -> int | None:
    """Return how many characters a node takes, if that is always the same."""
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
    """Return how many sets of characters a node has, its repetitions written out."""
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
    """Return whether a match can only begin where the text does."""
    match node:
        case At(anchor):
            return anchor == "start"
        case Sequence((first, *_)) | Subpattern(first) | Atomic(first):
            return is_anchored(first)
        case Alternatives(parts):
            return all(map(is_anchored, parts))
    return False


def first_of(node: Node) -> tuple[Ranges, bool]:
    """Return the characters that a match can begin with, and whether it can be empty."""
    match node:
        case Chars(ranges):
            return ranges, False
        case Sequence(parts):
            found: list[tuple[int, int]] = []
            for part in parts:
                ranges, empty = first_of(part)
                found += ranges
                if not empty:
                    return joined(found), False
            return joined(found), True
        case Alternatives(parts):
            firsts = [first_of(part) for part in parts]
            ranges = joined(pair for ranges, _ in firsts for pair in ranges)
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
    """Return the longest run of characters that each match has, "" if none is known."""
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


OPTIONS: Final = "imsxu"
MAX_DEPTH: Final = 50
MAX_TIMES: Final = 65535
MAX_SIZE: Final = 50_000
"""Sets of characters that repetitions make of those that are written."""

_CLASSES: Final[dict[str, Ranges]] = {
    "d": DIGIT, "w": WORD, "s": SPACE, "h": HORIZONTAL, "v": VERTICAL,
}  # fmt: skip
_CLASSES.update({name.upper(): without(ranges) for name, ranges in _CLASSES.items()})
_CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_ANCHORS: Final[dict[str, Anchor]] = {
    "A": "start", "z": "end", "Z": "last line", "b": "word", "B": "inside",
}  # fmt: skip
_GREEDS: Final[dict[str, Greed]] = {"?": "lazy", "+": "possessive"}
_LOOKS: Final = {"=": (False, False), "!": (False, True), "<=": (True, False), "<!": (True, True)}
_LINE_END: Final = Atomic(
    Alternatives((
        Sequence((Chars(((13, 13),)), Chars(NEWLINE))),
        Chars(VERTICAL),
    ))
)  # fmt: skip
_UNSUPPORTED: Final = {
    "K": "\\K", "G": "\\G", "C": "\\C", "X": "\\X", "L": "\\L", "l": "\\l", "U": "\\U", "u": "\\u",
}  # fmt: skip


class InvalidPattern(ValueError):
    """A pattern is no regular expression; `problem` says why, and where."""

    def __init__(self, problem: str, position: int) -> None:
        self.problem = f"invalid regular expression at position {position}: {problem}"
        super().__init__(self.problem)


class Parser:
    """Reads one pattern; `groups` is how many it captures."""

    def __init__(self, text: str, options: str) -> None:
        self._text, self._at, self._flags = text, 0, frozenset(options)
        self._depth, self._quoted = 0, False
        self._names: dict[str, int] = {}
        self.groups = 0
        self._closed: set[int] = set()
        self.ignores_case = False
        """Whether some reference does."""

    def read(self) -> Node:
        """Return what the pattern is made of; raises `InvalidPattern`."""
        for place, character in enumerate(self._text):
            if "\ud800" <= character <= "\udfff":
                self._fail("a lone surrogate, which no text holds", place)
        while self._takes("(*UTF8)") or self._takes("(*UTF)"):
            pass
        node = self._choice()
        if self._at < len(self._text):
            self._fail("unbalanced )")
        if size(node) > MAX_SIZE + len(self._text):
            self._fail(f"repetitions multiply to more than {MAX_SIZE:,} characters", 0)
        return node

    def _fail(self, problem: str, place: int | None = None) -> NoReturn:
        raise InvalidPattern(problem, self._at if place is None else place)

    def _takes(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _until(self, end: str, what: str) -> str:
        place = self._text.find(end, self._at)
        if place < 0:
            self._fail(f"{what} has no end")
        found, self._at = self._text[self._at : place], place + len(end)
        return found

    def _next(self, what: str) -> str:
        if self._at >= len(self._text):
            self._fail(what)
        self._at += 1
        return self._text[self._at - 1]

    # -- sequences ---------------------------------------------------------------------------

    def _choice(self) -> Node:
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self._at < len(self._text) and (self._quoted or self._text[self._at] not in "|)"):
            item = self._item()
            if item is not None:
                items.append(item if self._quoted else self._repeated(item))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _item(self) -> Node | None:
        if self._quoted:
            return self._in_quotes()
        if "x" in self._flags and self._skips():
            return None
        begun, character = self._at, self._next("")
        match character:
            case "\\":
                return self._escape(begun)
            case "(":
                return self._parenthesis(begun)
            case "[":
                return Chars(self._set(begun))
            case ".":
                return Chars(EVERY if "s" in self._flags else without(NEWLINE))
            case "^":
                return At("line start" if "m" in self._flags else "start")
            case "$":
                return At("line end" if "m" in self._flags else "last line")
            case "*" | "+" | "?":
                self._fail("nothing to repeat", begun)
            case "{" if self._times(begun + 1) is not None:
                self._fail("nothing to repeat", begun)
        return self._literal(ord(character))

    def _literal(self, code: int) -> Chars:
        ranges: Ranges = ((code, code),)
        return Chars(caseless(ranges) if "i" in self._flags else ranges)

    def _in_quotes(self) -> Node | None:
        if self._takes("\\E"):
            self._quoted = False
            return None
        node = self._literal(ord(self._next("")))
        if self._takes("\\E"):
            self._quoted = False
        return node

    def _skips(self) -> bool:
        """Skip white space or a comment, of the option `x`."""
        if self._text[self._at] in " \t\n\v\f\r":
            self._at += 1
        elif self._text[self._at] == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end + 1
        else:
            return False
        return True

    # -- repetition --------------------------------------------------------------------------

    def _repeated(self, item: Node) -> Node:
        grouped = self._text[self._at - 1] == ")"
        while "x" in self._flags and self._at < len(self._text) and self._skips():
            pass
        begun = self._at
        times = self._quantifier()
        if times is None:
            return item
        if isinstance(item, At) and not grouped:
            self._fail("nothing to repeat", begun)
        greed: Greed = "greedy"
        if self._at < len(self._text) and self._text[self._at] in _GREEDS:
            greed = _GREEDS[self._next("")]
        if self._quantifier() is not None:
            self._fail("multiple repeat: group what is to be repeated, as in (?:a*)*", begun)
        return Repeat(item, *times, greed)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for word, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(word):
                return times
        if not self._takes("{"):
            return None
        found = self._times(self._at)
        if found is None:
            self._at -= 1
            return None
        least, most, self._at = found
        if most is not None and least > most:
            self._fail(f"at least {least} and at most {most} times")
        return least, most

    def _times(self, place: int) -> tuple[int, int | None, int] | None:
        """Read `2}`, `2,}` or `2,3}`; None: it is something else, and the brace stands for itself."""
        end = self._text.find("}", place, place + 20)
        low, comma, high = self._text[place:end].partition(",")
        if end < 0 or not all(part.isascii() and part.isdigit() for part in (low, high) if part):
            return None
        if not low:
            if high:
                self._fail("{,n}: write {0,n}, or \\{ for the brace itself", place - 1)
            return None
        least, most = int(low), int(high) if high else None
        if max(least, most or 0) > MAX_TIMES:
            self._fail(f"more than {MAX_TIMES} times", place)
        return least, most if comma else least, end + 1

    # -- parentheses -------------------------------------------------------------------------

    def _parenthesis(self, begun: int) -> Node | None:
        if self._takes("*"):
            self._fail("(*VERBS) are not supported", begun)
        if not self._takes("?"):
            return self._group(begun)
        if self._takes("#"):
            self._until(")", "a comment")
            return None
        for word, (behind, negative) in _LOOKS.items():
            if self._takes(word):
                return self._look(begun, behind, negative)
        if self._takes(">"):
            return Atomic(self._inside(begun))
        if self._takes("P="):
            return self._named(self._until(")", "a reference"), begun)
        for word, end in (("P<", ">"), ("<", ">"), ("'", "'")):
            if self._takes(word):
                return self._group(begun, self._until(end, "a group's name"))
        if self._takes("("):
            return self._condition(begun)
        return self._flagged(begun)

    def _inside(self, begun: int) -> Node:
        """Read to the closing parenthesis; flags that change within it end there."""
        if self._depth >= MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} groups within each other", begun)
        flags, self._depth = self._flags, self._depth + 1
        node = self._choice()
        self._flags, self._depth = flags, self._depth - 1
        if not self._takes(")"):
            self._fail("missing )", begun)
        return node

    def _group(self, begun: int, name: str | None = None) -> Node:
        self.groups += 1
        number = self.groups
        if name is not None:
            if not (name.isidentifier() and name.isascii()):
                self._fail("a group's name has letters, digits and _", begun)
            if name in self._names:
                self._fail("a group's name is there twice", begun)
            self._names[name] = number
        node = Subpattern(self._inside(begun), number)
        self._closed.add(number)
        return node

    def _look(self, begun: int, behind: bool, negative: bool) -> Node:
        part = self._inside(begun)
        if not behind:
            return Look(part, behind, negative)
        ways = part.parts if isinstance(part, Alternatives) else (part,)
        if any(width(way) is None for way in ways):
            self._fail("each alternative of a lookbehind must have a fixed length", begun)
        looks = tuple(Look(way, behind, negative) for way in ways)
        return Sequence(looks) if negative else Alternatives(looks)

    def _condition(self, begun: int) -> Node:
        name = self._until(")", "a condition")
        for open_, close in ("<>", "''"):
            if len(name) > 2 and name[0] == open_ and name[-1] == close:
                name = name[1:-1]
        number = self._number(name, begun) if name.isdigit() else self._names.get(name)
        if number not in self._closed:
            self._fail("a condition must be the number or name of a group before it", begun)
        parts = self._inside(begun)
        ways = parts.parts if isinstance(parts, Alternatives) else (parts, Sequence(()))
        if len(ways) > 2:
            self._fail("a condition has two alternatives at most", begun)
        return If(number, *ways)

    def _flagged(self, begun: int) -> Node | None:
        """Read `(?i)`, `(?i-m:…)` and `(?:…)`."""
        on, flags = True, self._flags
        if self._takes("^"):
            flags = frozenset()
        while (letter := self._next("missing )")) not in ":)":
            if letter == "-" and on:
                on = False
            elif letter in "imsx":
                flags = flags | {letter} if on else flags - {letter}
            else:
                self._fail("this kind of group is not supported", begun)
        if letter == ")":
            self._flags = flags
            return None
        before, self._flags = self._flags, flags
        node = self._inside(begun)
        self._flags = before
        return node

    # -- escapes -----------------------------------------------------------------------------

    def _escape(self, begun: int) -> Node | None:
        letter = self._next("a backslash at the end")
        if letter in _CLASSES:
            return Chars(_CLASSES[letter])
        if letter in _ANCHORS:
            return At(_ANCHORS[letter])
        match letter:
            case "Q":
                self._quoted = True
                return None
            case "E":
                return None
            case "N":
                return Chars(without(NEWLINE))
            case "R":
                return _LINE_END
            case "p" | "P":
                return Chars(self._property(letter, begun))
            case "g" | "k":
                return self._reference(letter, begun)
            case _ if letter in "123456789":
                self._at -= 1
                octal = self._octal()
                if octal is None:
                    return self._back(self._number(self._digits(), begun), begun)
                return self._literal(octal)
        return self._literal(self._code(letter, begun))

    def _code(self, letter: str, begun: int) -> int:
        """Return the character that an escape stands for, in a set and outside."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        match letter:
            case "x":
                return self._hexadecimal(begun)
            case "o" if self._takes("{"):
                return self._checked(self._until("}", "\\o{"), 8, begun)
            case "c":
                return ord(self._next("\\c needs a character").upper()) ^ 64
            case "0":
                self._at -= 1
                return self._octal() or 0
        if letter.isascii() and letter.isalnum():
            known = _UNSUPPORTED.get(letter)
            self._fail(f"{known} is not supported" if known else f"no escape \\{letter}", begun)
        return ord(letter)

    def _hexadecimal(self, begun: int) -> int:
        if self._takes("{"):
            return self._checked(self._until("}", "\\x{"), 16, begun)
        end = self._at
        while (
            end < min(self._at + 2, len(self._text)) and self._text[end] in "0123456789abcdefABCDEF"
        ):
            end += 1
        digits, self._at = self._text[self._at : end], end
        return int(digits or "0", 16)

    def _checked(self, digits: str, base: int, begun: int) -> int:
        known = "0123456789abcdef"[:base]
        if not digits or len(digits) > 8 or not set(digits.lower()) <= set(known):
            self._fail("no number of a character", begun)
        code = int(digits, base)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self._fail("there is no such character", begun)
        return code

    def _octal(self, *, always: bool = False) -> int | None:
        """Read up to three octal digits: `\\0` and what follows, or three that are no group's number."""
        end = self._at
        while end < min(self._at + 3, len(self._text)) and self._text[end] in "01234567":
            end += 1
        digits = self._text[self._at : end]
        number = not digits.startswith("0") and (len(digits) < 3 or int(digits) <= self.groups)
        if number and not always:
            return None
        self._at = end
        return int(digits, 8)

    def _property(self, letter: str, begun: int) -> Ranges:
        name = self._next("\\p needs a name")
        if name == "{":
            name = self._until("}", "\\p{")
        negated = (letter == "P") != name.startswith("^")
        ranges = category(name.removeprefix("^"))
        if ranges is None:
            self._fail("\\p takes Unicode's general categories, such as \\p{L} and \\p{Lu}", begun)
        return without(ranges) if negated else ranges

    def _reference(self, letter: str, begun: int) -> Node:
        for open_, close in ("{}", "<>", "''"):
            if self._takes(open_):
                if letter == "g" and open_ != "{":
                    self._fail("recursion is not supported", begun)
                return self._named(self._until(close, "a reference"), begun, signed=letter == "g")
        if letter == "k":
            self._fail("\\k needs a name", begun)
        return self._back(self._number(self._digits(), begun), begun)

    def _named(self, name: str, begun: int, *, signed: bool = False) -> Node:
        if signed and name.startswith("-") and name[1:].isdigit():
            return self._back(self.groups + 1 - self._number(name[1:], begun), begun)
        if signed and name.isdigit():
            return self._back(self._number(name, begun), begun)
        if name not in self._names:
            self._fail("there is no group of that name", begun)
        return self._back(self._names[name], begun)

    def _back(self, number: int, begun: int) -> Node:
        if number not in self._closed:
            self._fail(f"a reference to group {number} must stand behind its end", begun)
        caseless = "i" in self._flags
        self.ignores_case = self.ignores_case or caseless
        return Back(number, caseless)

    def _digits(self) -> str:
        begun = self._at
        while self._at < len(self._text) and self._text[self._at] in "0123456789":
            self._at += 1
        return self._text[begun : self._at]

    def _number(self, digits: str, begun: int) -> int:
        if not digits.isascii() or not 0 < len(digits) < 6 or int(digits) == 0:
            self._fail("there is no such group", begun)
        return int(digits)

    # -- sets --------------------------------------------------------------------------------

    def _set(self, begun: int) -> Ranges:
        if self._text.startswith(":", self._at):
            name = self._text[self._at + 1 : self._text.find("]", self._at)]
            if name.endswith(":") and name[:-1].removeprefix("^") in POSIX:
                self._fail(f"a POSIX class stands within a set: write [[:{name}]]", begun)
        negated = self._takes("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or not self._takes("]"):
            if self._at >= len(self._text):
                self._fail("missing ]", begun)
            if self._takes("\\E") or self._quotes_in_set(found):
                continue
            found += self._member(begun)
            first = False
        ranges = joined(found)
        return without(ranges) if negated else ranges

    def _quotes_in_set(self, found: list[tuple[int, int]]) -> bool:
        if not self._takes("\\Q"):
            return False
        for character in self._until("\\E", "\\Q in a set"):
            found += self._literal(ord(character)).ranges
        return True

    def _member(self, begun: int) -> Ranges:
        low = self._one(begun)
        if self._text[self._at : self._at + 1] != "-" or self._text[
            self._at + 1 : self._at + 2
        ] in {"]", ""}:
            return low if isinstance(low, tuple) else self._cased(low, low)
        place, self._at = self._at, self._at + 1
        high = self._one(begun)
        if isinstance(low, tuple) or isinstance(high, tuple):
            self._fail("a class is no end of a range: write \\- for the character", place)
        if low > high:
            self._fail("a range that ends before it begins", place)
        return self._cased(low, high)

    def _cased(self, low: int, high: int) -> Ranges:
        return caseless(((low, high),)) if "i" in self._flags else ((low, high),)

    def _one(self, begun: int) -> int | Ranges:
        """Read a character of a set, or a class."""
        for mark in (".", "="):
            if self._takes(f"[{mark}"):
                self._fail("collating elements are not supported", begun)
        end = self._text.find(":]", self._at)
        name = self._text[self._at + 2 : end]
        if self._text.startswith("[:", self._at) and end >= 0 and name.removeprefix("^").isalpha():
            return self._posix(name, end + 2)
        if not self._takes("\\"):
            return ord(self._next("missing ]"))
        place, letter = self._at - 1, self._next("missing ]")
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in "pP":
            return self._property(letter, place)
        if letter == "b":
            return 8
        if letter in "1234567":
            self._at -= 1
            return self._octal(always=True) or 0
        return self._code(letter, place)

    def _posix(self, name: str, end: int) -> Ranges:
        plain = name.removeprefix("^")
        if plain not in POSIX:
            self._fail("there is no such POSIX class")
        if plain in {"lower", "upper"} and "i" in self._flags:
            ranges = POSIX["alpha"]
        else:
            ranges = POSIX[plain]
        self._at = end
        return without(ranges) if name.startswith("^") else ranges
