"""documents upgrade."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for

MODULE = """
def split(body):
    first, last = body["name"].split()
    return {"first": first, "last": last}

PEOPLE = {"schema_version": 2, "upgrades": {1: split}}
BEHIND = {"schema_version": 3, "upgrades": {1: split}}
UNKNOWN = {"schema_version": 2, "versions": {}}
NUMBER = 5
"""


@pytest.fixture
def cli(shared_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "shapes.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("raise ValueError('on purpose')")
    (tmp_path / "quits.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    cli = cli_for(shared_backend)
    cli.done("put", "people", "ada", '{"name": "Ada Lovelace"}')
    yield cli
    sys.modules.pop("shapes", None)


def upgrade(cli: Cli, *arguments: str) -> Any:
    return cli("documents", "upgrade", "people", "--using", "shapes:PEOPLE", *arguments)


def test_documents_are_upgraded_once(cli: Cli) -> None:
    dry = upgrade(cli, "--dry-run")
    assert (dry.exit_code, dry.stderr) == (0, "would upgrade 1 document of people\n")
    assert dry.stdout.splitlines() == [
        "ada:", "  {", '-   "name": "Ada Lovelace"', '+   "first": "Ada",',
        '+   "last": "Lovelace",', '+   "schema_version": 2', "  }",
    ]  # fmt: skip
    assert cli.documents("people") == {"ada": {"name": "Ada Lovelace"}}
    for count in ("1 document", "0 documents"):
        result = upgrade(cli)
        assert (result.exit_code, result.stderr) == (0, f"upgraded {count} of people\n")
    assert cli.documents("people") == {
        "ada": {"schema_version": 2, "first": "Ada", "last": "Lovelace"}
    }


def test_failures_are_reported_and_left_or_moved(cli: Cli) -> None:
    cli.done("put", "people", "bob", '{"name": "Bob"}')
    result = upgrade(cli)
    assert result.exit_code == 1
    first, last = result.stderr.splitlines()
    assert first.startswith(
        "collection people: document 'bob' cannot go from schema version 1 to 2: split raised"
    )
    assert last == "Error: upgraded 1 document of people, 1 document cannot be upgraded"
    assert cli.documents("people")["bob"] == {"name": "Bob"}
    result = upgrade(cli, "--quarantine", "bad_people")
    assert result.exit_code == 0
    assert (
        result.stderr.splitlines()[-1]
        == "upgraded 0 documents of people, moved 1 to the quarantine"
    )
    assert list(cli.documents("people")) == ["ada"]
    assert cli.documents("bad_people")["bob"]["body"] == {"name": "Bob"}


@pytest.mark.parametrize(
    ("using", "problem"),
    [
        ("shapes", "--using must be MODULE:OBJECT, got 'shapes'"),
        (":PEOPLE", "--using must be MODULE:OBJECT"),
        ("nowhere:PEOPLE", "cannot import 'nowhere': ModuleNotFoundError"),
        ("broken:PEOPLE", "cannot import 'broken': ValueError: on purpose"),
        ("shapes:ANIMALS", "the module 'shapes' has no 'ANIMALS'"),
        (".shapes:PEOPLE", "--using must be MODULE:OBJECT"),
        ("quits:PEOPLE", "cannot import 'quits': SystemExit: 3"),
        ("shapes:UNKNOWN", "shapes:UNKNOWN: a collection has no option 'versions': did you mean"),
        ("shapes:NUMBER", "shapes:NUMBER must be a mapping, such as"),
        ("shapes:BEHIND", "option upgrades: must lead from each version to the next, up to 3"),
    ],
)
def test_declarations_that_cannot_be_used(cli: Cli, using: str, problem: str) -> None:
    assert problem in cli.fails(2, "documents", "upgrade", "people", "--using", using)
    assert cli.documents("people") == {"ada": {"name": "Ada Lovelace"}}


def test_no_such_collection(cli: Cli) -> None:
    command = ("documents", "upgrade", "nobody", "--using", "shapes:PEOPLE")
    assert cli.fails(1, *command) == "there is no collection 'nobody'"


def test_the_current_folder_is_searched_in_a_new_process(cli: Cli, tmp_path: Path) -> None:
    command = cli.command("documents", "upgrade", "people", "--using", "shapes:PEOPLE")
    entry = (
        "import sys; from collections_store.cli.app import program; sys.path.remove(''); program()"
    )
    for start in ([command[0], "-c", entry, *command[3:]], command):
        done = subprocess.run(
            start, capture_output=True, text=True, check=False, env={**os.environ}
        )
        assert done.returncode == 0, done.stderr
    assert json.loads(cli.done("get", "people", "ada"))["first"] == "Ada"
