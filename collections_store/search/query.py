"""The query language: words, "phrases", prefixes*, OR, -exclusions, field:word.

The parser accepts every string with a word: characters without a meaning separate words. A query is a conjunction of
alternatives, without the excluded terms. The parser needs the fields of the index, because "12:30" names no field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from ..errors import InvalidSearch, shortened
from ..expressions.classes import value_class
from .words import BOUNDARY, MAX_WORD, words_of

MAX_QUERY: Final = 10_000
"""Characters of a query."""
MAX_TERMS: Final = 100
_TERM: Final = re.compile(
    r"""(?P<minus>-?)
        (?:(?P<field>[^\s":]+):(?=[^\s:]))?
        (?:"(?P<phrase>[^"]*)(?:"|$)(?P<star>\*?)|(?P<word>[^\s"]+))""",
    re.VERBOSE,
)


@value_class(eq=True)
class Term:
    """Consecutive words in a field, by default in any. `prefix`: the last word is the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False
    field: str | None = None


@value_class(eq=True)
class SearchQuery:
    """At least one term of each `required` tuple is found, and no `excluded` term."""

    required: tuple[tuple[Term, ...], ...]
    excluded: tuple[Term, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of which a match may have any."""
        return tuple(term for alternatives in self.required for term in alternatives)


def check_query(query: Any) -> str:
    """Return a query, parsed for the given fields; raises `InvalidSearch`."""
    if not isinstance(query, str):
        raise InvalidSearch(query, f"must be a string, got {shortened(query)}")
    parsed(query)
    return query


def any_word(text: Any) -> str:
    """Return the query for documents with any word of a text, in which no character has a meaning: of its first 100 words.
    Raises `InvalidSearch`.

    >>> any_word("Is it -10 today? It is!")
    'is OR it OR 10 OR today'
    """
    if not isinstance(text, str):
        raise InvalidSearch(text, f"must be a string, got {shortened(text)}")
    words = (word for word in words_of(text.replace(BOUNDARY, " ")) if 0 < len(word) <= MAX_WORD)
    return " OR ".join(islice(dict.fromkeys(words), MAX_TERMS)) or check_query(text)


@lru_cache(maxsize=256)
def parsed(query: str, fields: frozenset[str] = frozenset()) -> SearchQuery:
    """Parse a query over fields; raises `InvalidSearch`. OR at an end, or beside an exclusion, is a word.

    >>> parsed('tea -cake title:"green tea" OR chin*', frozenset({"title"})).excluded
    (Term(words=('cake',), prefix=False, field=None),)
    """
    if len(query) > MAX_QUERY:
        raise InvalidSearch(
            query, f"must have at most {MAX_QUERY:,} characters, got {len(query):,}"
        )
    items = list(_terms(query, fields))
    required: list[list[Term]] = []
    excluded: list[Term] = []
    joins = False
    for number, (term, is_excluded, is_or) in enumerate(items):
        between = items[number - 1 : number] + items[number + 1 : number + 2]
        if is_or and not joins and len(between) == 2 and not any(each[1] for each in between):
            joins = True
            continue
        if is_excluded:
            excluded.append(term)
        elif joins:
            required[-1].append(term)
        else:
            required.append([term])
        joins = False
    _check(query, required, excluded)
    return SearchQuery(tuple(map(tuple, required)), tuple(excluded))


def _terms(query: str, fields: Collection[str]) -> Iterator[tuple[Term, bool, bool]]:
    """Yield the terms that have words, each with whether it is excluded, and whether it is OR."""
    for found in _TERM.finditer(query.replace(BOUNDARY, " ")):
        field, text = found["field"], found["phrase"]
        word: str = found["word"] or ""
        if text is None:
            text = word
        if field not in fields:
            text, field = f"{field or ''} {text}", None
        words = tuple(filter(None, words_of(text)))
        if words:
            prefix = bool(found["star"]) or word.endswith("*")
            yield Term(words, prefix, field), bool(found["minus"]), found[0] == "OR"


def _check(query: str, required: list[list[Term]], excluded: list[Term]) -> None:
    terms = [*(term for alternatives in required for term in alternatives), *excluded]
    if not required and excluded:
        raise InvalidSearch(
            query, "must have a word that documents have, beside the excluded words"
        )
    if not required:
        raise InvalidSearch(query, "must have a word: letters or digits")
    if len(terms) > MAX_TERMS or sum(len(term.words) for term in terms) > MAX_TERMS:
        raise InvalidSearch(query, f"must have at most {MAX_TERMS} words")
    for word in (word for term in terms for word in term.words):
        if len(word) > MAX_WORD:
            raise InvalidSearch(
                query, f"a word must have at most {MAX_WORD} characters: {shortened(word)}"
            )
