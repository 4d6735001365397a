"""Every command with every unusual argument: it works, or exits with a code of `Exit` and one short line."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli.cli_process import Cli, error_line

from collections_store.cli.app import program
from collections_store.cli.output import Exit

pytestmark = pytest.mark.skipif(os.name == "nt", reason="arguments of Windows are text")
LONGEST = 2000
"""Maximum characters of a message."""
HUGE = "x" * 20_000
ODD = ["", " ", "-1", "a\nb", "\udcff", "$gt", "{", "[[]]", '{"$nosuch": 1}', str(2**63), HUGE]
ODD += ["[" * 5000, '{"a":' * 300 + "1" + "}" * 300, "." * 500, "1e400"]
VALID = {"id": ["1"], "body": ["1"], "filter": ["{}"], "change": ["{}"]}
VALID |= {"field": ["a"], "fields": ["a"], "name": ["a_1"]}
SHARED = {"url", "prefix", "schema", "database"}
"""Parameters of all commands, and another way to give the URL: one command suffices."""
SKIPPED = {"demo", "studio"}
"""One takes a second, and has no arguments except a file; the other serves until Ctrl-C."""


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name)


def command_of(words: tuple[str, ...]) -> click.Command:
    command: click.Command = program
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    return command


def test_no_command_has_two_parameters_of_a_name() -> None:
    """Newer versions of click print a warning about them."""
    names = {words: [each.name for each in command_of(words).params] for words in commands(program)}
    assert {words: each for words, each in names.items() if len({*each}) < len(each)} == {}


def lines_of(words: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield a command line for each parameter and unusual value; the other parameters have valid values or none."""
    command = command_of(words)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    for chosen in command.params:
        is_flag = isinstance(chosen, click.Option) and chosen.is_flag
        if is_flag or (chosen.name in SHARED and words != ("get",)):
            continue
        for odd in ODD:
            line = [*words]
            if any(each.name == "yes" for each in command.params):
                line.append("--yes")
            if isinstance(chosen, click.Option):
                line.append(f"{chosen.opts[0]}={odd}")
            line.append("--")
            for each in arguments:
                if each is chosen:
                    line.append(odd)
                elif each.required or each.name == "collection":  # else `watch` waits for ever
                    line += VALID.get(str(each.name), ["things"])
            yield line


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    cli = Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))
    cli.done("put", "things", "1", '{"a": 1}')
    return cli


@pytest.mark.parametrize(
    "words", [each for each in commands(program) if each[0] not in SKIPPED], ids=" ".join
)
def test_odd_arguments(cli: Cli, words: tuple[str, ...]) -> None:
    for line in lines_of(words):
        result = cli(*line, input='{"id": "1", "body": {"a": 1}}\n')
        shown = [each[:40] for each in line]
        assert result.exit_code in set(Exit), shown
        if result.exit_code:
            assert len(error_line(result.stderr)) <= LONGEST, shown


DEFINITIONS = ["null", "5", "{}", "[5]", "[{}]", '[{"fields": 5}]', '[{"fields": []}]']
DEFINITIONS += [
    f'[{{"fields": ["a"], "{key}": {value}}}]'
    for key in ("name", "unique", "where", "arrays", "other")
    for value in ('"\\u0000"', '""', "5", "[1]", '{"a": {"$nosuch": 1}}', f'"{HUGE}"')
]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda text: text[:60])
def test_odd_index_definitions(cli: Cli, definition: str) -> None:
    result = cli("import", "t", input=f'{{"indexes": {definition}}}\n{{"id": "1", "body": {{}}}}\n')
    if result.exit_code:
        assert result.exit_code == Exit.BAD_INPUT
        assert len(error_line(result.stderr)) <= LONGEST


@pytest.mark.parametrize("name", ["none/x.jsonl", "one.db/x.jsonl", "x" * 300, "/dev/full"])
def test_errors_name_a_file_that_cannot_be_written(cli: Cli, name: str) -> None:
    message = cli.fails(Exit.FAILED, "export", "things", name)
    assert message.startswith(f"{name!r}: ")
    assert ".part" not in message


def test_errors_name_a_file_that_cannot_be_read(cli: Cli) -> None:
    assert "'none/x'" in cli.fails(Exit.USAGE, "import", "none/x", "-c", "t")
    Path("x").mkdir()
    assert "'x' is a folder" in cli.fails(Exit.USAGE, "import", "x", "-c", "t")
    assert "y" * 300 in cli.fails(Exit.FAILED, "import", "y" * 300, "-c", "t")
