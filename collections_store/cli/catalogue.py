"""The commands on collections as a whole, and on the database they are in."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import click
import sqlalchemy as sa

from .. import CollectionInfo
from .consent import consent
from .importing import objects
from .output import binary_output, emit, on_terminal, table, to_text, write_lines
from .target import Target, database_options, require


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
        emit(table(columns, rows).rstrip("\n"))
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
