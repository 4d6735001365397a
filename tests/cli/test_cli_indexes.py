"""index list, create and drop."""

import json
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for

INDEXES: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (
        ("address.city", "age:-1"),
        {"name": "address.city_1_age_-1", "fields": [[["address", "city"], 1], [["age"], -1]]},
    ),
    (
        ("login", "--unique", "--where", '{"age": {"$gte": 0}, "name": {"$in": [1, "ü"]}}'),
        {
            "name": "login_1",
            "fields": [[["login"], 1]],
            "unique": True,
            "where": {"age": {"$gte": 0}, "name": {"$in": [1, "ü"]}},
        },
    ),
    (('[[["a.b", "$c"], -1]]', "--name", "Dots, ü"), {"fields": [[["a.b", "$c"], -1]]}),
    (
        ("state", "$created_at:-1"),
        {"name": "state_1_$created_at_-1", "fields": [[["state"], 1], ["$created_at", -1]]},
    ),
    (("tags", "--arrays"), {"name": "tags_arrays", "fields": [[["tags"], 1]], "arrays": True}),
    (
        ("h", "--hidden", "--sparse"),
        {"name": "h_1", "fields": [[["h"], 1]], "sparse": True, "hidden": True},
    ),
    (("at.$**",), {"name": "at.$**_1", "fields": [["at.$**", 1]], "arrays": True}),
]


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    return cli_for(shared_backend)


def indexes(cli: Cli, collection: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli.done("index", "list", collection).splitlines()]


def test_indexes_are_created_listed_and_dropped(cli: Cli) -> None:
    expected = []
    for arguments, facts in INDEXES:
        usual = {"name": "Dots, ü", "unique": False, "where": None, "arrays": False}
        expected.append(usual | facts)
        for _ in range(2):
            assert cli.done("index", "create", "a", *arguments) == f"{expected[-1]['name']}\n"
    assert indexes(cli, "a") == expected
    assert json.loads(cli.done("index", "list", "a", "--output", "json")) == expected
    table = cli.done("index", "list", "a", "--output", "table")
    assert all(word in table for word in ("address.city:1", "age:-1", "unique", "Dots, ü"))
    for name in (str(index["name"]) for index in expected):
        assert cli.done("index", "drop", "a", name) == ""
    assert cli.done("index", "list", "a") == ""
    assert cli.done("index", "list", "a", "--output", "json") == "[]\n"


def test_indexes_are_hidden(cli: Cli) -> None:
    cli.done("index", "create", "a", "x")
    [shown] = indexes(cli, "a")
    assert cli.done("index", "hide", "a", "x_1") == ""
    assert indexes(cli, "a") == [{**shown, "hidden": True}]
    assert "hidden" in cli.done("index", "list", "a", "--output", "table")
    assert "index unhide a x_1" in cli.done("explain", "a", '{"x": {"$gt": 1}}')
    assert cli.done("index", "unhide", "a", "x_1") == ""
    assert indexes(cli, "a") == [shown]
    for command in ("hide", "unhide"):
        assert cli.fails(1, "index", command, "a", "y_1") == (
            "there is no index 'y_1' on a: did you mean 'x_1'?"
        )
        assert "which cannot be hidden" in cli.fails(3, "index", command, "a", "_id_")
    assert "--hidden does not go with --text" in cli.fails(
        2, "index", "create", "a", "x", "--text", "--hidden"
    )


def test_missing_collections_and_indexes(cli: Cli) -> None:
    cli.done("put", "a", "1", "{}")
    assert cli.fails(1, "index", "drop", "a", "x_1") == "there is no index 'x_1' on a"
    assert cli.fails(1, "index", "drop", "b", "x_1") == "there is no collection 'b'"
    assert cli.fails(1, "index", "list", "b") == "there is no collection 'b'"
    assert "create" in cli.done("index")


def test_invalid_indexes(cli: Cli) -> None:
    cli.done("put", "a", "1", '{"x": 1}')
    cli.done("put", "a", "2", '{"x": 1}')
    cli.done("index", "create", "a", "y")
    wrong = {
        "'$id': the ids always have an index": ("$id",),
        "the direction must be 1 or -1": ('{"x": 0}',),
        "sorts twice": ("x", "x:-1"),
        "FIELD is not JSON: ": ("{x}",),
        "--where is not JSON: ": ("x", "--where", "{"),
        "filter, at 'x.$near'": ("x", "--where", '{"x": {"$near": 1}}'),
        "index, at 'where'": ("x", "--where", '{"x": {"$ne": 1}}'),
        "which the unique index 'x_arrays' forbids": ("x", "--unique", "--arrays"),
        "'name': must be a printable string": ("x", "--name", "\x07"),
        "the same {'x': 1} as another, which the unique index 'x_1' forbids": ("x", "--unique"),
        "index 'y_1' would be another": ("x", "--name", "y_1"),
    }
    for message, arguments in wrong.items():
        assert message in cli.fails(3, "index", "create", "a", *arguments)
    assert "FIELD" in cli.fails(2, "index", "create", "a")
    assert [index["name"] for index in indexes(cli, "a")] == ["y_1"]


def test_a_unique_index_rejects_duplicates(cli: Cli) -> None:
    cli.done("index", "create", "a", "login", "--unique")
    cli.done("put", "a", "1", '{"login": "ada"}')
    message = cli.fails(3, "put", "a", "2", '{"login": "ada"}')
    assert "'2' would have the same {'login': 'ada'}" in message
    assert "the unique index 'login_1' forbids" in message


def test_an_index_by_which_documents_expire(cli: Cli) -> None:
    cli.done("put", "a", "1", '{"at": "2020-01-01T00:00:00Z"}')
    cli.done("index", "create", "a", "at", "--expire-after-seconds", "0")
    assert "expires after 0 s" in cli.done("index", "list", "a", "--output", "table")
    exported = cli.done("export", "a")
    cli.done("import", "b", input=exported)
    assert cli.done("index", "list", "b") == cli.done("index", "list", "a")
    cli.done("purge", "a")
    assert (cli.done("count", "a"), cli.done("count", "b")) == ("0\n", "1\n")
    words = ("index", "create", "a", "x", "--text", "--expire-after-seconds", "0")
    assert "--expire-after-seconds does not go with --text" in cli.fails(2, *words)
