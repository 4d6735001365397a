"""Sparse indexes: their documents, the queries that they serve, and uniqueness."""

from typing import Any

import pytest
from backends import Backend

from collections_store import DuplicateKey, Indexed, InvalidBody, InvalidIndex, Path, Store

pytestmark = pytest.mark.each_backend

SERVED: list[Any] = [
    {"a": 7},
    {"a": {"$gt": 290}},
    {"a": {"$in": [7, 8]}},
    {"a": 7, "b": None},
]
NOT_SERVED: list[Any] = [
    {"a": None},
    {"a": {"$in": [7, None]}},
    {"b": 7},
    {"$or": [{"a": 7}, {"b": 7}]},
]


def ids(things: Any, filter: Any, **options: Any) -> list[str]:
    return sorted(each.id for each in things.find(filter, **options))


@pytest.mark.parametrize("unique", [False, True])
def test_a_sparse_index_serves_filters_that_imply_a_field(store: Any, unique: bool) -> None:
    things = store.create_collection("things", body_index=False)
    bodies = [{"a": n} if n % 2 else {} for n in range(300)]
    things.put_many((str(n), body) for n, body in enumerate(bodies))
    before = [ids(things, each) for each in (*SERVED, *NOT_SERVED)]
    name = things.create_index("a", sparse=True, unique=unique)
    assert str(things.indexes()[0]) == f"a_1: {{'a': 1}}, {'unique, ' * unique}sparse"
    for each in SERVED:
        assert things.explain(each).indexes == (name,), each
    for each in NOT_SERVED:
        assert things.explain(each).indexes == (), each
    assert things.explain({}, sort="a", limit=5).order == "database"
    assert things.explain({"a": {"$gt": 0}}, sort="a", limit=5).order == "index"
    assert [ids(things, each) for each in (*SERVED, *NOT_SERVED)] == before
    things.put("array", {"a": [7, {"b": 1}]})  # what the index holds changes, results do not
    assert ids(things, {"a": 7}) == ["7", "array"]


def test_several_documents_may_lack_the_field_of_a_unique_index(things: Any) -> None:
    things.create_index("a.b", unique=True, sparse=True)
    things.put_many({"1": {}, "2": {"a": 5}, "3": {"a": [{"b": 1}]}, "4": {"a": [{"b": 1}]}})
    things.put("null", {"a": {"b": None}})
    with pytest.raises(DuplicateKey) as caught:
        things.put("other", {"a": {"b": None}})
    assert caught.value.key == {"a.b": None}
    things.put("5", {"a": {"b": 1}})
    with pytest.raises(DuplicateKey):
        things.update("1", {"$set": {"a": {"b": 1}}})
    assert ids(things, {"a.b": 1}) == ["3", "4", "5"]


def test_a_compound_index_has_the_documents_with_one_of_its_fields(things: Any) -> None:
    things.create_index(["a", "b"], unique=True, sparse=True)
    things.put_many({"1": {}, "2": {"c": 1}, "3": {"b": 1}, "4": {"a": 1}})
    with pytest.raises(DuplicateKey) as caught:
        things.put("5", {"a": None, "b": 1})
    assert caught.value.key == {"a": None, "b": 1}
    things.put("5", {"a": 1, "b": 1})


def test_a_sparse_index_through_arrays(things: Any) -> None:
    things.create_index("a.b", unique=True, sparse=True, arrays=True)
    things.put_many({"1": {}, "2": {"a": []}, "3": {"a": [5, {}]}, "4": {"a": [{"b": 1}, {}]}})
    things.put("null", {"a": [{"b": None}]})
    for taken in ({"a": [{"b": 1}]}, {"a": [{"c": 1}, {"b": None}]}):
        with pytest.raises(DuplicateKey):
            things.put("5", taken)
    things.put("1", {"a": [{"b": 5}]})
    things.put("1", {"a": []})
    things.put("5", {"a": {"b": 5}})


def test_arrays_side_by_side_are_refused_without_the_fields(things: Any) -> None:
    things.create_index(["a.b", "d.b"], sparse=True, arrays=True)
    with pytest.raises(InvalidBody):
        things.put("1", {"a": [], "d": []})


def test_a_copy_is_sparse(shared_backend: Backend) -> None:
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        Store("sqlite://") as target,
    ):
        things = store["things"]
        things.create_index("a", sparse=True)
        things.create_index(["a", "b"], sparse=True, unique=True, arrays=True)
        store.copy_to(target)
        assert target["things"].indexes() == things.indexes()


def test_invalid_sparse_indexes(things: Any) -> None:
    with pytest.raises(InvalidIndex, match="'sparse': must be True or False, got 1"):
        things.create_index("a", sparse=1)
    with pytest.raises(InvalidIndex, match="'where': a sparse index has the documents with"):
        things.create_index("a", sparse=True, where={"b": 1})
    with pytest.raises(InvalidIndex, match="times cannot be in a unique or sparse index"):
        things.create_index("$updated_at", sparse=True)
    assert Indexed(sparse=True).sparse
    assert things.create_index(Path("a.b"), sparse=True)


def test_a_partial_index_on_existing_fields_serves_the_same_filters(store: Any) -> None:
    things = store.create_collection("things", body_index=False)
    things.put_many((str(n), {"a": n} if n % 2 else {}) for n in range(300))
    name = things.create_index("a", where={"a": {"$exists": True}})
    for each in SERVED:
        assert things.explain(each).indexes == (name,), each
    for each in NOT_SERVED:
        assert things.explain(each).indexes == (), each
