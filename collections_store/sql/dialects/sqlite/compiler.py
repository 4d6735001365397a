"""Compilation of the elements of `sql.elements` for SQLite, and SQLite's plans.

A path is an SQL literal: no index serves a path that is a parameter. Statements are compiled with the paramstyle
`named`: with `qmark` SQLAlchemy searches the finished SQL for `%(name)s`, which a hostile key could hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.compiler import compiles

from .... import codec
from ....query.explain import Plan
from ...elements import (
    AnyOf,
    ArrayTest,
    BodyFromText,
    BodyMatches,
    BodyText,
    HasInteger,
    Increased,
    JsonbFromText,
    JsonbText,
    TableSize,
    TextFits,
    ValueText,
)
from ..protocols import StatementCompiler
from .filters import path_literal, rendered
from .ordering import SqliteIndexedForm

_INDEXED_FORM: Final = SqliteIndexedForm()
_NINES: Final = 10**18 - 1
_USED: Final = re.compile(r"USING (?:COVERING )?INDEX (\S+)|^SEARCH (\S+\$i\d+) USING PRIMARY KEY")


class SqliteCompiler(StatementCompiler):
    """SQLite's dialect of SQLAlchemy, and EXPLAIN QUERY PLAN."""

    dialect = SQLiteDialect_pysqlite(paramstyle="named")
    dialect.supports_native_boolean = True  # else it writes `(…) = 1`, which no index serves

    def insert(self, table: sa.Table) -> Any:
        return insert(table)

    def list_parameter(self, texts: Sequence[str]) -> str:
        """Return the list as JSON: SQLite limits the number of parameters."""
        return codec.Codec(max_bytes=2**40).encode(list(texts))

    def explain(self, sql: str) -> str:
        return f"EXPLAIN QUERY PLAN {sql}"

    def plan(self, rows: Sequence[Any], table: sa.Table) -> Plan:
        """Read the plan: a line of text for each step."""
        lines = tuple(row[3] for row in rows)
        found = (match for line in lines for match in _USED.finditer(line))
        indexes = tuple(_index_name(match[1] or match[2]) for match in found)
        scanned = (line for line in lines if line.startswith("SCAN "))
        walked = tuple(match[1] for line in scanned for match in _USED.finditer(line))
        scans = any(line == f"SCAN {table.name}" for line in lines)
        sorts = "USE TEMP B-TREE FOR ORDER BY" in lines
        return Plan(lines, indexes, walked, scans, sorts)


def _index_name(name: str) -> str:
    if name.startswith("sqlite_autoindex"):
        return "$id"
    return "$expires_at" if name.endswith("$x") else name


@compiles(BodyText, "sqlite")
@compiles(BodyFromText, "sqlite")
def _body(element: Any, compiler: Any, **kw: Any) -> str:
    return str(compiler.process(element.clauses, **kw))


@compiles(JsonbText, "sqlite")
def _jsonb_text(element: JsonbText, compiler: Any, **kw: Any) -> str:
    return f"json({compiler.process(element.clauses, **kw)})"


@compiles(JsonbFromText, "sqlite")
def _jsonb_from_text(element: JsonbFromText, compiler: Any, **kw: Any) -> str:
    return f"jsonb({compiler.process(element.clauses, **kw)})"


@compiles(AnyOf, "sqlite")
def _any_of(element: AnyOf, compiler: Any, **kw: Any) -> str:
    column, texts = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({texts}))"


@compiles(TableSize, "sqlite")
def _table_size(element: TableSize, compiler: Any, **kw: Any) -> str:
    table = compiler.process(element.table, asfrom=True, **kw)
    return f"(SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM {table})"


@compiles(BodyMatches, "sqlite")
def _body_matches(element: BodyMatches, compiler: Any, **kw: Any) -> str:
    body, *parameters = (compiler.process(clause, **kw) for clause in element.clauses)
    return rendered(body, element.condition, iter(parameters))


@compiles(ArrayTest, "sqlite")
def _array_test(element: ArrayTest, compiler: Any, **kw: Any) -> str:
    seq, *parameters = (compiler.process(clause, **kw) for clause in element.clauses)
    test = element.test(parameters, _INDEXED_FORM.width)
    tests = " OR ".join(_INDEXED_FORM.scalar_tests(("rank", "value"), test))
    return f"{seq} IN (SELECT seq FROM {element.physical} WHERE {tests})"


@compiles(ValueText, "sqlite")
def _value_text(element: ValueText, compiler: Any, **kw: Any) -> str:
    return f"({compiler.process(element.clauses, **kw)} -> {path_literal(element.keys)})"


@compiles(HasInteger, "sqlite")
def _has_integer(element: HasInteger, compiler: Any, **kw: Any) -> str:
    body, path = compiler.process(element.clauses, **kw), path_literal(element.keys)
    between = f"json_extract({body}, {path}) BETWEEN -{_NINES} AND {_NINES}"
    return f"(json_type({body}, {path}) = 'integer' AND {between})"


@compiles(TextFits, "sqlite")
def _text_fits(element: TextFits, compiler: Any, **kw: Any) -> str:
    body, size = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"length(CAST({body} AS BLOB)) <= {size}"


@compiles(Increased, "sqlite")
def _increased(element: Increased, compiler: Any, **kw: Any) -> str:
    body, by = (compiler.process(clause, **kw) for clause in element.clauses)
    path = path_literal(element.keys)
    return f"json_set({body}, {path}, json_extract({body}, {path}) + {by})"
