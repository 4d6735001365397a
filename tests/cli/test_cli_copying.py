"""The command copy."""

import json
from pathlib import Path

import pytest
from cli.cli_process import Cli, cli_for
from conftest import Backend


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    cli = cli_for(shared_backend)
    cli.done("put", "cities", "berlin", '{"country": "de"}')
    cli.done("put", "cities", "paris", '{"country": "fr"}', "--ttl", "1000")
    cli.done("put", "people", "ada", "1")
    return cli


def test_a_store_is_copied(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    result = cli("copy", "--to", url)
    assert result.stderr == f"copied 3 documents of 2 collections to {url}\n"
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["name"], each["count"]) for each in printed] == [("cities", 2), ("people", 1)]
    assert Cli((f"--url={url}",)).documents("cities") == cli.documents("cities")
    again = cli("copy", "--to", f"sqlite:///{tmp_path / 'again.db'}")
    assert again.stdout == result.stdout
    assert "'cities'" in cli.fails(3, "copy", "--to", url)


def test_named_collections_are_copied_between_stores(tmp_path: Path, cli: Cli) -> None:
    first, second = (f"sqlite:///{tmp_path / name}" for name in ("first.db", "second.db"))
    cli.done("copy", "people", "--to", first)
    Cli().done("copy", "--from", first, "--to", second, "--to-prefix", "other_")
    assert Cli((f"--url={second}", "--prefix=other_")).documents("people") == {"ada": 1}


def test_a_copy_back_to_postgresql(tmp_path: Path, postgres_backend: Backend) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    Cli((f"--url={url}",)).done("put", "people", "ada", "1")
    schema = postgres_backend.options["schema"]
    Cli().done("copy", "--from", url, "--to", postgres_backend.url, "--to-schema", schema)
    assert cli_for(postgres_backend).documents("people") == {"ada": 1}


def test_bad_arguments(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    assert "--to" in cli.fails(2, "copy")
    assert "there is no collection 'nobody'" in cli.fails(1, "copy", "nobody", "--to", url)
    assert "no SQLite file" in Cli().fails(4, "copy", "--from", f"{url}.missing", "--to", url)
    assert "no database" in cli.fails(2, "copy", "--to", "mysql://host/name")
