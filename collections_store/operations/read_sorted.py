"""Reading in an order: what SQL can say of it is one statement, the rest is sorted here.

A window of rows in SQL's order is exact if no matching object has an array on the way to a field
(`Query.guard`), and no row of the window is rough: all comparisons with the others are right, so
the same rows come before it in both orders. Texts of which SQL knows the beginning only must differ
from their neighbours in it, those just outside the window included. Objects with such arrays, if there are some, are sorted
apart and merged. Where a window is rough, or SQL has no words for the order, all that matches is
sorted here.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..query.cursor import Position
from ..query.filter import Filter
from ..query.matcher import matches
from ..query.sort import Key, Sort
from ..sql.conditions import Query
from ..sql.order import Order
from .read import BEFORE_ALL, NO_LIMIT, Inexact, Placed, as_placed, each_let_go, matching, rows_of

if TYPE_CHECKING:
    from .connection import Connection


Select: TypeAlias = Callable[[int | None], Query]
"""Gives the statement of a level of the order."""
MIN_BATCH: Final = 100
"""What is read at once for the matcher."""


class Rough(Exception):
    """SQL's order of what was read may not be the right one."""


class Ordered:
    """The objects of a collection that match, in an order."""

    def __init__(self, connection: Connection, collection: str, filter: Filter, sort: Sort) -> None:
        self._connection, self._collection = connection, collection
        self._filter, self._sort = filter, sort
        self._statements = connection.collection(collection)
        self._order: Order = self._statements.order(sort)
        self._can_say = self._statements.can_order(filter, sort)

    def window(self, skip: int, limit: int | None) -> list[Placed]:
        """Return `limit` objects after the first `skip`."""
        found = self._selected(skip, limit)
        if found is None:
            with self._connection.transaction(write=False):
                stop = None if limit is None else min(skip + limit, sys.maxsize)
                found = self._first(None, stop)[skip:]
        return found

    def following(self, after: Position | None, limit: int) -> list[Placed]:
        """Return `limit` objects after a place, within a transaction."""
        try:
            return list(islice(self._walk(self._plain, after, limit), limit))
        except (Inexact, Rough):
            return self._first(after, limit)

    def position(self, placed: Placed) -> Position:
        """Return the place of an object."""
        return Position(self._keys(placed), placed[0])

    def has_index(self) -> bool:
        """Return whether the database reads in this order without sorting."""
        return self._can_say and self._statements.has_index(self._sort)

    def ids(self) -> list[str]:
        """Return the ids of all that match, sorted here: no body is held."""
        found = matching(self._connection, self._collection, self._filter)
        places = sorted((self._place(placed), placed[1].id) for placed in found)
        return [id for _, id in places]

    def _selected(self, skip: int, limit: int | None) -> list[Placed] | None:
        """Ask SQL for the window; None: it cannot tell."""
        if not self._can_say or (query := self._plain(None)).residual:
            return None
        window = {"skip": skip, "limit": NO_LIMIT if limit is None else min(limit + 1, NO_LIMIT)}
        try:
            found = self._exact(query, window)
        except (Inexact, Rough):
            return None
        if skip and any(
            map(self._connection.database.ordering.is_truncated, self._keys_of(found[:1]))
        ):
            return None  # it may be like the last one that was skipped
        return found[:limit]

    def _first(self, after: Position | None, limit: int | None) -> list[Placed]:
        """Return the first objects after a place, wherever arrays are."""
        if not self._sort.fields:
            start = None if after is None else after.seq
            return list(
                islice(matching(self._connection, self._collection, self._filter, start), limit)
            )
        doubtful = self._can_say and self._plain(None).guard
        if limit is None or not doubtful:
            return self._sorted(after, limit)
        try:
            walk = self._walk(self._apart, after, limit)
            merged = heapq.merge(walk, self._wrong(after), key=self._place)
            return list(islice(merged, limit))
        except Rough:
            return self._sorted(after, limit)

    def _plain(self, level: int | None) -> Query:
        return self._statements.select(self._filter, self._sort, level)

    def _apart(self, level: int | None) -> Query:
        return self._statements.select_without_arrays(self._filter, self._sort, level)

    def _exact(
        self, query: Query, window: dict[str, Any], after: Position | None = None
    ) -> list[Placed]:
        """Return what SQL finds, one more than is wanted; raises `Inexact` and `Rough`."""
        rows = rows_of(self._connection, query, self._filter, window)
        found = list(map(as_placed, each_let_go(rows)))
        if self._sort.fields:
            keys = map(self._keys, found)
            self._check(keys if after is None else chain([after.keys], keys))
        return found

    def _check(self, keys: Iterable[tuple[Key, ...]]) -> None:
        """Raise `Rough` unless SQL told all neighbours apart."""
        database = self._connection.database
        before: tuple[Key, ...] = ()
        for each in keys:
            if any(map(database.ordering.is_unorderable, each)):
                raise Rough
            is_cut = before and any(map(database.ordering.is_truncated, (*before, *each)))
            if is_cut and self._is_tied(before, each):
                raise Rough
            before = each

    def _is_tied(self, first: tuple[Key, ...], second: tuple[Key, ...]) -> bool:
        """Do two texts begin alike that differ, and that nothing before them decides?"""
        for one, other in zip(first, second, strict=True):
            values = map(self._connection.database.ordering.values, (one, other))
            if one != other:
                return next(values) == next(values)
        return False

    def _keys_of(self, found: list[Placed]) -> Iterator[Key]:
        for each in found:
            yield from self._keys(each)

    def _walk(self, select: Select, after: Position | None, limit: int) -> Iterator[Placed]:
        """Yield what comes after a place, level by level, batch by batch. What the matcher must decide
        takes more than one batch, which is for orders that an index has.
        """
        if not self._can_say or not self._is_exact(after):
            raise Rough
        if select(None).residual and not self._statements.has_index(self._sort):
            raise Rough
        if after is not None:
            self._check_place(select, after)
        place, batch = after, max(limit, MIN_BATCH) if select(None).residual else limit
        while True:
            for level in self._levels(place):
                query = select(level)
                read = self._level(query, place, batch)
                found = read[:batch]
                yield from self._decided(query, found)
                if len(read) > batch:
                    place = self.position(found[-1])
                    break
            else:
                return

    def _check_place(self, select: Select, place: Position) -> None:
        """Raise `Rough` unless a place is told from all others: of a text at the end of the order of
        which SQL knows the beginning only, all that begin alike are read.
        """
        is_cut = self._connection.database.ordering.is_truncated
        if any(map(is_cut, place.keys[:-1])):
            raise Rough
        if place.keys and is_cut(place.keys[-1]):
            query = select(self._order.levels(place.keys)[0])
            values = self._order.values(place.keys, BEFORE_ALL)
            alike = self._exact(query, {**values, "skip": 0, "limit": MIN_BATCH}, place)
            if len(alike) == MIN_BATCH:
                raise Rough

    def _levels(self, place: Position | None) -> list[int | None]:
        return [None] if place is None else [*self._order.levels(place.keys)]

    def _level(self, query: Query, place: Position | None, batch: int) -> list[Placed]:
        values = {} if place is None else self._order.values(place.keys, place.seq)
        return self._exact(query, {**values, "skip": 0, "limit": batch + 1}, place)

    def _decided(self, query: Query, found: Iterable[Placed]) -> Iterable[Placed]:
        """Let the matcher decide where SQL could not."""
        if not query.residual:
            return found
        rest, ordered = query.rest(self._filter), self._connection.database.ordered_keys
        return (placed for placed in found if matches(rest, placed[1], ordered=ordered))

    def _wrong(self, after: Position | None) -> list[Placed]:
        """Return what has arrays on the way, sorted."""
        query = self._statements.select_with_arrays(self._filter, self._sort)
        rows = rows_of(self._connection, query, self._filter, {})
        return sorted(
            self._after(after, self._decided(query, map(as_placed, rows))), key=self._place
        )

    def _sorted(self, after: Position | None, limit: int | None) -> list[Placed]:
        found = matching(self._connection, self._collection, self._filter)
        rest = self._after(after, found)
        if limit is None:
            return sorted(rest, key=self._place)
        return heapq.nsmallest(limit, rest, key=self._place)

    def _after(self, after: Position | None, found: Iterable[Placed]) -> Iterable[Placed]:
        if after is None:
            return found
        place = (self._comparable(after.keys), after.seq)
        return (placed for placed in found if self._place(placed) > place)

    def _place(self, placed: Placed) -> Any:
        return self._comparable(self._keys(placed)), placed[0]

    def _keys(self, placed: Placed) -> tuple[Key, ...]:
        return self._sort.keys(placed[1], ordered=self._connection.database.ordered_keys)

    def _comparable(self, keys: tuple[Key, ...]) -> Any:
        ordered = self._connection.database.ordered_keys
        return self._sort.comparable(keys, ordered=ordered)

    def _is_exact(self, place: Position | None) -> bool:
        rough = self._connection.database.ordering.is_unorderable
        return place is None or not any(map(rough, place.keys))
