"""Commands on the schema versions of documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import click

from .arguments import Group, Target, collection_argument, imported, on_database
from .files import progress
from .output import Exit, Failure, counted, emit, one_line

if TYPE_CHECKING:
    from .. import Collection, Store
    from ..options import VersionSettings
    from ..results import UpgradeResult

documents = Group("documents", help="Upgrade the documents of a collection.")


@documents.command()
@collection_argument
@click.option(
    "--using",
    required=True,
    metavar="MODULE:OBJECT",
    help="The declaration: a mapping of the arguments of Store.collection.",
)
@click.option("--dry-run", is_flag=True, help="Write no document, and print samples.")
@click.option(
    "--quarantine",
    metavar="NAME",
    help="Move documents that cannot be upgraded to this collection.",
)
@on_database
def upgrade(
    target: Target, collection: str, *, using: str, dry_run: bool, quarantine: str | None
) -> None:
    """Upgrade all documents of COLLECTION to the declared schema version.

    OBJECT has the schema version and the upgrade functions, such as PEOPLE = {"schema_version": 2, "upgrades": {1:
    one_to_two}} in the module people. MODULE is imported from the current folder or an installed package:

    \b
      collections-store documents upgrade people --using people:PEOPLE --dry-run
      collections-store documents upgrade people --using people:PEOPLE

    The command writes in batches, while others read and write. Run an interrupted command again to continue. A
    document whose function fails is reported and does not change.
    """
    settings = _declaration(using)
    with target.to_read() as store, progress() as show:
        target.collection(store, collection)
        result = _collection(store, collection, using, settings).upgrade_documents(
            dry_run=dry_run,
            quarantine=quarantine,
            progress=lambda done, total: show(done, done, total),
        )
    _report(collection, result, dry_run=dry_run)


def _declaration(using: str) -> VersionSettings:
    """Return the object named by `module:object`."""
    declared = imported(using)
    if not isinstance(declared, Mapping):
        must = "must be a mapping, such as {'schema_version': 2, 'upgrades': {1: one_to_two}}"
        raise click.UsageError(f"--using: {using} {must}, got {type(declared).__name__}")
    return cast("VersionSettings", dict(declared))


def _collection(store: Store, name: str, using: str, settings: VersionSettings) -> Collection:
    try:
        return store.collection(name, **settings)
    except TypeError as error:  # an unknown option
        raise click.UsageError(f"--using: {using}: {error}") from error


def _report(collection: str, result: UpgradeResult, *, dry_run: bool) -> None:
    """Print the result; raise `Failure` if documents were not upgraded."""
    for sample in result.samples:
        emit(f"{sample.id}:", sample.diff())
    for failure in result.failures:
        click.echo(one_line(failure.error), err=True)
    listed = len(result.failures)
    if result.failed_count > listed:
        click.echo(f"and {result.failed_count - listed:,} more", err=True)
    did = "would upgrade" if dry_run else "upgraded"
    done = [f"{did} {counted(result.upgraded_count, 'document')} of {collection}"]
    if result.quarantined_count:
        done.append(f"moved {result.quarantined_count:,} to the quarantine")
    if result.failed_count:
        done.append(f"{counted(result.failed_count, 'document')} cannot be upgraded")
        raise Failure(", ".join(done), Exit.NO)
    click.echo(", ".join(done), err=True)
