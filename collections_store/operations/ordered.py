"""Reading in an order: what SQL can say of it is one statement, the rest is sorted here.

A window of rows in SQL's order is exact if no matching object has an array on the way to a field
(`Query.doubtful`), and no row of the window is rough: all comparisons with the others are right, so
the same rows come before it in both orders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..cursor import Position
from ..filter import Filter
from ..matcher import matches
from ..ordering import Key, Sort
from ..statements import Order, Query
from .reading import NO_LIMIT, Inexact, Placed, as_placed, matching, rows_of

if TYPE_CHECKING:
    from .connection import Connection

MAX_BATCH: Final = 1000


class Ordered:
    """The objects of a collection that match, in an order."""

    def __init__(self, connection: Connection, collection: str, filter: Filter, sort: Sort) -> None:
        self._connection, self._collection = connection, collection
        self._filter, self._sort = filter, sort
        self._statements = connection.collection(collection)
        self._order: Order = self._statements.order(sort)

    def window(self, skip: int, limit: int | None) -> list[Placed]:
        """Return `limit` objects after the first `skip`."""
        found = self._selected(skip, limit)
        if found is None:
            with self._connection.transaction(write=False):
                found = self._read_through(skip, limit)
        return found

    def following(self, after: Position | None, limit: int) -> list[Placed]:
        """Return `limit` objects after a place, within a transaction."""
        try:
            return list(islice(self._walk(after, min(limit, MAX_BATCH)), limit))
        except Inexact:
            return self._sorted_after(after, limit)

    def position(self, placed: Placed) -> Position:
        """Return the place of an object."""
        return Position(self._keys(placed), placed[0])

    def _selected(self, skip: int, limit: int | None) -> list[Placed] | None:
        """Ask SQL for the window; None: it cannot tell."""
        if not self._order.can_say():
            return None
        query = self._statements.select(self._filter, self._sort)
        if query.residual:
            return None
        try:
            window = {"skip": skip, "limit": NO_LIMIT if limit is None else limit}
            return self._exact(query, window)
        except Inexact:
            return None

    def _exact(self, query: Query, window: dict[str, Any]) -> list[Placed]:
        """Return what SQL finds; raises `Inexact`."""
        found = list(map(as_placed, rows_of(self._connection, query, self._filter, window)))
        if not self._sort.fields:
            return found
        keys = {placed[0]: self._keys(placed) for placed in found}
        rough = self._connection.database.is_rough
        if any(rough(key) for each in keys.values() for key in each):
            raise Inexact
        return found

    def _walk(self, after: Position | None, batch: int) -> Iterator[Placed]:
        """Yield what comes after a place, level by level, batch by batch."""
        if not self._order.can_say() or not self._is_exact(after):
            raise Inexact
        place = after
        while True:
            for level in self._levels(place):
                found = self._level(level, place, batch)
                yield from self._decided(found, level)
                if len(found) == batch:
                    place = self.position(found[-1])
                    break
            else:
                return

    def _levels(self, place: Position | None) -> list[int | None]:
        return [None] if place is None else [*self._order.levels(place.keys)]

    def _level(self, level: int | None, place: Position | None, batch: int) -> list[Placed]:
        query = self._statements.select(self._filter, self._sort, level)
        values = {} if place is None else self._order.values(place.keys, place.seq)
        return self._exact(query, {**values, "skip": 0, "limit": batch})

    def _decided(self, found: list[Placed], level: int | None) -> Iterator[Placed]:
        """Let the matcher decide where SQL could not."""
        query = self._statements.select(self._filter, self._sort, level)
        if not query.residual:
            return iter(found)
        rest, ordered = query.rest(self._filter), self._connection.database.ORDERED_KEYS
        return (placed for placed in found if matches(rest, placed[1], ordered=ordered))

    def _read_through(self, skip: int, limit: int | None) -> list[Placed]:
        stop = None if limit is None else skip + limit
        found: Iterable[Placed] = matching(self._connection, self._collection, self._filter)
        if self._sort.fields:
            found = self._first(found, stop)
        return list(islice(found, skip, stop))

    def _sorted_after(self, after: Position | None, limit: int) -> list[Placed]:
        found: Iterable[Placed] = matching(self._connection, self._collection, self._filter)
        if after is not None:
            place = (self._comparable(after.keys), after.seq)
            found = (p for p in found if (self._key(p), p[0]) > place)
        return self._first(found, limit)

    def _first(self, found: Iterable[Placed], limit: int | None) -> list[Placed]:
        if limit is None:
            return sorted(found, key=self._key)
        return nsmallest(limit, found, key=self._key)

    def _key(self, placed: Placed) -> Any:
        return self._comparable(self._keys(placed))

    def _keys(self, placed: Placed) -> tuple[Key, ...]:
        return self._sort.keys(placed[1], ordered=self._connection.database.ORDERED_KEYS)

    def _comparable(self, keys: tuple[Key, ...]) -> Any:
        ordered = self._connection.database.ORDERED_KEYS
        return self._sort.comparable(keys, ordered=ordered)

    def _is_exact(self, place: Position | None) -> bool:
        rough = self._connection.database.is_rough
        return place is None or not any(map(rough, place.keys))
