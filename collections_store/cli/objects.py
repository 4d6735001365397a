"""The commands on the objects of a collection."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from .. import Collection
from .exits import Exit, Failure
from .output import Format, binary_output, emit, to_text, write_documents
from .reading import BadItem, parse_json
from .target import Target, database_options, require

F = TypeVar("F", bound=Callable[..., Any])
_MISSING = object()


@click.command()
@click.argument("collection")
@click.argument("id")
@click.argument("body", required=False)
@database_options
@click.pass_obj
def put(target: Target, collection: str, id: str, body: str | None) -> None:
    """Write BODY, which is JSON, under ID, in the place of what was there.

    Without BODY, or when it is "-", standard input is read. Write "--" before a BODY or an ID that
    begins with a dash:

    \b
      collections-store put temperatures berlin -- -5
    """
    value = _json(body, "BODY")
    with target.to_write() as store:
        store.get_sync_collection(collection).put(id, value)


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
        help='JSON lines of {"id": …, "body": …}, one JSON array of them, or a table.',
    )
    limit = click.option(
        "--limit", type=click.IntRange(0), metavar="N", help="At most so many objects."
    )
    return limit(output(command))


@click.command()
@click.argument("collection")
@click.argument("filter", required=False, default="{}")
@click.option("--count", is_flag=True, help="Print how many objects match, not the objects.")
@_listing_options
@database_options
@click.pass_obj
def find(
    target: Target, collection: str, filter: str, *, count: bool, limit: int | None, output: Format
) -> None:
    """Print the objects that match FILTER, a JSON document, in natural order.

    A field is named with dots, and an array matches by each of its elements:

    \b
      collections-store find people '{"address.city": "Berlin", "age": 30}'
    """
    asked = _json(filter, "FILTER")
    with target.to_read() as store:
        found = require(store, collection)
        if count:
            matching = found.count(asked)
            emit(str(matching if limit is None else min(matching, limit)))
        else:
            _print(found, asked, limit, output)


@click.command("list")
@click.argument("collection")
@_listing_options
@database_options
@click.pass_obj
def list_(target: Target, collection: str, *, limit: int | None, output: Format) -> None:
    """Print all objects of COLLECTION in natural order: the order in which they came into being."""
    with target.to_read() as store:
        _print(require(store, collection), {}, limit, output)


def _print(collection: Collection, asked: Any, limit: int | None, output: Format) -> None:
    """Print what is asked; without a limit in constant memory, whatever there is."""
    if limit is None:
        found = collection.stream(asked)
        write_documents(found, output, binary_output())
    else:
        write_documents(collection.find(asked, limit=limit), output, binary_output())


def _json(text: str | None, what: str) -> Any:
    """Read a JSON argument, or standard input in its place."""
    try:
        if text in {None, "-"}:
            return parse_json(sys.stdin.buffer.read())
        return parse_json(str(text).encode())
    except BadItem as error:
        raise Failure(f"{what} is {error}", Exit.BAD_INPUT) from error
    except UnicodeEncodeError as error:
        raise Failure(f"{what} is not Unicode", Exit.BAD_INPUT) from error
