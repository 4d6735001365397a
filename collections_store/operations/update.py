"""Updates and deletions of matching documents, and increments.

An update reads a document, computes the new body, and writes the new body if the version is still the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..codec import Codec, Decode, decode
from ..document import (
    Document,
    check_id,
    new_id,
    now,
)
from ..errors import (
    InvalidBody,
    InvalidUpdate,
    TransactionConflict,
    UpdateRefused,
    VersionConflict,
    shortened,
)
from ..expressions.classes import value_class
from ..expressions.collation import Collation, under
from ..expressions.evaluation import OperandError
from ..expressions.path import Path, field_name
from ..expressions.values import MISSING, identical
from ..query.filter import Filter
from ..query.matcher import values_at
from ..query.projection import Projection
from ..query.sort import Sort
from ..results import DeleteResult, UpdateResult
from ..sql.query import Query
from ..update import PipelineResult, Update
from ..update.apply import seed, seed_id
from ..update.operators import checked
from ..update.parser import parse_path
from .by_id import AtomicWrite, GetDocument, id_taken, written_body
from .find import Find
from .operation import Operation, Written
from .read import (
    BEFORE_ALL,
    NaturalBatches,
    ReadsDocuments,
    locked,
    matching,
    returned,
)
from .session import Session
from .write import MAX_ATTEMPTS, Writer, lifetime, named

EVERYTHING: Final = Filter()
Answer: TypeAlias = Literal["result", "before", "after"]


@value_class
class Replacement:
    """A body that replaces the old body."""

    body: Any

    def apply(self, _: Document, **__: Any) -> Any:
        """Return the body, as `Update.apply` returns a changed body."""
        return self.body


def current(codec: Codec, collection: str, document: Document) -> Document:
    """Return a stored document with the body that an update changes; raise `InvalidBody`."""
    try:
        body = codec.current(document)
    except InvalidBody as error:
        raise error.of(collection, document.id) from error.__cause__
    return document if body is document.body else replace(document, body=body)


@value_class
class Modification:
    """How an update changes a document. `upsert`: inserts a document if none matches. `time`: the beginning of the
    call, in microseconds since 1970. `collation`: how operators and array filters compare strings; None: by code point.
    """

    update: Update | Replacement
    codec: Codec
    upsert: bool
    time: int
    collation: Collation | None = None

    def changed_text(self, document: Document, filter: Filter, *, ordered: bool) -> str | None:
        """Return the text of the new body; None: nothing changes."""
        by = under(self.collation, ordered)
        body = self.update.apply(document, filter=filter, ordered=by, now=self.time)
        if body is document.body:
            return None
        if not self.codec.is_plain:
            self._check(body, document.body)
        text = self.codec.encode_updated(body)
        if self.codec.is_plain and ordered and isinstance(self.update, Update):
            return text  # `apply` has compared each value
        stored = body if self.codec.is_plain else decode(text)
        return None if identical(stored, document.body, ordered=ordered) else text

    def inserted_text(self, id: str, filter: Filter, *, ordered: bool) -> str:
        """Return the text of the body that an upsert inserts."""
        empty = Document(id, seed(filter) if isinstance(self.update, Update) else {})
        options: dict[str, Any] = {"filter": filter, "ordered": under(self.collation, ordered)}
        body = self.update.apply(empty, **options, now=self.time, inserting=True)
        if not self.codec.is_plain:
            self._check(body, empty.body)
        return self.codec.encode_updated(body)

    def _check(self, body: Any, before: Any) -> None:
        """Raise `UnknownField` for an undeclared field in a pipeline's result; operators were checked before."""
        if isinstance(self.update, Update) and self.update.pipeline is not None:
            self.codec.check_fields(PipelineResult(body, before), "update")


class _Update(Operation[Any]):
    """Base class of updates that may insert, and remember their writes for `written` and `missed`."""

    __slots__ = ()
    writes = True
    creates_collection = True
    if TYPE_CHECKING:
        filter: Filter
        _written: dict[str, str]
        _inserted: list[str]

    def missed(self) -> Find | None:
        return Find(self.collection, self.filter, limit=1) if self._inserted else None

    def _remember(self, id: str, text: str, *, inserted: bool = False) -> None:
        self._written.clear()
        self._written[id] = text
        self._inserted[:] = [id] if inserted else []


@value_class
class ModifyOne(_Update):
    """Change the document `id`, or the first match; returns the result, or the document before or after. Raises
    `VersionConflict` for a version other than `expected`.
    """

    collection: str
    modification: Modification
    filter: Filter = EVERYTHING
    sort: Sort | None = None
    id: str | None = None
    expected: int | None = None
    answer: Answer = "result"
    projection: Projection | None = None
    decode: Decode = field(default=decode, repr=False)
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    _inserted: list[str] = field(default_factory=list, repr=False)
    atomic = True

    @property
    def method(self) -> str:  # type: ignore[override]
        """The method that asks for this update."""
        if self.id is not None:
            return "update"
        replaces = isinstance(self.modification.update, Replacement)
        if self.answer == "result":
            return "replace_one" if replaces else "update_one"
        return "find_one_and_replace" if replaces else "find_one_and_update"

    def __call__(self, session: Session) -> Any:
        writer = Writer(session, self.collection)
        work = partial(self._modified, session, writer)
        return writer.atomically(work, always=self.answer == "after")

    def written(self, _: Session) -> Written:
        return self._written.items()

    def _modified(self, session: Session, writer: Writer) -> Any:
        ordered = session.database.ordered_keys
        for _ in range(MAX_ATTEMPTS):
            found = self._found(session)
            if found is None:
                if not self.modification.upsert:
                    return UpdateResult(0, 0) if self.answer == "result" else None
                inserted = self._insert(session, writer)
                if inserted is None:
                    continue
                result = UpdateResult(0, 0, inserted, version=1)
            else:
                codec = self.modification.codec
                document = found if codec.is_plain else current(codec, self.collection, found)
                text = self.modification.changed_text(document, self.filter, ordered=ordered)
                if self.answer != "result":
                    self._check_answer(session, found, found, text)
                if text is not None:
                    self._remember(found.id, text)
                    if not writer.rewrite(found, text):
                        continue
                changed = int(text is not None)
                result = UpdateResult(1, changed, version=found.version + changed)
            if self.answer == "result":
                return result
            return self._answered(session, found, result.upserted_id)
        raise changed_by_others(self)

    def _found(self, session: Session) -> Document | None:
        if self.id is None:
            some = Find(self.collection, self.filter, self.sort, limit=1)(session)
            found = some[0] if some else None
        else:
            found = GetDocument(self.collection, self.id)(session)
        if self.expected is not None:
            version = None if found is None else found.version
            id = self.id if found is None else found.id
            if id is not None and version != self.expected:
                raise VersionConflict(self.collection, id, self.expected, version)
        return found

    def _insert(self, session: Session, writer: Writer) -> str | None:
        """Insert the document of an upsert; None if a concurrent write inserted first."""
        wanted = seed_id(self.filter) if self.id is None else self.id
        id = new_id() if wanted is None else check_id(wanted)
        ordered = session.database.ordered_keys
        text = self.modification.inserted_text(id, self.filter, ordered=ordered)
        self._check_answer(session, None, Document(id, None), text)
        self._remember(id, text, inserted=self.id is None)
        if writer.insert(id, text, None):
            return id
        if self._found(session) is None:
            raise id_taken(self.collection, id)
        return None

    def _check_answer(
        self, session: Session, before: Document | None, known: Document, text: str | None
    ) -> None:
        """Raise the error of the projection or of a stored body before anything is written."""
        if self.projection is None and self.decode is decode:
            return
        after = known if text is None else replace(known, body=decode(text))
        _answered(session, self, before if self.answer == "before" else after)

    def _answered(
        self, session: Session, before: Document | None, inserted: str | None
    ) -> Document | None:
        answer = before
        if self.answer == "after":
            id = before.id if before is not None else inserted
            answer = None if id is None else GetDocument(self.collection, id)(session)
        return _answered(session, self, answer)


@value_class
class ModifyMany(_Update):
    """Change the matching documents, all or none.

    Each document is read when its batch is reached: with one snapshot for all, a concurrent change of any document
    would make the operation begin again.
    """

    collection: str
    modification: Modification
    filter: Filter
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    _inserted: list[str] = field(default_factory=list, repr=False)
    method = "update_many"
    snapshot = False

    def __call__(self, session: Session) -> UpdateResult:
        self._written.clear()
        self._inserted.clear()
        writer = Writer(session, self.collection)
        matched = modified = 0
        batches = NaturalBatches(self.collection, self.filter)
        while (read := batches.next()) is not None:
            batch = list(batches.advance(read(session)))
            found = locked(session, self.collection, self.filter, batch)
            modified += writer.rewrite_batch(self._changed(session, found))
            matched += len(found)
        if matched or not self.modification.upsert:
            return UpdateResult(matched, modified)
        shared: dict[str, Any] = {"_written": self._written, "_inserted": self._inserted}
        only = ModifyOne(self.collection, self.modification, self.filter, **shared)
        result: UpdateResult = only(session)
        return result

    def written(self, session: Session) -> Written:
        """Compute the texts again from the documents after the rollback: remembered texts would fill the memory."""
        if self._inserted:
            return self._written.items()
        every = (doc for _, doc in matching(session, self.collection, self.filter))
        return ((document.id, text) for document, text in self._changed(session, every))

    def _changed(
        self, session: Session, documents: Iterable[Document]
    ) -> Iterator[tuple[Document, str]]:
        """Yield the changed documents, with the texts of the new bodies."""
        ordered = session.database.ordered_keys
        for document in documents:
            codec = self.modification.codec
            ours = document if codec.is_plain else current(codec, self.collection, document)
            text = self.modification.changed_text(ours, self.filter, ordered=ordered)
            if text is not None:
                yield document, text


@value_class
class FindAndDelete(AtomicWrite[Document | None]):
    """Delete the first matching document; returns the document."""

    collection: str
    filter: Filter
    sort: Sort | None = None
    projection: Projection | None = None
    decode: Decode = field(default=decode, repr=False)
    method = "find_one_and_delete"

    def __call__(self, session: Session) -> Document | None:
        writer = Writer(session, self.collection)
        return writer.atomically(lambda: self._deleted(session, writer))

    def _deleted(self, session: Session, writer: Writer) -> Document | None:
        find = Find(self.collection, self.filter, self.sort, limit=1)
        for _ in range(MAX_ATTEMPTS):
            found = find(session)
            if not found:
                return None
            answer = _answered(session, self, found[0])
            if writer.remove_document(found[0]):
                return answer
        raise changed_by_others(self)


def _answered(
    session: Session, operation: ReadsDocuments, document: Document | None
) -> Document | None:
    if document is None:
        return None
    if operation.projection is None and operation.decode is not decode:
        body = written_body(operation.collection, document.id, document.body, operation.decode)
        return replace(document, body=body)
    [answer] = returned(session, operation, [document])
    return answer


MAX_OPERAND: Final = 10**18 - 1
"""The sum of two integers up to this value has 64 bits."""
GROWTH: Final = 19
"""Characters by which such a sum may be longer than the old number."""
_UNLIMITED: Final = Codec()


@value_class
class Increment(AtomicWrite[Any]):
    """Add to the number at a path, `initial` if missing; returns the new number."""

    collection: str
    id: str
    path: Path
    by: int | float
    initial: int | float
    codec: Codec
    _written: dict[str, str] = field(default_factory=dict, repr=False)
    creates_collection = True

    def __call__(self, session: Session) -> Any:
        writer = Writer(session, self.collection)
        if self._is_one_statement(session, writer):
            sql = writer.statements.by_id.increment(self.path.keys)
            life = lifetime(None, writer.statements.options.ttl)
            limits = {"by": self.by, "size": self.codec.max_bytes - GROWTH}
            row = {"id": self.id, "body": self._new_text(), **named(life), **limits}
            rows = session.rows(sql, row)
            if rows:
                return decode(rows[0][0])
        return writer.atomically(partial(self._read_and_write, session, writer))

    def written(self, _: Session) -> Written:
        return self._written.items()

    def _is_one_statement(self, session: Session, writer: Writer) -> bool:
        """Return whether a single SQL statement can increment: no model, feed, unique index or keys, and small numbers."""
        statements = writer.statements
        if not self.codec.is_plain or statements.feed is not None or statements.can_refuse:
            return False
        if statements.by_id.keyed:
            return False
        if type(self.by) is not int or abs(self.by) > MAX_OPERAND:
            return False
        fits = isinstance(self.initial, float) or abs(self.initial) <= MAX_OPERAND
        return fits and session.database.ordering.can_order(self.path.keys)

    def _read_and_write(self, session: Session, writer: Writer) -> Any:
        for _ in range(MAX_ATTEMPTS):
            found = GetDocument(self.collection, self.id)(session)
            if found is None:
                text = self._new_text()
                done = writer.insert(self.id, text, None)
            else:
                text = self._increased(current(self.codec, self.collection, found))
                done = writer.rewrite(found, text)
            if done:
                return self._value(decode(text))
        raise changed_by_others(self)

    def _new_text(self) -> str:
        """Return the text of the body of a new document."""
        body = self._first()
        for key in reversed(self.path.keys):
            body = {key: body}
        return self._remember(body)

    def _increased(self, document: Document) -> str:
        """Return the text of a document's body with the number increased."""
        is_there = self._value(document.body) is not MISSING
        update = Update.parse({"$inc": {self.path: self.by if is_there else self._first()}})
        return self._remember(update.apply(document, now=now()))

    def _remember(self, body: Any) -> str:
        self._written.clear()
        self._written[self.id] = text = self.codec.encode_updated(body)
        return text

    def _first(self) -> Any:
        """Return the new number at a path without a number."""
        try:
            return checked(self.initial + self.by)
        except OperandError as error:
            raise UpdateRefused(self.id, str(self.path), error.problem) from None

    def _value(self, body: Any) -> Any:
        found = values_at(body, self.path.keys, leaf=False)
        return next((each for each in found if each is not MISSING), MISSING)


def read_increment(path: Any, by: Any, initial: Any) -> Path:
    """Return the path of a number that can be increased; raises `InvalidUpdate`."""
    path = field_name(path)
    if not isinstance(path, str | Path):
        raise InvalidUpdate("", f"the path must be a string or a Path, got {shortened(path)}")
    where = f"$inc.{path}"
    keys = [str(piece) for piece in parse_path(path, "$inc")]
    if any(key.startswith("$") for key in keys):
        raise InvalidUpdate(where, "must name a single field of the body")
    for number in (by, initial):
        if type(number) not in {int, float}:
            raise InvalidUpdate(where, f"must be a number, got {shortened(number)}")
        try:
            _UNLIMITED.encode(number)
        except InvalidBody as error:
            raise InvalidUpdate(where, error.problem) from error
    return Path(*keys)


DELETE_BATCH: Final = 1000
"""Documents of a deletion batch, where each deletion is recorded or found by the matcher."""


@value_class
class DeleteFirst(Operation[DeleteResult]):
    """Delete the first matching document."""

    collection: str
    filter: Filter
    method = "delete_one"
    writes = True
    empty = partial(DeleteResult, 0)

    def __call__(self, session: Session) -> DeleteResult:
        writer = Writer(session, self.collection)
        find = Find(self.collection, self.filter, None, limit=1)
        for _ in range(MAX_ATTEMPTS):
            found = find(session)
            if not found or writer.remove_document(found[0]):
                return DeleteResult(len(found))
        raise changed_by_others(self)


@value_class
class DeleteMatching(Operation[DeleteResult]):
    """Delete the matching documents."""

    collection: str
    filter: Filter
    method = "delete_many"
    writes = True
    empty = partial(DeleteResult, 0)

    def __call__(self, session: Session) -> DeleteResult:
        writer = Writer(session, self.collection)
        query = writer.statements.delete(self.filter, indexed=not self._has_arrays(session))
        has_feed = writer.statements.feed is not None
        if query.residual or (has_feed and not writer.statements.database.takes_subqueries):
            return DeleteResult(self._by_ids(session, writer))
        if has_feed:
            return DeleteResult(self._recorded(session, writer, query))
        return DeleteResult(session.changed(query.sql, query.parameters(self.filter)))

    def _has_arrays(self, session: Session) -> bool:
        """Return whether arrays make the indexed form of the statement wrong."""
        guard = session.collection(self.collection).guard(self.filter)
        return guard is not None and session.finds(guard, self.filter)

    def _by_ids(self, session: Session, writer: Writer) -> int:
        """Delete the documents that the matcher finds, in batches."""
        found = (document for _, document in matching(session, self.collection, self.filter))
        total = 0
        while batch := list(islice(found, DELETE_BATCH)):
            ours = locked(session, self.collection, self.filter, batch)
            total += writer.remove_many([each.id for each in ours]) if ours else 0
        return total

    def _recorded(self, session: Session, writer: Writer, query: Query) -> int:
        """Delete documents and record the deletions, in batches."""
        total, after = 0, BEFORE_ALL
        while True:
            rows = sorted(session.select(query, self.filter, seq=after, limit=DELETE_BATCH))
            total += writer.removed(row[1:] for row in rows)
            if len(rows) < DELETE_BATCH:
                return total
            after = rows[-1][0]


def changed_by_others(operation: Operation[Any]) -> TransactionConflict:
    """Return the error of an operation whose every attempt lost against another write."""
    return TransactionConflict(
        f"{operation!r}: others changed the document in each of {MAX_ATTEMPTS} attempts"
    )
