"""Commands that upgrade documents: to a schema version, or to the form of times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import click

from .arguments import Group, Target, collection_argument, imported, on_database
from .files import progress
from .output import Exit, Failure, counted, emit, one_line

if TYPE_CHECKING:
    from .. import Collection, Store, Transaction
    from ..options import VersionSettings
    from ..results import UpgradeResult

BATCH: Final = 100
"""Documents that are written in one transaction."""
documents = Group("documents", help="Upgrade the documents of a collection.")


@documents.command()
@collection_argument
@click.option(
    "--using",
    metavar="MODULE:OBJECT",
    help="The declaration: a mapping of the arguments of Store.collection.",
)
@click.option(
    "--times",
    "fields",
    multiple=True,
    metavar="FIELD",
    help="Write the times of a field, such as orders.at, in their one form. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Write no document, and print samples.")
@click.option(
    "--quarantine",
    metavar="NAME",
    help="Move documents that cannot be upgraded to this collection.",
)
@on_database
def upgrade(
    target: Target,
    collection: str,
    *,
    using: str | None,
    fields: tuple[str, ...],
    dry_run: bool,
    quarantine: str | None,
) -> None:
    """Upgrade all documents of COLLECTION to the declared schema version, or the times of fields to one form.

    OBJECT has the schema version and the upgrade functions, such as PEOPLE = {"schema_version": 2, "upgrades": {1:
    one_to_two}} in the module people. MODULE is imported from the current folder or an installed package:

    \b
      collections-store documents upgrade people --using people:PEOPLE --dry-run
      collections-store documents upgrade people --using people:PEOPLE

    With --times, strings of ISO 8601 with a date and a time of day become strings in UTC with Z and six digits of a
    second; a time without a zone is UTC. Other values do not change:

    \b
      collections-store documents upgrade people --times login.at --times born

    The command writes in batches, while others read and write. Run an interrupted command again to continue. A
    document whose function fails is reported and does not change.
    """
    if (using is None) is not bool(fields):
        raise click.UsageError("requires either --using or --times")
    if quarantine is not None and using is None:
        raise click.UsageError("--quarantine requires --using")
    settings = None if using is None else _declaration(using)
    with target.to_read() as store, progress() as show:
        target.collection(store, collection)
        if using is None or settings is None:
            result = _with_times(store, collection, fields, show, dry_run=dry_run)
        else:
            result = _collection(store, collection, using, settings).upgrade_documents(
                dry_run=dry_run,
                quarantine=quarantine,
                progress=lambda done, total: show(done, done, total),
            )
    _report(collection, result, dry_run=dry_run)


def _with_times(
    store: Store, name: str, fields: tuple[str, ...], show: Callable[..., None], *, dry_run: bool
) -> UpgradeResult:
    """Write the times of fields in their form, a transaction for each batch."""
    from ..codec.times import with_times
    from ..errors import DocumentNotFound, DuplicateKey
    from ..operations.upgrades import SAMPLES
    from ..results import UpgradeFailure, UpgradeResult, UpgradeSample

    paths = [tuple(each.split(".")) for each in fields]

    def new_body(body: Any) -> Any:
        return reduce(with_times, paths, body)

    def outdated() -> Iterator[UpgradeSample]:
        for number, (id, body) in enumerate(store[name].stream(), 1):
            show(number, number)
            if (new := new_body(body)) != body:
                yield UpgradeSample(id, body, new)

    def write(tx: Transaction) -> tuple[int, list[UpgradeFailure]]:
        written, failures = 0, list[UpgradeFailure]()
        for each in batch:
            try:
                tx[name].change(each.id, new_body)
                written += 1
            except DuplicateKey as error:
                failures.append(UpgradeFailure(each.id, error))
            except DocumentNotFound:  # removed meanwhile
                pass
        return written, failures

    count, failures, samples, found = 0, list[UpgradeFailure](), list[UpgradeSample](), outdated()
    while batch := list(islice(found, BATCH)):
        if dry_run:
            count, samples = count + len(batch), [*samples, *batch][:SAMPLES]
        else:
            written, failed = store.run_transaction(write)
            count, failures = count + written, failures + failed
    return UpgradeResult(count, len(failures), 0, tuple(failures), tuple(samples))


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
