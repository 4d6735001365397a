"""String operators, and regular expressions as in filters.

Those that count bytes count them in UTF-8; upper and lower case are those of ASCII.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any, Final

from ...errors import shortened
from ...query.patterns import Pattern, compiled
from ...query.patterns.parser import OPTIONS, InvalidPattern
from ...query.values import MISSING
from .operands import OperandError, integer, is_null, named
from .operands import string as string_of
from .scope import POINTER, SCALAR, STRING, Scope, check_length, check_weight

_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER: Final = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_SPACE: Final = (
    "\0\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
"""What `$trim` removes by default."""
_SMALL: Final = 256
"""Shorter strings are charged when they are made, not before."""


def in_words(value: Any) -> str:
    """Return a string or number as a string; null and missing as an empty one."""
    match value:
        case None:
            return ""
        case str():
            return value
        case float():
            return repr(value).removesuffix(".0")
        case int() if not isinstance(value, bool):
            return str(value)
    if value is MISSING:
        return ""
    raise OperandError(f"requires a string, got {named(value)}", value)


def in_short(value: Any) -> str:
    """Return the same, but a float with six digits, as MongoDB's operators on strings do."""
    return f"{value:g}" if isinstance(value, float) else in_words(value)


def concatenate(scope: Scope, *operands: Any) -> Any:
    """Return one string; null, if an operand is null."""
    length = 0
    for each in operands:
        if isinstance(each, str):
            length += len(each)
        elif is_null(each):
            return None
        else:
            string_of(each)  # raises
    if length > _SMALL:
        check_weight(length)
        scope.hold(4 * length)
    return "".join(operands)


def lower(value: Any) -> str:
    """Return ASCII letters in lower case."""
    return in_short(value).translate(_LOWER)


def upper(value: Any) -> str:
    """Return ASCII letters in upper case."""
    return in_short(value).translate(_UPPER)


def compare_case(left: Any, right: Any) -> int:
    """Return -1, 0 or 1, without regard to case."""
    one, other = upper(left), upper(right)
    return int(one > other) - int(one < other)


def part_of_bytes(value: Any, start: float, length: float) -> str:
    """Return a part, counted in bytes; a negative length means all that follows. Fractions are cut off."""
    encoded, first, count = in_short(value).encode(), integer(int(start), 0), int(length)
    part = encoded[first:] if count < 0 else encoded[first : first + count]
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise OperandError("would cut a character of UTF-8 into pieces", value) from None


def part_of_characters(value: Any, start: int, length: int) -> str:
    """Return a part, counted in characters."""
    return in_short(value)[start : start + length]


def split(scope: Scope, value: str, separator: str) -> list[str]:
    """Return the parts between separators."""
    if not separator:
        raise OperandError("requires a separator that is not empty", separator)
    parts = value.count(separator) + 1
    check_weight(len(value) + parts * SCALAR)
    scope.hold(4 * len(value) + parts * (POINTER + STRING))
    return value.split(separator)


def trim(value: str, characters: str = _SPACE) -> str:
    """Remove characters at both ends."""
    return value.strip(characters)


def trim_left(value: str, characters: str = _SPACE) -> str:
    """Remove characters at the beginning."""
    return value.lstrip(characters)


def trim_right(value: str, characters: str = _SPACE) -> str:
    """Remove characters at the end."""
    return value.rstrip(characters)


def index_of_bytes(value: str, searched: str, start: int = 0, end: int | None = None) -> int:
    """Return the position in bytes, or -1; the occurrence ends before `end`."""
    return value.encode().find(searched.encode(), start, end)


def index_of_characters(value: str, searched: str, start: int = 0, end: int | None = None) -> int:
    """Return the position in characters, or -1; the occurrence begins before `end`, and may end behind it."""
    if value == searched == "":
        return 0
    found = value.find(searched, start)
    return found if found < len(value[:end]) else -1


def replace_one(value: str, searched: str, replacement: str) -> str:
    """Replace the first occurrence."""
    check_weight(len(value) + len(replacement))
    return value.replace(searched, replacement, 1)


def replace_all(scope: Scope, value: str, searched: str, replacement: str) -> str:
    """Replace every occurrence."""
    length = len(value) + value.count(searched) * len(replacement)
    check_weight(length)
    scope.hold(4 * length)
    return value.replace(searched, replacement)


def regex(pattern: str, options: str) -> Pattern:
    """Return the pattern; raises `OperandError`."""
    if not set(options) <= set(OPTIONS):
        known = ", ".join(OPTIONS)
        raise OperandError(f"options must be of {known}, got {shortened(options)}", options)
    try:
        return compiled(pattern, options)
    except InvalidPattern as error:
        raise OperandError(f"has an {error.problem}", pattern) from None


def is_found(value: Any, pattern: Any, options: Any = None) -> bool:
    """Return whether a pattern is found."""
    expression = _regex(value, pattern, options)
    return expression is not None and expression.is_found(string_of(value))


def find(value: Any, pattern: Any, options: Any = None) -> Any:
    """Return the first occurrence, or null."""
    return next(_found(value, pattern, options), None)


def find_all(value: Any, pattern: Any, options: Any = None) -> list[Any]:
    """Return all occurrences."""
    found = []
    for each in _found(value, pattern, options):
        found.append(each)
        check_length(8 * len(found))
    return found


def _regex(value: Any, pattern: Any, options: Any) -> Pattern | None:
    """Return the pattern; None: there is none, or no string to search."""
    flags = "" if is_null(options) else string_of(options)
    if is_null(value) or is_null(pattern):
        return None
    return regex(string_of(pattern), flags)


def _found(value: Any, pattern: Any, options: Any) -> Iterator[dict[str, Any]]:
    expression, position = _regex(value, pattern, options), 0
    if expression is None:
        return
    text = string_of(value)
    while found := expression.find(text, position):
        (begin, end), *groups = found
        captures = [text[b:e] if b >= 0 else None for b, e in groups]
        yield {"match": text[begin:end], "idx": begin, "captures": captures}
        position = end if end > begin else begin + 1
        if position >= len(text):
            return
