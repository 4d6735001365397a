"""The command `watch`: the changes of a collection or of all collections as JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from ..query.change import ChangeKind
from .arguments import Target, count_option, on_database, read_json
from .completion import complete_collection
from .output import Exit, Failure, emit, to_text

if TYPE_CHECKING:
    from .. import Change


@click.command()
@click.argument("collection", required=False, shell_complete=complete_collection)
@click.argument("filter", required=False)
@click.option(
    "--pipeline",
    metavar="JSON",
    help="Print the change documents that a list of stages returns; - reads the list from standard input.",
)
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
@count_option("--limit", 1, "End after N changes.")
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="End after this time without a change."
)
@on_database
def watch(
    target: Target,
    collection: str | None,
    filter: str | None,
    *,
    pipeline: str | None,
    after: str | None,
    kinds: tuple[ChangeKind, ...],
    limit: int | None,
    timeout: float | None,
) -> None:
    """Print the changes of COLLECTION as they are committed, until Ctrl-C, --limit or --timeout.

    The collection must record changes. Each change is a line of JSON with its kind, id, version, time, token and the
    recorded bodies. FILTER needs recorded bodies, unless it is about the id and the version only. The last line on
    standard error has the token after which to continue, so that no change is skipped.

    Without COLLECTION, print the changes of all collections that record changes. These, and the changes of a --pipeline,
    are change documents with MongoDB's names, whose _id is the token:

    \b
      collections-store watch people --after oldest --timeout 0
      collections-store watch people '{"age": {"$gte": 18}}' --kind insert
      collections-store watch
      collections-store watch --pipeline '[{"$match": {"ns.coll": "people"}}]'
    """
    chosen: dict[str, Any] = {}
    if collection is None and kinds:
        raise click.UsageError("--kind needs COLLECTION: without it, pass a --pipeline")
    if filter is not None:
        chosen["filter"] = read_json(filter, "FILTER")
    if kinds:
        chosen["kinds"] = kinds
    if pipeline is not None:
        chosen["pipeline"] = read_json(pipeline, "--pipeline")
        if chosen["pipeline"] is None:  # no pipeline, for the method
            raise click.UsageError("--pipeline must be a list of stages, got null")
    with target.to_read() as store:
        watched: Any = store if collection is None else target.collection(store, collection)
        stream = watched.watch(**chosen, after=after, timeout=timeout)
        token = stream.token
        try:
            for number, change in enumerate(stream, 1):
                is_document = isinstance(change, dict)
                after = change["_id"] if is_document else change.token
                emit(to_text(change) if is_document else _line(change))
                token = after
                if number == limit:
                    break
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
