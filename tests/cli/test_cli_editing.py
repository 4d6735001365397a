"""The commands insert, update and delete."""

import json

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for

pytestmark = pytest.mark.each_backend


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    cli = cli_for(shared_backend)
    for id, age in {"ada": 36, "bob": 30, "eve": 36}.items():
        cli.done("put", "people", id, json.dumps({"age": age}))
    return cli


def test_insert_prints_the_id_of_a_new_document(cli: Cli) -> None:
    id = cli.done("insert", "people", '{"age": 1}').strip()
    assert json.loads(cli.done("get", "people", id)) == {"age": 1}
    assert cli.done("insert", "people", "--id", "zoe", input="[2]") == "zoe\n"
    assert cli.done("get", "people", "zoe") == "[2]\n"


def test_insert_replaces_no_document(cli: Cli) -> None:
    assert "'ada'" in cli.fails(3, "insert", "people", "{}", "--id", "ada")
    assert cli.documents("people")["ada"] == {"age": 36}
    assert "BODY is not JSON" in cli.fails(3, "insert", "people", "{")


def test_a_document_of_insert_expires(cli: Cli) -> None:
    cli.done("insert", "people", "{}", "--id", "zoe", "--ttl", "1000")
    assert cli.done("count", "people", '{"$expires_at": {"$ne": null}}') == "1\n"


def test_update_of_the_matching_documents(cli: Cli) -> None:
    result = cli("update", "people", '{"age": 36}', '{"$set": {"age": 37}}', "--yes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "updated 2 of 2 matching documents of people\n"
    assert cli.documents("people") == {"ada": {"age": 37}, "bob": {"age": 30}, "eve": {"age": 37}}
    same = cli("update", "people", '{"age": 37}', '{"$set": {"age": 37}}', "--yes")
    assert same.stderr == "updated 0 of 2 matching documents of people\n"
    cli.done("update", "people", '{"$id": "bob"}', '[{"$set": {"old": "$age"}}]', "--yes")
    assert cli.documents("people")["bob"] == {"age": 30, "old": 30}


def test_update_with_upsert_and_array_filters(cli: Cli) -> None:
    options = ("--upsert", "--yes")
    dry = cli(
        "update", "people", '{"$id": "zoe"}', '{"$set": {"n": [1, 5]}}', "--upsert", "--dry-run"
    )
    assert dry.stderr == "would insert a document into people\n"
    assert (dry.stdout, "zoe" in cli.documents("people")) == ("", False)
    assert (
        cli.done("update", "people", '{"$id": "zoe"}', '{"$set": {"n": [1, 5]}}', *options)
        == "zoe\n"
    )
    filters = ("--array-filters", '[{"e": {"$gt": 3}}]')
    cli.done("update", "people", '{"$id": "zoe"}', '{"$set": {"n.$[e]": 0}}', *filters, "--yes")
    assert cli.documents("people")["zoe"] == {"n": [1, 0]}


def test_a_dry_run_changes_nothing_and_finds_what_an_update_would_refuse(cli: Cli) -> None:
    before = cli.documents("people")
    update = ("update", "people", "{}", '{"$set": {"age": 36}}')
    assert cli(*update, "--dry-run").stderr == "would update 1 of 3 matching documents of people\n"
    assert cli("delete", "people", '{"age": 36}', "--dry-run").stderr == (
        "would delete 2 documents of people\n"
    )
    refused = ("update", "people", "{}", '{"$push": {"age": 1}}')
    assert cli.fails(3, *refused, "--dry-run") == cli.fails(3, *refused, "--yes")
    assert cli.documents("people") == before


def test_update_asks_and_needs_all_arguments(cli: Cli) -> None:
    update = ("update", "people", "{}", '{"$set": {"age": 1}}')
    assert "--yes" in cli.fails(2, *update)
    assert cli.documents("people")["ada"] == {"age": 36}
    assert "{} matches all" in cli.fails(3, "update", "people", "null", "{}", "--yes")
    assert "CHANGE is not JSON" in cli.fails(3, "update", "people", "{}", "{", "--yes")
    assert "no collection 'nobody'" in cli.fails(1, "update", "nobody", "{}", "{}", "--yes")


def test_writes_under_a_collation(cli: Cli) -> None:
    cli.done("put", "people", "zoe", '{"name": "Zoe", "tags": ["a", "B"]}')
    case = ("--collation", '{"locale": "simple", "strength": 2}')
    pull = ("people", '{"name": "ZOE"}', '{"$pull": {"tags": "b"}}')
    assert "update 0 of 0" in cli("update", *pull, "--dry-run").stderr
    assert "update 1 of 1" in cli("update", *pull, "--dry-run", *case).stderr
    cli.done("update", *pull, "--yes", *case)
    assert cli.documents("people")["zoe"] == {"name": "Zoe", "tags": ["a"]}
    delete = ("delete", "people", '{"name": "zoe"}')
    assert cli(*delete, "--dry-run", *case).stderr == "would delete 1 document of people\n"
    assert cli(*delete, "--yes").stderr == "deleted 0 documents of people\n"
    assert cli(*delete, "--yes", *case).stderr == "deleted 1 document of people\n"
