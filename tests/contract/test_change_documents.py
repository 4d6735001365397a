"""Change documents: pipelines over the changes of a collection and of a store."""

from base64 import urlsafe_b64encode
from contextlib import suppress
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from backends import Opener

from collections_store import (
    ChangesLost,
    DatabaseError,
    InvalidOperand,
    InvalidOption,
    InvalidPipeline,
    InvalidToken,
    Store,
)
from collections_store.codec import decode
from collections_store.query.change import StoreTokens, read_store_token, read_token


def drain(watched: Any, pipeline: Any = (), after: str | None = "oldest") -> list[dict[str, Any]]:
    return list(watched.watch(pipeline=pipeline, after=after, timeout=0))


def summaries(documents: list[dict[str, Any]]) -> list[Any]:
    """Return operation, collection and id of each document; of a rename, the new name."""
    return [
        (
            each["operationType"],
            each["ns"]["coll"],
            *each.get("documentKey", {}).values(),
            *each.get("to", {}).values(),
        )
        for each in documents
    ]


# -- pipelines over one collection -----------------------------------------------------------


@pytest.mark.each_backend
def test_change_documents_have_the_names_of_pymongo(store: Any) -> None:
    things = store.collection("things", changes="both")
    things.put("a", {"n": 1})
    things.put("a", None)
    things.remove("a")
    changes = list(things.watch(after="oldest", timeout=0))
    documents = drain(things)
    assert [each["_id"] for each in documents] == [each.token for each in changes]
    assert [each["wallTime"] for each in documents] == [
        f"{each.time:%Y-%m-%dT%H:%M:%S.%fZ}" for each in changes
    ]
    inserted, updated, removed = drain(things, [{"$unset": "wallTime"}])
    shared = {"ns": {"coll": "things"}, "documentKey": {"_id": "a"}}
    assert inserted == {
        "_id": changes[0].token, "operationType": "insert", "version": 1,
        "fullDocument": {"n": 1}, **shared,
    }  # fmt: skip
    assert updated == {
        "_id": changes[1].token, "operationType": "update", "version": 2,
        "fullDocument": None, "fullDocumentBeforeChange": {"n": 1}, **shared,
    }  # fmt: skip
    assert removed == {
        "_id": changes[2].token, "operationType": "delete", "version": 2,
        "fullDocumentBeforeChange": None, **shared,
    }  # fmt: skip


def test_an_expired_document_is_a_delete(store: Any) -> None:
    things = store.collection("things", changes=True)
    things.put("a", 1, ttl=0.000001)
    things.purge_expired()
    kinds = [(each["operationType"], each.get("expired")) for each in drain(things)]
    assert kinds == [("insert", None), ("delete", True)]


@pytest.mark.each_backend
def test_each_stage_changes_documents(store: Any) -> None:
    things = store.collection("things", changes="after")
    things.put_many({"a": {"n": 1, "secret": {"level": 9}}, "b": {"n": 2}, "c": 3})
    pipeline = [
        {"$match": {"fullDocument.n": {"$gte": 1}, "$expr": {"$ne": ["$documentKey._id", "b"]}}},
        {"$redact": {"$cond": [{"$eq": ["$level", 9]}, "$$PRUNE", "$$DESCEND"]}},
        {"$addFields": {"double": {"$multiply": ["$fullDocument.n", 2]}}},
        {"$set": {"token": "$_id"}},
        {"$unset": "wallTime"},
        {"$project": {"double": 1, "token": 1, "fullDocument": 1}},
        {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"x": 1}]}},
        {"$replaceRoot": {"newRoot": "$$ROOT"}},
    ]
    [found] = drain(things, pipeline)
    token = found["_id"]
    assert found == {"_id": token, "fullDocument": {"n": 1}, "double": 2, "token": token, "x": 1}
    assert read_token(token, "things")[1]


@pytest.mark.each_backend
@pytest.mark.parametrize(
    "filter",
    [
        {"fullDocument.n": {"$gt": 1}},
        {"$expr": {"$eq": [{"$type": "$$NOW"}, "string"]}},
        {"$expr": {"$gt": [{"$divide": [1, "$fullDocument.n"]}, 0.4]}},
        {"fullDocument": {"n": 1, "m": 2}},
    ],
    ids=str,
)
def test_a_first_match_is_a_later_match(store: Any, filter: Any) -> None:
    """A later `$match` runs as in an aggregation."""
    things = store.collection("things", changes="after")
    things.put_many({"a": {"n": 1, "m": 2}, "b": {"m": 2, "n": 1}, "c": {"n": 2}, "d": {"n": 0}})
    found: list[Any] = []
    for pipeline in ([{"$match": filter}], [{"$set": {}}, {"$match": filter}]):
        documents: list[Any] = []
        with suppress(InvalidOperand):
            documents.extend(things.watch(pipeline=pipeline, after="oldest", timeout=0))
        found.append(documents)
    assert found[0] == found[1] != []


def test_the_position_advances_past_what_stages_leave_out(store: Any) -> None:
    things = store.collection("things", changes=True)
    things.put_many({str(n): n for n in range(120)})
    stream = things.watch(
        pipeline=[{"$match": {"documentKey._id": {"$in": ["7", "90"]}}}], after="oldest", timeout=0
    )
    assert [each["documentKey"]["_id"] for each in stream] == ["7", "90"]
    assert drain(things, after=stream.token) == []
    assert [each.id for each in things.watch(after=stream.token, timeout=0)] == []


def test_a_pipeline_sees_bodies_of_the_declared_schema_version(store: Any) -> None:
    store.collection("things", changes="after").put("a", {"old": 1})
    upgrades = {1: lambda body: {"new": body["old"]}}
    things = store.collection("things", schema_version=2, upgrades=upgrades)
    [found] = drain(things, [{"$match": {"fullDocument.new": 1}}])
    assert found["fullDocument"] == {"new": 1, "schema_version": 2}


@pytest.mark.parametrize(
    ("pipeline", "place", "problem"),
    [
        ([{"$group": {"_id": None}}], "0.$group", "changes pass these stages only: \\$match"),
        ([{"$match": {}}, {"$limit": 1}], "1.$limit", "these stages only"),
        ([{"$lookup": {"from": "a", "as": "b", "pipeline": []}}], "0.$lookup", "stages only"),
        ([{"$merge": "other"}], "0.$merge", "these stages only"),
        ([{"$changeStream": {}}], "0.$changeStream", "not supported"),
        ([{"$match": {"$text": {"$search": "tea"}}}], "0.$match.$text", "in no text index"),
        ([{"$match": {"$id": "a"}}], "0.$match.$id", "documentKey._id"),
        ({"$match": {}}, "", "must be a list"),
        (7, "", "must be a list"),
    ],
)
def test_other_pipelines_are_refused(store: Any, pipeline: Any, place: str, problem: str) -> None:
    things = store.collection("things", changes=True)
    for watched in (things, store):
        with pytest.raises(InvalidPipeline, match=problem) as refused:
            watched.watch(pipeline=pipeline)
        assert refused.value.place == place


def test_a_pipeline_takes_the_place_of_filter_and_kinds(store: Any) -> None:
    things = store.collection("things", changes="both")
    for given in ({"filter": {"n": 1}}, {"kinds": ["insert"]}):
        with pytest.raises(InvalidOption, match="pipeline: takes the place of filter and kinds"):
            things.watch(pipeline=[], **given)


@pytest.mark.each_backend
@pytest.mark.parametrize(
    ("stage", "error"),
    [
        ({"$unset": "_id"}, InvalidPipeline),
        ({"$project": {"_id": 0, "n": 1}}, InvalidPipeline),
        ({"$set": {"_id": "other"}}, InvalidPipeline),
        ({"$replaceWith": {"a": 1}}, InvalidPipeline),
        ({"$set": {"x": {"$divide": [1, "$fullDocument"]}}}, InvalidOperand),
    ],
    ids=str,
)
def test_an_error_comes_after_the_changes_before_it(
    store: Any, stage: Any, error: type[Exception]
) -> None:
    """No change is skipped: the stream stays before the change, and another stream continues there."""
    things = store.collection("things", changes="after")
    things.put_many({"a": 1, "b": 2, "c": 0, "d": 4})
    guarded = (
        [{"$match": {"documentKey._id": {"$ne": "a"}}}, stage] if error is InvalidPipeline else []
    )
    for watched in (things, store):
        stream = watched.watch(pipeline=guarded or [stage], after="oldest", timeout=0)
        returned: list[str] = []
        for _ in range(2):
            with pytest.raises(error):
                returned.extend(each["documentKey"]["_id"] for each in stream)
        assert returned == ([] if guarded else ["a", "b"])
        left = drain(watched, after=stream.token)
        expected = ["b", "c", "d"] if guarded else ["c", "d"]
        assert [each["documentKey"]["_id"] for each in left] == expected


# -- all collections of a store ----------------------------------------------------------------


@pytest.fixture
def feeds(store: Any) -> tuple[Any, Any]:
    """Two collections that record changes, beside one that does not."""
    store["plain"].put("0", 0)
    return store.collection("a", changes="after"), store.collection("b", changes=True)


@pytest.mark.each_backend
def test_a_store_stream_has_the_changes_of_all_collections(
    store: Any, feeds: tuple[Any, Any]
) -> None:
    a, b = feeds
    stream = store.watch(timeout=0)
    a.put("1", {"n": 1})
    store["plain"].put("1", 1)
    b.put("2", 2)
    a.put("1", {"n": 2})
    b.remove("2")
    documents = list(stream)
    assert summaries(documents) == [
        ("insert", "a", "1"), ("insert", "b", "2"), ("update", "a", "1"), ("delete", "b", "2"),
    ]  # fmt: skip
    assert [each.get("fullDocument") for each in documents] == [{"n": 1}, None, {"n": 2}, None]
    assert drain(store, [{"$match": {"ns.coll": "b"}}]) == [documents[1], documents[3]]
    for number, each in enumerate(documents):
        assert drain(store, after=each["_id"]) == documents[number + 1 :]
    assert drain(store, after=stream.token) == []


@pytest.mark.each_backend
def test_a_transaction_over_collections_keeps_the_order_of_its_writes(
    store: Any, feeds: tuple[Any, Any]
) -> None:
    with store.transaction() as tx:
        for n in range(100):
            tx["ba"[n % 2]].put(str(n), n)
    found = summaries(drain(store))
    assert [int(id) for _, _, id in found] == list(range(100))
    assert [name for _, name, _ in found] == ["b", "a"] * 50


@pytest.mark.each_backend
def test_each_read_continues_behind_the_last(store: Any, feeds: tuple[Any, Any]) -> None:
    """More changes than a read returns, of one collection before those of the other, and mixed."""
    a, b = feeds
    a.put_many({str(n): n for n in range(300)})
    b.put_many({str(n): n for n in range(300, 500)})
    for n in range(500, 520):
        (a, b)[n % 2].put(str(n), n)
    stream = store.watch(after="oldest", timeout=0)
    found = [int(each["documentKey"]["_id"]) for each in stream]
    assert found == list(range(520))
    token = StoreTokens(*read_store_token(stream.token)).token()
    assert token == stream.token


@pytest.mark.each_backend
def test_collections_that_begin_to_record_join_the_stream(store: Any) -> None:
    stream = store.watch(timeout=0)
    assert list(stream) == []
    store.collection("new", changes=True).put("1", 1)
    store["plain"].put("1", 1)
    store.collection("plain", changes=True).put("2", 2)
    assert summaries(list(stream)) == [("insert", "new", "1"), ("insert", "plain", "2")]


@pytest.mark.each_backend
def test_renamed_and_dropped_collections(store: Any, feeds: tuple[Any, Any]) -> None:
    a, _ = feeds
    stream = store.watch(timeout=0)
    a.put("1", 1)
    store.drop("b")
    store.rename("a", "b")
    store["b"].put("2", 2)
    documents = list(stream)
    assert summaries(documents) == [
        ("drop", "b"), ("rename", "a", "b"), ("insert", "b", "1"), ("insert", "b", "2"),
    ]  # fmt: skip
    for number, each in enumerate(documents):
        assert drain(store, after=each["_id"]) == documents[number + 1 :]
    matched = [{"$match": {"operationType": "insert"}}, {"$set": {"x": 1}}]
    assert len(drain(store, matched, after=documents[0]["_id"])) == 2


def test_renames_are_ordered_so_that_each_name_is_free(store: Any) -> None:
    for name in "abc":
        store.collection(name, changes=True)
    stream = store.watch(timeout=0)
    store.rename("c", "d")
    store.rename("b", "c")
    store.rename("a", "b")
    expected = [("rename", "c", "d"), ("rename", "b", "c"), ("rename", "a", "b")]
    assert summaries(list(stream)) == expected


@pytest.mark.each_backend
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("way", ["drop", "disable"])
def test_a_feed_that_ended_is_lost(
    store: Any, feeds: tuple[Any, Any], way: str, *, again: bool
) -> None:
    """The collection may have documents of which no change is recorded; the other collections continue."""
    a, b = feeds
    stream = store.watch(timeout=0)
    b.put("0", 0)
    a.put("1", 1)
    if way == "drop":
        store.drop("a")
        store["a"].put("2", 2)
    else:
        store.collection("a", changes=False)
    if again:
        store.collection("a", changes=True).put("3", 3)
    for _ in range(2):
        with pytest.raises(ChangesLost, match="collection a: not all") as lost:
            next(stream)
    assert lost.value.collection == "a"
    expected = [("insert", "b", "0")] + [("insert", "a", "3")] * again
    assert summaries(drain(store, after=lost.value.oldest)) == expected


@pytest.mark.each_backend
def test_pruned_changes_are_lost(store: Any, feeds: tuple[Any, Any]) -> None:
    _, b = feeds
    a = store.collection("a", changes_kept=1)
    waiting = store.watch(timeout=0)
    token = waiting.token
    a.put_many({"1": 1, "2": 2})
    b.put("3", 3)
    a.purge_expired()
    for again in (False, True):
        with pytest.raises(ChangesLost) as lost:
            next(store.watch(after=token) if again else waiting)
        assert (lost.value.collection, lost.value.token) == ("a", token)
        found = summaries(drain(store, after=lost.value.oldest))
        assert found == [("insert", "a", "2"), ("insert", "b", "3")]
    assert summaries(drain(store)) == found


@pytest.mark.each_backend
def test_a_rename_is_returned_although_changes_were_pruned(
    store: Any, feeds: tuple[Any, Any]
) -> None:
    a = store.collection("a", changes_kept=1)
    waiting = store.watch(timeout=0)
    token = waiting.token
    a.put_many({"1": 1, "2": 2})
    store.rename("a", "c")
    store["c"].purge_expired()
    for again in (False, True):
        with pytest.raises(ChangesLost) as lost:
            next(store.watch(after=token) if again else waiting)
        assert lost.value.collection == "c"
        found = drain(store, after=lost.value.oldest)
        assert summaries(found) == [("rename", "a", "c"), ("insert", "c", "2")]
        assert drain(store, after=found[0]["_id"]) == found[1:]


def test_tokens_of_collections_and_of_stores_differ(store: Any, feeds: tuple[Any, Any]) -> None:
    a, _ = feeds
    a.put("1", 1)
    [of_store], [of_collection] = drain(store), drain(a)
    with pytest.raises(InvalidToken, match="give it to the collection's watch"):
        store.watch(after=of_collection["_id"])
    with pytest.raises(InvalidToken, match="give it to the store's watch"):
        a.watch(after=of_store["_id"])
    token = of_store["_id"]
    damaged = token[:9] + ("A" if token[9] != "A" else "B") + token[10:]
    for bad in (damaged, token[:-4], token + "AAAA", "", "AAAA", 7):
        with pytest.raises(InvalidToken):
            store.watch(after=bad)
    for made in (
        b"",
        b"\x02\x01",
        b"\x03" + bytes(13),
        b"\x02" + bytes(12) + b"\x01\xff",
        b"\x03\x01",
    ):
        with pytest.raises(InvalidToken, match="unchanged"):
            store.watch(after=urlsafe_b64encode(made + sha256(made).digest()[:4]).decode())
    identity, known = read_store_token(token)
    later = StoreTokens(identity, {key: (name, 99) for key, (name, _) in known.items()}).token()
    with pytest.raises(InvalidToken, match="backup"):
        store.watch(after=later)


@pytest.mark.parametrize(
    ("token", "identity"),
    [
        ("Aqy_a8oAAAAAAAAAAwJhYeDBMPsAAAAAAAAAAQFjN8xlhQ==", ""),
        ("AwEjRWeJq83vrL9rygAAAAAAAAADAmFh4MEw-wAAAAAAAAABAWOxRDkJ", "0123456789abcdef"),
    ],
)
def test_the_format_of_a_store_token_is_that_of_stored_tokens(token: str, identity: str) -> None:
    positions = {"acbf6bca": ("aa", 3), "e0c130fb": ("c", 1)}
    assert read_store_token(token) == (identity, positions)
    assert StoreTokens(identity, positions).token() == token


@pytest.mark.each_backend
def test_a_token_of_another_database_is_refused(
    store: Any, feeds: tuple[Any, Any], tmp_path: Path
) -> None:
    """Its collections are not dropped: they were never here."""
    a, b = feeds
    a.put("1", 1)
    b.put("2", 2)
    store.backup(tmp_path / "backup.jsonl")
    token = store.watch().token
    for collection in (None, "a", "c"):
        with Store("sqlite://") as other:
            if collection == "a":
                other.restore(tmp_path / "backup.jsonl")
            elif collection:
                other.collection(collection, changes=True).put("1", 1)
            with pytest.raises(InvalidToken, match="it is of another database"):
                other.watch(after=token)
    store.drop("a")
    store.drop("b")
    assert summaries(drain(store, after=token)) == [("drop", "a"), ("drop", "b")]


@pytest.mark.each_backend
def test_tokens_without_an_identity_stay_readable(store: Any, feeds: tuple[Any, Any]) -> None:
    """Versions up to 0.3 made them; a database of these versions has no identity until another collection records."""
    a, b = feeds
    a.put("1", 1)
    stream = store.watch(timeout=0)
    b.put("2", 2)
    ours, positions = read_store_token(stream.token)
    old = StoreTokens("", positions).token()
    assert len(ours) == 16
    [found] = drain(store, after=old)
    assert found["documentKey"] == {"_id": "2"}
    assert read_store_token(found["_id"])[0] == ours
    assert read_store_token(store.watch(after=old).token) == (ours, positions)


def test_a_stream_learns_the_identity_of_its_database(store: Any) -> None:
    stream = store.watch(timeout=0)
    assert read_store_token(stream.token) == ("", {})
    store.collection("a", changes=True).put("1", 1)
    [found] = stream
    assert len(read_store_token(found["_id"])[0]) == 16
    assert store.watch().token == found["_id"] == stream.token


def test_a_damaged_record_is_passed_by_the_token_of_the_error(
    store: Any, feeds: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = feeds
    a.put_many({"1": 1, "2": {"bad": 1}, "3": 3})

    def refuse(text: str) -> Any:
        if "bad" in text:
            raise ValueError("no JSON")
        return decode(text)

    monkeypatch.setattr("collections_store.operations.changes.decode", refuse)
    for watched in (a, store):
        stream = watched.watch(pipeline=[], after="oldest", timeout=0)
        assert next(stream)["documentKey"] == {"_id": "1"}
        with pytest.raises(DatabaseError, match="document '2' is damaged") as damaged:
            next(stream)
        unmatched = [{"$match": {"fullDocument.n": 0}}]
        nothing = watched.watch(pipeline=unmatched, after="oldest", timeout=60)
        with pytest.raises(DatabaseError, match="document '2' is damaged"):
            nothing.try_next()  # without waiting for the next change
        token = str(damaged.value).rpartition("after='")[2][:-1]
        assert [each["documentKey"]["_id"] for each in drain(watched, after=token)] == ["3"]


HEADS: list[Any] = [
    {"operationType": "delete"},
    {"operationType": {"$in": ["insert", "replace"]}, "documentKey._id": {"$gt": "1"}},
    {"$or": [{"version": {"$gt": 1}}, {"ns.coll": "b"}]},
    {"expired": True},
    {"wallTime": {"$gt": "2020"}, "ns": {"coll": "a"}},
]
READS_BODIES = {"$or": [{"fullDocument": {"$exists": True}}, {"version": {"$exists": True}}]}


@pytest.mark.each_backend
def test_a_first_match_without_bodies_has_the_same_results(
    store: Any, feeds: tuple[Any, Any]
) -> None:
    """A stream of a store decides it before the bodies are read."""
    for each in feeds:
        each.put_many({"1": {"n": 1}, "2": {"n": 2}, "3": {"n": 3}}, ttl=0.001)
        sleep(0.01)
        each.purge_expired()
        each.put_many({"2": {"n": 2}, "3": {"n": 3}})
        each.put("2", {"n": 4})
        each.remove("3")
        each.put_many({str(n): {"n": n} for n in range(100, 160)})
    for head, watched in product(HEADS, (*feeds, store)):
        assert drain(store, [{"$match": head}])
        for after in ([], [{"$match": {"fullDocument.n": {"$gt": 120}}}], [{"$unset": "version"}]):
            found = drain(watched, [{"$match": head}, *after])
            assert found == drain(watched, [{"$match": {"$and": [head, READS_BODIES]}}, *after])


def test_the_body_of_a_change_that_is_left_out_is_not_read(
    store: Any, feeds: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = feeds
    a.put_many({"1": 1, "2": {"bad": 1}, "3": 3})
    read: list[str] = []

    def note(text: str) -> Any:
        read.append(text)
        return decode(text)

    monkeypatch.setattr("collections_store.operations.changes.decode", note)
    found = drain(store, [{"$match": {"documentKey._id": "2"}}])
    assert [each["fullDocument"] for each in found] == [{"bad": 1}]
    assert len(read) == 1


@pytest.mark.each_backend
def test_a_store_stream_resumes_in_another_store(open_store: Opener) -> None:
    store = open_store()
    a, b = store.collection("a", changes=True), store.collection("b", changes=True)
    a.put("1", 1)
    b.put("2", 2)
    first, *_ = drain(store)
    if open_store.backend.is_private:
        pytest.skip("another store has another database")
    assert summaries(drain(open_store(), after=first["_id"])) == [("insert", "b", "2")]


def test_a_store_stream_of_an_empty_database(store: Any) -> None:
    with store.watch(timeout=0) as stream:
        assert list(stream) == []
        assert stream.try_next() is None
        store.collection("a", changes=True).put("1", 1)
        assert stream.try_next()["documentKey"] == {"_id": "1"}
    assert list(stream) == []
