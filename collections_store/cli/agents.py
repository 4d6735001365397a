"""The command that copies what AEA's own storage keeps."""

from __future__ import annotations

import click

from ..integrations.aea import import_aea
from .target import Target, database_options


@click.command("import-aea")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@database_options
@click.pass_obj
def aea(target: Target, file: str) -> None:
    """Copy the collections that AEA's own storage keeps in the SQLite file FILE.

    FILE stays as it is; what is under the same ids is overwritten. All of it is one transaction. An
    agent then goes on with storage_uri: collections+sqlite:///collections.db, or whatever --url names.
    """
    with target.to_write() as store:
        counts = import_aea(store, file)
    total = sum(counts.values())
    objects = "1 object" if total == 1 else f"{total:,} objects"
    collections = "1 collection" if len(counts) == 1 else f"{len(counts):,} collections"
    click.echo(f"imported {objects} of {collections} from {file}", err=True)
