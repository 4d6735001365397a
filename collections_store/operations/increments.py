"""Counting: one statement where an integer is counted up, MongoDB's `$inc` where it is anything else."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .. import codec
from ..document import Document
from ..errors import InvalidBody, InvalidUpdate, TransactionConflict, UpdateRefused, shortened
from ..formula import Unfit
from ..frozen import frozen
from ..matcher import reach
from ..path import Path
from ..schema import now
from ..update import Update
from ..update.numbers import added
from ..update.paths import read_way
from ..values import MISSING
from .documents import GetDocument
from .writing import MAX_ATTEMPTS, Writer, Written

if TYPE_CHECKING:
    from .connection import Connection

NINES: Final = 10**18 - 1
"""Up to here, a sum of two integers is one of 64 bit."""
GROWTH: Final = 19
"""Characters by which such a sum may be longer than the number that it takes the place of."""
_RULES: Final = codec.Codec()


@frozen
class Increment:
    """Add to the number at a path, which is `initial` where it is missing; gives the new number."""

    collection: str
    id: str
    path: Path
    by: int | float
    initial: int | float
    rules: codec.Codec
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Any:
        writer = Writer(connection, self.collection)
        if self._is_simple(connection, writer):
            sql = writer.statements.by_id.increment(self.path.keys)
            fresh = writer.parameters(self.id, self._fresh(), None)
            counting = {"by": self.by, "room": self.rules.max_bytes - GROWTH}
            rows = connection.rows(sql, {**fresh, **counting})
            if rows:
                return codec.decode(rows[0][0])
        return writer.atomically(partial(self._slowly, connection, writer))

    def written(self, _: Connection) -> Written:
        return self._written.items()

    def _is_simple(self, connection: Connection, writer: Writer) -> bool:
        """Can one statement say it, and tell what is the matter if it fails?"""
        statements = writer.statements
        if statements.feed is not None or any(i.unique for i in statements.options.indexes):
            return False
        short = all(isinstance(n, float) or abs(n) <= NINES for n in (self.by, self.initial))
        return short and type(self.by) is int and connection.database.can_order(self.path.keys)

    def _slowly(self, connection: Connection, writer: Writer) -> Any:
        for _ in range(MAX_ATTEMPTS):
            found = GetDocument(self.collection, self.id)(connection)
            if found is None:
                text = self._fresh()
                done = writer.insert(self.id, text, None)
            else:
                text = self._increased(found)
                done = writer.rewrite(found, text)
            if done:
                return self._value(codec.decode(text))
        raise TransactionConflict(f"{self!r}: the object is changed by others again and again")

    def _fresh(self) -> str:
        """Return the text of the body of a new object."""
        body = self._first()
        for key in reversed(self.path.keys):
            body = {key: body}
        return self._noted(body)

    def _increased(self, document: Document) -> str:
        """Return the text of an object's body with the number increased."""
        is_there = self._value(document.body) is not MISSING
        update = Update.parse({"$inc": {self.path: self.by if is_there else self._first()}})
        return self._noted(update.apply(document, now=now()))

    def _noted(self, body: Any) -> str:
        self._written.clear()
        self._written[self.id] = self.rules.encode(body)
        return self._written[self.id]

    def _first(self) -> Any:
        """Return the number that comes to where there is none."""
        try:
            return added(self.initial, self.by)
        except Unfit as error:
            raise UpdateRefused(self.id, str(self.path), error.problem) from None

    def _value(self, body: Any) -> Any:
        found = (each for each in reach(body, self.path.keys, leaf=False) if each is not MISSING)
        return next(found, MISSING)


def read_increment(path: Any, by: Any, initial: Any) -> Path:
    """Return the path of a number that can be increased; raises `InvalidUpdate`."""
    if not isinstance(path, str | Path):
        raise InvalidUpdate("", f"{shortened(path)} is no path")
    place = f"$inc.{path}"
    keys = [str(piece) for piece in read_way(path, "$inc")]
    if any(key.startswith("$") for key in keys):
        raise InvalidUpdate(place, "names no single field of the body")
    for number in (by, initial):
        _check_number(number, place)
    return Path(*keys)


def _check_number(number: Any, place: str) -> None:
    if type(number) not in {int, float}:
        raise InvalidUpdate(place, f"{shortened(number)} is no number")
    try:
        _RULES.encode(number)
    except InvalidBody as error:
        raise InvalidUpdate(place, error.problem) from error
