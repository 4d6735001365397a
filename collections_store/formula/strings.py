"""Strings. Those that count bytes count them in UTF-8; upper and lower case are those of ASCII."""

from __future__ import annotations

import string
from typing import Any, Final

from ..values import MISSING
from .operands import ABSENT, Unfit, is_null, named, null_for_null, number, text, whole
from .weights import SCALAR, check_length

_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER: Final = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_SPACE: Final = (
    "\0\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
"""What `$trim` takes away by default."""
_MAX: Final = 2**31 - 1


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


def concatenate(*operands: Any) -> Any:
    """`$concat`."""
    length = 0
    for each in operands:
        if is_null(each):
            return None
        length += len(text(each))
    check_length(length)
    return "".join(operands)


def lower(value: Any) -> str:
    """`$toLower`."""
    return in_words(value).translate(_LOWER)


def upper(value: Any) -> str:
    """`$toUpper`."""
    return in_words(value).translate(_UPPER)


def compare_case(left: Any, right: Any) -> int:
    """`$strcasecmp`."""
    one, other = upper(left), upper(right)
    return int(one > other) - int(one < other)


def part_of_bytes(value: Any, start: Any, length: Any) -> str:
    """`$substr`, `$substrBytes`; a negative length means all that follows. Fractions are cut off."""
    encoded = in_words(value).encode()
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
    return in_words(value)[first : first + count]


def count_bytes(value: Any) -> int:
    """`$strLenBytes`."""
    return len(text(value).encode())


def count_characters(value: Any) -> int:
    """`$strLenCP`."""
    return len(text(value))


@null_for_null
def split(value: Any, separator: Any) -> list[str]:
    """`$split`."""
    if not text(separator):
        raise Unfit("needs a separator that is not empty", separator)
    parts = text(value).count(separator) + 1
    check_length(len(value) + parts * SCALAR)
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
    """`$indexOfBytes`."""
    if is_null(value):
        return None
    return _index_of(text(value).encode(), text(searched).encode(), start, end)


def index_of_characters(value: Any, searched: Any, start: Any = 0, end: Any = ABSENT) -> Any:
    """`$indexOfCP`."""
    return None if is_null(value) else _index_of(text(value), text(searched), start, end)


def _index_of(value: Any, searched: Any, start: Any, end: Any) -> int:
    first = 0 if start is ABSENT else whole(start, 0, _MAX)
    last = len(value) if end is ABSENT else whole(end, 0, _MAX)
    found: int = value.find(searched, first, last) if first <= len(value) else -1
    return found


@null_for_null
def replace_one(value: Any, searched: Any, replacement: Any) -> str:
    """`$replaceOne`."""
    check_length(len(text(value)) + len(text(replacement)))
    return text(value).replace(text(searched), replacement, 1)


@null_for_null
def replace_all(value: Any, searched: Any, replacement: Any) -> str:
    """`$replaceAll`."""
    check_length(len(text(value)) + text(value).count(text(searched)) * len(text(replacement)))
    return text(value).replace(searched, replacement)
