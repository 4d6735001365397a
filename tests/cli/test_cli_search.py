"""The command search, and text indexes of the command index, in exports and imports."""

import json

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for, error_line

NOTES = {
    "cup": {"title": "A cup of tea", "body": "Green tea with milk"},
    "cake": {"title": "Cake", "body": ["Tea cake", "and icing"]},
}


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    cli = cli_for(shared_backend)
    lines = "".join(json.dumps({"id": id, "body": body}) + "\n" for id, body in NOTES.items())
    cli.done("import", "notes", input=lines)
    return cli


def test_a_search_prints_the_best_first(cli: Cli) -> None:
    assert cli.done("index", "create", "notes", "title:3", "body", "--text") == "text\n"
    lines = [json.loads(line) for line in cli.done("search", "notes", "tea").splitlines()]
    assert [line["id"] for line in lines] == ["cup", "cake"]
    assert lines[0] == {"id": "cup", "score": lines[0]["score"], "body": NOTES["cup"]}
    words = ["search", "notes", "--highlight", "--limit", "1", "--", '"green tea"', "-cake"]
    [line] = map(json.loads, cli.done(*words).splitlines())
    assert line["snippets"] == {"body": "**Green** **tea** with milk"}
    [line] = json.loads(cli.done("search", "notes", "te*", "--offset", "1", "--output", "json"))
    assert line["id"] == "cake"
    chosen = json.dumps({"title": "Cake"})
    assert "icing" in cli.done("search", "notes", "tea", "--filter", chosen, "--output", "table")


def test_a_text_index_is_listed_exported_imported_and_dropped(cli: Cli) -> None:
    made = cli.done("index", "create", "notes", "title:2.5", "body", "--text", "--name", "words")
    assert made == "words\n"
    [index] = map(json.loads, cli.done("index", "list", "notes").splitlines())
    assert index == {"name": "words", "text": [[["title"], 2.5], [["body"], 1]], "language": None}
    assert "title:2.5, body:1" in cli.done("index", "list", "notes", "--output", "table")
    exported = cli.done("export", "notes")
    cli.done("import", "other", input=exported)
    assert '"cup"' in cli.done("search", "other", "milk")
    assert json.loads(cli.done("index", "list", "other")) == index
    cli.done("index", "drop", "notes", "words")
    assert "create_text_index" in error_line(cli("search", "notes", "tea").stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("search", "notes", "--", "-tea"), "must have a word that documents have"),
        (("index", "create", "notes", "a", "--language", "english"), "--language goes with --text"),
        (("index", "create", "notes", "a", "--text", "--unique"), "--text does not go with"),
        (("index", "create", "notes", "a:-1", "--text"), "weight must be a number above 0"),
    ],
)
def test_invalid_searches_and_text_indexes(cli: Cli, words: tuple[str, ...], message: str) -> None:
    assert message in cli(*words).stderr


def test_an_import_names_a_damaged_text_index(cli: Cli) -> None:
    line = json.dumps({"indexes": [{"text": [["title"]]}]})
    assert "index 1: " in error_line(cli("import", "other", input=f"{line}\n").stderr)
