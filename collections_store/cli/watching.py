"""The command `watch`: the change feed as JSON lines."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, get_args

import click

from ..query.change import ChangeKind
from .arguments import Target, collection_argument, filter_argument, on_database, read_json
from .output import Exit, Failure, emit, to_text

if TYPE_CHECKING:
    from .. import Change


@click.command()
@collection_argument
@filter_argument
@click.option(
    "--after",
    metavar="TOKEN",
    help='Begin after the change with this token; "oldest": with the first recorded change. Default: now.',
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(get_args(ChangeKind)),
    help="Print only changes of this kind; repeat the option for further kinds.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="End after N changes.")
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="End after this time without a change."
)
@on_database
def watch(
    target: Target,
    collection: str,
    filter: str,
    *,
    after: str | None,
    kinds: tuple[ChangeKind, ...],
    limit: int | None,
    timeout: float | None,
) -> None:
    """Print the changes of COLLECTION as they are committed, until Ctrl-C, --limit or --timeout.

    The collection must record changes. Each change is a line of JSON with its kind, id, version, time, token and the
    recorded bodies. FILTER needs recorded bodies, unless it is about the id and the version only. The last line on
    standard error has the token after which to continue, so that no change is skipped:

    \b
      collections-store watch people --after oldest --timeout 0
      collections-store watch people '{"age": {"$gte": 18}}' --kind insert
    """
    query = read_json(filter, "FILTER")
    with target.to_read() as store:
        found = target.collection(store, collection)
        stream = found.watch(query, after=after, kinds=kinds or None, timeout=timeout)
        token = stream.token
        try:
            for change in islice(stream, limit):
                emit(_line(change))
                token = change.token
        except KeyboardInterrupt:
            raise Failure(f"interrupted: continue {_from(token)}", Exit.INTERRUPTED) from None
        click.echo(f"continue {_from(stream.token)}", err=True)


def _from(token: str) -> str:
    return f"with --after {token}"


def _line(change: Change) -> str:
    """Return a change as JSON. A body is encoded separately, as in `as_line`."""
    facts = to_text(
        {"kind": change.kind, "id": change.id, "version": change.version}
        | {"time": change.time.isoformat(), "token": change.token}
    )
    body = f',"body":{to_text(change.body)}' if change.has_body else ""
    before = f',"before":{to_text(change.before)}' if change.has_before else ""
    return f"{facts[:-1]}{body}{before}}}"
