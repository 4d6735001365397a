"""The errors of this library.

Each is also the builtin exception in parentheses: `except KeyError` catches a `CollectionNotFound`. The facts of an
error are attributes::

    CollectionsStoreError
    ├── InvalidUrl (ValueError)
    ├── InvalidOption (ValueError)
    ├── InvalidName (ValueError)
    ├── InvalidId (ValueError)
    ├── InvalidBody (ValueError, TypeError)
    │   ├── DocumentTooNew
    │   └── UpgradeFailed
    ├── InvalidFilter (ValueError)
    │   └── UnknownField (AttributeError)
    ├── InvalidProjection (ValueError)
    ├── InvalidSort (ValueError)
    ├── InvalidUpdate (ValueError)
    ├── InvalidPipeline (ValueError)
    ├── InvalidIndex (ValueError)
    ├── InvalidSearch (ValueError)
    ├── InvalidCursor (ValueError)
    ├── InvalidToken (ValueError)
    ├── DocumentNotFound (KeyError)
    ├── DocumentsOutdated (RuntimeError)
    ├── VersionConflict (RuntimeError)
    ├── DuplicateKey (ValueError)
    ├── UpdateRefused (ValueError)
    ├── BulkWriteError (RuntimeError)
    ├── CollectionNotFound (KeyError)
    ├── CollectionExists (ValueError)
    ├── CopyFailed (RuntimeError)
    ├── InvalidBackup (ValueError)
    ├── IndexExists (ValueError)
    ├── ChangesLost (RuntimeError)
    ├── InvalidOperand (ValueError)
    ├── MemoryLimitExceeded (RuntimeError)
    ├── PatternLimitExceeded (RuntimeError)
    ├── InvalidDialogueMessage (ValueError)
    │   └── RepeatedMessage
    ├── DialogueNotFound (KeyError)
    ├── DialogueConflict (RuntimeError)
    ├── DialoguesNotSaved (RuntimeError)
    ├── NotTheCreator (PermissionError)
    ├── StoreClosed (RuntimeError)
    ├── TransactionEnded (RuntimeError)
    ├── MissingExtra (ImportError)
    ├── SchemaError (RuntimeError)
    │   ├── SchemaOutdated
    │   └── SchemaTooNew
    └── DatabaseError (RuntimeError)
        ├── DatabaseUnavailable (ConnectionError)
        │   └── ReadOnlyDatabase
        ├── DatabaseBusy (TimeoutError)
        └── TransactionConflict
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Never, Protocol, Self, get_origin

__all__ = [
    "BulkWriteError", "ChangesLost", "CollectionExists", "CollectionNotFound", "CollectionsStoreError",
    "CopyFailed", "DatabaseBusy", "DatabaseError", "DatabaseUnavailable", "DialogueConflict", "DialogueNotFound",
    "DialoguesNotSaved", "DocumentNotFound", "DocumentTooNew", "DocumentsOutdated", "DuplicateKey", "IndexExists",
    "InvalidBackup", "InvalidBody", "InvalidCursor",
    "InvalidDialogueMessage", "InvalidFilter", "InvalidId", "InvalidIndex", "InvalidName", "InvalidOperand",
    "InvalidOption", "InvalidPipeline", "InvalidProjection", "InvalidSearch", "InvalidSort", "InvalidToken", "InvalidUpdate",
    "InvalidUrl", "MemoryLimitExceeded", "MissingExtra", "NotTheCreator", "PatternLimitExceeded", "ReadOnlyDatabase",
    "RepeatedMessage",
    "SchemaError", "SchemaOutdated", "SchemaTooNew", "StoreClosed", "TransactionConflict", "TransactionEnded",
    "UnknownField", "UpdateRefused", "UpgradeFailed", "VersionConflict", "was_committed",
]  # fmt: skip

LONGEST_MESSAGE: Final = 1000
"""Characters; a longer message loses its middle."""


class CollectionsStoreError(Exception):
    """The base of all errors of this library. The message is one line of at most 1,000 characters; pickle keeps every fact."""

    def __init__(self, message: str = "", **options: Any) -> None:
        super().__init__(cut(" ".join(message.splitlines()), LONGEST_MESSAGE), **options)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError's is a repr

    def __reduce__(self) -> tuple[Any, ...]:
        parts: Any = super().__reduce__()
        _, args, *state = parts
        return _rebuilt, (type(self), args), *state


# -- invalid arguments -----------------------------------------------------------------------


class InvalidUrl(CollectionsStoreError, ValueError):
    """The database URL cannot be used; the message shows the form that can."""


class InvalidOption(CollectionsStoreError, ValueError):
    """The argument `option` is invalid: pass a value as the message asks."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option


class InvalidName(CollectionsStoreError, ValueError):
    """A collection cannot have this `name`: use 1 to 200 of the characters A-Z, a-z, 0-9 and _."""

    def __init__(self, name: object) -> None:
        rule = "use 1 to 200 of the characters A-Z, a-z, 0-9 and _"
        if get_origin(name) is not None:  # such as a union
            rule = "give it a name, and this type as `model`"
        super().__init__(f"{shortened(name)} cannot name a collection: {rule}")
        self.name = name


class InvalidId(CollectionsStoreError, ValueError):
    """A document cannot have this `id`: pass a string of up to 2,000 bytes of UTF-8."""

    id: object
    problem: str

    def __init__(self, id: object, problem: str) -> None:
        super().__init__(f"{shortened(id)} cannot be a document's id: {problem}")
        self.id, self.problem = id, problem


class InvalidBody(CollectionsStoreError, ValueError, TypeError):
    """A body has a value that JSON, its model or an index cannot hold, at `path`, or is too large: change the value, or set
    the store's `default`. For a stored body, `collection` and `id` name the document.
    """

    path: str
    problem: str
    collection: str | None
    id: str | None

    def __init__(
        self, path: str, problem: str, collection: str | None = None, id: str | None = None
    ) -> None:
        of = "" if id is None else f"document {shortened(id)}: "
        of = of if collection is None else f"collection {collection}: {of}"
        where = f"at {shortened(path)}" if path else "the body itself"
        super().__init__(f"{of}{where}: {problem}")
        self.path, self.problem, self.collection, self.id = path, problem, collection, id

    def of(self, collection: str, id: str) -> Self:
        """Return the error with the document's name."""
        return type(self)(self.path, self.problem, collection, id)


class DocumentTooNew(InvalidBody):
    """A document has the schema version `found`, and this program declares only `expected`: run a newer program, or declare
    a downgrade.
    """

    found: int
    expected: int
    path: str
    problem: str
    collection: str | None
    id: str | None

    def __init__(
        self, found: int, expected: int, collection: str | None = None, id: str | None = None
    ) -> None:
        problem = (
            f"has schema version {found}, which is newer than {expected}: "
            "run a newer program, or declare a downgrade"
        )
        CollectionsStoreError.__init__(self, f"{_document(collection, id)} {problem}")
        self.found, self.expected = found, expected
        self.path, self.problem, self.collection, self.id = "", problem, collection, id

    def of(self, collection: str, id: str) -> Self:
        """Return the error with the document's name."""
        return type(self)(self.found, self.expected, collection, id)


class UpgradeFailed(InvalidBody):
    """The step from schema version `found` to `wanted` fails for a document, which is unchanged: correct the function,
    or the document. `__cause__` is the error of the function.
    """

    found: int
    wanted: int
    reason: str
    path: str
    problem: str
    collection: str | None
    id: str | None

    def __init__(
        self,
        found: int,
        wanted: int,
        reason: str,
        collection: str | None = None,
        id: str | None = None,
    ) -> None:
        problem = f"cannot go from schema version {found} to {wanted}: {reason}"
        CollectionsStoreError.__init__(self, f"{_document(collection, id)} {problem}")
        self.found, self.wanted, self.reason = found, wanted, reason
        self.path, self.problem, self.collection, self.id = "", problem, collection, id

    def of(self, collection: str, id: str) -> Self:
        """Return the error with the document's name."""
        return type(self)(self.found, self.wanted, self.reason, collection, id)


def _document(collection: str | None, id: str | None) -> str:
    """Return the name of a document in a message."""
    return "the document" if id is None else f"collection {collection}: document {shortened(id)}"


class InvalidFilter(CollectionsStoreError, ValueError):
    """A filter is malformed at `place`: correct it there."""

    place: str
    problem: str

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(_at("filter", place, problem))
        self.place, self.problem = place, problem


class UnknownField(InvalidFilter, AttributeError):
    """A model lacks the field at `place` of a filter, a sort order, an index or an update: correct its name, or open the
    collection with `extra="allow"`.
    """

    place: str
    problem: str

    def __init__(self, place: str, problem: str, what: str = "filter") -> None:
        CollectionsStoreError.__init__(self, _at(what, place, problem))
        self.place, self.problem = place, problem


class InvalidProjection(CollectionsStoreError, ValueError):
    """A projection is malformed at `place`, or does not fit its filter: correct it there."""

    place: str
    problem: str

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(_at("projection", place, problem))
        self.place, self.problem = place, problem


class InvalidSort(CollectionsStoreError, ValueError):
    """A sort order is malformed at `field`: correct it there."""

    field: str
    problem: str

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(_at("sort", field, problem))
        self.field, self.problem = field, problem


class InvalidUpdate(CollectionsStoreError, ValueError):
    """An update is malformed at `place`, whatever the document: correct it there."""

    place: str
    problem: str

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(_at("update", place, problem))
        self.place, self.problem = place, problem


class InvalidPipeline(CollectionsStoreError, ValueError):
    """A pipeline is malformed at `place`, which begins with the number of the stage: correct it there."""

    place: str
    problem: str

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(_at("pipeline", place, problem))
        self.place, self.problem = place, problem


class InvalidIndex(CollectionsStoreError, ValueError):
    """An index is not possible because of `field`, a field or an option: change the field or the option."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(_at("index", field, problem))
        self.field = field


class InvalidSearch(CollectionsStoreError, ValueError):
    """A search for `query` is not possible: give a word to find, or create a text index."""

    def __init__(self, query: object, problem: str) -> None:
        super().__init__(f"search {shortened(query)}: {problem}")
        self.query = query


class InvalidCursor(CollectionsStoreError, ValueError):
    """A page's cursor is damaged, or of another collection, filter or sort: begin with the first page."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"cursor: {problem}")


class InvalidToken(CollectionsStoreError, ValueError):
    """The token of a change stream is damaged, or of another collection or database: read the documents, and watch from
    now.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(f"token: {problem}")


# -- documents and collections ---------------------------------------------------------------


class DocumentNotFound(CollectionsStoreError, KeyError):
    """No document has the `id`: put one, or pass a `default`."""

    collection: str
    id: str

    def __init__(self, collection: str, id: str) -> None:
        super().__init__(f"collection {collection}: there is no document {shortened(id)}")
        self.collection, self.id = collection, id


class DocumentsOutdated(CollectionsStoreError, RuntimeError):
    """Documents have the older schema version `found`, so a filter, a sort or a unique index over the fields of
    version `expected` would be wrong: run `upgrade_documents` first. Reads and writes by id upgrade each document.
    """

    collection: str
    found: int
    expected: int

    def __init__(self, collection: str, found: int, expected: int) -> None:
        super().__init__(
            f"collection {collection}: some documents have schema version {found}, and filters need "
            f"{expected} in all: run upgrade_documents(), or "
            f"collections-store documents upgrade {collection} --using module:object"
        )
        self.collection, self.found, self.expected = collection, found, expected


class VersionConflict(CollectionsStoreError, RuntimeError):
    """The document `id` has the version `found`, not `expected` (None: no document), and was not written: read the
    document again. Equal versions are of two documents: the expected document was deleted, and `id` written again.
    """

    collection: str
    id: str
    expected: int | None
    found: int | None

    def __init__(self, collection: str, id: str, expected: int | None, found: int | None) -> None:
        must = "not exist" if expected is None else f"have version {expected}"
        got = "no document" if found is None else f"version {found}"
        if found is not None and found == expected:
            got += " of a later document"
        super().__init__(
            f"collection {collection}: {shortened(id)} must {must}, got {got}: "
            "read the document again, then repeat the change"
        )
        self.collection, self.id, self.expected, self.found = collection, id, expected, found


class DuplicateKey(CollectionsStoreError, ValueError):
    """A unique `index` prevents the write of `id`, because another document has the values `key`: change these."""

    collection: str
    index: str
    key: dict[str, Any]
    id: str | None

    def __init__(
        self,
        collection: str,
        index: str,
        key: dict[str, Any],
        id: str | None,
        in_arrays: tuple[str, ...] = (),
    ) -> None:
        which = "a document" if id is None else shortened(id)
        values = f"; values in arrays count as null: {shortened(in_arrays[0])}" if in_arrays else ""
        super().__init__(
            f"collection {collection}: {which} would have the same {shortened(key)} as another, "
            f"which the unique index {index!r} forbids{values}"
        )
        self.collection, self.index, self.key, self.id = collection, index, key, id


class UpdateRefused(CollectionsStoreError, ValueError):
    """An update does not fit the value at `place` of the document `id`, which is unchanged: change either."""

    id: str
    place: str
    problem: str

    def __init__(self, id: str, place: str, problem: str) -> None:
        super().__init__(_at(f"update of {shortened(id)}", place, problem))
        self.id, self.place, self.problem = id, place, problem


class BulkWriteError(CollectionsStoreError, RuntimeError):
    """Some of many writes failed: `result` has the refused items with their errors, and the counts of the completed
    writes.
    """

    def __init__(self, collection: str, result: Any) -> None:
        first, count = result.refused[0], len(result.refused)
        more = f", and {count - 1:,} more" if count > 1 else ""
        super().__init__(
            f"collection {collection}: refused the one at position {first.position:,} "
            f"({first.error}){more}: see `result` for what was written"
        )
        self.collection = collection
        self.result: PartialResult = result


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused item and its error; `position` is its index in the input."""

    position: int
    id: str | None
    error: CollectionsStoreError


class PartialResult(Protocol):
    """The common attributes of `PutManyResult` and `BulkWriteResult`."""

    @property
    def inserted_count(self) -> int:
        """The number of new documents."""

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """The refused items."""


class CollectionNotFound(CollectionsStoreError, KeyError):
    """No collection has the `name`: put a document into the collection first, or check the name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"there is no collection {name!r}{did_you_mean(name, known)}")
        self.name = name


class CollectionExists(CollectionsStoreError, ValueError):
    """A collection of this `name` exists: drop it first, or choose another name."""

    def __init__(self, name: str, advice: str = "drop it first, or take another name") -> None:
        super().__init__(f"there is a collection {name!r} already: {advice}")
        self.name = name


class CopyFailed(CollectionsStoreError, RuntimeError):
    """A copy to the `collection` ended early: other clients write to the collection, or its documents differ from the
    copied ones. Run the copy again when nobody else uses the collection: the copy continues.
    """

    def __init__(self, collection: str, problem: str) -> None:
        super().__init__(f"the copy of the collection {collection!r} is incomplete: {problem}")
        self.collection = collection


class InvalidBackup(CollectionsStoreError, ValueError):
    """The `file` is no backup, or is damaged at `place`; nothing was restored."""

    file: str
    place: str

    def __init__(self, file: str, place: str, problem: str) -> None:
        super().__init__(f"{file!r}, {place}: {problem}" if place else f"{file!r}: {problem}")
        self.file, self.place = file, place


class IndexExists(CollectionsStoreError, ValueError):
    """Another index has the `name`, or the same fields with other options: drop the other index first."""

    def __init__(self, name: str, existing: str) -> None:
        super().__init__(
            f"index {name!r} would be another than the one there is ({existing}): drop that first"
        )
        self.name = name


class ChangesLost(CollectionsStoreError, RuntimeError):
    """Changes after `token` were deleted, or recorded without the bodies that a filter needs: read the documents, and
    watch after `oldest` (None: the collection records no changes).
    """

    collection: str
    token: str
    oldest: str | None

    def __init__(self, collection: str, token: str, oldest: str | None) -> None:
        advice = "changes are no longer recorded"
        if oldest is not None:
            advice = "read what is there now, and go on with after=error.oldest"
        super().__init__(
            f"collection {collection}: not all changes after the token are there any more: {advice}"
        )
        self.collection, self.token, self.oldest = collection, token, oldest


# -- limits of a computation -----------------------------------------------------------------


class InvalidOperand(CollectionsStoreError, ValueError):
    """The `operator` of an expression cannot take the value `found`: convert or exclude it before. `place` is the stage of
    a pipeline or the field of a projection, None in a filter.
    """

    operator: str
    problem: str
    found: Any
    place: str | None

    def __init__(
        self,
        operator: str,
        problem: str,
        found: Any = None,
        place: str | None = None,
        part: str = "pipeline",
    ) -> None:
        where = "" if place is None else f"{part}, at {place!r}: "
        super().__init__(f"{where}{operator} {problem}")
        self.operator, self.problem, self.found, self.place = operator, problem, found, place


SPILLING: Final = frozenset({"$bucket", "$group", "$setWindowFields", "$sort", "$sortByCount"})
"""The stages that can sort in a temporary file."""


class MemoryLimitExceeded(CollectionsStoreError, RuntimeError):
    """The stage `stage` of a pipeline at `place` (`""`: its result) holds more than `limit` bytes: reduce the documents
    before it, or pass a larger `memory_limit`.
    """

    place: str
    stage: str
    limit: int

    def __init__(self, place: str, stage: str, limit: int) -> None:
        where = f", at {place!r}: {stage}" if place else ": the result"
        disk = " or allow_disk_use=True" if stage in SPILLING else ""
        super().__init__(
            f"pipeline{where} holds more than {limit:,} bytes. Let stages in front of "
            f"it leave less ($match, $project, $limit), or give a larger memory_limit{disk}"
        )
        self.place, self.stage, self.limit = place, stage, limit


class PatternLimitExceeded(CollectionsStoreError, RuntimeError):
    """A regular expression takes more than `limit` steps over a string: simplify it, or filter by another condition first."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"a regular expression takes more than {limit:,} steps over a string: write it without "
            "references to groups, lookarounds or large repetitions, or filter by something else first"
        )
        self.limit = limit


# -- dialogues and memories ------------------------------------------------------------------


class InvalidDialogueMessage(CollectionsStoreError, ValueError):
    """The `message` is not valid in its dialogue, or not now, and was not saved: drop or correct it."""

    message: Any
    problem: str

    def __init__(self, message: Any, problem: str) -> None:
        super().__init__(f"{shortened(message, 200)}: {problem}")
        self.message, self.problem = message, problem


class RepeatedMessage(InvalidDialogueMessage):
    """The `message` was accepted before, and `dialogue` holds it: count the message as delivered."""

    def __init__(self, message: Any, dialogue: Any) -> None:
        super().__init__(message, "it was accepted before")
        self.dialogue = dialogue


class DialogueNotFound(CollectionsStoreError, KeyError):
    """No dialogue has the `label`, or the message belongs to none: begin a dialogue with an initial message."""

    def __init__(self, label: Any, problem: str = "there is no such dialogue") -> None:
        super().__init__(f"{shortened(label, 200)}: {problem}")
        self.label = label


class DialogueConflict(CollectionsStoreError, RuntimeError):
    """Another process or object wrote to the dialogue `label`, and this write was rolled back: let one process have an
    agent's dialogues.
    """

    def __init__(self, label: Any) -> None:
        super().__init__(
            f"{shortened(label, 200)}: somebody else wrote to this dialogue: has another process the same "
            "agent and component?"
        )
        self.label = label


class DialoguesNotSaved(CollectionsStoreError, RuntimeError):
    """Some dialogues were not saved, for the reasons in `errors` by label: correct the causes, and save again."""

    def __init__(self, errors: Any) -> None:
        (label, first), *others = errors.items()
        more = f", and {len(others):,} more" if others else ""
        super().__init__(f"{shortened(label, 200)} was not saved: {first}{more}")
        self.errors = errors


class NotTheCreator(CollectionsStoreError, PermissionError):
    """The `skill` changed the PUBLIC memory `name` of the skill `creator`, and nothing was written: omit the memory, or use
    another policy.
    """

    name: str
    creator: str
    skill: str

    def __init__(self, name: str, creator: str, skill: str) -> None:
        super().__init__(
            f"memory {shortened(name)}: skill {shortened(creator)} created it, so {shortened(skill)} cannot "
            "change it: return the same value, omit the memory, or use another policy"
        )
        self.name, self.creator, self.skill = name, creator, skill


# -- the store and its database --------------------------------------------------------------


class StoreClosed(CollectionsStoreError, RuntimeError):
    """The store was closed, or belongs to the parent process of a fork: open another."""


class TransactionEnded(CollectionsStoreError, RuntimeError):
    """The transaction was committed or rolled back: begin another. `__cause__` is the error that caused the rollback."""


class MissingExtra(CollectionsStoreError, ImportError):
    """An optional dependency is not installed: install the `extra`."""

    def __init__(self, package: str, extra: str, more: str = "") -> None:
        install = f"{package} is not installed: pip install 'collections-store[{extra}]'"
        super().__init__(f"{install}; {more}" if more else install, name=package)
        self.extra = extra


class SchemaError(CollectionsStoreError, RuntimeError):
    """The database has the schema `found`, and this version of the library needs `expected`."""

    found: str
    expected: str

    def __init__(self, message: str, *, found: str, expected: str) -> None:
        super().__init__(message)
        self.found, self.expected = found, expected


class SchemaOutdated(SchemaError):
    """An older version of the library wrote the database: upgrade the database."""


class SchemaTooNew(SchemaError):
    """A newer version of the library wrote the database, which was not changed: upgrade the library."""


class DatabaseError(CollectionsStoreError, RuntimeError):
    """The database reported an error: see the driver's own in `__cause__`."""


class DatabaseUnavailable(DatabaseError, ConnectionError):
    """The database cannot be reached, or the connection was lost: try again.

    `in_doubt`: a write was in progress and may have been committed; read before you write again. `is_final`: another
    attempt cannot succeed, because the SQLite file was replaced, or was open when this process was forked.
    """

    in_doubt: bool
    is_final: bool

    def __init__(self, message: str, *, in_doubt: bool = False, is_final: bool = False) -> None:
        super().__init__(message)
        self.in_doubt, self.is_final = in_doubt, is_final


class ReadOnlyDatabase(DatabaseUnavailable):
    """The server cannot write, and wrote nothing: the server is a standby, or was the primary before a failover."""


class DatabaseBusy(DatabaseError, TimeoutError):
    """A lock or a connection was not free within `busy_timeout`: try again, and end transactions sooner.

    `is_final`: another attempt cannot succeed, because the call would wait for itself.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class TransactionConflict(DatabaseError):
    """Another transaction was in conflict with this one: run the transaction again, as `Store.run_transaction` does."""


# -- what a cancelled call wrote -------------------------------------------------------------

_NOTE: Final = "collections_store "
"""The beginning of a note of what was written."""


@dataclass(slots=True)
class Outcome:
    """The writes of a call that was cancelled, or failed between two batches. `is_final`: of the call, not of one
    batch.
    """

    committed: bool | None
    result: Any = None
    is_final: bool = field(default=False, kw_only=True)


def note_outcome(error: BaseException, outcome: Outcome, text: str) -> None:
    """Attach an outcome to an exception, in place of the outcome of a batch."""
    notes = getattr(error, "__notes__", [])
    if hasattr(error, "collections_store_outcome"):
        notes[:] = [each for each in notes if not each.startswith(_NOTE)]
    error.collections_store_outcome = outcome  # type: ignore[attr-defined]
    error.add_note(_NOTE + text)


def outcome_of(error: BaseException) -> Outcome | None:
    """Return the outcome attached to an exception, or to a cause of the exception."""
    for link in _chain(error):
        outcome: Outcome | None = getattr(link, "collections_store_outcome", None)
        if outcome is not None:
            return outcome
    return None


def was_committed(error: BaseException) -> bool | None:
    """Return whether a cancelled call wrote: True, everything; False, nothing.

    None: some batches were written, and `partial_result` returns the counts; or the outcome is unknown, because the
    connection was lost during the write; or `error` is not from a cancelled call of this library. The `TimeoutError`
    of `asyncio.timeout` is as good as the cancellation.

    >>> was_committed(ValueError()) is None
    True
    """
    outcome = outcome_of(error)
    return None if outcome is None else outcome.committed


def _rebuilt(kind: type[CollectionsStoreError], args: tuple[Any, ...]) -> CollectionsStoreError:
    """Return an error without a call of its `__init__`, whose arguments are not `args`; pickle restores the
    attributes.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(InvalidOption("prefix", "too long"))).option
    'prefix'
    """
    native: Any = kind
    while issubclass(native, CollectionsStoreError):
        native = native.__base__  # the builtin whose layout in memory the error has
    error: CollectionsStoreError = native.__new__(kind, *args)
    error.args = args
    return error


def check_format(what: str, found: Any, known: int) -> None:
    """Raise `SchemaTooNew` for a stored format that this version does not know; no format means the first."""
    if isinstance(found, int) and found > known:
        raise SchemaTooNew(
            f"{what} is in format {found}, which this version of collections_store does not know (it "
            f"knows {known}): upgrade the library; nothing was touched",
            found=str(found),
            expected=str(known),
        )


# -- messages ---------------------------------------------------------------------------------

_METHODS: Final = {
    "count_documents": "count(filter)",
    "create_indexes": "create_index(keys) for each",
    "delete": "remove(id), or delete_one(filter)",
    "estimated_document_count": "count()",
    "drop": "store.drop(name)",
    "find_by_id": "document(id), or get(id) for its body",
    "find_one_by_id": "document(id), or get(id) for its body",
    "index_information": "indexes()",
    "insert": "insert_one(body), or put(id, body)",
    "list_indexes": "indexes()",
    "rename": "store.rename(old, new)",
    "save": "put(id, body)",
    "set": "put(id, body)",
    "upsert": "put(id, body)",
}
"""The methods of a collection, by the names of pymongo and of other stores."""


_CURSOR_METHODS: Final = {
    "batch_size": "stream(…), which reads in batches",
    "distinct": "distinct(field, filter)",
    "explain": "explain(filter, sort=…, limit=…)",
    "limit": "find(filter, limit=…)",
    "next": "find_one(filter), or next(…) of stream(filter)",
    "project": "find(filter, projection=…)",
    "skip": "find(filter, skip=…)",
    "sort": "find(filter, sort=…)",
    "to_list": "the list as it is",
}
"""What to use in place of the methods of pymongo's cursors."""

_STORE_METHODS: Final = {
    "drop_collection": "drop(name)",
    "drop_database": "drop(name) for each of collections()",
    "get_collection": "collection(name)",
    "list_collection_names": "[each.name for each in store.collections()]",
    "list_collections": "collections()",
    "rename_collection": "rename(old, new)",
    "start_session": "transaction(), as in: with store.transaction() as tx",
}
"""The methods of a store, by the names of pymongo."""


def missing_method(kind: str, name: str) -> str:
    """Return the message of an `AttributeError` of a collection, with the method to use instead."""
    advice = f": use {_METHODS[name]}" if name in _METHODS else ""
    return f"{kind!r} object has no attribute {name!r}{advice}"


def missing_cursor(name: str) -> str:
    """Return the message of an `AttributeError` or a `TypeError` of the results of `find`, with the replacement."""
    advice = f": use {_CURSOR_METHODS[name]}" if name in _CURSOR_METHODS else ""
    return f"find returns a list, which has no method {name}(…) of a cursor{advice}"


def missing_collection(kind: str, name: str) -> str:
    """Return the message of an `AttributeError` of a store or a transaction, with the replacement."""
    message, own = f"{kind!r} object has no attribute {name!r}", "tx" if "Tran" in kind else "store"
    if name in _STORE_METHODS:
        return f"{message}: use {_STORE_METHODS[name]}"
    return message if name.startswith("_") else f"{message}: a collection is {own}[{name!r}]"


def refuse_pickling(handle: object) -> Never:
    """Raise the `TypeError` of an object that belongs to its process; a class has this function as `__reduce__`."""
    kind = type(handle).__name__
    raise TypeError(
        f"cannot pickle or copy {kind!r} object: it holds connections of this process: pass the URL, and open another "
        "store in that process"
    )


def _at(what: str, place: str, problem: str) -> str:
    return f"{what}, at {shortened(place)}: {problem}" if place else f"{what}: {problem}"


def shortened(value: object, limit: int = 80) -> str:
    """Return `repr(value)`, without its middle if long: a hostile value must not flood a log."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} nested too deep to be shown"
    except ValueError:  # Python spells no integer of more than 4,300 digits
        return f"a {type(value).__name__} too large to be shown"
    except Exception as error:  # noqa: BLE001 - whatever a caller's class raises
        return f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    return cut(text, limit)


def cut(text: str, limit: int = 80) -> str:
    """Return text, without its middle if long."""
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 4 :]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: the nearest known name, if any is near."""
    from difflib import get_close_matches

    return "".join(f": did you mean {each!r}?" for each in get_close_matches(name, known, 1))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
