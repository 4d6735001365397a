"""Files that are written beside others: what a killed writer, a full disk and concurrent writers leave."""

import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from backends import Backend
from cli.cli_process import Cli
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes

from collections_store import CopyProgress, Store
from collections_store.engine.backup.atomic_file import HAS_LOCKS

NAMES = ["a.jsonl", "a.jsonl.gz", "a.db"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store of 1 MB."""
    file = tmp_path / "stores" / "store.db"
    file.parent.mkdir()
    with Store(f"sqlite:///{file}") as store:
        store["a"].put_many({str(n): os.urandom(300).hex() for n in range(2000)})
    return file


@pytest.mark.skipif(not HAS_LOCKS, reason="no locks of open files")
@pytest.mark.parametrize("name", NAMES)
def test_the_next_backup_removes_what_a_killed_one_left(
    file: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / f".{name}.other").touch()
    process = start("back_up_until", Backend("", f"sqlite:///{file}"), folder / name, 1000)
    assert process.stdout is not None
    assert process.stdout.readline()
    with Store(f"sqlite:///{file}") as store:
        store.backup(folder / name)
        (folder / name).unlink()
        [part] = folder.glob("*.part")  # that of a writer that lives
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert part.exists()
        part.with_name(f"{part.name}-journal").touch()
        store.backup(folder / name)
    assert {each.name for each in folder.iterdir()} == {name, f".{name}.other"}


@pytest.mark.parametrize("name", NAMES)
def test_concurrent_backups_of_one_process_keep_their_files(
    file: Path, tmp_path: Path, name: str
) -> None:
    path, within = tmp_path / name, threading.Barrier(2)

    def report(progress: CopyProgress) -> None:
        if progress.done == progress.total:
            within.wait(30)  # both have a file

    def back_up() -> None:
        with Store(f"sqlite:///{file}") as store:
            store.backup(path, progress=report)

    thread = threading.Thread(target=back_up)
    thread.start()
    back_up()
    thread.join()
    with Store("sqlite://") as other:
        assert [each.count for each in other.restore(path)] == [2000]
    assert not list(tmp_path.glob(".*"))


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: as on a full disk, the system refuses to write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", NAMES)
def test_a_full_disk_is_an_error_with_the_path(file: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("before")
    with Store(f"sqlite:///{file}") as store:
        assert store["a"].count() == 2000
        with files_up_to(100_000), pytest.raises(OSError, match=name) as caught:
            store.backup(path)
        assert (caught.value.filename, caught.value.errno is None) == (str(path), False)
        assert store["a"].count() == 2000
    assert path.read_text() == "before"
    assert not list(tmp_path.glob(".*"))


def test_an_export_to_a_full_device_names_it(file: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no full device")
    cli = Cli((f"--url=sqlite:///{file}",))
    assert cli.fails(6, "export", "a", "/dev/full") == "'/dev/full': No space left on device"
