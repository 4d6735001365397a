"""Searches by words: the documents that the text index finds, best first.

One statement joins the index with the documents and the filter. If the matcher decides a part of the filter, rows are
read in batches, each behind the last row of the previous one.

Without a filter, the scores of the index alone decide which documents are read (`_best`). If expired documents are
among them, the statement above decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import partial
from typing import Any, Final, NamedTuple

from ..codec import Decode, decode
from ..document import Document, now
from ..errors import InvalidCursor, InvalidOption, shortened
from ..expressions.classes import value_class
from ..expressions.path import Path
from ..options import check_choice
from ..query.conditions import And, Text, Value
from ..query.cursor import Position, seal, unseal
from ..query.filter import Filter
from ..query.matcher import matches
from ..query.sort import NUMBER, STRING, Sort, SortField
from ..query.text_index import TextIndex
from ..results import SearchPage, SearchResult
from ..search.matching import Marks, snippets
from ..search.query import any_word, check_query
from ..sql.select import Statements
from .by_id import as_document
from .operation import Operation
from .read import MIN_BATCH, ReadsDocuments, next_limit, returned
from .session import Session

EVERYTHING_FILTER: Final = Filter()
HIGHLIGHT: Final = ("**", "**")
_ORDER: Final = Sort((SortField(Path("$meta", "textScore"), True), SortField("id")))
"""The order in the seal of a cursor; no page has it."""


class _Row(NamedTuple):
    score: float
    document: Document


def words_of(query: Any, match: Any) -> str:
    """Return a checked query. `match="any"`: the query of any word of a text."""
    check_choice("match", match, ("all", "any"))
    return check_query(any_word(query) if match == "any" else query)


@value_class
class FindWords(Operation[SearchPage]):
    """Find the documents with the words of a query that match a filter: up to `limit`, after the first `skip`, or after the
    position of a cursor. `marks`: the strings around found words in snippets.
    """

    collection: str
    query: str
    filter: Filter
    limit: int
    skip: int = 0
    after: str | None = None
    marks: Marks | None = None
    decode: Decode = field(default=decode, repr=False)
    method = "search"
    atomic = True
    empty = partial(SearchPage, ())
    projection = None

    def __call__(self, session: Session) -> SearchPage:
        statements = session.collection(self.collection)
        parameters = statements.search_parameters(self.query)
        key, position = statements.options.cursor_key, None
        if self.after is not None:
            position = _read(unseal(self.after, key, self._sealed, _ORDER))
        found = self._found(session, statements, parameters, position)
        page = found[: self.limit]
        results = tuple(self._results(session, statements, page))
        if len(found) <= self.limit:
            return SearchPage(results)
        score, last = page[-1]
        keys = (NUMBER, score), (STRING, last.id)
        return SearchPage(results, seal(Position(keys, 0), key, self._sealed, _ORDER))

    @property
    def _sealed(self) -> Filter:
        """The query and the filter, as the filter of the cursor."""
        words = Text(Value("search", self.query, self.query))
        return Filter(And((words, self.filter.condition)))

    def _found(
        self,
        session: Session,
        statements: Statements,
        parameters: dict[str, str],
        position: dict[str, Any] | None,
    ) -> list[_Row]:
        """Return up to one row more than the limit."""
        if position is None and self.filter == EVERYTHING_FILTER:
            best = self._best(session, statements, parameters)
            if best is not None:
                return best
        query = statements.search(self.filter, after=position is not None)
        if query.residual:
            with session.transaction(write=False):
                found = self._decided(session, statements, parameters, position)
                return [
                    row for _, row in zip(range(self.skip + self.limit + 1), found, strict=False)
                ][self.skip :]
        window: dict[str, Any] = {
            "skip": self.skip,
            "limit": self.limit + 1,
            **parameters,
            **(position or {}),
        }
        return self._rows(session.rows(query.sql, query.parameters(self.filter, window)))

    def _best(
        self, session: Session, statements: Statements, parameters: dict[str, str]
    ) -> list[_Row] | None:
        """Return up to one row more than the limit; None if expired documents are among the best of the index."""
        wanted = self.limit + 1
        given = {"now": now(), "skip": self.skip, "limit": wanted, **parameters}
        rows = session.rows(statements.best, given)
        if len(rows) < wanted and (not rows or rows[0][0] > self.skip + len(rows)):
            return None
        return self._rows([row[1:] for row in rows])

    def _decided(
        self,
        session: Session,
        statements: Statements,
        parameters: dict[str, str],
        position: dict[str, Any] | None,
    ) -> Iterator[_Row]:
        """Yield the rows for which the matcher decides the rest of the filter, in batches."""
        batch, ordered = max(self.limit, MIN_BATCH), session.database.ordered_keys
        while True:
            query = statements.search(self.filter, after=position is not None)
            window: dict[str, Any] = {"skip": 0, "limit": batch, **parameters, **(position or {})}
            read = session.rows(query.sql, query.parameters(self.filter, window))
            rows = self._rows(read)
            rest = query.rest(self.filter)
            yield from (row for row in rows if matches(rest, row.document, ordered=ordered))
            if len(rows) < batch:
                return
            position = {"score": rows[-1].score, "id": rows[-1].document.id}
            # a batch ranks all words again, so each is as long as memory allows
            batch = next_limit(batch, sum(len(row[3]) for row in read))

    def _rows(self, rows: list[Any]) -> list[_Row]:
        return [_Row(row[0], as_document(row[2:], self.collection)) for row in rows]

    def _results(
        self, session: Session, statements: Statements, page: list[_Row]
    ) -> Iterator[SearchResult]:
        shown: dict[str, dict[str, str]] = {}
        if self.marks is not None:
            index = statements.options.text
            assert isinstance(index, TextIndex)
            words = index.parsed(self.query)
            shown = {
                row.document.id: snippets(words, index.texts(row.document.body), self.marks)
                for row in page
            }
        scores = {row.document.id: row.score for row in page}
        reads: ReadsDocuments = self
        for document in returned(session, reads, (row.document for row in page)):
            yield SearchResult(document, scores[document.id], shown.get(document.id, {}))


def _read(position: Position) -> dict[str, Any]:
    """Return the parameters of a position."""
    match position.keys:
        case ((_, float() | int() as score), (_, str(id))):
            return {"score": float(score), "id": id}
    raise InvalidCursor("must be the `cursor` of a search")


def read_marks(highlight: Any) -> Marks | None:
    """Return the strings around found words; raises `InvalidOption`."""
    match highlight:
        case False:
            return None
        case True:
            return HIGHLIGHT
        case (str(before), str(after)):
            return before, after
    problem = f"must be True, False, or a pair of strings, got {shortened(highlight)}"
    raise InvalidOption("highlight", problem)
