"""The commands `insert`, `update` and `delete`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from .arguments import (
    Target,
    collation_option,
    collection_argument,
    consent,
    on_database,
    read_json,
    yes_option,
)
from .output import Exit, Failure, counted, emit

if TYPE_CHECKING:
    from .. import Collection, Store
    from ..results import UpdateResult

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Write nothing, and print how many documents it would be."
)


class _DryRun(Exception):
    """Rolls back the transaction of a dry run."""


@click.command()
@collection_argument
@click.argument("body", required=False)
@click.option("--id", "id", metavar="ID", help="The id of the document. Default: a new id.")
@click.option("--ttl", type=float, metavar="SECONDS", help="Expire the document after this time.")
@on_database
def insert(
    target: Target, collection: str, body: str | None, *, id: str | None, ttl: float | None
) -> None:
    """Write BODY, which is JSON, as a new document, and print the id; an existing document stays.

    Without BODY, or with "-", the command reads BODY from standard input. The command import writes many documents:

    \b
      collections-store insert notes '{"text": "buy milk"}'
      collections-store insert cities '{"country": "de"}' --id berlin
    """
    value = read_json(body, "BODY")
    with target.to_write() as store:
        emit(store.collection(collection).insert_one(value, id=id, ttl=ttl).inserted_id)


@click.command()
@collection_argument
@click.argument("filter")
@click.argument("change")
@click.option("--upsert", is_flag=True, help="Insert a document if none matches.")
@click.option(
    "--array-filters", metavar="JSON", help='The elements of $[name]: [{"name.stars": 1}]'
)
@collation_option
@dry_run_option
@yes_option
@on_database
def update(
    target: Target,
    collection: str,
    filter: str,
    change: str,
    *,
    upsert: bool,
    array_filters: str | None,
    collation: Any,
    dry_run: bool,
    yes: bool,
) -> None:
    """Update the documents that match FILTER, all or none; {} matches all.

    CHANGE is a JSON object of MongoDB's update operators, or a pipeline. The command asks for confirmation. Without a
    terminal, pass --yes. A dry run makes the changes in a transaction and rolls the transaction back:

    \b
      collections-store update people '{"$id": "ada"}' '{"$inc": {"age": 1}}'
      collections-store update people '{}' '{"$set": {"active": true}}' --dry-run
    """
    query, operators = _read_filter(filter), read_json(change, "CHANGE")
    elements = None if array_filters is None else read_json(array_filters, "--array-filters")
    options: dict[str, Any] = {"upsert": upsert, "array_filters": elements, "collation": collation}
    with target.to_read() as store:
        found = target.collection(store, collection)
        if dry_run:
            _report(
                _rolled_back(store, collection, query, operators, options), collection, "would "
            )
            return
        _ask("Update", found, query, collation, yes=yes)
        _report(found.update_many(query, operators, **options), collection)


@click.command()
@collection_argument
@click.argument("filter")
@collation_option
@dry_run_option
@yes_option
@on_database
def delete(
    target: Target, collection: str, filter: str, *, collation: Any, dry_run: bool, yes: bool
) -> None:
    """Delete the documents that match FILTER, all or none; {} matches all.

    The command asks for confirmation. Without a terminal, pass --yes:

    \b
      collections-store delete people '{"age": {"$lt": 18}}' --yes
    """
    query = _read_filter(filter)
    with target.to_read() as store:
        found = target.collection(store, collection)
        if dry_run:
            deleted, did = found.count(query, collation=collation), "would delete"
        else:
            _ask("Delete", found, query, collation, yes=yes)
            result = found.delete_many(query, collation=collation)
            deleted, did = result.deleted_count, "deleted"
    click.echo(f"{did} {counted(deleted, 'document')} of {collection}", err=True)


def _read_filter(text: str) -> Any:
    query = read_json(text, "FILTER")
    if query is None:
        raise Failure("FILTER is null; {} matches all documents", Exit.BAD_INPUT)
    return query


def _ask(verb: str, collection: Collection, query: Any, collation: Any, *, yes: bool) -> None:
    if not yes:
        number = collection.count(query, collation=collation)
        consent(f"{verb} {counted(number, 'document')} of {collection.name}?")


def _rolled_back(
    store: Store, collection: str, query: Any, operators: Any, options: dict[str, Any]
) -> UpdateResult:
    """Return the result of an update that is not committed."""
    with suppress(_DryRun), store.transaction() as tx:
        result = tx[collection].update_many(query, operators, **options)
        raise _DryRun
    return result


def _report(result: UpdateResult, collection: str, would: str = "") -> None:
    matched = counted(result.matched_count, "matching document")
    update, insert = ("update", "insert") if would else ("updated", "inserted")
    done = f"{would}{update} {result.modified_count:,} of {matched} of {collection}"
    if result.upserted_id is not None:
        done = f"{would}{insert} a document into {collection}"
    click.echo(done, err=True)
    if result.upserted_id is not None and not would:
        emit(result.upserted_id)
