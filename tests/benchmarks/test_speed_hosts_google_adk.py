"""Sessions of Google ADK: our service against ADK's own, on SQLite files and on PostgreSQL, each durable at each commit."""

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from benchmarks.fixtures import all_results, bed_of, one_core, table
from benchmarks.measuring import Table, run_async

__all__ = ["all_results", "one_core", "table"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]
ROUND = 10


@pytest.mark.parametrize("name", ["SQLite, full", "PostgreSQL"])
def test_sessions(request: pytest.FixtureRequest, table: Table, tmp_path: Path, name: str) -> None:
    from benchmarks.adk_sessions import (  # to import ADK takes seconds
        BaseSessionService,
        Calls,
        CollectionsSessionService,
        DatabaseSessionService,
        SqliteSessionService,
    )

    setup = bed_of(request, tmp_path, name)
    ours = CollectionsSessionService(setup.backend.url, **setup.backend.options, **setup.options)
    floor: BaseSessionService
    others: dict[str, BaseSessionService] = {"ours": ours}
    if setup.is_postgresql:
        url = sa.make_url(setup.backend.url).set(drivername="postgresql+psycopg")
        database = DatabaseSessionService(url.render_as_string(hide_password=False))
        floor = database
    else:
        database = DatabaseSessionService(f"sqlite+aiosqlite:///{tmp_path / 'database.db'}")
        floor = SqliteSessionService(str(tmp_path / "sqlite.db"))
        others["DatabaseSessionService"] = database
    with asyncio.Runner() as runner:
        low = Calls(runner, floor).calls()
        calls = {who: Calls(runner, each).calls() for who, each in others.items()}
        for what, call in low.items():
            table.compare(
                f"ADK, {name}", f"{what} (floor: {type(floor).__name__})",
                run_async(runner, call, ROUND),
                {who: run_async(runner, each[what], ROUND) for who, each in calls.items()},
                per=ROUND, reach="≤ 0.5" if "append" in what else "≤ 1.1",
            )  # fmt: skip
        runner.run(ours.close())
        runner.run(database.close())
