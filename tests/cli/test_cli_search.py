"""The command search, and text indexes of the command index, in exports and imports."""

import json

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for, error_line

from collections_store import Store

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


def test_a_search_for_any_word(cli: Cli) -> None:
    cli.done("index", "create", "notes", "title", "body", "--text")
    words = ("search", "notes", "--any", "--", "is", "-there", "milk", "or", "icing?")
    lines = cli.done(*words).splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == ["cake", "cup"]
    assert cli.done("search", "notes", "milk", "icing") == ""


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


def test_an_index_of_substrings_is_listed_exported_imported_and_dropped(cli: Cli) -> None:
    made = cli.done("index", "create", "notes", "title", "body", "--text", "--substring")
    assert made == "substring\n"
    [index] = map(json.loads, cli.done("index", "list", "notes").splitlines())
    definition = {"name": "substring", "text": [[["title"], 1], [["body"], 1]], "language": None}
    assert index == {**definition, "substring": True}
    assert "text, substring" in cli.done("index", "list", "notes", "--output", "table")
    cli.done("import", "other", input=cli.done("export", "notes"))
    assert json.loads(cli.done("index", "list", "other")) == index
    cli.done("index", "drop", "notes", "substring")
    assert cli.done("index", "list", "notes") == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("index", "create", "notes", "a", "--substring"), "--substring goes with --text"),
        (("search", "notes", "--", "-tea"), "must have a word that documents have"),
        (("index", "create", "notes", "a", "--language", "english"), "--language goes with --text"),
        (
            ("index", "create", "notes", "a", "--text", "--unique"),
            "--unique does not go with --text",
        ),
        (("index", "create", "notes", "a:-1", "--text"), "weight must be a number above 0"),
        (
            ("index", "create", "notes", "a", "--text", "--vector"),
            "--text does not go with --vector",
        ),
        (("index", "create", "notes", "a", "--vector"), "--vector needs --dimensions"),
        (("index", "create", "notes", "a", "--dimensions", "2"), "--dimensions goes with --vector"),
        (
            ("index", "create", "notes", "a", "--metric", "l2", "--text"),
            "--metric goes with --vector",
        ),
        (
            ("index", "create", "notes", "a", "--where", "{}", "--text"),
            "--where does not go with --text",
        ),
        (("search", "notes"), "needs WORDS, or --like"),
        (("search", "notes", "--like", "1", "--any"), "--any goes with WORDS"),
        (("search", "notes", "tea", "--index", "i"), "--index goes with --like"),
        (("search", "notes", "--like", "cup"), "has no such vector index; there is none"),
    ],
)
def test_invalid_searches_and_text_indexes(cli: Cli, words: tuple[str, ...], message: str) -> None:
    assert message in cli(*words).stderr


@pytest.mark.each_backend
def test_documents_like_another(cli: Cli) -> None:
    points = {"a": [1, 0], "b": [2, 1], "c": [0, 1], "d": None, "e": [[3, 0.5], [9, 9]]}
    bodies = {id: {"at": at, "text": f"tea {id}"} for id, at in points.items()}
    text = "".join(json.dumps({"id": id, "body": body}) + "\n" for id, body in bodies.items())
    cli.done("import", "points", input=text)
    assert (
        cli.done("index", "create", "points", "at", "--vector", "--dimensions", "2")
        == "at_vector\n"
    )

    def like(*options: str) -> list[str]:
        lines = cli.done("search", "points", "--like", *options).splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert like("a") == ["e", "b", "c"]
    assert like("e") == ["a", "b", "c"]
    assert like("a", "--limit", "1", "--offset", "1") == ["b"]
    assert like("a", "--filter", '{"text": {"$ne": "tea e"}}') == ["b", "c"]
    [first, *_] = cli.done("search", "points", "--like", "c").splitlines()
    assert json.loads(first)["score"] == pytest.approx(2**0.5 / 2)
    options = "at", "--vector", "--dimensions", "2", "--metric", "l2", "--name", "far"
    cli.done("index", "create", "points", *options)
    assert "there is at_vector, far" in cli.fails(2, "search", "points", "--like", "a")
    assert like("a", "--index", "far") == ["b", "c", "e"]
    cli.done("index", "create", "points", "text", "--text")
    assert sorted(like("a", "--index", "far", "b OR c")) == ["b", "c", "e"]
    assert (
        cli.fails(1, "search", "points", "--like", "x", "--index", "far")
        == "there is no document 'x' in points"
    )
    assert "no vector of the index far" in cli.fails(
        1, "search", "points", "--like", "d", "--index", "far"
    )


@pytest.mark.each_backend
def test_a_command_cannot_embed(cli: Cli, shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["notes"].create_vector_index("title", dimensions=1, model="small")
    assert "no command can embed" in cli.fails(2, "search", "notes", "--like", "cup")


def test_an_import_names_a_damaged_text_index(cli: Cli) -> None:
    line = json.dumps({"indexes": [{"text": [["title"]]}]})
    assert "index 1: " in error_line(cli("import", "other", input=f"{line}\n").stderr)
