"""Operations that read by filter: documents, pages, streams, counts, values, plans; checks of their arguments.

A stream comes in batches. With an index of the order, each batch is read past the previous batch. Without such an index
all ids are sorted first, in bounded memory, and the documents are read as needed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, Protocol

from ..aggregation.spill import IdList
from ..codec import Codec, Decode, decode
from ..document import (
    Document,
    check_id,
    documents_of,
    first_after,
    is_plain_id,
    metadatum,
    now,
)
from ..errors import (
    InvalidFilter,
    InvalidId,
    InvalidOption,
    InvalidProjection,
    shortened,
)
from ..expressions.classes import value_class
from ..expressions.collation import Collation, under
from ..expressions.evaluation import key_of, size_of, sort_key
from ..options import CallContext
from ..query.conditions import Target, holds_text
from ..query.cursor import Position, seal, unseal
from ..query.filter import Filter
from ..query.matcher import distinct_values, matches
from ..query.projection import Projection
from ..query.sort import NATURAL, Sort
from ..results import Page
from .by_id import raise_unless_skipped
from .connection import Inexact
from .operation import Operation
from .read import (
    BEFORE_ALL,
    FIRST_BATCH,
    MAX_BATCH,
    NO_LIMIT,
    NaturalBatches,
    SortedReader,
    matching,
    next_limit,
    popped,
    returned,
    selected,
)
from .session import Session


@value_class
class Find(Operation[list[Document]]):
    """Read the matching documents, in order. `sort`: None is the order of the index for the filter, for reads with a
    limit: natural order would read and sort all matches.
    """

    collection: str
    filter: Filter
    sort: Sort | None = NATURAL
    skip: int = 0
    limit: int | None = None
    projection: Projection | None = None
    decode: Decode = field(default=decode, repr=False)
    method: str = field(default="find", repr=False)
    atomic = True
    empty = list

    def __call__(self, session: Session) -> list[Document]:
        statements = session.collection(self.collection)
        if self.sort is None:
            is_first = self.limit == 1 and not self.skip
            sort, query = statements.planned(self.filter, first=is_first)
        else:
            sort, query = self.sort, statements.exact(self.filter, self.sort)
        if query is not None:  # else, and after `Inexact`, `SortedReader` reads
            limit = NO_LIMIT if self.limit is None else self.limit
            try:
                rows = session.select(query, self.filter, skip=self.skip, limit=limit)
            except Inexact:  # `suppress` would take longer than the rest of this
                pass
            else:
                is_whole = self.projection is None
                made = self.decode if is_whole else decode
                found = documents_of(rows, made, self.collection, raise_unless_skipped)
                return list(found if is_whole else returned(session, self, found))
        reader = SortedReader(session, self.collection, self.filter, sort)
        window = reader.window(self.skip, self.limit)
        return list(returned(session, self, (document for _, document in window)))


@value_class
class FindIdRange(Operation[list[Document]]):
    """Read the documents with ids from `first` to before `end`, in the order of the ids: 1, -1 is descending, 0 the
    natural order. Faster than `Find`: no filter is parsed, and no statement is looked up by shape.
    """

    collection: str
    first: str
    end: str
    direction: int = 0
    skip: int = 0
    limit: int | None = None
    decode: Decode = field(default=decode, repr=False)
    method: str = field(default="find", repr=False)
    atomic = True
    empty = list

    def __call__(self, session: Session) -> list[Document]:
        sql, first, end = session.collection(self.collection).id_range(self.direction)
        limit = NO_LIMIT if self.limit is None else self.limit
        given = {"now": now(), first: self.first, end: self.end, "skip": self.skip, "limit": limit}
        rows = session.rows(sql, given)
        return list(documents_of(rows, self.decode, self.collection, raise_unless_skipped))


@value_class
class FindByIds(Operation[list[Document]]):
    """Read the documents under a list of ids, in natural order, as `Find` does for a filter of ids."""

    collection: str
    ids: tuple[str, ...]
    decode: Decode = field(default=decode, repr=False)
    method: str = field(default="find", repr=False)
    atomic = True
    empty = list

    def __call__(self, session: Session) -> list[Document]:
        statement = session.collection(self.collection).by_id.documents
        listed = session.database.compiler.list_parameter(self.ids)
        rows = session.rows(statement, {"ids": listed, "now": now()})
        return list(documents_of(rows, self.decode, self.collection, raise_unless_skipped))


@value_class
class FindPage(Operation[Page]):
    """Read up to `limit` documents in order, after the position of a cursor."""

    collection: str
    filter: Filter
    sort: Sort
    limit: int
    after: str | None = None
    projection: Projection | None = None
    decode: Decode = field(default=decode, repr=False)
    method = "page"
    atomic = True
    empty = partial(Page, ())

    def __call__(self, session: Session) -> Page:
        key = session.collection(self.collection).options.cursor_key
        after = None if self.after is None else unseal(self.after, key, self.filter, self.sort)
        reader = SortedReader(session, self.collection, self.filter.simplified(), self.sort)
        found = reader.page(after, self.limit + 1)
        page = found[: self.limit]
        parts = tuple(returned(session, self, (document for _, document in page)))
        if len(found) <= self.limit:
            return Page(parts)
        return Page(parts, seal(reader.position(page[-1]), key, self.filter, self.sort))


@value_class
class FindIdPrefixes(Operation[list[str]]):
    """Read the different beginnings, up to the delimiter, of the ids that begin with a prefix; with `after`, the
    beginnings after this string.
    """

    collection: str
    prefix: str
    delimiter: str
    after: str | None = None
    limit: int | None = None
    method = "id_prefixes"
    atomic = True
    empty = list

    def __call__(self, session: Session) -> list[str]:
        following, first = first_after(self.delimiter), self.prefix
        if self.after is not None:
            end = self.after.find(self.delimiter, self._start)
            first = max(first, self.after + _LEAST if end < 0 else self.after[:end] + following)
        window = {"now": now(), "limit": NO_LIMIT if self.limit is None else self.limit}
        bounds = {"first": first, "end": first_after(self.prefix), "start": self._start + 1}
        cut = {"delimiter": self.delimiter, "following": following, "least": _LEAST}
        sql = session.collection(self.collection).by_id.first_ids
        return [self._beginning(id) for (id,) in session.rows(sql, window | bounds | cut)]

    @property
    def _start(self) -> int:
        """The least position of a delimiter that ends behind the prefix."""
        return max(0, len(self.prefix) - len(self.delimiter) + 1)

    def _beginning(self, id: str) -> str:
        position = id.find(self.delimiter, self._start)
        return id if position < 0 else id[: position + len(self.delimiter)]


@value_class
class FindIds(Operation[list[str]]):
    """Read the ids of the matching documents, in the order of the ids, and only the bodies that the filter needs."""

    collection: str
    filter: Filter
    limit: int | None = None
    method = "ids"
    atomic = True
    empty = list

    def __call__(self, session: Session) -> list[str]:
        query = session.collection(self.collection).ids(self.filter)
        if query.residual:
            with session.transaction(write=False):
                found = matching(session, self.collection, self.filter)
                return sorted(document.id for _, document in found)[: self.limit]
        limit = NO_LIMIT if self.limit is None else self.limit
        rows = session.select(query, self.filter, limit=limit)
        return [id for (id,) in rows]


@value_class
class Count(Operation[int]):
    """Return the number of matching documents."""

    collection: str
    filter: Filter
    atomic = True
    empty = int

    def __call__(self, session: Session) -> int:
        statements = session.collection(self.collection)
        for indexed in (True, False):
            query = statements.count(self.filter, indexed=indexed)
            if query.residual:
                break
            try:
                [row] = session.select(query, self.filter)
            except Inexact:
                continue
            return int(row[0])
        with session.transaction(write=False):
            return sum(1 for _ in matching(session, self.collection, self.filter))


@value_class
class Distinct(Operation[list[Any]]):
    """Read the values of a field in the matching documents, in MongoDB's order."""

    collection: str
    field: Target
    filter: Filter
    collation: Collation | None = None
    empty = list

    def __call__(self, session: Session) -> list[Any]:
        ordered = under(self.collation, session.database.ordered_keys)
        found: dict[Hashable, tuple[int, Any]] = {}
        for seq, value in self._found(session):
            key = key_of(value, ordered=ordered)
            if key not in found or seq < found[key][0]:
                found[key] = seq, value
        return sorted((value for _, value in found.values()), key=sort_key(ordered))

    def _found(self, session: Session) -> Iterator[tuple[int, Any]]:
        """Yield pairs of a document's position and a value."""
        field = self.field
        if isinstance(field, str):
            for seq, document in matching(session, self.collection, self.filter):
                yield seq, metadatum(document, field)
            return
        statements = session.collection(self.collection)
        compile = partial(statements.distinct, self.filter, field.keys)
        if compile().residual or not session.database.ordering.can_order(field.keys):
            for seq, document in matching(session, self.collection, self.filter):
                yield from ((seq, each) for each in distinct_values(document.body, field.keys))
            return
        for seq, text in popped(selected(session, statements, self.filter, compile)[1]):
            yield seq, decode(text)
        yield from self._within_arrays(session, field.keys)

    def _within_arrays(self, session: Session, keys: tuple[str, ...]) -> Iterator[tuple[int, Any]]:
        """Yield the values of the documents with an array on the way to the field, in batches."""
        query = session.collection(self.collection).bodies_with_array(self.filter, keys)
        after, limit, more = BEFORE_ALL, FIRST_BATCH, True
        while more:
            rows = session.select(query, self.filter, seq=after, limit=limit)
            for seq, text in rows:
                yield from ((seq, each) for each in distinct_values(decode(text), keys))
            more = len(rows) == limit
            if more:
                after = rows[-1][0]
                limit = next_limit(limit, sum(len(text) for _, text in rows))


def check_window(skip: Any, limit: Any) -> tuple[int, int | None]:
    """Return `skip` and `limit`, integers from 0 on; raises `InvalidFilter`."""
    plain = limit is None or (type(limit) is int and 0 <= limit < NO_LIMIT)
    if plain and type(skip) is int and 0 <= skip < NO_LIMIT:
        return skip, limit  # sooner
    for name, value in (("skip", skip), ("limit", 0 if limit is None else limit)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < NO_LIMIT:
            raise InvalidFilter(name, f"must be an integer from 0 on, got {shortened(value)}")
    return skip, limit


def check_page(limit: Any) -> int:
    """Return `limit`, an integer from 1 on; raises `InvalidFilter`."""
    _, checked = check_window(0, limit)
    if not checked:
        raise InvalidFilter("limit", f"must be an integer from 1 on, got {shortened(limit)}")
    return checked


def check_part(option: str, value: Any) -> str:
    """Return a part of an id; raises `InvalidOption`."""
    try:
        return check_id(value)
    except InvalidId as error:
        raise InvalidOption(
            option, f"must be a string as in ids, got {shortened(value)}: {error.problem}"
        ) from None


def read_id_range(within: Any, sort: Sort | None) -> tuple[str, str, int] | None:
    """Return the bounds of a filter of `$id`, `{"$gte": first, "$lt": end}`, and the direction of `FindIdRange`; None
    for any other filter.
    """
    fields = (_BY_ID if sort is None else sort).fields  # as `plan_order` does
    if type(within) is not dict or len(within) != 2:
        return None
    if fields and (len(fields) > 1 or fields[0].target != "id"):
        return None
    first, end = within.get("$gte"), within.get("$lt")
    if not (is_plain_id(first) and is_plain_id(end)):
        return None
    return first, end, (-1 if fields[0].descending else 1) if fields else 0


def read_ids(within: Any) -> tuple[str, ...] | None:
    """Return the ids of a filter of `$id`, `{"$in": ids}`; None for any other filter."""
    if type(within) is not dict or len(within) != 1:
        return None
    ids = within.get("$in")
    if type(ids) is not list or set(map(type, ids)) != {str}:
        return None
    return tuple(ids) if is_plain_id("".join(ids)) else None


def read_projection(
    projection: Any,
    filter: Filter,
    codec: Codec,
    call: CallContext,
    time: int | None,
    *,
    scored: bool = False,
) -> Projection | None:
    """Return a parsed projection that goes with the filter, as of the time of the call; raises `InvalidProjection`."""
    if projection is None:
        return None
    if codec.has_model:
        problem = "a collection with a model returns whole bodies: read parts from store[name]"
        raise InvalidProjection("", problem)
    parsed = Projection.parse(projection, codec, frozenset(call.let))
    parsed.check(filter, scored=scored)
    return parsed.at(time, call.let).collated(call.collation)


_BY_ID: Final = Sort.parse("$id")
_LEAST: Final = "\x01"
"""The least character of ids."""
BATCH_SIZE: Final = 4 * 2**20
"""Bytes of memory of a batch, about, unless a single document is larger."""
_SAMPLE: Final = 10


class Batches(Protocol):
    """The batches of a stream. The caller runs each operation from `next`, and gives the result to `advance`."""

    def next(self) -> Any:
        """Return the operation that reads the next batch; None: there is none."""

    def advance(self, batch: Any) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""


def batches_of(
    collection: str, filter: Filter, order: Sort, projection: Projection | None, codec: Codec
) -> Batches:
    """Return the batches of a stream."""
    if not order:
        return NaturalBatches(collection, filter, projection, decode=codec.decode_body)
    return SortedBatches(ReadSorted(collection, filter, order, projection, codec.decode_body))


@value_class
class SortedBatch:
    """Documents in order, and the operation that reads the next batch, None at the end. `size`: the bytes of memory of a
    document that was read, about; 0 without documents.
    """

    documents: list[Document]
    next: ReadSorted | None = None
    size: int = 0


@value_class
class ReadSorted(Operation[SortedBatch]):
    """Read up to `limit` documents in order after a position. If no index has the order, the first batch lists the `ids`
    of all matching documents, and each batch reads the documents of the list from `start` on.
    """

    collection: str
    filter: Filter
    sort: Sort
    projection: Projection | None
    decode: Decode = field(default=decode, repr=False)
    limit: int = FIRST_BATCH
    after: Position | None = None
    ids: IdList | None = field(default=None, repr=False)
    start: int = 0
    method = "stream"
    empty = partial(SortedBatch, [])

    def __call__(self, session: Session) -> SortedBatch:
        if self.ids is not None:
            return self._listed(session, self.ids)
        reader = SortedReader(session, self.collection, self.filter, self.sort)
        if self.after is None and not reader.has_index():
            return self._listed(session, reader.ids(BATCH_SIZE))
        found = reader.page(self.after, self.limit)
        documents = [document for _, document in found]
        if len(found) < self.limit:
            return self._batch(session, documents, None)
        return self._batch(session, documents, replace(self, after=reader.position(found[-1])))

    def _listed(self, session: Session, ids: IdList) -> SortedBatch:
        these, start = ids.read(self.start, self.limit)
        if not these:
            return SortedBatch([])
        found = {each.id: each for each in self._matching(session, tuple(these))}
        documents = [found[id] for id in these if id in found]
        return self._batch(session, documents, replace(self, ids=ids, start=start))

    def _matching(self, session: Session, ids: tuple[str, ...]) -> list[Document]:
        """Return the documents under ids that still match. With the filter in SQL too, each batch could read all matches
        by an index of the filter or of a hint.
        """
        if holds_text(self.filter.condition):
            within = self.filter & Filter.parse({"$id": {"$in": [*ids]}})
            return Find(self.collection, within)(session)
        found = FindByIds(self.collection, ids)(session)
        ordered = session.database.ordered_keys
        return [each for each in found if matches(self.filter, each, ordered=ordered)]

    def _batch(
        self, session: Session, documents: list[Document], next: ReadSorted | None
    ) -> SortedBatch:
        some = documents[:_SAMPLE]
        size = sum(size_of(each.body, BATCH_SIZE) for each in some) // max(1, len(some))
        return SortedBatch(list(returned(session, self, documents)), next, size)


class SortedBatches:
    """The batches of a stream in an order, each of about `BATCH_SIZE`."""

    def __init__(self, first: ReadSorted) -> None:
        self._next: ReadSorted | None = first

    def next(self) -> ReadSorted | None:
        """Return the operation that reads the next batch; None: there is none."""
        return self._next

    def advance(self, batch: SortedBatch) -> Iterable[Document]:
        """Go on after a batch; returns its documents."""
        self._next = batch.next
        if self._next is not None and batch.size:
            wanted = min(BATCH_SIZE // batch.size, 2 * self._next.limit, MAX_BATCH)
            self._next = replace(self._next, limit=max(1, wanted))
        return batch.documents
