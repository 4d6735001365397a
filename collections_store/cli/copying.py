"""The command `copy`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import click

from .. import CopiedCollection, CopyProgress
from .arguments import Target, on_database
from .files import progress
from .output import counted, emit, to_text


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--from", "source", metavar="URL", help="The store to copy; --url by default.")
@click.option("--to", "to", metavar="URL", required=True, help="The store to copy to.")
@click.option("--to-prefix", metavar="TEXT", default="cs_", help="The other store's --prefix.")
@click.option("--to-schema", metavar="NAME", help="The other store's --schema.")
@on_database
def copy(
    target: Target,
    names: tuple[str, ...],
    *,
    source: str | None,
    to: str,
    to_prefix: str,
    to_schema: str | None,
) -> None:
    """Copy collections from one store to another, all or those named.

    A copy has ids, versions, times, options and indexes, as of one moment; others may write to the store
    meanwhile. It prints each collection with the number and the checksum of its documents. After an interruption
    the same command goes on. Collections that exist in the other store are not overwritten:

    \b
      collections-store copy --from sqlite:///agent.db --to postgresql://user:password@host/database
    """
    other = Target(to, to_prefix, to_schema)
    if source is not None:
        target = replace(target, url=source)
    with target.to_read() as store, other.to_write() as copied, progress() as show:

        def report(state: CopyProgress) -> None:
            show(state.done, state.done, state.total)

        found = store.copy_to(copied, names or None, progress=report)
    _print(found)
    documents = counted(sum(each.count for each in found), "document")
    collections = counted(len(found), "collection")
    click.echo(f"copied {documents} of {collections} to {other.safe_url()}", err=True)


def _print(copied: Iterable[CopiedCollection]) -> None:
    for each in copied:
        emit(to_text({"name": each.name, "count": each.count, "sha256": each.sha256}))
