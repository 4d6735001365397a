"""Versions increment with each change, and make writes conditional, on every backend, sync and async."""

import asyncio
import gc
from collections.abc import Callable
from functools import _lru_cache_wrapper
from typing import Any

import pytest
from backends import Backend

from collections_store import (
    AsyncStore,
    DocumentNotFound,
    DuplicateKey,
    InvalidBody,
    InvalidId,
    InvalidOption,
    Store,
    UpdateRefused,
    VersionConflict,
)


def version(things: Any, id: str = "a") -> int:
    return int(things.document(id).version)


def test_each_change_increments_the_version(things: Any) -> None:
    writes: list[Callable[[], Any]] = [
        lambda: things.put("a", {"n": 1}),
        lambda: things.put("a", {"n": 1}),
        lambda: things.update("a", {"$inc": {"n": 1}}),
        lambda: things.update_one({}, {"$inc": {"n": 1}}),
        lambda: things.update_many({}, {"$inc": {"n": 1}}),
        lambda: things.replace_one({"n": 4}, {"n": 5}),
        lambda: things.find_one_and_update({"n": 5}, {"$inc": {"n": 1}}),
        lambda: things.find_one_and_replace({"n": 6}, {"n": 7}),
        lambda: things.change("a", lambda body: {"n": body["n"] + 1}),
        lambda: things.increment("a", "n"),
        lambda: things.increment("a", "n", 0.5),
        lambda: things.put_many({"a": {"n": 10}}),
    ]
    for count, write in enumerate(writes, 1):
        write()
        assert version(things) == count


def test_writes_without_a_change_keep_the_version(things: Any) -> None:
    things.put("a", {"n": 1, "tags": ["x"]})
    before = things.document("a")
    assert things.update("a", {"$set": {"n": 1}}).modified_count == 0
    assert things.update_one({"n": 1}, {"$addToSet": {"tags": "x"}}).matched_count == 1
    assert things.update_many({}, {"$max": {"n": 0}}).modified_count == 0
    assert things.replace_one({}, {"n": 1, "tags": ["x"]}).modified_count == 0
    assert things.find_one_and_update({}, {"$unset": {"m": 1}}) == before
    assert things.put_many({"a": 5}, mode="ignore").unchanged_count == 1
    assert things.document("a") == before


def test_put_if_version(things: Any) -> None:
    assert things.put("a", 1) == 1
    assert things.put("a", 2, if_version=1) == 2
    with pytest.raises(VersionConflict) as caught:
        things.put("a", 3, if_version=1)
    error = caught.value
    assert (error.collection, error.id, error.expected, error.found) == ("things", "a", 1, 2)
    assert things.get("a") == 2
    with pytest.raises(VersionConflict, match="got no document") as caught:
        things.put("b", 1, if_version=1)
    assert (caught.value.expected, caught.value.found) == (1, None)
    assert not things.exists("b")


def test_put_if_absent(things: Any) -> None:
    assert things.put("a", 1, if_absent=True) == 1
    with pytest.raises(VersionConflict) as caught:
        things.put("a", 2, if_absent=True)
    assert (caught.value.expected, caught.value.found) == (None, 1)
    assert things.get("a") == 1
    assert things.remove("a")
    assert things.put("a", 3, if_absent=True) == 1


def test_remove_and_update_if_version(things: Any) -> None:
    things.put("a", {"n": 1})
    writes: list[Any] = [
        lambda: things.remove("a", if_version=2),
        lambda: things.update("a", {"$inc": {"n": 1}}, if_version=2),
        lambda: things.update("b", {"$inc": {"n": 1}}, if_version=1),
        lambda: things.update("b", {"$inc": {"n": 1}}, if_version=1, upsert=True),
        lambda: things.remove("b", if_version=1),
    ]
    for write in writes:
        with pytest.raises(VersionConflict):
            write()
    assert [(each.id, each.body, each.version) for each in things.list()] == [("a", {"n": 1}, 1)]
    assert things.update("a", {"$inc": {"n": 1}}, if_version=1).modified_count == 1
    assert things.remove("a", if_version=2) is True
    assert things.count() == 0


def test_conditional_writes_to_a_missing_collection(store: Any) -> None:
    nothing = store["nothing"]
    with pytest.raises(VersionConflict):
        nothing.put("a", 1, if_version=1)
    with pytest.raises(VersionConflict):
        nothing.remove("a", if_version=1)
    assert nothing.find_one_and_delete({}) is None
    assert store.collections() == []


@pytest.mark.parametrize("wrong", [0, -1, True, 1.0, "1", 2**63])
def test_invalid_versions_are_rejected(things: Any, wrong: Any) -> None:
    things.put("a", 1)
    with pytest.raises(InvalidOption, match="if_version"):
        things.put("a", 2, if_version=wrong)
    with pytest.raises(InvalidOption, match="if_version"):
        things.remove("a", if_version=wrong)
    assert things.get("a") == 1


def test_both_conditions_contradict_each_other(things: Any) -> None:
    with pytest.raises(InvalidOption, match="if_absent"):
        things.put("a", 1, if_absent=True, if_version=1)
    with pytest.raises(InvalidOption, match="if_absent"):
        things.put("a", 1, if_absent="yes")
    assert things.count() == 0


def test_insert_one(things: Any) -> None:
    first, second = (things.insert_one({"n": n}).inserted_id for n in (1, 2))
    assert first < second
    assert [each.body for each in things.list()] == [{"n": 1}, {"n": 2}]
    assert things.insert_one(None, id="x").inserted_id == "x"
    with pytest.raises(DuplicateKey) as caught:
        things.insert_one(5, id="x")
    error = caught.value
    assert (error.index, error.key, error.id) == ("$id", {"$id": "x"}, "x")
    with pytest.raises(InvalidBody):
        things.insert_one({1})
    with pytest.raises(InvalidId):
        things.insert_one(1, id="\0")
    assert things.count() == 3
    assert things.get("x", "none") is None


def test_a_document_is_inserted_only_beside_another(things: Any) -> None:
    with pytest.raises(DocumentNotFound) as caught:
        things.insert_one(1, id="ada/1", beside="ada")
    assert caught.value.id == "ada"
    things.put("ada", {}, ttl=3600)
    assert things.insert_one(1, id="ada/1", ttl=60, beside="ada").inserted_id == "ada/1"
    assert things.document("ada/1").expires_at is not None
    with pytest.raises(DuplicateKey):
        things.insert_one(2, id="ada/1", beside="ada")
    with pytest.raises(InvalidId):
        things.insert_one(2, beside="\0")
    things.remove("ada")
    with pytest.raises(DocumentNotFound):
        things.insert_one(2, beside="ada")
    with pytest.raises(DocumentNotFound):
        things.insert_one(2, id="ada/1", beside="ada")
    assert things.get("ada/1") == things.count() == 1


def test_beside_nothing_no_collection_is_created(store: Any) -> None:
    with pytest.raises(DocumentNotFound, match="'ada'"):
        store["new"].insert_one(1, beside="ada")
    assert store.collections() == []


def test_change(things: Any) -> None:
    assert things.change("a", lambda body: body + 1, default=1) == 2
    assert things.change("a", lambda body: [body]) == [2]
    assert (things.get("a"), version(things)) == ([2], 2)
    with pytest.raises(DocumentNotFound) as caught:
        things.change("b", lambda body: body)
    assert (caught.value.collection, caught.value.id) == ("things", "b")
    assert isinstance(caught.value, KeyError)
    assert (
        things.change("b", lambda _: None, default=None) is None
    )  # the function changed it to None
    assert things.exists("b")
    assert things.change("b", lambda body: body) is None
    assert version(things, "b") == 2
    default: list[int] = []
    assert things.change("c", lambda body: [*body, body.append(1)][:1], default=default) == [None]
    assert default == []


def test_change_stores_the_body_that_a_function_changed_in_place(things: Any) -> None:
    things.put("a", {"n": 1, "tags": ["x"]})
    assert things.change("a", lambda body: body.update(n=2)) == {"n": 2, "tags": ["x"]}
    assert things.change("a", lambda body: body["tags"].append("y"))["tags"] == ["x", "y"]
    assert (things.get("a"), version(things)) == ({"n": 2, "tags": ["x", "y"]}, 3)
    default: list[int] = []
    assert things.change("b", lambda body: body.append(1), default=default) == [1]
    assert (things.get("b"), default) == ([1], [])
    things.put("c", 7)
    assert things.change("c", lambda _: None) == things.get("c") == 7
    things.put("c", None, if_version=version(things, "c"))
    assert things.get("c", "missing") is None


def test_change_in_place_within_a_transaction(store: Any) -> None:
    store["things"].put("a", [1])
    with store.transaction() as tx:
        assert tx["things"].change("a", lambda body: body.append(2)) == [1, 2]
    assert store["things"].get("a") == [1, 2]


def test_change_in_place_rereads_the_body_for_each_attempt(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store["things"]
        things.put("a", ["old"])
        rivals = ["rival"]

        def add(body: list[str]) -> None:
            body.append("mine")
            if rivals:
                things.put("a", [rivals.pop()])

        assert things.change("a", add) == things.get("a") == ["rival", "mine"]


def test_change_returns_the_stored_body(open_store: Any) -> None:
    things = open_store(nul="replace", default=str)["things"]
    assert things.change("a", lambda _: {"a\0": 1 + 2j}, default=0) == {"a\ufffd": "(1+2j)"}
    assert things.get("a") == {"a\ufffd": "(1+2j)"}


def test_change_retries_after_a_concurrent_write(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store["things"]
        things.put("a", 0)
        seen: list[int] = []

        def add(body: int, others: int) -> int:
            seen.append(body)
            if len(seen) <= others:
                things.put("a", body + 100)
            return body + 1

        assert things.change("a", lambda body: add(body, 3)) == 301
        assert seen == [0, 100, 200, 300]
        seen.clear()
        with pytest.raises(VersionConflict):
            things.change("a", lambda body: add(body, 10), attempts=3)
        assert things.get("a") == 601


def test_change_awaits_asynchronous_functions(shared_backend: Backend) -> None:
    async def main() -> Any:
        async def double(body: int) -> int:
            await asyncio.sleep(0)
            return 2 * body

        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            await store["things"].put("a", 21)
            await store["things"].put("b", [])
            return await store["things"].change("a", double), await store["things"].change("b", add)

    async def add(body: list[int]) -> None:
        await asyncio.sleep(0)
        body.append(1)

    assert asyncio.run(main()) == (42, [1])


def test_a_function_that_fails_changes_nothing(things: Any) -> None:
    things.put("a", 1)
    for function, error in (
        (lambda _: 1 / 0, ZeroDivisionError),
        (lambda _: {1}, InvalidBody),
    ):
        with pytest.raises(error):
            things.change("a", function)
    with pytest.raises(InvalidOption, match="function"):
        things.change("a", 5)
    for attempts in (0, True, 1.5):
        with pytest.raises(InvalidOption, match="attempts"):
            things.change("a", lambda body: body, attempts=attempts)
    assert (things.get("a"), version(things)) == (1, 1)


@pytest.mark.parametrize(
    ("body", "path", "by", "becomes"),
    [
        ({"n": 1}, "n", 1, {"n": 2}),
        ({"n": 1}, "n", -5, {"n": -4}),
        ({"a": {"b": 7}, "c": 1}, "a.b", 1, {"a": {"b": 8}, "c": 1}),
        ({"n": 1.5}, "n", 1, {"n": 2.5}),
        ({"n": 0.1}, "n", 0.2, {"n": 0.1 + 0.2}),
        ({"n": 1}, "n", 0.5, {"n": 1.5}),
        ({"n": 2**53}, "n", 1, {"n": 2**53 + 1}),
        ({"n": 2**62}, "n", 2**61, {"n": 2**62 + 2**61}),
        ({"n": -(2**63)}, "n", 1, {"n": -(2**63) + 1}),
        ({"n": 1.0}, "n", 1, {"n": 2.0}),
        ({"x": 5}, "n", 1, {"x": 5, "n": 1}),
        ({"a": {}}, "a.b", 1, {"a": {"b": 1}}),
        ({"a": [1, 2]}, "a.1", 1, {"a": [1, 3]}),
        ({"a": {"0": 4}}, "a.0", 1, {"a": {"0": 5}}),
        ({"it's": {'a"b': 1}}, "it's.a\"b", 1, {"it's": {'a"b': 2}}),
        ({"%(id)s": {"?": 1}}, "%(id)s.?", 1, {"%(id)s": {"?": 2}}),
    ],
)
def test_increment(things: Any, body: Any, path: str, by: float, becomes: Any) -> None:
    things.put("a", body)
    found = things.increment("a", path, by)
    assert things.get("a") == becomes
    assert type(found) is type(by) or isinstance(found, float)
    value = becomes
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    assert found == value


def test_increment_starts_from_initial(things: Any) -> None:
    assert things.increment("a", "n.m", 2, initial=10) == 12
    assert things.get("a") == {"n": {"m": 12}}
    assert things.increment("a", "k", initial=-1) == 0
    assert things.increment("a", "n.m", 2, initial=10) == 14
    assert things.increment("b", "n", 0.5, initial=1) == 1.5


def test_initial_applies_only_to_missing_values(things: Any) -> None:
    things.put("a", {"n": 1})
    assert things.increment("a", "n", initial=2**63 - 1) == 2
    assert things.increment("a", "n", initial=0.5) == 3
    for id in ("a", "b"):
        with pytest.raises(UpdateRefused, match="'m': .* beyond 64 bit"):
            things.increment(id, "m", initial=2**63 - 1)
    assert things.list() == [things.document("a")]


def test_increment_fills_no_statement_cache(store: Any) -> None:
    def entries() -> int:
        caches = [each for each in gc.get_objects() if isinstance(each, _lru_cache_wrapper)]
        ours = [each for each in caches if each.__module__.startswith("collections_store")]
        return sum(each.cache_info().currsize for each in ours)

    things = store["things"]
    for by in (1, 0.5):
        things.increment("a", "n", by, initial=by)
    before = entries()
    for by in range(2, 40):
        things.increment("a", "n", by, initial=by)
        things.increment("a", "n", by / 8, initial=by / 8)
    assert entries() <= before


def test_increment_respects_the_size_limit(open_store: Any) -> None:
    things = open_store(max_body=38)["things"]
    things.put("a", {"n": 9, "text": "x" * 20})
    things.put("b", {"n": 9, "text": "ä" * 10})
    for id in ("a", "b"):
        assert things.increment(id, "n", 90) == 99
        before = things.document(id)
        with pytest.raises(InvalidBody, match="limit of 38"):
            things.increment(id, "n")
        with pytest.raises(InvalidBody, match="limit of 38"):
            things.increment(id, "m")
        assert things.document(id) == before
        assert things.increment(id, "n", -1) == 98
    with pytest.raises(InvalidBody, match="limit of 38"):
        things.increment("c", "n" * 40)
    assert things.get("c") is None


@pytest.mark.parametrize("body", [{"n": "1"}, {"n": None}, {"n": True}, {"n": []}, [1], 5, None])
def test_increment_rejects_other_values(things: Any, body: Any) -> None:
    things.put("a", body)
    with pytest.raises(UpdateRefused):
        things.increment("a", "n")
    assert (things.get("a"), version(things)) == (body, 1)


def test_increment_does_not_overflow(things: Any) -> None:
    things.put("a", {"n": 2**63 - 2})
    assert things.increment("a", "n") == 2**63 - 1
    with pytest.raises(UpdateRefused):
        things.increment("a", "n")
    assert things.get("a") == {"n": 2**63 - 1}
