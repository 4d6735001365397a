"""How PostgreSQL means to answer, from its tree of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from ....query.explain import Plan


def explain(sql: str) -> str:
    """Return the statement that gives the plan of a statement."""
    return f"EXPLAIN (FORMAT JSON, COSTS OFF) {sql}"


def plan(rows: Sequence[Any], table: sa.Table) -> Plan:
    """Read the plan: a tree of steps. What tells whether there is doubt uses its own indexes."""
    steps = list(_steps(rows[0][0][0]["Plan"], 0))
    main = [step for _, step in _steps(rows[0][0][0]["Plan"], 0, doubt=False)]
    used = [step["Index Name"] for step in main if "Index Name" in step]
    natural = f"{table.name}_seq_key"
    return Plan(
        lines=tuple(_line(depth, step) for depth, step in steps),
        indexes=tuple(_known(name, table) for name in used if name != natural),
        walked=tuple(
            step["Index Name"] for step in main if "Index Name" in step and "Index Cond" not in step
        ),
        scans=any(_reads_all(step, str(table.name), natural) for _, step in steps),
        sorts=any(step["Node Type"] == "Sort" for step in main),
    )


def _steps(step: Any, depth: int, *, doubt: bool = True) -> Iterator[tuple[int, Any]]:
    if doubt or step.get("Parent Relationship") != "InitPlan":
        yield depth, step
        for below in step.get("Plans", ()):
            yield from _steps(below, depth + 1, doubt=doubt)


def _reads_all(step: Any, table: str, natural: str) -> bool:
    if step.get("Index Name") == natural:
        return "Index Cond" not in step
    return bool(step["Node Type"] == "Seq Scan" and step["Relation Name"] == table)


def _line(depth: int, step: Any) -> str:
    using = f" using {step['Index Name']}" if "Index Name" in step else ""
    on = f" on {step['Relation Name']}" if "Relation Name" in step else ""
    return f"{'  ' * depth}{step['Node Type']}{using}{on}"


def _known(name: str, table: sa.Table) -> str:
    if name == f"{table.name}_pkey":
        return "$id"
    own = {"$i0": "$body", "$x": "$expires_at"}
    return next((own[end] for end in own if name.endswith(end)), name)
