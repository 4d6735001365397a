"""The commands copy, backup and restore."""

import json
import shlex
from pathlib import Path

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for

from collections_store import Store


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


def test_the_vectors_of_models_are_copied_by_an_option(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path / name}" for name in ("from.db", "to.db", "restored.db")]
    with Store(urls[0]) as store:
        notes = store["notes"]
        notes.create_vector_index(
            "text", dimensions=2, embed=lambda t: [[1, 2]] * len(t), model="m"
        )
        notes.put("a", {"text": "tea"})
        assert notes.store_vectors() == 0
    backup = str(tmp_path / "backup.jsonl")
    Cli().done("copy", "--vectors", "--from", urls[0], "--to", urls[1])
    Cli((f"--url={urls[0]}",)).done("backup", "--vectors", backup)
    Cli((f"--url={urls[2]}",)).done("restore", backup)
    for url in urls[1:]:
        with Store(url) as store:
            assert [each.id for each in store["notes"].nearest([1, 2])] == ["a"]
            assert store["notes"].search_backlog() == []


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


def test_a_copy_overwrites_no_collection(tmp_path: Path, cli: Cli) -> None:
    url = f"sqlite:///{tmp_path / 'a copy.db'}"
    other = Cli((f"--url={url}", "--prefix=c_"))
    other.done("put", "people", "eve", "5")
    message = cli.fails(3, "copy", "--to", url, "--to-prefix", "c_")
    problem, _, advice = message.partition(": drop it first, with ")
    assert problem == f"{url} has a collection 'people'"
    Cli().done(*shlex.split(advice)[1:], "--yes")
    cli.done("copy", "--to", url, "--to-prefix", "c_")
    assert other.documents("people") == {"ada": 1}


def test_bad_arguments(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    assert "--to" in cli.fails(2, "copy")
    assert "there is no collection 'nobody'" in cli.fails(1, "copy", "nobody", "--to", url)
    message = Cli().fails(4, "copy", "--from", f"{url}.missing", "--to", url)
    assert "there is no SQLite file" in message
    assert message.endswith("name another database with --from")
    assert "no database" in cli.fails(2, "copy", "--to", "mysql://host/name")


@pytest.mark.parametrize("name", ["b.jsonl", "b.jsonl.gz", "b.db"])
def test_a_store_is_backed_up_and_restored(cli: Cli, tmp_path: Path, name: str) -> None:
    path, other = str(tmp_path / name), Cli((f"--url=sqlite:///{tmp_path / 'other.db'}",))
    if name.endswith(".db") and "postgresql" in cli.options[0]:
        assert ".jsonl" in cli.fails(2, "backup", path)
        return
    result = cli("backup", path)
    assert result.stderr.endswith(f" to '{path}'\n")
    assert result.stdout == ""
    restored = other("restore", path)
    assert restored.stderr == f"restored 3 documents of 2 collections from '{path}'\n"
    assert other.documents("cities") == cli.documents("cities")
    problem = (
        "there is a collection 'cities' already: restore into an empty store, or give --replace"
    )
    assert other.fails(3, "restore", path) == problem
    other.done("put", "people", "bob", "2")
    other.done("restore", path, "people", "--replace")
    assert other.documents("people") == {"ada": 1}


def test_backups_that_cannot_be_written_or_read(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "store.jsonl")
    assert "nowhere" in cli.fails(6, "backup", str(tmp_path / "nowhere" / "a.jsonl"))
    assert "there is no file" in cli.fails(2, "restore", path)
    cli.done("backup", path, "people")
    Path(path).write_text(Path(path).read_text().replace('"ada"', '"eve"'))
    message = cli.fails(3, "restore", path, "--replace")
    assert "line 4" in message
    assert cli.documents("people") == {"ada": 1}
    assert "use restore" in cli.fails(3, "import", path, "--collection", "new")
