"""The command `index`, and indexes as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from .. import CollectionsStoreError, Index, InvalidIndex
from ..errors import shortened
from .arguments import Group, collection_argument, output_option, pairs_of, read_json, read_order
from .exits import Exit, Failure
from .files import INDEXES, BadItem
from .output import Format, binary_output, emit, table, to_text, write_lines
from .target import Target, on_database

_KEYS = ("name", "fields", "unique", "where", "arrays")


def as_json(index: Index) -> dict[str, Any]:
    """Return the definition of an index; a field is the list of its keys, which may contain dots."""
    definition = index.to_json()
    return {key: definition[key] for key in _KEYS}


def header(indexes: Sequence[Index]) -> list[str]:
    """Return the first lines of an export: one that no document can be, or none."""
    return [to_text({INDEXES: list(map(as_json, indexes))})] if indexes else []


def read_indexes(values: Any) -> list[Index]:
    """Parse what `header` wrote; raises `BadItem`."""
    if not isinstance(values, list):
        raise BadItem(f"the indexes must be a list, got {shortened(values)}")
    return [_index(number, value) for number, value in enumerate(values, 1)]


def _index(number: int, value: Any) -> Index:
    if not isinstance(value, dict) or "fields" not in value or not value.keys() <= set(_KEYS):
        known = ", ".join(sorted(_KEYS))
        problem = f"must have fields, and no other keys than {known}, got {shortened(value)}"
        raise BadItem(f"index {number} {problem}")
    options = {key: each for key, each in value.items() if key != "fields"}
    try:
        return Index.parse(pairs_of(value["fields"], InvalidIndex), **options)
    except CollectionsStoreError as error:
        raise BadItem(f"index {number}: {error}") from error


index = Group("index", help="List, create and drop the indexes of a collection.")


@index.command("list")
@collection_argument
@output_option("jsonl", "json", "table", default=None)
@on_database
def list_(target: Target, collection: str, *, output: Format) -> None:
    """List the indexes of COLLECTION in the order of their creation.

    \b
      collections-store index list people --output table
    """
    with target.to_read() as store:
        found = target.collection(store, collection).indexes()
    if output == "table":
        emit(_table(found).rstrip("\n"))
    else:
        lines = (to_text(as_json(each)) for each in found)
        write_lines(lines, binary_output(), array=output == "json")


@index.command()
@collection_argument
@click.argument("fields", metavar="FIELD...", nargs=-1, required=True)
@click.option("--unique", is_flag=True, help="Forbid two documents with equal values.")
@click.option("--where", metavar="JSON", help="Index only documents that match this filter.")
@click.option("--arrays", is_flag=True, help="Index the elements of arrays; for one field.")
@click.option("--name", metavar="NAME", help="The name of the index. Default: its fields.")
@on_database
def create(
    target: Target, collection: str, fields: tuple[str, ...], *, where: str | None, **options: Any
) -> None:
    """Create an index over FIELDs, and print its name.

    A missing COLLECTION is created; an existing index stays as it is. A FIELD is a dotted path, with :-1 after it
    if it descends. All of them may also be JSON, as for find --sort:

    \b
      collections-store index create people address.city age:-1
      collections-store index create people login --unique --where '{"active": true}'
    """
    order = read_order(fields, InvalidIndex, "FIELD")
    limit = None if where is None else read_json(where, "--where")
    with target.to_write() as store:
        emit(store.get_sync_collection(collection).create_index(order, where=limit, **options))


@index.command()
@collection_argument
@click.argument("name")
@on_database
def drop(target: Target, collection: str, name: str) -> None:
    """Drop the index NAME of COLLECTION; the documents stay.

    \b
      collections-store index drop people address.city_1_age_-1
    """
    with target.to_read() as store:
        was_there = target.collection(store, collection).drop_index(name)
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
