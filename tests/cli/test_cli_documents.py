"""The commands put, get, remove, find and list: output and exit codes."""

import json
import re
import sqlite3
from pathlib import Path

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for
from click.testing import CliRunner

from collections_store import Store
from collections_store.cli.app import program
from collections_store.cli.arguments import Target

BODIES = [
    "null",
    "true",
    "-5",
    "1.5",
    '""',
    '"text"',
    "[]",
    "{}",
    '[1,[2,{"a":null}]]',
    '{"a.b":{"$c":"ü ☃ 🐍"}}',
    "10000000000000000.0",
    "9223372036854775807",
    '"\\u001b[31mred\\u0007"',
]
IDS = ["a", "", " ", "a b", "ü/☃", "'; DROP TABLE x; --", '"', "\\", "%s", "*", "a\nb", "x" * 2000]


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    return cli_for(shared_backend)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_body_is_printed_as_one_line(cli: Cli) -> None:
    for body in BODIES:
        cli.done("put", "things", "x", "--", body)
        assert cli.done("get", "things", "x") == f"{body}\n"


def test_a_body_is_read_from_standard_input(cli: Cli) -> None:
    cli.done("put", "things", "a", input='{"from":\n "input"}\n')
    cli.done("put", "things", "b", "-", input='"dash"')
    assert cli.documents("things") == {"a": {"from": "input"}, "b": "dash"}


def test_hostile_ids(cli: Cli) -> None:
    for number, id in enumerate(IDS):
        cli.done("put", "things", "--", id, str(number))
    for number, id in enumerate(IDS):
        assert cli.done("get", "things", "--", id) == f"{number}\n"
    assert list(cli.documents("things")) == IDS
    for id in IDS:
        cli.done("remove", "things", "--", id)
    assert cli.documents("things") == {}


def test_put_prints_nothing_and_overwrites(cli: Cli) -> None:
    assert cli.done("put", "things", "a", "1") == ""
    assert cli.done("put", "things", "a", "2") == ""
    assert cli.documents("things") == {"a": 2}


def test_missing_documents_and_collections_exit_with_1(cli: Cli) -> None:
    cli.done("put", "things", "a", "null")
    assert cli.fails(1, "get", "things", "b") == "there is no document 'b' in things"
    assert cli.fails(1, "remove", "things", "b") == "there is no document 'b' in things"
    for command in (
        ["get", "nobody", "b"],
        ["list", "nobody"],
        ["find", "nobody"],
        ["export", "nobody"],
    ):
        assert cli.fails(1, *command) == "there is no collection 'nobody'"
    assert "nobody" not in cli.done("collections")


def test_errors_name_the_nearest_name(cli: Cli) -> None:
    cli.done("put", "people", "ada", '{"n": 1}')
    cli.done("index", "create", "people", "n")
    problem = "there is no collection 'peple': did you mean 'people'?"
    for words in (
        *(("list", "peple"), ("find", "peple"), ("explain", "peple"), ("get", "peple", "ada")),
        *(("remove", "peple", "ada"), ("purge", "peple"), ("drop", "peple", "--yes")),
        *(("backup", "x.jsonl", "peple"), ("copy", "peple", "--to", "sqlite://")),
    ):
        assert cli.fails(1, *words) == problem, words
    assert cli.fails(1, "get", "people", "adda") == "there is no document 'adda' in people"
    problem = "there is no index 'm_1' on people: did you mean 'n_1'?"
    assert cli.fails(1, "index", "drop", "people", "m_1") == problem
    problem = "there is no command 'fnd': did you mean 'find'? (see collections-store --help)"
    assert cli.fails(2, "fnd") == problem
    assert "'curent': did you mean 'current'?" in cli.fails(2, "db", "curent")
    assert "did you mean" not in cli.fails(2, "nonsense")


def test_an_emptied_collection_exists(cli: Cli) -> None:
    cli.done("put", "things", "a", "1")
    cli.done("remove", "things", "a")
    assert cli.done("list", "things") == ""
    assert cli.done("find", "things", "--output", "json") == "[]\n"
    assert cli.done("find", "things", "--count") == "0\n"


def test_invalid_input_exits_with_3(cli: Cli) -> None:
    cli.done("put", "things", "a", "1")
    wrong = {
        "at 'deep.n'": ("put", "things", "x", '{"deep": {"n": 123456789012345678901234567890}}'),
        "BODY is not JSON: ": ("put", "things", "x", "{'a': 1}"),
        "NaN is not a JSON number": ("put", "things", "x", "[1234567890123456789, NaN]"),
        "NUL": ("put", "things", "x", '"\\u0000"'),
        "deeper": ("put", "things", "x", "[" * 201 + "]" * 201),
        "'a-b' cannot name a collection": ("put", "a-b", "x", "1"),
        "cannot name": ("list", "'; DROP TABLE cs_collections; --"),
        "2,000": ("put", "things", "x" * 2001, "1"),
        "FILTER is not JSON: ": ("find", "things", "{a: 1}"),
        "a filter must be a document": ("find", "things", "[1]"),
        "no such operator": ("find", "things", '{"a": {"$nearby": 1}}'),
        "$nowhere": ("find", "things", '{"$nowhere": 1}'),
    }
    for message, arguments in wrong.items():
        assert message in cli.fails(3, *arguments)
    assert cli.documents("things") == {"a": 1}


def test_usage_errors_exit_with_2(cli: Cli) -> None:
    assert "argument (a b)" in cli.fails(2, "get", "things", "x", "a\nb")
    assert "--help)" in cli.fails(2, "bogus")
    assert "COLLECTION" in cli.fails(2, "get")
    assert "--bogus" in cli.fails(2, "list", "--bogus", "x")
    assert "yaml" in cli.fails(2, "list", "x", "--output", "yaml")
    assert "-1" in cli.fails(2, "list", "x", "--limit", "-1")


def test_find(cli: Cli) -> None:
    people = {
        "ada": {"address": {"city": "Berlin"}, "age": 36, "tags": ["a", "b"]},
        "bob": {"address": {"city": "Paris"}, "age": 36, "tags": []},
        "eve": "not an object",
    }
    for id, body in people.items():
        cli.done("put", "people", id, json.dumps(body))
    found = cli.done("find", "people", '{"address.city": "Berlin", "age": 36}')
    assert found.count("\n") == 1
    assert json.loads(found) == {"id": "ada", "body": people["ada"]}
    assert cli.done("find", "people", '{"age": 36}', "--count") == "2\n"
    assert cli.done("find", "people", '{"age": "36"}', "--count") == "0\n"
    assert cli.done("find", "people", '{"tags": "b"}', "--count") == "1\n"
    assert cli.done("find", "people", '{"$id": "eve"}') == '{"id":"eve","body":"not an object"}\n'
    assert cli.done("find", "people", "--count") == "3\n"
    assert cli.done("find", "people", "--count", "--limit", "2") == "2\n"


def test_outputs(cli: Cli) -> None:
    for id in ("b", "a", "c"):
        cli.done("put", "things", id, f'{{"is":"{id}"}}')
    lines = cli.done("list", "things").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["b", "a", "c"]
    assert cli.done("find", "things").splitlines() == lines
    for command in ("list", "find"):
        array = json.loads(cli.done(command, "things", "--output", "json"))
        assert array == [json.loads(line) for line in lines]
        limited = cli.done(command, "things", "--output", "json", "--limit", "2")
        assert json.loads(limited) == array[:2]
        assert cli.done(command, "things", "--limit", "0") == ""


def test_a_table_fits_the_terminal_and_escapes_hostile_text(cli: Cli) -> None:
    cli.done("put", "things", "[red]a[/red]", json.dumps("x" * 500))
    cli.done("put", "things", "a\x1b[31m\u202eb", "[1]")
    shown = cli.done("list", "things", "--output", "table")
    assert {len(line) for line in shown.splitlines()} == {100}
    assert "[red]a[/red]" in shown
    assert "a\\x1b[31m\\u202eb" in shown
    assert '"xxx' in shown
    assert "…" in shown


def cells(shown: str) -> list[list[str]]:
    """Return the rows of a table, its head first."""
    lines = [line for line in shown.splitlines() if line[:1] in {"│", "┃"}]
    return [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines]


def test_a_table_has_a_column_for_each_field(cli: Cli) -> None:
    cli.done("put", "things", "1", '{"at": {"city": "Bonn"}, "id": null, "name": "Ada"}')
    cli.done("put", "things", "2", '{"name": 5, "[red]": [1, true]}')
    cli.done("put", "things", "3", '"text"')
    assert cells(cli.done("find", "things", "--output", "table")) == [
        ["id", "at", "id", "name", "[red]", "(body)"],
        ["1", '{"city":"Bonn"}', "null", "Ada", "", ""],
        ["2", "", "", "5", "[1,true]", ""],
        ["3", "", "", "", "", '"text"'],
    ]
    assert cells(cli.done("list", "things", "--limit", "0", "--output", "table")) == [["id"]]


def test_a_table_has_a_column_for_each_projected_field(cli: Cli) -> None:
    cli.done("put", "things", "1", '{"at": {"city": "Bonn"}, "n": 1}')
    cli.done("put", "things", "2", '{"at": [{"city": "Rome"}, {"zip": 1}, {"city": "Oslo"}]}')
    find_command = ("find", "things", "--fields", "none,at.city", "--output")
    assert cells(cli.done(*find_command, "table")) == [
        ["id", "none", "at.city"],
        ["1", "", "Bonn"],
        ["2", "", '["Rome","Oslo"]'],
    ]
    bodies = [json.loads(line)["body"] for line in cli.done(*find_command, "jsonl").splitlines()]
    assert bodies == [
        {"at": {"city": "Bonn"}},
        {"at": [{"city": "Rome"}, {}, {"city": "Oslo"}]},
    ]


def test_a_table_of_many_fields_fits_the_terminal(cli: Cli) -> None:
    for number in range(3):
        body = {f"{number}-{n}": "x" * 300 for n in range(200)}
        cli.done("put", "things", str(number), json.dumps(body))
    shown = cli.done("find", "things", "--output", "table")
    assert max(map(len, shown.splitlines())) <= 100
    assert len(cells(shown)) == 4


def test_the_default_database_is_a_file_in_the_current_folder(here: Path) -> None:
    cli = Cli()
    cli.done("put", "things", "a", "1")
    assert (here / "collections.db").exists()
    assert cli.done("get", "things", "a") == "1\n"
    assert Cli(("--url=sqlite:///collections.db",)).done("get", "things", "a") == "1\n"


def test_precedence_of_url_options_and_the_variable(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> set[str]:
        return {path.stem for path in here.glob("*.db")}

    monkeypatch.setenv("COLLECTIONS_STORE_URL", "sqlite:///variable.db")
    CliRunner().invoke(program, ["put", "t", "a", "1"], catch_exceptions=False)
    assert files() == {"variable"}
    before = ["--url", "sqlite:///program.db"]
    CliRunner().invoke(program, [*before, "put", "t", "a", "1"], catch_exceptions=False)
    assert files() == {"variable", "program"}
    behind = ["--url", "sqlite:///command.db"]
    CliRunner().invoke(program, [*before, "put", "t", "a", "1", *behind], catch_exceptions=False)
    assert files() == {"variable", "program", "command"}
    assert Cli().done("list", "t", *behind) == '{"id":"a","body":1}\n'


READING = [
    ("get", "things", "a"),
    ("remove", "things", "a"),
    ("find", "things"),
    ("list", "things"),
    ("collections",),
    ("drop", "things", "--yes"),
    ("distinct", "things", "a"),
    ("explain", "things"),
    ("delete", "things", "{}", "--yes"),
    ("index", "list", "things"),
    ("index", "drop", "things", "a_1"),
    ("export", "things"),
    ("export", "things", "out.jsonl"),
    ("info",),
    ("db", "current"),
    ("db", "check"),
    ("db", "sql"),
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_commands_create_no_file(here: Path, arguments: tuple[str, ...]) -> None:
    message = Cli().fails(4, *arguments)
    assert message.startswith(f"there is no SQLite file {str(here / 'collections.db')!r}")
    assert list(here.iterdir()) == []


def test_prefixes_separate_stores(here: Path) -> None:
    Cli().done("put", "things", "a", "1")
    Cli().done("put", "things", "a", "2", "--prefix", "other_")
    assert Cli().done("get", "things", "a") == "1\n"
    assert Cli(("--prefix=other_",)).done("get", "things", "a") == "2\n"
    assert "prefix" in Cli().fails(2, "list", "things", "--prefix", "DROP TABLE")


def test_unusable_databases(here: Path) -> None:
    (here / "text.db").write_text("this is no database, and long enough to be looked at" * 20)
    assert "no SQLite database" in Cli().fails(4, "list", "x", "--url", "sqlite:///text.db")
    assert "folder" in Cli().fails(4, "put", "x", "a", "1", "--url", "sqlite:///no/where.db")
    Cli().fails(2, "list", "x", "--url", "nonsense")
    problem = "'c.db' is a path, not a URL: use sqlite:///c.db"
    assert Cli().fails(2, "list", "x", "--url", "c.db") == problem
    Cli().fails(2, "list", "x", "--url", "mysql://u:secret@host/x")
    Cli().fails(2, "list", "x", "--schema", "s")
    message = Cli().fails(4, "list", "x", "--url", "postgresql://u:secret@127.0.0.1:1/x")
    assert "secret" not in message


def test_a_locked_file_exits_with_4(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cli().done("put", "things", "a", "1")
    hasty = Store("sqlite:///collections.db", busy_timeout=0.05)
    monkeypatch.setattr(Target, "to_write", lambda _: hasty)
    with sqlite3.connect(here / "collections.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "locked" in Cli().fails(4, "put", "things", "a", "2")
        other.execute("ROLLBACK")
    other.close()


def test_help_and_version(here: Path) -> None:
    assert Cli().done() == Cli().done("--help")
    assert "Exit codes:" in Cli().done()
    assert "upgrade" in Cli().done("db")
    assert Cli().done("--version").startswith("collections-store ")
    assert list(here.iterdir()) == []


def test_other_spellings_of_sqlite_urls(here: Path) -> None:
    Cli().done("put", "things", "a", "1")
    file = here / "collections.db"
    for url in (
        "sqlite://./collections.db",
        f"sqlite:///{file}",
        "sqlite+pysqlite:///collections.db",
    ):
        assert Cli((f"--url={url}",)).done("get", "things", "a") == "1\n"
        assert "sqlite 3." in Cli((f"--url={url}",)).done("info")
    uri = "sqlite:///file:collections.db?mode=ro&uri=true"
    assert Cli((f"--url={uri}",)).done("get", "things", "a") == "1\n"
    Cli((f"--url={uri.replace('collections.db', 'other.db')}",)).fails(4, "get", "things", "a")
    for url in ("sqlite://", "sqlite:///:memory:"):
        Cli((f"--url={url}",)).done("put", "things", "a", "1")
        Cli((f"--url={url}",)).fails(1, "get", "things", "a")
    Cli(("--url=sqlite://./other.db",)).fails(4, "list", "things")
    assert [path.name for path in here.glob("*.db")] == ["collections.db"]
