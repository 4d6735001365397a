"""The verbs that change objects in MongoDB's way: an object is read, changed here, and written where it
is still the same. Where it is not, it is read again: nothing is lost, and no lock is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from ..codec import Codec, decode
from ..document import Document, check_id, new_id
from ..errors import TransactionConflict, VersionConflict
from ..filter import Filter
from ..frozen import frozen
from ..ordering import Sort
from ..projection import Projection
from ..results import UpdateResult
from ..schema import now
from ..update import Update, seed, seed_id
from ..values import identical
from .documents import GetDocument, id_taken
from .queries import Find
from .reading import NATURAL, Reading, held, matching
from .writing import MAX_ATTEMPTS, Writer, Written

if TYPE_CHECKING:
    from .connection import Connection

EVERY: Final = Filter()
Answer: TypeAlias = Literal["result", "before", "after"]


@frozen
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


@frozen
class Replacement:
    """A body that takes the place of another."""

    body: Any


@frozen
class ModifyOne:
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
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Any:
        writer = Writer(connection, self.collection)
        work = partial(self._modified, connection, writer)
        return writer.atomically(work, always=self.answer == "after")

    def written(self, _: Connection) -> Written:
        return self._written.items()

    def rival(self) -> Find | None:
        """Return what finds an object that came into being since there was none: it, not a new one, is to
        be changed then.
        """
        return _rival(self) if self.id is None else None

    def _modified(self, connection: Connection, writer: Writer) -> Any:
        ordered = connection.database.ORDERED_KEYS
        for _ in range(MAX_ATTEMPTS):
            found = self._found(connection)
            if found is None and not self.modification.upsert:
                return UpdateResult(0, 0) if self.answer == "result" else None
            if found is None:
                inserted = self._insert(connection, writer)
                if inserted is not None:
                    return self._told(connection, UpdateResult(0, 0, inserted), None, inserted)
                continue
            text = self.modification.of(found, self.filter, ordered=ordered)
            self._check(connection, found, found, text)
            if text is None or self._write(writer, found, text):
                result = UpdateResult(1, int(text is not None))
                return self._told(connection, result, found, found.id)
        raise TransactionConflict(f"{self!r}: the object is changed by others again and again")

    def _found(self, connection: Connection) -> Document | None:
        if self.id is None:
            some = Find(self.collection, self.filter, self.sort, limit=1)(connection)
            return some[0] if some else None
        found = GetDocument(self.collection, self.id)(connection)
        version = None if found is None else found.version
        if self.expected is not None and version != self.expected:
            raise VersionConflict(self.collection, self.id, self.expected, version)
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
        ordered = connection.database.ORDERED_KEYS
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


@frozen
class ModifyMany:
    """Change the objects that match, all or none.

    Each is changed as it is when its turn comes, not as it was when the first one was read: with one
    moment for all, whoever changes one of them meanwhile would make all begin anew.
    """

    collection: str
    modification: Modification
    filter: Filter
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    _inserted: list[str] = field(default_factory=list, repr=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = False
    SNAPSHOT: ClassVar = False

    def __call__(self, connection: Connection) -> UpdateResult:
        self._written.clear()
        self._inserted.clear()
        writer = Writer(connection, self.collection)
        matched = modified = 0
        reading = Reading(self.collection, self.filter)
        while (read := reading.next()) is not None:
            found = held(
                connection, self.collection, self.filter, list(reading.took(read(connection)))
            )
            modified += writer.rewrite_all(self._changed(connection, found))
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

    def rival(self) -> Find | None:
        """Return what finds an object that came into being since there was none."""
        return _rival(self)

    def _changed(
        self, connection: Connection, documents: Iterable[Document]
    ) -> Iterator[tuple[Document, str]]:
        """Yield the objects that change, with the texts of their new bodies."""
        for document in documents:
            ordered = connection.database.ORDERED_KEYS
            text = self.modification.of(document, self.filter, ordered=ordered)
            if text is not None:
                yield document, text


@frozen
class FindAndDelete:
    """Delete the first object that matches; gives it."""

    collection: str
    filter: Filter
    sort: Sort = NATURAL
    projection: Projection | None = None
    WRITES: ClassVar = True
    SINGLE: ClassVar = True

    def __call__(self, connection: Connection) -> Document | None:
        writer = Writer(connection, self.collection)
        return writer.atomically(lambda: self._deleted(connection, writer))

    def nothing(self) -> None:
        return None

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


def _rival(operation: ModifyOne | ModifyMany) -> Find | None:
    inserted = operation._inserted
    return Find(operation.collection, operation.filter, limit=1) if inserted else None


def _projected(
    connection: Connection, told: Document | None, filter: Filter, wanted: Projection | None
) -> Document | None:
    if told is None or wanted is None:
        return told
    return wanted.apply(told, filter, ordered=connection.database.ORDERED_KEYS)
