"""Functions that a store calls, and that use the same store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest
from backends import Opener

from collections_store import (
    Collection,
    CopyProgress,
    DatabaseBusy,
    InvalidBody,
    UpgradeFailed,
)

CALLS: list[Callable[[Any], Any]] = [
    lambda people: people.get("a"),
    lambda people: people.get_many(["a"]),
    lambda people: list(people.find()),
    lambda people: people.update_many({}, {"$set": {"seen": 1}}),
    lambda people: people.find_one_and_update({}, {"$set": {"seen": 1}}),
    lambda people: people.increment("a", "n"),
    lambda people: people.change("a", lambda body: body),
]
"""Most upgrade the document within an operation."""


def assert_refused(error: BaseException | None) -> None:
    """Check the error of a call that is refused at once, where it would wait for 30 seconds."""
    while not isinstance(error, DatabaseBusy):
        assert error is not None
        error = error.__cause__ or error.__context__
    assert error.is_final
    assert "call the store before or after it" in str(error)


@pytest.mark.each_backend
@pytest.mark.parametrize("write_back", [False, True])
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_an_upgrade_function_cannot_write_to_its_store(
    store: Any, number: int, write_back: bool
) -> None:
    log: Collection = store.get_sync_collection("log")
    errors: list[Exception] = []

    def upgrade(body: Any) -> Any:
        try:
            log.put("upgraded", 1)
        except DatabaseBusy as error:
            errors.append(error)
            raise
        return body

    store["people"].put("a", {"n": 1})
    people = store.collection(
        "people", schema_version=2, upgrades={1: upgrade}, write_back=write_back
    )
    try:
        CALLS[number](people)
    except UpgradeFailed as error:
        assert "call the store before or after it" in str(error)
        assert_refused(error)
        assert store["people"].get("a") == {"n": 1}
    else:
        assert not errors  # it was called between two operations
        assert log.get("upgraded") == 1
    assert log.put("upgraded", 2)


@pytest.mark.each_backend
def test_a_validator_cannot_write_to_its_store(store: Any) -> None:
    log: Collection = store.get_sync_collection("log")

    class Person(pydantic.BaseModel):
        name: str

        @pydantic.model_validator(mode="after")
        def note(self) -> "Person":
            if notes:
                log.put("validated", 1)
            return self

    notes = False
    people = store.collection("people", model=Person)
    people.put("a", Person(name="Ada"))
    notes = True
    with pytest.raises(InvalidBody, match="its model raised DatabaseBusy") as caught:
        people.get("a")
    assert_refused(caught.value)
    assert store["log"].count() == 0


@pytest.mark.parametrize("open_store", ["sync"], indirect=True)
@pytest.mark.each_backend
def test_a_function_cannot_use_the_transaction_that_waits_for_it(open_store: Opener) -> None:
    store = open_store()
    store["people"].put("a", {"n": 1})
    with store.transaction() as tx:

        def upgrade(body: Any) -> Any:
            return {**body, "found": tx["log"].get("a")}

        people = tx.collection("people", schema_version=2, upgrades={1: upgrade})
        with pytest.raises(UpgradeFailed) as caught:
            people.get("a")
        assert_refused(caught.value)
        assert tx["people"].get("a") == {"n": 1}


@pytest.mark.parametrize("open_store", ["sync"], indirect=True)
@pytest.mark.each_backend
def test_a_function_cannot_begin_a_transaction(open_store: Opener) -> None:
    store = open_store()
    store["people"].put("a", {"n": 1})

    def upgrade(body: Any) -> Any:
        with store.transaction() as tx:
            tx["log"].put("a", 1)
        return body

    people = store.collection("people", schema_version=2, upgrades={1: upgrade})
    with pytest.raises(UpgradeFailed) as caught:
        people.update_many({}, {"$set": {"n": 2}})
    assert_refused(caught.value)


def test_functions_between_operations_can_write(open_store: Opener) -> None:
    log: list[Collection] = []

    def default(value: Any) -> Any:
        log[0].put("default", 1)
        return str(value)

    store = open_store(default=default)
    log.append(store.get_sync_collection("log"))
    store["people"].put("a", {"n": {1}})

    def change(body: Any) -> Any:
        log[0].put("changed", 1)
        return {**body, "more": 1}

    store["people"].change("a", change)
    assert {each.id for each in log[0].list()} == {"default", "changed"}


@pytest.mark.each_backend
def test_a_progress_function_can_use_the_store(open_store: Opener, tmp_path: Path) -> None:
    store = open_store()
    log: Collection = store.get_sync_collection("log")
    store["a"].put("x", 1)
    found: list[Any] = []

    def report(progress: CopyProgress) -> None:
        log.put("done", progress.done)
        found.append(log.get("done"))

    if open_store.backend.is_private and open_store.variant == "sync":  # the one connection is busy
        with pytest.raises(DatabaseBusy, match="call the store before or after it"):
            store.backup(tmp_path / "a.jsonl", progress=report)
    elif not open_store.backend.is_private:
        store.backup(tmp_path / "a.jsonl", progress=report)
        assert found == [1]
