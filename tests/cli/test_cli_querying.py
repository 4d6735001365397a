"""The commands count, aggregate and stats, and CSV for spreadsheets."""

import csv
import io
import json
import re
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for

pytestmark = pytest.mark.each_backend
PEOPLE: dict[str, Any] = {
    "ada": {"name": "Ada", "address": {"city": "Berlin", "zip": None}, "tags": ["a"]},
    "bob": {"name": 'B"o,b\n', "address": "none", "empty": {}},
    "eve": 5,
}


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    cli = cli_for(shared_backend)
    for id, body in PEOPLE.items():
        cli.done("put", "people", id, json.dumps(body))
    return cli


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_count(cli: Cli) -> None:
    assert cli.done("count", "people") == "3\n"
    assert cli.done("count", "people", '{"name": "Ada"}') == "1\n"
    assert "no collection" in cli.fails(1, "count", "nobody")


def test_aggregate(cli: Cli) -> None:
    pipeline = '[{"$match": {"name": "Ada"}}, {"$project": {"name": 1, "_id": 0}}]'
    assert cli.done("aggregate", "people", pipeline) == '{"name":"Ada"}\n'
    assert cli.done("aggregate", "people", input=pipeline) == '{"name":"Ada"}\n'
    assert json.loads(cli.done("aggregate", "people", pipeline, "--output", "json")) == [
        {"name": "Ada"}
    ]
    assert "│ Ada  │" in cli.done("aggregate", "people", pipeline, "--output", "table")
    assert cli.done("aggregate", "people", pipeline, "--output", "csv") == "name\nAda\n"
    assert cli.done("aggregate", "people", '[{"$merge": "copies"}]', "--output", "csv") == ""
    assert cli.done("count", "copies") == cli.done("count", "people")
    assert "$nosuch" in cli.fails(3, "aggregate", "people", '[{"$nosuch": 1}]')


CASE, LETTERS = '{"locale": "simple", "strength": 2}', '{"locale": "simple", "strength": 1}'


def test_reads_under_a_collation(cli: Cli) -> None:
    cli.done("put", "people", "zoe", '{"name": "ad\u00e1"}')
    ada, case, letters = '{"name": "ADA"}', ("--collation", CASE), ("--collation", LETTERS)
    assert cli.done("count", "people", ada) == "0\n"
    assert cli.done("count", "people", ada, *case) == "1\n"
    assert cli.done("count", "people", ada, *letters) == "2\n"
    assert cli.done("find", "people", ada, *letters, "--count") == "2\n"
    for more in ((), ("--sort", "name"), ("--limit", "5")):
        lines = cli.done("find", "people", ada, *letters, *more).splitlines()
        assert [json.loads(each)["id"] for each in lines] == ["ada", "zoe"]
    assert json.loads(cli.done("distinct", "people", "name", ada, *letters)) == "Ada"
    pipeline = '[{"$match": {"name": "ADA"}}, {"$count": "n"}]'
    assert cli.done("aggregate", "people", pipeline, *letters) == '{"n":2}\n'
    explained = cli.done("aggregate", "people", pipeline, "--explain", *letters)
    assert "filter in Python: {'name': 'ADA'}" in explained
    assert "filter in Python: {'name': 'ADA'}" in cli.done("explain", "people", ada, *case)
    assert "filter in Python" not in cli.done("explain", "people", ada)
    assert "--collation is not JSON" in cli.fails(3, "count", "people", "--collation", "{")
    assert "option collation" in cli.fails(2, "count", "people", "--collation", "5")


def test_aggregate_explained(cli: Cli) -> None:
    pipeline = '[{"$sort": {"age": 1}}, {"$limit": 2}, {"$unset": "name"}]'
    lines = cli.done("aggregate", "people", pipeline, "--explain").splitlines()
    assert lines[:2] == ["in the database: $sort, $limit", "in Python: $unset"]
    assert "index create people age" in lines[-1]


def test_columns_of_csv_are_the_sorted_paths_of_all_values(cli: Cli) -> None:
    expected = [
        ["$id", "$body", "address", "address.city", "address.zip", "empty", "name", "tags"],
        ["ada", "", "", "Berlin", "", "", "Ada", '["a"]'],
        ["bob", "", "none", "", "", "{}", 'B"o,b\n', ""],
        ["eve", "5", "", "", "", "", "", ""],
    ]
    assert rows(cli.done("find", "people", "--output", "csv")) == expected
    backwards = rows(cli.done("find", "people", "--sort", "$id:-1", "--output", "csv"))
    assert backwards == [expected[0], *reversed(expected[1:])]


def test_columns_of_csv_are_the_fields_in_their_order(cli: Cli) -> None:
    fields = ("--fields", "tags,address.city,nothing", "--output", "csv")
    assert rows(cli.done("find", "people", *fields)) == [
        ["$id", "tags", "address.city", "nothing"],
        ["ada", '["a"]', "Berlin", ""],
        ["bob", "", "", ""],
        ["eve", "", "", ""],
    ]
    assert cli.done("find", "people", '{"name": "nobody"}', *fields).count("\n") == 1


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_no_cell_of_csv_is_a_formula(cli: Cli, first: str) -> None:
    formula = f"{first}cmd|' /C calc'!A0"
    cli.done("put", "people", "--", formula, json.dumps({formula: formula, "n": -5}))
    filter = json.dumps({"n": -5})
    for options in ((), ("--fields", f"{formula},n")):
        found = rows(cli.done("find", "people", filter, *options, "--output", "csv"))
        assert found in (
            [["$id", f"'{formula}", "n"], [f"'{formula}", f"'{formula}", "-5"]],
            [["$id", "n", f"'{formula}"], [f"'{formula}", "-5", f"'{formula}"]],
        )
    pipeline = json.dumps([{"$match": {"n": -5}}, {"$project": {"_id": 0}}])
    assert f"'{formula}" in cli.done("aggregate", "people", pipeline, "--output", "csv")


def test_keys_with_dots_are_other_columns(cli: Cli) -> None:
    cli.done("put", "dots", "a", '{"a.b": 1, "a": {"b": 2}, "$id": 3}')
    assert rows(cli.done("find", "dots", "--output", "csv")) == [
        ["$id", '["$id"]', "a.b", '["a.b"]'],
        ["a", "3", "2", "1"],
    ]


def test_stats(cli: Cli) -> None:
    cli.done("index", "create", "people", "name")
    facts = json.loads(cli.done("stats", "people", "--json"))
    assert facts["bytes"] > 0
    assert facts["created"] <= facts["last write"]
    assert (facts["documents"], facts["indexes"]) == (3, ["name_1"])
    assert (facts["expiring"], facts["next expiry"]) == (0, None)
    assert [*facts["index sizes"]] == ["name_1"]
    assert facts["index sizes"]["name_1"] >= 4096
    assert set(facts["index uses"]) <= {"name_1"}  # SQLite does not count uses
    cli.done("put", "people", "zoe", "1", "--ttl", "1000")
    facts = json.loads(cli.done("stats", "people", "--json"))
    assert (facts["documents"], facts["expiring"]) == (4, 1)
    assert facts["next expiry"] > facts["last write"]
    lines = cli.done("stats", "people")
    assert "documents    4\n" in lines
    assert re.search(r"index sizes  name_1 [\d,]+\n", lines)
    assert "no collection" in cli.fails(1, "stats", "nobody")
