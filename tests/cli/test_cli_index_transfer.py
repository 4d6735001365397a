"""Indexes in exports and imports."""

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for, error_line, spawn
from cli.test_cli_indexes import INDEXES, indexes

from collections_store import Store

BODIES = {
    "a": {"login": "ada", "age": 36, "a.b": {"$c": 1}, "tags": ["x"]},
    "b": {"login": "ada", "indexes": [{"name": "x"}]},
}


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    return cli_for(shared_backend)


@pytest.fixture
def sqlite(tmp_path: Path) -> Cli:
    return Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def filled(cli: Cli) -> list[dict[str, Any]]:
    """Create documents and indexes of all kinds in collection a; return the indexes."""
    for arguments, _ in INDEXES:
        cli.done("index", "create", "a", *arguments)
    cli.done("import", "a", input=lines(*({"id": k, "body": v} for k, v in BODIES.items())))
    return indexes(cli, "a")


@pytest.mark.parametrize("output", ["jsonl", "json"])
@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_indexes_are_exported_and_imported(
    cli: Cli, tmp_path: Path, output: str, name: str
) -> None:
    made = filled(cli)
    assert len(made) == len(INDEXES)
    file = tmp_path / name
    cli.done("export", "a", str(file), "--output", output)
    text = gzip.decompress(file.read_bytes()) if name.endswith("gz") else file.read_bytes()
    first = text.removeprefix(b"[\n").splitlines()[0].removesuffix(b",")
    assert json.loads(first) == {"indexes": made}
    result = cli("import", str(file), "-c", "b")
    assert result.stderr == "imported 2 documents and 7 indexes into b\n"
    assert indexes(cli, "b") == made
    assert cli.documents("b") == BODIES
    assert cli.done("export", "b") == cli.done("export", "a")
    plan = json.loads(cli.done("explain", "b", '{"login": "ada", "age": 36}', "--json"))
    assert set(plan["indexes"]) <= {index["name"] for index in made} | {"$body"}
    cli("import", str(file), "-c", "b")
    assert indexes(cli, "b") == made


def test_export_and_import_through_a_pipe(cli: Cli, tmp_path: Path) -> None:
    made = filled(cli)
    other = Cli((f"--url=sqlite:///{tmp_path / 'other.db'}",))
    words = shlex.join(cli.command("export", "a")), shlex.join(other.command("import", "c"))
    done = spawn(["sh", "-c", " | ".join(words)], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"imported 2 documents and 7 indexes into c\n"
    assert indexes(other, "c") == made
    assert other.documents("c") == BODIES


def test_without_indexes(cli: Cli) -> None:
    filled(cli)
    bare = cli.done("export", "a", "--no-indexes")
    assert bare == cli.done("list", "a")
    assert bare == "".join(cli.done("export", "a").splitlines(keepends=True)[1:])
    result = cli("import", "b", "--no-indexes", input=cli.done("export", "a"))
    assert result.stderr == "imported 2 documents into b\n"
    assert cli.done("index", "list", "b") == ""
    assert cli.done("export", "b") == bare
    unread = lines({"indexes": "of another version"}) + bare
    cli.done("import", "c", "--no-indexes", input=unread)
    assert cli.documents("c") == BODIES


def test_an_empty_collection_keeps_its_indexes(cli: Cli) -> None:
    cli.done("index", "create", "a", "x")
    exported = cli.done("export", "a")
    assert exported.count("\n") == 1
    assert cli("import", "b", input=exported).stderr == "imported 0 documents and 1 index into b\n"
    assert indexes(cli, "b") == indexes(cli, "a")
    cli.done("import", "c", input=cli.done("export", "a", "--output", "json"))
    assert indexes(cli, "c") == indexes(cli, "a")


def test_concatenated_exports(sqlite: Cli) -> None:
    first = lines({"indexes": [{"fields": {"x": 1}}]}, {"id": "1", "body": {}})
    second = lines({"indexes": [{"fields": ["y"]}]}, {"id": "2", "body": {}})
    sqlite.done("import", "a", input=first + second)
    assert [index["name"] for index in indexes(sqlite, "a")] == ["x_1", "y_1"]
    assert list(sqlite.documents("a")) == ["1", "2"]


def test_a_document_is_never_read_as_an_index(cli: Cli) -> None:
    body = {"indexes": [{"fields": {"x": 1}}]}
    cli.done("import", "a", input=lines({"id": "1", "body": body}))
    cli.done("import", "b", "--id", "indexes", input=lines({"indexes": "2"}))
    cli.done("import", "c", "--id", "n", input=lines(body | {"n": 3}))
    assert cli.documents("a") == {"1": body}
    assert cli.documents("b") == {"2": {"indexes": "2"}}
    assert cli.documents("c") == {"3": body | {"n": 3}}
    for collection in ("a", "b", "c"):
        assert cli.done("index", "list", collection) == ""
    message = cli.fails(3, "import", "d", "--id", "indexes", input=lines(body))
    assert "must be a string or an integer" in message
    more = lines({"indexes": [], "more": 1})
    assert "expected {" in cli.fails(3, "import", "d", input=more)


BAD: dict[str, Any] = {
    "must be a list, got 5": 5,
    "index 2 must have fields, and no other keys than arrays, collation, expire_after_seconds, fields, hidden, name, sparse, unique, where, got 'x'": [
        {"fields": ["x"]},
        "x",
    ],
    "index 1 must have fields, and": [{"name": "x"}],
    "no other keys than arrays, collation, expire_after_seconds, fields, hidden, name, sparse, unique, where": [
        {"fields": ["x"], "new": 1}
    ],
    "index 1: index: must have at least one field": [{"fields": []}],
    "index 1: index, at 'x': the direction": [{"fields": [["x", "up"]]}],
    "index 1: index, at 'unique': must be True or False, got None": [
        {"fields": ["x"], "unique": None}
    ],
    "index 1: filter, at 'a.$no'": [{"fields": ["x"], "where": {"a": {"$no": 1}}}],
}


@pytest.mark.parametrize("reason", BAD)
def test_invalid_indexes_are_a_bad_line(sqlite: Cli, reason: str) -> None:
    given = lines({"indexes": BAD[reason]}, {"id": "a", "body": 1})
    message = sqlite.fails(3, "import", "t", input=given)
    assert message.startswith("standard input, line 1: ")
    assert reason in message
    assert message.endswith("; nothing was imported")
    result = sqlite("import", "t", "--skip-errors", input=given)
    assert result.exit_code == 0
    assert result.stderr.endswith("imported 1 document into t, skipped 1 document\n")
    assert sqlite.done("index", "list", "t") == ""


def test_duplicates_in_an_import_with_a_unique_index(cli: Cli) -> None:
    made = {"indexes": [{"name": "by_x", "fields": ["x"], "unique": True}, {"fields": ["y"]}]}
    documents = [{"id": str(n), "body": {"x": n % 3}} for n in range(4)]
    message = cli.fails(3, "import", "a", input=lines(made, *documents))
    assert "'3' would have the same {'x': 0} as another" in message
    assert message.endswith("'by_x' forbids; imported 4 documents, but not the index 'by_x'")
    assert cli.done("index", "list", "a") == ""
    result = cli("import", "a", "--skip-errors", input=lines(made, *documents))
    assert result.exit_code == 0
    skipped, summary = result.stderr.splitlines()
    assert skipped.startswith("skipped the index 'by_x': ")
    assert summary == "imported 4 documents and 1 index into a"
    assert [index["name"] for index in indexes(cli, "a")] == ["y_1"]


def test_a_different_index_of_the_same_name(cli: Cli) -> None:
    cli.done("index", "create", "a", "x", "--name", "n")
    given = lines({"indexes": [{"name": "n", "fields": ["y"]}]}, {"id": "1", "body": {}})
    message = cli.fails(3, "import", "a", input=given)
    assert message.startswith("index 'n' would be another than the one there is")
    assert message.endswith("; imported 1 document, but not the index 'n'")


def test_an_existing_unique_index_rejects_duplicates_of_an_import(cli: Cli) -> None:
    cli.done("index", "create", "a", "x", "--unique")
    cli.done("put", "a", "first", '{"x": 7}')
    given = lines(*({"id": str(n), "body": {"x": n % 9}} for n in range(11)))
    words = ("import", "a", "--batch-size", "4")
    message = cli.fails(3, *words, input=given)
    assert message.startswith("standard input, line 8: ")
    assert "'7' would have the same {'x': 7} as another" in message
    assert message.endswith("; nothing of this batch was imported, 4 documents before it were")
    result = cli(*words, "--skip-errors", input=given)
    assert result.exit_code == 0
    *reports, summary = result.stderr.splitlines()
    locations = [report.split(":")[0] for report in reports]
    assert locations == [f"skipped standard input, line {n}" for n in (8, 10, 11)]
    assert summary == "imported 8 documents into a, skipped 3 documents"
    assert list(cli.documents("a")) == ["first", *map(str, (0, 1, 2, 3, 4, 5, 6, 8))]


def test_an_index_through_arrays_refuses_documents_of_an_import(cli: Cli) -> None:
    cli.done("index", "create", "a", "t", "u", "--unique", "--arrays", "--sparse")
    given = lines(*({"id": str(n), "body": {"t": [n % 3], "u": [n] * (n > 3)}} for n in range(5)))
    message = cli.fails(3, "import", "a", input=given)
    assert message.startswith("standard input, line 1: ")
    assert "document '0': at 'u': the index 't_1_u_1_arrays' holds one array" in message
    given = lines(*({"id": str(n), "body": {"t": [n % 3], "u": n // 4}} for n in range(6)))
    result = cli("import", "a", "--skip-errors", input=given)
    assert [each.split(":")[0] for each in result.stderr.splitlines()] == [
        "skipped standard input, line 4",
        "imported 5 documents into a, skipped 1 document",
    ]
    line = cli.done("export", "a").splitlines()[0]
    [definition] = json.loads(line)["indexes"]
    assert (definition["unique"], definition["arrays"], definition["sparse"]) == (True, True, True)
    cli.done("import", "b", input=cli.done("export", "a"))
    assert indexes(cli, "b") == indexes(cli, "a")
    assert "unique, arrays, sparse" in cli.done("index", "list", "b", "--output", "table")


def test_an_error_is_one_line_without_output_of_the_driver(cli: Cli, tmp_path: Path) -> None:
    cli.done("index", "create", "a", "x", "--unique")
    cli.done("put", "a", "first", '{"x": 1}')
    given = lines(*({"id": str(n), "body": {"x": n}} for n in range(1, 300))).encode()
    done = spawn(cli.command("import", "a"), cwd=tmp_path, input=given)
    assert (done.returncode, done.stdout) == (3, b"")
    message = error_line(done.stderr.decode())
    assert message.startswith("standard input, line 1: ")
    assert message.endswith("the unique index 'x_1' forbids; nothing was imported")


@pytest.mark.parametrize("model", [None, "small-1"])
def test_vector_indexes_are_exported_and_imported(
    shared_backend: Backend, cli: Cli, sqlite: Cli, model: str | None
) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        made: Any = {"dimensions": 2, "metric": "l2", "model": model}
        store["a"].create_vector_index(["at", "b.c"], name="points", **made)
        store["a"].put("one", {"at": [1, 2]})
    line, _ = cli.done("export", "a").splitlines()
    definition = {"name": "points", "fields": [["at"], ["b", "c"]], **made}
    assert json.loads(line) == {"indexes": [definition]}
    sqlite.done("import", "a", input=cli.done("export", "a"))
    [listed] = indexes(sqlite, "a")
    assert listed == definition
    for key, value in (("dimensions", 0), ("metric", "x")):
        done = sqlite("import", "b", input=lines({"indexes": [{**definition, key: value}]}))
        assert done.exit_code
        assert f"index 1: index, at '{key}': must be" in done.stderr


def test_an_index_under_a_collation(sqlite: Cli) -> None:
    cli = sqlite
    rules = '{"locale":"simple","strength":2}'
    assert cli.done("index", "create", "a", "w", "--unique", "--collation", rules) == "w_1\n"
    exported = cli.done("export", "a")
    [definition] = json.loads(exported.splitlines()[0])["indexes"]
    assert definition["collation"] == json.loads(rules)
    cli.done("import", "b", input=exported)
    assert cli.done("index", "list", "a") == cli.done("index", "list", "b")
    assert rules in cli.done("index", "list", "b", "--output", "table")
    cli.done("put", "b", "1", '{"w": "Zoo"}')
    assert "'w_1' forbids" in cli.fails(3, "put", "b", "2", '{"w": "ZOO"}')
    explained = cli.done("explain", "b", '{"w": "zoo"}', "--collation", rules)
    assert "uses: index w_1" in explained
    assert "--collation does not go with --text" in cli.fails(
        2, "index", "create", "a", "w", "--text", "--collation", rules
    )
