"""A stream in an order without an index reads each document once more, by its id."""

from typing import Any

import pytest

from collections_store import Store
from collections_store.operations import find
from collections_store.operations.read import FIRST_BATCH


@pytest.mark.parametrize("hint", [None, "a_1"])
def test_the_steps_grow_with_the_documents(
    hint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index of the filter would find all matches again for each batch."""
    monkeypatch.setattr(find, "MAX_BATCH", FIRST_BATCH)
    found: list[int] = []
    for count in (1_000, 8_000):
        with Store("sqlite://") as store:
            things = store["things"]
            things.create_index("a")
            things.put_many({str(n): {"a": n % 5, "b": -n} for n in range(count)})
            found.append(steps(store, things, count, hint))
    assert found[1] < 2 * 8 * found[0]


def steps(store: Store, things: Any, count: int, hint: str | None) -> int:
    """Return the steps of SQLite's virtual machine in a stream, in hundreds."""
    assert store.core.opened is not None
    pool: Any = store.core.opened._pools[0]
    lease = pool.acquire()
    pool.release(lease)
    driver, hundreds = lease.connection.driver, 0

    def step() -> None:
        nonlocal hundreds
        hundreds += 1

    driver.set_progress_handler(step, 100)
    try:
        read = [each.body["b"] for each in things.stream({"a": {"$gte": 0}}, sort="b", hint=hint)]
    finally:
        driver.set_progress_handler(None, 0)
    assert read == sorted(range(0, -count, -1))
    return hundreds


@pytest.mark.each_backend
@pytest.mark.parametrize("text", [False, True], ids=["", "by words"])
def test_what_changes_meanwhile_is_read_as_it_is(
    store: Store, text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "MAX_BATCH", FIRST_BATCH)
    things: Any = store["things"]
    things.create_text_index("t")
    things.put_many({f"{n:03}": {"t": "a word", "n": n} for n in range(200)})
    filter = {"$text": {"$search": "word"}} if text else {"t": "a word"}
    stream = things.stream(filter, sort={"n": -1})
    read = [next(stream).id for _ in range(10)]
    things.remove("000")
    things.put("001", {"t": "another", "n": 1})
    things.put("002", {"t": "a word", "n": 1_000})
    things.put("200", {"t": "a word", "n": 0})
    read += [each.id for each in stream]
    assert read == [f"{n:03}" for n in range(199, 1, -1)]
