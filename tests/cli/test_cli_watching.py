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


def test_invalid_arguments(cli: Cli) -> None:
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
    assert [each["id"] for each in watched(cli, "--after", token, "--limit", "1")[0]] == ["eve"]
