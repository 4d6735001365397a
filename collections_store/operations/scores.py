"""Documents with the score of a `$text`: for the order of `find`, and for stages of a pipeline.

The database sorts by the score alone, and decides the rest of the filter (`best`). If it cannot, the scores of all
matches are read first, and Python sorts the documents.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Any, Final

from ..codec import Decode, decode
from ..document import NO_TEXT, Document, Scored, with_other_body
from ..errors import InvalidFilter, InvalidSort
from ..expressions.classes import value_class
from ..query.conditions import And, Text, holds_text
from ..query.filter import Filter, conjuncts
from ..query.projection import Projection
from ..query.sort import BY_SCORE, Sort
from ..query.text_index import NO_TEXT_INDEX
from ..sql.select import Statements
from .by_id import as_document
from .operation import Operation
from .read import matching, returned
from .session import Session

_BEST_FIRST: Final = Sort.parse({"score": BY_SCORE}, scored=True)


@value_class
class FindScored(Operation[list[Document]]):
    """Read the matching documents of a filter with a `$text`, as `Find` does, in an order or with a projection that has
    the score.
    """

    collection: str
    filter: Filter
    sort: Sort
    skip: int = 0
    limit: int | None = None
    projection: Projection | None = None
    decode: Decode = field(default=decode, repr=False)
    method: str = field(default="find", repr=False)
    atomic = True
    empty = list

    def __call__(self, session: Session) -> list[Document]:
        with session.transaction(write=False):
            found = self._window(session)
        if self.projection is None:
            found = (with_other_body(each, each.body) for each in found)
        return list(returned(session, self, found))

    def _window(self, session: Session) -> Iterable[Document]:
        collection, filter, sort, skip = self.collection, self.filter, self.sort, self.skip
        if self.limit is not None and sorts_by_score(session, collection, filter, sort):
            return best(session, collection, filter, skip, self.limit)
        found = scored(session, collection, filter)
        end = None if self.limit is None else skip + self.limit
        if not sort:
            return list(islice(found, skip, end))
        key = partial(sort.key, ordered=session.database.ordered_keys)
        ordered = sorted(found, key=key) if end is None else heapq.nsmallest(end, found, key=key)
        return ordered[skip:]


def find_scored(collection: str, filter: Filter, sort: Sort, *options: Any) -> FindScored:
    """Return the operation; raises `InvalidSort` for a filter without a `$text`."""
    if not holds_text(filter.condition):
        raise InvalidSort("$meta", NO_TEXT)
    return FindScored(collection, filter, sort, *options)


def scored(session: Session, collection: str, filter: Filter) -> Iterator[Scored]:
    """Yield the matching documents in natural order. To be called in a transaction."""
    statements, (words, _) = _searched(session, collection), _separated(filter)
    scores = dict(session.rows(statements.scores, statements.search_parameters(words)))
    for seq, document in matching(session, collection, filter):
        if seq in scores:  # a caller's transaction may see later commits
            yield _with_score(document, scores[seq])


def sorts_by_score(session: Session, collection: str, filter: Filter, sort: Sort | None) -> bool:
    """Return whether the database sorts: by the score alone, and decides the whole filter."""
    if sort != _BEST_FIRST:
        return False
    _, rest = _separated(filter)
    return not _searched(session, collection).search(rest, natural=True).residual


def best(session: Session, collection: str, filter: Filter, skip: int, limit: int) -> list[Scored]:
    """Return the documents with the highest scores, equal ones in natural order, where `sorts_by_score`."""
    statements, (words, rest) = _searched(session, collection), _separated(filter)
    query = statements.search(rest, natural=True)
    window = {"skip": skip, "limit": limit, **statements.search_parameters(words)}
    rows = session.rows(query.sql, query.parameters(rest, window))
    return [_with_score(as_document(row[2:], collection), row[0]) for row in rows]


def _searched(session: Session, collection: str) -> Statements:
    statements = session.collection(collection)
    if statements.options.text is None:
        raise InvalidFilter("$text", NO_TEXT_INDEX)
    return statements


def _separated(filter: Filter) -> tuple[str, Filter]:
    """Return the query of the first `$text`, and the rest of the filter."""
    parts = conjuncts(filter.condition)
    number = next(n for n, each in enumerate(parts) if isinstance(each, Text))
    text: Any = parts[number]
    return text.query.value, Filter(And((*parts[:number], *parts[number + 1 :])))


def _with_score(document: Document, score: float) -> Scored:
    times = document.created_us, document.updated_us, document.expires_us
    return Scored(document.id, document.body, document.version, *times, score)
