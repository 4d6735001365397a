"""Commands in new processes: pipes, signals, terminals, missing packages."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import COMMAND, Cli, cli_for, error_line, process_environment, spawn
from selection import sampled

POSIX = pytest.mark.skipif(os.name == "nt", reason="signals, /dev and terminals of POSIX")
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
from collections_store.cli import main
main()
"""


def buffered(*commands: tuple[str, ...]) -> list[Any]:
    """Return commands with and without buffers of their output; each once, unless `--whole-matrix` is given."""
    pairs = list(product([{}, {"PYTHONUNBUFFERED": "1"}], commands))
    return pairs[:: sampled(2)]


@pytest.fixture
def sqlite(tmp_path: Path) -> Cli:
    cli = Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))
    cli.done("put", "a", "first", '{"n": 1}')
    return cli


def many(cli: Cli, collection: str, count: int) -> None:
    lines = (json.dumps({"n": n, "text": "x" * 100}) + "\n" for n in range(count))
    cli.done("import", collection, "--id", "n", input="".join(lines))


def wait_for(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_export_piped_into_import(shared_backend: Backend, tmp_path: Path) -> None:
    cli = cli_for(shared_backend)
    for id, body in {"null": "null", "one": "1", "text": '"ü"', "deep": '{"a":[{}]}'}.items():
        cli.done("put", "a", id, body)
    many(cli, "a", 3000)
    words = [shlex.join(cli.command(*words)) for words in (("export", "a"), ("import", "b"))]
    done = spawn(["sh", "-c", " | ".join(words)], cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == b""
    assert done.stderr == b"imported 3,004 documents into b\n"
    assert cli.documents("a") == cli.documents("b")


def test_a_collection_can_be_exported_into_itself(sqlite: Cli, tmp_path: Path) -> None:
    many(sqlite, "a", 3000)
    words = [shlex.join(sqlite.command(*words)) for words in (("export", "a"), ("import", "a"))]
    assert spawn(["sh", "-c", " | ".join(words)], cwd=tmp_path).returncode == 0
    assert sqlite.done("find", "a", "--count") == "3001\n"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    cli = Cli((f"--url=sqlite:///{tmp_path_factory.mktemp('large') / 'one.db'}",))
    many(cli, "a", 5000)
    cli.done("put", "a", "l", input=json.dumps("x" * 15_000_000))
    return cli


@pytest.mark.parametrize(
    ("buffered", "command"),
    buffered(("export", "a"), ("list", "a"), ("get", "a", "l"), ("list", "a", "--output=table")),
)
def test_a_closed_output_pipe(
    large: Cli, tmp_path: Path, command: tuple[str, ...], buffered: dict[str, str]
) -> None:
    process = subprocess.Popen(
        large.command(*command),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=process_environment(**buffered),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 141


@POSIX
@pytest.mark.parametrize(
    ("buffered", "command"), buffered(("get", "a", "first"), ("export", "a"), ("collections",))
)
def test_unwritable_output(
    sqlite: Cli, tmp_path: Path, command: tuple[str, ...], buffered: dict[str, str]
) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    words = shlex.join(sqlite.command(*command))
    done = spawn(["sh", "-c", f"{words} > /dev/full"], cwd=tmp_path, environment=buffered)
    assert done.returncode == 6
    assert "No space left" in error_line(done.stderr.decode())


@POSIX
@pytest.mark.parametrize(
    "command", [("get", "a", "first"), ("list", "a", "--output=table"), ("stats", "a"), ("--help",)]
)
def test_closed_output(sqlite: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    done = spawn(["sh", "-c", f"{shlex.join(sqlite.command(*command))} >&-"], cwd=tmp_path)
    assert done.returncode == 6
    assert error_line(done.stderr.decode()).startswith("standard output: ")


@POSIX
def test_closed_streams_that_a_command_needs_not(sqlite: Cli, tmp_path: Path) -> None:
    words = shlex.join(sqlite.command("put", "a", "second", '{"n": 2}'))
    assert spawn(["sh", "-c", f"{words} <&- >&-"], cwd=tmp_path).returncode == 0
    assert sqlite.documents("a") == {"first": {"n": 1}, "second": {"n": 2}}
    words = shlex.join(sqlite.command("import", "a"))
    done = spawn(["sh", "-c", f"{words} <&-"], cwd=tmp_path)
    assert done.stderr == b"imported 0 documents into a\n"


@POSIX
@pytest.mark.parametrize(
    ("command", "returncode"),
    [
        (("export", "a"), 0),
        (("import", "in.jsonl", "--collection", "b"), 0),
        (("backup", "a.backup"), 0),
        (("copy", "--to", "sqlite:///copy.db"), 0),
        (("db", "upgrade"), 0),
        (("find", "none"), 1),
        (("find",), 2),
    ],
)
def test_a_closed_stream_of_errors(
    sqlite: Cli, tmp_path: Path, command: tuple[str, ...], returncode: int
) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": "x", "body": 1}\n')
    done = spawn(["sh", "-c", f"{shlex.join(sqlite.command(*command))} 2>&-"], cwd=tmp_path)
    assert done.returncode == returncode


@POSIX
def test_ctrl_c_keeps_complete_batches(sqlite: Cli, tmp_path: Path) -> None:
    process = subprocess.Popen(
        sqlite.command("import", "t", "--id", "n", "--batch-size", "10"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=process_environment(),
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"".join(b'{"n": %d}\n' % n for n in range(35)))
    process.stdin.flush()

    def count() -> str:
        return sqlite("find", "t", "--count").stdout

    wait_for(lambda: count() == "30\n")
    process.send_signal(signal.SIGINT)
    message = error_line(process.stderr.read().decode())
    assert process.wait(30) == 130
    assert message == "interrupted; nothing of this batch was imported, 30 documents before it were"
    assert count() == "30\n"
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.stderr.close()


@POSIX
def test_ctrl_c_in_other_commands(sqlite: Cli, tmp_path: Path) -> None:
    process = subprocess.Popen(
        sqlite.command("put", "a", "b"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=process_environment(),
    )
    assert process.stdin is not None
    process.stdin.write(
        b'"' + b"x" * 10_000_000
    )  # more than the buffer of a pipe: the command is reading
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == b"Error: interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra(tmp_path: Path, package: str) -> None:
    code = BLOCKER.format(package=package)
    for arguments in [["--help"], ["list", "x"], []][:: sampled(2)]:
        done = spawn([sys.executable, "-c", code, *arguments], cwd=tmp_path)
        assert done.returncode == 7
        message = error_line(done.stderr.decode())
        assert message == f"{package} is not installed: pip install 'collections-store[cli]'"
        assert done.stdout == b""


def test_without_the_postgresql_extra(tmp_path: Path) -> None:
    code = BLOCKER.format(package="psycopg")
    url = "--url=postgresql://u:secret@127.0.0.1:1/x"
    for command in [["list", "x"], ["db", "current"], ["info"]][:: sampled(2)]:
        done = spawn([sys.executable, "-c", code, url, *command], cwd=tmp_path)
        assert done.returncode == 7
        message = error_line(done.stderr.decode())
        assert "pip install 'collections-store[postgresql]'" in message


def test_the_module_and_the_variable(tmp_path: Path) -> None:
    variable = {"COLLECTIONS_STORE_URL": "sqlite:///variable.db"}
    done = spawn(
        [*COMMAND, "put", "t", "a"], cwd=tmp_path, input='"ü"'.encode(), environment=variable
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert [path.name for path in tmp_path.glob("*.db")] == ["variable.db"]
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = spawn([*COMMAND, "get", "t", "a"], cwd=tmp_path, environment=variable | ascii_only)
    assert (done.returncode, done.stdout) == (0, '"ü"\n'.encode())
    for output in ("jsonl", "table"):
        command = [*COMMAND, "list", "t", "--output", output]
        done = spawn(command, cwd=tmp_path, environment=variable | ascii_only)
        assert (done.returncode, done.stderr) == (0, b"")
        assert '"ü"' in done.stdout.decode()


@POSIX
def test_arguments_that_are_not_utf8(sqlite: Cli, tmp_path: Path) -> None:
    wrong = os.fsencode("\udcff")
    for words in (
        (b"put", b"a", wrong, b"1"),
        (b"put", wrong, b"a", b"1"),
        (b"put", b"a", b"b", wrong),
    ):
        command = [os.fsencode(word) for word in sqlite.command()] + list(words)
        done = subprocess.run(
            command, cwd=tmp_path, env=process_environment(), capture_output=True, check=False
        )
        assert done.returncode == 3, done.stderr
        error_line(done.stderr.decode())


@POSIX
def test_drop_asks_on_a_terminal(sqlite: Cli, tmp_path: Path) -> None:
    assert on_terminal(sqlite.command("drop", "a"), b"n\n", tmp_path)[0] == 1
    assert on_terminal(sqlite.command("drop", "a"), b"\x04", tmp_path)[0] == 1
    assert on_terminal(sqlite.command("drop", "a"), b"\x03", tmp_path)[0] == 130
    assert list(sqlite.documents("a")) == ["first"]
    code, shown = on_terminal(sqlite.command("drop", "a"), b"y\n", tmp_path)
    assert code == 0
    assert "Delete a with its 1 document? [y/N]" in shown
    assert sqlite.done("collections") == ""


@POSIX
def test_delete_asks_on_a_terminal(sqlite: Cli, tmp_path: Path) -> None:
    command = sqlite.command("delete", "a", '{"n": 1}')
    assert on_terminal(command, b"n\n", tmp_path)[0] == 1
    assert on_terminal(command, b"\x03", tmp_path)[0] == 130
    assert list(sqlite.documents("a")) == ["first"]
    code, shown = on_terminal(command, b"y\n", tmp_path)
    assert code == 0
    assert "Delete 1 document of a? [y/N]" in shown
    assert sqlite.documents("a") == {}


@POSIX
def test_a_terminal_gets_a_table_and_a_progress_bar(sqlite: Cli, tmp_path: Path) -> None:
    code, shown = on_terminal(sqlite.command("collections"), b"", tmp_path)
    assert code == 0
    assert "│ a " in shown
    sqlite.done("index", "create", "a", "n:-1")
    code, shown = on_terminal(sqlite.command("index", "list", "a"), b"", tmp_path)
    assert code == 0
    assert "│ n:-1 " in shown
    lines = b"".join(b'{"n": %d}\n' % n for n in range(3000)) + b"bad\n"
    (tmp_path / "input").write_bytes(lines)
    command = sqlite.command("import", "input", "-c", "t", "--id", "n", "--skip-errors")
    code, shown = on_terminal(command, b"", tmp_path)
    assert code == 0
    assert "3,000 documents" in shown
    assert "100%" in shown
    assert "skipped 'input', line 3001: not JSON" in shown.replace("\r\n", "\n")
    assert "imported 3,000 documents into t, skipped 1 document" in shown
    code, shown = on_terminal(sqlite.command("export", "t", "out.jsonl"), b"", tmp_path)
    assert (code, "3,000 documents" in shown, "100%" in shown) == (0, True, True)
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 3000
    code, shown = on_terminal(sqlite.command("export", "t"), b"", tmp_path)
    assert (code, "documents" in shown, shown.count("\n")) == (0, False, 3000)
    code, shown = on_terminal(sqlite.command("index", "create", "t", "n"), b"", tmp_path)
    assert (code, "creating the index" in shown) == (0, True)
    line = '{"indexes": [{"name": "[/x]", "fields": ["k"]}]}\n'
    (tmp_path / "indexes").write_text(line)
    code, shown = on_terminal(sqlite.command("import", "indexes", "-c", "t"), b"", tmp_path)
    assert (code, "creating the index [/x]" in shown) == (0, True), shown
    piped = spawn(sqlite.command("index", "create", "t", "m"), cwd=tmp_path)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, b"m_1\n", b"")
    piped = spawn(sqlite.command("export", "t", "out.jsonl"), cwd=tmp_path)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, b"", b"")
    code, shown = on_terminal(sqlite.command("import", "-c", "t"), b"", tmp_path)
    assert (code, "standard input is a terminal" in shown) == (2, True)


def on_terminal(command: list[str], typed: bytes, cwd: Path) -> tuple[int, str]:
    """Run a command on a terminal; type the answer when the prompt appears."""
    import pty

    shown = bytearray()
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.execve(command[0], command, process_environment(COLUMNS="120", TERM="xterm"))
    try:
        while piece := _read(terminal):
            shown += piece
            if typed and b"[y/N]" in shown:
                time.sleep(0.1)
                os.write(terminal, typed)
                typed = b""
    finally:
        os.close(terminal)
        status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status), shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's error when the other end is closed
        return b""
