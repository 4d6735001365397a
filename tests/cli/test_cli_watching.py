"""The command watch."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for, process_environment

from collections_store import Store


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    cli = cli_for(shared_backend)
    with Store(shared_backend.url, **shared_backend.options) as store:
        store.collection("people", changes="both").put("ada", {"age": 36})
    return cli


def watched(cli: Cli, *arguments: str) -> tuple[list[dict[str, Any]], str]:
    """Return the printed changes, and the token after which to continue."""
    result = cli("watch", "people", *arguments)
    assert result.exit_code == 0, result.stderr
    said, _, token = result.stderr.strip().rpartition(" ")
    assert said == "continue with --after"
    return [json.loads(line) for line in result.stdout.splitlines()], token


@pytest.mark.each_backend
def test_changes_are_lines_and_continue_after_a_token(cli: Cli) -> None:
    cli.done("put", "people", "ada", "null")
    cli.done("remove", "people", "ada")
    changes, token = watched(cli, "--after", "oldest", "--timeout", "0")
    assert [each["kind"] for each in changes] == ["insert", "update", "remove"]
    shown = [(each["version"], each.get("before", "-"), each.get("body", "-")) for each in changes]
    assert shown == [(1, "-", {"age": 36}), (2, {"age": 36}, None), (2, None, "-")]
    first, at = watched(cli, "--after", "oldest", "--limit", "1")
    assert (first, at) == (changes[:1], changes[0]["token"])
    assert watched(cli, "--after", at, "--timeout", "0") == (changes[1:], token)
    assert watched(cli, "--after", token, "--timeout", "0") == ([], token)
    assert watched(cli, "--timeout", "0")[0] == []


def test_filters_and_kinds(cli: Cli) -> None:
    cli.done("put", "people", "bob", '{"age": 3}')
    cli.done("put", "people", "bob", '{"age": 40}')
    all_of = ("--after", "oldest", "--timeout", "0")
    assert [each["id"] for each in watched(cli, '{"age": {"$gt": 30}}', *all_of)[0]] == [
        "ada",
        "bob",
    ]
    kinds = ("--kind", "insert", "--kind", "remove")
    assert [each["version"] for each in watched(cli, *kinds, *all_of)[0]] == [1, 1]


PIPELINE = '[{"$match": {"operationType": "delete"}}, {"$project": {"ns": 1, "documentKey": 1}}]'


@pytest.mark.each_backend
def test_a_pipeline_returns_change_documents(cli: Cli) -> None:
    cli.done("remove", "people", "ada")
    [change], token = watched(cli, "--pipeline", PIPELINE, "--after", "oldest", "--timeout", "0")
    assert change == {"_id": token, "ns": {"coll": "people"}, "documentKey": {"_id": "ada"}}
    rest = cli("watch", "people", "--pipeline=-", "--after", token, "--timeout=0", input="[]")
    assert (rest.exit_code, rest.stdout) == (0, "")


def test_a_pipeline_of_null_is_refused(cli: Cli) -> None:
    for name in (["people"], []):
        message = cli.fails(2, "watch", *name, "--pipeline", "null", "--timeout", "0")
        assert "--pipeline must be a list of stages, got null" in message


@pytest.mark.each_backend
def test_all_collections_are_watched_without_a_name(cli: Cli, shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store.collection("towns", changes=True).put("ulm", {})
    result = cli("watch", "--after", "oldest", "--timeout", "0")
    assert result.exit_code == 0, result.stderr
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    found = [(each["ns"]["coll"], each["documentKey"]["_id"]) for each in documents]
    assert found == [("people", "ada"), ("towns", "ulm")]
    assert documents[0]["fullDocument"] == {"age": 36}
    assert result.stderr == f"continue with --after {documents[1]['_id']}\n"
    at, only = documents[0]["_id"], '[{"$match": {"ns.coll": "towns"}}]'
    rest = cli("watch", "--pipeline", only, "--after", at, "--limit", "1")
    assert [json.loads(line) for line in rest.stdout.splitlines()] == documents[1:]


def test_invalid_arguments(cli: Cli) -> None:
    assert "--kind needs COLLECTION" in cli.fails(2, "watch", "--kind", "insert")
    taken = cli.fails(2, "watch", "people", "{}", "--pipeline", "[]", "--timeout", "0")
    assert "takes the place of filter" in taken
    assert "these stages only" in cli.fails(
        3, "watch", "--pipeline", '[{"$limit": 1}]', "--timeout", "0"
    )
    token = watched(cli, "--after", "oldest", "--timeout", "0")[1]
    assert "of a collection" in cli.fails(3, "watch", "--after", token, "--timeout", "0")
    cli.done("put", "things", "a", "1")
    assert "open it with changes=True" in cli.fails(2, "watch", "things", "--timeout", "0")
    assert "token" in cli.fails(3, "watch", "people", "--after", "x", "--timeout", "0")
    assert "no collection" in cli.fails(1, "watch", "nobody", "--timeout", "0")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_a_watch_that_can_continue(cli: Cli, tmp_path: Path) -> None:
    command = cli.command("watch", "people", "--after", "oldest")
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=process_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["id"] == "ada"
        cli.done("put", "people", "bob", "1")  # comes while the command waits
        assert json.loads(process.stdout.readline())["id"] == "bob"
        process.send_signal(signal.SIGINT)
        error = process.stderr.read()
        assert process.wait(60) == 130
    said, _, token = error.strip().rpartition(" ")
    assert said == "Error: interrupted: continue with --after"
    cli.done("put", "people", "eve", "1")
    left = [each["id"] for each in watched(cli, "--after", token, "--timeout", "0")[0]]
    assert left[-1] == "eve"
    assert left[:-1] in ([], ["bob"])  # printed, and interrupted before its token was noted
