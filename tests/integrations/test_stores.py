"""What adapters of frameworks take as their store: URLs, paths, and stores."""

from pathlib import Path

import pytest

from collections_store import AsyncStore, InvalidOption, InvalidUrl, Store
from collections_store.integrations.stores import open_store, store_url

URLS = {
    ":memory:": "sqlite://",
    "chat.db": "sqlite:///chat.db",
    "data/chat.db": "sqlite:///data/chat.db",
    "/data/a b.db": "sqlite:////data/a b.db",
    Path("data/chat.db"): "sqlite:///data/chat.db",
    "sqlite://": "sqlite://",
    "sqlite+aiosqlite:///chat.db": "sqlite:///chat.db",
    "sqlite+aiosqlite:///:memory:": "sqlite:///:memory:",
    "postgresql+asyncpg://ada:pw@host/agents": "postgresql://ada:pw@host/agents",
    "postgresql+psycopg://host/agents?sslmode=require": "postgresql://host/agents?sslmode=require",
    "postgresql://host/agents": "postgresql://host/agents",
    "mysql+aiomysql://host/agents": "mysql+aiomysql://host/agents",
}


@pytest.mark.parametrize(("given", "url"), URLS.items())
def test_what_users_of_frameworks_write_is_a_url(given: str | Path, url: str) -> None:
    assert store_url(given) == url


@pytest.mark.parametrize("wrong", ["", None, 5, "mysql+aiomysql://host/agents"])
def test_what_is_no_database_is_refused_by_the_store(wrong: object) -> None:
    with pytest.raises((InvalidOption, InvalidUrl)):
        open_store(Store, wrong, {})


def test_keywords_of_libpq_are_no_path() -> None:
    with pytest.raises(InvalidOption, match="must be a URL, such as postgresql://") as refused:
        open_store(AsyncStore, "host=db password=secret dbname=agents", {})
    assert "secret" not in str(refused.value)


def test_a_path_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.db"
    with open_store(Store, str(path), {}) as store:
        store["things"].put("a", 1)
    with open_store(Store, path, {"durability": "normal"}) as store:
        assert store["things"].get("a") == 1
    assert path.is_file()


def test_the_store_names_the_url_to_use() -> None:
    with pytest.raises(InvalidUrl, match=r"use sqlite:///chat\.db$"):
        Store("sqlite+aiosqlite:///chat.db")
    with pytest.raises(InvalidUrl, match=r"use postgresql://ada:\*\*\*@host/agents$"):
        Store("postgresql+asyncpg://ada:secret@host/agents")
