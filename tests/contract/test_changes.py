"""The change feed: what is recorded, and what a stream returns."""

import math
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Opener
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import (
    BulkWriteError,
    Change,
    ChangesLost,
    DatabaseError,
    DuplicateKey,
    InsertOne,
    InvalidFilter,
    InvalidOption,
    InvalidToken,
    Store,
    StoreClosed,
    VersionConflict,
    document,
)
from collections_store.operations import recorder as recordings
from collections_store.operations import update as queries
from collections_store.operations.operation import Operation
from collections_store.query.change import ChangePosition, read_token
from collections_store.query.filter import Filter

WRONG: list[dict[str, Any]] = [
    {"timeout": -1},
    {"timeout": "1"},
    {"timeout": math.nan},
    {"kinds": ["drop"]},
    {"kinds": []},
    {"kinds": 7},
    {"kinds": "drop"},
]


class Clock:
    """The clock by which documents expire in this process."""

    def __init__(self) -> None:
        self._ahead = 0

    def time_ns(self) -> int:
        return time.time_ns() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += int(seconds * 10**9)


@dataclass(frozen=True)
class DeletedRows(Operation[Any]):
    """The rows that delete statements return, by id and by a filter."""

    collection: str
    writes = True

    def __call__(self, connection: Any) -> list[Any]:
        statements = connection.collection(self.collection)
        found = []
        for sql, parameters in (
            (statements.by_id.remove, {"id": "a"}),
            (statements.delete(Filter(), indexed=True).sql, {"seq": 0, "limit": 10}),
        ):
            with suppress(Boom), connection.savepoint():
                found += connection.rows(sql, {"now": document.now(), **parameters})
                raise Boom
        return found


class Boom(Exception):
    """Raised to end a transaction."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("collections_store.document.time", clock)
    return clock


@pytest.fixture
def things(store: Any) -> Any:
    """A collection that records changes with both bodies."""
    return recording(store, changes="both")


def recording(store: Any, name: str = "things", **options: Any) -> Any:
    return store.collection(name, **options)


def drain(things: Any, **options: Any) -> list[Change]:
    """Return the recorded changes, by default from the oldest."""
    return list(things.watch(**{"after": "oldest", "timeout": 0, **options}))


def summaries(changes: list[Change]) -> list[Any]:
    return [(each.kind, each.id, each.version) for each in changes]


def bodies(changes: list[Change]) -> list[Any]:
    """Return the bodies before and after; `...` if one is unknown."""
    return [
        (each.before if each.has_before else ..., each.body if each.has_body else ...)
        for each in changes
    ]


# -- recording -------------------------------------------------------------------------------


def test_each_method_is_recorded(things: Any) -> None:
    things.put("a", 1)
    things.put("a", 2)
    things.put("a", 3, if_version=2)
    things.put("b", None, if_absent=True)
    things.insert_one({"n": 1}, id="c")
    things.change("c", lambda body: {"n": body["n"] + 1})
    things.change("d", lambda _: 4, default=0)
    things.remove("a")
    things.remove("b", if_version=1)
    things.remove_many(["c", "nobody"])
    things.remove("nobody")
    changes = drain(things)
    assert summaries(changes) == [
        ("insert", "a", 1),
        ("update", "a", 2),
        ("update", "a", 3),
        ("insert", "b", 1),
        ("insert", "c", 1),
        ("update", "c", 2),
        ("insert", "d", 1),
        ("remove", "a", 3),
        ("remove", "b", 1),
        ("remove", "c", 2),
    ]
    assert bodies(changes) == [
        (..., 1),
        (1, 2),
        (2, 3),
        (..., None),
        (..., {"n": 1}),
        ({"n": 1}, {"n": 2}),
        (..., 4),
        (3, ...),
        (None, ...),
        ({"n": 2}, ...),
    ]


def test_batch_writes_are_recorded(things: Any) -> None:
    things.put_many({"a": 1, "b": 2})
    things.put_many({"a": 3, "c": 4})
    things.put_many({"a": 5, "d": 6}, mode="ignore")
    with pytest.raises(BulkWriteError):
        things.put_many({"a": 7, "e": 8}, mode="insert")
    with pytest.raises(BulkWriteError):
        things.put_many([("a", 9, 2), ("b", 10, 7)], mode="if_version")
    things.put_many({"a": 11}, atomic=True)
    things.insert_many({"f": 12})
    changes = drain(things)
    assert list(zip(summaries(changes), bodies(changes), strict=True)) == [
        (("insert", "a", 1), (..., 1)),
        (("insert", "b", 1), (..., 2)),
        (("update", "a", 2), (1, 3)),
        (("insert", "c", 1), (..., 4)),
        (("insert", "d", 1), (..., 6)),
        (("insert", "e", 1), (..., 8)),
        (("update", "a", 3), (3, 9)),
        (("update", "a", 4), (9, 11)),
        (("insert", "f", 1), (..., 12)),
    ]


@pytest.mark.parametrize("filter", [{"n": {"$gt": 1}}, {"$expr": {"$gt": ["$n", 1]}}])
def test_deleting_by_a_filter_is_recorded(things: Any, filter: Any) -> None:
    things.put_many({str(n): {"n": n} for n in range(5)})
    after = drain(things)[-1].token
    things.delete_one(filter)
    things.delete_many(filter)
    changes = drain(things, after=after)
    assert sorted(summaries(changes)) == [("remove", id, 1) for id in "234"]
    assert all(each.before == {"n": int(each.id)} for each in changes)


@pytest.mark.parametrize("filter", [{"n": {"$lt": 90}}, {"$expr": {"$lt": ["$n", 90]}}])
def test_large_deletes_are_recorded_in_batches(
    things: Any, monkeypatch: pytest.MonkeyPatch, filter: Any
) -> None:
    """No more changes than the limit are held in memory."""
    waiting: list[int] = []
    add = recordings.Recorder.add

    def adding(self: Any, *arguments: Any) -> None:
        add(self, *arguments)
        waiting.append(len(self.pending))

    monkeypatch.setattr(queries, "DELETE_BATCH", 7)
    monkeypatch.setattr(recordings, "MAX_PENDING", 10)
    monkeypatch.setattr(recordings.Recorder, "add", adding)
    things.put_many({str(n): {"n": n} for n in range(100)}, atomic=True)
    things.update_many({}, {"$set": {"m": 0}})
    after = drain(things)[-1].token
    assert things.delete_many(filter).deleted_count == 90
    assert things.delete_many(filter).deleted_count == 0
    changes = drain(things, after=after)
    assert summaries(changes) == [("remove", str(n), 2) for n in range(90)]
    assert bodies(changes) == [({"n": n, "m": 0}, ...) for n in range(90)]
    assert things.count() == 10
    assert len(waiting) == 290
    assert max(waiting) < 10


def test_deleted_bodies_are_read_only_if_they_are_recorded(store: Any) -> None:
    for changes, expected in ((True, None), ("after", None), ("both", "1")):
        things = recording(store, f"things_{changes}", changes=changes)
        things.put("a", 1)
        summaries = store.run(DeletedRows(f"things_{changes}"))
        assert [row[-1] for row in summaries] == [expected] * 2
        assert drain(things)[-1].kind == "insert"


def test_updates_are_recorded(things: Any) -> None:
    things.put_many({"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}})
    after = drain(things)[-1].token
    things.update("a", {"$set": {"n": 4}})
    things.update_one({"n": 4}, {"$inc": {"n": 1}})
    things.update_many({"n": {"$in": [2, 3]}}, {"$set": {"n": 0}})
    things.update_one({"$id": "a"}, {"$set": {"n": 5}})  # unchanged
    things.replace_one({"$id": "b"}, [])
    things.find_one_and_update({"$id": "c"}, {"$inc": {"n": 7}})
    things.find_one_and_delete({"$id": "c"})
    things.update_one({"$id": "d"}, {"$set": {"n": 8}}, upsert=True)
    changes = drain(things, after=after)
    assert list(zip(summaries(changes), bodies(changes), strict=True)) == [
        (("update", "a", 2), ({"n": 1}, {"n": 4})),
        (("update", "a", 3), ({"n": 4}, {"n": 5})),
        (("update", "b", 2), ({"n": 2}, {"n": 0})),
        (("update", "c", 2), ({"n": 3}, {"n": 0})),
        (("update", "b", 3), ({"n": 0}, [])),
        (("update", "c", 3), ({"n": 0}, {"n": 7})),
        (("remove", "c", 3), ({"n": 7}, ...)),
        (("insert", "d", 1), (..., {"n": 8})),
    ]


def test_expired_documents_are_recorded_when_purged(things: Any, clock: Clock) -> None:
    things.put("a", 1, ttl=10)
    things.put_many({"b": 2, "c": 3}, ttl=10)
    clock.advance(11)
    assert things.count() == 0
    things.put("a", 4)
    things.put_many({"b": 5})
    assert things.purge_expired() == 1
    changes = drain(things)
    assert summaries(changes)[3:] == [
        ("expire", "a", 1),
        ("insert", "a", 1),
        ("expire", "b", 1),
        ("insert", "b", 1),
        ("expire", "c", 1),
    ]
    assert bodies(changes)[3:] == [(1, ...), (..., 4), (2, ...), (..., 5), (3, ...)]


def test_failed_writes_are_not_recorded(things: Any) -> None:
    things.put("a", 1)
    things.create_index("n", unique=True)
    things.put("b", {"n": 1})
    with pytest.raises(VersionConflict):
        things.put("a", 2, if_version=7)
    with pytest.raises(VersionConflict):
        things.put("a", 2, if_absent=True)
    with pytest.raises(DuplicateKey):
        things.insert_one(2, id="a")
    with pytest.raises(DuplicateKey):
        things.put("c", {"n": 1})
    with pytest.raises(DuplicateKey):
        things.put_many({"d": {"n": 2}, "e": {"n": 1}}, atomic=True)
    with pytest.raises(VersionConflict):
        things.remove("a", if_version=7)
    assert summaries(drain(things)) == [("insert", "a", 1), ("insert", "b", 1)]


def test_touch_is_not_recorded(things: Any) -> None:
    things.put("a", 1)
    assert things.touch("a", ttl=math.inf)
    assert len(drain(things)) == 1


def test_a_transaction_is_recorded_when_it_commits(store: Any, things: Any) -> None:
    other = recording(store, "other", changes=True)
    with store.transaction() as tx:
        tx["things"].put("a", 1)
        tx["other"].put("x", 1)
        with pytest.raises(Boom), tx.transaction():
            tx["things"].put("b", 2)
            raise Boom
        with tx.transaction():
            tx["things"].put("c", 3)
        tx["things"].put("a", 4)
    with pytest.raises(Boom), store.transaction() as tx:
        tx["things"].put("d", 5)
        raise Boom
    assert summaries(drain(things)) == [("insert", "a", 1), ("insert", "c", 1), ("update", "a", 2)]
    assert summaries(drain(other)) == [("insert", "x", 1)]


def test_changes_of_a_collection_dropped_in_the_same_transaction(store: Any, things: Any) -> None:
    with store.transaction() as tx:
        tx["things"].put("a", 1)
        tx.drop("things")
    assert [each.name for each in store.collections()] == []
    things = recording(store, changes=True)
    with store.transaction() as tx:
        tx["things"].put("a", 1)
        with pytest.raises(Boom), tx.transaction():
            tx.drop("things")
            raise Boom
    assert summaries(drain(things)) == [("insert", "a", 1)]


def test_changes_of_a_collection_renamed_in_the_same_transaction(store: Any, things: Any) -> None:
    things.put("a", 0)
    with store.transaction() as tx:
        tx["things"].put("a", 1)
        tx.rename("things", "others")
        tx["others"].put("b", 1)
    expected = [("insert", "a", 1), ("update", "a", 2), ("insert", "b", 1)]
    assert summaries(drain(store["others"])) == expected


def test_bodies_are_recorded_as_configured(store: Any) -> None:
    for changes, expected in (
        (True, [(..., ...), (..., ...), (..., ...)]),
        ("after", [(..., None), (..., [1]), (..., ...)]),
        ("both", [(..., None), (None, [1]), ([1], ...)]),
    ):
        things = recording(store, f"things_{changes}", changes=changes)
        things.put("a", None)
        things.put("a", [1])
        things.remove("a")
        assert bodies(drain(things)) == expected


def test_a_change_has_its_time(store: Any, things: Any, clock: Clock) -> None:
    before = datetime.now(UTC)
    things.put("a", 1)
    clock.advance(3600)
    things.put("b", 1)
    first, second = drain(things)
    assert before - timedelta(milliseconds=1) <= first.time <= datetime.now(UTC)
    assert second.time - first.time >= timedelta(hours=1)


@pytest.mark.each_backend  # one of the two is async, and skipped
def test_changes_are_recorded_on_an_engine_of_the_caller(
    open_store: Opener,
) -> None:
    """A store on an engine notifies of its commits, and `bind` records the commits of its caller."""
    backend = open_store.backend
    if open_store.variant == "async":
        pytest.skip("bind of an asynchronous store takes an asynchronous driver")
    more: dict[str, Any] = {}
    if backend.is_private:
        more = {"poolclass": sa.StaticPool, "connect_args": {"check_same_thread": False}}
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"), **more)
    with Store(engine=engine, **backend.options) as store:
        things = store.get_sync_collection("things", changes="both")
        things.put("a", 1)
        things.put_many({"a": 2, "b": 3})
        with pytest.raises(Boom), engine.begin() as connection:
            store.bind(connection)["things"].put("c", 4)
            raise Boom
        with engine.begin() as connection:
            bound = store.bind(connection)["things"]
            bound.put("c", 5)
            bound.put_many({"c": 6})
            bound.remove("a")
        changes = drain(things)
    engine.dispose()
    assert list(zip(summaries(changes), bodies(changes), strict=True)) == [
        (("insert", "a", 1), (..., 1)),
        (("update", "a", 2), (1, 2)),
        (("insert", "b", 1), (..., 3)),
        (("insert", "c", 1), (..., 5)),
        (("update", "c", 2), (5, 6)),
        (("remove", "a", 2), (2, ...)),
    ]


IDS = st.sampled_from("abcd")
BODIES = st.none() | st.integers(0, 9) | st.lists(st.integers(0, 3), max_size=2)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), IDS, BODIES),
        st.tuples(st.just("put_briefly"), IDS, BODIES),
        st.tuples(st.just("put_many"), st.dictionaries(IDS, BODIES)),
        st.tuples(st.just("insert_one"), BODIES),
        st.tuples(st.just("remove"), IDS),
        st.tuples(st.just("remove_many"), st.lists(IDS)),
        st.tuples(st.just("delete_many"), st.integers(0, 9)),
        st.tuples(st.just("forward")),
        st.tuples(st.just("rolled_back"), IDS),
    ),
    max_size=12,
)


@settings(
    max_examples=25 // sampled(2),
)
@given(methods=OPERATIONS)
def test_replaying_the_feed_rebuilds_the_collection(store: Any, clock: Clock, methods: Any) -> None:
    store.drop("things")
    things = recording(store, changes="after")
    for method, *arguments in methods:
        METHODS_DONE[method](store, clock, *arguments)
    things.purge_expired()
    replayed: dict[str, Any] = {}
    versions: dict[str, int] = {}
    for change in drain(things):
        if change.kind in {"remove", "expire"}:
            del replayed[change.id]
            assert versions.pop(change.id) == change.version
        else:
            assert (change.kind == "insert") == (change.id not in replayed)
            assert change.version == versions.get(change.id, 0) + 1
            replayed[change.id], versions[change.id] = change.body, change.version
    assert replayed == {each.id: each.body for each in things.list()}
    assert versions == {each.id: each.version for each in things.list()}


def rolled_back(store: Any, _: Clock, id: str) -> None:
    with pytest.raises(Boom), store.transaction() as tx:
        tx["things"].put(id, 1)
        tx["things"].remove(id)
        raise Boom


METHODS_DONE: dict[str, Callable[..., Any]] = {
    "put": lambda store, _, key, body: store["things"].put(key, body),
    "put_briefly": lambda store, _, key, body: store["things"].put(key, body, ttl=5),
    "put_many": lambda store, _, some: store["things"].put_many(some),
    "insert_one": lambda store, _, body: store["things"].insert_one(body),
    "remove": lambda store, _, key: store["things"].remove(key),
    "remove_many": lambda store, _, ids: store["things"].remove_many(ids),
    "delete_many": lambda store, _, body: store["things"].delete_many({"$body": body}),
    "forward": lambda _, clock: clock.advance(6),
    "rolled_back": rolled_back,
}


# -- streams ---------------------------------------------------------------------------------


def test_a_stream_starts_at_the_present_by_default(things: Any) -> None:
    things.put("a", 1)
    stream = things.watch()
    assert stream.try_next() is None
    things.put("b", 2)
    things.put("c", 3)
    assert next(stream).id == "b"
    assert stream.try_next().id == "c"
    assert stream.try_next() is None


def test_a_token_resumes_after_its_change(things: Any) -> None:
    things.put_many({str(n): n for n in range(120)})
    every = drain(things)
    assert [each.id for each in every] == [str(n) for n in range(120)]
    for number in (0, 48, 49, 50, 51, 118, 119):
        assert drain(things, after=every[number].token) == every[number + 1 :]
    stream = things.watch(after="oldest")
    for change in every:
        assert next(stream) == change
        assert drain(things, after=stream.token) == every[every.index(change) + 1 :]


def test_a_stream_resumes_after_a_restart(open_store: Opener) -> None:
    if open_store.backend.is_private:
        pytest.skip("nothing is left of it")
    first = open_store()
    things = recording(first, changes=True)
    things.put_many({str(n): n for n in range(10)})
    stream = things.watch(after="oldest")
    seen = [next(stream).id for _ in range(4)]
    token = stream.token
    first.close()
    second = open_store()
    second["things"].put("10", 10)
    seen += [each.id for each in drain(second["things"], after=token)]
    assert seen == [str(n) for n in range(11)]


def test_a_timeout_ends_the_iteration_and_not_the_stream(things: Any) -> None:
    stream = things.watch(timeout=0.01)
    assert list(stream) == []
    things.put("a", 1)
    assert [each.id for each in stream] == ["a"]
    stream.close()
    stream.close()
    things.put("b", 1)
    assert list(stream) == []
    assert stream.try_next() is None
    assert [each.id for each in drain(things, after=stream.token)] == ["b"]


def test_a_stream_is_a_context_manager(things: Any) -> None:
    with things.watch() as stream:
        things.put("a", 1)
        assert next(stream).id == "a"
    assert list(stream) == []


def test_filters_apply_to_the_new_body_or_to_the_deleted_one(things: Any) -> None:
    things.put("a", {"n": 1})
    things.put("a", {"n": 2})
    things.put("b", {"n": 2})
    things.remove("a")
    things.put("b", {"n": 1})
    things.remove("b")
    filter = {"n": 2}
    wanted = [("update", "a", 2), ("insert", "b", 1), ("remove", "a", 2)]
    assert summaries(drain(things, filter=filter)) == wanted
    assert summaries(drain(things, filter=filter, kinds="remove")) == wanted[2:]
    assert summaries(drain(things, kinds=["insert"])) == [("insert", "a", 1), ("insert", "b", 1)]
    assert summaries(drain(things, filter={"$id": "b", "$version": {"$gt": 1}})) == [
        ("update", "b", 2),
        ("remove", "b", 2),
    ]


def test_feed_filters_compare_objects_like_the_database(things: Any) -> None:
    things.put("a", {"o": {"x": 1, "y": 2}})
    other = {"o": {"y": 2, "x": 1}}
    assert len(drain(things, filter=other)) == things.count(other)


def test_a_token_advances_past_filtered_changes(things: Any) -> None:
    stream = things.watch({"$id": "z"})
    things.put_many({str(n): n for n in range(130)})
    assert stream.try_next() is None
    assert drain(things, after=stream.token) == []
    things.put("z", 1)
    things.put("y", 1)
    assert stream.try_next().id == "z"
    assert drain(things, after=stream.token) == []


def test_filters_that_need_unrecorded_bodies_are_rejected(store: Any) -> None:
    plain, after = recording(store, "plain", changes=True), recording(store, "a", changes="after")
    for filter in ({"n": 1}, {"$or": [{"$id": "a"}, {"n": 1}]}, {"$expr": {"$gt": ["$n", 1]}}):
        with pytest.raises(InvalidFilter, match='changes="both"'):
            plain.watch(filter)
        with pytest.raises(InvalidFilter, match='kinds=\\["insert", "update"\\]'):
            after.watch(filter)
        assert drain(after, filter=filter, kinds=["insert", "update"]) == []
    for field in ("created_at", "updated_at", "expires_at"):
        with pytest.raises(InvalidFilter, match=r"must be \$id or \$version"):
            after.watch({f"${field}": {"$gt": datetime.now(UTC)}})
    assert drain(plain, filter={"$id": "a", "$version": 1}) == []


def test_body_before_is_not_modified_by_change(things: Any) -> None:
    things.put("a", {"tags": ["x"]})
    things.change("a", lambda body: body["tags"].append("y"))
    assert bodies(drain(things))[-1] == ({"tags": ["x"]}, {"tags": ["x", "y"]})


def test_changes_recorded_before_bodies_were_enabled(store: Any) -> None:
    things = recording(store, changes=True)
    things.put("a", 1)
    things.put("b", 2)
    recording(store, changes="both")
    things.put("c", 2)
    stream = things.watch({"$body": 2}, after="oldest")
    with pytest.raises(ChangesLost) as lost:
        next(stream)
    assert summaries(drain(things, filter={"$body": 2}, after=lost.value.oldest)) == [
        ("insert", "c", 1)
    ]
    assert len(drain(things)) == 3


# -- retention and errors --------------------------------------------------------------------


def test_retention_by_number(store: Any) -> None:
    things = recording(store, changes=True, changes_kept=5)
    things.put_many({str(n): n for n in range(20)})
    first = things.watch(after="oldest")
    things.put("last", 1)
    things.purge_expired()
    remaining = [each.id for each in drain(things)]
    assert remaining == ["16", "17", "18", "19", "last"]
    with pytest.raises(ChangesLost) as lost:
        first.try_next()
    assert (lost.value.collection, lost.value.token) == ("things", first.token)
    assert [each.id for each in drain(things, after=lost.value.oldest)] == remaining
    with pytest.raises(ChangesLost, match="error.oldest"):
        things.watch(after=first.token)
    things.purge_expired()
    assert [each.id for each in drain(things)] == remaining


def test_writes_prune_periodically(store: Any) -> None:
    things = recording(store, changes=True, changes_kept=20)
    for n in range(60):
        things.put(str(n), n)
    remaining = [int(each.id) for each in drain(things)]
    assert remaining == list(range(remaining[0], 60))
    assert 20 <= len(remaining) <= 23


def test_retention_by_age(store: Any, clock: Clock) -> None:
    things = recording(store, changes=True, changes_ttl=3600)
    things.put("a", 1)
    token = drain(things)[0].token
    clock.advance(1800)
    things.put("b", 1)
    clock.advance(1801)
    things.purge_expired()
    assert [each.id for each in drain(things)] == ["b"]
    assert [each.id for each in drain(things, after=token)] == ["b"]
    clock.advance(3600)
    stream = things.watch()
    things.purge_expired()
    assert drain(things) == []
    things.put("c", 1)
    assert [each.id for each in drain(things)] == ["c"]
    assert stream.try_next().id == "c"
    with pytest.raises(ChangesLost):
        things.watch(after=token)


def test_watching_a_collection_without_a_feed_is_rejected(store: Any) -> None:
    store["plain"].put("a", 1)
    for name in ("plain", "absent"):
        with pytest.raises(InvalidOption, match=f"{name} records none: open it with changes=True"):
            store[name].watch()
    assert [each.name for each in store.collections()] == ["plain"]


@pytest.mark.parametrize("again", [False, True])
def test_dropping_or_disabling_the_feed_deletes_it(store: Any, again: bool) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: store.drop("things"),
        lambda: recording(store, changes=False),
    ]
    for turn_off in calls:
        things = recording(store, changes=True)
        stream = things.watch()
        things.put("a", 1)
        turn_off()
        if again:
            recording(store, changes=True)
        with pytest.raises(ChangesLost) as lost:
            stream.try_next()
        if again:
            assert drain(things, after=lost.value.oldest) == []
            with pytest.raises(ChangesLost):
                things.watch(after=stream.token)
        else:
            assert lost.value.oldest is None
        store.drop("things")


def test_a_renamed_collection_keeps_its_changes(store: Any, things: Any) -> None:
    things.put("a", 1)
    token = drain(things)[0].token
    things.put("b", 1)
    store.rename("things", "others")
    assert [each.id for each in drain(store["others"], after=token)] == ["b"]


def test_invalid_tokens_are_rejected(store: Any, things: Any) -> None:
    things.put("a", 1)
    token = drain(things)[0].token
    other = recording(store, "other", changes=True)
    damaged = token[:5] + ("A" if token[5] != "A" else "B") + token[6:]
    for bad in (damaged, token[:-1], token + "A", "", "x" * 28, "ü", 7, b"oldest"):
        with pytest.raises(InvalidToken):
            things.watch(after=bad)
    with pytest.raises(InvalidToken, match="another collection"):
        other.watch(after=token)


def test_a_token_ahead_of_the_feed_is_rejected(open_store: Opener) -> None:
    """A database that was restored from a backup lacks the latest tokens."""
    store = open_store()
    things = recording(store, changes=True)
    things.put("a", 1)
    position, _ = read_token(drain(things)[0].token, "things")
    later = ChangePosition(position.key, position.number + 1).to_token("things")
    with pytest.raises(InvalidToken, match="backup"):
        things.watch(after=later)


@pytest.mark.parametrize("options", WRONG)
def test_invalid_options_are_rejected(things: Any, options: Any) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        things.watch(**options)


def test_a_transaction_cannot_be_watched(store: Any, things: Any) -> None:
    with store.transaction() as tx, pytest.raises(InvalidOption, match="the store gives"):
        tx["things"].watch()


def test_a_closed_store(store: Any, things: Any) -> None:
    things.put("a", 1)
    stream = things.watch(after="oldest")
    waiting = things.watch()
    store.close()
    with pytest.raises(StoreClosed):
        stream.try_next()
    with pytest.raises(StoreClosed):
        next(waiting)


@pytest.mark.each_backend  # one of the two is async, and skipped
def test_operations_in_a_transaction_of_the_caller_record_their_changes_at_once(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement for all changes, not one or two per document."""
    backend = open_store.backend
    if open_store.variant == "async":
        pytest.skip("bind of an asynchronous store takes an asynchronous driver")
    more: dict[str, Any] = {}
    if backend.is_private:
        more = {"poolclass": sa.StaticPool, "connect_args": {"check_same_thread": False}}
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"), **more)
    with Store(engine=engine, **backend.options) as store:
        things = store.get_sync_collection("things", changes="both")
        said: list[str] = []

        def listen(_: object, __: object, words: str, *___: object) -> None:
            said.append(words)

        sa.event.listen(engine, "before_cursor_execute", listen)
        many = {str(n): {"n": n} for n in range(50)}
        things.put_many(many)
        with store.transaction() as tx:
            tx["things"].put_many(many)
            tx["things"].update_many({}, {"$inc": {"n": 1}})
        with pytest.raises(Boom), engine.begin() as connection:
            store.bind(connection)["things"].put_many({"undone": 1})
            raise Boom
        with engine.begin() as connection:
            bound = store.bind(connection)["things"]
            bound.put_many(many)
            with pytest.raises(BulkWriteError):
                bound.bulk_write([InsertOne(1, id="new"), InsertOne(1, id="new")])
            assert bound.delete_many({}).deleted_count == 51
        assert sum("changes" in each and "INSERT" in each for each in said) == 7
        changes = drain(things)
    engine.dispose()
    kinds = [each.kind for each in changes]
    assert kinds == ["insert"] * 50 + ["update"] * 150 + ["insert"] + ["remove"] * 51


@pytest.mark.parametrize("open_store", ["sync", "async"], indirect=True)
@pytest.mark.parametrize("backend", ["sqlite-file"], indirect=True)
def test_a_damaged_record_is_named_with_the_way_past_it(open_store: Opener) -> None:
    store = open_store()
    things = store.get_sync_collection("things", changes="both")
    for id in "abc":
        things.put(id, {"n": id})
    [feed] = [
        name
        for (name,) in raw(open_store, "SELECT name FROM sqlite_master WHERE type = 'table'")
        if "feed" in name or "changes" in name
    ]
    raw(open_store, f"UPDATE \"{feed}\" SET after = '{{\"n\": ' WHERE id = 'b'")
    stream = things.watch(after="oldest", timeout=0)
    assert next(stream).id == "a"
    for _ in range(2):
        with pytest.raises(
            DatabaseError, match="the recorded change of document 'b' is damaged"
        ) as caught:
            next(stream)
    token = str(caught.value).rpartition("after=")[2].strip("'")
    assert [change.id for change in things.watch(after=token, timeout=0)] == ["c"]


def raw(open_store: Opener, sql: str) -> list[Any]:
    """Execute a statement behind the back of the store."""
    with closing(sqlite3.connect(open_store.backend.url.removeprefix("sqlite:///"))) as connection:
        rows = connection.execute(sql).fetchall()
        connection.commit()
        return rows
