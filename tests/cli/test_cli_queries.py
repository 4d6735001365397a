"""The commands find with sorts and projections, distinct, explain and delete."""

import json
import os
import shlex
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for, error_line, process_environment

from collections_store import Collection

PEOPLE: dict[str, Any] = {
    "ada": {"name": "Ada", "age": 36, "address": {"city": "Berlin"}, "tags": ["b", "a"]},
    "bob": {"name": "Bob", "age": 30, "address": {"city": "Paris"}, "tags": ["a"]},
    "eve": {"name": "Eve", "age": 36, "x:-1": 1, "a.b": {"c": 5}, "{": 2},
    "text": "not an object",
}


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    cli = cli_for(shared_backend)
    lines = (json.dumps({"id": id, "body": body}) for id, body in PEOPLE.items())
    cli.done("import", "people", input="\n".join(lines))
    return cli


def ids(cli: Cli, *arguments: str) -> list[str]:
    lines = cli.done("find", "people", *arguments).splitlines()
    return [json.loads(line)["id"] for line in lines]


def bodies(cli: Cli, *arguments: str) -> list[Any]:
    lines = cli.done("find", "people", *arguments).splitlines()
    return [json.loads(line)["body"] for line in lines]


ORDERS: dict[tuple[str, ...], list[str]] = {
    ("name",): ["text", "ada", "bob", "eve"],
    ("name:1",): ["text", "ada", "bob", "eve"],
    ("name:-1",): ["eve", "bob", "ada", "text"],
    ("age:-1", "name:-1"): ["eve", "ada", "bob", "text"],
    ('{"age": -1, "name": -1}',): ["eve", "ada", "bob", "text"],
    ('["age", ["name", -1]]',): ["text", "bob", "eve", "ada"],
    ("address.city:-1",): ["bob", "ada", "eve", "text"],
    ("$id:-1",): ["text", "eve", "bob", "ada"],
    ("x:-1",): ["ada", "bob", "eve", "text"],
    ("x:-1:-1",): ["eve", "ada", "bob", "text"],
    ('{"x:-1": -1}',): ["eve", "ada", "bob", "text"],
    ('{"{": -1}',): ["eve", "ada", "bob", "text"],
    ("a.b.c:-1",): ["ada", "bob", "eve", "text"],
    ('[[["a.b", "c"], -1]]',): ["eve", "ada", "bob", "text"],
    ("[]",): ["ada", "bob", "eve", "text"],
}


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_sort(cli: Cli, order: tuple[str, ...]) -> None:
    options = [word for field in order for word in ("--sort", field)]
    assert ids(cli, *options) == ORDERS[order]
    assert ids(cli, *options, "--skip", "1", "--limit", "2") == ORDERS[order][1:3]
    assert ids(cli, *options, "--skip", "3") == ORDERS[order][3:]


def test_skip_and_limit(cli: Cli) -> None:
    for command in ("list", "find"):
        lines = cli.done(command, "people").splitlines()
        assert cli.done(command, "people", "--skip", "2").splitlines() == lines[2:]
        both = ("--skip", "1", "--limit", "2")
        assert cli.done(command, "people", *both).splitlines() == lines[1:3]
        assert cli.done(command, "people", "--skip", "9", "--limit", "2") == ""
    assert cli.done("find", "people", "--count", "--skip", "1") == "3\n"
    assert cli.done("find", "people", "--count", "--skip", "9") == "0\n"
    assert cli.done("find", "people", "--count", "--skip", "1", "--limit", "2") == "2\n"


@pytest.mark.parametrize("window", [(), ("--limit", "9"), ("--sort", "$id")], ids=" ".join)
def test_projections(cli: Cli, window: tuple[str, ...]) -> None:
    parts = [{"name": "Ada", "address": {"city": "Berlin"}}, {"name": "Eve"}]
    filter = ('{"age": 36}', *window)
    assert bodies(cli, *filter, "--fields", "name,address.city") == parts
    wanted = '{"name": 1, "address.city": 1}'
    assert bodies(cli, *filter, "--projection", wanted) == parts
    assert bodies(cli, *filter, "--projection", '["name"]') == [{"name": "Ada"}, {"name": "Eve"}]
    sliced = '{"tags": {"$slice": 1}, "name": 1}'
    assert bodies(cli, *filter, "--projection", sliced)[0] == {"name": "Ada", "tags": ["b"]}
    tagged = ('{"tags": "a"}', *window, "--projection", '{"tags.$": 1}')
    assert bodies(cli, *tagged) == [{"tags": ["a"]}, {"tags": ["a"]}]
    array = json.loads(cli.done("find", "people", *filter, "--fields", "name", "--output", "json"))
    assert array == [{"id": "ada", "body": {"name": "Ada"}}, {"id": "eve", "body": {"name": "Eve"}}]
    assert "│ Ada" in cli.done("find", "people", "--fields", "name", "--output", "table")


def test_a_projection_is_independent_of_the_limit(cli: Cli) -> None:
    cli.done("put", "things", "a", '{"list": [{"x": 1, "y": 2}, {"y": 2, "x": 1, "z": 3}]}')
    for element in ('{"x": 1, "y": 2}', '{"y": 2, "x": 1}'):
        filter = f'{{"list": {element}}}'
        words = ("find", "things", filter, "--projection", '{"list.$": 1}')
        assert cli.done(*words) == cli.done(*words, "--limit", "1")


def test_unsorted_documents_are_streamed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Collection, "find")
    assert len(ids(cli)) == 4
    assert len(ids(cli, "--skip", "1")) == 3
    assert bodies(cli, "--fields", "name")[0] == {"name": "Ada"}


def test_invalid_queries(cli: Cli) -> None:
    wrong = {
        "sort, at 'age': sorts twice": ("--sort", "age", "--sort", "age:-1"),
        "sort, at 'age': the direction must be 1 or -1, got 2": ("--sort", '{"age": 2}'),
        "sort, at 'age': the direction must be 1 or -1, got []": ("--sort", '{"age": []}'),
        "sort, at 'age': the direction must be 1 or -1, got True": ("--sort", '[["age", true]]'),
        "must be a field, or a pair of field and direction, got [1, 2, 3]": (
            "--sort",
            "[[1, 2, 3]]",
        ),
        "must be a field or a list of keys, got []": ("--sort", "[[[], 1]]"),
        "must be a field or a list of keys, got [1]": ("--sort", "[[[1], 1]]"),
        "--sort is not JSON: ": ("--sort", "{age: 1}"),
        "$nowhere": ("--sort", "$nowhere"),
        "--projection is not JSON: ": ("--projection", "name"),
        "projection: must be a document or a list of fields, got 5": ("--projection", "5"),
        "projection, at 'a': ": ("--projection", '{"a": "$$x"}'),
        "projection, at 'name.$'": ("--projection", '{"name.$": 1}'),
        "must be an integer from 0 on": ("--skip", "9223372036854775808", "--limit", "1"),
    }
    for message, options in wrong.items():
        assert message in cli.fails(3, "find", "people", *options)
    assert "--fields" in cli.fails(2, "find", "people", "--fields", "a", "--projection", "{}")
    assert "-1" in cli.fails(2, "find", "people", "--skip", "-1")


def test_distinct(cli: Cli) -> None:
    assert cli.done("distinct", "people", "age") == "30\n36\n"
    assert cli.done("distinct", "people", "tags") == '"a"\n"b"\n'
    assert cli.done("distinct", "people", "address.city", '{"age": 36}') == '"Berlin"\n'
    assert cli.done("distinct", "people", "$id", '{"age": 36}') == '"ada"\n"eve"\n'
    assert cli.done("distinct", "people", "a.b.c") == ""
    assert cli.done("distinct", "people", '["a.b", "c"]') == "5\n"
    assert json.loads(cli.done("distinct", "people", "tags", "--output", "json")) == ["a", "b"]
    assert cli.done("distinct", "people", "nothing", "--output", "json") == "[]\n"
    assert cli.done("distinct", "people", "tags", "-", input='{"age": 30}') == '"a"\n'


def test_usage_errors_of_distinct(cli: Cli) -> None:
    assert cli.fails(1, "distinct", "nothing", "a") == "there is no collection 'nothing'"
    assert "FIELD is not JSON: " in cli.fails(3, "distinct", "people", "[a]")
    assert "must be a field or a list of keys, got [1]" in cli.fails(3, "distinct", "people", "[1]")
    assert "FILTER is not JSON: " in cli.fails(3, "distinct", "people", "a", "{")
    assert "FIELD" in cli.fails(2, "distinct", "people")


def test_delete_needs_a_terminal_or_yes(cli: Cli) -> None:
    assert "--yes" in cli.fails(2, "delete", "people", '{"age": 36}', input="y\n")
    assert len(cli.documents("people")) == 4
    result = cli("delete", "people", '{"age": 36}', "--yes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "deleted 2 documents of people\n"
    assert list(cli.documents("people")) == ["bob", "text"]
    again = cli("delete", "people", '{"age": 36}', "--yes")
    assert (again.exit_code, again.stderr) == (0, "deleted 0 documents of people\n")
    assert cli("delete", "people", "{}", "--yes").stderr == "deleted 2 documents of people\n"
    assert cli.documents("people") == {}


def test_usage_errors_of_delete(cli: Cli) -> None:
    assert "FILTER" in cli.fails(2, "delete", "people", "--yes")
    assert "null" in cli.fails(3, "delete", "people", "null", "--yes")
    assert "FILTER is not JSON: " in cli.fails(3, "delete", "people", "age", "--yes")
    assert "no such operator" in cli.fails(3, "delete", "people", '{"age": {"$x": 1}}', "--yes")
    assert cli.fails(1, "delete", "nothing", "{}", "--yes") == "there is no collection 'nothing'"
    assert len(cli.documents("people")) == 4


def test_explain_as_text(cli: Cli) -> None:
    output = cli.done("explain", "people", '{"age": 36}', "--sort", "name:-1").splitlines()
    names = [line.partition(": ")[0] for line in output]
    assert names == ["uses", "scans", "documents", "order", "advice"]
    query = ("explain", "people", '{"age": 36}', "--plan")
    (shown,) = (line for line in cli.done(*query).splitlines() if line.startswith("filter in SQL"))
    assert shown == "filter in SQL: {'age': 36}"
    assert "\n  " in cli.done(*query)
    cli.done("index", "create", "people", "age", "name:-1")
    assert "order: natural" in cli.done("explain", "people", '{"age": 36}', "--limit", "1")


def test_the_advice_beside_a_sparse_index_is_a_command_that_works(cli: Cli) -> None:
    cli.done("index", "create", "people", "age", "--sparse")
    lines = cli.done("explain", "people", "--sort", "age").splitlines()
    [command] = [each.split(": ", 1)[1] for each in lines if each.startswith("advice")]
    words = shlex.split(command)
    assert cli.done(*words[words.index("index") :]).strip() == "age_1_2"


def test_explain_a_key_that_begins_with_a_dollar(cli: Cli) -> None:
    output = json.loads(cli.done("explain", "people", '{"$body.$x.y": 36}', "--json"))
    assert output["in_sql"] == {"$body.$x.y": 36}


def test_explain_as_json(cli: Cli) -> None:
    filter = '{"age": {"$gt": 30}, "name": {"$regex": "^a", "$options": "i"}}'
    output = json.loads(cli.done("explain", "people", filter, "--sort", "age", "--json"))
    assert output["in_sql"] == json.loads(filter) or output["in_matcher"]
    assert output["order"] in {"database", "python"}
    assert (output["scans"], type(output["indexes"])) == (True, list)
    assert "SELECT" in output["sql"]
    assert output["parameters"]
    assert output["plan"]


def test_explain_advises_an_index(cli: Cli, shared_backend: Backend) -> None:
    filter = ("explain", "people", '{"name": "Ada"}', "--json")
    advice = json.loads(cli.done(*filter))["advice"]
    assert f"\nadvice: {advice}\n" in cli.done(*filter[:-1])
    name, *words = shlex.split(advice)
    assert (name, words[-4:]) == ("collections-store", ["index", "create", "people", "name"])
    if shared_backend.is_postgresql:  # the URL in the advice has no password
        words = [*cli.options, *words[-4:]]
    assert Cli().done(*words) == "name_1\n"
    output = json.loads(cli.done(*filter))
    assert output["advice"] is None
    if not shared_backend.is_postgresql:  # PostgreSQL scans so few documents
        assert (output["scans"], output["indexes"]) == (False, ["name_1"])


@pytest.mark.parametrize(
    ("filter", "sort", "fields"),
    [
        ("{}", ["age:-1", "name"], ["age:-1", "name"]),
        ("{}", ['[[["a.b", "c"], -1]]', "it's"], ['[[["a.b","c"],-1]]', "it's"]),
        ("{}", ["x:-1:1", '{"{": 1, "-a": -1}'], ["x:-1:1", '[[["{"],1]]', '[[["-a"],-1]]']),
    ],
)
def test_advice_of_explain_is_quoted_for_a_shell(
    cli: Cli, filter: str, sort: list[str], fields: list[str]
) -> None:
    explain = ["explain", "people", filter, *(f"--sort={each}" for each in sort), "--json"]
    words = shlex.split(json.loads(cli.done(*explain))["advice"])
    assert words[words.index("people") + 1 :] == fields
    cli.done("index", "create", "people", *fields)
    assert json.loads(cli.done(*explain))["advice"] is None


def test_usage_errors_of_explain(cli: Cli) -> None:
    assert cli.fails(1, "explain", "nothing") == "there is no collection 'nothing'"
    assert "FILTER is not JSON: " in cli.fails(3, "explain", "people", "{")
    assert "twice" in cli.fails(3, "explain", "people", "--sort", "a", "--sort", "a")


@pytest.mark.skipif(os.name == "nt", reason="arguments of Windows are text")
def test_field_names_that_are_not_utf8(sqlite: Cli) -> None:
    sqlite.done("put", "people", "ada", "{}")
    command = sqlite.command("find", "people", "--sort", "\udcff")
    done = subprocess.run(command, env=process_environment(), capture_output=True, check=False)
    assert done.returncode == 3, done.stderr
    error_line(done.stderr.decode())
    for words in (
        ("find", "people", "--fields", "\udcff"),
        ("find", "people", "--projection", "\udcff"),
        ("distinct", "people", "\udcff"),
        ("index", "create", "people", "\udcff"),
        ("index", "create", "people", "a", "--name", "\udcff"),
        ("delete", "people", "\udcff", "--yes"),
    ):
        sqlite.fails(3, *words)


@pytest.fixture
def sqlite(tmp_path: Path) -> Cli:
    return Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))


@pytest.mark.parametrize("order", ["n:desc", "n:-1", "-n", '{"n": -1}'])
def test_descending_sorts(sqlite: Cli, order: str) -> None:
    sqlite.done("put", "t", "a", '{"n": 1}')
    sqlite.done("put", "t", "b", '{"n": 2}')
    assert (
        sqlite.done("find", "t", f"--sort={order}", "--fields", "n").splitlines()[0][:9]
        == '{"id":"b"'
    )
    assert sqlite.done("find", "t", "--sort", "n:asc").splitlines()[0][:9] == '{"id":"a"'


def test_an_unknown_direction_is_rejected(sqlite: Cli) -> None:
    sqlite.done("put", "t", "a", "1")
    assert "asc, -1, desc, got 'down'" in sqlite.fails(3, "find", "t", "--sort", "n:down")
    assert "before the field or behind it" in sqlite.fails(3, "find", "t", "--sort=-n:asc")
    assert sqlite.done("find", "t", "--sort", '[[["n:down"], -1]]') == '{"id":"a","body":1}\n'


def test_skip_and_limit_beyond_64_bits_are_rejected(sqlite: Cli) -> None:
    sqlite.done("put", "t", "a", "1")
    assert "skip" in sqlite.fails(3, "list", "t", "--skip", str(2**63))
    assert "limit" in sqlite.fails(3, "list", "t", "--limit", str(2**63))


def test_help_is_complete_and_has_a_short_option(sqlite: Cli) -> None:
    overview = sqlite.done("-h")
    assert overview == sqlite.done("--help")
    assert "..." not in overview.partition("Commands:")[2].partition("Exit codes")[0]
    assert sqlite.done("find", "-h") == sqlite.done("find", "--help")


def test_errors_name_a_damaged_document(sqlite: Cli, tmp_path: Path) -> None:
    sqlite.done("put", "t", "a", "1")
    sqlite.done("put", "t", "b", '{"n": 2}')
    file = sqlite.options[0].removeprefix("--url=sqlite:///")
    with closing(sqlite3.connect(file)) as connection:
        [(table,)] = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'cs\\_%\\_t' ESCAPE '\\'"
        )
        connection.execute(f"UPDATE \"{table}\" SET body = '{{\"n\": 2' WHERE id = 'b'")
        connection.commit()
    for command in (
        ("get", "t", "b"),
        ("list", "t"),
        ("list", "t", "--limit", "5"),
        ("export", "t"),
    ):
        assert "document 'b' is damaged" in sqlite.fails(6, *command)
