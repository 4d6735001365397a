"""Methods by id, with the same results on every backend, sync and async."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from collections_store import Document, InvalidBody, InvalidId, PutManyResult

BODIES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.5,
    1.0,
    -2.5e-7,
    1e16,
    1.2345678901234567e18,
    -1e17,
    1e22,
    1e300,
    5e-324,
    "",
    "text",
    "quote \" backslash \\ percent % colon : dollar $ apostrophe ' newline \n tab \t bell \x07",
    "Grüße 🙂 \u2028 \ud7ff \ue000 \U0010ffff",
    [],
    {},
    [[], [[]], {}],
    [1, "1", True, None, 1.5, {"a": [{}]}],
    {"a": {"b": {"c": [1, {"d": None}]}}, "": {"": ""}, "a.b": 1, "$x": 2, "é": 3, '"': 4, "\\": 5},
    "x" * 100_000,
    {"text": "y" * 100_000},
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body)[:30])
def test_bodies_are_any_json_values(things: Any, body: Any) -> None:
    things.put("id", body)
    found = things.get("id")
    assert found == body
    assert repr(type(found)) == repr(type(body))
    assert things.list() == [things.document("id")]


def test_numbers_keep_their_type(things: Any) -> None:
    body = [1, 1.0, 10**15, 1e15, 1e16, 10**16, 1e17, 1.5e18, -3e18, 2**53, 2.0**53, 2.0**63, 1e19]
    things.put("id", body)
    assert [type(each) for each in things.get("id")] == [type(each) for each in body]
    assert things.get("id") == body


def test_put_replaces_the_body(things: Any) -> None:
    assert things.put("a", {"x": 1, "y": 2}) == 1
    assert things.put("a", {"x": 3}) == 2
    assert things.get("a") == {"x": 3}


def test_get_returns_the_default_for_a_missing_document(things: Any) -> None:
    assert things.get("a") is None
    assert things.get("a", "default") == "default"
    things.put("b", None)
    assert things.get("a", "default") == "default"
    assert things.get("b", "default") is None


def test_get_returns_a_new_object(things: Any) -> None:
    body = {"list": [1]}
    things.put("a", body)
    body["list"].append(2)
    first = things.get("a")
    first["list"].append(3)
    assert things.get("a") == {"list": [1]}


def test_a_document_has_version_and_times(things: Any) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    things.put("a", {"n": 1})
    first = things.document("a")
    things.put("a", {"n": 2})
    second = things.document("a")
    assert (first.version, second.version) == (1, 2)
    assert second.created_at == first.created_at <= second.updated_at
    assert before < first.created_at < datetime.now(UTC) + timedelta(seconds=1)
    assert second.expires_at is None
    assert things.document("b") is None
    id, body = second
    assert (id, body) == ("a", {"n": 2})


def test_exists_distinguishes_null_from_a_missing_document(things: Any) -> None:
    assert not things.exists("a")
    things.put("a", None)
    assert things.exists("a")


def test_remove_returns_whether_the_document_existed(things: Any) -> None:
    things.put("a", 1)
    assert things.remove("a") is True
    assert things.remove("a") is False
    assert things.get("a") is None
    assert things.put("a", 2) == 1


def test_natural_order_is_the_order_of_creation(things: Any) -> None:
    for id in ("c", "a", "b"):
        things.put(id, id)
    things.put("c", "again")
    assert [document.id for document in things.list()] == ["c", "a", "b"]
    things.remove("c")
    things.put("c", "anew")
    assert [document.id for document in things.list()] == ["a", "b", "c"]
    assert [document.id for document in things.list(skip=1, limit=1)] == ["b"]
    assert things.list(limit=0) == []


def test_put_many_counts_inserted_and_replaced_documents(things: Any) -> None:
    things.put("b", 0)
    assert things.put_many({"a": 1, "b": 2, "c": None}) == PutManyResult(2, 1)
    assert things.put_many([("d", 1), ("d", 2)]) == PutManyResult(1, 1)
    assert things.put_many(iter([])) == PutManyResult()
    assert [(d.id, d.body, d.version) for d in things.list()] == [
        ("b", 2, 2),
        ("a", 1, 1),
        ("c", None, 1),
        ("d", 2, 2),
    ]


def test_an_invalid_document_among_many_writes_nothing(things: Any) -> None:
    with pytest.raises(InvalidBody, match="nan is not JSON"):
        things.put_many({"a": 1, "b": {"x": float("nan")}}, atomic=True)
    with pytest.raises(InvalidId):
        things.put_many([("a", 1), ("\0", 2)], atomic=True)
    assert things.count() == 0


def test_get_many_returns_existing_documents_in_the_given_order(things: Any) -> None:
    things.put_many({"a": 1, "b": None, "c'\"\\": 3})
    assert list(things.get_many(["c'\"\\", "x", "b", "b"]).items()) == [("c'\"\\", 3), ("b", None)]
    assert things.get_many([]) == {}


def test_remove_many_returns_the_count(things: Any) -> None:
    things.put_many({"a": 1, "b": 2, "c": 3})
    assert things.remove_many(["a", "c", "x", "a"]) == 2
    assert things.remove_many([]) == 0
    assert [document.id for document in things.list()] == ["b"]


def test_thousands_of_documents(things: Any) -> None:
    ids = [f"id {number}" for number in range(5000)]
    result = things.put_many((id, {"n": number}) for number, id in enumerate(ids))
    assert result == PutManyResult(inserted_count=5000)
    assert list(things.get_many(reversed(ids))) == ids[::-1]
    assert [document.id for document in things.stream()] == ids
    assert things.remove_many(ids[:4990]) == 4990
    assert things.count() == 10


def test_a_stream_continues_during_writes(things: Any) -> None:
    things.put_many((str(number), number) for number in range(200))
    seen = []
    for document in things.stream():
        seen.append(document.body)
        things.remove(document.id)
        things.put(f"new {document.id}", "x") if document.body == 0 else None
    assert seen[:200] == list(range(200))
    assert things.count() in {0, 1}


def test_a_stream_of_large_bodies(things: Any) -> None:
    things.put_many((str(number), "x" * 200_000) for number in range(60))
    assert sum(len(document.body) for document in things.stream()) == 60 * 200_000


def test_reads_of_a_missing_collection(store: Any) -> None:
    things = store["nothing"]
    assert (things.get("a"), things.document("a"), things.exists("a")) == (None, None, False)
    assert (things.list(), things.find("a", 1), things.count(), things.get_many(["a"])) == (
        [],
        [],
        0,
        {},
    )
    assert list(things.stream()) == []
    assert store.collections() == []


def test_a_document_unpacks_compares_and_prints(things: Any) -> None:
    things.put("a", [1])
    assert things.document("a") == things.list()[0]
    assert repr(Document("a", [1])) == "Document(id='a', body=[1], version=1)"
    with pytest.raises(AttributeError):
        Document("a", 1).version = 2  # type: ignore[misc]
