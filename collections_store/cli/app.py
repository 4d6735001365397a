"""The program `collections-store`: its own options, and the list of its commands."""

from __future__ import annotations

import click

from .catalogue import collections, db, drop, info, library_version
from .demo import demo
from .documents import delete, distinct, explain, find, get, list_, purge, put, remove
from .exits import described
from .indexes import index
from .memories import aea, kdeps, opsdroid
from .program import Program
from .target import program_options
from .transfer import export, import_

_EPILOG = "\b\nExit codes:\n" + "\n".join(described())


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value:
        click.echo(f"collections-store {library_version()}")
        ctx.exit()


@click.group(
    cls=Program,
    name="collections-store",
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    epilog=_EPILOG,
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
    """Keep JSON objects in named collections, in an SQLite file or on PostgreSQL.

    The database is chosen by --url, --prefix and --schema, before the command or behind it. An
    SQLite file comes into being when something is put into it. Objects go to standard output,
    messages and errors to standard error, an error on one line.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (
    *(put, get, remove, find, list_, distinct, delete, explain, purge),
    *(collections, drop, index, import_, export, opsdroid, kdeps, aea, info, db, demo),
):
    program.add_command(_command)
