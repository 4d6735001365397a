"""A click group whose errors are one line on standard error, with the exit codes of `exits`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

import click

from ..errors import CollectionsStoreError, cut
from .exits import Exit, Failure, code_of, notes_of, one_line

_LONGEST = 2000
"""Characters of a message; arguments that it repeats may be of any length."""


class Group(click.Group):
    """A command of commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; what is said of each goes over several lines rather than being cut."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(1000)) for name, each in found if each]
            )


class Program(Group):
    """The outermost command."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command line; ends in `SystemExit`."""
        options["standalone_mode"] = False
        sys.exit(self._exit_code(*arguments, **options))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command; what click would take for its own becomes a `Failure` first."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except CollectionsStoreError:  # some of them are also OSErrors
            raise
        except KeyboardInterrupt:
            raise Failure("interrupted", Exit.INTERRUPTED) from None
        except BrokenPipeError:
            _abandon_output()
            raise Failure("", Exit.BROKEN_PIPE) from None
        except OSError as error:
            _abandon_output()
            where = "" if error.filename else "standard output: "
            raise Failure(f"{where}{error}", Exit.FAILED) from error

    def _exit_code(self, *arguments: Any, **options: Any) -> int:
        try:
            code = super().main(*arguments, **options)
        except click.UsageError as error:
            return _say(error.format_message() + _hint(error), Exit.USAGE)
        except click.ClickException as error:
            return _say(error.format_message(), Exit.FAILED)
        except click.Abort as error:
            gave_up = isinstance(error.__context__, EOFError)
            return _say("nothing was done", Exit.NO if gave_up else Exit.INTERRUPTED)
        except (CollectionsStoreError, Failure) as error:
            return _say("; ".join([one_line(error), *notes_of(error)]), code_of(error))
        return code if isinstance(code, int) else Exit.DONE


def _hint(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx else "collections-store"
    return f" (see {command} --help)"


def _say(message: str, code: Exit) -> int:
    if message:
        click.echo(f"Error: {cut(message, _LONGEST)}", err=True)
    return code


def _abandon_output() -> None:
    """Let the interpreter's last flush of what nobody reads succeed."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
