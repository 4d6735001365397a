"""The program `collections-store`: options, commands, and errors as a line on standard error."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import click

from ..errors import CollectionsStoreError, cut
from .arguments import Group, program_options, show_help
from .catalogue import collections, db, drop, index, info, library_version, stats
from .copying import backup, copy, restore
from .demo import demo
from .doctor import doctor
from .documents import explain, find, get, list_, purge, put, remove
from .editing import delete, insert, update
from .hosts import aea, kdeps, langgraph, openai_agents, opsdroid
from .output import Exit, Failure, code_of, one_line
from .querying import aggregate, count, distinct
from .search import search
from .studio import studio
from .transfer import export, import_
from .upgrades import documents
from .watching import watch

_LONGEST = 2000
"""Characters of a message; it may repeat arguments of any length."""


class Program(Group):
    """The outermost command."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command line; end in `SystemExit`."""
        options["standalone_mode"] = False
        sys.exit(self._exit_code(*arguments, **options))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command; turn exceptions that click would handle into a `Failure`."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except KeyboardInterrupt:
            raise Failure("interrupted", Exit.INTERRUPTED) from None
        except BrokenPipeError:
            _abandon_output()
            raise Failure("", Exit.BROKEN_PIPE) from None

    def _exit_code(self, *arguments: Any, **options: Any) -> int:
        try:
            code = super().main(*arguments, **options)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "collections-store"
            message = " ".join(error.format_message().split())  # it may repeat an argument
            return _fail(f"{message} (see {command} --help)", Exit.USAGE)
        except click.ClickException as error:
            return _fail(error.format_message(), Exit.FAILED)
        except click.Abort as error:
            gave_up = isinstance(error.__context__, EOFError)
            return _fail("nothing was done", Exit.NO if gave_up else Exit.INTERRUPTED)
        except (CollectionsStoreError, Failure) as error:
            notes = getattr(error, "__notes__", [])  # such as the id of the document
            return _fail("; ".join([one_line(error), *notes]), code_of(error))
        except OSError as error:
            _abandon_output()
            where = "" if error.filename else "standard output: "
            return _fail(f"{where}{error}", Exit.FAILED)
        return code if isinstance(code, int) else Exit.DONE


def _fail(message: str, code: Exit) -> int:
    if message:
        click.echo(f"Error: {cut(message, _LONGEST)}", err=True)
    return code


def _abandon_output() -> None:
    """Make the interpreter's last flush succeed without a reader."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        click.echo(f"collections-store {library_version()}")
        ctx.exit()


@click.group(
    cls=Program,
    name="collections-store",
    epilog="\n".join(["\b\nExit codes:", *(f"{code.value:>4}  {code.meaning}" for code in Exit)]),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@program_options
@click.pass_context
def program(ctx: click.Context) -> None:
    """Store JSON documents in named collections, in an SQLite file or on PostgreSQL.

    The options --url, --prefix and --schema choose the database, before or after the command. The first
    write creates an SQLite file. Documents go to standard output, messages and errors to standard error.
    An error is one line:

    \b
      collections-store put cities berlin '{"country": "de"}'
      collections-store find cities '{"country": "de"}'
    """
    ctx.invoke(show_help)


for _command in (
    *(put, get, remove, insert, update, delete, find, search, list_, count, distinct),
    *(aggregate, watch, explain, purge, collections, stats, drop, index, documents),
    *(copy, backup, restore, import_, export),
    *(opsdroid, kdeps, aea, openai_agents, langgraph, info, db, doctor, studio, demo),
):
    program.add_command(_command)
