"""An application's alembic history that upgrades tables of its own, those of the store, and documents (`shop/`)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import InvalidOption, SchemaTooNew, Store, UpgradeFailed
from collections_store.migrate import upgrade_documents

PROJECT = Path(__file__).parent / "shop"


class Shop:
    """The application, on a database of its own."""

    def __init__(self, backend: Backend, folder: Path) -> None:
        shutil.copytree(PROJECT, folder / "shop", ignore=shutil.ignore_patterns("__pycache__"))
        self.folder, self.backend = folder / "shop", backend
        self.schema = backend.options.get("schema")
        url = sa.make_url(backend.url)
        if self.schema is not None:
            options = {"options": f"-csearch_path={self.schema}"}
            url = url.set(drivername="postgresql+psycopg").update_query_dict(options)
        self.url = url.render_as_string(hide_password=False)

    def alembic(self, *arguments: str) -> str:
        """Run alembic's command; return what it reports on standard error."""
        environment = {**os.environ, "SHOP_URL": self.url}
        if self.schema is not None:
            environment["SHOP_SCHEMA"] = self.schema
        command = [sys.executable, "-m", "alembic", *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else done.stderr

    def store(self) -> Store:
        return Store(self.backend.url, **self.backend.options)

    def tables(self) -> set[str]:
        engine = sa.create_engine(self.url)
        names = set(sa.inspect(engine).get_table_names(self.schema))
        engine.dispose()
        return names

    def revision(self) -> list[Any]:
        engine = sa.create_engine(self.url)
        with engine.connect() as connection:
            found = connection.execute(sa.text("SELECT version_num FROM alembic_version"))
            revisions = list(found.scalars())
        engine.dispose()
        return revisions


@pytest.fixture
def shop(shared_backend: Backend, tmp_path: Path) -> Shop:
    shop = Shop(shared_backend, tmp_path)
    with shop.store() as store:
        store["people"].put_many({"ada": {"name": "Ada Lovelace"}, "bob": {"name": "Bob Ross"}})
    return shop


def test_documents_are_upgraded_and_downgraded_with_the_history(shop: Shop) -> None:
    assert shop.alembic("upgrade", "head") == ""
    assert {"invoices", "alembic_version", "cs_collections"} <= shop.tables()
    with shop.store() as store:
        people = store.collection("people", schema_version=2)
        assert people.find("first", "Ada")[0].body == {"first": "Ada", "last": "Lovelace"}
    assert shop.alembic("upgrade", "head") == ""
    assert shop.alembic("downgrade", "base") == ""
    assert "invoices" not in shop.tables()
    with shop.store() as store:
        assert store["people"].get("ada") == {"schema_version": 1, "name": "Ada Lovelace"}


def test_a_failure_rolls_the_migration_back(shop: Shop) -> None:
    with shop.store() as store:
        store["people"].put("nameless", {"title": "none"})
        report = shop.alembic("upgrade", "head")
        problem = (
            "document 'nameless' cannot go from schema version 1 to 2: split_name raised KeyError"
        )
        assert problem in report
        assert "documents that cannot be upgraded: 1" in report
        assert store["people"].get("ada") == {"name": "Ada Lovelace"}
        assert {each.version for each in store["people"].list()} == {1}
        if not shop.backend.is_postgresql:  # there all migrations are one transaction
            assert shop.revision() == ["0001"]
        store["people"].remove("nameless")
    assert shop.alembic("upgrade", "head") == ""
    assert shop.revision() == ["0002"]


def test_an_empty_database(shared_backend: Backend, tmp_path: Path) -> None:
    """As in a test environment, where the whole history runs before there is any document."""
    shop = Shop(shared_backend, tmp_path)
    assert shop.alembic("upgrade", "head") == ""
    with shop.store() as store:
        assert store.collections() == []
        assert store.collection("people", schema_version=2).count({"first": "Ada"}) == 0


def test_in_offline_mode_there_is_no_connection() -> None:
    with pytest.raises(InvalidOption, match=r"option connection: must be op.get_bind\(\), with"):
        upgrade_documents(None, "people", schema_version=2)  # type: ignore[arg-type]


def test_arguments_that_are_refused(shared_backend: Backend) -> None:
    engine = sa.create_engine("sqlite://")
    with engine.begin() as connection:
        for option, declared in (
            ("schema_version", {}),
            ("ttl", {"schema_version": 2, "ttl": 5}),
            ("upgrades", {"schema_version": 3, "upgrades": {1: len}}),
            ("prefix", {"schema_version": 2, "prefix": "A"}),
        ):
            with pytest.raises(InvalidOption) as caught:
                upgrade_documents(connection, "people", **declared)
            assert caught.value.option == option
    engine.dispose()


def test_a_database_of_a_newer_version(shop: Shop) -> None:
    engine = sa.create_engine(shop.url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE cs_revision SET version_num = '9999'"))
        with pytest.raises(SchemaTooNew):
            upgrade_documents(connection, "people", schema=shop.schema, schema_version=2)
    engine.dispose()


def test_documents_that_fail_can_be_moved(shop: Shop) -> None:
    def refuse(body: Any) -> Any:
        raise ValueError(body)

    engine, declared = sa.create_engine(shop.url), {"schema_version": 2, "upgrades": {1: refuse}}
    where: Any = {"schema": shop.schema, **declared}
    with engine.begin() as connection, pytest.raises(UpgradeFailed):
        upgrade_documents(connection, "people", **where)
    with engine.begin() as connection:
        result = upgrade_documents(connection, "people", quarantine="failed", **where)
        assert (result.upgraded_count, result.quarantined_count) == (0, 2)
    with shop.store() as store:
        assert [each.id for each in store["failed"].list()] == ["ada", "bob"]
        assert store["people"].count() == 0
    engine.dispose()
