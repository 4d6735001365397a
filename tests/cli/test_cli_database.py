"""The commands collections, drop, info and db."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from backends import Backend
from cli.cli_process import Cli, cli_for

from collections_store.sql.schema import REVISION


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    return cli_for(shared_backend)


@contextmanager
def connected(backend: Backend) -> Iterator[sa.Connection]:
    """Connect to the tables without the library."""
    engine = sa.create_engine(sa.make_url(backend.url))
    try:
        with engine.begin() as connection:
            if backend.is_postgresql:
                connection.exec_driver_sql(f"SET search_path TO {backend.options['schema']}")
            yield connection
    finally:
        engine.dispose()


def create_empty(backend: Backend) -> None:
    """Create the database without tables."""
    if not backend.is_postgresql:
        Path(backend.url.removeprefix("sqlite:///")).touch()


def set_revision(backend: Backend, revision: str) -> None:
    with connected(backend) as connection:
        connection.exec_driver_sql(f"UPDATE cs_revision SET version_num = '{revision}'")


def test_collections(cli: Cli) -> None:
    assert cli.done("db", "upgrade") == ""
    assert cli.done("collections") == ""
    assert cli.done("collections", "--output", "json") == "[]\n"
    for name, id in (("b", "1"), ("a", "1"), ("A", "1"), ("a", "2")):
        cli.done("put", name, id, '{"some": "body"}')
    found = [json.loads(line) for line in cli.done("collections").splitlines()]
    assert [(info["name"], info["count"]) for info in found] == [("A", 1), ("a", 2), ("b", 1)]
    assert all(info["size"] > 0 for info in found)
    assert all(info["created_at"].endswith("+00:00") for info in found)
    assert json.loads(cli.done("collections", "--output", "json")) == found
    table = cli.done("collections", "--output", "table")
    assert all(word in table for word in ("name", "count", "bytes", " A ", " a ", " b "))


def test_long_names_are_not_truncated(cli: Cli) -> None:
    name = "x" * 200
    cli.done("put", name, "a", "1")
    assert cli.done("collections", "--output", "table").count("x") == 200


def test_drop_needs_a_terminal_or_yes(cli: Cli) -> None:
    cli.done("put", "things", "a", "1")
    assert "--yes" in cli.fails(2, "drop", "things", input="y\n")
    assert cli.documents("things") == {"a": 1}
    result = cli("drop", "things", "--yes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "deleted things with its 1 document\n"
    assert cli.fails(1, "drop", "things", "--yes") == "there is no collection 'things'"
    assert cli.done("collections") == ""


def test_info(cli: Cli, shared_backend: Backend) -> None:
    cli.done("put", "a", "1", '{"some": "body"}')
    cli.done("put", "a", "2", "null")
    cli.done("put", "b", "1", "null")
    facts = json.loads(cli.done("info", "--json"))
    password = sa.make_url(shared_backend.url).password
    if shared_backend.is_postgresql:
        assert password
        assert facts["database"].startswith("postgresql ")
    else:
        assert facts["database"] == f"sqlite {sqlite3.sqlite_version}"
    counted = {name: facts[name] for name in ("schema", "collections", "documents")}
    assert counted == {"schema": REVISION, "collections": 2, "documents": 3}
    assert facts["bytes"] > 0
    shown = cli.done("info")
    assert f"url                {facts['url']}\n" in shown
    assert password is None or password not in shown


def test_info_creates_no_tables(cli: Cli, shared_backend: Backend) -> None:
    create_empty(shared_backend)
    facts = json.loads(cli.done("info", "--json"))
    assert (facts["schema"], facts["collections"], facts["documents"]) == (None, 0, 0)
    assert "schema             -\n" in cli.done("info")
    cli.fails(1, "db", "current")


def test_db_on_a_fresh_database(cli: Cli, shared_backend: Backend) -> None:
    create_empty(shared_backend)
    assert "no tables" in cli.fails(1, "db", "current")
    assert cli("db", "check").exit_code == 1
    assert "CREATE TABLE" in cli.done("db", "sql")
    assert "no tables" in cli.fails(1, "db", "current")
    assert cli("db", "upgrade").stderr == f"created the tables of schema {REVISION}\n"
    assert cli.done("db", "current") == f"{REVISION}\n"
    assert cli("db", "upgrade").stderr == f"the database is at schema {REVISION} already\n"


def test_db_on_a_database_in_use(cli: Cli) -> None:
    cli.done("put", "things", "a", "1")
    cli.done("put", "others", "a", "1")
    assert cli.done("db", "current") == f"{REVISION}\n"
    result = cli("db", "check")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"the tables are those of schema {REVISION}\n"
    result = cli("db", "sql")
    assert (result.exit_code, result.stdout) == (0, "")


def test_db_check_reports_differences(cli: Cli, shared_backend: Backend) -> None:
    cli.done("put", "things", "a", "1")
    with connected(shared_backend) as connection:
        connection.exec_driver_sql("ALTER TABLE cs_1_things ADD COLUMN foreign_matter TEXT")
    result = cli("db", "check")
    assert result.exit_code == 1
    assert "foreign_matter" in result.stdout
    assert result.stderr == "Error: the tables differ from what this version needs\n"


def test_a_newer_database_exits_with_5(cli: Cli, shared_backend: Backend) -> None:
    cli.done("put", "things", "a", "1")
    set_revision(shared_backend, "9999")
    assert "9999" in cli.fails(5, "get", "things", "a")
    cli.fails(5, "import", "things", input='{"id": "a", "body": 2}\n')
    cli.fails(5, "db", "upgrade")
    cli.fails(5, "db", "sql")
    assert cli("db", "current").stdout == "9999\n"
    assert REVISION in cli("db", "current").stderr
    set_revision(shared_backend, REVISION)
    assert cli.done("get", "things", "a") == "1\n"


def test_an_older_database_on_postgresql_exits_with_5(postgres_backend: Backend) -> None:
    cli = cli_for(postgres_backend)
    cli.done("put", "things", "a", "1")
    set_revision(postgres_backend, "0001")
    assert "db upgrade" in cli.fails(5, "get", "things", "a")
    assert cli("db", "check").exit_code == 1
    assert cli.done("db", "sql").strip()
