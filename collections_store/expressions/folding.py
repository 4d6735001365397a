"""Simple case and accent folding, by Unicode's tables in Python.

The folded forms of two strings are equal if the strings differ only in case, or only in case and marks. ICU is not needed.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_MARK: Final = "Mn"
"""The category of marks that take no room, such as accents."""


def folded_case(string: str) -> str:
    """Return a string decomposed and without case: equal for strings that differ only in case or normal form.

    >>> folded_case("Stra\\u00dfe") == folded_case("STRASSE")
    True
    """
    if string.isascii():
        return string.lower()
    return unicodedata.normalize("NFD", string).casefold()


def folded_marks(string: str) -> str:
    """Return a string decomposed, without case and without marks.

    >>> folded_marks("CAF\\u00c9")
    'cafe'
    """
    if string.isascii():
        return string.lower()
    decomposed = unicodedata.normalize("NFD", string)
    return "".join(c for c in decomposed if unicodedata.category(c) != _MARK).casefold()
