"""Strings, regular expressions as in filters, and conversions between types.

Operators on bytes count in UTF-8; upper and lower case are those of ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

from ..codec.times import iso
from ..errors import shortened
from .evaluation import (
    POINTER,
    SCALAR,
    STRING,
    OperandError,
    Scope,
    check_size,
    integer,
    is_null,
    named,
    string,
)
from .patterns import Pattern, compiled
from .patterns.parser import OPTIONS, InvalidPattern
from .times import ConversionError, instant, is_time, milliseconds
from .values import MISSING, NON_JSON_TYPES, is_int, is_number

LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
UPPER: Final = str.maketrans(ascii_lowercase, ascii_uppercase)
SPACE: Final = (
    "\0\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
)
"""The characters that `$trim` removes by default."""
TYPES: Final[dict[Any, str]] = {
    "double": "double", "string": "string", "bool": "bool", "date": "date", "int": "int",
    "long": "long", 1: "double", 2: "string", 8: "bool", 9: "date", 16: "int", 18: "long",
}  # fmt: skip
"""The types that `$convert` converts to, by name and number."""
CONVERSIONS: Final = {
    "$toString": "string", "$toBool": "bool", "$toDate": "date", "$toDouble": "double",
    "$toInt": "int", "$toLong": "long",
}  # fmt: skip
"""The type to which an operator converts."""
_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    float: "double",
    str: "string",
    dict: "object",
    list: "array",
}
_SMALL: Final = 256
"""Shorter strings are charged when they are made, not before."""


def in_words(value: Any) -> str:
    """Return a string or number as a string; null and missing as an empty string."""
    if isinstance(value, str):
        return value
    if is_null(value):
        return ""
    if is_number(value):
        return repr(value).removesuffix(".0")
    raise OperandError(f"requires a string, got {named(value)}", value)


def in_short(value: Any) -> str:
    """Return the same, but a float with six digits, as MongoDB's operators on strings do."""
    return f"{value:g}" if isinstance(value, float) else in_words(value)


def concatenate(scope: Scope, *operands: Any) -> Any:
    """Return a single string; null, if an operand is null."""
    length = 0
    for each in operands:
        if isinstance(each, str):
            length += len(each)
        elif is_null(each):
            return None
        else:
            string(each)  # raises
    if length > _SMALL:
        check_size(length)
        scope.hold(4 * length)
    return "".join(operands)


def compare_case(left: Any, right: Any) -> int:
    """Return -1, 0 or 1, without regard to case."""
    one, other = in_short(left).translate(UPPER), in_short(right).translate(UPPER)
    return int(one > other) - int(one < other)


def part_of_bytes(value: Any, start: float, length: float) -> str:
    """Return a part, counted in bytes; a negative length means the rest. Fractions are cut off."""
    encoded, first, count = in_short(value).encode(), integer(int(start), 0), int(length)
    part = encoded[first:] if count < 0 else encoded[first : first + count]
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise OperandError("would cut a character of UTF-8 into pieces", value) from None


def split(scope: Scope, value: str, separator: str) -> list[str]:
    """Return the parts between separators."""
    if not separator:
        raise OperandError("requires a separator that is not empty", separator)
    parts = value.count(separator) + 1
    check_size(len(value) + parts * SCALAR)
    scope.hold(4 * len(value) + parts * (POINTER + STRING))
    return value.split(separator)


def index_of_characters(value: str, searched: str, start: int = 0, end: int | None = None) -> int:
    """Return the position in characters, or -1; the occurrence begins before `end`, and may end behind `end`."""
    if value == searched == "":
        return 0
    found = value.find(searched, start)
    return found if found < len(value[:end]) else -1


def replace_one(value: str, searched: str, replacement: str) -> str:
    """Replace the first occurrence."""
    check_size(len(value) + len(replacement))
    return value.replace(searched, replacement, 1)


def replace_all(scope: Scope, value: str, searched: str, replacement: str) -> str:
    """Replace every occurrence."""
    length = len(value) + value.count(searched) * len(replacement)
    check_size(length)
    scope.hold(4 * length)
    return value.replace(searched, replacement)


# -- regular expressions -----------------------------------------------------------------------


def regex(pattern: str, options: str) -> Pattern:
    """Return the pattern; raises `OperandError`."""
    if not set(options) <= set(OPTIONS):
        known = ", ".join(OPTIONS)
        raise OperandError(f"options must be of {known}, got {shortened(options)}", options)
    try:
        return compiled(pattern, options)
    except InvalidPattern as error:
        raise OperandError(f"has an {error.problem}", pattern) from None


def _regex(value: Any, pattern: Any, options: Any) -> Pattern | None:
    """Return the pattern; None: no pattern, or no string to search."""
    flags = "" if is_null(options) else string(options)
    return None if is_null(value) or is_null(pattern) else regex(string(pattern), flags)


def is_found(value: Any, pattern: Any, options: Any = None) -> bool:
    """Return whether a pattern is found."""
    expression = _regex(value, pattern, options)
    return expression is not None and expression.is_found(string(value))


def occurrences(value: Any, pattern: Any, options: Any = None) -> Iterator[dict[str, Any]]:
    """Yield the occurrences of a pattern."""
    expression, position = _regex(value, pattern, options), 0
    if expression is None:
        return
    text = string(value)
    while found := expression.find(text, position):
        (begin, end), *groups = found
        captures = [text[b:e] if b >= 0 else None for b, e in groups]
        yield {"match": text[begin:end], "idx": begin, "captures": captures}
        position = end if end > begin else begin + 1
        if position >= len(text):
            return


def find_all(value: Any, pattern: Any, options: Any = None) -> list[Any]:
    """Return all occurrences."""
    found = []
    for each in occurrences(value, pattern, options):
        found.append(each)
        check_size(8 * SCALAR * len(found))
    return found


# -- types -------------------------------------------------------------------------------------


def type_of(value: Any) -> str:
    """Return MongoDB's name of the type, or "missing"."""
    if value is MISSING:
        return "missing"
    if type(value) is int:
        return "int" if is_int(value) else "long"
    return _NAMES[type(value)]


def type_named(wanted: Any) -> str:
    """Return the type of a name or a number, also in `{"type": …}`; raise `OperandError`."""
    if isinstance(wanted, dict) and wanted.keys() == {"type"}:
        wanted = wanted["type"]
    name = None if isinstance(wanted, bool | list | dict) else TYPES.get(wanted)
    if name is None:
        known = ", ".join(sorted(set(TYPES.values())))
        lacking = f"cannot convert to {wanted}, which JSON lacks: " * (wanted in NON_JSON_TYPES)
        raise OperandError(f"{lacking}requires a type of {known}, got {named(wanted)}")
    return name


def convert(value: Any, to: Any) -> Any:
    """Return a value in the type `to`, null if either is null; raise `OperandError`."""
    name = None if is_null(to) else type_named(to)  # refused also for null
    return None if name is None or is_null(value) else _converted(value, name)


def _converted(value: Any, name: str) -> Any:
    if isinstance(value, list | dict) and name != "bool":
        raise ConversionError(f"cannot convert {named(value)} to {name}", value)
    if name in {"long", "double"} and is_time(value):
        value = milliseconds(value)
    match name:
        case "date":
            return iso(instant(value))
        case "bool":
            return bool(value) if isinstance(value, bool | int | float) else True
        case "string":
            return str(value).lower() if isinstance(value, bool) else in_words(value)
        case "double":
            return float(_parsed(value, float, "eE.+-") if isinstance(value, str) else value)
    bound = 2**31 if name == "int" else 2**63
    number = _parsed(value, int, "+-") if isinstance(value, str) else value
    if not -bound <= number < bound:
        problem = f"gives no integer from {-bound} to {bound - 1}: {named(value)}"
        raise ConversionError(problem, value)
    return int(number)


def _parsed(value: str, make: Callable[[str], Any], besides: str) -> Any:
    try:
        if value.isascii() and all(each.isdigit() or each in besides for each in value):
            found = make(value[:400])
            if len(value) <= 400 and is_number(found) and abs(found) != float("inf"):
                return found
    except ValueError:
        pass
    raise ConversionError(f"cannot read {named(value)} as a number", value) from None
