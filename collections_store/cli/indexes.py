"""Commands on the indexes of a collection, and indexes as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import click

from .. import CollectionsStoreError, Index, InvalidIndex
from ..errors import shortened
from .arguments import pairs_of, read_json, read_order
from .exits import Exit, Failure
from .files import INDEXES, BadItem
from .output import binary_output, emit, on_terminal, table, to_text, write_lines
from .program import Group
from .target import Target, database_options, require

_KEYS = {"name", "fields", "unique", "where", "arrays"}


def as_json(index: Index) -> dict[str, Any]:
    """Return what defines an index; a field is the list of its keys, which may hold dots."""
    kept = index.to_json()
    return {key: kept[key] for key in ("name", "fields", "unique", "where", "arrays")}


def header(indexes: Sequence[Index]) -> list[str]:
    """Return the lines that an export begins with: one that no object can have, or none."""
    return [to_text({INDEXES: list(map(as_json, indexes))})] if indexes else []


def read_indexes(values: Any) -> list[Index]:
    """Read what `header` wrote; raises `BadItem`."""
    if not isinstance(values, list):
        raise BadItem(f"the indexes are a list, not {shortened(values)}")
    return [_index(number, value) for number, value in enumerate(values, 1)]


def _index(number: int, value: Any) -> Index:
    if not isinstance(value, dict) or "fields" not in value or not value.keys() <= _KEYS:
        known = ", ".join(sorted(_KEYS))
        raise BadItem(
            f"index {number} is {shortened(value)}: it needs fields, and may have {known}"
        )
    options = {key: each for key, each in value.items() if key != "fields"}
    try:
        return Index.parse(pairs_of(value["fields"], InvalidIndex), **options)
    except CollectionsStoreError as error:
        raise BadItem(f"index {number}: {error}") from error


@click.group(cls=Group, invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
@click.pass_context
def index(ctx: click.Context) -> None:
    """Look at the indexes of a collection, create and drop them."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@index.command("list")
@click.argument("collection")
@click.option(
    "--output",
    type=click.Choice(["jsonl", "json", "table"]),
    show_default="table on a terminal, else jsonl",
    help="JSON lines, one JSON array, or a table.",
)
@database_options
@click.pass_obj
def list_(
    target: Target, collection: str, *, output: Literal["jsonl", "json", "table"] | None
) -> None:
    """List the indexes of COLLECTION, in the order in which they were created."""
    with target.to_read() as store:
        found = require(store, collection).indexes()
    if output == "table" or (output is None and on_terminal()):
        emit(_table(found).rstrip("\n"))
    else:
        lines = (to_text(as_json(each)) for each in found)
        write_lines(lines, binary_output(), array=output == "json")


@index.command()
@click.argument("collection")
@click.argument("fields", metavar="FIELD...", nargs=-1, required=True)
@click.option("--unique", is_flag=True, help="Forbid two objects with the same values.")
@click.option(
    "--where", metavar="JSON", help="A filter of simple conditions: index only what matches it."
)
@click.option("--arrays", is_flag=True, help="Look into the arrays on the way to the one field.")
@click.option(
    "--name", metavar="NAME", help="The name of the index; otherwise it is made of the fields."
)
@database_options
@click.pass_obj
def create(
    target: Target,
    collection: str,
    fields: tuple[str, ...],
    *,
    unique: bool,
    where: str | None,
    arrays: bool,
    name: str | None,
) -> None:
    """Have an index over FIELDs, and print its name. COLLECTION comes into being if it is not there.

    A FIELD is dotted, with :-1 behind it if it descends. Or all of them are JSON, as for find
    --sort. An index that is there already is left alone:

    \b
      collections-store index create people address.city age:-1
      collections-store index create people login --unique --where '{"active": true}'
    """
    order = read_order(fields, InvalidIndex, "FIELD")
    limit = None if where is None else read_json(where, "--where")
    options: dict[str, Any] = {"unique": unique, "where": limit, "arrays": arrays, "name": name}
    with target.to_write() as store:
        emit(store.get_sync_collection(collection).create_index(order, **options))


@index.command()
@click.argument("collection")
@click.argument("name")
@database_options
@click.pass_obj
def drop(target: Target, collection: str, name: str) -> None:
    """Drop the index NAME of COLLECTION. Objects stay as they are."""
    with target.to_read() as store:
        was_there = require(store, collection).drop_index(name)
    if not was_there:
        raise Failure(f"there is no index {name!r} on {collection}", Exit.NO)


def _table(indexes: Iterable[Index]) -> str:
    rows = [
        (
            each.name,
            ", ".join(f"{field}:{direction}" for field, direction in each.fields),
            ", ".join(word for word in ("unique", "arrays") if getattr(each, word)),
            "" if each.where is None else to_text(each.where.to_json()),
        )
        for each in indexes
    ]
    columns = {name: {"overflow": "fold"} for name in ("name", "fields", "kind", "where")}
    return table(columns.items(), rows)
