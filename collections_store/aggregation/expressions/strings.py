"""String operators, and regular expressions as in filters.

Those that count bytes count them in UTF-8; upper and lower case are those of ASCII.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...errors import shortened
from ...query.patterns.parser import OPTIONS, InvalidPattern
from ...query.patterns.pattern import Pattern, compiled
from ...query.values import MISSING
from .operands import (
    ABSENT,
    POINTER,
    SCALAR,
    STRING,
    Unfit,
    check_elements,
    check_length,
    is_null,
    named,
    null_for_null,
    number,
    text,
    whole,
)

_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER: Final = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_SPACE: Final = (
    "\0\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
"""What `$trim` takes away by default."""
_MAX: Final = 2**31 - 1


def in_short(value: Any) -> str:
    """Return what `in_words` does, but a float with six digits, as MongoDB's operators on strings do."""
    return f"{value:g}" if isinstance(value, float) else in_words(value)


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
    raise Unfit(f"needs a string, not {named(value)}", value)


def concatenate(*operands: Any, hold: Callable[[int], None]) -> Any:
    """`$concat`."""
    length = 0
    for each in operands:
        if is_null(each):
            return None
        length += len(text(each))
    check_length(length)
    hold(4 * length)
    return "".join(operands)


def lower(value: Any) -> str:
    """`$toLower`."""
    return in_short(value).translate(_LOWER)


def upper(value: Any) -> str:
    """`$toUpper`."""
    return in_short(value).translate(_UPPER)


def compare_case(left: Any, right: Any) -> int:
    """`$strcasecmp`."""
    one, other = upper(left), upper(right)
    return int(one > other) - int(one < other)


def part_of_bytes(value: Any, start: Any, length: Any) -> str:
    """`$substr`, `$substrBytes`; a negative length means all that follows. Fractions are cut off."""
    encoded = in_short(value).encode()
    first = whole(int(number(start)), 0)
    count = int(number(length))
    cut = encoded[first:] if count < 0 else encoded[first : first + count]
    try:
        return cut.decode()
    except UnicodeDecodeError:
        raise Unfit("would cut a character of UTF-8 into pieces", value) from None


def part_of_characters(value: Any, start: Any, length: Any) -> str:
    """`$substrCP`."""
    first, count = whole(start, 0, _MAX), whole(length, 0, _MAX)
    return in_short(value)[first : first + count]


def count_bytes(value: Any) -> int:
    """`$strLenBytes`."""
    return len(text(value).encode())


def count_characters(value: Any) -> int:
    """`$strLenCP`."""
    return len(text(value))


@null_for_null
def split(value: Any, separator: Any, *, hold: Callable[[int], None]) -> list[str]:
    """`$split`."""
    if not text(separator):
        raise Unfit("needs a separator that is not empty", separator)
    parts = text(value).count(separator) + 1
    check_length(len(value) + parts * SCALAR)
    hold(4 * len(value) + parts * (POINTER + STRING))
    return text(value).split(separator)


def trim(value: Any, characters: Any = ABSENT) -> Any:
    """`$trim`."""
    return _trimmed(str.strip, value, characters)


def trim_left(value: Any, characters: Any = ABSENT) -> Any:
    """`$ltrim`."""
    return _trimmed(str.lstrip, value, characters)


def trim_right(value: Any, characters: Any = ABSENT) -> Any:
    """`$rtrim`."""
    return _trimmed(str.rstrip, value, characters)


def _trimmed(function: Any, value: Any, characters: Any) -> Any:
    taken = _SPACE if characters is ABSENT else characters
    return None if is_null(value) or is_null(taken) else function(text(value), text(taken))


def index_of_bytes(value: Any, searched: Any, start: Any = 0, end: Any = ABSENT) -> Any:
    """`$indexOfBytes`: what is found ends before `end`."""
    if is_null(value):
        return None
    encoded = text(value).encode()
    return encoded.find(text(searched).encode(), *_window(encoded, start, end))


def index_of_characters(value: Any, searched: Any, start: Any = 0, end: Any = ABSENT) -> Any:
    """`$indexOfCP`: what is found begins before `end`, and may go on behind it."""
    if is_null(value):
        return None
    first, last = _window(text(value), start, end)
    if value == text(searched) == "":
        return 0
    found = value.find(searched, first)
    return found if found < last else -1


def _window(value: Any, start: Any, end: Any) -> tuple[int, int]:
    first = 0 if start is ABSENT else whole(start, 0, _MAX)
    return first, len(value) if end is ABSENT else min(len(value), whole(end, 0, _MAX))


@null_for_null
def replace_one(value: Any, searched: Any, replacement: Any) -> str:
    """`$replaceOne`."""
    check_length(len(text(value)) + len(text(replacement)))
    return text(value).replace(text(searched), replacement, 1)


@null_for_null
def replace_all(value: Any, searched: Any, replacement: Any, *, hold: Callable[[int], None]) -> str:
    """`$replaceAll`."""
    length = len(text(value)) + text(value).count(text(searched)) * len(text(replacement))
    check_length(length)
    hold(4 * length)
    return text(value).replace(searched, replacement)


def read(pattern: str, options: str) -> Pattern:
    """Return the pattern; raises `Unfit`."""
    if not set(options) <= set(OPTIONS):
        known = ", ".join(OPTIONS)
        raise Unfit(f"options must be of {known}, got {shortened(options)}", options)
    try:
        return compiled(pattern, options)
    except InvalidPattern as error:
        raise Unfit(f"has an {error.problem}", pattern) from None


def is_found(value: Any, pattern: Any, options: Any = ABSENT) -> bool:
    """`$regexMatch`."""
    chosen = "" if options is ABSENT or is_null(options) else text(options)
    if is_null(value) or is_null(pattern):
        return False
    return read(text(pattern), chosen).is_found(text(value))


def find(value: Any, pattern: Any, options: Any = ABSENT) -> Any:
    """`$regexFind`."""
    return next(_found(value, pattern, options), None)


def find_all(value: Any, pattern: Any, options: Any = ABSENT) -> list[Any]:
    """`$regexFindAll`."""
    every = []
    for each in _found(value, pattern, options):
        every.append(each)
        check_elements(8 * len(every))
    return every


def _found(value: Any, pattern: Any, options: Any) -> Iterator[dict[str, Any]]:
    chosen = "" if options is ABSENT or is_null(options) else text(options)
    if is_null(value) or is_null(pattern):
        return
    expression, string = read(text(pattern), chosen), text(value)
    place = 0
    while found := expression.find(string, place):
        (begin, end), *groups = found
        captures = [string[b:e] if b >= 0 else None for b, e in groups]
        yield {"match": string[begin:end], "idx": begin, "captures": captures}
        place = end if end > begin else begin + 1
        if place >= len(string):
            return
