"""The reference page of the command line."""

from collections.abc import Iterator

import click
import pytest
from cli.cli_process import ROOT
from cli.reference_page import reference
from click.testing import CliRunner

from collections_store import errors
from collections_store.cli.app import program
from collections_store.cli.output import Exit, code_of

PAGE = ROOT / "docs" / "reference" / "cli.md"
EXPECTED = {
    *(
        "copy",
        "backup",
        "restore",
        "import",
        "export",
        "put",
        "get",
        "remove",
        "insert",
        "update",
        "count",
        "aggregate",
        "watch",
        "stats",
        "find",
        "search",
        "list",
        "collections",
        "drop",
        "info",
        "studio",
    ),
    *(
        "distinct",
        "delete",
        "explain",
        "purge",
        "index",
        "index list",
        "index create",
        "index drop",
        "index hide",
        "index unhide",
    ),
    *("documents", "documents upgrade"),
    *("demo", "doctor", "db", "db upgrade", "db current", "db check", "db sql"),
    *("import-opsdroid", "import-kdeps", "import-aea", "import-openai-agents", "import-langgraph"),
}


def commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")


def test_the_page_equals_the_help() -> None:
    advice = "python tests/cli/reference_page.py > docs/reference/cli.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), advice


def test_every_command_and_option_is_documented() -> None:
    found = dict(commands(program))
    assert set(found) == EXPECTED
    for name, command in found.items():
        assert command.help, name
        assert f"\n## collections-store {name}\n" in reference()
        options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        assert all(option.help for option in options), name


def test_summaries_of_commands_are_not_truncated() -> None:
    groups = [program, *(each for _, each in commands(program) if isinstance(each, click.Group))]
    for group in groups:
        with click.Context(group, terminal_width=80, max_content_width=80) as context:
            listed = " ".join(group.get_help(context).partition("Commands:")[2].split())
        for each in group.commands.values():
            assert each.help
            sentence = " ".join(each.help.partition("\n\n")[0].split()).removesuffix(".")
            assert sentence.partition(". ")[0] in listed, each.name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_works_as_documented(shell: str) -> None:
    variable = "_COLLECTIONS_STORE_COMPLETE"
    assert f"{variable}={shell}_source collections-store" in PAGE.read_text(encoding="utf-8")
    runner = CliRunner(env={variable: f"{shell}_source"})
    assert f"{variable}={shell}_complete" in runner.invoke(program).stdout
    typed = {
        "COMP_WORDS": "collections-store expo",
        "COMP_CWORD": "expo" if shell == "fish" else "1",
    }
    runner = CliRunner(env={variable: f"{shell}_complete", **typed})
    assert "export" in runner.invoke(program).stdout


def test_exit_codes_are_distinct_and_documented() -> None:
    codes = [code.value for code in Exit]
    assert codes == sorted(set(codes))
    epilog = program.epilog or ""
    assert epilog.count("\n") == len(codes) + 1
    for code in Exit:
        assert f"| {code.value} | {code.meaning} |" in reference()


def test_every_error_of_the_library_has_a_code() -> None:
    samples: dict[errors.CollectionsStoreError, Exit] = {
        errors.InvalidUrl("x"): Exit.USAGE,
        errors.InvalidOption("x", "y"): Exit.USAGE,
        errors.InvalidName("x"): Exit.BAD_INPUT,
        errors.InvalidId("x", "y"): Exit.BAD_INPUT,
        errors.InvalidBody("x", "y"): Exit.BAD_INPUT,
        errors.InvalidFilter("x", "y"): Exit.BAD_INPUT,
        errors.InvalidProjection("x", "y"): Exit.BAD_INPUT,
        errors.InvalidSort("x", "y"): Exit.BAD_INPUT,
        errors.InvalidIndex("x", "y"): Exit.BAD_INPUT,
        errors.InvalidSearch("x", "y"): Exit.BAD_INPUT,
        errors.IndexExists("x", "y"): Exit.BAD_INPUT,
        errors.DuplicateKey("x", "y", {}, None): Exit.BAD_INPUT,
        errors.CollectionNotFound("x"): Exit.NO,
        errors.MissingExtra("x", "y"): Exit.MISSING_EXTRA,
        errors.SchemaOutdated("x", found="1", expected="2"): Exit.SCHEMA,
        errors.SchemaTooNew("x", found="3", expected="2"): Exit.SCHEMA,
        errors.DatabaseError("x"): Exit.FAILED,
        errors.DatabaseUnavailable("x"): Exit.UNAVAILABLE,
        errors.DatabaseBusy("x"): Exit.UNAVAILABLE,
        errors.TransactionConflict("x"): Exit.FAILED,
    }
    for error, code in samples.items():
        assert code_of(error) is code, error
