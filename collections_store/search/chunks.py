"""Chunks: parts of a long text, each short enough for an embedding model.

A chunk ends at the end of a paragraph, else of a line, of a sentence, of a word, as late as it may. Chunks do not
overlap, and a short text is a single chunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import index
from typing import Any, Final, TypeAlias

from ..errors import InvalidIndex, shortened

Span: TypeAlias = tuple[int, int]
"""The first character of a chunk, and the character behind it."""
Cut: TypeAlias = Callable[[str], Iterable[Span]]
"""Returns the chunks of a text."""
LENGTH: Final = 2000
"""Characters of a chunk, about 500 tokens of English, by default."""
_ENDS: Final = tuple(
    re.compile(pattern)
    for pattern in (r"\n\s*\n", r"\n", r"[.!?…](?=\s)|[。！？]", r"\s+")  # noqa: RUF001
)


def cut_of(chunks: Any) -> Cut:
    """Return the function for the option `chunks` of an index: a number of characters, or a function; raises
    `InvalidIndex`.
    """
    if callable(chunks):
        return chunks  # type: ignore[no-any-return]
    if type(chunks) is int and chunks > 0:
        return partial(chunks_of, length=chunks)
    problem = f"must be a number of characters, or a function, got {shortened(chunks)}"
    raise InvalidIndex("chunks", problem)


def spans(cut: Cut | None, text: str) -> Iterator[Span]:
    """Yield the chunks that a function makes of a text, or None; raises `ValueError` for chunks out of the text."""
    if cut is None:
        yield from chunks_of(text)
        return
    for given in cut(text):
        try:
            start, stop = map(index, given)
        except (TypeError, ValueError):
            start = stop = 0
        if not 0 <= start < stop <= len(text):
            problem = f"chunks must return (start, stop) pairs of a text of {len(text)} characters"
            raise ValueError(f"{problem}, got {shortened(given)}")
        yield start, stop


def chunks_of(text: str, length: int = LENGTH) -> Iterator[Span]:
    """Yield the chunks of a text, without the white space around them.

    >>> text = "Tea is hot. Ice is cold.\\n\\nAll is well."
    >>> [text[start:stop] for start, stop in chunks_of(text, 20)]
    ['Tea is hot.', 'Ice is cold.', 'All is well.']
    """
    start = 0
    while start < len(text):
        if text[start].isspace():
            start += 1
            continue
        stop = _end(text, start, length)
        part = text[start:stop].rstrip()
        yield start, start + len(part)
        start = stop


def _end(text: str, start: int, length: int) -> int:
    """Return the end of the chunk from `start`."""
    limit = start + length
    if len(text) - start <= length:
        return len(text)
    for pattern in _ENDS:
        ends = [found.end() for found in pattern.finditer(text, start, limit + 1)]
        # a match may reach over the limit, but its white space is not part of the chunk
        fitting = [end for end in ends if len(text[start:end].rstrip()) <= length]
        if fitting:
            return fitting[-1]
    return limit
