"""What a command imports: a command starts faster, the less it is."""

import re
import sys
from pathlib import Path

import pytest
from cli.cli_process import Cli, spawn

DATABASE = {"sqlalchemy", "sqlite3"}
"""Half a second of CPU on a slow machine, most of it SQLAlchemy's."""
UNUSED = {
    "alembic", "psycopg", "pydantic", "msgspec", "jsonschema", "bson", "rich.console",
    "sqlalchemy.orm", "collections_store.aio", "collections_store.dialogues", "collections_store.memory",
    "collections_store.migrate", "collections_store.sql.dialects.postgresql", "collections_store.integrations",
}  # fmt: skip


def imported(line: tuple[str, ...], code: int, folder: Path) -> set[str]:
    """Return the modules that a command imports."""
    command = [sys.executable, "-X", "importtime", "-m", "collections_store", *line]
    done = spawn(command, cwd=folder)
    assert done.returncode == code, done.stderr[-2000:]
    return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr.decode(), re.MULTILINE))


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (0, ()),
        (0, ("--help",)),
        (0, ("--version",)),
        (0, ("find", "--help")),
        (0, ("import-langgraph", "--help")),
        (2, ("nosuch",)),
        (2, ("get", "people")),
        (2, ("find", "people", "--limit", "x")),
    ],
    ids=lambda each: each if isinstance(each, int) else " ".join(each) or "nothing",
)
def test_help_and_wrong_use_import_no_database(
    tmp_path: Path, code: int, line: tuple[str, ...]
) -> None:
    found = imported(line, code, tmp_path)
    assert "click" in found
    assert not found & (UNUSED | DATABASE)


@pytest.mark.parametrize(
    "line",
    [
        ("get", "people", "ada"),
        ("put", "people", "grace", "{}"),
        ("find", "people", '{"n": 1}'),
        ("collections",),
        ("export", "people"),
    ],
    ids=lambda each: each[0],
)
def test_a_command_imports_only_its_own_database(tmp_path: Path, line: tuple[str, ...]) -> None:
    url = f"--url=sqlite:///{tmp_path / 'one.db'}"
    Cli((url,)).done("put", "people", "ada", '{"n": 1}')
    found = imported((url, *line), 0, tmp_path)
    assert found >= DATABASE
    assert not found & UNUSED
