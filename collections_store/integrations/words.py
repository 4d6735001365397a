"""Queries for the words of a text that somebody wrote, such as a question."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_MAX_WORDS: Final = 100
_MAX_WORD: Final = 90
"""Characters. A query has at most 10,000, and 100 words."""
_SEPARATORS: Final = re.compile("[\ufe00-\ufe0f\U0001f000-\U0001fbff\U000e0100-\U000e01ef]")
"""Marks and digits that separate words, as the other symbols do."""


def any_word(text: str) -> str:
    """Return the query for documents with a word of a text, or "" for a text without words. Of a long text the first
    100 different words count.

    >>> any_word("What's in the pot - tea OR coffee?")
    '"What" OR "s" OR "in" OR "the" OR "pot" OR "tea" OR "OR" OR "coffee"'
    """
    marked = _SEPARATORS.sub(" ", text)
    parts = (each if unicodedata.category(each)[0] in "LMN" else " " for each in marked)
    words = (word for word in dict.fromkeys("".join(parts).split()) if _is_word(word))
    return " OR ".join([f'"{word}"' for word in words][:_MAX_WORDS])


def _is_word(word: str) -> bool:
    return len(word) <= _MAX_WORD and any(map(str.isalnum, word))
