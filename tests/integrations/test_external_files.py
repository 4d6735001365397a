"""Files of other programs, in any state: they are read, or rejected with a clear error, and are not changed."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from unit.engine.test_sqlite_files import damage_schema

from collections_store import DatabaseBusy, DatabaseError, DatabaseUnavailable, Store
from collections_store.integrations import sqlite_files
from collections_store.integrations.aea import import_aea
from collections_store.integrations.sqlite_files import (
    ExternalFile,
    File,
    import_kdeps,
    import_opsdroid,
    read,
)


@dataclass(frozen=True)
class Program:
    """Another program: its table, and the function that imports it."""

    name: str
    table: str
    columns: str
    load: Callable[[Store, File], Any]

    def write(self, file: Path, rows: dict[Any, Any], *, wal: bool = False) -> sqlite3.Connection:
        """Write a file, and return its open connection."""
        connection = sqlite3.connect(file, isolation_level=None)
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"CREATE TABLE {self.table} ({self.columns})")
        self.add(connection, rows)
        return connection

    def add(self, connection: sqlite3.Connection, rows: dict[Any, Any]) -> None:
        words = f"INSERT INTO {self.table} VALUES (?, ?)"
        alone = not connection.in_transaction
        if alone:
            connection.execute("BEGIN")
        connection.executemany(words, [(key, json.dumps(value)) for key, value in rows.items()])
        if alone:
            connection.execute("COMMIT")

    def found(self, file: File) -> dict[str, Any]:
        """Return the content of a new store after the import."""
        with Store("sqlite://") as store:
            return self.imported(store, file)

    def imported(self, store: Store, file: File) -> dict[str, Any]:
        """Return the content of a store without other collections after the import."""
        self.load(store, file)
        [name] = [each.name for each in store.collections()]
        return {id.lstrip("/"): body for id, body in store[name].list()}

    def refused(self, file: File, error: type[Exception], match: str) -> None:
        """Check that nothing is imported, and that the error names the file and the problem."""
        with Store("sqlite://") as store:
            with pytest.raises(error, match=match) as failed:
                self.load(store, file)
            assert Path(file).name in str(failed.value)
            assert store.collections() == []


PROGRAMS = [
    Program(
        "opsdroid", "opsdroid", "key text PRIMARY KEY, data text",
        lambda store, file: import_opsdroid(store.memory("m"), file),
    ),
    Program(
        "kdeps", "memory", "key TEXT PRIMARY KEY, value TEXT NOT NULL",
        lambda store, file: import_kdeps(store.memory("m"), file),
    ),
    Program(
        "aea", "things", "object_id TEXT PRIMARY KEY, object_body JSON1 NOT NULL", import_aea
    ),
]  # fmt: skip


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.param
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a b?mode=rw#c%20d.db"


@pytest.mark.parametrize("wal", [False, True], ids=["journal", "wal"])
def test_reading_a_closed_file_leaves_no_other_file(
    program: Program, file: Path, *, wal: bool
) -> None:
    program.write(file, {"a": [1]}, wal=wal).close()
    before = contents(file.parent)
    assert program.found(file) == {"a": [1]}
    assert contents(file.parent) == before


def test_content_of_the_write_ahead_log_is_read(
    program: Program, file: Path, tmp_path: Path
) -> None:
    connection = program.write(file, {"a": [1]}, wal=True)
    connection.execute("PRAGMA wal_checkpoint")
    program.add(connection, {"b": [2]})
    assert program.found(file) == {"a": [1], "b": [2]}
    copy = tmp_path / "copy.db"
    for end in ("", "-wal"):
        shutil.copy(f"{file}{end}", f"{copy}{end}")
    connection.close()
    assert program.found(copy) == {"a": [1], "b": [2]}


def test_a_writer_does_not_block_in_wal_mode(program: Program, file: Path) -> None:
    connection = program.write(file, {"a": [1]}, wal=True)
    connection.execute("BEGIN IMMEDIATE")
    program.add(connection, {"b": [2]})
    assert program.found(file) == {"a": [1]}
    connection.execute("COMMIT")
    assert program.found(file) == {"a": [1], "b": [2]}
    connection.close()


def test_a_file_that_is_locked_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_files, "BUSY_TIMEOUT", 0.2)
    program = PROGRAMS[0]
    connection = program.write(file, {"a": [1]})
    connection.execute("BEGIN EXCLUSIVE")
    program.refused(file, DatabaseBusy, "is locked")
    connection.close()
    assert program.found(file) == {"a": [1]}


KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 2")
connection.execute("BEGIN")
for n in range(500):
    connection.execute(f"INSERT INTO {sys.argv[2]} VALUES (?, ?)", (f"n{n}", "7" * 500))
os._exit(9)
"""


def test_a_file_of_a_killed_program_is_read_from_a_copy(program: Program, file: Path) -> None:
    program.write(file, {"a": [1]}).close()
    subprocess.run([sys.executable, "-c", KILLED, str(file), program.table], check=False)
    before = contents(file.parent)
    assert len(before) == 2
    assert program.found(file) == {"a": [1]}
    assert contents(file.parent) == before


@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_a_damaged_file_is_an_error(program: Program, file: Path, damage: str) -> None:
    program.write(file, {f"key {n}": "x" * 300 for n in range(500)}).close()
    sound = file.read_bytes()
    half = len(sound) // 2
    bad = sound[:half] if damage == "cut off" else sound[:8192] + b"\xa5" * half
    file.write_bytes(bad)
    program.refused(file, DatabaseError, "malformed: the file is damaged")


def test_a_damaged_schema_is_an_error(program: Program, file: Path) -> None:
    program.write(file, {"key": 1}).close()
    damage_schema(file)
    program.refused(file, DatabaseError, "damaged")


def test_a_file_that_is_not_of_sqlite_is_an_error(program: Program, file: Path) -> None:
    program.refused(file, DatabaseUnavailable, "there is no SQLite file")
    program.refused(file.parent, DatabaseUnavailable, "there is no SQLite file")
    if hasattr(os, "mkfifo"):
        os.mkfifo(file.with_name("pipe"))
        program.refused(file.with_name("pipe"), DatabaseUnavailable, "there is no SQLite file")
    file.write_bytes(b"\0" * 16 + b"\xed\xda\x0c\xed" + b"\0" * 8000)  # like files of bbolt
    program.refused(file, DatabaseUnavailable, "the file is no SQLite database")


def test_a_file_is_read_in_one_snapshot(program: Program, file: Path) -> None:
    connection = program.write(file, {"a": [1]}, wal=True)

    def reader(external: ExternalFile) -> list[Any]:
        tables = external.tables()
        connection.execute(f"DROP TABLE {program.table}")
        connection.execute("CREATE TABLE another (x TEXT)")
        [table] = tables
        return [tables, external.tables(), external.rows(table, *sorted(external.columns(table)))]

    tables, again, rows = read(file, reader)
    assert tables == again == [program.table]
    assert len(rows) == 1
    connection.close()


def test_a_file_opened_meanwhile_is_read_again(program: Program, file: Path) -> None:
    """Without a log beside a file in WAL mode, SQLite opens it as immutable."""
    program.write(file, {"a": [1]}, wal=True).close()
    opened: list[sqlite3.Connection] = []
    seen: list[int] = []

    def reader(external: ExternalFile) -> int:
        if not opened:
            opened.append(sqlite3.connect(file, isolation_level=None))
            program.add(opened[0], {"b": [2]})
        seen.append(len(external.rows(program.table, *sorted(external.columns(program.table)))))
        return seen[-1]

    assert read(file, reader) == 2
    assert len(seen) == 2
    opened[0].close()


@pytest.fixture
def writing(program: Program, file: Path) -> Iterator[None]:
    """A thread that repeatedly opens the file, writes pairs of rows to it, and closes it."""
    program.write(file, {"a": [0], "b": [0]}, wal=True).close()
    done = threading.Event()
    key, value = (each.split()[0] for each in program.columns.split(", "))

    def write() -> None:
        n = 0
        while not done.is_set():
            n += 1
            connection = sqlite3.connect(file, timeout=30)
            words = f"UPDATE {program.table} SET {value} = ? WHERE {key} IN ('a', 'b')"
            connection.execute(words, (json.dumps([n]),))
            connection.commit()
            connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.usefixtures("writing")
def test_uncommitted_writes_are_not_read(program: Program, file: Path) -> None:
    with Store("sqlite://") as store:
        for _ in range(30):
            found = program.imported(store, file)
            assert found["a"] == found["b"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_suffices(program: Program, file: Path) -> None:
    program.write(file, {"a": [1]}, wal=True).close()
    file.parent.chmod(0o500)
    try:
        assert program.found(file) == {"a": [1]}
    finally:
        file.parent.chmod(0o700)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everywhere")
def test_an_unreadable_file_is_an_error(program: Program, file: Path) -> None:
    program.write(file, {"a": [1]}, wal=True).close()
    file.chmod(0)
    program.refused(file, DatabaseUnavailable, "unable to open database file")


TAKE_THE_FILE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0)
try:
    print(*connection.execute("PRAGMA journal_mode = DELETE").fetchone())
except sqlite3.OperationalError as error:
    print(error)
"""
"""Prints "database is locked" as long as another process holds its locks."""


@pytest.mark.parametrize("own", [True, False])
def test_a_file_open_in_this_process_keeps_its_locks(
    program: Program, file: Path, own: bool
) -> None:
    program.write(file, {"a": 1}, wal=True).close()
    url = sa.URL.create("sqlite", database=str(file))
    with Store(url) as store:
        store["more"].put("before", 1)
        if own:
            program.load(store, file)
        else:
            assert program.found(file) == {"a": 1}
        command = [sys.executable, "-c", TAKE_THE_FILE, str(file)]
        assert subprocess.check_output(command, text=True) == "database is locked\n"
        store["more"].put("after", 1)
    with Store(url) as store:
        assert store["more"].count() == 2
        assert len(store.collections()) == 1 + own
