"""Memories: values under keys, in namespaces and sessions; on every backend, sync and async."""

import asyncio
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from backends import Backend, Opener
from conftest import Clock
from faults.test_processes import finish, start
from faults.test_processes import stop_processes as stop_processes

from collections_store import (
    AsyncStore,
    DocumentNotFound,
    Invalid,
    InvalidBody,
    InvalidOption,
    InvalidSearch,
    Store,
    StoreClosed,
    VersionConflict,
)
from collections_store.memory import Entry, FoundEntry
from collections_store.memory.encoding import Space

HOSTILE = [
    *("", " ", "a", "A", "é", "e\u0301", "0", "1", "007", "3:abc", "3;abc", "1/x", "/", "//", ":", ";"),
    *("a:b", "a;b", "a/b", "a.b", "$id", "$date", "'", '"', "\\", "%", "_", "a%", "a_", "a'b", "--"),
    *("'; DROP TABLE x; --", "\n", "\t", "\x01", "\x7f", "\u200b", "\ufffe", "\uffff", "😀", "\U0010ffff"),
    *("\U0010ffff\U0010ffff", "a\U0010ffff", "a\U0010ffffb", "\ud7ff", "\ue000", "null", "None", "x" * 1999),
]  # fmt: skip


LARGE = pytest.param(10**5000, id="large")  # Python cannot print it


class Boom(Exception):
    """Raised to end a context."""


@pytest.fixture
def store(emptied_store: Any) -> Any:
    return emptied_store


@pytest.fixture
def memory(store: Any) -> Any:
    return store.memory("bot")


# -- methods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, "", None, False, [], {}, 0.0, (), set(), b""])
def test_defaults_apply_only_to_missing_values(memory: Any, value: Any) -> None:
    assert memory.get("k", "default") == "default"
    assert (memory.get("k"), memory.fetch("k")) == (None, (False, None))
    assert memory.put("k", value) == 1
    found = memory.get("k", "default")
    assert (found, type(found)) == (value, type(value))
    assert memory.fetch("k") == (True, value)
    assert memory.get_many(["k"]) == {"k": value}
    assert memory.delete("k", "default") == value
    assert memory.delete("k", "default") == "default"
    assert memory.delete("k") is None


def test_put_returns_and_checks_the_version(memory: Any) -> None:
    assert [memory.put("k", n) for n in range(3)] == [1, 2, 3]
    with pytest.raises(VersionConflict):
        memory.put("k", 9, if_absent=True)
    with pytest.raises(VersionConflict):
        memory.put("k", 9, if_version=2)
    assert memory.get("k") == 2
    assert memory.put("k", 3, if_version=3) == 4
    assert memory.put("new", 1, if_absent=True) == 1
    assert [(each.key, each.version) for each in memory.items()] == [("k", 4), ("new", 1)]


def test_reads_and_deletes_create_no_collection(memory: Any, store: Any) -> None:
    assert memory.delete("k", 7) == memory.get("k", 7) == 7
    assert (memory.keys(), memory.items(), memory.count(), memory.find()) == ([], [], 0, [])
    assert (memory.get_many(["k"]), memory.delete_many(["k"]), memory.clear(), memory.end()) == (
        {},
        0,
        0,
        0,
    )
    assert (memory.touch("k"), memory.expire("k", 1), memory.ttl("k")) == (False, False, None)
    with memory.request():
        pass
    assert list(store.collections()) == []


def test_pop_raises_for_a_missing_key(memory: Any) -> None:
    memory.put("k", None)
    assert memory.pop("k") is None
    with pytest.raises(KeyError) as caught:
        memory.pop("k")
    assert isinstance(caught.value, DocumentNotFound)


@pytest.mark.parametrize("names", [(), ("room", "42"), ("", "1:a/")])
def test_errors_name_the_key_not_the_id(memory: Any, names: tuple[str, ...]) -> None:
    scope = memory.namespace(*names) if names else memory
    scope.put("there", 1)
    where = f"in the memory {'/'.join(('memory__bot', *names))!r}"
    for key in ("a/b", "", "1:a/k"):
        for call in (scope.pop, lambda key: scope.change(key, len)):
            with pytest.raises(DocumentNotFound) as missing:
                call(key)
            assert str(missing.value) == f"collection memory__bot: there is no document {key!r}"
            assert (missing.value.collection, missing.value.id) == ("memory__bot", key)
            assert missing.value.__notes__ == [where]
        with pytest.raises(VersionConflict, match=f": '{key}' must have version 7, ") as conflict:
            scope.put(key, 1, if_version=7)
        error = conflict.value
        assert (error.id, error.expected, error.found) == (key, 7, None)
        assert error.__notes__ == [where]
    with pytest.raises(VersionConflict, match="'there' must not exist, got version 1"):
        scope.put("there", 2, if_absent=True)

    def fail(_: Any) -> Any:
        raise DocumentNotFound("others", "another's")

    with pytest.raises(DocumentNotFound, match="collection others: .*another's") as missing:
        scope.change("there", fail)
    assert not hasattr(missing.value, "__notes__")


def test_increment_adds_to_a_number(memory: Any) -> None:
    assert memory.increment("n") == 1
    assert memory.increment("n", 5) == 6
    assert memory.increment("n", -6) == 0
    assert memory.increment("n", 0.5) == 0.5
    assert memory.increment("m", initial=10) == 11
    assert memory.increment("m", initial=10) == 12
    assert memory.increment("large", 2**63) == 2**63
    assert memory.increment("large", 2**63) == memory.get("large") == 2**64
    assert memory.increment("endless", math.inf) == math.inf
    memory.put("huge", 10**5000)
    with pytest.raises(InvalidOption, match="huge: .* too large"):
        memory.increment("huge", 0.5)
    with pytest.raises(InvalidOption, match="n: .* too large"):
        memory.increment("n", 10**5000, initial=0.5)
    memory.put("huge", 10**400)
    assert memory.increment("huge", 10**400) == memory.get("huge") == 2 * 10**400


@pytest.mark.parametrize("value", ["1", None, True, [], Decimal(1), {"n": 1}])
def test_increment_rejects_other_values(memory: Any, value: Any) -> None:
    memory.put("k", value)
    with pytest.raises(InvalidOption, match="number"):
        memory.increment("k")
    with pytest.raises(InvalidOption, match="by"):
        memory.increment("n", value)
    with pytest.raises(InvalidOption, match="number"):
        memory.increment("n", initial=value)
    assert (memory.get("k"), memory.fetch("n")) == (value, (False, None))


def test_change_applies_a_function(memory: Any) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert memory.change("names", lambda names: names | {"ada"}, default=set()) == {"ada"}
    assert memory.change("names", lambda names: names | {at}) == {"ada", at}
    assert memory.get("names") == {"ada", at}
    assert memory.change("names", lambda names: names.add("bob")) == {"ada", at, "bob"}
    assert memory.get("names") == {"ada", at, "bob"}
    memory.put("names", None)
    assert memory.change("names", lambda found: [found], default=1) == [None]
    assert memory.change("more", lambda found: found.append({1}), default=[]) == [{1}]
    assert memory.delete("more") == [{1}]
    assert memory.change("none", lambda found: [found], default=None) == [None]
    with pytest.raises(DocumentNotFound):
        memory.change("nobody", lambda found: found)
    with pytest.raises(InvalidOption, match="function"):
        memory.change("names", "no function")
    with pytest.raises(InvalidBody):
        memory.change("names", lambda _: object())
    with pytest.raises(Boom):
        memory.change("names", raising)
    assert (memory.get("names"), memory.count()) == ([None], 2)


def raising(_: Any) -> Any:
    raise Boom


def test_change_applies_an_asynchronous_function(backend: Backend) -> None:
    async def befriend(found: Any) -> Any:
        await asyncio.sleep(0)
        return {"$date": "no date", "friends": {*found["friends"], "bob"}}

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            memory = store.memory("bot")
            default = {"friends": {"ada"}}
            expected = {"$date": "no date", "friends": {"ada", "bob"}}
            assert await memory.change("k", befriend, default=default) == expected
            assert await memory.get("k") == expected
            assert await memory.change("k", in_place) == {**expected, "friends": {"eve"}}
            assert await memory.get("k") == {**expected, "friends": {"eve"}}

    async def in_place(found: Any) -> None:
        await asyncio.sleep(0)
        found["friends"] = {"eve"}

    asyncio.run(main())


def test_batches_of_values(memory: Any) -> None:
    assert memory.put_many({}) == 0
    assert memory.put_many({"a": 1, "b": {2}, "": None}) == 3
    assert memory.get_many(["b", "nobody", "", "b"]) == {"b": {2}, "": None}
    assert list(memory.get_many(["b", "a"])) == ["b", "a"]
    assert (memory.get_many([]), memory.get_many(iter(["a"]))) == ({}, {"a": 1})
    for bad, where in ((object(), "c"), ({"x": [object()]}, "c.x.0"), ("a\0", "c")):
        with pytest.raises(InvalidBody, match=f"at '{where}': ") as caught:
            memory.put_many({"a": 9, "c": bad})
        assert caught.value.path == where
    assert (memory.get("a"), memory.count()) == (1, 3)
    assert memory.delete_many(["a", "nobody", "a", ""]) == 2
    assert memory.keys() == ["b"]


@pytest.mark.parametrize("method", ["get_many", "delete_many"])
@pytest.mark.parametrize("keys", ["ab", b"ab", None, 7])
def test_a_string_is_not_a_list_of_keys(memory: Any, method: str, keys: Any) -> None:
    memory.put_many({"a": 1, "b": 2, "ab": 3})
    with pytest.raises(InvalidOption, match="keys"):
        getattr(memory, method)(keys)
    assert memory.count() == 3


@pytest.mark.parametrize("values", [[("a", 1)], "ab", None, 7])
def test_put_many_takes_a_mapping(memory: Any, values: Any) -> None:
    with pytest.raises(InvalidOption, match="values"):
        memory.put_many(values)


def test_entries_have_all_fields_and_unpack_as_pairs(memory: Any, clock: Clock) -> None:
    memory.put("a", {1}, ttl=60)
    memory.put("b", 2)
    first, second = memory.items()
    at = datetime.fromtimestamp(clock.now / 1_000_000 + 60, UTC)
    assert (first, second) == (Entry("a", {1}, 1, at), Entry("b", 2, 1, None))
    assert dict(memory.items()) == {"a": {1}, "b": 2}


def test_thousands_of_keys_in_pages(memory: Any) -> None:
    keys = [f"user/{number}" for number in range(2500)]
    memory.put_many({key: number for number, key in enumerate(keys)})
    memory.put_many({"user": 1, "user0": 2, "usez": 3})
    assert memory.count("user/") == 2500
    assert memory.keys("user/") == sorted(keys)[:100]
    found, after = [], None
    while page := memory.keys("user/", after=after, limit=700):
        found += page
        after = page[-1]
    assert found == sorted(keys)
    assert memory.keys("user/", limit=None) == sorted(keys)
    assert len(memory.items(limit=None)) == 2503
    assert len(memory.get_many(keys)) == 2500
    assert memory.delete_many(keys[:1200]) == 1200
    assert memory.clear("user/") == 1300
    assert memory.keys() == ["user", "user0", "usez"]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", True])
def test_limits_are_integers(memory: Any, limit: Any) -> None:
    for method in (memory.keys, memory.items):
        with pytest.raises(InvalidOption, match="limit"):
            method(limit=limit)


def test_keys_are_listed_without_values(memory: Any, store: Any) -> None:
    memory.put_many({"a": 1, "c": 3})
    store["memory__bot"].put("/b", {"$decimal": "no number"})
    assert memory.keys() == ["a", "b", "c"]


@pytest.mark.parametrize("after", [None, "", "user", "user/", "user/5", "user/􏿿", "v"])
def test_a_page_has_one_bound_per_side(after: str | None) -> None:
    """With two bounds on a side SQLite uses an arbitrary one: each page would take longer than the last."""
    bounds = Space().within("room").keys("user/", after)["$id"]
    assert len(bounds) == 2
    assert "$lt" in bounds


def test_pages_continue_after_deleted_keys(memory: Any) -> None:
    memory.put_many(dict.fromkeys("abcd", 1))
    page = memory.keys(limit=2)
    memory.delete_many(page)
    assert memory.keys(after=page[-1]) == ["c", "d"]
    assert memory.keys("c", after="a") == ["c"]
    assert memory.keys("c", after="x") == []


def test_find_takes_a_filter(memory: Any) -> None:
    memory.put_many({"ada": {"city": "Berlin", "age": 36}, "bob": {"city": "Bonn"}, "n": 3})
    memory.put("when", {"at": date(2026, 11, 21), "$x": 1, "id": UUID(int=7)})
    memory.namespace("x").put("eve", {"city": "Berlin"})
    assert memory.find("city", "Berlin") == [Entry("ada", {"city": "Berlin", "age": 36})]
    assert [each.key for each in memory.find({"age": {"$gt": 30}})] == ["ada"]
    assert [each.key for each in memory.find("$body", 3)] == ["n"]
    assert [each.key for each in memory.find()] == ["ada", "bob", "n", "when"]
    assert [each.key for each in memory.find(limit=2)] == ["ada", "bob"]
    assert [each.key for each in memory.find("at", date(2026, 11, 21))] == ["when"]
    assert [each.key for each in memory.find("id", UUID(int=7))] == ["when"]
    assert [each.key for each in memory.find({"at.$date": {"$gte": "2026"}})] == ["when"]
    memory.put("price", {"$price": 3, "a": {"$price": 3}})
    assert [each.key for each in memory.find("$body.$$price", 3)] == ["price"]
    assert [each.key for each in memory.find("a.$$price", 3)] == ["price"]


# -- keys ----------------------------------------------------------------------------------------


def test_keys_are_any_strings(memory: Any) -> None:
    memory.put_many({key: key for key in HOSTILE})
    assert memory.count() == len(HOSTILE)
    assert memory.keys(limit=1000) == sorted(HOSTILE)
    assert memory.get_many(HOSTILE) == {key: key for key in HOSTILE}
    for key in HOSTILE:
        assert memory.get(key) == key
        begin = [each for each in sorted(HOSTILE) if each.startswith(key)]
        assert memory.keys(key, limit=1000) == begin
        assert memory.keys(after=key, limit=1000) == [k for k in sorted(HOSTILE) if k > key]
    for key in HOSTILE:
        assert memory.pop(key) == key
    assert memory.count() == 0


def test_names_of_namespaces_and_sessions_are_any_strings(memory: Any) -> None:
    names = [name for name in HOSTILE if len(name) < 1000]
    for name in names:
        memory.namespace(name).put("k", ["namespace", name])
        memory.session(name).put("k", ["session", name])
    for name in names:
        assert memory.namespace(name).get("k") == ["namespace", name]
        assert memory.session(name).items() == [Entry("k", ["session", name])]
        assert memory.session(name).end() == memory.namespace(name).clear() == 1
    assert memory.end() == 0


def test_names_of_memories_are_any_strings(store: Any) -> None:
    names = [*filter(None, HOSTILE), "\0", "\ud800", "bot", "Bot", "x" * 2000, "x" * 2001]
    for number, name in enumerate(names):
        store.memory(name).put("k", number)
    assert [store.memory(name).get("k") for name in names] == list(range(len(names)))


class Name(str, Enum):  # noqa: UP042 - its str() and format() differ from its value
    ROOM = "room"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"

    def __len__(self) -> int:
        return 77


@pytest.mark.parametrize("room", [Name.ROOM, Text("room")])
def test_subclasses_of_str_are_strings(memory: Any, room: Any) -> None:
    memory.namespace(room).put(room, 1)
    memory.session(room).put(room, 2)
    assert memory.namespace("room").items() == [Entry("room", 1)]
    assert memory.session("room").keys(room) == ["room"]
    assert memory.namespace("room").get_many([room]) == {"room": 1}


METHODS: list[Callable[[Any, Any], Any]] = [
    lambda memory, key: memory.put(key, 1),
    lambda memory, key: memory.get(key),
    lambda memory, key: memory.delete(key),
    lambda memory, key: memory.pop(key),
    lambda memory, key: memory.increment(key),
    lambda memory, key: memory.change(key, len, default=[]),
    lambda memory, key: memory.put_many({"a": 1, key: 1}),
    lambda memory, key: memory.get_many(["a", key]),
    lambda memory, key: memory.delete_many(["a", key]),
    lambda memory, key: memory.touch(key),
    lambda memory, key: memory.expire(key, 1),
    lambda memory, key: memory.ttl(key),
    lambda memory, key: memory.keys(key),
    lambda memory, key: memory.keys(after=key or 7),
    lambda memory, key: memory.count(key),
    lambda memory, key: memory.clear(key),
    lambda memory, key: memory.watch(key),
]


@pytest.mark.parametrize(
    "key", [7, None, b"a", ("a",), "a\0b", "\ud800", "x" * 2000, "é" * 1000, LARGE]
)
def test_invalid_keys_are_rejected(memory: Any, key: Any) -> None:
    memory.put("kept", 1)
    for method in METHODS:
        with pytest.raises(InvalidOption, match="key|prefix|after"):
            method(memory, key)
    assert memory.keys() == ["kept"]


@pytest.mark.parametrize("name", [7, None, b"a", ("a",), "a\0b", "\ud800"])
def test_invalid_names_are_rejected(memory: Any, store: Any, name: Any) -> None:
    for kind in ("namespace", "session"):
        with pytest.raises(InvalidOption, match=f"option {kind}: "):
            getattr(memory, kind)(name)
    with pytest.raises(InvalidOption, match="name"):
        memory.namespace()
    for wrong in (7, None, b"a", ""):
        with pytest.raises(InvalidOption, match="namespace"):
            store.memory(wrong)


# -- namespaces and sessions ---------------------------------------------------------------------


def test_similar_namespaces_are_isolated(store: Any) -> None:
    memory = store.memory("bot")
    scopes = [
        memory,
        store.memory("bot2"),
        memory.namespace("a"),
        memory.namespace("ab"),
        memory.namespace("a", "b"),
        memory.namespace("a:b"),
        memory.namespace("1:a"),
        memory.namespace("s"),
        memory.session("s"),
        memory.session("a"),
        memory.session("a:b"),
        memory.session("a;b"),
        memory.session("a").session("b"),
        memory.session("a").namespace("b"),
        memory.namespace("a").session("b"),
        memory.namespace(""),
        memory.namespace("", ""),
        memory.session(""),
        memory.namespace("/"),
        memory.namespace("/k"),
    ]
    for number, scope in enumerate(scopes):
        assert scope.count() == 0
        scope.put_many({"k": number, "/k": number, "1:a/k": number, "": number})
    for number, scope in enumerate(scopes):
        assert {each.value for each in scope.items()} == {number}
        assert (scope.count(), scope.get("k")) == (4, number)
    for scope in scopes:
        assert scope.clear() == 4
    assert [scope.count() for scope in scopes] == [0] * len(scopes)


def test_nested_namespaces(memory: Any) -> None:
    memory.namespace("room", "42").put("topic", "tea")
    assert memory.namespace("room").namespace("42").get("topic") == "tea"
    assert repr(memory.namespace("room", "42")) == "Memory('memory__bot/room/42')"


def test_clear_keeps_nested_namespaces_and_end_deletes_them(memory: Any) -> None:
    def fill() -> list[Any]:
        room = memory.namespace("room")
        scopes = [memory, room, room.namespace("42"), room.session("42"), memory.namespace("rooms")]
        for scope in scopes:
            scope.put_many({"k": 1, "0": 2})
        return scopes

    scopes = fill()
    assert [scope.clear() for scope in scopes] == [2] * 5
    scopes = fill()
    assert scopes[1].clear() == 2
    assert [scope.count() for scope in scopes] == [2, 0, 2, 2, 2]
    assert scopes[1].end() == 4
    assert [scope.count() for scope in scopes] == [2, 0, 0, 0, 2]
    fill()
    assert memory.end() == 10
    assert [scope.count() for scope in scopes] == [0] * 5


def test_a_session_is_cleared_when_its_context_exits(memory: Any) -> None:
    memory.put("kept", 1)
    memory.session("b").put("kept", 2)
    with memory.session("a") as session:
        session.put("cart", ["tea"])
        session.namespace("room").put("k", 1)
        assert memory.session("a").get("cart") == ["tea"]
    with pytest.raises(Boom), memory.session("a") as session:
        session.put("cart", ["tea"])
        raise Boom
    assert memory.session("a").keys() == memory.session("a").namespace("room").keys() == []
    assert (memory.keys(), memory.session("b").keys()) == (["kept"], ["kept"])


def test_requests_are_isolated(memory: Any) -> None:
    with memory.request() as first, memory.request() as second:
        first.put("step", 1)
        assert second.fetch("step") == (False, None)
        assert 0 < first.ttl("step") <= 86_400
        assert first.session("within").put("k", 1) == 1
        assert first.session("within").ttl("k") <= 86_400
        assert (memory.count(), memory.end()) == (0, 2)


@pytest.mark.parametrize("times", [1, 2, 3, 10**6])
def test_a_request_of_a_cancelled_task_is_cleared(backend: Backend, times: int) -> None:
    """Even if it is cancelled repeatedly, as scopes of anyio do."""

    async def serve(memory: Any, begun: asyncio.Event) -> None:
        async with memory.request() as request:
            await request.put("step", 1)
            await request.namespace("form").put("name", "Ada")
            begun.set()
            await asyncio.sleep(60)

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            memory, begun = store.memory("bot"), asyncio.Event()
            task = asyncio.ensure_future(serve(memory, begun))
            await begun.wait()
            for _ in range(times):
                if not task.done():
                    task.cancel()
                    await asyncio.sleep(0)
            await asyncio.wait([task])
            assert task.cancelled()
            assert await memory.end() == 0

    asyncio.run(main())


def test_a_request_that_is_cancelled_at_its_end_is_cleared(backend: Backend) -> None:
    async def serve(memory: Any) -> None:
        async with memory.request() as request:
            await request.put("step", 1)
            asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            task = asyncio.ensure_future(serve(store.memory("bot")))
            await asyncio.wait([task])
            assert task.cancelled()
            assert await store.memory("bot").end() == 0

    asyncio.run(main())


def test_an_exception_is_raised_although_clearing_fails(open_store: Opener) -> None:
    store = open_store()
    with pytest.raises(Boom) as caught, store.memory("bot").request() as request:
        request.put("step", 1)
        store.close()
        raise Boom
    assert "was not cleared: the store is closed" in caught.value.__notes__[0]
    with pytest.raises(StoreClosed), store.memory("bot").request():
        pass


def test_a_cancelled_transaction_with_a_request_is_cancelled(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            begun = asyncio.Event()

            async def serve() -> None:
                async with store.transaction() as tx, tx.memory("bot").request() as request:
                    while True:
                        await request.increment("step")
                        begun.set()

            task = asyncio.ensure_future(serve())
            await begun.wait()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert await store.memory("bot").end() == 0

    asyncio.run(main())


def test_only_sessions_and_requests_are_context_managers(store: Any, memory: Any) -> None:
    """Otherwise a `with` that is meant to close the memory would delete its values."""
    memory.put("kept", 1)
    for scope in (memory, memory.namespace("room"), memory.session("a").namespace("room")):
        scope.put("kept", 1)
        with pytest.raises(InvalidOption, match="session"), scope:
            pass
        assert scope.keys() == ["kept"]


# -- expiry --------------------------------------------------------------------------------------


def test_values_expire(memory: Any, clock: Clock) -> None:
    memory.put("brief", 1, ttl=10)
    memory.put("long", 2, ttl=timedelta(minutes=1))
    memory.put("ever", 3)
    memory.put_many({"many": 4}, ttl=10)
    assert [memory.ttl(key) for key in ("brief", "long", "ever", "nobody")] == [
        10,
        60,
        math.inf,
        None,
    ]
    clock.advance(10)
    assert memory.fetch("brief") == memory.fetch("many") == (False, None)
    assert memory.get("brief", "gone") == memory.delete("brief", "gone") == "gone"
    assert memory.keys() == ["ever", "long"]
    assert (memory.count(), memory.ttl("brief"), memory.ttl("long")) == (2, None, 50)
    assert memory.get_many(["brief", "long"]) == {"long": 2}
    assert [each.key for each in memory.find()] == ["long", "ever"]
    assert memory.put("brief", 1, if_absent=True) == 1
    assert memory.increment("many") == 1
    clock.advance(10**9)
    assert memory.keys() == ["brief", "ever", "many"]


def test_touch_and_expire(memory: Any, clock: Clock) -> None:
    memory.put("k", 1, ttl=10)
    memory.put("ever", 1)
    clock.advance(6)
    assert memory.touch("k")
    assert (memory.ttl("k"), memory.touch("ever"), memory.ttl("ever")) == (10, True, math.inf)
    assert memory.expire("k", 60)
    assert memory.expire("ever", timedelta(seconds=5))
    assert (memory.ttl("k"), memory.ttl("ever")) == (60, 5)
    clock.advance(5)
    assert not memory.touch("ever")
    assert not memory.expire("ever", 60)
    assert memory.touch("k")
    assert memory.expire("k", math.inf)
    assert (memory.ttl("k"), memory.ttl("ever")) == (math.inf, None)
    assert memory.items() == [Entry("k", 1)]


def test_put_resets_the_ttl(memory: Any, clock: Clock) -> None:
    memory.put("k", 1, ttl=10)
    memory.put("k", 2)
    assert memory.ttl("k") == math.inf
    session = memory.session("a", ttl=10)
    session.put("k", 1, ttl=60)
    assert session.ttl("k") == 60
    session.put("k", 2)
    assert session.ttl("k") == 10
    session.put("k", 3, ttl=math.inf)
    assert session.ttl("k") == math.inf


def test_changes_keep_the_expiry_time(memory: Any, clock: Clock) -> None:
    session = memory.session("a", ttl=10)
    session.increment("n")
    clock.advance(6)
    session.increment("n")
    assert session.change("n", lambda n: n + 1) == 3
    assert session.ttl("n") == 4
    clock.advance(4)
    assert (session.increment("n"), session.ttl("n")) == (1, 10)


READS: dict[str, Callable[[Any], Any]] = {
    "get": lambda session: session.get("k"),
    "fetch": lambda session: session.fetch("k"),
    "get_many": lambda session: session.get_many(["k", "nobody"]),
    "increment": lambda session: session.increment("k", 0),
    "change": lambda session: session.change("k", lambda value: value),
    "put": lambda session: session.put("k", 1),
    "put_many": lambda session: session.put_many({"k": 1}),
    "touch": lambda session: session.touch("k"),
}


@pytest.mark.parametrize("method", READS)
def test_sliding_ttl_restarts_on_reads_and_writes(memory: Any, clock: Clock, method: str) -> None:
    session = memory.session("a", ttl=10, sliding=True)
    session.put_many({"k": 1, "other": 2})
    for _ in range(3):
        clock.advance(6)
        READS[method](session)
    assert session.ttl("k") == 10
    clock.advance(10)
    assert session.fetch("k") == (False, None)


@pytest.mark.parametrize("method", ["count", "keys", "items", "ttl", "find"])
def test_metadata_reads_do_not_restart_a_sliding_ttl(
    memory: Any, clock: Clock, method: str
) -> None:
    session = memory.session("a", ttl=10, sliding=True)
    session.put("k", 1)
    clock.advance(6)
    getattr(session, method)(*(["$body", 1] if method == "find" else ["k"]))
    clock.advance(6)
    assert session.fetch("k") == (False, None)


def test_a_ttl_of_a_value_is_not_restarted(memory: Any, clock: Clock) -> None:
    session = memory.session("a", ttl=1800, sliding=True)
    session.put("k", 1, ttl=60)
    session.put_many({"ever": 2}, ttl=math.inf)
    for spent, method in enumerate(("get", "get_many", "change", "fetch"), 1):
        clock.advance(14)
        READS[method](session)
        assert (session.get("k"), session.get("ever")) == (1, 2)
        assert (session.ttl("k"), session.ttl("ever")) == (60 - 14 * spent, math.inf)
    clock.advance(4)
    assert (session.fetch("k"), session.get("ever")) == ((False, None), 2)


@pytest.mark.parametrize("method", ["put", "put_many"])
def test_a_longer_ttl_is_bounded_by_its_session(memory: Any, clock: Clock, method: str) -> None:
    def begin(name: str) -> Any:
        session = memory.session(name, ttl=1000, sliding=True)
        session.put("k", 1, ttl=2500) if method == "put" else session.put_many({"k": 1}, ttl=2500)
        assert session.ttl("k") == 1000
        return session

    used, unused = begin("used"), begin("unused")
    for left in (1000, 900, 100):
        clock.advance(800)
        assert used.get("k") == 1
        assert used.ttl("k") == left
    assert unused.get("k") is None
    clock.advance(100)
    assert used.get("k") is None


@pytest.mark.parametrize("method", ["touch", "expire"])
def test_a_read_does_not_shorten_a_touched_value(memory: Any, clock: Clock, method: str) -> None:
    session = memory.session("a", ttl=10, sliding=True)
    session.put("k", 1, ttl=20)
    for _ in range(2):
        clock.advance(9)
        session.get("k")
    assert session.touch("k") if method == "touch" else session.expire("k", 20)
    assert session.ttl("k") == 20
    assert session.get("k") == 1
    assert session.ttl("k") == 10
    clock.advance(9)
    assert session.get("k") == 1
    clock.advance(1)
    assert session.fetch("k") == (False, None)


def test_reads_succeed_although_the_sliding_ttl_cannot_be_written(
    open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    backend = open_store.backend
    if backend.is_private:
        return  # no other store can lock it
    store = open_store(busy_timeout=0.2)
    session = store.memory("bot").session("a", ttl=60, sliding=True)
    session.put_many({"k": 1, "n": 2})
    with Store(backend.url, **backend.options) as other, other.transaction() as tx:
        tx.memory("bot").session("a", ttl=60).put_many({"k": 5, "n": 5})
        assert session.get("k") == 1
        assert session.get_many(["n", "k"]) == {"n": 2, "k": 1}
    assert len(caplog.records) == 2
    assert session.get("k") == 5


@pytest.mark.parametrize("value", [object(), {"a": ["\ud800"]}, {"a": ["\0"]}, "x" * 2000])
def test_errors_of_a_value_name_its_key(open_store: Opener, value: Any) -> None:
    memory = open_store(max_body=1000).memory("bot")
    for method, given in ("put", ("city", value)), ("put_many", ({"city": value},)):
        with pytest.raises(InvalidBody) as caught:
            getattr(memory, method)(*given)
        assert caught.value.path.startswith("city")


def test_nested_scopes_inherit_the_ttl_of_their_session(memory: Any, clock: Clock) -> None:
    session = memory.session("a", ttl=10, sliding=True)
    for scope in (session.namespace("x", "y"), session.session("b")):
        scope.put("k", 1)
        clock.advance(6)
        scope.get("k")
        assert scope.ttl("k") == 10
    session.session("c", ttl=60).put("k", 1)
    clock.advance(11)
    assert session.session("c").get("k") == 1
    assert session.end() == 1


def test_reopening_a_session_without_a_ttl_keeps_expiry_times(memory: Any, clock: Clock) -> None:
    """Without a ttl existing values keep their expiry time, and new values never expire."""
    memory.session("a", ttl=10).put("k", 1)
    plain = memory.session("a")
    assert (plain.get("k"), plain.ttl("k")) == (1, 10)
    plain.put("k", 1)
    assert plain.ttl("k") == math.inf


@pytest.mark.parametrize("ttl", [0, -1, math.nan, "1", True, 10**12, timedelta(0)])
def test_invalid_ttls_are_rejected(memory: Any, ttl: Any) -> None:
    methods: list[Callable[[], Any]] = [
        lambda: memory.put("k", 1, ttl=ttl),
        lambda: memory.put_many({"k": 1}, ttl=ttl),
        lambda: memory.session("a", ttl=ttl),
        lambda: memory.expire("k", ttl),
    ]
    for method in methods:
        with pytest.raises(InvalidOption, match="ttl"):
            method()
    memory.put("k", 1, ttl=60)
    with pytest.raises(InvalidOption, match="ttl: must be .* got None; touch"):
        memory.expire("k", None)
    with pytest.raises(InvalidOption, match="sliding"):
        memory.session("a", ttl=1, sliding="yes")
    assert memory.pop("k") == 1
    assert memory.end() == 0


# -- types ---------------------------------------------------------------------------------------

TYPES: list[Any] = [
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(2026, 1, 1, tzinfo=timezone(-timedelta(hours=3, seconds=7))),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=-1))),
    time(1, 2, 3, tzinfo=timezone(timedelta(hours=1, microseconds=999_999)), fold=1),
    datetime(2026, 1, 1, 1, 2, 3, 4),
    date(2026, 11, 21),
    time(1, 2, 3, tzinfo=ZoneInfo("Europe/Berlin")),
    timedelta(days=-1, microseconds=1),
    UUID("12345678123456781234567812345678"),
    Decimal("1.50"),
    Decimal("-Infinity"),
    b"\0\xff",
    {1, "1", (2, 3), frozenset({4})},
    frozenset(),
    (),
    (1, [2, (3,)]),
    2**63,
    -(10**50),
    math.inf,
    {"$date": "2026-11-21", "$$date": {"$set": [1]}},
    {"$set": "no list"},
    {"$map": 7},
    {1: "a", "1": "b", (2, 3): None, None: {}, 1.5: [], b"k": {"$": 1}},
    {},
    {"": 0},
]


@pytest.mark.parametrize("value", TYPES, ids=lambda value: type(value).__name__)
def test_python_types_are_restored(memory: Any, value: Any) -> None:
    for each in (value, [value], {"in": value}, (value,), {7: value}):
        memory.put("k", each)
        found = memory.get("k")
        assert (found, repr(found)) == (each, repr(each)) or isinstance(
            value, set | frozenset | dict
        )
        assert (found, type(found)) == (each, type(each))


def test_subclasses_of_dict_and_list_are_plain_containers(memory: Any) -> None:
    tagged = {"$date": "no date"}
    for value in (OrderedDict(tagged), defaultdict(str, tagged), [OrderedDict(tagged)]):
        memory.put("k", value)
        assert memory.get("k") == value
    memory.put("k", Counter("aab"))
    assert (memory.get("k"), type(memory.get("k"))) == ({"a": 2, "b": 1}, dict)
    memory.put("k", OrderedDict({1: date(2026, 1, 1)}))
    assert memory.get("k") == {1: date(2026, 1, 1)}


class Length(float):
    """Like the numbers of NumPy."""


class Count(int):
    """A number of a custom class."""


@pytest.mark.parametrize("value", [Length(1.5), Length("inf"), Count(7), Count(2**70), Text("a")])
def test_subclasses_of_numbers_and_strings_are_plain_values(memory: Any, value: Any) -> None:
    plain = next(kind for kind in (int, float, str) if isinstance(value, kind))
    for each in (value, [value], {1: value}, (value,)):
        memory.put("k", each)
        assert memory.get("k") == each
    memory.put("k", value)
    assert type(memory.get("k")) is plain
    memory.put("k", {Text("$a"): value})
    assert memory.get("k") == {"$a": value}
    assert [each.key for each in memory.find("$body.$$a", value)] == ["k"]
    assert {type(key) for key in memory.get("k")} == {str}


class ZoneByDate(tzinfo):
    """A time zone whose offset depends on the date and that has no key, like those of dateutil."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None if when is None or when.year == 1 else timedelta(hours=2)

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str | None:
        return None


def test_time_zones_are_restored_as_offsets_or_rejected(memory: Any) -> None:
    at = datetime(2026, 11, 21, 12, tzinfo=ZoneByDate())
    memory.put("k", at)
    assert (memory.get("k"), memory.get("k").tzinfo) == (at, timezone(timedelta(hours=2)))
    for value in (time(12, tzinfo=ZoneByDate()), datetime(1, 1, 1, tzinfo=ZoneByDate())):
        with pytest.raises(InvalidBody, match=f"'k.a.0': {type(value).__name__} is not JSON"):
            memory.put("k", {"a": [value]})
    assert memory.get("k") == at


class Pair(NamedTuple):
    x: int


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "value", [object(), Colour.RED, Name.ROOM, 1j, bytearray(b"a"), Pair(1), range(3)]
)  # fmt: skip
def test_values_that_would_change_are_rejected(memory: Any, value: Any) -> None:
    for each in (value, [value], {"a": {"b": value}}, (value,)):
        with pytest.raises(InvalidBody, match=type(value).__name__):
            memory.put("k", each)
    assert memory.count() == 0


def test_deep_and_recursive_values_are_rejected(memory: Any) -> None:
    endless: list[Any] = []
    endless.append((endless, {"a": endless}))
    with pytest.raises(InvalidBody, match="200 levels"):
        memory.put("k", endless)


def test_default_of_the_store_returns_values_not_tags(open_store: Opener) -> None:
    def default(value: Any) -> Any:
        if isinstance(value, complex):
            return {"$date": [value.real, value.imag], "at": date(2026, 1, 1)}
        if isinstance(value, bytearray):
            return {"$bytes": value.hex()}
        raise TypeError("no form for it")

    memory = open_store(default=default).memory("bot")
    memory.put("k", [1j, bytearray(b"a")])
    assert memory.get("k") == [{"$date": [0.0, 1.0], "at": date(2026, 1, 1)}, {"$bytes": "61"}]
    assert memory.change("k", lambda found: [*found, {1: 2j}])[-1] == {
        1: {"$date": [0.0, 2.0], "at": date(2026, 1, 1)}
    }
    memory.put_many({"k": bytearray(b"b")})
    assert memory.get("k") == {"$bytes": "62"}
    with pytest.raises(InvalidBody, match=r"at 'k\.0': object is not JSON: no form for it"):
        memory.put("k", [object()])


class Card(NamedTuple):
    suit: str
    rank: int


def test_default_of_the_store_returns_hashable_elements_and_keys(open_store: Opener) -> None:
    """Otherwise a set could be written and never read."""

    def default(value: Any) -> Any:
        return {"suit": value.suit} if value.rank else f"{value.suit}!"

    memory = open_store(default=default).memory("bot")
    cards = {Card("hearts", 0), Card("spades", 0)}
    memory.put("k", [cards, dict.fromkeys(cards, 1), [Card("clubs", 7)]])
    kept = memory.get("k")
    assert kept == [{"hearts!", "spades!"}, {"hearts!": 1, "spades!": 1}, [{"suit": "clubs"}]]
    bad: Any
    for bad in ({Card("hearts", 7)}, {Card("hearts", 7): 1}, frozenset({Card("hearts", 7)})):
        for each in (bad, [bad], (bad,)):
            with pytest.raises(InvalidBody, match="'default' must make hashable keys"):
                memory.put("k", each)
    with pytest.raises(InvalidBody, match="at 'b': the store's 'default' must make hashable"):
        memory.put_many({"a": 1, "b": {Card("hearts", 7)}})
    for bad in ({Card("hearts", 0), "hearts!"}, {Card("hearts", 0): 1, "hearts!": 2}):
        with pytest.raises(InvalidBody, match="'default' must not make equal"):
            memory.put("k", bad)
    assert memory.get("k") == kept


READERS_OF_ONE: list[Callable[[Any], Any]] = [
    lambda memory: memory.get("bad"),
    lambda memory: memory.fetch("bad"),
    lambda memory: memory.change("bad", lambda value: value),
    lambda memory: memory.increment("bad"),
    lambda memory: memory.delete("bad"),
    lambda memory: memory.pop("bad"),
]


@pytest.mark.parametrize(
    "json",
    [
        {"$datetime": ["2026-01-01T00:00:00+00:00", "Mars/Olympus", 0]},
        [{"$time": ["01:00:00", "Europe", 0]}],
        {"in": {"$decimal": "no number"}},
        {"$date": 5},
        {"$set": [{"not": "hashable"}]},
        {"$map": [[1]]},
        {"$tuple": 5},
        {"$bytes": "no base64!"},
    ],
)
def test_unreadable_values_are_kept_and_stop_no_others(
    store: Any, memory: Any, json: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Written with another time zone database, or manually."""
    memory.configure(changes="both")
    memory.put("good", 1)
    store["memory__bot"].put("/bad", json)
    for read in READERS_OF_ONE:
        with pytest.raises(InvalidBody, match="'bad': cannot be read") as caught:
            read(memory)
        assert not isinstance(caught.value, KeyError)
    assert memory.keys() == ["bad", "good"]
    assert (memory.count(), memory.ttl("bad"), memory.touch("bad")) == (2, math.inf, True)
    assert memory.get_many(["bad", "good"]) == {"good": 1} == dict(memory.items())
    assert dict(memory.find({"$body": {"$exists": True}})) == {"good": 1}
    assert caplog.text.count("left out: memory memory__bot: ") == 3
    assert caplog.text.count("'bad': cannot be read") == 3
    [good, bad] = list(memory.watch(after="oldest", timeout=0))
    assert (good.body, bad.id, type(bad.body), bad.body.body) == (1, "bad", Invalid, json)
    assert store["memory__bot"].get("/bad") == json
    assert memory.put("bad", 1) == 2
    store["memory__bot"].put("/bad", json)
    assert (memory.delete_many(["bad"]), memory.clear()) == (1, 1)


def test_values_are_copies(memory: Any) -> None:
    value = {"list": [1]}
    memory.put("k", value)
    value["list"].append(2)
    memory.get("k")["list"].append(3)
    assert memory.get("k") == {"list": [1]}


# -- concurrency ---------------------------------------------------------------------------------


def test_eight_threads_lose_no_increment(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store, ThreadPoolExecutor(8) as threads:
        session = store.memory("bot").session("a", ttl=60, sliding=True)
        numbers = list(threads.map(lambda _: session.increment("n"), range(80)))
        assert sorted(numbers) == list(range(1, 81))
        assert session.get("n") == 80


def test_sixty_four_tasks_lose_no_increment(backend: Backend) -> None:
    async def main() -> list[int]:
        async with AsyncStore(backend.url, **backend.options) as store:
            memory = store.memory("bot").namespace("counts")
            return list(await asyncio.gather(*(memory.increment("n") for _ in range(64))))

    assert sorted(asyncio.run(main())) == list(range(1, 65))


def test_two_processes_lose_no_increment(shared_backend: Backend) -> None:
    finish(*(start("remember", shared_backend, 60) for _ in range(2)))
    with Store(shared_backend.url, **shared_backend.options) as store:
        memory = store.memory("bot").namespace("counts")
        assert memory.get("n") == 120
        assert len(memory.get("names")) == 120
        assert memory.get("first") in {"won", None}
        assert memory.count("won/") == 1


def test_if_absent_has_one_winner(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store, ThreadPoolExecutor(8) as threads:

        def put(number: int) -> int | None:
            try:
                store.memory("bot").put("leader", number, if_absent=True)
            except VersionConflict:
                return None
            return number

        [won] = [each for each in threads.map(put, range(40)) if each is not None]
        assert store.memory("bot").get("leader") == won


# -- transactions --------------------------------------------------------------------------------


def test_a_transaction_is_all_or_nothing(memory: Any) -> None:
    room = memory.namespace("room")
    room.put("a", 1)
    with pytest.raises(Boom), room.transaction() as within:
        within.put("a", 2)
        within.namespace("deeper").put("b", {3})
        assert (within.get("a"), within.increment("n")) == (2, 1)
        raise Boom
    assert (room.items(), room.namespace("deeper").keys()) == ([Entry("a", 1)], [])
    with room.transaction() as within:
        assert within.put("a", within.get("a") + 1) == 2
        assert within.delete("nobody", 7) == 7
        with pytest.raises(Boom), within.transaction() as part:
            part.put("lost", 1)
            raise Boom
    assert room.items() == [Entry("a", 2, 2)]


def test_a_transaction_keeps_the_session(memory: Any, clock: Clock) -> None:
    with memory.session("a", ttl=10, sliding=True).transaction() as within:
        within.put("k", 1)
        clock.advance(5)
        within.get("k")
        assert within.ttl("k") == 10
    assert memory.session("a").ttl("k") == 10


def test_memories_and_collections_share_a_transaction(store: Any) -> None:
    with pytest.raises(Boom), store.transaction() as tx:
        tx["things"].put("a", 1)
        tx.memory("bot").put("a", {1})
        with tx.memory("bot").request() as request:
            request.put("step", 1)
        with pytest.raises(InvalidOption, match="transaction"):
            tx.memory("bot").watch()
        raise Boom
    assert (store["things"].count(), store.memory("bot").count()) == (0, 0)


def test_memories_share_a_transaction_of_the_caller(shared_backend: Backend) -> None:
    url = shared_backend.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url)
    with Store(engine=engine, **shared_backend.options) as store:
        with engine.connect() as connection:
            store.bind(connection).memory("bot").put("a", 1)
            connection.rollback()
            assert store.memory("bot").count() == 0
            store.bind(connection).memory("bot").namespace("x").put("a", {1})
            connection.commit()
        assert store.memory("bot").namespace("x").get("a") == {1}
    engine.dispose()


# -- changes -------------------------------------------------------------------------------------


def summaries(changes: Iterator[Any]) -> list[Any]:
    return [(each.kind, each.id, each.before, each.body) for each in changes]


def test_watching_a_prefix_of_a_namespace(memory: Any) -> None:
    memory.configure(changes="both")
    room = memory.namespace("room", "42")
    room.put("user/ada", {1})
    room.put("user/ada", {"$set": [2]})
    room.put("users", 1)
    room.namespace("user/").put("user/eve", 1)
    memory.put("user/ada", 1)
    memory.session("42").put("user/ada", 1)
    room.delete("user/ada")
    everything = list(room.watch("user/", after="oldest", timeout=0))
    assert summaries(iter(everything)) == [
        ("insert", "user/ada", None, {1}),
        ("update", "user/ada", {1}, {"$set": [2]}),
        ("remove", "user/ada", {"$set": [2]}, None),
    ]
    later = room.watch("user/", after=everything[0].token, timeout=0)
    assert [each.kind for each in later] == ["update", "remove"]
    assert later.token
    room.put("user/bob", date(2026, 1, 1))
    rest = room.watch("user/", after=later.token, timeout=0)
    assert summaries(rest) == [("insert", "user/bob", None, date(2026, 1, 1))]
    assert len(list(room.watch(after="oldest", timeout=0))) == 5
    room.end()
    assert [each.id for each in room.watch("user/", after=rest.token, timeout=0)] == ["user/bob"]


def test_watching_a_memory_without_a_feed_is_rejected(memory: Any) -> None:
    memory.put("a", 1)
    with pytest.raises(InvalidOption, match="changes"):
        list(memory.watch(timeout=0))


def test_changes_in_the_same_process_are_notified_at_once(open_store: Opener) -> None:
    store = open_store()
    store.memory("bot").configure(changes="after")
    with store.memory("bot").watch("a", timeout=30) as stream:
        store.memory("bot").put_many({"b": 1, "a": b"2"})
        assert summaries(iter([next(stream)])) == [("insert", "a", None, b"2")]


def test_memories_outlive_their_store(open_store: Opener) -> None:
    if open_store.backend.is_private:
        pytest.skip("it is gone with its store")
    open_store().memory("bot").session("a").put("k", {"since": date(2026, 1, 1)})
    open_store.close_stores()
    assert open_store().memory("bot").session("a").get("k") == {"since": date(2026, 1, 1)}


# -- search --------------------------------------------------------------------------------------


def keys_of(found: list[FoundEntry]) -> list[str]:
    return [each.key for each in found]


def test_a_search_finds_the_values_of_its_namespace_alone(memory: Any) -> None:
    memory.collection.create_text_index({"$body": 1, "text": 2})
    memory.put_many(
        {"s": "green tea", "o": {"text": "tea"}, "n": 5, "l": ["tea", "cake"], "/x": "milk"}
    )
    memory.namespace("room").put("s", "tea of the room")
    memory.session("ada").put("s", "tea of the session")
    memory.namespace("room", "in").put("s", "tea inside")
    assert sorted(keys_of(memory.search("tea"))) == ["l", "o", "s"]
    assert [tuple(each) for each in memory.namespace("room").search("tea")] == [
        ("s", "tea of the room")
    ]
    assert [each.value for each in memory.session("ada").search("tea")] == ["tea of the session"]
    assert memory.session("bob").search("tea") == []
    assert keys_of(memory.search("tea", filter={"$body": "green tea"})) == ["s"]
    [found] = memory.search("milk", highlight=True)
    assert (found.key, found.snippets, found.version) == ("/x", {"$body": "**milk**"}, 1)
    assert found.score > 0


def test_a_search_for_any_word_of_a_question(memory: Any) -> None:
    memory.collection.create_text_index("$body")
    memory.put_many({"tea": "green tea with milk", "coffee": "milk", "water": "cold"})
    found = memory.search("Is there -milk OR tea?", match="any")
    assert sorted(keys_of(found)) == ["coffee", "tea"]
    assert memory.search("Is there milk or tea?") == []


def test_a_search_returns_values_of_any_type_in_the_order_of_the_scores(memory: Any) -> None:
    memory.collection.create_text_index("text")
    when = date(2026, 11, 21)
    memory.put_many({str(n): {"text": "tea " * n, "when": when} for n in range(1, 30)})
    found = memory.search("tea", limit=100)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert all(each.value["when"] == when for each in found)
    assert len(found) == 29
    pages = memory.search("tea"), memory.search("tea", offset=10, limit=100)
    assert [each for page in pages for each in page] == found


def test_a_search_finds_no_expired_value(memory: Any) -> None:
    memory.collection.create_text_index("$body")
    memory.put("gone", "tea", ttl=1e-6)
    with memory.request() as request:
        request.put("step", "tea")
        assert keys_of(request.search("tea")) == ["step"]
    assert request.search("tea") == memory.search("tea") == []


def test_a_search_needs_a_text_index(memory: Any) -> None:
    assert memory.search("tea") == []
    memory.put("k", "tea")
    with pytest.raises(InvalidSearch, match="create_text_index"):
        memory.search("tea")


def test_a_search_by_meaning(memory: Any) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[*map(float, map(text.count, ("tea", "ice"))), 0.1] for text in texts]

    memory.collection.create_vector_index("text", dimensions=3, embed=embed, model="counts")
    memory.put_many({"t": {"text": "tea, tea"}, "i": {"text": "ice"}})
    memory.namespace("room").put("t", {"text": "tea"})
    assert keys_of(memory.search(meaning="tea", limit=1)) == ["t"]
    assert keys_of(memory.namespace("room").search(meaning="ice")) == ["t"]
    memory.collection.create_text_index("text")
    assert keys_of(memory.search("ice", meaning="tea", limit=1)) in (["t"], ["i"])
    assert sorted(keys_of(memory.search("ice", meaning="tea"))) == ["i", "t"]


def test_a_search_in_a_transaction_sees_its_writes(memory: Any) -> None:
    memory.collection.create_text_index("$body")
    with memory.transaction() as tx:
        tx.put("k", "tea")
        assert keys_of(tx.search("tea")) == ["k"]
