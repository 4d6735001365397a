"""The locks of a database file that this process has open, after another use of its path."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cli.cli_process import Cli

from collections_store import CollectionsStoreError, InvalidOption, Store, migrate
from collections_store.integrations.sqlite_files import import_kdeps, import_opsdroid, read

_LOCKS = Path("/proc/locks")
pytestmark = pytest.mark.skipif(not _LOCKS.exists(), reason="only Linux lists the locks")
LOGS = ("", "-wal", "-shm")


def locks(live: Path) -> list[str]:
    """Return the locks of a database file and its logs. The file is read in parts: a lock may be in two."""
    inodes = {f":{path.stat().st_ino} " for end in LOGS if (path := Path(f"{live}{end}")).exists()}
    found = {each.partition(":")[2] for each in _LOCKS.read_text().splitlines()}
    return sorted(each for each in found if any(inode in each for inode in inodes))


def cli(command: str) -> Callable[[Store, str], object]:
    """Return a function that runs a command on another database in this process."""

    def run(_: Store, path: str) -> object:
        other = Path(path).parent / "cli.db"
        return Cli((f"--url=sqlite:///{other}",))(*command.replace("PATH", path).split())

    return run


def open_again(_: Store, path: str) -> None:
    with Store(f"sqlite:///{path}") as again:
        again.collections()


def copy_from(store: Store, path: str) -> None:
    with Store(f"sqlite:///{path}?mode=ro") as again:
        again.copy_to(store)


USES: dict[str, Callable[[Store, str], object]] = {
    "restore": lambda store, path: store.restore(path),
    "replace": lambda store, path: store.restore(path, replace=True),
    "restore nothing": lambda store, path: store.restore(path, ["nobody"]),
    "backup": lambda store, path: store.backup(path),
    "open": open_again,
    "copy": copy_from,
    "upgrade": lambda _, path: migrate.upgrade(f"sqlite:///{path}"),
    "read": lambda _, path: read(path, lambda file: file.rows("cs_collections", "name")),
    "opsdroid": lambda store, path: import_opsdroid(store.memory("bot"), path),
    "kdeps": lambda store, path: import_kdeps(store.memory("bot"), path),
    **{
        each: cli(each)
        for each in (
            "restore PATH",
            "backup PATH",
            "import PATH --collection a",
            "import PATH --collection a --format csv --id x",
            "import PATH --collection a --format tinydb",
            "export a PATH",
            "import-opsdroid PATH",
            "import-kdeps PATH",
            "copy --from sqlite:///PATH --to sqlite:///PATH.copy",
            "db current --url sqlite:///PATH",
        )
    },
}


@pytest.mark.parametrize("name", ["live.db", "live.jsonl"])
@pytest.mark.parametrize("use", USES)
def test_a_live_file_keeps_its_locks(tmp_path: Path, use: str, name: str) -> None:
    live = tmp_path / name
    with Store(f"sqlite:///{live}") as held, Store("sqlite://") as store:
        held["a"].put("x", 1)
        store["b"].put("y", 1)
        before, inode = locks(live), live.stat().st_ino
        assert len(before) >= 2
        for end in LOGS:
            with suppress(CollectionsStoreError, OSError):
                USES[use](store, f"{live}{end}")
            assert locks(live) == before
            assert live.stat().st_ino == inode
        held["a"].put("x", 2)
        assert held["a"].get("x") == 2


def test_a_store_is_restored_from_the_open_file_of_another(tmp_path: Path) -> None:
    live = tmp_path / "live.db"
    with Store(f"sqlite:///{live}") as held, Store("sqlite://") as store:
        held["a"].put("x", 1)
        assert [each.count for each in store.restore(live)] == [1]
        assert store["a"].get("x") == 1


@pytest.mark.parametrize("name", ["live.db", "live.jsonl"])
def test_no_backup_replaces_the_open_file_of_another_store(tmp_path: Path, name: str) -> None:
    live = tmp_path / name
    with Store(f"sqlite:///{live}") as held, Store("sqlite://") as store:
        held["a"].put("x", 1)
        with pytest.raises(InvalidOption, match="in use: name another file"):
            store.backup(live)
        assert held["a"].get("x") == 1
