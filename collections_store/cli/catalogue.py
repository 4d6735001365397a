"""Commands on collections as a whole, and on the schema of the database."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import click
import sqlalchemy as sa

from .. import CollectionInfo
from ..sql.schema import REVISION
from .documents import consent
from .exits import Exit, Failure
from .output import binary_output, emit, on_terminal, table, to_text, write_lines
from .program import Group
from .target import Target, database_options, require
from .transfer import objects


@click.command()
@click.option(
    "--output",
    type=click.Choice(["jsonl", "json", "table"]),
    show_default="table on a terminal, else jsonl",
    help="JSON lines, one JSON array, or a table.",
)
@database_options
@click.pass_obj
def collections(target: Target, *, output: Literal["jsonl", "json", "table"] | None) -> None:
    """List the collections by name, with their numbers of objects and sizes in bytes."""
    with target.to_read() as store:
        found = store.collections()
    if output is None:
        output = "table" if on_terminal() else "jsonl"
    if output == "table":
        rows = [(info.name, f"{info.count:,}", f"{info.size:,}") for info in found]
        number: dict[str, Any] = {"justify": "right", "no_wrap": True}
        columns: dict[str, Any] = {"name": {"overflow": "fold"}}
        columns |= {"count": number, "bytes": number}
        emit(table(columns.items(), rows).rstrip("\n"))
    else:
        write_lines(map(_as_json, found), binary_output(), array=output == "json")


@click.command()
@click.argument("collection")
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_options
@click.pass_obj
def drop(target: Target, collection: str, *, yes: bool) -> None:
    """Delete COLLECTION with all its objects. It asks first, and without a terminal it refuses."""
    with target.to_read() as store:
        count = require(store, collection).count()
        if not yes:
            consent(f"Delete {collection} with its {objects(count)}?")
        store.drop(collection)
    click.echo(f"deleted {collection} with its {objects(count)}", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@database_options
@click.pass_obj
def info(target: Target, *, as_json: bool) -> None:
    """Tell which database this is, its versions, and how much it holds."""
    facts = _facts(target)
    if as_json:
        emit(to_text(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        emit(f"{name:<{width}}  {'-' if shown is None else shown}")


def library_version() -> str:
    """Return the version of the installed library."""
    try:
        return version("collections-store")
    except PackageNotFoundError:
        return "not installed"


def _facts(target: Target) -> dict[str, Any]:
    """Gather what `info` shows; a database without tables is left without."""
    from .. import migrate

    with target.to_read() as store:
        revision = migrate.current(target.url, **target.names())
        found = [] if revision is None else store.collections()
    return {
        "url": target.safe_url(),
        "database": _database_version(target.driver_url()),
        "schema": revision,
        "collections": len(found),
        "objects": sum(each.count for each in found),
        "bytes": sum(each.size for each in found),
        "collections-store": library_version(),
        "SQLAlchemy": sa.__version__,
        "Python": platform.python_version(),
    }


def _database_version(url: sa.URL) -> str:
    """Return the database's name and version, as SQLAlchemy learns it when it connects."""
    engine = sa.create_engine(url)
    with engine.connect():
        numbers = engine.dialect.server_version_info or ()
    engine.dispose()
    return f"{engine.dialect.name} {'.'.join(map(str, numbers))}"


def _as_json(info: CollectionInfo) -> str:
    created = info.created_at.isoformat()
    return to_text(
        {"name": info.name, "count": info.count, "size": info.size, "created_at": created}
    )


@click.group(cls=Group, invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
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
