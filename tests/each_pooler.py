"""The contract tests through transaction poolers: the tests' own one, and PgBouncer if it is installed.

`python tests/each_pooler.py …` gives its arguments to pytest.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import sqlalchemy as sa
from postgres_cluster import wait_until
from postgres_server import URL_VARIABLE, free_port, own_folder, postgres_server, spawn, stop
from transaction_pooler import POOLER_VARIABLE, TransactionPooler

LEFT_OUT = (
    *("engine", "caller", "counted", "many_rows", "more_rows", "expired_documents_by"),
    *("read_only_session", "bind_takes_a_connection", "collated_indexes", "stored_keys"),
    *("an_exhausted_pool_is", "a_mapped_class_queries", "bind_within_an_async"),
)
"""Parts of the names of tests that are left out: those with engines or connections of their own, for which psycopg prepares
statements, and those with options of the server in their URLs, which PgBouncer refuses.
"""
CHOSEN = " and ".join(["(postgresql or poolers)", *(f"not {each}" for each in LEFT_OUT)])
TESTS = ("-m", "pytest", "-k", CHOSEN, "tests/contract", "tests/faults/test_poolers.py")
CONFIGURATION = """
[databases]
* = host={host} port={server_port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
server_round_robin = 1
"""
"""Each transaction gets the connection of the server that was idle for longest."""


@contextmanager
def own_pooler(url: str) -> Iterator[str]:
    """Start the tests' pooler before a server, and yield its URL."""
    with TransactionPooler(url) as pooler:
        yield pooler.url


@contextmanager
def pgbouncer(url: str, program: str) -> Iterator[str]:
    """Start PgBouncer before a server, and yield its URL. It keeps no prepared statements."""
    server, port = sa.make_url(url), free_port()
    settings = {"host": server.host, "server_port": server.port or 5432, "port": port}
    text = CONFIGURATION.format(user=server.username, password=server.password, **settings)
    with tempfile.TemporaryDirectory(prefix="cs_pgbouncer_") as name:
        folder = Path(name)
        configuration = own_folder(folder) / "pgbouncer.ini"
        configuration.write_text(text + _without_statements(program))
        supervisor = spawn(folder, [program, str(configuration)])
        try:
            wait_until(lambda: "process up" in (folder / "log").read_text(), "PgBouncer starts")
            yield server.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        finally:
            stop(supervisor)


def _without_statements(program: str) -> str:
    """Return the line that turns prepared statements off, where PgBouncer has any."""
    command = [program, "--version"]
    version = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", version)
    has_statements = found is not None and tuple(map(int, found.groups())) >= (1, 21)
    return "max_prepared_statements = 0\n" if has_statements else ""


def main() -> int:
    """Run the tests; return the number of poolers through which they failed."""
    poolers: dict[str, Callable[[str], AbstractContextManager[str]]] = {"own": own_pooler}
    program = shutil.which("pgbouncer")
    if program is not None:
        poolers["PgBouncer"] = lambda url: pgbouncer(url, program)
    with postgres_server() as server:
        return sum(not _passes(name, server.url, pooler) for name, pooler in poolers.items())


def _passes(name: str, server: str, pooler: Callable[[str], AbstractContextManager[str]]) -> bool:
    with pooler(server) as url:
        print(f"-- {name}", flush=True)
        environment = os.environ | {URL_VARIABLE: server, POOLER_VARIABLE: url}
        command = (sys.executable, *TESTS, *sys.argv[1:])
        return subprocess.run(command, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
