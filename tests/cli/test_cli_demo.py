"""The demo: two processes and one file. The printed code is the code that ran."""

import json
import re
from pathlib import Path

import pytest
from cli.cli_process import COMMAND, ROOT, Cli, spawn


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run a demo without network access that leaves no file, and return its output."""
    patched, temporary = tmp_path_factory.mktemp("patched"), tmp_path_factory.mktemp("temporary")
    (patched / "sitecustomize.py").write_text(
        "import socket\n"
        "def refuse(*args, **kw): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
    )
    environment = {"PYTHONPATH": f"{patched}:{ROOT}", "TMPDIR": str(temporary)}
    done = spawn([*COMMAND, "demo"], cwd=temporary, environment=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(temporary.iterdir()) == []
    return done.stdout.decode()


def test_demo(shown: str) -> None:
    first, second = re.findall(r"\[process (\d+)\]", shown)
    assert first != second
    assert shown.index("stores two") < shown.index("second process") < shown.index("def remember")
    assert "who likes coffee?\n     grace: {" in shown
    assert "where was a table booked?\n     ada-1: {" in shown


def test_the_file_can_be_kept(tmp_path: Path) -> None:
    for _ in range(2):  # the second time the file exists
        done = spawn([*COMMAND, "demo", "--file", "kept.db"], cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
    cli = Cli((f"--url=sqlite:///{tmp_path / 'kept.db'}",))
    assert set(cli.documents("demo_facts")) == {"ada", "grace"}
    booked = json.loads(cli.done("find", "demo_dialogues", '{"turns.frame.intent": "book"}'))
    assert booked["body"]["turns"][1]["text"] == "At seven?"


def test_the_printed_commands_run(shown: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^    def .*\n(?:^(?: {8}.*)?\n)+", shown, re.MULTILINE)
    assert len(blocks) == 2
    lines = "\n".join(re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks)
    before = "from typing import Any\n"
    after = "\nremember('sqlite:///x.db')\nprint(len(recall('sqlite:///x.db')))\n"
    done = spawn([COMMAND[0], "-c", before + lines + after], cwd=tmp_path)
    assert (done.stdout, done.stderr) == (b"3\n", b"")


def test_a_demo_that_cannot_write_is_an_error(tmp_path: Path) -> None:
    done = spawn([*COMMAND, "demo", "--file", "no/where.db"], cwd=tmp_path)
    assert done.returncode == 6
    assert b"folder" in done.stderr
