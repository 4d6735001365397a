"""Regular expressions: those of Python's `re`, as in filters, looked for by `re.search`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from ..errors import cut, shortened
from .operands import ABSENT, Unfit, is_null, text
from .weights import check_elements

FLAGS: Final = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


@lru_cache(maxsize=256)
def compiled(pattern: str, options: str) -> re.Pattern[str]:
    """Return the pattern; raises `Unfit`."""
    if not set(options) <= FLAGS.keys():
        raise Unfit(f"has options {shortened(options)}: there are i, m, s and x", options)
    flags = 0
    for letter in options:
        flags |= FLAGS[letter]
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise Unfit(f"has no regular expression: {cut(str(error))}", pattern) from None


def is_found(value: Any, pattern: Any, options: Any = ABSENT) -> bool:
    """`$regexMatch`."""
    return find(value, pattern, options) is not None


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
    expression = compiled(text(pattern), chosen)
    place = 0
    while match := expression.search(text(value), place):
        yield {"match": match[0], "idx": match.start(), "captures": list(match.groups())}
        place = match.end() if match[0] else match.start() + 1
        if place >= len(value):
            return
