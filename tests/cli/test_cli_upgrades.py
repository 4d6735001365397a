"""documents upgrade."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for

from collections_store import Store

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


@pytest.fixture
def store(shared_backend: Backend) -> Iterator[Store]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        yield store


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


MIXED = {
    "at": "2026-11-22T10:00:00.5Z",
    "born": "2026-11-22",
    "logins": [{"at": "2026-11-22 12:00+02:00"}, {"at": "x"}, {"at": "2026-13-01T00:00Z"}, 5],
    "other": "2026-11-22T10:00:00Z",
}
WHOLE = {
    **MIXED,
    "at": "2026-11-22T10:00:00.500000Z",
    "logins": [{"at": "2026-11-22T10:00:00.000000Z"}, *MIXED["logins"][1:]],
}


def test_times_are_written_in_one_form(cli: Cli, store: Any) -> None:
    store["logins"].put_many({"a": MIXED, "b": WHOLE, "c": [], "d": {"at": None}})
    times = ("documents", "upgrade", "logins", "--times", "at", "--times", "logins.at")
    dry = cli(*times, "--dry-run")
    assert (dry.exit_code, dry.stderr) == (0, "would upgrade 1 document of logins\n")
    changed = [line for line in dry.stdout.splitlines() if line[:1] in "+-"]
    assert changed == [
        '-   "at": "2026-11-22T10:00:00.5Z",', '+   "at": "2026-11-22T10:00:00.500000Z",',
        '-       "at": "2026-11-22 12:00+02:00"', '+       "at": "2026-11-22T10:00:00.000000Z"',
    ]  # fmt: skip
    for count in ("1 document", "0 documents"):
        assert cli(*times).stderr == f"upgraded {count} of logins\n"
    assert [(each.body, each.version) for each in store["logins"].find()] == [
        (WHOLE, 2), (WHOLE, 1), ([], 1), ({"at": None}, 1),
    ]  # fmt: skip


def test_many_times_and_a_unique_index(cli: Cli, store: Any) -> None:
    logins = store["logins"]
    logins.create_index("at", unique=True)
    logins.put_many(
        {str(n): {"at": f"2026-11-22T10:{n // 60:02}:{n % 60:02}Z"} for n in range(250)}
    )
    logins.put("same", {"at": "2026-11-22T10:00:07.000000Z"})
    result = cli("documents", "upgrade", "logins", "--times", "at")
    assert result.exit_code == 1
    error, end = result.stderr.splitlines()
    assert "'7'" in error
    assert end == "Error: upgraded 249 documents of logins, 1 document cannot be upgraded"
    assert logins.get("7") == {"at": "2026-11-22T10:00:07Z"}
    assert logins.get("249") == {"at": "2026-11-22T10:04:09.000000Z"}


def test_either_a_declaration_or_times(cli: Cli) -> None:
    upgrade = ("documents", "upgrade", "people")
    assert "requires either --using or --times" in cli.fails(2, *upgrade)
    both = ("--times", "at", "--using", "shapes:PEOPLE")
    assert "requires either --using or --times" in cli.fails(2, *upgrade, *both)
    quarantine = ("--times", "at", "--quarantine", "bad")
    assert "--quarantine requires --using" in cli.fails(2, *upgrade, *quarantine)


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
