"""What can go wrong, in this library's words.

Every error carries its facts as attributes and also inherits the builtin a caller would expect,
so `except KeyError` and `except CollectionNotFound` both work::

    CollectionsStoreError
    ├── InvalidUrl (ValueError)              the database URL cannot be used
    ├── InvalidOption (ValueError)           an option is wrong
    ├── InvalidName (ValueError)             a collection cannot have that name
    ├── InvalidId (ValueError)               an object cannot have that id
    ├── InvalidBody (ValueError, TypeError)  a body holds what is not JSON, or too much of it
    ├── InvalidFilter (ValueError)           what is asked makes no sense
    ├── InvalidSort (ValueError)             an order makes no sense
    ├── InvalidCursor (ValueError)           a page's cursor is damaged, or of another question
    ├── InvalidToken (ValueError)            a place among changes is damaged, or of another collection
    ├── ChangesLost (RuntimeError)           changes after a token are no longer kept
    ├── InvalidIndex (ValueError)            there can be no such index
    ├── IndexExists (ValueError)             another index has the name
    ├── DuplicateKey (ValueError)            a unique index forbids the write
    ├── DocumentNotFound (KeyError)          there is no object to change
    ├── VersionConflict (RuntimeError)       the object is not the version that is expected
    ├── BulkWriteError (RuntimeError)        some of many writes were refused
    ├── InvalidProjection (ValueError)       so do the parts of a body that are wanted
    ├── InvalidPipeline (ValueError)         a stage of a pipeline makes no sense
    ├── InvalidUpdate (ValueError)           what is to change makes no sense
    ├── UpdateRefused (ValueError)           an object cannot be changed so
    ├── InvalidOperand (ValueError)          an operator cannot take what a formula gives it
    ├── MemoryLimitExceeded (RuntimeError)   a stage of a pipeline holds too much
    ├── PatternLimitExceeded (RuntimeError)  a regular expression takes too many steps over a string
    ├── CollectionNotFound (KeyError)        there is no such collection to drop or rename
    ├── CollectionExists (ValueError)        the new name is taken
    ├── InvalidDialogueMessage (ValueError)  a message is not the next one of its dialogue
    │   └── RepeatedMessage                  it was accepted before
    ├── DialogueNotFound (KeyError)          there is no such dialogue
    ├── DialogueConflict (RuntimeError)      another process wrote to the same dialogue
    ├── DialoguesNotSaved (RuntimeError)     some dialogues could not be saved, the others were
    ├── NotTheCreator (PermissionError)      a skill changes a memory that another one made
    ├── StoreClosed (RuntimeError)           the store was closed, or inherited through a fork
    ├── TransactionEnded (RuntimeError)      the transaction is over: committed or rolled back
    ├── MissingExtra (ImportError)           an optional dependency is not installed
    ├── SchemaError (RuntimeError)
    │   ├── SchemaOutdated                   the database must be upgraded first
    │   └── SchemaTooNew                     a newer library wrote it; nothing was touched
    └── DatabaseError (RuntimeError)         the database refused; `__cause__` is its own error
        ├── DatabaseUnavailable (ConnectionError)   it cannot be reached, or went away
        ├── DatabaseBusy (TimeoutError)             a lock or a connection did not come free in time
        └── TransactionConflict                     another transaction got in the way: run it again
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .document import BulkWriteResult, PutManyResult


LONGEST_MESSAGE: Final = 1000
"""Characters; what is longer loses its middle."""


class CollectionsStoreError(Exception):
    """Anything this library raises on purpose: one line of at most 1,000 characters. It can be pickled, and so
    cross processes.
    """

    def __init__(self, message: str = "", **options: Any) -> None:
        super().__init__(cut(" ".join(message.splitlines()), LONGEST_MESSAGE), **options)

    def __reduce__(self) -> tuple[Any, ...]:
        parts: Any = super().__reduce__()
        _, args, *state = parts
        return _rebuilt, (type(self), args), *state


class InvalidUrl(CollectionsStoreError, ValueError):
    """The database URL cannot be used."""


class InvalidOption(CollectionsStoreError, ValueError):
    """An option of a store or of a verb is wrong; `option` names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}")
        self.option = option


class InvalidName(CollectionsStoreError, ValueError):
    """A collection cannot have that name."""

    def __init__(self, name: object) -> None:
        super().__init__(
            f"{shortened(name)} cannot name a collection: "
            "use 1 to 200 of the characters A-Z, a-z, 0-9 and _"
        )
        self.name = name


class InvalidId(CollectionsStoreError, ValueError):
    """An object cannot have that id."""

    def __init__(self, id: object, problem: str) -> None:
        super().__init__(f"{shortened(id)} cannot be an object's id: {problem}")
        self.id, self.problem = id, problem


class InvalidBody(CollectionsStoreError, ValueError, TypeError):
    """A body holds what is not JSON; `path` is the dotted place of the offending value."""

    def __init__(self, path: str, problem: str) -> None:
        place = f"at {shortened(path)}" if path else "the body itself"
        super().__init__(f"{place}: {problem}")
        self.path, self.problem = path, problem


class InvalidFilter(CollectionsStoreError, ValueError):
    """What is asked makes no sense; `place` is where in the filter."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(
            f"filter, at {shortened(place)}: {problem}" if place else f"filter: {problem}"
        )
        self.place, self.problem = place, problem


class InvalidProjection(CollectionsStoreError, ValueError):
    """The parts of a body that are wanted make no sense; `place` is where in the projection."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(
            f"projection, at {shortened(place)}: {problem}" if place else f"projection: {problem}"
        )
        self.place, self.problem = place, problem


class InvalidPipeline(CollectionsStoreError, ValueError):
    """A stage of a pipeline makes no sense; `place` is where: the stage's number comes first."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(
            f"pipeline, at {shortened(place)}: {problem}" if place else f"pipeline: {problem}"
        )
        self.place, self.problem = place, problem


class InvalidUpdate(CollectionsStoreError, ValueError):
    """What is to change makes no sense, whatever the object; `place` is where in the update."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(
            f"update, at {shortened(place)}: {problem}" if place else f"update: {problem}"
        )
        self.place, self.problem = place, problem


class UpdateRefused(CollectionsStoreError, ValueError):
    """The object `id` cannot be changed so: what it holds at `place` does not let it. It stays as it
    was.
    """

    def __init__(self, id: str, place: str, problem: str) -> None:
        where = f", at {shortened(place)}" if place else ""
        super().__init__(f"update of {shortened(id)}{where}: {problem}")
        self.id, self.place, self.problem = id, place, problem


class InvalidSort(CollectionsStoreError, ValueError):
    """An order makes no sense; `field` is the one that does not."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"sort, at {shortened(field)}: {problem}" if field else f"sort: {problem}")
        self.field, self.problem = field, problem


class InvalidCursor(CollectionsStoreError, ValueError):
    """A page's cursor is damaged, or comes from another collection, filter or order."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"cursor: {problem}")


class InvalidToken(CollectionsStoreError, ValueError):
    """The token that tells after which change to go on is damaged, or comes from elsewhere."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"token: {problem}")


class ChangesLost(CollectionsStoreError, RuntimeError):
    """Changes after `token` are no longer kept, or were recorded without the bodies that a filter
    needs. `oldest` is the token to go on from, without what came in between; None: the collection
    records no changes any more.
    """

    def __init__(self, collection: str, token: str, oldest: str | None) -> None:
        whence = "changes are no longer recorded"
        if oldest is not None:
            whence = "read what is there now, and go on with after=error.oldest"
        super().__init__(
            f"collection {collection}: not all changes after the token are there any more: {whence}"
        )
        self.collection, self.token, self.oldest = collection, token, oldest


class InvalidIndex(CollectionsStoreError, ValueError):
    """There can be no such index; `field` is the field or the option that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(
            f"index, at {shortened(field)}: {problem}" if field else f"index: {problem}"
        )
        self.field = field


class IndexExists(CollectionsStoreError, ValueError):
    """There is an index of that name, or over those fields, and it is another one."""

    def __init__(self, name: str, existing: str) -> None:
        super().__init__(
            f"index {name!r} would be another than the one there is ({existing}): drop that first"
        )
        self.name = name


class DuplicateKey(CollectionsStoreError, ValueError):
    """A unique index forbids the write; nothing was written.

    `index` names it, `key` holds its fields with the values that are there already, and `id` is the
    object that was to be written.
    """

    def __init__(
        self,
        collection: str,
        index: str,
        key: dict[str, Any],
        id: str | None,
        in_arrays: tuple[str, ...] = (),
    ) -> None:
        which = "an object" if id is None else shortened(id)
        values = f"; values in arrays count as null: {shortened(in_arrays[0])}" if in_arrays else ""
        super().__init__(
            f"collection {collection}: {which} would have the same {shortened(key)} as another, "
            f"which the unique index {index!r} forbids{values}"
        )
        self.collection, self.index, self.key, self.id = collection, index, key, id


class DocumentNotFound(CollectionsStoreError, KeyError):
    """There is no object under the `id`."""

    def __init__(self, collection: str, id: str) -> None:
        super().__init__(f"collection {collection}: there is no object {shortened(id)}")
        self.collection, self.id = collection, id

    def __str__(self) -> str:
        return str(self.args[0])


class VersionConflict(CollectionsStoreError, RuntimeError):
    """The object `id` is not the version that is expected; nothing was written.

    `expected` and `found` are versions; None: no object.
    """

    def __init__(self, collection: str, id: str, expected: int | None, found: int | None) -> None:
        super().__init__(
            f"collection {collection}: {shortened(id)} should {_there(expected)}, but {_is(found)}: "
            "read it again, and decide anew"
        )
        self.collection, self.id, self.expected, self.found = collection, id, expected, found


class BulkWriteError(CollectionsStoreError, RuntimeError):
    """Some of many writes were refused; `result` tells which and why, and what was done of the rest: a
    `PutManyResult` of `put_many`, a `BulkWriteResult` of `bulk_write`.
    """

    def __init__(self, collection: str, result: PutManyResult | BulkWriteResult) -> None:
        first, count = result.refused[0], len(result.refused)
        more = f", and {count - 1:,} more" if count > 1 else ""
        super().__init__(
            f"collection {collection}: refused the one at position {first.position:,} "
            f"({first.error}){more}: `result` tells what was written"
        )
        self.collection, self.result = collection, result


class InvalidDialogueMessage(CollectionsStoreError, ValueError):
    """The `message` cannot be said in its dialogue, or not now: `problem` tells why. Nothing was changed."""

    def __init__(self, message: Any, problem: str) -> None:
        super().__init__(f"{shortened(message, 200)}: {problem}")
        self.message, self.problem = message, problem


class RepeatedMessage(InvalidDialogueMessage):
    """The `message` was accepted before, and `dialogue` holds it: whoever delivers messages more than
    once may count it as delivered.
    """

    def __init__(self, message: Any, dialogue: Any) -> None:
        super().__init__(message, "it was accepted before")
        self.dialogue = dialogue


class DialogueNotFound(CollectionsStoreError, KeyError):
    """There is no dialogue with the label, or the message belongs to none."""

    def __init__(self, label: Any, problem: str = "there is no such dialogue") -> None:
        super().__init__(f"{shortened(label, 200)}: {problem}")
        self.label = label

    def __str__(self) -> str:
        return str(self.args[0])


class DialogueConflict(CollectionsStoreError, RuntimeError):
    """Another process, or another object of this one, wrote to the dialogue with the label: an agent's
    dialogues belong to one process at a time. Nothing was written.
    """

    def __init__(self, label: Any) -> None:
        super().__init__(
            f"{shortened(label, 200)}: somebody else wrote to this dialogue: has another process the same "
            "agent and component?"
        )
        self.label = label


class DialoguesNotSaved(CollectionsStoreError, RuntimeError):
    """Some dialogues could not be saved: `errors` tells why by their labels. The others were saved."""

    def __init__(self, errors: Any) -> None:
        (label, first), *others = errors.items()
        more = f", and {len(others):,} more" if others else ""
        super().__init__(f"{shortened(label, 200)} was not saved: {first}{more}")
        self.errors = errors


class NotTheCreator(CollectionsStoreError, PermissionError):
    """A `skill` gave back the PUBLIC memory `name` with another value, and `creator` made it. Nothing was
    written.
    """

    def __init__(self, name: str, creator: str, skill: str) -> None:
        super().__init__(
            f"memory {shortened(name)}: skill {shortened(creator)} made it, so {shortened(skill)} cannot "
            "change it: give it back as it was, leave it out, or use another policy"
        )
        self.name, self.creator, self.skill = name, creator, skill


class InvalidOperand(CollectionsStoreError, ValueError):
    """An operator of a formula (`$expr`, `aggregate`) met what it cannot take: a string that is to
    be added, a division by 0. `operator` names it; `found` is what it met; `place` is the stage of
    a pipeline, None in a filter.
    """

    def __init__(
        self, operator: str, problem: str, found: Any = None, place: str | None = None
    ) -> None:
        where = "" if place is None else f"pipeline, at {place!r}: "
        super().__init__(f"{where}{operator} {problem}")
        self.operator, self.problem, self.found, self.place = operator, problem, found, place


class MemoryLimitExceeded(CollectionsStoreError, RuntimeError):
    """A stage of a pipeline, or its result, holds more than `limit` bytes, about; `place` is which stage (`""`:
    the result), `stage` its name.
    """

    def __init__(self, place: str, stage: str, limit: int) -> None:
        where = f", at {place!r}: {stage}" if place else ": the result"
        super().__init__(
            f"pipeline{where} holds more than {limit:,} bytes. Let stages in front of "
            "it leave less ($match, $project, $limit), or give a larger memory_limit"
        )
        self.place, self.stage, self.limit = place, stage, limit


class PatternLimitExceeded(CollectionsStoreError, RuntimeError):
    """A regular expression takes more than `limit` steps over a string."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"a regular expression takes more than {limit:,} steps over a string: write it without "
            "references to groups, lookarounds or large repetitions, or filter by something else first"
        )
        self.limit = limit


class CollectionNotFound(CollectionsStoreError, KeyError):
    """There is no collection of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collection {name!r}")
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])


class CollectionExists(CollectionsStoreError, ValueError):
    """A collection of that name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is a collection {name!r} already: drop it first, or take another name"
        )
        self.name = name


class StoreClosed(CollectionsStoreError, RuntimeError):
    """The store was closed, or belongs to the process this one was forked from."""


class TransactionEnded(CollectionsStoreError, RuntimeError):
    """The transaction is over. `__cause__` is what ended it, where that was an error: then it was
    rolled back, and nothing of it was written.
    """


class MissingExtra(CollectionsStoreError, ImportError):
    """An optional dependency is not installed; `extra` brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed: pip install 'collections-store[{extra}]'", name=package
        )
        self.extra = extra


class SchemaError(CollectionsStoreError, RuntimeError):
    """The database's tables are not those of this version of the library."""

    def __init__(self, message: str, *, found: str, expected: str) -> None:
        super().__init__(message)
        self.found, self.expected = found, expected


class SchemaOutdated(SchemaError):
    """The database must be upgraded before this version of the library can use it."""


class SchemaTooNew(SchemaError):
    """A newer version of the library wrote the database; nothing was touched."""


def check_format(what: str, found: Any, known: int) -> None:
    """Raise `SchemaTooNew` for something stored in a format that this version does not know; what has no
    format is of the first.
    """
    if isinstance(found, int) and found > known:
        raise SchemaTooNew(
            f"{what} is in format {found}, which this version of collections_store does not know (it "
            f"knows {known}): upgrade the library; nothing was touched",
            found=str(found),
            expected=str(known),
        )


class DatabaseError(CollectionsStoreError, RuntimeError):
    """The database refused; `__cause__` is the driver's own error."""


class DatabaseUnavailable(DatabaseError, ConnectionError):
    """The database cannot be reached, or the connection to it was lost.

    `in_doubt`: a write was on its way, and whether it took place is not known. `is_final`: another attempt
    cannot succeed, because the SQLite file was replaced, or was open when this process was forked.
    """

    def __init__(self, message: str, *, in_doubt: bool = False, is_final: bool = False) -> None:
        super().__init__(message)
        self.in_doubt, self.is_final = in_doubt, is_final


class DatabaseBusy(DatabaseError, TimeoutError):
    """A lock or a connection did not come free in time."""


class TransactionConflict(DatabaseError):
    """Another transaction got in the way of this one, which can be run again as a whole.

    Operations outside a transaction are run again by the store, and so is what is given to
    `Store.run_transaction`; this is what is left when that did not help.
    """


_OURS: Final = "collections_store "
"""How the notes of what was written begin."""


class Outcome:
    """What a call that was cancelled, or failed between two batches, wrote. `whole`: all of the call, not a
    batch of it.
    """

    __slots__ = ("committed", "result", "whole")

    def __init__(self, committed: bool | None, result: Any = None, *, whole: bool = False) -> None:
        self.committed, self.result, self.whole = committed, result, whole


def note_outcome(error: BaseException, outcome: Outcome, text: str) -> None:
    """Have an exception tell what was written, in the place of what it told of a part of that."""
    notes = getattr(error, "__notes__", [])
    if hasattr(error, "collections_store_outcome"):
        notes[:] = [each for each in notes if not each.startswith(_OURS)]
    error.collections_store_outcome = outcome  # type: ignore[attr-defined]
    error.add_note(_OURS + text)


def outcome_of(error: BaseException) -> Outcome | None:
    """Return what an exception tells of what was written; a `TimeoutError` of `asyncio.timeout` is looked
    through.
    """
    for link in _chain(error):
        outcome: Outcome | None = getattr(link, "collections_store_outcome", None)
        if outcome is not None:
            return outcome
    return None


def was_committed(error: BaseException) -> bool | None:
    """Return whether the write that a cancellation met took place.

    True: everything was written, the cancellation came too late. False: nothing was written. None: a part was
    written, of a call that writes several batches: `partial_result` returns the counts; or it is not known,
    because the connection broke while the cancelled write was on its way; or `error` does not come from a
    cancelled call of this library. A `TimeoutError` of `asyncio.timeout` is looked through.

    >>> was_committed(ValueError()) is None
    True
    """
    outcome = outcome_of(error)
    return None if outcome is None else outcome.committed


def _rebuilt(kind: type[CollectionsStoreError], args: tuple[Any, ...]) -> CollectionsStoreError:
    """Make an error without its `__init__`, which takes other arguments than `args`; what it sets
    besides is the state that pickle restores.

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


_OURS_FOR: Final = {
    "count_documents": "count(filter)",
    "delete": "remove(id), or delete_one(filter)",
    "estimated_document_count": "count()",
    "find_by_id": "document(id), or get(id) for its body",
    "find_one_by_id": "document(id), or get(id) for its body",
    "index_information": "indexes()",
    "insert": "insert_one(body), or put(id, body)",
    "list_indexes": "indexes()",
    "save": "put(id, body)",
    "set": "put(id, body)",
    "upsert": "put(id, body)",
}
"""What a collection has for methods of pymongo and of other stores."""


def missing_method(kind: str, name: str) -> str:
    """Return the message of an `AttributeError`; it names the method of ours, where there is one."""
    ours = f": use {_OURS_FOR[name]}" if name in _OURS_FOR else ""
    return f"{kind!r} object has no attribute {name!r}{ours}"


def shortened(value: object, limit: int = 80) -> str:
    """Return `repr(value)` cut in the middle, so that a hostile value cannot flood a log."""
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
    """Return text that holds what a user wrote, without its middle if it is long."""
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 4 :]}"


def _there(version: int | None) -> str:
    return "not be there" if version is None else f"have version {version}"


def _is(version: int | None) -> str:
    return "there is none" if version is None else f"it has version {version}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
