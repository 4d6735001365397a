"""Many writes in one call; on every backend, sync and async."""

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Clock

from collections_store import (
    BulkWriteError,
    BulkWriteResult,
    DeleteMany,
    DeleteOne,
    DuplicateKey,
    InsertOne,
    InvalidBody,
    InvalidFilter,
    InvalidId,
    InvalidOption,
    InvalidUpdate,
    PutManyResult,
    ReplaceOne,
    Store,
    StoreClosed,
    UpdateMany,
    UpdateOne,
    UpdateRefused,
    VersionConflict,
    partial_result,
    was_committed,
)
from collections_store.operations import procedures
from collections_store.operations import write as writing


def found(things: Any) -> dict[str, Any]:
    return {each.id: each.body for each in things.list()}


def versions(things: Any) -> dict[str, int]:
    return {each.id: each.version for each in things.list()}


def refused(error: BulkWriteError) -> list[tuple[int, str | None, type[Exception]]]:
    return [(each.position, each.id, type(each.error)) for each in error.result.refused]


def test_replace(things: Any) -> None:
    things.put("b", 0)
    assert things.put_many({"a": 1, "b": 2}) == PutManyResult(1, 1)
    assert things.put_many([("a", 3), ("a", 4)]).replaced_count == 2
    assert versions(things) == {"b": 2, "a": 3}
    assert found(things) == {"b": 2, "a": 4}


def test_insert(things: Any) -> None:
    things.put("b", 0)
    with pytest.raises(BulkWriteError) as caught:
        things.put_many({"a": 1, "b": 2, "c": 3}, mode="insert")
    assert refused(caught.value) == [(1, "b", DuplicateKey)]
    assert caught.value.result == PutManyResult(2, 0, 0, caught.value.result.refused)
    assert found(things) == {"b": 0, "a": 1, "c": 3}
    with pytest.raises(DuplicateKey):
        things.put_many({"d": 1, "c": 4}, mode="insert", atomic=True)
    assert things.exists("d") is False


def test_ignore(things: Any) -> None:
    things.put("b", 0)
    assert things.put_many({"a": 1, "b": 2}, mode="ignore") == PutManyResult(1, 0, 1)
    assert things.put_many([("c", 1), ("c", 2)], mode="ignore") == PutManyResult(1, 0, 1)
    assert found(things) == {"b": 0, "a": 1, "c": 1}


def test_if_version(things: Any) -> None:
    things.put_many({"a": 1, "b": 1})
    with pytest.raises(BulkWriteError) as caught:
        things.put_many(
            [("a", 2, 1), ("b", 2, 2), ("c", 2, None), ("a", 3, None), ("d", 1, 1)],
            mode="if_version",
        )
    conflicts = [each.error for each in caught.value.result.refused]
    assert [(e.id, e.expected, e.found) for e in conflicts if isinstance(e, VersionConflict)] == [
        ("b", 2, 1),
        ("a", None, 2),
        ("d", 1, None),
    ]
    assert found(things) == {"a": 2, "b": 1, "c": 2}
    with pytest.raises(VersionConflict):
        things.put_many([("a", 3, 2), ("b", 3, 2)], mode="if_version", atomic=True)
    assert versions(things) == {"a": 2, "b": 1, "c": 1}


@pytest.mark.each_backend
@pytest.mark.parametrize("changes", [False, "both"])
def test_a_document_as_version_is_no_later_document(store: Any, changes: Any) -> None:
    store.create_collection("things", changes=changes)
    things = store["things"]
    things.put("a", 1)
    read = things.document("a")
    things.put_many([("a", 2, read), ("b", 1, None)], mode="if_version", atomic=True)
    assert versions(things) == {"a": 2, "b": 1}
    with pytest.raises(InvalidOption, match="if_version"):
        things.put_many([("c", 3, read)], mode="if_version", atomic=True)
    things.remove("a")
    things.put("a", 3)
    with pytest.raises(VersionConflict, match="of a later document"):
        things.put_many([("a", 4, read), ("c", 1, None)], mode="if_version", atomic=True)
    with pytest.raises(BulkWriteError, match="of a later document"):
        things.put_many([("a", 4, read)], mode="if_version")
    assert found(things) == {"b": 1, "a": 3}


def test_invalid_documents_are_rejected(things: Any) -> None:
    with pytest.raises(BulkWriteError, match=r"position 1 \(at 'x'.*and 1 more") as caught:
        things.put_many([("a", 1), ("b", {"x": {1}}), ("c", 2), ("\0", 1)])
    assert refused(caught.value) == [(1, "b", InvalidBody), (3, "\0", InvalidId)]
    assert isinstance(caught.value.result, PutManyResult)
    assert caught.value.result.written_count == 2
    assert found(things) == {"a": 1, "c": 2}
    with pytest.raises(InvalidBody) as failed:
        things.put_many([("d", 1), ("e", {1})], atomic=True)
    assert failed.value.__notes__ == ["of the document 'e'"]
    assert found(things) == {"a": 1, "c": 2}


def test_duplicates_of_unique_indexes_are_rejected(things: Any) -> None:
    things.create_index("n", unique=True)
    things.put("there", {"n": 0})
    given = [(str(n), {"n": n // 2}) for n in range(20)]
    with pytest.raises(BulkWriteError) as caught:
        things.put_many(given)
    assert [each.position for each in caught.value.result.refused] == [0, 1, *range(3, 20, 2)]
    assert all(isinstance(each.error, DuplicateKey) for each in caught.value.result.refused)
    assert list(found(things)) == ["there", *map(str, range(2, 20, 2))]


def test_items_that_are_not_pairs_are_rejected(things: Any) -> None:
    mistakes: list[tuple[Any, Any]] = [
        ([("a",)], "replace"),
        (["ab"], "replace"),
        ([5], "insert"),
        ([("a", 1)], "if_version"),
        ([("a", 1, 1)], "replace"),
        ({"a": 1}, "if_version"),
        ([{"a": 1, "b": 2}], "replace"),
        ([{"a", "b"}], "replace"),
    ]
    for given, mode in mistakes:
        with pytest.raises(BulkWriteError, match="give") as caught:
            things.put_many(given, mode=mode)
        assert [each[::2] for each in refused(caught.value)] == [(0, InvalidId)]
        with pytest.raises(InvalidId, match="give"):
            things.put_many(given, mode=mode, atomic=True)
    assert found(things) == {}
    for version in (0, True, "1"):
        with pytest.raises(BulkWriteError) as caught:
            things.put_many([("a", 1, version), ("b", 1, None)], mode="if_version")
        assert refused(caught.value) == [(0, "a", InvalidOption)]
        with pytest.raises(InvalidOption, match="if_version"):
            things.put_many([("b", 2, 1), ("a", 1, version)], mode="if_version", atomic=True)
        assert things.remove("b", if_version=1)
    given = [*((str(n), n) for n in range(2500)), ("late",), 7, ("last", 1)]
    with pytest.raises(BulkWriteError) as caught:
        things.put_many(iter(given))
    assert refused(caught.value) == [(2500, "late", InvalidId), (2501, None, InvalidId)]
    assert caught.value.result.inserted_count == things.count() == 2501


@pytest.mark.parametrize("size", [0, 100_000])
@pytest.mark.parametrize("atomic", [False, True])
def test_an_iterable_may_fill_one_body_again_and_again(
    things: Any, size: int, atomic: bool
) -> None:
    body: Any = {"n": [0], "text": "x" * size}
    count = 1200 if size == 0 else 30

    def filled(value: Any) -> Any:
        for n in range(count):
            body["n"][0] = n
            yield value(str(n))

    expected = [{**body, "n": [n]} for n in range(count)]
    things.put_many(filled(lambda key: (key, body)), atomic=atomic)
    assert [each.body for each in things.list()] == expected
    things.remove_many(str(n) for n in range(count))
    ids = things.insert_many(filled(lambda _: body), atomic=atomic).inserted_ids
    assert [things.get(id) for id in ids] == expected
    things.bulk_write(filled(lambda key: InsertOne(body, id=key)), atomic=atomic)
    assert list(things.get_many(map(str, range(count))).values()) == expected


def test_usage_errors_are_raised_not_reported(things: Any) -> None:
    for method in (things.put_many, things.insert_many, things.bulk_write):
        for given in (5, None, "ab", InsertOne({})):
            with pytest.raises(InvalidOption, match="iterable"):
                method(given)
    with pytest.raises(InvalidOption, match="mode"):
        things.put_many({"a": 1}, mode="upsert")
    with pytest.raises(InvalidOption, match="atomic"):
        things.put_many({"a": 1}, atomic=1)
    assert found(things) == {}


def test_insert_many(things: Any) -> None:
    result = things.insert_many({"n": n} for n in range(3))
    assert [things.get(id) for id in result.inserted_ids] == [{"n": n} for n in range(3)]
    assert things.insert_many({"x": 1, "y": 2}).inserted_ids == ("x", "y")
    with pytest.raises(BulkWriteError) as caught:
        things.insert_many({"z": 1, "y": 2})
    assert refused(caught.value) == [(1, "y", DuplicateKey)]
    assert isinstance(caught.value.result, BulkWriteResult)
    assert caught.value.result.inserted_ids == {0: "z"}
    assert things.insert_many([]).inserted_ids == ()
    assert things.count() == 6


def test_inserted_ids_are_reported_when_some_documents_are_rejected(things: Any) -> None:
    things.create_index("n", unique=True)
    given: list[Any] = [{"n": n if n % 700 else 0} for n in range(2100)]
    given[1] = {"n": {1}}
    with pytest.raises(BulkWriteError) as caught:
        things.insert_many(iter(given))
    result = caught.value.result
    assert isinstance(result, BulkWriteResult)
    assert [each.position for each in result.refused] == [1, 700, 1400]
    assert result.inserted_count == len(result.inserted_ids) == things.count() == 2097
    assert list(result.inserted_ids) == [n for n in range(2100) if n not in {1, 700, 1400}]
    assert [things.get(result.inserted_ids[n]) for n in (0, 2, 2099)] == [
        given[0],
        given[2],
        given[2099],
    ]
    with pytest.raises(DuplicateKey):
        things.insert_many([{"n": -1}, {"n": 2}], atomic=True)
    assert things.count() == 2097


@pytest.mark.parametrize("atomic", [False, True])
def test_any_number_of_documents_is_written_in_batches(things: Any, atomic: bool) -> None:
    ids = [f"id {n}" for n in range(3500)]
    result = things.put_many(((id, {"n": n}) for n, id in enumerate(ids)), atomic=atomic)
    assert result == PutManyResult(3500)
    assert [each.id for each in things.stream()] == ids
    big = "x" * 300_000
    assert things.put_many((id, big) for id in ids[:10]).replaced_count == 10


def test_all_or_nothing_over_many_batches(things: Any) -> None:
    things.put("there", 1)

    def given(bad: Any) -> Iterator[tuple[str, Any]]:
        yield from ((str(n), n) for n in range(2500))
        yield bad

    for bad, error in ((("there", 2), DuplicateKey), (("x", {1}), InvalidBody)):
        with pytest.raises(error):
            things.put_many(given(bad), mode="insert", atomic=True)
        assert found(things) == {"there": 1}
    things.create_index("n", unique=True)
    with pytest.raises(DuplicateKey) as caught:
        things.put_many(
            ((str(n), {"n": n % 2400}) for n in range(2500)),
            atomic=True,
        )
    assert caught.value.id == "2400"
    assert found(things) == {"there": 1}


def test_an_exception_of_the_source_is_raised(things: Any) -> None:
    def given() -> Iterator[tuple[str, Any]]:
        yield from ((str(n), n) for n in range(2500))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        things.put_many(given(), atomic=True)
    assert things.count() == 0
    with pytest.raises(ZeroDivisionError):
        things.put_many(given())
    assert things.count() in {1000, 2000}


def test_an_exception_of_the_source_notes_what_was_written(things: Any) -> None:
    def given(count: int) -> Iterator[Any]:
        yield from range(count)
        raise ZeroDivisionError

    methods: list[tuple[Callable[..., Any], str]] = [
        (
            lambda count, **how: things.put_many(((str(n), n) for n in given(count)), **how),
            "PutMany",
        ),
        (lambda count, **how: things.insert_many(given(count), **how), "PutMany"),
        (
            lambda count, **how: things.bulk_write((InsertOne(n) for n in given(count)), **how),
            "BulkWrite",
        ),
    ]
    for method, name in methods:
        things.delete_many({})
        for count, how in ((2500, {"atomic": True}), (1, {})):
            with pytest.raises(ZeroDivisionError) as failed:
                method(count, **how)
            assert not hasattr(failed.value, "__notes__")
            assert things.count() == 0
        with pytest.raises(ZeroDivisionError) as failed:
            method(2500)
        written = things.count()
        [note] = failed.value.__notes__
        summary = f"{name}Result(inserted_count={written}, "
        assert note.startswith(
            f"collections_store wrote a part, in batches: collection things: {summary}"
        )
        assert written > 1
        part: Any = partial_result(failed.value)
        assert part.inserted_count == written
        assert was_committed(failed.value) is None


@pytest.mark.each_backend  # one of the two is async, and skipped
def test_closing_the_store_notes_what_was_written(open_store: Any) -> None:
    if open_store.variant == "async":
        pytest.skip("the iterator would have to await")
    store = open_store()

    def given() -> Iterator[Any]:
        yield from ((str(n), n) for n in range(2500))
        store.close()
        yield "last", 1

    with pytest.raises(StoreClosed) as failed:
        store["things"].put_many(given())
    assert "inserted_count=2000" in failed.value.__notes__[0]


def test_memory_stays_constant(tmp_path: Any) -> None:
    def peak(count: int) -> int:
        with Store(f"sqlite:///{tmp_path / f'{count}.db'}", durability="normal") as store:
            store["things"].put("warm", {})
            tracemalloc.start()
            store["things"].put_many((str(n), {"n": n, "text": "x" * 200}) for n in range(count))
            _, highest = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        return highest

    assert peak(20_000) < 1.5 * peak(4_000)


def test_an_atomic_bulk_write_holds_no_bodies(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedures, "SPOOL_MEMORY", 2**20)
    with Store(f"sqlite:///{tmp_path / 'store.db'}", durability="normal") as store:
        store["things"].put("warm", {})
        tracemalloc.start()
        requests = (InsertOne({"n": n, "text": "x" * 4000}) for n in range(5000))
        assert store["things"].bulk_write(requests, atomic=True).inserted_count == 5000
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert highest < 5000 * 4000 / 2


def test_an_atomic_bulk_write_runs_spooled_requests_in_order(
    things: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedures, "SPOOL_MEMORY", 1)

    def requests() -> Iterator[Any]:
        for n in range(1200):
            yield InsertOne({"n": n}, id=str(n))
            yield UpdateOne({"$id": str(n)}, {"$inc": {"n": 10}})
            yield UpdateOne({"$id": f"new {n}"}, {"$set": {"n": n}}, upsert=True)

    result = things.bulk_write(requests(), atomic=True)
    assert (result.inserted_count, result.modified_count) == (1200, 1200)
    assert result.inserted_ids == {3 * n: str(n) for n in range(1200)}
    assert result.upserted_ids == {3 * n + 2: f"new {n}" for n in range(1200)}
    assert [things.get(str(n))["n"] for n in (0, 170, 1199)] == [10, 180, 1209]


def test_a_sum_of_results_leaves_its_parts_alone() -> None:
    first = BulkWriteResult(1, upserted_ids={1: "u"}, inserted_ids={0: "a"})
    second = BulkWriteResult(2, 1, inserted_ids={2: "b"})
    assert first + second == BulkWriteResult(3, 1, 0, 0, {1: "u"}, {0: "a", 2: "b"})
    assert first == BulkWriteResult(1, upserted_ids={1: "u"}, inserted_ids={0: "a"})
    assert second == BulkWriteResult(2, 1, inserted_ids={2: "b"})


def test_bulk_write(things: Any) -> None:
    things.put_many({"1": {"n": 1}, "2": {"n": 2}, "3": {"n": 3}})
    result = things.bulk_write(
        iter(
            [
                InsertOne({"n": 4}, id="4"),
                InsertOne({"n": 5}, id="5"),
                UpdateOne({"n": 1}, {"$inc": {"n": 10}}),
                UpdateMany({"n": {"$lt": 5}}, {"$set": {"small": True}}),
                ReplaceOne({"n": 5}, {"n": 6}),
                UpdateOne({"$id": "new"}, {"$set": {"n": 7}}, upsert=True),
                DeleteOne({"n": 6}),
                DeleteMany({"small": True}),
            ]
        )
    )
    assert result == BulkWriteResult(
        inserted_count=2,
        matched_count=5,
        modified_count=5,
        deleted_count=4,
        upserted_ids={5: "new"},
        inserted_ids={0: "4", 1: "5"},
    )
    assert result.upserted_count == 1
    assert found(things) == {"1": {"n": 11}, "new": {"n": 7}}


REQUESTS = [
    InsertOne({"n": 1}, id="a"),
    InsertOne({"n": 2}, id="b"),
    InsertOne({"n": 3}, id="a"),
    UpdateOne({"$id": "b"}, {"$inc": {"n": "x"}}),
    UpdateOne({"$id": "b"}, {"$push": {"n": 1}}),
    InsertOne({1}, id="c"),
    DeleteOne(None),
    InsertOne({"n": 4}, id="d"),
]
ERRORS = [
    (2, "a", DuplicateKey),
    (3, None, InvalidUpdate),
    (4, None, UpdateRefused),
    (5, "c", InvalidBody),
    (6, None, InvalidFilter),
]


def test_an_ordered_bulk_stops_at_the_first_rejected_request(things: Any) -> None:
    for start in range(2, 7):
        things.delete_many({})
        given = [*REQUESTS[:2], *REQUESTS[start:]]
        with pytest.raises(BulkWriteError) as caught:
            things.bulk_write(given)
        assert refused(caught.value) == [(2, *ERRORS[start - 2][1:])]
        assert caught.value.result.inserted_count == 2
        assert found(things) == {"a": {"n": 1}, "b": {"n": 2}}


def test_an_unordered_bulk_continues_after_a_rejected_request(things: Any) -> None:
    with pytest.raises(BulkWriteError) as caught:
        things.bulk_write(REQUESTS, ordered=False)
    assert refused(caught.value) == ERRORS
    assert caught.value.result.inserted_count == 3
    assert found(things) == {"a": {"n": 1}, "b": {"n": 2}, "d": {"n": 4}}


@pytest.mark.parametrize("ordered", [True, False])
def test_an_atomic_bulk_is_all_or_nothing(things: Any, ordered: bool) -> None:
    for start, (_, _, error) in enumerate(ERRORS, 2):
        with pytest.raises(error):
            things.bulk_write([*REQUESTS[:2], REQUESTS[start]], atomic=True, ordered=ordered)
        assert found(things) == {}
    result = things.bulk_write(
        [InsertOne({"n": n}) for n in range(1200)], atomic=True, ordered=ordered
    )
    assert [things.get(result.inserted_ids[n])["n"] for n in (0, 500, 1199)] == [0, 500, 1199]
    assert result.inserted_count == things.count() == 1200


def test_bulk_write_with_a_unique_index(things: Any) -> None:
    things.create_index("n", unique=True)
    requests = [
        InsertOne({"n": 1}, id="a"),
        InsertOne({"n": 1}, id="b"),
        InsertOne({"n": 2}, id="c"),
        UpdateOne({"$id": "c"}, {"$set": {"n": 1}}),
        UpdateOne({"$id": "c"}, {"$set": {"n": 3}}),
    ]
    with pytest.raises(BulkWriteError) as caught:
        things.bulk_write(requests, ordered=False)
    assert [each.position for each in caught.value.result.refused] == [1, 3]
    assert found(things) == {"a": {"n": 1}, "c": {"n": 3}}


def test_objects_that_are_not_requests_are_rejected(things: Any) -> None:
    wrong: list[Any] = [["insert"], [{"insertOne": {}}], [InsertOne]]
    for given in wrong:
        with pytest.raises(BulkWriteError, match="requests") as caught:
            things.bulk_write(given)
        assert refused(caught.value) == [(0, None, InvalidOption)]
        with pytest.raises(InvalidOption, match="requests"):
            things.bulk_write([InsertOne({}), *given], atomic=True)
    assert things.bulk_write([]) == BulkWriteResult()
    assert found(things) == {}
    given = [InsertOne({}, id="a"), "no request", InsertOne({}, id="b")]
    for ordered, expected in ((True, ["a"]), (False, ["a", "b"])):
        things.delete_many({})
        with pytest.raises(BulkWriteError) as caught:
            things.bulk_write(given, ordered=ordered)
        assert refused(caught.value) == [(1, None, InvalidOption)]
        assert list(found(things)) == expected


def test_bulk_write_takes_any_number_of_requests(things: Any) -> None:
    requests = (InsertOne({"n": n}, id=str(n)) for n in range(1700))
    assert things.bulk_write(requests).inserted_count == 1700
    result = things.bulk_write(UpdateOne({"$id": str(n)}, {"$inc": {"n": 1}}) for n in range(600))
    assert result.modified_count == 600
    assert things.count({"n": 600}) == 2


@pytest.mark.each_backend  # one of the two is async, and skipped
def test_source_may_read_from_the_same_store(open_store: Any) -> None:
    if open_store.variant == "async":
        pytest.skip("the iterator would have to await")
    store = open_store()
    store["a"].put_many((str(n), {"n": n}) for n in range(2500))

    def given() -> Iterator[tuple[str, Any]]:
        for document in source["a"].list():
            yield document.id, document.body

    source = store
    assert store["b"].put_many(given(), atomic=True).inserted_count == 2500
    with store.transaction() as tx:
        source = tx
        assert tx["c"].put_many(given(), atomic=True).inserted_count == 2500
        requests = (InsertOne(body, id=id) for id, body in given())
        assert tx["d"].bulk_write(requests, atomic=True).inserted_count == 2500
    source = store
    requests = (InsertOne(body, id=id) for id, body in given())
    assert store["e"].bulk_write(requests, atomic=True).inserted_count == 2500
    assert [info.count for info in store.collections()] == [2500] * 5


@pytest.mark.each_backend  # one of the two is async, and skipped
def test_source_may_write_to_the_same_store(open_store: Any) -> None:
    store = open_store()
    if open_store.variant == "async":
        pytest.skip("the iterator would have to await")

    def given() -> Iterator[tuple[str, Any]]:
        for number in range(2500):
            if number % 500 == 0:
                store["counts"].increment("read", "n")
            yield str(number), number

    assert store["a"].put_many(given(), atomic=True).inserted_count == 2500
    requests = (InsertOne(body, id=id) for id, body in given())
    assert store["b"].bulk_write(requests, atomic=True).inserted_count == 2500
    assert store["counts"].get("read") == {"n": 10}


def test_rejected_documents_are_not_logged(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Warnings of a driver would go to standard error in programs without logging."""
    things = store["things"]
    things.create_index("n", unique=True)
    things.put_many({str(n): {"n": n} for n in range(10)})
    ten_more = {str(n): {"n": n % 13} for n in range(10, 20)}
    with pytest.raises(BulkWriteError):
        things.put_many(ten_more)
    with pytest.raises(DuplicateKey):
        things.put_many(ten_more, atomic=True)
    with pytest.raises(DuplicateKey):
        things.update_many({}, {"$set": {"n": 1}})
    with pytest.raises(BulkWriteError):
        things.bulk_write([InsertOne({"n": 1}), UpdateMany({}, {"$set": {"n": 1}})])
    with store.transaction() as tx, pytest.raises(DuplicateKey):
        tx["things"].update_many({}, {"$set": {"n": 1}})
    assert caplog.records == []


def test_unique_index_checks_updates_in_order(things: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each document frees the value of the next one, in any order of statements."""
    monkeypatch.setattr(writing, "REWRITE_CHARACTERS", 100)
    things.create_index("n", unique=True)
    many = [str(n) for n in range(200)]
    many.sort()
    things.put_many(
        [(id, {"n": number, "text": "x" * (number % 7)}) for number, id in enumerate(many)]
    )
    assert things.update_many({}, {"$inc": {"n": -1}}).modified_count == 200
    assert [each.body["n"] for each in things.list()] == list(range(-1, 199))
    assert set(versions(things).values()) == {2}
    with pytest.raises(DuplicateKey):
        things.update_many({}, {"$inc": {"n": 1}})


def test_bulk_updates_keep_creation_time_and_natural_order(things: Any, clock: Any) -> None:
    things.put_many({"a": {"n": 1}, "b": {"n": 2}}, ttl=100)
    before = things.list()
    clock.advance(10)
    assert things.update_many({}, {"$set": {"n": 3}}).modified_count == 2
    after = things.list()
    assert [(each.id, each.created_at, each.expires_at) for each in after] == [
        (each.id, each.created_at, each.expires_at) for each in before
    ]
    assert all((each.updated_at - each.created_at).total_seconds() == 10 for each in after)
    things.put("c", 1)
    assert [each.id for each in things.list()] == ["a", "b", "c"]


@pytest.mark.each_backend
def test_expired_documents_are_new_in_a_batch(things: Any, clock: Clock) -> None:
    things.put_many({"a": 1, "b": 1})
    things.put("c", 1, ttl=1)
    things.put("d", 1, ttl=1)
    clock.advance(2)
    assert things.put_many({"a": 2, "e": 2}, atomic=True) == PutManyResult(1, 1)
    assert things.put_many({"e": 3, "c": 3, "b": 3}, atomic=True) == PutManyResult(1, 2)
    versions = {each.id: each.version for each in things.list()}
    assert versions == {"a": 2, "b": 2, "e": 2, "c": 1}


@pytest.mark.each_backend
def test_expired_documents_of_a_batch_are_recorded_in_the_order_of_their_ids(
    store: Any, clock: Clock
) -> None:
    things = store.create_collection("things", changes=True)
    things.put_many([("c", 1), ("a", 1), ("b", 1)], ttl=1)
    clock.advance(2)
    things.put_many([("b", 2), ("c", 2), ("a", 2)])
    changes = [(each.kind, each.id) for each in things.watch(after="oldest", timeout=0)]
    assert changes[3:6] == [("expire", "a"), ("expire", "b"), ("expire", "c")]
    assert changes[6:] == [("insert", "b"), ("insert", "c"), ("insert", "a")]


@pytest.mark.each_backend
@pytest.mark.parametrize("changes", [False, "both"])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_unique_index_sees_the_documents_of_a_batch_in_their_order(
    store: Any, changes: Any, atomic: bool
) -> None:
    things = store.create_collection("things", changes=changes)
    things.create_index("n", unique=True)
    things.put("old", {"n": 1})
    with pytest.raises(DuplicateKey if atomic else BulkWriteError):
        things.put_many([("new", {"n": 1}), ("old", {"n": 2})], atomic=atomic)
    assert found(things) == {"old": {"n": 1 if atomic else 2}}
    things.put_many([("old", {"n": 3}), ("new", {"n": 2})], atomic=atomic)
    assert found(things) == {"old": {"n": 3}, "new": {"n": 2}}
