"""Updates: read a document, compute the new body, write it where the version is still the same; increments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from .. import codec
from ..aggregation.expressions.operands import OperandError
from ..codec import Codec, decode
from ..document import Document, UpdateResult, check_id, new_id
from ..errors import (
    InvalidBody,
    InvalidUpdate,
    TransactionConflict,
    UpdateRefused,
    VersionConflict,
    shortened,
)
from ..query.filter import Filter
from ..query.matcher import values_at
from ..query.path import Path
from ..query.projection import Projection
from ..query.sort import Sort
from ..query.values import MISSING, identical, value_class
from ..sql.schema import now
from ..update import Update
from ..update.operators import added
from ..update.parser import read_way
from ..update.upsert import seed, seed_id
from .by_id import GetDocument, id_taken
from .find import Find
from .operation import Operation, Written
from .read import NATURAL, NaturalBatches, locked, matching
from .write import MAX_ATTEMPTS, Writer

if TYPE_CHECKING:
    from .connection import Connection


EVERY: Final = Filter()
Answer: TypeAlias = Literal["result", "before", "after"]


@value_class
class Modification:
    """What shall become of an object: an update of it, or a body in the place of its own. `upsert`: if
    there is none, there shall be one.
    """

    what: Update | Replacement
    rules: Codec
    upsert: bool = False

    def of(self, document: Document, filter: Filter, *, ordered: bool) -> str | None:
        """Return the text of the new body; None: nothing changes."""
        body = self._changed(document, filter, inserting=False, ordered=ordered)
        if body is document.body:
            return None
        text = self.rules.encode(body)
        if text == self.rules.encode(document.body):
            return None
        same = not ordered and identical(body, document.body, ordered=False)
        return None if same else text

    def inserted(self, id: str, filter: Filter, *, ordered: bool) -> str:
        """Return the text of the body of an object that an upsert inserts."""
        begun = Document(id, seed(filter) if isinstance(self.what, Update) else {})
        return self.rules.encode(self._changed(begun, filter, inserting=True, ordered=ordered))

    def _changed(
        self, document: Document, filter: Filter, *, inserting: bool, ordered: bool
    ) -> Any:
        if isinstance(self.what, Replacement):
            return self.what.body
        times: dict[str, Any] = {"now": now(), "inserting": inserting}
        return self.what.apply(document, filter=filter, ordered=ordered, **times)


@value_class
class Replacement:
    """A body that takes the place of another."""

    body: Any


@value_class
class ModifyOne(Operation[Any]):
    """Change the object `id`, or the first one that matches; gives what came of it, or the object before
    or after. Raises `VersionConflict` where it is not the version `expected`.
    """

    collection: str
    modification: Modification
    filter: Filter = EVERY
    sort: Sort = NATURAL
    id: str | None = None
    expected: int | None = None
    answer: Answer = "result"
    projection: Projection | None = None
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    _inserted: list[str] = field(default_factory=list, repr=False)
    writes = True
    atomic = True
    creates_collection = True

    def __call__(self, connection: Connection) -> Any:
        writer = Writer(connection, self.collection)
        work = partial(self._modified, connection, writer)
        return writer.atomically(work, always=self.answer == "after")

    def written(self, _: Connection) -> Written:
        return self._written.items()

    def missed(self) -> Find | None:
        """Return what finds an object that came into being since there was none: it, not a new one, is to
        be changed then.
        """
        return _missed(self) if self.id is None else None

    def _modified(self, connection: Connection, writer: Writer) -> Any:
        ordered = connection.database.ordered_keys
        for _ in range(MAX_ATTEMPTS):
            found = self._found(connection)
            if found is None and not self.modification.upsert:
                return UpdateResult(0, 0) if self.answer == "result" else None
            if found is None:
                inserted = self._insert(connection, writer)
                if inserted is not None:
                    result = UpdateResult(0, 0, inserted, version=1)
                    return self._told(connection, result, None, inserted)
                continue
            text = self.modification.of(found, self.filter, ordered=ordered)
            self._check(connection, found, found, text)
            if text is None or self._write(writer, found, text):
                changed = int(text is not None)
                result = UpdateResult(1, changed, version=found.version + changed)
                return self._told(connection, result, found, found.id)
        raise TransactionConflict(f"{self!r}: the object is changed by others again and again")

    def _found(self, connection: Connection) -> Document | None:
        if self.id is None:
            some = Find(self.collection, self.filter, self.sort, limit=1)(connection)
            found = some[0] if some else None
        else:
            found = GetDocument(self.collection, self.id)(connection)
        version = None if found is None else found.version
        id = self.id if found is None else found.id
        if self.expected is not None and id is not None and version != self.expected:
            raise VersionConflict(self.collection, id, self.expected, version)
        return found

    def _check(
        self, connection: Connection, before: Document | None, known: Document, text: str | None
    ) -> None:
        """Raise what is wrong with the projection before anything is written."""
        if self.projection is not None:
            after = known if text is None else replace(known, body=decode(text))
            told = before if self.answer == "before" else after
            _projected(connection, told, self.filter, self.projection)

    def _write(self, writer: Writer, document: Document, text: str) -> bool:
        self._note(document.id, text)
        return writer.rewrite(document, text)

    def _note(self, id: str, text: str) -> None:
        self._written.clear()
        self._inserted.clear()
        self._written[id] = text

    def _insert(self, connection: Connection, writer: Writer) -> str | None:
        """Insert what an upsert does; None: somebody else was faster."""
        chosen = seed_id(self.filter) if self.id is None else self.id
        id = new_id() if chosen is None else check_id(chosen)
        ordered = connection.database.ordered_keys
        text = self.modification.inserted(id, self.filter, ordered=ordered)
        self._check(connection, None, Document(id, None), text)
        self._note(id, text)
        self._inserted.append(id)
        if writer.insert(id, text, None):
            return id
        if self._found(connection) is None:
            raise id_taken(self.collection, id)
        return None

    def _told(
        self, connection: Connection, result: UpdateResult, before: Document | None, id: str
    ) -> UpdateResult | Document | None:
        if self.answer == "result":
            return result
        told = before if self.answer == "before" else GetDocument(self.collection, id)(connection)
        return _projected(connection, told, self.filter, self.projection)


@value_class
class ModifyMany(Operation[UpdateResult]):
    """Change the objects that match, all or none.

    Each is changed as it is when its turn comes, not as it was when the first one was read: with one
    moment for all, whoever changes one of them meanwhile would make all begin anew.
    """

    collection: str
    modification: Modification
    filter: Filter
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    _inserted: list[str] = field(default_factory=list, repr=False)
    writes = True
    snapshot = False
    creates_collection = True

    def __call__(self, connection: Connection) -> UpdateResult:
        self._written.clear()
        self._inserted.clear()
        writer = Writer(connection, self.collection)
        matched = modified = 0
        batches = NaturalBatches(self.collection, self.filter)
        while (read := batches.next()) is not None:
            found = locked(
                connection, self.collection, self.filter, list(batches.advance(read(connection)))
            )
            modified += writer.rewrite_batch(self._changed(connection, found))
            matched += len(found)
        if matched or not self.modification.upsert:
            return UpdateResult(matched, modified)
        noted: dict[str, Any] = {"_written": self._written, "_inserted": self._inserted}
        only = ModifyOne(self.collection, self.modification, self.filter, **noted)
        result: UpdateResult = only(connection)
        return result

    def written(self, connection: Connection) -> Written:
        """Tell it anew, from what is there again: the texts would fill the memory."""
        if self._inserted:
            return self._written.items()
        every = (doc for _, doc in matching(connection, self.collection, self.filter))
        return ((document.id, text) for document, text in self._changed(connection, every))

    def missed(self) -> Find | None:
        """Return what finds an object that came into being since there was none."""
        return _missed(self)

    def _changed(
        self, connection: Connection, documents: Iterable[Document]
    ) -> Iterator[tuple[Document, str]]:
        """Yield the objects that change, with the texts of their new bodies."""
        for document in documents:
            ordered = connection.database.ordered_keys
            text = self.modification.of(document, self.filter, ordered=ordered)
            if text is not None:
                yield document, text


@value_class
class FindAndDelete(Operation[Document | None]):
    """Delete the first object that matches; gives it."""

    collection: str
    filter: Filter
    sort: Sort = NATURAL
    projection: Projection | None = None
    writes = True
    atomic = True

    def __call__(self, connection: Connection) -> Document | None:
        writer = Writer(connection, self.collection)
        return writer.atomically(lambda: self._deleted(connection, writer))

    def _deleted(self, connection: Connection, writer: Writer) -> Document | None:
        asked = Find(self.collection, self.filter, self.sort, limit=1)
        for _ in range(MAX_ATTEMPTS):
            found = asked(connection)
            if not found:
                return None
            told = _projected(connection, found[0], self.filter, self.projection)
            if writer.remove_document(found[0]):
                return told
        raise TransactionConflict(f"{self!r}: the object is changed by others again and again")


def _missed(operation: ModifyOne | ModifyMany) -> Find | None:
    inserted = operation._inserted
    return Find(operation.collection, operation.filter, limit=1) if inserted else None


def _projected(
    connection: Connection, told: Document | None, filter: Filter, wanted: Projection | None
) -> Document | None:
    if told is None or wanted is None:
        return told
    return wanted.apply(told, filter, ordered=connection.database.ordered_keys)


NINES: Final = 10**18 - 1
"""Up to here, a sum of two integers is one of 64 bit."""
GROWTH: Final = 19
"""Characters by which such a sum may be longer than the number that it takes the place of."""
_RULES: Final = codec.Codec()


@value_class
class Increment(Operation[Any]):
    """Add to the number at a path, which is `initial` where it is missing; gives the new number."""

    collection: str
    id: str
    path: Path
    by: int | float
    initial: int | float
    rules: codec.Codec
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    writes = True
    atomic = True
    creates_collection = True

    def __call__(self, connection: Connection) -> Any:
        writer = Writer(connection, self.collection)
        if self._is_simple(connection, writer):
            sql = writer.statements.by_id.increment(self.path.keys)
            fresh = writer.parameters(self.id, self._fresh(), None)
            counting = {"by": self.by, "size": self.rules.max_bytes - GROWTH}
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
        return (
            short
            and type(self.by) is int
            and connection.database.ordering.can_order(self.path.keys)
        )

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
        except OperandError as error:
            raise UpdateRefused(self.id, str(self.path), error.problem) from None

    def _value(self, body: Any) -> Any:
        found = (
            each for each in values_at(body, self.path.keys, leaf=False) if each is not MISSING
        )
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
