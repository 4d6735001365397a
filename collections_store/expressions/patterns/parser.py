r"""Parser of regular expressions: the syntax of PCRE, as MongoDB accepts it.

1. Classes (`\d`, `\w`, `\s`, `\b`, `[[:alpha:]]`) are ASCII. The option `i` is Unicode's, but changes no class.
2. Syntax of PCRE that this library lacks is rejected by name; nothing silently has another meaning.

`re._parser` is no substitute: private, different between versions of Python, it rejects `[[:alpha:]]`, `\Q…\E`, `\h`,
`\R`, `\p{L}`, `\x{e9}`, `(?<name>…)` and options within a group, and gives `\w`, `$`, `\Z`, `^` under `m`, octal
escapes and the option `i` another meaning.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from .syntax import (
    EVERY,
    HORIZONTAL,
    NEWLINE,
    POSIX,
    VERTICAL,
    Alternatives,
    Anchor,
    At,
    Atomic,
    Back,
    Chars,
    If,
    Look,
    Node,
    Ranges,
    Repeat,
    Sequence,
    Subpattern,
    caseless,
    category,
    complement,
    size,
    union,
    width,
)

OPTIONS: Final = "imsxu"
MAX_DEPTH: Final = 50
MAX_TIMES: Final = 65535
MAX_SIZE: Final = 50_000
"""Sets of characters that repetitions may add to those in the pattern."""

_CLASSES: Final[dict[str, Ranges]] = {
    "d": POSIX["digit"], "w": POSIX["word"], "s": POSIX["space"], "h": HORIZONTAL, "v": VERTICAL,
}  # fmt: skip
_CLASSES.update({name.upper(): complement(ranges) for name, ranges in _CLASSES.items()})
_CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_ANCHORS: Final[dict[str, Anchor]] = {
    "A": "start", "z": "end", "Z": "last line", "b": "word", "B": "inside",
}  # fmt: skip
_QUANTIFIERS: Final[dict[str, tuple[int, int | None]]] = {
    "*": (0, None),
    "+": (1, None),
    "?": (0, 1),
}
_LOOKS: Final = {"=": (False, False), "!": (False, True), "<=": (True, False), "<!": (True, True)}
_LINE_END: Final = Atomic(
    Alternatives((Sequence((Chars(((13, 13),)), Chars(NEWLINE))), Chars(VERTICAL)))
)
_UNSUPPORTED: Final = "KGCXLlUu"
_IGNORED: Final = re.compile(r"[ \t\n\v\f\r]+|#[^\n]*\n?")
"""What the option `x` skips."""
_TIMES: Final = re.compile(r"\{([0-9]{0,18})(,?)([0-9]{0,18})\}")


class InvalidPattern(ValueError):
    """A pattern is not a valid regular expression; `problem` names the error and the position."""

    problem: str

    def __init__(self, problem: str, position: int) -> None:
        self.problem = f"invalid regular expression at position {position}: {problem}"
        super().__init__(self.problem)


class Parser:
    """Parser of a pattern; `groups` is the number of capturing groups."""

    groups: int
    ignores_case: bool

    def __init__(self, text: str, options: str) -> None:
        self._text, self._at, self._flags = text, 0, frozenset(options)
        self._depth, self._quoted = 0, False
        self._names: dict[str, int] = {}
        self.groups = 0
        self._closed: set[int] = set()
        self.ignores_case = False
        """Whether a backreference ignores case."""

    def read(self) -> Node:
        """Return the syntax tree; raises `InvalidPattern`."""
        for position, character in enumerate(self._text):
            if "\ud800" <= character <= "\udfff":
                self._fail("a lone surrogate, which no text holds", position)
        while self._takes("(*UTF8)") or self._takes("(*UTF)"):
            pass
        node = self._choice()
        if self._at < len(self._text):
            self._fail("unbalanced )")
        if size(node) > MAX_SIZE + len(self._text):
            self._fail(f"repetitions multiply to more than {MAX_SIZE:,} characters", 0)
        return node

    # -- scanning ----------------------------------------------------------------------------

    def _fail(self, problem: str, position: int | None = None) -> NoReturn:
        raise InvalidPattern(problem, self._at if position is None else position)

    def _takes(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _next(self, problem: str) -> str:
        if self._at >= len(self._text):
            self._fail(problem)
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, what: str) -> str:
        position = self._text.find(end, self._at)
        if position < 0:
            self._fail(f"{what} has no end")
        found, self._at = self._text[self._at : position], position + len(end)
        return found

    def _run(self, characters: str, most: int) -> str:
        """Read up to `most` of the characters."""
        end = self._at
        while end < min(self._at + most, len(self._text)) and self._text[end] in characters:
            end += 1
        found, self._at = self._text[self._at : end], end
        return found

    def _skips(self) -> bool:
        """Skip white space or a comment, under the option `x`."""
        found = _IGNORED.match(self._text, self._at) if "x" in self._flags else None
        self._at = found.end() if found else self._at
        return found is not None

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
            node = None if self._takes("\\E") else self._literal(ord(self._next("")))
            self._quoted = node is not None and not self._takes("\\E")
            return node
        if self._skips():
            return None
        begin = self._at
        if self._quantifier() is not None:
            self._fail("nothing to repeat", begin)
        match character := self._next(""):
            case "\\":
                return self._escape(begin)
            case "(":
                return self._parenthesis(begin)
            case "[":
                return Chars(self._set(begin))
            case ".":
                return Chars(EVERY if "s" in self._flags else complement(NEWLINE))
            case "^":
                return At("line start" if "m" in self._flags else "start")
            case "$":
                return At("line end" if "m" in self._flags else "last line")
        return self._literal(ord(character))

    def _literal(self, code: int) -> Chars:
        return Chars(self._cased(code, code))

    def _cased(self, low: int, high: int) -> Ranges:
        return caseless(((low, high),)) if "i" in self._flags else ((low, high),)

    # -- repetition --------------------------------------------------------------------------

    def _repeated(self, item: Node) -> Node:
        grouped = self._text[self._at - 1] == ")"
        while self._skips():
            pass
        begin = self._at
        times = self._quantifier()
        if times is None:
            return item
        if isinstance(item, At) and not grouped:
            self._fail("nothing to repeat", begin)
        sign = self._run("?+", 1)
        if self._quantifier() is not None:
            self._fail("multiple repeat: group what is to be repeated, as in (?:a*)*", begin)
        repeat = Repeat(item, *times, lazy=sign == "?")
        return Atomic(repeat) if sign == "+" else repeat

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Read `*`, `+`, `?`, `{2}`, `{2,}` or `{2,3}`; None: any other brace is a character."""
        if sign := self._run("*+?", 1):
            return _QUANTIFIERS[sign]
        found = _TIMES.match(self._text, self._at)
        if found is None or not (found[1] or found[3]):
            return None
        if not found[1]:
            self._fail("{,n}: write {0,n}, or \\{ for the brace itself")
        least = int(found[1])
        most = int(found[3]) if found[3] else None if found[2] else least
        if max(least, most or 0) > MAX_TIMES:
            self._fail(f"more than {MAX_TIMES} times", self._at + 1)
        self._at = found.end()
        if most is not None and least > most:
            self._fail(f"at least {least} and at most {most} times")
        return least, most

    # -- parentheses -------------------------------------------------------------------------

    def _parenthesis(self, begin: int) -> Node | None:
        if self._takes("*"):
            self._fail("(*VERBS) are not supported", begin)
        if not self._takes("?"):
            return self._group(begin)
        if self._takes("#"):
            self._until(")", "a comment")
            return None
        for sign, (behind, negative) in _LOOKS.items():
            if self._takes(sign):
                return self._look(begin, behind, negative)
        if self._takes(">"):
            return Atomic(self._inside(begin))
        if self._takes("P="):
            return self._named(self._until(")", "a reference"), begin)
        for sign, end in (("P<", ">"), ("<", ">"), ("'", "'")):
            if self._takes(sign):
                return self._group(begin, self._until(end, "a group's name"))
        if self._takes("("):
            return self._condition(begin)
        return self._flagged(begin)

    def _inside(self, begin: int) -> Node:
        """Read to the closing parenthesis, which ends options changed within the group."""
        if self._depth >= MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} groups within each other", begin)
        flags, self._depth = self._flags, self._depth + 1
        node = self._choice()
        self._flags, self._depth = flags, self._depth - 1
        if not self._takes(")"):
            self._fail("missing )", begin)
        return node

    def _group(self, begin: int, name: str | None = None) -> Node:
        self.groups += 1
        number = self.groups
        if name is not None:
            if not (name.isidentifier() and name.isascii()):
                self._fail("a group's name has letters, digits and _", begin)
            if name in self._names:
                self._fail("a group's name appears twice", begin)
            self._names[name] = number
        node = Subpattern(self._inside(begin), number)
        self._closed.add(number)
        return node

    def _look(self, begin: int, behind: bool, negative: bool) -> Node:
        part = self._inside(begin)
        if not behind:
            return Look(part, behind, negative)
        alternatives = part.parts if isinstance(part, Alternatives) else (part,)
        if any(width(each) is None for each in alternatives):
            self._fail("each alternative of a lookbehind must have a fixed length", begin)
        looks = tuple(Look(each, behind, negative) for each in alternatives)
        return Sequence(looks) if negative else Alternatives(looks)

    def _condition(self, begin: int) -> Node:
        name = self._until(")", "a condition")
        if len(name) > 2 and name[0] + name[-1] in {"<>", "''"}:
            name = name[1:-1]
        number = self._number(name, begin) if name.isdigit() else self._names.get(name)
        if number not in self._closed:
            self._fail("a condition must be the number or name of a group before it", begin)
        parts = self._inside(begin)
        branches = parts.parts if isinstance(parts, Alternatives) else (parts, Sequence(()))
        if len(branches) > 2:
            self._fail("a condition has two alternatives at most", begin)
        return If(number, *branches)

    def _flagged(self, begin: int) -> Node | None:
        """Read `(?i)`, `(?i-m:…)` and `(?:…)`."""
        on, flags = True, frozenset() if self._takes("^") else self._flags
        while (letter := self._next("missing )")) not in ":)":
            if letter == "-" and on:
                on = False
            elif letter in "imsx":
                flags = flags | {letter} if on else flags - {letter}
            else:
                self._fail("this kind of group is not supported", begin)
        before, self._flags = self._flags, flags
        if letter == ")":
            return None
        node = self._inside(begin)
        self._flags = before
        return node

    # -- escapes -----------------------------------------------------------------------------

    def _escape(self, begin: int) -> Node | None:
        letter = self._next("a backslash at the end")
        if letter in _CLASSES:
            return Chars(_CLASSES[letter])
        if letter in _ANCHORS:
            return At(_ANCHORS[letter])
        match letter:
            case "Q" | "E":
                self._quoted = letter == "Q"
                return None
            case "N":
                return Chars(complement(NEWLINE))
            case "R":
                return _LINE_END
            case "p" | "P":
                return Chars(self._property(letter, begin))
            case "g" | "k":
                return self._reference(letter, begin)
            case _ if (
                letter in "123456789"
            ):  # three octal digits that are no group's number, or a reference
                self._at = begin + 1
                digits = self._run("01234567", 3)
                if len(digits) == 3 and int(digits) > self.groups:
                    return self._literal(int(digits, 8))
                self._at = begin + 1
                return self._back(self._number(self._digits(), begin), begin)
        return self._literal(self._code(letter, begin))

    def _code(self, letter: str, begin: int) -> int:
        """Return the character of an escape, in a set and outside."""
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        match letter:
            case "x" | "o" if self._takes("{"):
                return self._checked(
                    self._until("}", f"\\{letter}{{"), 16 if letter == "x" else 8, begin
                )
            case "x":
                return int(self._run("0123456789abcdefABCDEF", 2) or "0", 16)
            case "c":
                return ord(self._next("\\c needs a character").upper()) ^ 64
            case "0":
                self._at -= 1
                return int(self._run("01234567", 3), 8)
        if letter in _UNSUPPORTED:
            self._fail(f"\\{letter} is not supported", begin)
        if letter.isascii() and letter.isalnum():
            self._fail(f"no escape \\{letter}", begin)
        return ord(letter)

    def _checked(self, digits: str, base: int, begin: int) -> int:
        known = "0123456789abcdef"[:base]
        if not digits or len(digits) > 8 or not set(digits.lower()) <= set(known):
            self._fail("no number of a character", begin)
        code = int(digits, base)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self._fail("there is no such character", begin)
        return code

    def _property(self, letter: str, begin: int) -> Ranges:
        name = self._next("\\p needs a name")
        if name == "{":
            name = self._until("}", "\\p{")
        ranges = category(name.removeprefix("^"))
        if ranges is None:
            self._fail("\\p takes Unicode's general categories, such as \\p{L} and \\p{Lu}", begin)
        return complement(ranges) if (letter == "P") != name.startswith("^") else ranges

    def _reference(self, letter: str, begin: int) -> Node:
        for opening, closing in ("{}", "<>", "''"):
            if self._takes(opening):
                if letter == "g" and opening != "{":
                    self._fail("recursion is not supported", begin)
                return self._named(self._until(closing, "a reference"), begin, signed=letter == "g")
        if letter == "k":
            self._fail("\\k needs a name", begin)
        return self._back(self._number(self._digits(), begin), begin)

    def _named(self, name: str, begin: int, *, signed: bool = False) -> Node:
        if signed and name.startswith("-") and name[1:].isdigit():
            return self._back(self.groups + 1 - self._number(name[1:], begin), begin)
        if signed and name.isdigit():
            return self._back(self._number(name, begin), begin)
        if name not in self._names:
            self._fail("there is no group of that name", begin)
        return self._back(self._names[name], begin)

    def _back(self, number: int, begin: int) -> Node:
        if number not in self._closed:
            self._fail(f"a reference to group {number} must stand behind its end", begin)
        ignores_case = "i" in self._flags
        self.ignores_case = self.ignores_case or ignores_case
        return Back(number, ignores_case)

    def _digits(self) -> str:
        return self._run("0123456789", len(self._text))

    def _number(self, digits: str, begin: int) -> int:
        if not digits.isascii() or not 0 < len(digits) < 6 or int(digits) == 0:
            self._fail("there is no such group", begin)
        return int(digits)

    # -- sets --------------------------------------------------------------------------------

    def _set(self, begin: int) -> Ranges:
        if self._text.startswith(":", self._at):
            name = self._text[self._at + 1 : self._text.find("]", self._at)]
            if name.endswith(":") and name[:-1].removeprefix("^") in POSIX:
                self._fail(f"a POSIX class stands within a set: write [[:{name}]]", begin)
        negated = self._takes("^")
        found: list[tuple[int, int]] = []
        first = True  # a ] here is a character
        while first or not self._takes("]"):
            if self._at >= len(self._text):
                self._fail("missing ]", begin)
            if self._takes("\\E"):
                continue
            if self._takes("\\Q"):
                for character in self._until("\\E", "\\Q in a set"):
                    found += self._literal(ord(character)).ranges
                continue
            found += self._member(begin)
            first = False
        ranges = union(found)
        return complement(ranges) if negated else ranges

    def _member(self, begin: int) -> Ranges:
        low, position = self._one(begin), self._at
        if self._text[position : position + 1] != "-" or self._text[position + 1 : position + 2] in {"]", ""}:  # fmt: skip
            return low if isinstance(low, tuple) else self._cased(low, low)
        self._at += 1
        high = self._one(begin)
        if isinstance(low, tuple) or isinstance(high, tuple):
            self._fail("a class is no end of a range: write \\- for the character", position)
        if low > high:
            self._fail("a range that ends before it begins", position)
        return self._cased(low, high)

    def _one(self, begin: int) -> int | Ranges:
        """Read a character of a set, or a class."""
        if self._takes("[.") or self._takes("[="):
            self._fail("collating elements are not supported", begin)
        end = self._text.find(":]", self._at)
        name = self._text[self._at + 2 : end]
        if self._text.startswith("[:", self._at) and end >= 0 and name.removeprefix("^").isalpha():
            return self._posix(name, end + 2)
        if not self._takes("\\"):
            return ord(self._next("missing ]"))
        position, letter = self._at - 1, self._next("missing ]")
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in "pP":
            return self._property(letter, position)
        if letter == "b":
            return 8
        if letter in "1234567":
            self._at -= 1
            return int(self._run("01234567", 3), 8)
        return self._code(letter, position)

    def _posix(self, name: str, end: int) -> Ranges:
        known = name.removeprefix("^")
        if known not in POSIX:
            self._fail("there is no such POSIX class")
        ranges = POSIX["alpha" if known in {"lower", "upper"} and "i" in self._flags else known]
        self._at = end
        return complement(ranges) if name.startswith("^") else ranges
