"""Completion of collections and fields in a shell."""

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for
from click.testing import CliRunner

from collections_store.cli.app import program

VARIABLE = "_COLLECTIONS_STORE_COMPLETE"


def completed(*words: str) -> list[str]:
    """Return the completions of the last word of a command line, as bash gets them."""
    typed = {"COMP_WORDS": " ".join(("collections-store", *words)), "COMP_CWORD": str(len(words))}
    environment = {VARIABLE: "bash_complete", "COLLECTIONS_STORE_URL": None, **typed}
    result = CliRunner(env=environment).invoke(program, prog_name="collections-store")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.split()
    assert all(line.startswith("plain,") for line in lines), result.stdout
    return [line.removeprefix("plain,") for line in lines]


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    cli = cli_for(shared_backend)
    cli.done("put", "people", "ada", '{"name": 1, "address": {"city": 1, "x y": 1}, "$(ls)": 1}')
    cli.done("put", "places", "a", '{"-a": 1, "a.b": {"c": 1}, "ü": [{"d": 1}], "n\\n": 1}')
    return cli


@pytest.mark.each_backend
def test_collections_and_fields_are_completed(cli: Cli) -> None:
    here = cli.options
    assert completed(*here, "find", "p") == ["people", "places"]
    assert completed(*here, "find", "pe") == ["people"]
    assert completed(*here, "index", "create", "people", "a") == ["address", "address.city"]
    assert completed(*here, "index", "create", "people", "name", "a") == ["address", "address.city"]
    assert completed(*here, "distinct", "people", "n") == ["name"]
    assert completed(*here, "find", "people", "--sort", "n") == ["name"]
    assert completed(*here, "find", "people", "--fields", "name,n") == ["name,name"]
    assert completed("find", *here, "pe") == ["people"]


def test_no_word_that_a_shell_expands_is_completed(cli: Cli) -> None:
    assert completed(*cli.options, "distinct", "people", "") == ["address", "address.city", "name"]
    assert completed(*cli.options, "distinct", "places", "") == ["ü"]


def test_an_unusable_database_completes_nothing_and_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.db").write_text("no database " * 100)
    for url in ("sqlite:///missing.db", "sqlite:///text.db", "nonsense", "mysql://localhost/x"):
        assert completed("--url", url, "find", "") == []
        assert completed("--url", url, "distinct", "people", "") == []
    assert [each.name for each in tmp_path.iterdir()] == ["text.db"]


def test_a_completion_upgrades_no_database(tmp_path: Path) -> None:
    sqlite = Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))
    sqlite.done("put", "people", "ada", "{}")
    with closing(sqlite3.connect(tmp_path / "one.db")) as connection:
        connection.execute("UPDATE cs_revision SET version_num = '0001'")
        connection.commit()
        assert completed(*sqlite.options, "find", "") == []
        assert connection.execute("SELECT version_num FROM cs_revision").fetchone() == ("0001",)


def test_a_server_that_does_not_answer_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections_store.cli.completion.SECONDS", 0.1)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"postgresql://a@127.0.0.1:{server.getsockname()[1]}/b"
        assert completed("--url", url, "find", "") == []
