"""Copies of stores: what they have, what they refuse, and how one that was interrupted goes on."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend, Opener, unwrap
from conftest import Clock
from hypothesis import given, settings
from hypothesis import strategies as st

from collections_store import (
    AsyncStore,
    ChangesLost,
    CollectionExists,
    CollectionNotFound,
    CopyFailed,
    CopyProgress,
    DatabaseError,
    InvalidBody,
    InvalidCursor,
    InvalidName,
    InvalidOption,
    Store,
    was_committed,
)

SETTINGS: list[dict[str, Any]] = [
    {"ttl": 3600, "sliding": True},
    {"changes": "both", "changes_kept": 7, "changes_ttl": 60},
    {"body_index": False},
]


class Pair:
    """A store and another one, both sync or both async."""

    def __init__(self, opener: Opener, other: Opener) -> None:
        self.source, self.other = opener(), other()

    def copy(self, *arguments: Any, **options: Any) -> Any:
        return self.source.copy_to(unwrap(self.other), *arguments, **options)


@pytest.fixture(params=["sqlite-file", "postgresql"])
def other_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "postgresql":
        found: Backend = request.getfixturevalue("postgres_backend")
        return found
    return Backend("sqlite-file", f"sqlite:///{tmp_path / 'other.db'}")


@pytest.fixture
def pair(open_store: Opener, other_backend: Backend) -> Iterator[Pair]:
    other = Opener(other_backend, open_store.variant)
    if open_store.variant == "async":
        other._runner = open_store._runner
    yield Pair(open_store, other)
    other.close_stores()


def contents(store: Any) -> dict[str, Any]:
    """Return all that a copy must have."""
    return {
        each.name: (
            each.created_at,
            [
                (d.id, d.body, d.version, d.created_us, d.updated_us, d.expires_us)
                for d in store[each.name].stream()
            ],
            store[each.name].indexes(),
        )
        for each in store.collections()
    }


def fill(store: Any) -> None:
    for number, options in enumerate(SETTINGS):
        store.create_collection(f"settings_{number}", **options)
        store[f"settings_{number}"].put("a", {"n": number})
    people = store["people"]
    people.put_many({str(n): {"name": f"p{n}", "tags": [n, {"x": [1.5]}]} for n in range(120)})
    people.create_index("name", unique=True)
    people.create_index([("tags.0", -1), "$updated_at"], where={"name": {"$exists": True}})
    people.create_index("tags", arrays=True)
    people.update("7", {"$set": {"name": "changed"}})
    people.put("8", {"name": "expiring"}, ttl=1000)
    people.remove("9")
    people.put("9", {"name": "last"})
    store["odd"].put_many({"float": 1e17, "zero": -0.0, "int": 10**17, "": None, "ü": "\u2028"})
    store.memory("bot").put("name", "Ada")
    store.create_collection("empty")


def test_a_copy_has_documents_versions_times_order_and_indexes(pair: Pair) -> None:
    fill(pair.source)
    copied = pair.copy()
    assert contents(pair.other) == contents(pair.source)
    assert {each.name: each.count for each in copied} == {
        each.name: each.count for each in pair.source.collections()
    }
    assert pair.other.memory("bot").get("name") == "Ada"
    assert pair.other["people"].list(limit=None)[-1].id == "9"
    assert pair.other["people"].find("name", "changed")[0].version == 2


def test_a_copy_has_the_options(pair: Pair, clock: Clock) -> None:
    fill(pair.source)
    pair.copy()
    sliding = pair.other["settings_0"]
    clock.advance(3599)
    sliding.update("a", {"$set": {"n": 1}})
    clock.advance(3599)
    assert sliding.get("a") == {"n": 1}
    recorded = pair.other["settings_1"]
    recorded.put("a", 2)
    stream = recorded.watch(after="oldest")
    change = next(stream)
    stream.close()
    assert (change.id, change.version, change.before, change.body) == ("a", 2, {"n": 1}, 2)


def test_a_document_keeps_its_own_time_to_live(pair: Pair, clock: Clock) -> None:
    pair.source.collection("things", ttl=5, sliding=True)
    things = pair.source["things"]
    things.put("own", {}, ttl=100)
    clock.advance(1)
    pair.copy()
    clock.advance(98)
    assert pair.other["things"].update("own", {"$set": {"a": 1}})
    clock.advance(99)
    assert pair.other["things"].get("own") == {"a": 1}


def test_expired_documents_are_not_copied(pair: Pair, clock: Clock) -> None:
    pair.source["things"].put_many({"a": 1, "b": 2})
    pair.source["things"].put("b", 2, ttl=1)
    clock.advance(2)
    [copied] = pair.copy()
    assert copied.count == 1
    assert [each.id for each in pair.other["things"].list()] == ["a"]


def test_the_checksum_is_the_same_on_each_database(pair: Pair, open_store: Opener) -> None:
    fill(pair.source)
    third = Opener(Backend("sqlite-memory", "sqlite://"), open_store.variant)
    third._runner = open_store._runner
    memory = third()
    assert pair.copy() == pair.other.copy_to(unwrap(memory))
    memory.close()


def test_tokens_and_cursors_are_not_those_of_the_source(pair: Pair) -> None:
    pair.source.collection("things", changes=True)
    pair.source["things"].put_many({"a": 1, "b": 2})
    stream = pair.source["things"].watch(after="oldest")
    token = next(stream).token
    stream.close()
    cursor = pair.source["things"].page(limit=1).cursor
    pair.copy()
    with pytest.raises(ChangesLost):
        next(pair.other["things"].watch(after=token))
    with pytest.raises(InvalidCursor):
        pair.other["things"].page(limit=1, after=cursor)


def test_some_collections_are_copied(pair: Pair) -> None:
    for name in ("a", "b", "c"):
        pair.source[name].put("x", name)
    assert [each.name for each in pair.copy(["c", "a"])] == ["a", "c"]
    assert [each.name for each in pair.other.collections()] == ["a", "c"]
    pair.copy(["b"])
    assert pair.other["b"].get("x") == "b"


def test_bad_arguments_change_nothing(pair: Pair) -> None:
    pair.source["a"].put("x", 1)
    with pytest.raises(CollectionNotFound, match="no collection 'aa': did you mean 'a'"):
        pair.copy(["a", "aa"])
    with pytest.raises(InvalidOption):
        pair.copy("a")
    with pytest.raises(InvalidName):
        pair.copy(["a", "no name"])
    with pytest.raises(InvalidOption, match="progress"):
        pair.copy(progress=5)
    for other in (pair.source, None, "sqlite://"):
        with pytest.raises(InvalidOption, match="other"):
            pair.source.copy_to(unwrap(other))
    assert pair.other.collections() == []


def test_a_store_is_not_copied_to_its_own_tables(backend: Backend, open_store: Opener) -> None:
    source, same = open_store(), open_store()
    source["a"].put("x", 1)
    if backend.url == "sqlite://":
        source.copy_to(unwrap(same))
        assert same["a"].get("x") == 1
        return
    with pytest.raises(InvalidOption, match="must have other tables than this store"):
        source.copy_to(unwrap(same))
    other = open_store(prefix="other_")
    source.copy_to(unwrap(other))
    assert other["a"].get("x") == 1


def test_an_existing_collection_is_not_overwritten(pair: Pair) -> None:
    pair.source["a"].put("x", 1)
    pair.source["b"].put("x", 1)
    pair.other["b"].put("x", "mine")
    with pytest.raises(CollectionExists, match="'b'"):
        pair.copy()
    assert [each.name for each in pair.other.collections()] == ["b"]
    assert pair.other["b"].get("x") == "mine"


def test_a_complete_copy_is_not_copied_over(pair: Pair) -> None:
    pair.source["a"].put("x", 1)
    pair.copy()
    pair.other["a"].put("x", 2)
    with pytest.raises(CollectionExists):
        pair.copy()
    assert pair.other["a"].get("x") == 2


class Enough(Exception):
    """Ends a copy."""


def stop_after(documents: int) -> Callable[[CopyProgress], None]:
    def report(progress: CopyProgress) -> None:
        if progress.done >= documents:
            raise Enough

    return report


def test_an_interrupted_copy_goes_on_from_the_present_state(pair: Pair) -> None:
    things = pair.source["things"]
    things.put_many({str(n): {"n": n} for n in range(400)})
    things.create_index("n", unique=True)
    pair.source["z"].put("x", 1)
    with pytest.raises(Enough):
        pair.copy(progress=stop_after(200))
    assert 0 < pair.other["things"].count() < 400
    things.update("3", {"$set": {"n": -3}})
    things.put("4", {"n": 3})
    things.remove("5")
    things.put("new", {"n": 5})
    pair.copy()
    assert contents(pair.other) == contents(pair.source)
    with pytest.raises(CollectionExists):
        pair.copy()


def test_a_copy_goes_on_with_fewer_documents_and_with_indexes(pair: Pair) -> None:
    things = pair.source["a"]
    things.put_many({str(n): {"n": n} for n in range(100)})
    things.create_index("n", unique=True)
    pair.source["b"].put("x", 1)
    with pytest.raises(Enough):
        pair.copy(progress=stop_after(101))
    assert len(pair.other["a"].indexes()) == 1
    things.update("1", {"$set": {"n": -1}})
    things.put("99", {"n": 1})
    things.remove("98")
    pair.copy()
    assert contents(pair.other) == contents(pair.source)


def test_a_copy_is_another_one_after_the_options_changed(pair: Pair) -> None:
    pair.source["a"].put("x", 1)
    with pytest.raises(Enough):
        pair.copy(progress=stop_after(0))
    pair.source["a"].create_index("n")
    with pytest.raises(CollectionExists):
        pair.copy()
    pair.other.drop("a")
    pair.copy()
    assert contents(pair.other) == contents(pair.source)


def test_the_source_is_copied_as_of_one_moment(pair: Pair) -> None:
    if "'sqlite://'" in repr(pair.source):
        pytest.skip("its only connection is busy")
    things = pair.source["a"]
    things.put_many({str(n): 0 for n in range(300)})
    pair.source["b"].put("x", 0)
    before = contents(pair.source)
    with Store(*_address(pair.source)[0], **_address(pair.source)[1]) as writer:

        def write(_: CopyProgress) -> None:
            writer["b"].put("x", writer["b"].get("x") + 1)
            writer["a"].put("299", 1)
            writer["a"].remove("298")

        pair.copy(progress=write)
        assert contents(pair.other)["a"] == before["a"]
        assert contents(pair.other)["b"] == before["b"]


def _address(store: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    core = unwrap(store).core
    options = core.options
    return (core.url,), {"schema": options.schema, "sharding": options.sharding}


def test_writes_of_others_to_the_copy_are_found(pair: Pair) -> None:
    pair.source["things"].put_many({str(n): n for n in range(400)})
    with Store(*_address(pair.other)[0], **_address(pair.other)[1]) as intruder:

        def write(progress: CopyProgress) -> None:
            if progress.done == 50:
                intruder["things"].put("intruder", 1)

        with pytest.raises(CopyFailed, match="things"):
            pair.copy(progress=write)
    pair.copy()
    assert contents(pair.other) == contents(pair.source)


def test_a_body_that_the_other_store_refuses_is_named(
    open_store: Opener, other_backend: Backend
) -> None:
    store = open_store()
    store["things"].put_many({"small": 1, "large": {"text": "x" * 100}})
    other = Opener(other_backend, open_store.variant)
    other._runner = open_store._runner
    small = other(max_body=50)
    with pytest.raises(InvalidBody, match="'large'"):
        store.copy_to(unwrap(small))
    small.close()


def test_the_progress_counts_all_documents(pair: Pair) -> None:
    pair.source["a"].put_many({str(n): n for n in range(70)})
    pair.source["b"].put("x", 1)
    reported: list[CopyProgress] = []
    pair.copy(progress=reported.append)
    assert reported[-1] == CopyProgress("b", 71, 71)
    assert [each.done for each in reported] == sorted(each.done for each in reported)


def test_a_cancelled_copy_ends_after_a_batch_and_goes_on(backend: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path / 'other.db'}"
        async with AsyncStore(backend.url, **backend.options) as store, AsyncStore(url) as other:
            await store["things"].put_many({str(n): n for n in range(2000)})

            def cancel(_: CopyProgress) -> None:
                task.cancel()

            task = asyncio.create_task(store.copy_to(other, progress=cancel))
            with pytest.raises(asyncio.CancelledError) as found:
                await task
            assert was_committed(found.value) is None
            assert 0 < await other["things"].count() < 2000
            [copied] = await store.copy_to(other)
            assert copied.count == await other["things"].count() == 2000

    asyncio.run(main())


def test_dialogues_are_copied(pair: Pair, open_store: Opener) -> None:
    dialogue = open_store.dialogues(pair.source).create("bob", "ask", {"item": "tea"})[1]
    pair.copy()
    assert contents(pair.other) == contents(pair.source)
    [found] = open_store.dialogues(pair.other).find()
    assert found.dialogue_label == dialogue.dialogue_label


def test_a_damaged_body_is_named(tmp_path: Path) -> None:
    file = tmp_path / "damaged.db"
    with Store(f"sqlite:///{file}") as store:
        store["things"].put_many({"good": 1, "bad": 1})
    connection = sqlite3.connect(file)
    connection.execute("UPDATE cs_1_things SET body = '{' WHERE id = 'bad'")
    connection.commit()
    connection.close()
    with Store(f"sqlite:///{file}") as store, Store("sqlite://") as other:
        with pytest.raises(DatabaseError, match="'bad'"):
            store.copy_to(other)
        with pytest.raises(DatabaseError, match="'bad'"):
            store.backup(tmp_path / "a.jsonl")
        assert not (tmp_path / "a.jsonl").exists()


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-0.0, 1e16, 1e17, 2.0**64, 1e22, 5e-324, 1.7e308]),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
BODIES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(TEXTS, BODIES, max_size=12)


@settings(max_examples=25)
@given(documents=DOCUMENTS, again=DOCUMENTS)
def test_any_documents_come_back_from_the_other_database_and_from_a_file(
    postgres_backend: Backend, tmp_path: Path, documents: dict[str, Any], again: dict[str, Any]
) -> None:
    with (
        Store("sqlite://") as first,
        Store("sqlite://") as last,
        Store("sqlite://") as restored,
        Store(postgres_backend.url, **postgres_backend.options) as between,
    ):
        between.drop("things")
        first["things"].put_many(documents)
        first["things"].put_many(again)
        file = tmp_path / "between.jsonl"
        copied = first.copy_to(between)
        between.backup(file)
        assert copied == between.copy_to(last) == restored.restore(file)
        assert contents(last) == contents(first) == contents(between) == contents(restored)
