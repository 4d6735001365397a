"""The ratios of CPU times of a report as one table, ours over the framework's own: `python tests/benchmarks/ratios.py FOLDER` prints it.

`FOLDER` is the one that `BENCH_REPORT` named.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DATABASES = ("SQLite, full", "PostgreSQL")


def table_of(results: list[dict[str, Any]]) -> str:
    """Return the table, in Markdown."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for each in results:
        database = next((name for name in DATABASES if each["group"].endswith(name)), "")
        if each["who"] == "ours" and database:
            row = each["group"].removesuffix(database).rstrip(", "), each["what"]
            rows.setdefault(row, {})[database] = each["cpu"]
    lines = ["| | | SQLite | PostgreSQL |", "| --- | --- | ---: | ---: |"]
    for (group, what), ratios in rows.items():
        cells = (f"{ratios[name]:.2f}" if name in ratios else "" for name in DATABASES)
        lines.append(f"| {group} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table_of(json.loads((Path(sys.argv[1]) / "results.json").read_text())))
