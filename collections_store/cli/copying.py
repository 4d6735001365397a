"""The commands `copy`, `backup` and `restore`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path as File
from typing import TYPE_CHECKING

import click

from .. import CollectionExists
from .arguments import Target, on_database
from .files import check_readable, cleaning_up, naming, progress, shown
from .output import Exit, Failure, counted, emit, to_text

if TYPE_CHECKING:
    from .. import CopiedCollection, CopyProgress

names_argument = click.argument("names", metavar="[NAME]...", nargs=-1)
vectors_option = click.option(
    "--vectors", is_flag=True, help="Include the vectors that models made of texts."
)
file_argument = click.argument("file", type=click.Path(dir_okay=False))


@click.command()
@names_argument
@click.option("--from", "source", metavar="URL", help="The store to copy. Default: --url.")
@click.option("--to", "to", metavar="URL", required=True, help="The store to copy to.")
@click.option("--to-prefix", metavar="TEXT", default="cs_", help="The other store's --prefix.")
@click.option("--to-schema", metavar="NAME", help="The other store's --schema.")
@vectors_option
@on_database
def copy(
    target: Target,
    names: tuple[str, ...],
    *,
    source: str | None,
    to: str,
    to_prefix: str,
    to_schema: str | None,
    vectors: bool,
) -> None:
    """Copy all or the named collections from one store to another.

    The copy has the ids, versions, times, options and indexes of a single moment; the store can be written during
    the copy. The command prints each collection with the number and the checksum of its documents. It overwrites no
    collection of the other store. After an interruption run the same command again to continue:

    \b
      collections-store copy --from sqlite:///agent.db --to postgresql://me@host/name
    """
    other = Target(to, to_prefix, to_schema)
    if source is not None:
        target = replace(target, url=source, option="--from")
    with target.to_read() as store, other.to_write() as copied, _reporting() as report:
        if names:
            target.check(store, names)
        try:
            found = store.copy_to(copied, names or None, vectors=vectors, progress=report)
        except CollectionExists as error:
            advice = f"drop it first, with {other.command('drop', error.name)}"
            raise Failure(
                f"{other.safe_url()} has a collection {error.name!r}: {advice}", Exit.BAD_INPUT
            ) from error
    _print(found, f"copied {{}} to {other.safe_url()}")


@click.command()
@file_argument
@names_argument
@vectors_option
@on_database
def backup(target: Target, file: str, names: tuple[str, ...], *, vectors: bool) -> None:
    """Write a backup of the store, or of the named collections, to FILE.

    The backup has the state of a single moment; the store can be written during the backup. If FILE ends in .jsonl
    or .jsonl.gz, the backup is text, for any database. Otherwise the backup is an SQLite file with the whole
    database:

    \b
      collections-store backup agent.backup.db
      collections-store backup agent.jsonl.gz --url postgresql://user@host/name
    """
    from ..engine.backup.backup import is_text

    noun = "documents" if is_text(File(file)) else "pages and documents"
    with target.to_read() as store, _reporting(noun) as report, cleaning_up(), naming(file):
        if names:
            target.check(store, names)
        store.backup(file, names or None, vectors=vectors, progress=report)
    click.echo(f"backed up {target.safe_url()} to {shown(file)}", err=True)


@click.command()
@file_argument
@names_argument
@click.option("--replace", "replacing", is_flag=True, help="Replace collections that exist.")
@on_database
def restore(target: Target, file: str, names: tuple[str, ...], *, replacing: bool) -> None:
    """Restore a backup, or the named collections in it, into the store.

    FILE is a backup of any database. The store must be empty; with NAME or --replace it may have other collections.
    The command prints the restored collections, as copy does. After an interruption run the same command again to
    continue:

    \b
      collections-store restore agent.jsonl.gz --url sqlite:///agent.db
    """
    check_readable(file)
    with target.to_write() as store, _reporting() as report, naming(file):
        try:
            found = store.restore(file, names or None, replace=replacing, progress=report)
        except CollectionExists as error:
            advice = "restore into an empty store, or give --replace"
            raise Failure(
                f"there is a collection {error.name!r} already: {advice}", Exit.BAD_INPUT
            ) from error
    _print(found, f"restored {{}} from {shown(file)}")


@contextmanager
def _reporting(noun: str = "documents") -> Iterator[Callable[[CopyProgress], None]]:
    """Yield a function that shows the progress on a terminal."""
    with progress(noun=noun) as show:
        yield lambda state: show(state.done, state.done, state.total)


def _print(copied: tuple[CopiedCollection, ...], sentence: str) -> None:
    """Print each collection, and a sentence with the numbers."""
    for each in copied:
        emit(to_text({"name": each.name, "count": each.count, "sha256": each.sha256}))
    documents = counted(sum(each.count for each in copied), "document")
    click.echo(sentence.format(f"{documents} of {counted(len(copied), 'collection')}"), err=True)
