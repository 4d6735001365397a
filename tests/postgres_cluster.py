"""Clusters of PostgreSQL servers: a primary, and standbys that stream from it. Tests kill, stop, freeze and promote them.

The data is initialised once; each node begins with a copy of it. A node keeps its port and its folder when it is started
again. Each server is the child of a supervisor of `postgres_server`, so that none outlives the tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from postgres_server import (
    create_database,
    free_port,
    is_ready,
    local_binaries,
    send_all,
    server_command,
    spawn,
    stop,
)

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds for which a condition is waited for: a test that waits as long has failed."""


def wait_until(condition: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """Call a function until its result is true; return the result."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} seconds"
        time.sleep(0.02)
    return found


class Node:
    """A server of a cluster."""

    def __init__(self, name: str, folder: Path, binaries: Path, password: str) -> None:
        self.name, self.port = name, free_port()
        self._folder, self._binaries, self._password = folder, binaries, password
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the superuser."""
        return f"postgresql://postgres:{self._password}@{self.address}/postgres"

    @property
    def _data(self) -> Path:
        return self._folder / "run" / "data"

    def start(self, primary: Node | None = None) -> None:
        """Start the server, as a standby of another one or as a primary."""
        signal_file = self._data / "standby.signal"
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # of a server that was killed
        settings = []
        if primary is None:
            signal_file.unlink(missing_ok=True)
        else:
            signal_file.touch()
            owner = self._data.stat()
            os.chown(signal_file, owner.st_uid, owner.st_gid)
            source = f"host=127.0.0.1 port={primary.port} user=postgres password={self._password}"
            settings = [f"primary_conninfo={source} application_name={self.name}"]
        run = self._folder / "run"
        self._supervisor = spawn(
            self._folder, server_command(self._binaries, run, self.port, *settings)
        )
        assert is_ready(self._supervisor, run), (self._folder / "log").read_text(errors="replace")

    def _signal(self, number: int) -> None:
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        if number in {signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT}:
            send_all(number, pid)
        else:
            os.kill(pid, number)

    def _wait(self) -> None:
        assert self._supervisor is not None
        self._supervisor.wait(PATIENCE)
        stop(self._supervisor)  # closes the pipe

    def kill(self) -> None:
        """End the server as a power cut would: it tells nobody."""
        self._signal(signal.SIGKILL)
        self._wait()

    def shut_down(self) -> None:
        """Stop the server as `pg_ctl stop -m fast` does: it ends its sessions, and sends all it wrote to its standbys."""
        self._signal(signal.SIGINT)
        self._wait()

    def freeze(self) -> None:
        """Stop all processes of the server: clients can connect, and get no answer."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._signal(signal.SIGCONT)

    def promote(self) -> None:
        """Make a standby the primary, as `pg_ctl promote` does, and wait until it is."""
        assert self.query("SELECT pg_promote(true, 60)") == [(True,)]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, which commits by itself."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def synchronise_with(self, *standbys: Node) -> None:
        """Let each commit wait for these standbys; with none, for none."""
        names = ", ".join(standby.name for standby in standbys)
        self.query(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.query("SELECT pg_reload_conf()")
        state = "sync" if standbys else "async"
        wait_until(
            lambda: {(state,)} >= {*self.query("SELECT sync_state FROM pg_stat_replication")},
            f"the standbys of {self.name} are {state}",
        )

    def wait_for(self, standby: Node) -> None:
        """Wait until a standby has replayed all that this server has written."""
        [(position,)] = self.query("SELECT pg_current_wal_lsn()::text")
        reached = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        wait_until(lambda: standby.query(reached) == [(True,)], f"{standby.name} is up to date")

    def end(self) -> None:
        """End the server, whatever its state."""
        if self._supervisor is not None:
            stop(self._supervisor)


class Cluster:
    """Servers that begin with the same data."""

    def __init__(self, folder: Path, template: Template) -> None:
        self._folder, self._template = folder, template
        self.nodes: list[Node] = []

    def add(self, primary: Node | None = None) -> Node:
        """Start another server, as a standby of one of the others or as the primary."""
        name = f"node{len(self.nodes)}"
        folder = self._folder / name
        subprocess.run(["cp", "-a", self._template.folder, folder], check=True)
        node = Node(name, folder, self._template.binaries, self._template.password)
        self.nodes.append(node)
        node.start(primary)
        return node

    @property
    def url(self) -> str:
        """The URL of all nodes."""
        hosts = "&".join(f"host={node.address}" for node in self.nodes)
        return f"postgresql://postgres:{self._template.password}@/postgres?{hosts}"


class Template:
    """The data of a new server, and the programs."""

    def __init__(self, root: Path) -> None:
        self.binaries = local_binaries(root)
        self.folder = root / "template"
        self.folder.mkdir()
        root.chmod(0o755)
        self.password = create_database(self.folder, self.binaries, "--wal-segsize=1")


@contextmanager
def template() -> Iterator[Template]:
    """Return the context that initialises the data; raises `NoPostgres`."""
    root = Path(tempfile.mkdtemp(prefix="cs_pg_"))
    try:
        yield Template(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def cluster(data: Template) -> Iterator[Cluster]:
    """Return the context of a cluster without nodes; all are ended with it."""
    folder = Path(tempfile.mkdtemp(prefix="cluster_", dir=data.folder.parent))
    folder.chmod(0o755)
    nodes = Cluster(folder, data)
    try:
        yield nodes
    finally:
        for node in nodes.nodes:
            node.end()
        shutil.rmtree(folder, ignore_errors=True)
