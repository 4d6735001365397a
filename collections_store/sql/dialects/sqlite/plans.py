"""How SQLite means to answer, in its own lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from ....query.explain import Plan

_USED: Final = re.compile(r"USING (?:COVERING )?INDEX (\S+)|^SEARCH (\S+\$i\d+) USING PRIMARY KEY")


def explain(sql: str) -> str:
    """Return the statement that gives the plan of a statement."""
    return f"EXPLAIN QUERY PLAN {sql}"


def plan(rows: Sequence[Any], table: sa.Table) -> Plan:
    """Read the plan: a line of words for each step."""
    lines = tuple(row[3] for row in rows)
    found = (match for line in lines for match in _USED.finditer(line))
    names = (match[1] or match[2] for match in found)
    indexes = tuple(map(_known, names))
    whole = (match for line in lines if line.startswith("SCAN ") for match in _USED.finditer(line))
    walked = tuple(match[1] for match in whole)
    scans = any(line == f"SCAN {table.name}" for line in lines)
    sorts = "USE TEMP B-TREE FOR ORDER BY" in lines
    return Plan(lines, indexes, walked, scans, sorts)


def _known(name: str) -> str:
    if name.startswith("sqlite_autoindex"):
        return "$id"
    return "$expires_at" if name.endswith("$x") else name
