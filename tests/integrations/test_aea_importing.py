"""Import of SQLite files of AEA."""

import asyncio
import json
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import Cli
from pages import DOCS, blocks

from collections_store import DatabaseError, DatabaseUnavailable, InvalidBody, InvalidOption, Store
from collections_store.integrations.aea import import_aea
from collections_store.integrations.aea.formats import decoded

BODIES: dict[str, Any] = {
    "dict": {"a": [1, 2.5, "é", None], "wei": 10**30, "nan": float("inf")},
    "number": 12,
    "float": 1.5,
    "text": "12",
    "true": True,
    "null": None,
    "list": [1],
    "nul": "a\0b",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file as AEA's own backend writes it, by its source, which has been the same since 2020."""
    file = tmp_path / "agent.db"
    connection = sqlite3.connect(file)
    for name in ("things", "Others"):
        columns = "(object_id TEXT PRIMARY KEY, object_body JSON1 NOT NULL)"
        connection.execute(f"CREATE TABLE IF NOT EXISTS {name} {columns}")
        rows: list[tuple[Any, str]] = [(id, json.dumps(body)) for id, body in BODIES.items()]
        rows += [(None, "1"), (None, "2")]
        connection.executemany(f"INSERT OR REPLACE INTO {name} VALUES (?, ?)", rows)
    connection.execute("CREATE TABLE foreign_one (id TEXT)")
    connection.commit()
    connection.close()
    return file


def test_everything_that_aea_wrote_is_imported(file: Path, shared_backend: Any) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert import_aea(store, file) == {"Others": 8, "things": 8}
        assert import_aea(store, file) == {"Others": 8, "things": 8}
        found = {id: decoded(body) for id, body in store["things"].list()}
        assert found == BODIES
        assert list(found) == list(BODIES)
        assert type(found["number"]) is int
        assert type(found["true"]) is bool


def test_the_test_file_equals_that_of_aeas_backend(tmp_path: Path) -> None:
    pytest.importorskip("aea", reason="the extra `aea` is not installed")
    from aea.helpers.storage.backends.sqlite import SqliteStorageBackend

    async def main() -> None:
        backend = SqliteStorageBackend(f"sqlite://{tmp_path / 'agent.db'}")
        await backend.connect()
        await backend.ensure_collection("things")
        for id, body in BODIES.items():
            await backend.put("things", id, body)
        await backend.disconnect()
        backend._executor.shutdown()

    asyncio.run(main())
    with Store("sqlite://") as store:
        import_aea(store, tmp_path / "agent.db")
        assert {id: decoded(body) for id, body in store["things"].list()} == BODIES


def test_other_files_are_rejected(tmp_path: Path, file: Path) -> None:
    with Store("sqlite://") as store:
        with pytest.raises(DatabaseUnavailable):
            import_aea(store, tmp_path / "none.db")
        other = tmp_path / "other.db"
        sqlite3.connect(other).execute("CREATE TABLE t (id TEXT)").connection.close()
        with pytest.raises(InvalidOption, match="its tables are: 't'"):
            import_aea(store, other)
        connection = sqlite3.connect(file)
        connection.execute("INSERT INTO things VALUES ('bad', '{')")
        connection.commit()
        connection.close()
        with pytest.raises(InvalidBody, match=r"things\.bad"):
            import_aea(store, file)
        assert store.collections() == []


def test_numbers_are_imported_as_stored_in_sqlite(tmp_path: Path) -> None:
    """AEA's column converts bodies that look like numbers; the original text is lost."""
    given: dict[str, Any] = {
        "whole": 12.0,
        "wei": 10**19,
        "least": -(2**63),
        "most": 2**63 - 1,
        "within": {"wei": 10**30, "rate": 12.0},
        "nan": float("nan"),
    }
    connection = sqlite3.connect(tmp_path / "agent.db")
    connection.execute("CREATE TABLE things (object_id TEXT PRIMARY KEY, object_body JSON1)")
    rows = [(id, json.dumps(body)) for id, body in given.items()]
    connection.executemany("INSERT INTO things VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    with Store("sqlite://") as store:
        import_aea(store, tmp_path / "agent.db")
        found = {id: decoded(body) for id, body in store["things"].list()}
    nan = found.pop("nan")
    assert nan != nan  # noqa: PLR0124
    assert found == {key: value for key, value in given.items() if key != "nan"}
    assert [type(found[each]) for each in ("whole", "wei", "most")] == [int, float, int]
    assert type(found["within"]["wei"]) is int
    assert type(found["within"]["rate"]) is float


KILLED = """
import os, sqlite3, sys

connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA cache_size = 5")
connection.execute("BEGIN")
for number in range(2_000):
    connection.execute("INSERT INTO things VALUES (?, ?)", (str(number), '"' + "y" * 500 + '"'))
os._exit(1)
"""


def test_a_file_of_a_killed_agent_is_read_and_unchanged(file: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    journal = file.with_name(f"{file.name}-journal")
    before = file.read_bytes(), journal.read_bytes()
    assert before[1]
    with Store("sqlite://") as store:
        assert import_aea(store, file) == {"Others": 8, "things": 8}
        assert {id: decoded(body) for id, body in store["things"].list()} == BODIES
    assert (file.read_bytes(), journal.read_bytes()) == before


def test_a_damaged_file_imports_nothing(file: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(file)
    rows = [(f"more {number}", json.dumps("x" * 500)) for number in range(500)]
    connection.executemany("INSERT INTO things VALUES (?, ?)", rows)
    connection.execute('CREATE TABLE "no-name" (object_id TEXT, object_body JSON1)')
    connection.commit()
    connection.close()
    content = file.read_bytes()
    with Store("sqlite://") as store:
        for bad in (content[: len(content) // 2], content[:4096] + b"\xff" * 40_000):
            (tmp_path / "bad.db").write_bytes(bad)
            with pytest.raises(DatabaseError, match="damaged"):
                import_aea(store, tmp_path / "bad.db")
        (tmp_path / "bad.db").write_bytes(b"hello" * 1000)
        with pytest.raises(DatabaseUnavailable, match="no SQLite database"):
            import_aea(store, tmp_path / "bad.db")
        assert store.collections() == []
        assert import_aea(store, file) == {"Others": 8, "things": 508}  # and no other's table


def test_on_error_skips_documents_that_cannot_be_stored(file: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("INSERT INTO things VALUES ('bad', 'no JSON')")
    connection.commit()
    connection.close()
    cli = Cli((f"--url=sqlite:///{tmp_path / 'new.db'}",))
    assert cli("import-aea", str(file)).exit_code == 3
    done = cli("import-aea", str(file), "--skip-errors")
    assert "things.bad" in done.output  # Fetch.ai's version of click mixes stderr with stdout
    assert done.output.endswith(f"imported 16 documents of 2 collections from {file}, skipped 1\n")


def test_import_by_one_command(file: Path, tmp_path: Path) -> None:
    done = Cli()("import-aea", str(file), "--url", f"sqlite:///{tmp_path / 'new.db'}")
    assert done.exit_code == 0, done.output
    assert "imported 16 documents of 2 collections" in done.output
    with Store(f"sqlite:///{tmp_path / 'new.db'}") as store:
        assert store["things"].get("number") == 12


def test_the_command_of_the_page_imports_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = DOCS / "how-to" / "aea.md"
    [command] = [block.text for block in blocks(page) if "import-aea" in block.text]
    (tmp_path / "bot").mkdir()
    file.rename(tmp_path / "bot" / "generic_storage.db")
    monkeypatch.chdir(tmp_path / "bot")
    words = shlex.split(command)
    done = Cli()(*words[1:])
    assert (words[0], done.exit_code) == ("collections-store", 0), done.stderr
    with Store("sqlite:///agent.db") as store:
        assert store["things"].get("number") == 12


def test_only_the_import_works_without_aea() -> None:
    script = (
        "import sys; sys.modules['aea'] = None\n"
        "from collections_store.integrations.aea import import_aea\n"
        "try:\n    from collections_store.integrations.aea import Storage\n"
        "except ImportError as error:\n    print(type(error).__name__, error)"
    )
    command = [sys.executable, "-c", script]
    path = str(Path(__file__).parents[2])
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.stdout == (
        "MissingExtra open-aea is not installed: pip install 'collections-store[aea]'\n"
    )
