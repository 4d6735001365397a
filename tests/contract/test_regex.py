"""Regular expressions: the same results on every backend, in bounded time."""

import asyncio
import re
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import AsyncStore, InvalidFilter, PatternLimitExceeded, Store
from collections_store.expressions.patterns import matchers

pytestmark = pytest.mark.each_backend

TEXTS = {
    "1": "Straße 12",
    "2": "user@example.org",
    "3": "two\nlines\n",
    "4": "aab-aab",
    "5": "K\u212a",
    "6": "",
    "7": "100% [x] {y} /z/ \\",
    "8": "٣ é\u00a0\u2028",
}

ANSWERS = [
    ("STRASSE", "i", ""),
    ("STRAẞE", "i", "1"),
    (r"^[\w.+-]+@([\w-]+\.)+[\w-]{2,}$", "", "2"),
    ("^lines$", "", ""),
    ("^lines$", "m", "3"),
    (r"lines\z", "", ""),
    (r"lines\Z", "", "3"),
    (r"(\w+)-\1", "", "4"),
    (r"(\w+)-(?!\1)", "", "4"),
    ("^k+$", "i", "5"),
    ("^$", "", "6"),
    (r"\Q[x] {y}\E", "", "7"),
    ("%", "", "7"),
    (r"\\$", "", "7"),
    (r"\d", "", "17"),
    (r"\p{Nd}", "", "178"),
    (r"\w\s", "", "13"),
    (r"[[:alpha:]]{4}", "", "123"),
    ("(?<=er)@", "", "2"),
    ("^user@example", "", "2"),
    ("user", "", "2"),
]


@pytest.mark.parametrize(("pattern", "options", "expected"), ANSWERS)
def test_matches(things: Any, pattern: str, options: str, expected: str) -> None:
    things.put_many({id: {"s": text, "t": [text], "n": 5} for id, text in TEXTS.items()})
    condition = {"$regex": pattern, "$options": options}
    in_formula = {"input": "$s", "regex": pattern, "options": options}
    for filter in (
        {"s": condition},
        {"t": condition},
        {"t": {"$elemMatch": condition}},
        {"$or": [{"s": condition}, {"n": {"$regex": "5"}}]},
        {"$expr": {"$regexMatch": in_formula}},
        {"$expr": {"$ne": [{"$regexFind": in_formula}, None]}},
        {"$expr": {"$ne": [{"$regexFindAll": in_formula}, []]}},
    ):
        assert "".join(sorted(d.id for d in things.find(filter))) == expected, filter
    if not options:
        schema = {"properties": {"s": {"pattern": pattern}}}
        assert "".join(sorted(d.id for d in things.find({"$jsonSchema": schema}))) == expected


def test_patterns_of_property_names_in_a_schema(things: Any) -> None:
    things.put("1", {"éa": 1})
    for pattern, expected in {r"\W": 0, "[[:alpha:]]": 0, r"^\w": 1, "b": 1}.items():
        assert (
            things.count({"$jsonSchema": {"patternProperties": {pattern: {"type": "null"}}}})
            == expected
        )
        closed = {"patternProperties": {pattern: {}}, "additionalProperties": False}
        assert things.count({"$jsonSchema": closed}) == 1 - expected


LONG = "a" * 3000 + "!"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(a?){30}a{30}$"])
def test_catastrophic_patterns_finish(things: Any, pattern: str) -> None:
    things.put_many({"1": {"s": LONG, LONG[:1000]: 1}, "2": {"s": LONG[:40]}})
    things.update_one({"_": None}, {"$set": {"t": [LONG, "b"]}})
    there = {"$regex": pattern}
    both = 0 if "x" in pattern else 1
    assert things.count({"s": there}) == both
    assert things.count({"$expr": {"$regexMatch": {"input": "$s", "regex": pattern}}}) == both
    assert things.count({"$jsonSchema": {"properties": {"s": {"pattern": pattern}}}}) == both
    assert things.update_many({"s": there}, {"$set": {"n": 1}}).modified_count == both
    assert things.update_one({}, {"$pull": {"t": {"$regex": pattern}}}).matched_count == 1
    assert things.delete_many({"s": there}).deleted_count == both


LIMITED = {"$regex": r"(\w+)+\1$"}


def test_patterns_without_an_automaton_have_a_step_limit(
    things: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matchers, "LIMIT", 20_000)
    things.put("1", {"s": "a" * 60 + "!", "n": 0})
    schema = {"properties": {"s": {"pattern": LIMITED["$regex"]}}}
    calls: list[tuple[str, *tuple[Any, ...]]] = [
        ("find", {"s": LIMITED}),
        ("count", {"s": LIMITED}),
        ("update_many", {"s": LIMITED}, {"$inc": {"n": 1}}),
        ("delete_many", {"s": LIMITED}),
        ("aggregate", [{"$match": {"s": LIMITED}}]),
        ("find", {"$jsonSchema": schema}),
    ]
    for method, *arguments in calls:
        with pytest.raises(PatternLimitExceeded, match="more than 20,000 steps"):
            getattr(things, method)(*arguments)
    assert things.get("1")["n"] == 0


@pytest.mark.parametrize("lent", [False, True], ids=["own", "borrowed"])
def test_the_error_ends_the_transaction(
    shared_backend: Backend, lent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matchers, "LIMIT", 20_000)
    engine = sa.create_engine(shared_backend.url)
    target = {"engine": engine} if lent else {"url": shared_backend.url}
    with Store(**target, **shared_backend.options) as store:
        store["things"].put("1", {"s": "a" * 60 + "!"})
        with pytest.raises(PatternLimitExceeded), store.transaction() as tx:
            tx["things"].put("2", 2)
            tx["things"].count({"s": LIMITED})
        assert not store["things"].exists("2")
    engine.dispose()


def test_the_event_loop_runs_during_a_search(backend: Backend) -> None:
    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        async with AsyncStore(backend.url, **backend.options) as store:
            things = store["things"]
            await things.put("1", {"s": "a" * 60 + "!"})
            ticking = asyncio.create_task(tick())
            with pytest.raises(PatternLimitExceeded):
                await things.find({"s": LIMITED})
            ticking.cancel()
            return ticks

    assert asyncio.run(main()) >= 3


def test_a_search_can_be_cancelled(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matchers, "LIMIT", 10**12)

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store, asyncio.timeout(60):
            things = store["things"]
            await things.put("1", {"s": "a" * 60 + "!"})
            for filter in (
                {"s": LIMITED},
                {"$jsonSchema": {"properties": {"s": {"pattern": LIMITED["$regex"]}}}},
            ):
                task = asyncio.create_task(things.find(filter))
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await things.count() == 1

    asyncio.run(main())


@pytest.mark.parametrize("pattern", ["a\0", re.compile("a\0")])
def test_a_pattern_with_a_nul_character_is_refused(things: Any, pattern: Any) -> None:
    for condition in ({"$regex": pattern}, {"$not": {"$regex": pattern}}, {"$in": [pattern]}):
        if isinstance(pattern, str) and "$in" in condition:
            continue
        with pytest.raises(InvalidFilter, match="without NUL characters"):
            things.find({"s": condition})
    with pytest.raises(InvalidFilter, match=r"\$options must be of"):
        things.find({"s": {"$regex": "a", "$options": "i\0"}})
    things.put("1", {"s": "a\\0"})
    assert [each.id for each in things.find({"s": {"$regex": r"^a\\0$"}})] == ["1"]
