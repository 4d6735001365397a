"""SQLite files that are replaced, moved or deleted under an open store."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from collections_store import AsyncStore, DatabaseUnavailable, Store
from collections_store.engine.database_file import CHECK_EVERY


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database of one document, with a backup beside it."""
    file = tmp_path / "folder" / "store.db"
    file.parent.mkdir()
    with Store(f"sqlite:///{file}") as store:
        store["things"].put("backed up", 1)
    shutil.copyfile(file, tmp_path / "backup.db")
    return file


def rename_backup(file: Path) -> None:
    os.replace(file.parents[1] / "backup.db", file)  # noqa: PTH105


def remove_all_and_copy(file: Path) -> None:
    for each in list(file.parent.iterdir()):
        each.unlink()
    shutil.copyfile(file.parents[1] / "backup.db", file)


def copy_in_place_and_remove_log(file: Path) -> None:
    shutil.copyfile(file.parents[1] / "backup.db", file)
    for end in ("-wal", "-shm"):
        Path(f"{file}{end}").unlink()


def move_and_rename_backup(file: Path) -> None:
    for end in ("", "-wal", "-shm"):
        os.replace(f"{file}{end}", f"{file}.old{end}")  # noqa: PTH105
    rename_backup(file)


def move(file: Path) -> None:
    file.rename(file.with_name("moved.db"))


def delete(file: Path) -> None:
    file.unlink()


def delete_all(file: Path) -> None:
    shutil.rmtree(file.parent)
    file.parent.mkdir()


def move_folder(file: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))


def beneath(file: Path, change: Callable[[Path], None]) -> None:
    change(file)
    time.sleep(2 * CHECK_EVERY)


READ_FILE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(*connection.execute("PRAGMA integrity_check").fetchone())
for id, in connection.execute("SELECT id FROM cs_1_things"): print(id)
"""


def look_into(file: Path) -> list[str]:
    """Return the integrity of a file and its ids, read in another process: this one may not open it again."""
    return subprocess.check_output(
        [sys.executable, "-c", READ_FILE, str(file)], text=True
    ).splitlines()


RESTORES = [
    rename_backup,
    remove_all_and_copy,
    copy_in_place_and_remove_log,
    move_and_rename_backup,
]
REMOVALS = [delete, delete_all, move, move_folder]


@pytest.mark.parametrize("puts", [5, 300])
@pytest.mark.parametrize("restore", RESTORES)
def test_a_backup_restored_under_an_open_store_stays_intact(
    file: Path, restore: Callable[[Path], None], puts: int
) -> None:
    with Store(f"sqlite:///{file}") as store:
        for number in range(puts):
            store["things"].put(str(number), number)
        beneath(file, restore)
        before = file.read_bytes()
        for _ in range(2):
            with pytest.raises(
                DatabaseUnavailable, match=r"store\.db': it(s -wal)? .*was .*replaced"
            ):
                store["things"].put("late", 1)
        with pytest.raises(DatabaseUnavailable):
            store["things"].get("late")
    assert file.read_bytes() == before
    assert look_into(file) == ["ok", "backed up"]


def test_a_backup_is_intact_while_the_store_is_open(file: Path) -> None:
    with Store(f"sqlite:///{file}") as store:
        for number in range(300):
            store["things"].put(str(number), number)
        beneath(file, rename_backup)
        with pytest.raises(DatabaseUnavailable):
            store["things"].put("late", 1)
        assert look_into(file) == ["ok", "backed up"]
    assert look_into(file) == ["ok", "backed up"]


@pytest.mark.parametrize("remove", REMOVALS)
def test_no_second_file_is_created(file: Path, remove: Callable[[Path], None]) -> None:
    with Store(f"sqlite:///{file}") as store:
        store["things"].put("a", 1)
        beneath(file, remove)
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable, match="replaced, moved or deleted") as caught:
                store["things"].put("b", 1)
            assert caught.value.is_final
            assert not caught.value.in_doubt
        with pytest.raises(DatabaseUnavailable):
            store["things"].list()
    assert not file.exists()


def test_a_transaction_is_not_committed_to_a_file_that_was_replaced(file: Path) -> None:
    with Store(f"sqlite:///{file}") as store:
        with pytest.raises(DatabaseUnavailable, match="replaced"), store.transaction() as tx:
            tx["things"].put("a", 1)
            beneath(file, move_and_rename_backup)
        with pytest.raises(DatabaseUnavailable, match="replaced"):
            store.run_transaction(lambda tx: tx["things"].put("a", 1))
    with Store(f"sqlite:///{file}.old") as store:
        assert store["things"].get("a") is None
    with Store(f"sqlite:///{file}") as store:
        assert [document.id for document in store["things"].list()] == ["backed up"]


def test_a_moved_file_keeps_acknowledged_writes(file: Path) -> None:
    with Store(f"sqlite:///{file}") as store:
        for number in range(20):
            store["things"].put(str(number), number)
        beneath(file, move)
        with pytest.raises(DatabaseUnavailable):
            store["things"].put("late", 1)
    assert len(look_into(file.with_name("moved.db"))) == 2 + 20


def test_the_log_of_a_replaced_file_is_emptied_after_a_reader(file: Path) -> None:
    with Store(f"sqlite:///{file}") as store:
        store["things"].put("a", 1)
        with closing(
            sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        ) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM sqlite_master").fetchall()
            store["things"].put("b", 1)  # the reader sees the file without it
            rename_backup(file)
            time.sleep(2 * CHECK_EVERY)
            end = threading.Timer(0.02, reader.execute, ["ROLLBACK"])
            end.start()
            with pytest.raises(DatabaseUnavailable, match="replaced"):
                store["things"].put("c", 1)
            assert Path(f"{file}-wal").stat().st_size == 0
            end.join()


def test_async_writes_to_a_replaced_file_are_rejected(file: Path) -> None:
    async def main() -> None:
        async with AsyncStore(f"sqlite:///{file}") as store:
            await asyncio.gather(*(store["things"].put(str(n), n) for n in range(20)))
            beneath(file, rename_backup)
            puts = [store["things"].put(f"late {n}", n) for n in range(20)]
            for found in await asyncio.gather(*puts, return_exceptions=True):
                assert isinstance(found, DatabaseUnavailable)

    asyncio.run(main())


def test_a_lost_log_does_not_overwrite_another_file(file: Path) -> None:
    store = Store(f"sqlite:///{file}")
    store["things"].put("a", 1)
    copy_in_place_and_remove_log(file)
    before = file.read_bytes()
    store.close()  # the first chance to detect it
    assert file.read_bytes() == before
    with Store(f"sqlite:///{file}") as other, pytest.raises(DatabaseUnavailable, match="-wal file"):
        other["things"].put("b", 1)


def test_a_changed_symbolic_link_is_detected(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(file)
    with Store(f"sqlite:///{link}") as store:
        store["things"].put("a", 1)
        link.unlink()
        link.symlink_to(tmp_path / "backup.db")
        time.sleep(2 * CHECK_EVERY)
        with pytest.raises(DatabaseUnavailable, match="replaced"):
            store["things"].put("b", 1)


def test_immutable_files_are_read_without_a_log(file: Path) -> None:
    with Store(f"sqlite:///{file}?immutable=1") as store:
        assert store["things"].count() == 1
        for _ in range(2):
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("SELECT * FROM sqlite_master").fetchall()
                time.sleep(2 * CHECK_EVERY)
                assert store["things"].count() == 1
            time.sleep(2 * CHECK_EVERY)
            assert store["things"].count() == 1


def test_other_users_of_the_file_are_not_a_replacement(file: Path) -> None:
    with Store(f"sqlite:///{file}") as store:
        for number in range(3):
            store["things"].put(str(number), 1)
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.execute("VACUUM")
            time.sleep(2 * CHECK_EVERY)
        assert store["things"].count() == 4
