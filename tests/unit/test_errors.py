"""Errors can be pickled for other processes."""

import copy
import inspect
import pickle
from typing import Any

import pytest

from collections_store import errors
from collections_store.errors import (
    BulkWriteError,
    ChangesLost,
    CollectionExists,
    CollectionNotFound,
    CollectionsStoreError,
    CopyFailed,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    DialogueConflict,
    DialogueNotFound,
    DialoguesNotSaved,
    DocumentNotFound,
    DocumentsOutdated,
    DocumentTooNew,
    DuplicateKey,
    IndexExists,
    InvalidBackup,
    InvalidBody,
    InvalidCursor,
    InvalidDialogueMessage,
    InvalidFilter,
    InvalidId,
    InvalidIndex,
    InvalidName,
    InvalidOperand,
    InvalidOption,
    InvalidPipeline,
    InvalidProjection,
    InvalidSearch,
    InvalidSort,
    InvalidToken,
    InvalidUpdate,
    InvalidUrl,
    MemoryLimitExceeded,
    MissingExtra,
    NotTheCreator,
    PatternLimitExceeded,
    ReadOnlyDatabase,
    Refusal,
    RepeatedMessage,
    SchemaError,
    SchemaOutdated,
    SchemaTooNew,
    StoreClosed,
    TransactionConflict,
    TransactionEnded,
    UnknownField,
    UpdateRefused,
    UpgradeFailed,
    VersionConflict,
)
from collections_store.results import PutManyResult

ERRORS = [
    CollectionsStoreError("on purpose"),
    InvalidUrl("cannot be read"),
    InvalidOption("prefix", "too long"),
    InvalidName("a-b"),
    InvalidId("x" * 3000, "too long"),
    InvalidBody("a.0", "nan is not JSON"),
    DocumentTooNew(4, 3),
    DocumentTooNew(4, 3, "things", "x"),
    UpgradeFailed(1, 2, "f raised KeyError"),
    UpgradeFailed(1, 2, "f raised KeyError", "things", "x"),
    InvalidFilter("a.$gtt", "no such operator"),
    InvalidSort("a", "the direction is 1 or -1"),
    InvalidCursor("it was changed"),
    InvalidSearch("-tea", "must have a word"),
    InvalidToken("it is damaged"),
    UnknownField("nmae", "Person has no such field"),
    ChangesLost("things", "AQ", None),
    ChangesLost("things", "AQ", "Aq"),
    InvalidIndex("a", "sorts twice"),
    IndexExists("a_1", "a_1: {'a': 1}, unique"),
    DuplicateKey("things", "a_1", {"a": 1}, "x"),
    DuplicateKey("things", "a.b_1", {"a.b": None}, "x", ("a.b",)),
    DocumentNotFound("things", "x"),
    DocumentsOutdated("things", 1, 3),
    VersionConflict("things", "x", 2, None),
    BulkWriteError("things", PutManyResult(refused=(Refusal(3, "x", InvalidId("x", "too long")),))),
    InvalidProjection("a.$", "goes with 1 only"),
    InvalidPipeline("2.$foo", "no such stage"),
    InvalidUpdate("$foo", "no such operator"),
    UpdateRefused("x", "a.b", "there is no array"),
    InvalidOperand("$add", "needs a number", "x"),
    MemoryLimitExceeded("1.$sort", "$sort", 100),
    PatternLimitExceeded(100),
    InvalidDialogueMessage("a message", "the dialogue has ended"),
    RepeatedMessage("a message", "a dialogue"),
    DialogueNotFound("a label"),
    DialogueConflict("a label"),
    DialoguesNotSaved({"a label": "no JSON", "another": "no JSON"}),
    NotTheCreator("colour", "weather", "smalltalk"),
    CollectionNotFound("a"),
    CollectionExists("a"),
    CopyFailed("a", "2 documents were written, and 3 read"),
    InvalidBackup("a.jsonl", "line 2", "it is no JSON object"),
    StoreClosed("the store is closed"),
    MissingExtra("psycopg", "postgresql"),
    MissingExtra("PyICU", "collation", "or use less"),
    SchemaError("something", found="1", expected="2"),
    SchemaOutdated("upgrade", found="0001", expected="0002"),
    SchemaTooNew("newer", found="0003", expected="0002"),
    DatabaseError("refused"),
    ReadOnlyDatabase("a standby"),
    DatabaseUnavailable("lost", in_doubt=True),
    DatabaseUnavailable("not reachable"),
    DatabaseBusy("locked"),
    TransactionConflict("again"),
    TransactionEnded("the transaction is over"),
]


def facts(error: Any) -> Any:
    name = getattr(error, "name", None)  # attributes of an ImportError
    known = {key: _told(value) for key, value in vars(error).items()}
    return type(error), str(error), repr(error), error.args, known, name


def _told(value: Any) -> Any:
    """Return the comparable content of a result: errors are equal by identity only."""
    refused = getattr(value, "refused", None)
    if refused is None:
        return value
    return repr(value), [(each.position, each.id, facts(each.error)) for each in refused]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_errors_are_pickled_with_all_attributes(error: CollectionsStoreError) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert facts(pickle.loads(pickle.dumps(error, protocol))) == facts(error)
    assert facts(copy.copy(error)) == facts(error)
    error.add_note("while the tests ran")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while the tests ran"]
    with pytest.raises(type(error)):
        raise pickle.loads(pickle.dumps(error))


def test_every_error_is_tested() -> None:
    kinds = {value for value in vars(errors).values() if inspect.isclass(value)}
    assert {each for each in kinds if issubclass(each, CollectionsStoreError)} == set(
        map(type, ERRORS)
    )


class CustomError(DatabaseBusy):
    def __init__(self, *, table: str) -> None:
        super().__init__(f"{table} is locked")
        self.table = table


def test_subclasses_of_errors_can_be_pickled() -> None:
    assert facts(pickle.loads(pickle.dumps(CustomError(table="t")))) == facts(
        CustomError(table="t")
    )
