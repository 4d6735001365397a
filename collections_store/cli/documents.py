"""Commands on the documents of a collection, `distinct` and `explain`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import click

from .. import Explanation, Filter, Path
from .arguments import (
    Question,
    read_field,
    read_json,
    read_order,
    read_projection,
    sort_option,
    window_options,
)
from .exits import Exit, Failure
from .output import Format, binary_output, emit, to_text, write_documents, write_lines
from .target import Target, database_options, require
from .transfer import objects


def consent(question: str) -> None:
    """Ask; raises `Failure` where the answer is no, and `UsageError` where nobody can answer."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: say --yes to delete")
    if not click.confirm(question, err=True):
        raise Failure("nothing was deleted", Exit.NO)


F = TypeVar("F", bound=Callable[..., Any])
_MISSING = object()


@click.command()
@click.argument("collection")
@click.argument("id")
@click.argument("body", required=False)
@click.option("--ttl", type=float, metavar="SECONDS", help="The object expires after that time.")
@database_options
@click.pass_obj
def put(target: Target, collection: str, id: str, body: str | None, ttl: float | None) -> None:
    """Write BODY, which is JSON, under ID, in the place of what was there.

    Without BODY, or when it is "-", standard input is read. Write "--" before a BODY or an ID that
    begins with a dash:

    \b
      collections-store put temperatures berlin -- -5
    """
    value = read_json(body, "BODY")
    with target.to_write() as store:
        store.get_sync_collection(collection).put(id, value, ttl=ttl)


@click.command()
@click.argument("collection")
@click.argument("id")
@database_options
@click.pass_obj
def get(target: Target, collection: str, id: str) -> None:
    """Print the body of the object under ID, as one line of JSON."""
    with target.to_read() as store:
        body = store.get_sync_collection(collection).get(id, _MISSING)
    if body is _MISSING:
        raise Failure(f"there is no object {id!r} in {collection}", Exit.NO)
    emit(to_text(body))


@click.command()
@click.argument("collection")
@click.argument("id")
@database_options
@click.pass_obj
def remove(target: Target, collection: str, id: str) -> None:
    """Delete the object under ID."""
    with target.to_read() as store:
        was_there = store.get_sync_collection(collection).remove(id)
    if not was_there:
        raise Failure(f"there is no object {id!r} in {collection}", Exit.NO)


def _listing_options(command: F) -> F:
    output = click.option(
        "--output",
        type=click.Choice(["jsonl", "json", "table"]),
        default="jsonl",
        show_default=True,
        help='JSON lines of {"id": …, "body": …}, one JSON array of them, or a table with a column for each field.',
    )
    return window_options(output(command))


@click.command()
@click.argument("collection")
@click.argument("filter", required=False, default="{}")
@sort_option
@click.option(
    "--fields", metavar="FIELDS", help="Print only these fields of the bodies: name,address.city"
)
@click.option(
    "--projection",
    metavar="JSON",
    help='Print only these parts of the bodies: {"name": 1, "tags": {"$slice": 3}}',
)
@click.option("--count", is_flag=True, help="Print how many objects match, not the objects.")
@_listing_options
@database_options
@click.pass_obj
def find(
    target: Target,
    collection: str,
    filter: str,
    *,
    sort: tuple[str, ...],
    fields: str | None,
    projection: str | None,
    count: bool,
    skip: int,
    limit: int | None,
    output: Format,
) -> None:
    """Print the objects that match FILTER, a JSON document, in natural order or as --sort says.

    A field is named with dots, and an array matches by each of its elements:

    \b
      collections-store find people '{"address.city": "Berlin", "age": 30}'
      collections-store find people --sort age:-1 --limit 10 --fields name,age

    Without --sort and --limit any number of objects is printed in constant memory.
    """
    parts = read_projection(fields, projection)
    asked = Question(read_json(filter, "FILTER"), read_order(sort), skip, limit, parts)
    if count:
        with target.to_read() as store:
            emit(str(asked.count(require(store, collection))))
    else:
        _print(target, collection, asked, output, None if fields is None else fields.split(","))


@click.command("list")
@click.argument("collection")
@_listing_options
@database_options
@click.pass_obj
def list_(target: Target, collection: str, *, skip: int, limit: int | None, output: Format) -> None:
    """Print all objects of COLLECTION in natural order: the order in which they came into being."""
    _print(target, collection, Question(skip=skip, limit=limit), output)


@click.command()
@click.argument("collection")
@click.argument("filter")
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_options
@click.pass_obj
def delete(target: Target, collection: str, filter: str, *, yes: bool) -> None:
    """Delete the objects that match FILTER, a JSON document; {} matches all.

    It asks first, and without a terminal it refuses. All of them are deleted or, at an error, none.
    """
    asked = read_json(filter, "FILTER")
    if asked is None:
        raise Failure("FILTER is null; {} matches all objects", Exit.BAD_INPUT)
    with target.to_read() as store:
        found = require(store, collection)
        if not yes:
            consent(f"Delete {objects(found.count(asked))} of {collection}?")
        deleted = found.delete_many(asked).deleted_count
    click.echo(f"deleted {objects(deleted)} of {collection}", err=True)


@click.command()
@click.argument("collection", required=False)
@database_options
@click.pass_obj
def purge(target: Target, collection: str | None) -> None:
    """Delete what has expired in COLLECTION, or in all collections, and recorded changes that are
    kept no longer.

    What has expired is gone for every command already; this frees its space.
    """
    with target.to_read() as store:
        names = [each.name for each in store.collections()] if collection is None else [collection]
        deleted = sum(require(store, name).purge_expired() for name in names)
    click.echo(f"deleted {objects(deleted)} that had expired", err=True)


def _print(
    target: Target,
    collection: str,
    asked: Question,
    output: Format,
    fields: Sequence[str] | None = None,
) -> None:
    with target.to_read() as store:
        found = require(store, collection)
        documents = asked.documents(found)
        write_documents(documents, output, binary_output(), fields)


_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


@click.command()
@click.argument("collection")
@click.argument("field")
@click.argument("filter", required=False, default="{}")
@click.option(
    "--output",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or one JSON array.",
)
@database_options
@click.pass_obj
def distinct(
    target: Target, collection: str, field: str, filter: str, *, output: Literal["jsonl", "json"]
) -> None:
    """Print the different values of FIELD in the objects that match FILTER.

    They come in MongoDB's order of values: of an array its elements, of a missing field nothing.
    FIELD is dotted, or the list of its keys in JSON, where keys hold dots:

    \b
      collections-store distinct people address.city '{"age": {"$gte": 30}}'
      collections-store distinct people '["a.b", "c"]'
    """
    path, asked = read_field(field), read_json(filter, "FILTER")
    with target.to_read() as store:
        values = require(store, collection).distinct(path, asked)
    write_lines(map(to_text, values), binary_output(), array=output == "json")


@click.command()
@click.argument("collection")
@click.argument("filter", required=False, default="{}")
@sort_option
@window_options
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON, with the SQL.")
@database_options
@click.pass_obj
def explain(
    target: Target,
    collection: str,
    filter: str,
    *,
    sort: tuple[str, ...],
    skip: int,
    limit: int | None,
    as_json: bool,
) -> None:
    """Tell how find would answer: by which indexes, who sorts, and which index would help.

    The plan of the database is below it. Nothing but the plan is computed.
    """
    asked, order = read_json(filter, "FILTER"), read_order(sort)
    with target.to_read() as store:
        found = store.get_sync_collection(collection)
        told = found.explain(asked, sort=order, skip=skip, limit=limit)
    emit(to_text(_as_json(told)) if as_json else str(told))


def _as_json(told: Explanation) -> dict[str, Any]:
    return {
        "in_sql": _filter(told.in_sql),
        "in_matcher": None if told.in_matcher is None else _filter(told.in_matcher),
        "indexes": list(told.indexes),
        "scans": told.scans,
        "order": told.order,
        "arrays": told.arrays,
        "advice": told.advice,
        "sql": told.sql,
        "parameters": {name: _plain(value) for name, value in told.parameters.items()},
        "plan": list(told.plan),
    }


def _filter(filter: Filter) -> Any:
    return _plain(filter.to_json())


def _key(key: str | Path) -> str:
    """Return a key as JSON has it: no key that came from there holds a dot."""
    return f"$body.{key}" if isinstance(key, Path) else key


def _plain(value: Any) -> Any:
    """Return JSON: regular expressions as filters spell them, and what else there may be in words."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {_key(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case re.Pattern():
            options = "".join(name for name, flag in _FLAGS.items() if value.flags & flag)
            return {"$regex": value.pattern} | ({"$options": options} if options else {})
    return str(value)
