"""The demo: two processes and one file, and the code it shows is the code it ran."""

import json
import re
from pathlib import Path

from cli.cli_process import COMMAND, Cli, spawn


def test_the_demo(tmp_path: Path) -> None:
    done = spawn([*COMMAND, "demo"], cwd=tmp_path, environment={"TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode()
    first, second = re.findall(r"\[process (\d+)\]", shown)
    assert first != second
    assert shown.index("remembers") < shown.index("second process") < shown.index("def remember")
    assert "who likes coffee?\n     grace: {" in shown
    assert "where was a table booked?\n     ada-1: {" in shown
    assert list(tmp_path.iterdir()) == []


def test_the_demo_needs_no_network_and_no_server(tmp_path: Path) -> None:
    """`socket` is out of reach in all of its processes."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\n"
        "def refuse(*args, **kw): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
    )
    path = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    done = spawn([*COMMAND, "demo"], cwd=tmp_path, environment=path)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_file_can_be_kept(tmp_path: Path) -> None:
    for _ in range(2):  # a second time it finds the file there
        done = spawn([*COMMAND, "demo", "--file", "kept.db"], cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
    cli = Cli((f"--url=sqlite:///{tmp_path / 'kept.db'}",))
    assert set(cli.objects("demo_facts")) == {"ada", "grace"}
    booked = json.loads(cli.done("find", "demo_dialogues", '{"turns.frame.intent": "book"}'))
    assert booked["body"]["turns"][1]["text"] == "At seven?"


def test_the_lines_it_shows_run_as_they_are(tmp_path: Path) -> None:
    shown = spawn([*COMMAND, "demo"], cwd=tmp_path).stdout.decode()
    blocks = re.findall(r"^    def .*\n(?:^(?: {8}.*)?\n)+", shown, re.MULTILINE)
    assert len(blocks) == 2
    lines = "\n".join(re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks)
    before = "from typing import Any\nfrom collections_store import Store\n"
    after = "\nremember('sqlite:///x.db')\nprint(len(recall('sqlite:///x.db')))\n"
    done = spawn([COMMAND[0], "-c", before + lines + after], cwd=tmp_path)
    assert (done.stdout, done.stderr) == (b"3\n", b"")


def test_a_demo_that_cannot_write_says_so(tmp_path: Path) -> None:
    done = spawn([*COMMAND, "demo", "--file", "no/where.db"], cwd=tmp_path)
    assert done.returncode == 6
    assert b"folder" in done.stderr
