"""The commands `import` and `export`."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import chain
from pathlib import Path as File

import click

from .. import Path
from .definitions import header
from .files import STANDARD, check_readable, progress, reading, shown, writing
from .importing import Import, objects
from .output import Format, as_line, binary_output, write_lines
from .reading import read_items
from .target import Target, database_options, require


@click.command("import")
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option("--collection", "-c", metavar="NAME", help="The collection to import into.")
@click.option(
    "--id",
    "id_field",
    metavar="FIELD",
    help="The field of each object, dotted if nested, that is its id: a string or an integer. "
    "Without it, the input is what export writes.",
)
@click.option("--skip-errors", is_flag=True, help="Report bad objects, count them, and go on.")
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="How many objects are written in one transaction.",
)
@click.option("--no-indexes", is_flag=True, help="Do not make the indexes that an export tells of.")
@database_options
@click.pass_obj
def import_(
    target: Target,
    file: str | None,
    *,
    collection: str | None,
    id_field: str | None,
    skip_errors: bool,
    batch_size: int,
    no_indexes: bool,
) -> None:
    """Put the objects of FILE into a collection; one whose id is there already is overwritten.

    FILE holds JSON lines or one JSON array, gzipped or not. Without FILE, or when it is "-",
    standard input is read, and the collection may be the only argument:

    \b
      collections-store export a | collections-store import b

    Each batch is one transaction. At a bad object the import ends: nothing of its batch is kept,
    and the message tells how many objects before it are. With --skip-errors it goes on without.

    The indexes that an export tells of are made when all objects are in. An object that expires keeps
    its time; one that has expired is left out.
    """
    file, name = _file_and_collection(file, collection)
    path = None if id_field is None else Path.parse(id_field)
    tell = _tell if skip_errors else None
    with ExitStack() as stack:
        stream, size = stack.enter_context(reading(file))
        store = stack.enter_context(target.to_write())
        handle = store.get_sync_collection(name)
        items, made = read_items(stream), not no_indexes
        work = Import(store, handle, items, shown(file), path, batch_size, tell, made)
        show = stack.enter_context(progress(size))
        for kept in work.batches():
            show(kept, stream.tell() if size else 0)
        work.make_indexes()
    indexes = f" and {_indexes(work.made)}" if work.made else ""
    skipped = f", skipped {objects(work.skipped)}" if work.skipped else ""
    expired = f", left out {objects(work.expired)} that had expired" if work.expired else ""
    _tell(f"imported {objects(work.kept)}{indexes} into {name}{skipped}{expired}")


@click.command()
@click.argument("collection")
@click.argument("file", required=False, type=click.Path(allow_dash=True, dir_okay=False))
@click.option(
    "--output",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or one JSON array.",
)
@click.option("--no-indexes", is_flag=True, help="Write objects only.")
@database_options
@click.pass_obj
def export(
    target: Target, collection: str, file: str | None, *, output: Format, no_indexes: bool
) -> None:
    """Write all objects of COLLECTION to FILE, or to standard output.

    Each is {"id": …, "body": …}, in natural order, as import reads it, with "expires_at" if it expires. If the collection has
    indexes, {"indexes": […]} comes before them. A FILE whose name ends in .gz is gzipped. The file
    comes into being, or is replaced, when everything is written.
    """
    with target.to_read() as store:
        found = require(store, collection)
        indexes = [] if no_indexes else header(found.indexes())
        lines, array = chain(indexes, map(as_line, found.stream())), output == "json"
        if file in {None, STANDARD}:
            write_lines(lines, binary_output(), array=array)
            return
        with writing(str(file)) as stream:
            write_lines(lines, stream, array=array)


def _file_and_collection(file: str | None, collection: str | None) -> tuple[str, str]:
    """Tell which is which: without --collection the only argument is the collection."""
    if collection is not None:
        file = file or STANDARD
        check_readable(file)
        return file, collection
    if file in {None, STANDARD}:
        raise click.UsageError("name the collection to import into: --collection NAME")
    name = str(file)
    if File(name).is_file():
        raise click.UsageError(
            f"name the collection to import {shown(name)} into: --collection NAME"
        )
    check_readable(STANDARD)
    return STANDARD, name


def _indexes(count: int) -> str:
    return f"{count} index" if count == 1 else f"{count} indexes"


def _tell(sentence: str) -> None:
    click.echo(sentence, err=True)
