"""Commands on whole collections, and on the schema of the database."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click
import sqlalchemy as sa

from .. import CollectionInfo
from ..sql.schema import REVISION
from .arguments import (
    Group,
    collection_argument,
    consent,
    json_option,
    output_option,
    yes_option,
)
from .exits import Exit, Failure
from .output import Format, binary_output, counted, emit, table, to_text, write_lines
from .target import Target, on_database


@click.command()
@output_option("jsonl", "json", "table", default=None)
@on_database
def collections(target: Target, *, output: Format) -> None:
    """List the collections by name, with their counts of documents and sizes in bytes.

    \b
      collections-store collections --output json
    """
    with target.to_read() as store:
        found = store.collections()
    if output == "table":
        rows = [(info.name, f"{info.count:,}", f"{info.size:,}") for info in found]
        number: dict[str, Any] = {"justify": "right", "no_wrap": True}
        columns: dict[str, Any] = {"name": {"overflow": "fold"}}
        columns |= {"count": number, "bytes": number}
        emit(table(columns.items(), rows).rstrip("\n"))
    else:
        write_lines(map(_as_json, found), binary_output(), array=output == "json")


@click.command()
@collection_argument
@yes_option
@on_database
def drop(target: Target, collection: str, *, yes: bool) -> None:
    """Delete COLLECTION with all its documents.

    It asks first; without a terminal it needs --yes:

    \b
      collections-store drop people --yes
    """
    with target.to_read() as store:
        count = counted(target.collection(store, collection).count(), "document")
        if not yes:
            consent(f"Delete {collection} with its {count}?")
        store.drop(collection)
    click.echo(f"deleted {collection} with its {count}", err=True)


@click.command()
@json_option
@on_database
def info(target: Target, *, as_json: bool) -> None:
    """Print the database's URL, versions and size.

    \b
      collections-store info --json
    """
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
    """Return what `info` prints; a database without tables stays without."""
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
    """Return the database's name and version, which SQLAlchemy reads when it connects."""
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


db = Group("db", help="Show and upgrade the schema of the database.")


@db.command()
@on_database
def upgrade(target: Target) -> None:
    """Upgrade the database to this version's schema, or create its tables.

    \b
      collections-store db upgrade --url postgresql://user@host/database
    """
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
@on_database
def current(target: Target) -> None:
    """Print the revision of the database's schema.

    \b
      collections-store db current
    """
    from .. import migrate

    target.to_read().close()
    found = migrate.current(target.url, **target.names())
    if found is None:
        raise Failure("the database has no tables of collections_store", Exit.NO)
    emit(found)
    if found != REVISION:
        click.echo(f"this version of collections_store needs schema {REVISION}", err=True)


@db.command()
@on_database
def check(target: Target) -> None:
    """Print how the tables differ from this version's schema; exit with 1 if they do.

    \b
      collections-store db check && echo up to date
    """
    from .. import migrate

    target.to_read().close()
    differences = migrate.check(target.url, **target.names())
    for difference in differences:
        emit(difference)
    if differences:
        raise Failure("the tables differ from what this version needs", Exit.NO)
    click.echo(f"the tables are those of schema {REVISION}", err=True)


@db.command()
@on_database
def sql(target: Target) -> None:
    """Print the SQL of upgrade without running it.

    \b
      collections-store db sql > upgrade.sql
    """
    from .. import migrate

    target.to_read().close()
    statements = migrate.sql(target.url, **target.names())
    if statements:
        emit(statements.rstrip())
    else:
        click.echo(f"the database is at schema {REVISION}: nothing to do", err=True)
