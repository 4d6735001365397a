"""SQLite files: paths and options in URLs, and file modes."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from forked import Forked

from collections_store import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    Indexed,
    InvalidBackup,
    InvalidUrl,
    Store,
    migrate,
)
from collections_store.engine import database_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database of one document."""
    file = tmp_path / "store.db"
    with Store(f"sqlite:///{file}") as store:
        store["things"].put("a", 1)
    return file


@pytest.fixture(autouse=True)
def all_may_read() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")
def test_a_new_file_and_its_logs_are_private(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/store.db") as store:
        store["things"].put("a", 1)
        assert len(list(tmp_path.iterdir())) == 3
        assert modes(tmp_path) == {0o600}
    migrate.upgrade(f"sqlite:///{tmp_path}/other.db")
    assert modes(tmp_path) == {0o600}


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")
def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch(0o640)
    with Store(f"sqlite:///{tmp_path}/store.db") as store:
        store["things"].put("a", 1)
        assert modes(tmp_path) == {0o640}


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_a_dangling_link_gets_its_file(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("store.db")
    with Store(f"sqlite:///{tmp_path}/link.db") as store:
        store["things"].put("a", 1)
    assert {each.name for each in tmp_path.iterdir()} == {"link.db", "store.db"}
    assert modes(tmp_path) == {0o600}


def damage_schema(file: Path) -> None:
    """Put bytes into the schema that are not UTF-8, which SQLite quotes in its errors."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("CREATE TABLE IF NOT EXISTS other (x)")
        broken = "name = CAST(x'7aff' AS TEXT), sql = CAST(x'435245415445ff' AS TEXT)"
        connection.execute(f"UPDATE sqlite_master SET {broken} WHERE name = 'other'")
        connection.commit()


def test_a_damaged_schema_is_an_error_that_names_the_file(file: Path) -> None:
    damage_schema(file)
    engine = sa.create_engine(f"sqlite:///{file}")
    for store in (Store(f"sqlite:///{file}"), Store(engine=engine)):
        with store, pytest.raises(DatabaseError, match=r"store\.db': the file is damaged"):
            store["things"].get("a")
    engine.dispose()
    for function in (migrate.upgrade, migrate.current):
        with pytest.raises(DatabaseError, match=r"store\.db': the file is damaged"):
            function(f"sqlite:///{file}")
    with Store("sqlite://") as other, pytest.raises(InvalidBackup, match=r"store\.db.*damaged"):
        other.restore(file)


def test_text_that_is_not_utf_8_is_an_error_without_the_text(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE cs_1_things SET body = CAST(x'22736563726574ff22' AS TEXT)")
        connection.commit()
    with Store(f"sqlite:///{file}") as store:
        for read in (lambda: store["things"].get("a"), store["things"].list):
            with pytest.raises(DatabaseError, match=r"store\.db': text is not UTF-8") as caught:
                read()
            assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b.db", "a%20b.db", "a?b.db", "a#b.db", "ä.db", "file:x.db"])
def test_paths_are_not_uris(tmp_path: Path, name: str) -> None:
    for number in range(2):
        with Store(sa.URL.create("sqlite", database=str(tmp_path / name))) as store:
            assert store["things"].put("a", 1) == number + 1
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("more", ["", "&uri=true"])
@pytest.mark.parametrize("option", ["mode=ro", "immutable=1"])
def test_read_only_file(file: Path, option: str, more: str) -> None:
    before = file.read_bytes()
    name = f"file:{file}" if more else file
    with Store(f"sqlite:///{name}?{option}{more}") as store:
        assert store["things"].get("a") == 1
        with pytest.raises(DatabaseError, match="read-only"):
            store["things"].put("a", 2)
    assert file.read_bytes() == before


def read_without_privileges(connection: Connection, url: str) -> None:
    """Send the result of a read, or its error, as a user who may not write to what is read-only: root may."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    with Store(url) as store:
        try:
            connection.send(store["things"].get("a"))
        except DatabaseError as error:
            connection.send(str(error))


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")
@pytest.mark.parametrize("option", ["", "?mode=ro"])
def test_a_read_in_a_read_only_folder_explains_what_to_do(option: str) -> None:
    with TemporaryDirectory(dir="/tmp") as folder:  # others may not enter the folders of pytest
        file = Path(folder, "store.db")
        with Store(f"sqlite:///{file}") as store:
            store["things"].put("a", 1)
        file.chmod(0o444)
        Path(folder).chmod(0o555)
        readers = [
            Forked(read_without_privileges, f"sqlite:///{file}{each}")
            for each in (option, "?immutable=1")
        ]
        refused, read = [each.connection.recv() for each in readers]
        for each in readers:
            each.end()
        Path(folder).chmod(0o700)
    assert read == 1
    assert "also to read, and the folder is read-only" in refused
    assert "?immutable=1" in refused


@pytest.mark.parametrize("option", ["mode=ro", "mode=rw", "immutable=1"])
def test_mode_rw_creates_no_file(tmp_path: Path, option: str) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db?{option}")
    with store, pytest.raises(DatabaseUnavailable, match="unable to open"):
        store["things"].put("a", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "option", ["mode=rwc", "mode=rw", "cache=shared", "cache=private", "psow=0"]
)
def test_other_options_of_sqlite(file: Path, option: str) -> None:
    with Store(f"sqlite:///{file}?{option}") as store:
        store["things"].put("b", 1)
        assert store["things"].count() == 2


def test_the_vfs_is_passed_on(file: Path) -> None:
    store = Store(f"sqlite:///{file}?vfs=nope")
    with store, pytest.raises(DatabaseError, match="no such vfs: nope"):
        store["things"].get("a")


def test_memory_by_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store("sqlite:///store.db?mode=memory") as store:
        store["things"].put("a", 1)
        assert store["things"].get("a") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("timeout=abc", "takes the options cache, .*got 'timeout'"),
        ("busy_timeout=3", "busy_timeout, are arguments of the store"),
        ("attach=dialogues", "got 'attach'"),
        ("mode=x", "'mode' of an SQLite URL must be one of ro, rw, rwc, memory, got 'x'"),
        ("immutable=2", "must be one of 1, true"),
        ("mode=ro&mode=rw", "got .'ro', 'rw'.$"),
        ("vfs=a&vfs=b", "must be given once"),
    ],
)
def test_unknown_options_are_rejected(option: str, message: str) -> None:
    with pytest.raises(InvalidUrl, match=message):
        Store(f"sqlite:///store.db?{option}")


def test_path_with_nul() -> None:
    with pytest.raises(InvalidUrl, match="NUL"):
        Store(sa.URL.create("sqlite", database="a\0b"))


def test_relative_paths_are_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with Store("sqlite:///store.db", pool_size=2) as store:
        store["things"].put("a", 1)
        monkeypatch.chdir(tmp_path / "other")
        with store.transaction() as tx:
            tx["things"].put("b", 1)
            assert store["things"].count() == 1
    assert not list((tmp_path / "other").iterdir())
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_first_write_creates_the_tables(tmp_path: Path) -> None:
    """A read of a new file leaves the file empty."""
    file = tmp_path / "store.db"
    with Store(f"sqlite:///{file}") as store, Store(f"sqlite:///{file}") as other:
        assert store["things"].get("a") is None
        assert file.stat().st_size == 0
        other["things"].put("a", 1)
        assert store["things"].get("a") == 1


def test_what_is_declared_already_needs_no_writer(file: Path) -> None:
    @dataclass
    class Thing:
        n: Annotated[int, Indexed()]

    declarations: list[tuple[Any, dict[str, Any]]] = [
        ("log", {"ttl": 60}),
        (Thing, {}),
        ("old", {"schema_version": 2, "upgrades": {1: dict}}),
    ]
    with Store(f"sqlite:///{file}") as store:
        for name, settings in declarations:
            store.collection(name, **settings)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with Store(f"sqlite:///{file}", busy_timeout=0.2) as store:
            for name, settings in declarations:
                assert store.collection(name, **settings).count() == 0
            with pytest.raises(DatabaseBusy):
                store.collection("log", ttl=61)


def test_a_process_that_opens_many_files_remembers_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered: dict[str, float] = {}
    monkeypatch.setattr(database_file, "_valid_until", remembered)
    monkeypatch.setattr(database_file, "MOST_PATHS", 3)
    for n in range(8):
        engine = sa.create_engine(f"sqlite:///{tmp_path / f'{n}.db'}")
        with Store(engine=engine) as store:
            store["things"].put("a", n)
        engine.dispose()
    assert 0 < len(remembered) <= 3
