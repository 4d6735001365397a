"""Cursors of version 0.1 are valid, and the signature of a cursor depends on no class."""

import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import F, Filter, InvalidCursor, Path, Sort, Store
from collections_store.query import cursor
from collections_store.query.cursor import Position, seal, unseal

KEY = "00112233445566778899aabbccddeeff"
BODIES = {
    str(backend): {
        "n": n,
        "name": f"name {n}",
        "kind": "a",
        "tags": ["x", "y"],
        "items": [{"sku": "s", "count": n}],
    }
    for backend, n in enumerate([1, 3, 3, 1])
}
RECORDED: dict[str, tuple[Any, Any, str, str]] = {
    "everything": ({}, None, "AUCThvR9cB_GHGhIdcoPh4N7ImsiOltdLCJzIjoyfQ", "23"),
    "id": ({}, "$id", "AduSaKhV5CJAfctXL55cT557ImsiOltbMywiMSJdXSwicyI6Mn0", "23"),
    "equals": (
        {"kind": "a"},
        [("n", -1), ("name", 1)],
        "AfYN7dlFvxCQjUwOZ0ipp3l7ImsiOltbMiwzXSxbMywibmFtZSAzIl1dLCJzIjozfQ",
        "03",
    ),
    "ranges": (
        {"n": {"$gte": 1, "$lt": 2500.0}, "name": {"$ne": "it's"}},
        "name",
        "AX9wEER3LieOZZzc5sWTjy57ImsiOltbMywibmFtZSAxIl1dLCJzIjo0fQ",
        "12",
    ),
    "in": (
        {"n": {"$in": [1, 2, 3, 4.5, None, "x"]}},
        {"n": 1},
        "Ab9FumqWWGUEXOvO6a-UZT57ImsiOltbMiwxXV0sInMiOjR9",
        "12",
    ),
    "lists": (
        {"tags": {"$in": ["x", ["y"], {"z": 1}]}},
        {"n": 1},
        "Ad2YFnZFq57NDt3R_ng0qCd7ImsiOltbMiwxXV0sInMiOjR9",
        "12",
    ),
    "logic": (
        {"$or": [{"n": {"$gt": 0}}, {"$nor": [{"kind": "b"}, {"kind": "c"}]}]},
        [("kind", 1), ("$id", -1)],
        "AX1aQ7NxkOwQl0iYhiGl2uR7ImsiOltbMywiYSJdLFszLCIyIl1dLCJzIjozfQ",
        "10",
    ),
    "not": (
        {"n": {"$not": {"$lt": 0}}, "x": {"$nin": [1, 2]}, "y": {"$exists": False}},
        {"n": -1},
        "AfMTKd1eRoYSrd1o9JMNloB7ImsiOltbMiwzXV0sInMiOjN9",
        "03",
    ),
    "arrays": (
        {"tags": {"$size": 2, "$all": ["x"], "$elemMatch": {"$gte": "a"}}},
        {"n": 1},
        "AeVkwhrack90gj0LiqKxMCl7ImsiOltbMiwxXV0sInMiOjR9",
        "12",
    ),
    "elements": (
        {"items": {"$elemMatch": {"sku": "s", "count": {"$mod": [2, 1]}}}},
        {"items.count": 1},
        "Af8vivvPcHfQgZAGH6aqxsN7ImsiOltbMiwxXV0sInMiOjR9",
        "12",
    ),
    "types": (
        {"n": {"$type": ["number", "string"], "$bitsAllSet": 1}},
        "n",
        "Af1n6EDC4aty1-tow-bDvSV7ImsiOltbMiwxXV0sInMiOjR9",
        "12",
    ),
    "metadata": (
        {"$id": {"$gt": "0"}, "$version": {"$gte": 1}, "$expires_at": None},
        [("$version", 1)],
        "AafjZHchrCTMHD4aMGwsBGx7ImsiOltbMiwxXV0sInMiOjN9",
        "3",
    ),
    "schema": (
        {"$jsonSchema": {"required": ["n"]}},
        "n",
        "ARw3Ryx3cu1AMWpc4YltVkl7ImsiOltbMiwxXV0sInMiOjR9",
        "12",
    ),
    "expression": (
        {"$expr": {"$gte": ["$n", 1]}},
        "n",
        "ASxt2Uzr_z8H7nzj_g06k2h7ImsiOltbMiwxXV0sInMiOjR9",
        "12",
    ),
    "regex": (
        {"name": {"$regex": "^n"}, "kind": {"$regex": "A", "$options": "i"}},
        "name",
        "AXZZztqktet8uWfqkvPwwFl7ImsiOltbMywibmFtZSAxIl1dLCJzIjo0fQ",
        "12",
    ),
    "none": (
        {"n": {"$gt": -1}, "$and": [{"n": {"$gt": 0}}, {"n": {"$lt": 1000000.0}}]},
        None,
        "Af7a2NGROtDauFcJkmzHCpZ7ImsiOltdLCJzIjoyfQ",
        "23",
    ),
}
"""Filter, sort, the cursor of version 0.1 after two documents on both databases, and the ids that follow."""


@pytest.fixture
def recorded(shared_backend: Backend) -> Any:
    """Return the collection whose cursors were recorded."""
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put_many(BODIES)
    engine = sa.create_engine(shared_backend.url)
    schema = f"{shared_backend.options['schema']}." if shared_backend.is_postgresql else ""
    with engine.begin() as connection:
        [(text,)] = connection.execute(sa.text(f"SELECT options FROM {schema}cs_collections"))
        new = {"options": json.dumps({**json.loads(text), "cursor_key": KEY})}
        connection.execute(sa.text(f"UPDATE {schema}cs_collections SET options = :options"), new)
    engine.dispose()
    with Store(shared_backend.url, **shared_backend.options) as store:
        yield store["things"]


def test_cursors_of_version_0_1_remain_valid(recorded: Any) -> None:
    for name, (filter, sort, after, ids) in RECORDED.items():
        page = recorded.page(filter, sort=sort, after=after)
        assert "".join(each.id for each in page) == ids, name
        following = recorded.page(filter, sort=sort, limit=2).cursor
        assert urlsafe_b64decode(following[:4])[0] == 2, name
        page = recorded.page(filter, sort=sort, after=following)
        assert "".join(each.id for each in page) == ids, name


def test_a_cursor_seals_the_filter_as_given(recorded: Any) -> None:
    """The cursor is of a version that did not leave out conditions that never hold."""
    filter = {"$or": [{"kind": "a"}, {"q": {"$in": []}}], "name": {"$nin": []}}
    after = "AtEYBgPQqASz4If4ReaAQhF7ImsiOltbMiwxXV0sInMiOjR9"
    assert [each.id for each in recorded.page(filter, sort="n", after=after)] == ["1", "2"]


def test_a_cursor_of_version_0_1_is_valid_for_its_own_query_only(recorded: Any) -> None:
    for name, (filter, sort, after, _) in RECORDED.items():
        for other, (wrong, order, _, _) in RECORDED.items():
            if (filter, sort) != (wrong, order):
                with pytest.raises(InvalidCursor, match="filter or order"):
                    recorded.page(wrong, sort=order, after=after)
                    pytest.fail(f"{name} {other}")


def test_an_unknown_format_is_rejected(recorded: Any) -> None:
    with pytest.raises(InvalidCursor, match="must be a cursor of this version"):
        recorded.page(after="Aw" + RECORDED["everything"][2][2:])


def test_a_cursor_does_not_depend_on_the_names_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}
    for name, (filter, sort, after, _) in RECORDED.items():
        question = Filter.parse(filter), Sort.parse(sort)
        given[name] = seal(Position((), 1), KEY, *question), unseal(after, KEY, *question)
    for each in cursor._NAMES_1:
        monkeypatch.setattr(each, "__repr__", lambda _: "renamed")
    for name, (filter, sort, after, _) in RECORDED.items():
        question = Filter.parse(filter), Sort.parse(sort)
        assert given[name][0] == seal(Position((), 1), KEY, *question)
        assert given[name][1] == unseal(after, KEY, *question)


DIFFERENT: list[Any] = [
    {},
    {"a": 1},
    {"a": 1.0},
    {"a": True},
    {"a": "1"},
    {"a": [1]},
    {"a": {"$in": [1]}},
    {"a": {"$elemMatch": {"$eq": 1}}},
    {"a.b": 1},
    {Path("a.b"): 1},
    {Path("$a"): 1},
    {"a": {"b": 1}},
    {"b": 1, "a": 1},
    {"a": 1, "b": 1},
    {"$or": [{"a": 1}, {"b": 1}]},
    {"a": {"$regex": "x"}},
    {"a": {"$regex": "x", "$options": "i"}},
    {"a": {"$eq": {"$regex": "x"}}},
    {"a": "x"},
    {"$id": "a"},
    {"id": "a"},
    F("a") != 1,
]


def test_cursors_of_different_queries_have_different_signatures() -> None:
    orders = [None, "a", "a.b", [("a", -1)], Path("a.b"), "$id", "id", ["a", "b"], ["b", "a"]]
    filters = [Filter.parse(each) for each in DIFFERENT]
    sorts = [Sort.parse(each) for each in orders]
    made = {seal(Position((), 1), KEY, each, sort) for each in filters for sort in sorts}
    assert len(made) == len(filters) * len(sorts)
