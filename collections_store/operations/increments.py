"""Counting: one statement where an integer is counted up, MongoDB's `$inc` where it is anything else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .. import codec
from ..document import Document
from ..errors import InvalidUpdate, TransactionConflict, shortened
from ..matcher import reach
from ..path import Path
from ..schema import now
from ..update import Update
from ..values import MISSING
from .documents import GetDocument
from .writing import MAX_ATTEMPTS, Writer, Written

if TYPE_CHECKING:
    from .connection import Connection

NINES: Final = 10**18 - 1
"""Up to here, a sum of two integers is one of 64 bit."""


@dataclass(frozen=True, slots=True)
class Increment:
    """Add to the number at a path, which is `initial` where it is missing; gives the new number."""

    collection: str
    id: str
    path: Path
    by: int | float
    initial: int | float
    rules: codec.Codec
    _written: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Any:
        writer = Writer(connection, self.collection)
        if self._is_simple(connection, writer):
            sql = writer.statements.by_id.increment(self.path.keys)
            fresh = writer.parameters(self.id, self._text(Document(self.id, {})), None)
            rows = connection.rows(sql, {**fresh, "by": self.by})
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
        whole = type(self.by) is int and abs(self.by) <= NINES
        return whole and connection.database.can_order(self.path.keys)

    def _slowly(self, connection: Connection, writer: Writer) -> Any:
        for _ in range(MAX_ATTEMPTS):
            found = GetDocument(self.collection, self.id)(connection)
            if found is None:
                text = self._text(Document(self.id, {}))
                done = writer.insert(self.id, text, None)
            else:
                text = self._text(found)
                done = writer.rewrite(found, text)
            if done:
                return self._value(codec.decode(text))
        raise TransactionConflict(f"{self!r}: the object is changed by others again and again")

    def _text(self, document: Document) -> str:
        """Return the text of an object's body with the number increased."""
        if self._value(document.body) is MISSING:
            document = replace(document, body=self._added(document, self.initial))
        self._written.clear()
        self._written[document.id] = self.rules.encode(self._added(document, self.by))
        return self._written[document.id]

    def _added(self, document: Document, number: int | float) -> Any:
        return _adding(self.path, number).apply(document, now=now())

    def _value(self, body: Any) -> Any:
        found = (each for each in reach(body, self.path.keys, leaf=False) if each is not MISSING)
        return next(found, MISSING)


@lru_cache(maxsize=256, typed=True)
def _adding(path: str | Path, number: int | float) -> Update:
    return Update.parse({"$inc": {path: number}})


def read_increment(path: Any, by: Any, initial: Any) -> Path:
    """Return the path of a number that can be increased; raises `InvalidUpdate`."""
    if not isinstance(path, str | Path):
        raise InvalidUpdate("", f"{shortened(path)} is no path")
    found = Path.parse(path) if isinstance(path, str) else path
    if any(key.startswith("$") for key in found.keys):
        raise InvalidUpdate(f"$inc.{path}", "names no single field of the body")
    for number in (by, initial):
        if type(number) not in {int, float}:
            raise InvalidUpdate(f"$inc.{path}", f"{shortened(number)} is no number")
        _adding(path, number)
    return found
