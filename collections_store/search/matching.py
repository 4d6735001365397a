"""The rules of a match, in Python, and the snippets of a match.

`is_found` is the reference of the databases' indexes. A text is the list of strings of a field.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from .query import SearchQuery, Term
from .words import BOUNDARY, spans_of, words_of

Texts: TypeAlias = Mapping[str, Sequence[str]]
"""The strings of each field."""
Marks: TypeAlias = tuple[str, str]
SNIPPET: Final = 160
"""Characters of a snippet, about."""


def is_found(query: SearchQuery, texts: Texts) -> bool:
    """Return whether the strings of the fields match a query.

    >>> from collections_store.search.query import parsed
    >>> is_found(parsed('"green tea" -cake'), {"text": ["Green tea!", "milk"]})
    True
    """
    words = {field: words_of(f" {BOUNDARY} ".join(strings)) for field, strings in texts.items()}
    return all(any(_has(words, term) for term in each) for each in query.required) and not any(
        _has(words, term) for term in query.excluded
    )


def _has(words: Mapping[str, Sequence[str]], term: Term) -> bool:
    among = words.values() if term.field is None else (words.get(term.field, ()),)
    return any(True for each in among for _ in _places(each, term))


def _places(words: Sequence[str], term: Term) -> Iterator[int]:
    """Yield the positions at which a term begins."""
    *first, last = term.words
    for begin in range(len(words) - len(first)):
        end = begin + len(first)
        fits = words[end].startswith(last) if term.prefix else words[end] == last
        if fits and list(words[begin:end]) == first:
            yield begin


def snippets(query: SearchQuery, texts: Texts, marks: Marks) -> dict[str, str]:
    """Return for each field with a term of the query the passage with most terms, the words of terms between `marks`."""
    found: dict[str, str] = {}
    for field, strings in texts.items():
        terms = [term for term in query.terms if term.field in {None, field}]
        passages = (_passage(string, terms, marks) for string in strings)
        best = max(passages, default=(0, ""), key=lambda each: each[0])
        if best[0]:
            found[field] = best[1]
    return found


def _passage(text: str, terms: Iterable[Term], marks: Marks) -> tuple[int, str]:
    """Return the number of found words in the best passage of a string, and the passage."""
    spans = list(spans_of(text))
    words = [word for word, _, _ in spans]
    places = {
        place + number
        for term in terms
        for place in _places(words, term)
        for number in range(len(term.words))
    }
    hits = [spans[place][1:] for place in sorted(places)]
    if not hits:
        return 0, ""
    ends = [end for _, end in hits]
    counts = [bisect_right(ends, begin + SNIPPET) - n for n, (begin, _) in enumerate(hits)]
    first = max(range(len(hits)), key=counts.__getitem__)
    best = hits[first : first + max(counts[first], 1)]
    margin = max(0, SNIPPET - (best[-1][1] - best[0][0])) // 2
    begin = min(start for _, start, _ in spans if start >= best[0][0] - margin)
    end = max(end for _, _, end in spans if end <= best[-1][1] + margin)
    begin, end = (0 if begin == spans[0][1] else begin), (len(text) if end == spans[-1][2] else end)
    parts, done = ["…" if begin else ""], begin
    for start, stop in best:
        parts += [text[done:start], marks[0], text[start:stop], marks[1]]
        done = stop
    return len(best), "".join([*parts, text[done:end], "…" if end < len(text) else ""])
