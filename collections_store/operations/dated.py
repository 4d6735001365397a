"""Deleting documents that expire by a time in a field: the option `expire_after_seconds` of an index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final

from ..codec.times import iso
from ..document import Document, now
from ..expressions.classes import value_class
from ..query.conditions import And, Compare, Field, Value
from ..query.filter import Filter
from ..query.index import Index
from ..query.matcher import values_at
from .find import Find
from .operation import Operation
from .read import locked, matching
from .session import Session
from .write import PURGE_BATCH, Writer

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)


@value_class
class HasDated(Operation[bool]):
    """Return whether any document has expired by a time in a field, without writing."""

    collection: str
    method = "purge_expired"
    empty = bool

    def __call__(self, session: Session) -> bool:
        return has_dated(
            session, self.collection, session.collection(self.collection).options.indexes
        )


@value_class
class PurgeDated(Operation[int]):
    """Delete a batch of documents that have expired by a time in a field; returns how many, 0 at the end."""

    collection: str
    method = "purge_expired"
    writes = True
    empty = int

    def __call__(self, session: Session) -> int:
        writer, total = Writer(session, self.collection), 0
        for index in writer.statements.options.indexes:
            if index.expire_after_seconds is not None:
                limit = _Limit(index)
                found = list(islice(limit.expired(session, self.collection), PURGE_BATCH))
                ours = filter(limit.is_past, locked(session, self.collection, limit.filter, found))
                total += writer.expire_many([each.id for each in ours])
        return total


def has_dated(session: Session, collection: str, indexes: tuple[Index, ...]) -> bool:
    """Return whether any document of a collection with these indexes has expired by a time in a field."""
    dated = (_Limit(each) for each in indexes if each.expire_after_seconds is not None)
    return any(True for limit in dated for _ in limit.expired(session, collection))


class _Limit:
    """The latest time at which the documents of an index have expired now."""

    def __init__(self, index: Index) -> None:
        assert index.expire_after_seconds is not None
        self._index = index
        limit = _EPOCH + timedelta(microseconds=now(), seconds=-index.expire_after_seconds)
        [self._path], self._latest = index.paths, iso(limit)
        tests = [Compare("$gte", Value.of("0")), Compare("$lte", Value.of(f"{self._latest[:19]}Z"))]
        where = () if index.where is None else (index.where.condition,)
        self.filter = Filter(And((*(Field(self._path, test) for test in tests), *where)))
        """Matches all such documents, and others with strings in the field."""

    def expired(self, session: Session, collection: str) -> Iterator[Document]:
        """Yield documents that have expired; none: none has. The index finds them, unless it begins with many
        strings that are no times.
        """
        with session.hinted(collection, self._index):  # it may be hidden
            found = Find(collection, self.filter, None, limit=PURGE_BATCH)(session)
        past = list(filter(self.is_past, found))
        if len(found) == PURGE_BATCH and 2 * len(past) < len(found):
            every = (document for _, document in matching(session, collection, self.filter))
            return filter(self.is_past, every)
        return iter(past)

    def is_past(self, document: Document) -> bool:
        """Return whether a document has a time that is past; without the Z, times sort with any digits of a second."""
        texts = (each for each in values_at(document.body, self._path.keys) if _is_time(each))
        return any(text[:-1] <= self._latest[:-1] for text in texts)


def _is_time(value: Any) -> bool:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True
