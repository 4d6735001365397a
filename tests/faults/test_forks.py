"""Forks with open stores: what a child may open, and that no acknowledged write is lost."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import AsyncStore, Store, StoreClosed
from collections_store.engine import workers as background

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),
]
PROGRAM = Path(__file__).with_name("forks.py")


def in_child(act: Callable[[], object]) -> str:
    """Return the result of a function in a forked child, or its exception."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = repr(act())
        except BaseException as error:  # noqa: BLE001 - it is reported to the parent
            answer = f"{type(error).__name__}: {error}"
        os.write(theirs, answer.encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours, "rb") as pipe:
        return pipe.read().decode()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def put(url: str, id: str) -> int:
    with Store(url) as store:
        return store["things"].put(id, 1)


def store_count(url: str) -> int:
    with Store(url) as store:
        return store["things"].count()


def play(folder: Path, rounds: int, seed: int) -> str:
    command = [sys.executable, str(PROGRAM), str(folder), str(rounds), str(seed)]
    limit = 60 + 3 * rounds
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_no_write_is_lost_in_any_order_of_closing(tmp_path: Path) -> None:
    assert play(tmp_path, 6, 1) == "acknowledged True, lost 0, failed 0\n"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_write_is_lost_in_hundreds_of_forks(tmp_path: Path) -> None:
    assert play(tmp_path, 450, 2) == "acknowledged True, lost 0, failed 0\n"


def play_engines(folder: Path, step: int) -> str:
    command = [sys.executable, str(PROGRAM.with_name("engine_forks.py")), str(folder), str(step)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "tests")))}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=environment
    )
    return done.stdout + done.stderr


def test_the_end_of_a_child_leaves_the_files_of_given_engines_alone(tmp_path: Path) -> None:
    assert play_engines(tmp_path, 19) == "acknowledged 608, lost 0, failed 0\n"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_end_of_any_child_leaves_the_files_of_given_engines_alone(tmp_path: Path) -> None:
    assert play_engines(tmp_path, 1) == "acknowledged 11264, lost 0, failed 0\n"


ENDING = """
import os, sys
import sqlalchemy as sa
from collections_store import Store

url, schema, kind = sys.argv[1:]
engine = sa.create_engine(url)
store = Store(engine=engine, schema=schema)
with engine.begin() if kind == "connection" else store.transaction() as given:
    tx = store.bind(given) if kind == "connection" else given
    tx["things"].put("a", 1)
    if not (child := os.fork()):
        sys.exit()
    os.waitpid(child, 0)
    tx["things"].put("b", 1)
print(store["things"].count())
"""


@pytest.mark.parametrize("kind", ["transaction", "connection"])
def test_the_end_of_a_child_leaves_transactions_of_given_engines_open(
    postgres_backend: Backend, kind: str
) -> None:
    url = postgres_backend.url.replace("postgresql:", "postgresql+psycopg:")
    command = [sys.executable, "-W", "ignore", "-c", ENDING, url]
    command += [postgres_backend.options["schema"], kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_given_engine_connects_again_in_a_child(postgres_backend: Backend) -> None:
    engine = sa.create_engine(postgres_backend.url.replace("postgresql:", "postgresql+psycopg:"))

    def process() -> object:
        with engine.connect() as connection:
            return connection.scalar(sa.text("SELECT pg_backend_pid()"))

    with Store(engine=engine, **postgres_backend.options) as store:
        store["things"].put("a", 1)
        ours = process()
        assert in_child(process) != repr(ours)
        assert process() == ours
    engine.dispose()


def test_a_connection_in_use_at_the_fork_commits_nothing_in_the_child(url: str) -> None:
    engine = sa.create_engine(url)
    with Store(engine=engine) as store, engine.begin() as connection:
        store.bind(connection)["things"].put("a", 1)
        assert "NoneType" in in_child(connection.commit)
        assert in_child(connection.rollback) == "None"
    assert store_count(url) == 1
    engine.dispose()


def test_the_copy_of_a_database_in_memory_is_left_to_the_child() -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with Store(engine=engine) as store:
        store["things"].put("a", 1)

        def count() -> object:
            with engine.connect() as connection:
                return connection.scalar(sa.text("SELECT count(*) FROM cs_1_things"))

        assert in_child(count) == "1"
    engine.dispose()


def test_a_child_opens_the_file_of_its_parent_with_locks_of_its_own(url: str) -> None:
    with Store(url) as store:
        store["things"].put("parent", 1)
        assert in_child(lambda: store["things"].get("parent")).startswith(StoreClosed.__name__)
        assert in_child(lambda: put(url, "child")) == "1"
        assert in_child(lambda: in_child(lambda: put(url, "grandchild"))) == "'1'"
        assert {document.id for document in store["things"].list()} == {
            "parent",
            "child",
            "grandchild",
        }


def test_a_store_open_at_the_fork_is_rejected_in_the_child(url: str, tmp_path: Path) -> None:
    with Store(url) as store, store.transaction() as tx:
        tx["things"].put("a", 1)
        answer = in_child(lambda: put(url, "b"))
        assert answer.startswith("DatabaseUnavailable: the SQLite file")
        assert "spawn or forkserver" in answer
        assert in_child(lambda: put(f"sqlite:///{tmp_path / 'other.db'}", "b")) == "1"
        assert "spawn" in in_child(lambda: in_child(lambda: put(url, "b")))
        tx["things"].put("c", 1)
    with Store(url) as store:
        assert [document.id for document in store["things"].list()] == ["a", "c"]
    assert in_child(lambda: put(url, "b")) == "1"


def test_a_file_opened_by_other_code_is_rejected_in_the_child(url: str, tmp_path: Path) -> None:
    put(url, "a")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("SELECT * FROM sqlite_master").fetchall()
        assert "spawn" in in_child(lambda: put(url, "b"))
        link = tmp_path / "link.db"
        link.symlink_to(tmp_path / "store.db")
        assert "spawn" in in_child(lambda: put(f"sqlite:///{link}", "b"))


def test_a_fork_waits_for_no_transaction_of_its_own_thread(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "FORK_TIMEOUT", 3600.0)
    with Store(url) as store, store.transaction() as tx:
        tx["things"].put("a", 1)
        assert "spawn" in in_child(lambda: put(url, "b"))


def test_a_fork_waits_for_no_transaction_of_its_event_loop(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "FORK_TIMEOUT", 3600.0)

    async def other() -> str:
        return in_child(lambda: put(url, "b"))

    async def main() -> str:
        async with AsyncStore(url) as store, store.transaction() as tx:
            await tx["things"].put("a", 1)
            return await asyncio.create_task(other())

    assert "spawn" in asyncio.run(main())


def test_a_fork_stops_waiting_for_another_thread(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FORK_TIMEOUT", 0.01)
    entered, leave = threading.Event(), threading.Event()
    with Store(url) as store:
        store["things"].put("a", 1)

        def hold() -> None:
            with store.transaction():
                entered.set()
                leave.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        entered.wait(60)
        assert "spawn" in in_child(lambda: put(url, "b"))
        leave.set()
        thread.join()
        assert in_child(lambda: put(url, "b")) == "1"


def test_a_fork_followed_by_exec_is_harmless(url: str) -> None:
    with Store(url) as store:
        for number in range(3):
            store["things"].put(str(number), number)
            subprocess.run(["true"], check=True, preexec_fn=lambda: None)
        with store.transaction() as tx:
            subprocess.run(["true"], check=True, preexec_fn=lambda: None)
            tx["things"].put("3", 3)
        assert store["things"].count() == 4


def test_the_exit_of_a_child_keeps_the_write_ahead_log(url: str, tmp_path: Path) -> None:
    script = f"""
import os, sys
from collections_store import Store
store = Store({url!r})
transaction = store.transaction()
tx = transaction.__enter__()
tx["things"].put("a", 1)
store["other"].count()
child = os.fork()
if not child:
    sys.exit()
os.waitpid(child, 0)
print(os.path.exists({str(tmp_path / "store.db-wal")!r}))
transaction.__exit__(None, None, None)
store.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    with Store(url) as store:
        assert store["things"].get("a") == 1


IMPORTING = """
import importlib.abc, os, sys, threading, time
from collections_store import Store

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "collections_store.sql.dialects.sqlite" and os.getpid() == parent:
            importing.set()
            time.sleep(0.2)

def open_store():
    with Store("sqlite://"):
        pass

parent, importing = os.getpid(), threading.Event()
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=open_store)
thread.start()
assert importing.wait(10)
child = os.fork()
open_store()
if not child:
    os._exit(0)
thread.join()
for _ in range(1000):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        sys.exit(status)
    time.sleep(0.01)
os.kill(child, 9)
sys.exit(1)
"""


def test_a_fork_waits_for_the_import_of_a_dialect(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", IMPORTING]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
