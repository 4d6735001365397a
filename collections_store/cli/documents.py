"""Commands on the documents of a collection."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from .. import Path
from ..expressions.patterns import options_of
from .arguments import (
    Pairs,
    Target,
    collation_option,
    collection_argument,
    field_as_word,
    filter_argument,
    json_option,
    on_database,
    output_option,
    read_json,
    read_order,
    read_projection,
    sort_option,
    window_options,
)
from .completion import complete_fields
from .output import (
    Exit,
    Failure,
    Format,
    counted,
    emit,
    to_text,
    write_documents,
    write_lines,
)
from .spreadsheet import sheet_of_documents

if TYPE_CHECKING:
    from .. import Collection, Document, Explanation, Store

_MISSING = object()


@click.command()
@collection_argument
@click.argument("id")
@click.argument("body", required=False)
@click.option("--ttl", type=float, metavar="SECONDS", help="Expire the document after this time.")
@on_database
def put(target: Target, collection: str, id: str, body: str | None, ttl: float | None) -> None:
    """Write BODY, which is JSON, under ID; an existing document is replaced.

    Without BODY, or with "-", the command reads BODY from standard input. Write "--" before a BODY or an ID that
    begins with a dash:

    \b
      collections-store put cities berlin '{"country": "de"}'
      collections-store put temperatures berlin -- -5
    """
    value = read_json(body, "BODY")
    with target.to_write() as store:
        store.collection(collection).put(id, value, ttl=ttl)


@click.command()
@collection_argument
@click.argument("id")
@on_database
def get(target: Target, collection: str, id: str) -> None:
    """Print the body of the document under ID, as one line of JSON.

    \b
      collections-store get cities berlin
    """
    with target.to_read() as store:
        body = store.collection(collection).get(id, _MISSING)
        if body is _MISSING:
            raise _no_document(target, store, collection, id)
    emit(to_text(body))


@click.command()
@collection_argument
@click.argument("id")
@on_database
def remove(target: Target, collection: str, id: str) -> None:
    """Delete the document under ID.

    \b
      collections-store remove cities berlin
    """
    with target.to_read() as store:
        if not store.collection(collection).remove(id):
            raise _no_document(target, store, collection, id)


def _no_document(target: Target, store: Store, collection: str, id: str) -> Failure:
    target.check(store, [collection])
    return Failure(f"there is no document {id!r} in {collection}", Exit.NO)


@click.command()
@collection_argument
@filter_argument
@sort_option
@click.option(
    "--fields",
    metavar="FIELDS",
    shell_complete=complete_fields,
    help="Print only these fields: name,address.city",
)
@click.option(
    "--projection",
    metavar="JSON",
    help='Print only these parts: {"name": 1, "tags": {"$slice": 3}}',
)
@click.option("--count", is_flag=True, hidden=True, help="Print only the number of documents.")
@collation_option
@window_options
@output_option("jsonl", "json", "table", "csv")
@on_database
def find(
    target: Target,
    collection: str,
    filter: str,
    *,
    sort: tuple[str, ...],
    fields: str | None,
    projection: str | None,
    count: bool,
    collation: Any,
    skip: int,
    limit: int | None,
    output: Format,
) -> None:
    """Print the documents that match FILTER, a JSON object of MongoDB's query language.

    Each line is {"id": …, "body": …}. The order is that of --sort, or natural order. With --limit and without
    --sort it is the order of the index that serves FILTER. Without --sort and --limit, memory is constant.

    CSV is for spreadsheets. The columns are the ids and --fields, else the dotted paths of all values, sorted. A
    string that a spreadsheet would compute, such as "=1+1", has an apostrophe before it; export writes strings
    unchanged:

    \b
      collections-store find people '{"address.city": "Berlin", "age": 30}'
      collections-store find people --sort age:-1 --limit 10 --fields name,age
      collections-store find people --output csv > people.csv
    """
    parts = read_projection(fields, projection)
    query, order = read_json(filter, "FILTER"), read_order(sort)
    with target.to_read() as store:
        found = target.collection(store, collection)
        if count:
            left = max(0, found.count(query, collation=collation) - skip)
            emit(str(left if limit is None else min(left, limit)))
            return
        window: Any = {"sort": order, "skip": skip, "limit": limit}
        documents = _documents(found, query, projection=parts, collation=collation, **window)
        columns = None if fields is None else fields.split(",")
        if output == "csv":
            write_lines(sheet_of_documents(documents, columns), sys.stdout.buffer, array=False)
        else:
            write_documents(documents, output, columns)


def _documents(
    collection: Collection,
    filter: Any = None,
    *,
    sort: Pairs | None = None,
    skip: int,
    limit: int | None,
    **options: Any,
) -> Iterable[Document]:
    """Return the documents: in natural order and without a limit, in constant memory."""
    if sort or limit is not None or skip > sys.maxsize:
        return collection.find(filter, sort=sort, skip=skip, limit=limit, **options)
    return islice(collection.stream(filter, **options), skip, None)


@click.command("list")
@collection_argument
@window_options
@output_option("jsonl", "json", "table")
@on_database
def list_(target: Target, collection: str, *, skip: int, limit: int | None, output: Format) -> None:
    """Print all documents of COLLECTION in natural order, the order of their creation.

    \b
      collections-store list people --limit 10 --output table
    """
    with target.to_read() as store:
        documents = _documents(target.collection(store, collection), skip=skip, limit=limit)
        write_documents(documents, output)


@click.command()
@click.argument("collection", required=False)
@on_database
def purge(target: Target, collection: str | None) -> None:
    """Free the space of expired documents and recorded changes, in COLLECTION or in all collections.

    No command returns an expired document, even before a purge:

    \b
      collections-store purge sessions
    """
    with target.to_read() as store:
        names = [each.name for each in store.collections()] if collection is None else [collection]
        deleted = sum(target.collection(store, name).purge_expired() for name in names)
    click.echo(f"deleted {counted(deleted, 'document')} that had expired", err=True)


@click.command()
@collection_argument
@filter_argument
@sort_option
@collation_option
@window_options
@click.option("--plan", is_flag=True, help="Print the plan of the database, too.")
@json_option
@on_database
def explain(
    target: Target,
    collection: str,
    filter: str,
    *,
    sort: tuple[str, ...],
    collation: Any,
    skip: int,
    limit: int | None,
    plan: bool,
    as_json: bool,
) -> None:
    """Print how find runs: the indexes in use, what is scanned, the sort, and an index to create.

    The query itself does not run. With --plan, the filter in SQL and the plan of the database follow:

    \b
      collections-store explain people '{"age": {"$gte": 30}}' --sort name
      collections-store explain people '{"age": {"$gte": 30}}' --plan
    """
    query, order = read_json(filter, "FILTER"), read_order(sort)
    with target.to_read() as store:
        explanation = target.collection(store, collection).explain(
            query, sort=order, skip=skip, limit=limit, collation=collation
        )
    explanation = with_command(target, collection, explanation)
    if not as_json:
        emit(str(explanation))
        if plan:
            emit(f"filter in SQL: {explanation.in_sql}")
            emit(*(f"  {line}" for line in explanation.plan))
        return
    names, matcher = ("order", "arrays", "advice", "sql"), explanation.in_matcher
    facts = {
        "in_sql": explanation.in_sql.to_json(),
        "in_matcher": None if matcher is None else matcher.to_json(),
        "indexes": explanation.indexes,
        "scans": explanation.scans,
        "documents": explanation.documents,
        **{name: getattr(explanation, name) for name in names},
        "parameters": dict(explanation.parameters),
        "plan": explanation.plan,
    }
    emit(to_text(_plain(facts)))


def with_command(target: Target, collection: str, explanation: Explanation) -> Explanation:
    """Return an explanation whose advice is the command that creates or unhides the index, quoted for a shell."""
    index = explanation.missing_index
    if index is None:
        return explanation
    if index.hidden:
        unhide = target.command("index", "unhide", collection, index.name)
        return replace(explanation, advice=unhide)
    directions = (direction for _, direction in index.fields)
    fields = map(field_as_word, index.paths, directions)
    name = () if index.own_name is None else ("--name", index.own_name)
    words = "index", "create", collection, *fields, *["--arrays"] * index.arrays, *name
    return replace(explanation, advice=target.command(*words))


def _plain(value: Any) -> Any:
    """Return a value as JSON: regular expressions as in filters, other types as strings."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():  # no key that came from JSON contains a dot
            keyed = ((f"$body.{k}" if isinstance(k, Path) else k, v) for k, v in value.items())
            return {key: _plain(each) for key, each in keyed}
        case list() | tuple():
            return [_plain(each) for each in value]
        case re.Pattern():
            options = options_of(value)
            return {"$regex": value.pattern} | ({"$options": options} if options else {})
    return str(value)
