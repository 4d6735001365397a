"""Names of other libraries: the error names the method of this library."""

import pickle
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from collections_store import AsyncStore, Document, InvalidOption, InvalidUrl, Store
from collections_store.options import read_url


@pytest.mark.parametrize(
    ("name", "ours"),
    [("count_documents", r"count\("), ("save", r"put\("), ("find_one_by_id", r"document\(")],
)
def test_methods_of_other_libraries_name_ours(name: str, ours: str) -> None:
    with Store("sqlite://") as store, pytest.raises(AttributeError, match=ours):
        getattr(store["things"], name)
    with pytest.raises(AttributeError, match=ours):
        getattr(AsyncStore("sqlite://")["things"], name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("orders", r"has no attribute 'orders': a collection is store\['orders'\]$"),
        ("list_collection_names", r"each.name for each in store.collections\(\)"),
        ("drop_collection", r"use drop\(name\)"),
        ("start_session", r"transaction\(\)"),
        ("_orders", "has no attribute '_orders'$"),
    ],
)
def test_collections_and_methods_of_a_store_by_pymongos_names(name: str, ours: str) -> None:
    with Store("sqlite://") as store:
        with pytest.raises(AttributeError, match=ours) as caught:
            getattr(store, name)
        tx_ours = ours.replace(r"is store\[", r"is tx\[")
        with store.transaction() as tx, pytest.raises(AttributeError, match=tx_ours):
            getattr(tx, name)
    assert (caught.value.name, caught.value.obj) == (name, store)
    with pytest.raises(AttributeError, match=ours):
        getattr(AsyncStore("sqlite://"), name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("limit", r"use find\(filter, limit=…\)"), ("rewind", "returns a list, which has no method")],
)
def test_found_documents_name_what_replaces_a_cursor(things: Any, name: str, ours: str) -> None:
    things.put_many({"b": 2, "a": 1})
    for found in (things.find(), things.list(limit=2)):
        with pytest.raises(AttributeError, match=ours):
            getattr(found, name)
        with pytest.raises(TypeError, match=r"find\(filter, sort=…\)"):
            found.sort("n", -1)
        assert found == list(found)
        found.sort(key=lambda each: each.id, reverse=True)
        assert [each.id for each in pickle.loads(pickle.dumps(found))] == ["b", "a"]


def test_a_misspelt_method_is_an_attribute_error() -> None:
    with Store("sqlite://") as store:
        assert not hasattr(store["things"], "fnid")
        with pytest.raises(AttributeError, match="'Collection' object has no attribute 'fnid'$"):
            store["things"].fnid  # type: ignore[attr-defined] # noqa: B018
        with pytest.raises(AttributeError):
            store.things  # type: ignore[attr-defined] # noqa: B018


def test_a_document_is_not_its_body() -> None:
    document = Document("1", {"name": "Ada"})
    with pytest.raises(TypeError, match=r"document\.body\['name'\]"):
        document["name"]  # type: ignore[index]
    id, body = document
    assert (id, body["name"]) == ("1", "Ada")


def test_binding_a_session_names_its_connection() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with Store(engine=engine) as store, Session(engine) as session:
        with pytest.raises(InvalidOption, match=r"session\.connection\(\)"):
            store.bind(session)  # type: ignore[arg-type]
        store.bind(session.connection())["things"].put("1", {})
        session.commit()
        assert store["things"].count() == 1
    engine.dispose()


def test_the_short_name_of_postgresql_is_accepted() -> None:
    pytest.importorskip("psycopg")
    assert repr(Store("postgres://me:secret@host/db")) == "Store('postgresql://me:***@host/db')"
    asynchronous = AsyncStore("postgres://me:secret@host/db")
    assert repr(asynchronous) == "AsyncStore('postgresql://me:***@host/db')"
    assert read_url("postgres://host/db").drivername == "postgresql"
    with pytest.raises(InvalidUrl):
        read_url("postgres")
