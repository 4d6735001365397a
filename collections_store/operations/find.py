"""The verbs by filter."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from .. import codec
from ..aggregation.expressions.operands import key_of, sort_key
from ..document import DeleteResult, Document, Page, metadatum
from ..errors import InvalidFilter, TransactionConflict, shortened
from ..query.conditions import Target
from ..query.cursor import seal, unseal
from ..query.filter import Filter
from ..query.matcher import distinct_values
from ..query.projection import Projection
from ..query.sort import Sort
from ..query.values import value_class
from ..sql.conditions import Query
from .operation import Operation
from .read import (
    BEFORE_ALL,
    FIRST_BATCH,
    NATURAL,
    NO_LIMIT,
    each_let_go,
    held,
    in_natural_order,
    matching,
    next_limit,
    projected,
)
from .read_sorted import Ordered
from .write import MAX_ATTEMPTS, Writer

if TYPE_CHECKING:
    from .connection import Connection


DELETED_AT_ONCE: Final = 1000
"""Objects that must be told of, or that the matcher found."""


@value_class
class Find(Operation[list[Document]]):
    """Read the objects that match, in order."""

    collection: str
    filter: Filter
    sort: Sort = NATURAL
    skip: int = 0
    limit: int | None = None
    projection: Projection | None = None
    atomic = True
    empty = list

    def __call__(self, connection: Connection) -> list[Document]:
        if not self.sort.fields:
            asked = (self.collection, self.filter, self.skip, self.limit)
            found = in_natural_order(connection, *asked, projection=self.projection)
            if found is not None:
                return found
        ordered = Ordered(connection, self.collection, self.filter, self.sort)
        placed = ordered.window(self.skip, self.limit)
        parts = projected(connection, placed, self.projection, self.filter)
        return [document for _, document in parts]


@value_class
class FindPage(Operation[Page]):
    """Read up to `limit` objects in order, after the place of a cursor."""

    collection: str
    filter: Filter
    sort: Sort
    limit: int
    after: str | None = None
    projection: Projection | None = None

    def __call__(self, connection: Connection) -> Page:
        key = connection.collection(self.collection).options.cursor_key
        place = None if self.after is None else unseal(self.after, key, self.filter, self.sort)
        ordered = Ordered(connection, self.collection, self.filter, self.sort)
        found = ordered.following(place, self.limit + 1)
        page = found[: self.limit]
        parts = projected(connection, page, self.projection, self.filter)
        documents = tuple(document for _, document in parts)
        if len(found) <= self.limit:
            return Page(documents)
        last = ordered.position(page[-1])
        return Page(documents, seal(last, key, self.filter, self.sort))

    def absent(self) -> Page:
        return Page(())


@value_class
class FindIds(Operation[list[str]]):
    """Read the ids of the objects that match, in their order, and no body that is not asked for."""

    collection: str
    filter: Filter
    limit: int | None = None
    atomic = True
    empty = list

    def __call__(self, connection: Connection) -> list[str]:
        query = connection.collection(self.collection).ids(self.filter)
        if query.residual:
            with connection.transaction(write=False):
                found = matching(connection, self.collection, self.filter)
                return sorted(document.id for _, document in found)[: self.limit]
        limit = NO_LIMIT if self.limit is None else self.limit
        return [
            id for (id,) in connection.rows(query.sql, query.parameters(self.filter, limit=limit))
        ]


@value_class
class Count(Operation[int]):
    """Tell how many objects match."""

    collection: str
    filter: Filter
    atomic = True
    empty = int

    def __call__(self, connection: Connection) -> int:
        statements = connection.collection(self.collection)
        query = statements.count(self.filter)
        if query.residual:
            with connection.transaction(write=False):
                return sum(1 for _ in matching(connection, self.collection, self.filter))
        [row] = connection.rows(query.sql, query.parameters(self.filter))
        if query.guard and row[0]:
            query = statements.count(self.filter, indexed=False)
            [row] = connection.rows(query.sql, query.parameters(self.filter))
        return int(row[-1])


@value_class
class Distinct(Operation[list[Any]]):
    """Read the values that a field has in the objects that match, in MongoDB's order."""

    collection: str
    field: Target
    filter: Filter
    empty = list

    def __call__(self, connection: Connection) -> list[Any]:
        ordered = connection.database.ordered_keys
        found: dict[Hashable, tuple[int, Any]] = {}
        for seq, value in self._found(connection):
            key = key_of(value, ordered=ordered)
            if key not in found or seq < found[key][0]:
                found[key] = seq, value
        return sorted((value for _, value in found.values()), key=sort_key(ordered))

    def _found(self, connection: Connection) -> Iterator[tuple[int, Any]]:
        """Yield values, each with the place of the object it is from."""
        statements, field = connection.collection(self.collection), self.field
        if isinstance(field, str):
            for seq, document in matching(connection, self.collection, self.filter):
                yield seq, metadatum(document, field)
            return
        query = statements.distinct(self.filter, field.keys)
        if query.residual or not connection.database.ordering.can_order(field.keys):
            for seq, document in matching(connection, self.collection, self.filter):
                yield from ((seq, value) for value in distinct_values(document.body, field.keys))
            return
        parameters = query.parameters(self.filter)
        for seq, text in each_let_go(connection.rows(query.sql, parameters)):
            yield seq, codec.decode(text)
        yield from self._opened(connection, field.keys)

    def _opened(self, connection: Connection, keys: tuple[str, ...]) -> Iterator[tuple[int, Any]]:
        """Yield the values of the objects with an array on the way, which are read some at a time."""
        query = connection.collection(self.collection).bodies_with_array(self.filter, keys)
        place, limit, more = BEFORE_ALL, FIRST_BATCH, True
        while more:
            window = {"seq": place, "limit": limit}
            rows = connection.rows(query.sql, query.parameters(self.filter, **window))
            for seq, text in rows:
                yield from ((seq, value) for value in distinct_values(codec.decode(text), keys))
            more = len(rows) == limit
            if more:
                place = rows[-1][0]
                limit = next_limit(limit, sum(len(text) for _, text in rows))


@value_class
class DeleteFirst(Operation[DeleteResult]):
    """Delete the first object in natural order that matches."""

    collection: str
    filter: Filter
    writes = True

    def __call__(self, connection: Connection) -> DeleteResult:
        writer = Writer(connection, self.collection)
        asked = Find(self.collection, self.filter, limit=1)
        for _ in range(MAX_ATTEMPTS):
            found = asked(connection)
            if not found or writer.remove_document(found[0]):
                return DeleteResult(len(found))
        raise TransactionConflict(f"{self!r}: the object is changed by others again and again")

    def absent(self) -> DeleteResult:
        return DeleteResult(0)


@value_class
class DeleteMatching(Operation[DeleteResult]):
    """Delete the objects that match."""

    collection: str
    filter: Filter
    writes = True

    def __call__(self, connection: Connection) -> DeleteResult:
        writer = Writer(connection, self.collection)
        query = writer.statements.delete(self.filter, indexed=not self._is_doubtful(connection))
        if query.residual:
            return DeleteResult(self._by_ids(connection, writer))
        if writer.statements.feed is not None:
            return DeleteResult(self._told(connection, writer, query))
        return DeleteResult(connection.changed(query.sql, query.parameters(self.filter)))

    def absent(self) -> DeleteResult:
        return DeleteResult(0)

    def _by_ids(self, connection: Connection, writer: Writer) -> int:
        """Delete what the matcher finds, some at a time."""
        found = (document for _, document in matching(connection, self.collection, self.filter))
        total = 0
        while batch := list(islice(found, DELETED_AT_ONCE)):
            doomed = held(connection, self.collection, self.filter, batch)
            total += writer.remove_many([each.id for each in doomed]) if doomed else 0
        return total

    def _told(self, connection: Connection, writer: Writer, query: Query) -> int:
        """Delete what must be recorded, some at a time."""
        total, place = 0, BEFORE_ALL
        while True:
            window = {"seq": place, "limit": DELETED_AT_ONCE}
            rows = sorted(connection.rows(query.sql, query.parameters(self.filter, **window)))
            total += writer.removed(row[1:] for row in rows)
            if len(rows) < DELETED_AT_ONCE:
                return total
            place = rows[-1][0]

    def _is_doubtful(self, connection: Connection) -> bool:
        doubt = connection.collection(self.collection).guard(self.filter)
        if doubt is None:
            return False
        [(some,)] = connection.rows(doubt.sql, doubt.parameters(self.filter))
        return bool(some)


def check_window(skip: Any, limit: Any) -> tuple[int, int | None]:
    """Return `skip` and `limit` if they are whole numbers from 0 on; raises `InvalidFilter`."""
    for name, value in (("skip", skip), ("limit", 0 if limit is None else limit)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < NO_LIMIT:
            raise InvalidFilter(name, f"{shortened(value)} is not a whole number from 0 on")
    return skip, limit


def read_doomed(filter: Any, equals: Any, rules: codec.Codec) -> Filter:
    """Read what is to be changed or deleted: all of it must be asked for by `{}`, not by None."""
    if filter is None:
        raise InvalidFilter("", "which objects? {} asks for all of them")
    return Filter.parse(filter, equals, rules)


def read_projection(what: Any, filter: Filter, rules: codec.Codec) -> Projection | None:
    """Return the projection that a caller asks for, if it goes with the filter; raises
    `InvalidProjection`.
    """
    if what is None:
        return None
    projection = Projection.parse(what, rules)
    projection.check(filter)
    return projection


def check_page(limit: Any) -> int:
    """Return `limit` if it is a whole number from 1 on; raises `InvalidFilter`."""
    _, checked = check_window(0, limit)
    if not checked:
        raise InvalidFilter("limit", f"{shortened(limit)} is not a whole number from 1 on")
    return checked
