"""Updates by pipelines: their stages and variables."""

import copy
from typing import Any

import pytest
from unit.update.test_update_operators import NOW, give

from collections_store import Document, Update, UpdateRefused

BODY: dict[str, Any] = {"_id": 7, "n": 2, "a": {"b": [1, {"c": 3}]}, "s": "x"}

FOUND: list[tuple[Any, Any]] = [
    ([], BODY),
    ([{"$set": {"n": {"$add": ["$n", 1]}}}], {**BODY, "n": 3}),
    ([{"$addFields": {"a.d": "$s"}}], {**BODY, "a": {"b": [1, {"c": 3}], "d": "x"}}),
    ([{"$set": {"m": "$n"}}, {"$set": {"k": {"$multiply": ["$m", 2]}}}], {**BODY, "m": 2, "k": 4}),
    ([{"$set": {"s": "$none"}}], {"_id": 7, "n": 2, "a": BODY["a"]}),
    ([{"$set": {"s": "$$REMOVE"}}], {"_id": 7, "n": 2, "a": BODY["a"]}),
    ([{"$unset": "s"}, {"$unset": ["n", "a.b"]}], {"_id": 7, "a": {}}),
    ([{"$project": {"n": 1}}], {"_id": 7, "n": 2}),
    ([{"$project": {"n": 0, "a": 0}}], {"_id": 7, "s": "x"}),
    ([{"$replaceWith": "$a"}], BODY["a"]),
    ([{"$replaceRoot": {"newRoot": {"$mergeObjects": [{"z": 0}, "$a"]}}}], {"z": 0, **BODY["a"]}),
    ([{"$set": {"t": "$$NOW"}}], {**BODY, "t": "2026-11-20T19:04:05.123456Z"}),
    ([{"$set": {"v": {"$meta": "version"}}}], {**BODY, "v": 1}),
    ([{"$set": {"n": {"$cond": [{"$gt": ["$n", 1]}, "many", "few"]}}}], {**BODY, "n": "many"}),
]


@pytest.mark.parametrize(("stages", "expected"), FOUND, ids=repr)
def test_pipelines(stages: Any, expected: Any) -> None:
    body = copy.deepcopy(BODY)
    found = give(stages, body)
    assert found == expected
    assert list(found) == list(expected)
    assert (found is body) is (expected == BODY)


def test_a_tuple_of_stages() -> None:
    assert give(({"$set": {"n": 1}},), {}) == {"n": 1}


def test_unchanged_values_are_the_same_objects() -> None:
    body = {"n": 1, "m": 2}
    assert give([{"$set": {"n": {"$abs": "$n"}}}], body) is body
    assert give([{"$set": {"n": 1.0}}], body) is not body


@pytest.mark.parametrize(
    ("stages", "place", "problem"),
    [
        ([{"$set": {"n": {"$add": ["$s", 1]}}}], "0.$set", "$add requires a number"),
        ([{"$unset": "q"}, {"$replaceWith": "$n"}], "1.$replaceWith", "requires an object, got 2"),
        ([{"$replaceWith": "$none"}], "0.$replaceWith", "requires an object, got a missing value"),
        ([{"$set": {"n": {"$divide": ["$n", 0]}}}], "0.$set", "$divide"),
    ],
    ids=repr,
)
def test_failing_expressions(stages: Any, place: str, problem: str) -> None:
    with pytest.raises(UpdateRefused) as caught:
        give(stages, BODY)
    assert (caught.value.id, caught.value.place) == ("id", place)
    assert problem in caught.value.problem


def test_key_order_matters_if_the_database_keeps_it() -> None:
    update = Update.parse([{"$set": {"same": {"$eq": ["$a", {"y": 1, "x": 2}]}}}])
    document = Document("1", {"a": {"x": 2, "y": 1}})
    assert update.apply(document, now=NOW)["same"] is False
    assert update.apply(document, now=NOW, ordered=False)["same"] is True


def test_updates_respect_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections_store.update.apply.MEMORY_LIMIT", 2**18)
    stages = [{"$set": {f"f{n}": {"$range": [0, 3000]}}} for n in range(20)]
    with pytest.raises(UpdateRefused, match="takes more than 262,144 bytes of memory"):
        give(stages, {})
    with pytest.raises(UpdateRefused, match="takes more than 262,144 bytes of memory"):
        give([{"$set": {"a": [{"$range": [0, 3000]}] * 20}}], {})
