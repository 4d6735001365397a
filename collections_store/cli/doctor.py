"""The command doctor: problems of a database."""

from __future__ import annotations

from collections import Counter

import click

from .arguments import Target, json_option, on_database
from .output import Exit, Failure, counted, emit, to_text

_RANKS = ("error", "warning", "info")


@click.command()
@click.argument("database", metavar="[URL]", required=False)
@json_option
@on_database
def doctor(target: Target, database: str | None, *, as_json: bool) -> None:
    """Look for problems of the database at URL, by default the URL of --url.

    Problems are damage, missing and unknown tables, missing, unused and invalid indexes, fields that mix forms of times,
    expired documents on disk, interrupted restores, bloat, a large log, long transactions, and late replicas. Each problem is an error, a
    warning or an info, with advice. The command only reads, also while others read and write, and reads all of an
    SQLite file. It exits with 1 after an error or a warning:

    \b
      collections-store doctor sqlite:///agent.db
      collections-store doctor postgresql://user:password@host/database --json
    """
    from ..engine.health import diagnose
    from ..options import Options

    target.use(database)
    target.to_read().close()
    found = diagnose(target.driver_url(), Options(**target.names()))
    found.sort(key=lambda each: _RANKS.index(each.severity))
    if as_json:
        findings = [each._asdict() for each in found]
        emit(to_text({"url": target.safe_url(), "findings": findings}))
    else:
        for each in found:
            where = f"{each.where}: " if each.where else ""
            problem = " ".join(each.problem.split())  # a driver's message may have several lines
            emit(f"{each.severity}: {where}{problem}", f"    {each.advice}")
    counts: Counter[str] = Counter(each.severity for each in found)
    summary = ", ".join(counted(counts[rank], rank) for rank in _RANKS if counts[rank])
    if counts["error"] or counts["warning"]:
        raise Failure(f"found {summary}", Exit.NO)
    click.echo(f"found {summary or 'no problem'}", err=True)
