"""The commands on the schema of a database: `db upgrade`, `current`, `check` and `sql`."""

from __future__ import annotations

import click

from ..schema import REVISION
from .exits import Exit, Failure
from .output import emit
from .target import Target, database_options


@click.group(invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
@click.pass_context
def db(ctx: click.Context) -> None:
    """Look at the database's schema, and upgrade it."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@db.command()
@database_options
@click.pass_obj
def upgrade(target: Target) -> None:
    """Bring the database to the schema of this version; a fresh one is created."""
    from .. import migrate

    target.to_write().close()  # it checks the URL
    before, after = migrate.upgrade(target.url, **target.names())
    if before is None:
        click.echo(f"created the tables of schema {after}", err=True)
    elif before == after:
        click.echo(f"the database is at schema {after} already", err=True)
    else:
        click.echo(f"upgraded from schema {before} to {after}", err=True)


@db.command()
@database_options
@click.pass_obj
def current(target: Target) -> None:
    """Print the schema the database is at."""
    from .. import migrate

    target.to_read().close()
    found = migrate.current(target.url, **target.names())
    if found is None:
        raise Failure("the database has no tables of collections_store", Exit.NO)
    emit(found)
    if found != REVISION:
        click.echo(f"this version of collections_store needs schema {REVISION}", err=True)


@db.command()
@database_options
@click.pass_obj
def check(target: Target) -> None:
    """Print how the tables differ from what this version needs; exit with 1 if they do."""
    from .. import migrate

    target.to_read().close()
    differences = migrate.check(target.url, **target.names())
    for difference in differences:
        emit(difference)
    if differences:
        raise Failure("the tables differ from what this version needs", Exit.NO)
    click.echo(f"the tables are those of schema {REVISION}", err=True)


@db.command()
@database_options
@click.pass_obj
def sql(target: Target) -> None:
    """Print the SQL that upgrade would run, for those who run it themselves."""
    from .. import migrate

    target.to_read().close()
    statements = migrate.sql(target.url, **target.names())
    if statements:
        emit(statements.rstrip())
    else:
        click.echo(f"the database is at schema {REVISION}: nothing to do", err=True)
