"""Hidden indexes: no query uses them, and they still refuse duplicates and let documents expire."""

import pickle
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from backends import Backend

from collections_store import (
    DuplicateKey,
    Index,
    Indexed,
    InvalidBody,
    InvalidIndex,
    InvalidOption,
    Store,
)

pytestmark = pytest.mark.each_backend

INDEXES: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    ("n", {}, {"n": 7}),
    ("n", {"unique": True}, {"n": 7}),
    ([("k", 1), ("n", -1)], {}, {"k": 1, "n": 7}),
    ("n", {"sparse": True}, {"n": {"$gt": 290}}),
    ("n", {"where": {"k": 1}}, {"n": 7, "k": 1}),
    ("n", {"where": {"k": 1}, "unique": True}, {"n": 7, "k": 1}),
    ("$updated_at", {}, {"$updated_at": {"$gte": 5, "$lt": 7}}),
    (["tags", "k"], {"arrays": True}, {"tags": "t7", "k": 1}),
]
ON_SQLITE: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    ("tags", {"arrays": True}, {"tags": "t7"}),
    ("tags", {"arrays": True, "unique": True}, {"tags": "t7"}),
    ("deep.$**", {}, {"deep.n": 7}),
]

OWN = {"$body", "$id", "$expires_at"}


def body(n: int) -> Any:
    return {"n": n, "k": n % 2, "tags": [f"t{n}", f"u{n}"], "deep": {"n": n}}


def ids(things: Any, *args: Any, **options: Any) -> list[str]:
    return [each.id for each in things.find(*args, **options)]


def used(things: Any, filter: Any) -> tuple[str, ...]:
    return tuple(name for name in things.explain(filter).indexes if name not in OWN)


def test_no_query_uses_a_hidden_index(store: Any, backend: Backend) -> None:
    things = store["things"]
    things.put_many((str(n), body(n)) for n in range(300))
    some = INDEXES if backend.is_postgresql else INDEXES + ON_SQLITE
    for keys, options, filter in some:
        before = ids(things, filter)
        name = things.create_index(keys, **options)
        assert used(things, filter) == (name,), (keys, options)
        assert things.hide_index(name) is True
        assert things.hide_index(name) is True
        assert used(things, filter) == (), (keys, options)
        assert used(things, {**filter, "$version": {"$gte": 0}}) == (), (keys, options)
        assert ids(things, filter) == before
        assert str(things.indexes()[0]).endswith(", hidden")
        assert things.unhide_index(name) is True
        assert used(things, filter) == (name,), (keys, options)
        assert not things.indexes()[0].hidden
        assert things.drop_index(name)
        assert things.create_index(keys, hidden=True, **options) == name
        assert used(things, filter) == (), (keys, options)
        assert things.indexes()[0].hidden
        assert things.drop_index(name)


def test_a_hidden_index_serves_no_sort(things: Any) -> None:
    things.put_many((str(n), body(n)) for n in range(300))
    things.create_index("n", hidden=True)
    explained = things.explain({}, sort="n", limit=5)
    assert (explained.order, explained.advice) == ("database", "unhide_index('n_1')")
    assert explained.missing_index.hidden
    assert ids(things, {}, sort="n", limit=3) == ["0", "1", "2"]
    things.unhide_index("n_1")
    explained = things.explain({}, sort="n", limit=5)
    assert (explained.order, explained.advice) == ("index", None)


def test_a_hidden_index_of_other_fields_is_not_advised(things: Any) -> None:
    things.put_many((str(n), body(n)) for n in range(300))
    things.create_index("n", hidden=True)
    queries: list[tuple[Any, dict[str, Any]]] = [
        ({}, {}),
        ({"k": {"$ne": 1}}, {}),
        ({}, {"sort": "$version"}),
    ]
    queries.append(({"tags": "T1"}, {"collation": {"locale": "simple", "strength": 2}}))
    for filter, options in queries:
        explained = things.explain(filter, **options)
        assert (explained.advice, explained.missing_index) == (None, None), filter


@pytest.mark.parametrize("arrays", [False, True])
def test_a_hidden_unique_index_refuses_duplicates(things: Any, arrays: bool) -> None:
    things.put_many({"1": {"a": 1}, "2": {"a": 2}})
    name = things.create_index("a", unique=True, arrays=arrays, hidden=True)
    for hidden in (True, False, True):
        assert (things.hide_index if hidden else things.unhide_index)(name)
        with pytest.raises(DuplicateKey) as caught:
            things.put("3", {"a": 2})
        assert (caught.value.index, caught.value.id, caught.value.key) == (name, "3", {"a": 2})
        with pytest.raises(DuplicateKey):
            things.update("1", {"$set": {"a": 2}})
    things.drop_index(name)
    things.put("3", {"a": 2})
    with pytest.raises(DuplicateKey):
        things.create_index("a", unique=True, arrays=arrays, hidden=True)
    assert things.indexes() == []


def test_a_hidden_index_of_arrays_refuses_two_arrays(things: Any) -> None:
    things.create_index(["a", "b"], arrays=True, hidden=True)
    with pytest.raises(InvalidBody):
        things.put("1", {"a": [1], "b": [2]})


def test_documents_expire_by_a_hidden_index(things: Any) -> None:
    things.create_index("at", expire_after_seconds=60, hidden=True)
    things.put_many({"old": {"at": "2020-01-01T00:00:00.000000Z"}, "never": {"at": 5}})
    assert things.purge_expired() == 1
    assert ids(things) == ["never"]


def test_a_hint_of_a_hidden_index_is_refused(things: Any) -> None:
    things.put("1", {"n": 1})
    things.create_index("n")
    assert ids(things, {"n": 1}, hint="n_1") == ["1"]
    things.hide_index("n_1")
    for hint in ("n_1", {"n": 1}):
        with pytest.raises(InvalidOption, match="n_1 is hidden: use unhide_index, or another"):
            things.find({"n": 1}, hint=hint)
    things.create_index("n", where={"n": 1}, name="visible")
    assert ids(things, {"n": 1}, hint={"n": 1}) == ["1"]
    things.drop_index("visible")
    with pytest.raises(InvalidOption, match=r"\(none\)"):
        things.find({"n": 1}, hint="other")


def test_hidden_alone_makes_no_other_index(things: Any) -> None:
    things.create_index("n", hidden=True)
    assert things.create_index("n") == "n_1"
    [index] = things.indexes()
    assert index.hidden
    assert index == Index.parse("n")
    assert pickle.loads(pickle.dumps(index)).hidden


def test_what_cannot_be_hidden(things: Any) -> None:
    things.put("1", {"n": "text", "v": [1.0, 2.0]})
    for hide in (things.hide_index, things.unhide_index):
        assert hide("n_1") is False
        for name in ("_id_", "$id"):
            with pytest.raises(InvalidIndex, match="must not be the index of the ids"):
                hide(name)
        odd: Any
        for odd in (5, None, ["n_1"]):
            with pytest.raises(InvalidIndex, match="must be a string, got "):
                hide(odd)
    things.create_text_index("n")
    things.create_vector_index("v", dimensions=2)
    for name in ("text", "v_vector"):
        with pytest.raises(InvalidIndex, match="must be that of an index of fields"):
            things.hide_index(name)
    with pytest.raises(InvalidIndex, match="must be True or False, got 1"):
        things.create_index("n", hidden=1)


def test_equal_collections_with_and_without_a_hidden_index(store: Any) -> None:
    """Collections with equal indexes share their statements."""
    for name, hidden in (("shown", False), ("hidden", True)):
        store[name].put_many((str(n), body(n)) for n in range(100))
        store[name].create_index("n", hidden=hidden)
        assert used(store[name], {"n": 7}) == (() if hidden else ("n_1",))


def test_hiding_is_part_of_a_transaction(store: Any) -> None:
    things = store["things"]
    things.put_many((str(n), body(n)) for n in range(100))
    things.create_index("n", unique=True)
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        assert tx["things"].hide_index("n_1")
        assert tx["things"].indexes()[0].hidden
        raise ZeroDivisionError
    assert used(things, {"n": 7}) == ("n_1",)
    with store.transaction() as tx:
        assert tx["things"].hide_index("n_1")
        with pytest.raises(DuplicateKey):
            tx["things"].put("x", {"n": 7})
    assert used(things, {"n": 7}) == ()


def test_copies_and_renamed_collections_keep_hidden_indexes(shared_backend: Backend) -> None:
    url, options = shared_backend.url, shared_backend.options
    with Store(url, **options) as store, Store("sqlite://") as other:
        for name, filter in (("n", {"n": 7}), ("tags", {"tags": "t7"})):
            store["old"].create_index(name, hidden=True, unique=True, arrays=name == "tags")
            store["old"].put_many((str(n), body(n)) for n in range(100))
            assert used(store["old"], filter) == ()
        store.rename("old", "new")
        store.copy_to(other)
        for each in (store["new"], other["new"]):
            assert [getattr(index, "hidden", False) for index in each.indexes()] == [True, True]
            assert used(each, {"n": 7}) == ()
            with pytest.raises(DuplicateKey):
                each.put("x", {"n": 7})
            each.unhide_index("n_1")
            assert used(each, {"n": 7}) == ("n_1",)


def test_others_go_on_while_an_index_is_hidden(shared_backend: Backend) -> None:
    """The other store has cached the index, also in the statements of a hint."""
    url, options = shared_backend.url, shared_backend.options
    with Store(url, **options) as store, Store(url, **options) as other:
        store["things"].put_many((str(n), body(n)) for n in range(100))
        store["things"].create_index("n", unique=True)
        for _ in range(2):
            hinted = {"hint": "n_1"}
            assert ids(other["things"], {"n": 7}, **hinted) == ["7"]
            store["things"].hide_index("n_1")
            assert ids(other["things"], {"n": 7}) == ["7"]
            with pytest.raises(DuplicateKey) as caught:
                other["things"].put("x", {"n": 7})
            assert caught.value.index == "n_1"
            store["things"].unhide_index("n_1")
            assert ids(other["things"], {"n": 7}, **hinted) == ["7"]
        store["things"].drop_index("n_1")
        store["things"].create_index("n")
        assert ids(other["things"], {"n": 7}, hint="n_1") == ["7"]


class Town(msgspec.Struct):
    code: Annotated[int, Indexed(hidden=True)]
    zip: int = 0
    __indexes__: ClassVar[list[Index]] = [Index.parse("zip", hidden=True, unique=True)]


def test_a_model_declares_hidden_indexes(store: Any) -> None:
    towns = store.collection(Town)
    assert [(each.name, each.hidden) for each in towns.indexes()] == [
        ("code_1", True),
        ("zip_1", True),
    ]
    towns.unhide_index("code_1")
    assert not store.collection(Town).indexes()[0].hidden
