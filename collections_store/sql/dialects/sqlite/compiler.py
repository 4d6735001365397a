"""Statements of SQLite: compilation of `sql.elements`, plans, tables and indexes.

A path is an SQL literal: no index serves a path that is a parameter. Statements are compiled with the paramstyle
`named`: with `qmark` SQLAlchemy searches the finished SQL for `%(name)s`, and a hostile key could hold such a text.

SQLite has no index of the values in arrays. A second table replaces the index, with a row for each scalar that a path
reaches, through any arrays. Triggers maintain the table, because the user's own SQL writes bodies too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler, SQLiteIdentifierPreparer
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from .... import codec
from ....query.explanation import Plan
from ....query.index import Index
from ...elements import (
    Addend,
    AnyInteger,
    AnyOf,
    ArrayTest,
    BodyFromText,
    BodyMatches,
    BodyText,
    CollatedPart,
    CollatedTest,
    HasInteger,
    Increased,
    JsonbFromText,
    JsonbText,
    Keys,
    NumberText,
    OtherText,
    PositionIn,
    ReportedVersion,
    TextFits,
    Unwound,
    ValueText,
    WithinLimits,
)
from ...entries import column_names
from ..names import ForgottenNames
from ..protocols import DDL, Placement, Rows, StatementCompiler
from .entries import SCALAR_TYPES, entries, entry_columns, spelled
from .filters import path_literal, rendered
from .ordering import SqliteIndexedForm

_INDEXED_FORM: Final = SqliteIndexedForm()
JSONB_SINCE: Final = (3, 45)
_REPORT_VERSION: Final = "collections_store_report_version"
"""The SQL function that appends a number to a list, and returns null. RETURNING would take a twentieth of a `put`."""
_LISTS: Final = codec.Codec(max_bytes=2**40)
_NINES: Final = 10**18 - 1
_EVENTS: Final = ("insert", "update", "delete")
_SHORT: Final = 9
"""Characters of an addend: the sum of 2**33 rows, more than a file holds, has 64 bits."""
_USED: Final = re.compile(
    r"USING (?:COVERING )?INDEX (\S+)|^SEARCH (\S+\$i\d+) USING PRIMARY KEY|^SCAN (\S+\$i\d+) VIRTUAL TABLE"
)


class _Compiler(SQLiteCompiler):
    """Compiles the hints of `SqliteCompiler.read_by`."""

    def get_from_hint_text(self, table: Any, text: str | None) -> str | None:
        return text


class _Names(ForgottenNames, SQLiteIdentifierPreparer):
    """SQLite's."""


_DIALECT: Final = SQLiteDialect_pysqlite(paramstyle="named")
_DIALECT.statement_compiler = _Compiler
_DIALECT.supports_native_boolean = True  # else it writes `(…) = 1`, which no index serves
_ROW_DIALECT: Final = SQLiteDialect_pysqlite(paramstyle="qmark")
"""For statements without paths. The driver binds a parameter by its position in half the time."""
for _each in (_DIALECT, _ROW_DIALECT):
    _each.identifier_preparer = _Names(_each)


def _array_test(element: ArrayTest, seq: str, *parameters: str) -> str:
    tests = element.tests(parameters, _INDEXED_FORM.widths)
    names = column_names(_INDEXED_FORM.ordering.parts, len(tests))
    every = [
        f"({' OR '.join(_INDEXED_FORM.scalar_tests((rank, value), test))})"
        for (rank, value), test in zip(names, tests, strict=True)
    ]
    if element.wildcard:
        path = _INDEXED_FORM.literal(spelled(element.fields[0].path.keys))
        every.insert(0, f"path = {path}")
    return f"{seq} IN (SELECT seq FROM {element.index.name} WHERE {' AND '.join(every)})"


def _has_integer(element: HasInteger, body: str) -> str:
    path = path_literal(element.keys)
    between = f"json_extract({body}, {path}) BETWEEN -{_NINES} AND {_NINES}"
    return f"(json_type({body}, {path}) = 'integer' AND {between})"


def _unwound(element: Unwound, body: str) -> str:
    path = path_literal(element.keys)
    value = f"{body} -> {path}"
    other = f"WHEN 'null' THEN NULL ELSE '[' || ({value}) || ']'"
    return f"CASE json_type({body}, {path}) WHEN 'array' THEN {value} {other} END"


def _within_limits(element: WithinLimits, kind: str, text: str) -> str:
    chosen = element.chosen(f"CAST({text} AS REAL)", text)
    return f"CASE WHEN {kind} IN ('integer', 'real') THEN {chosen} ELSE {text} END"


def _increased(element: Increased, body: str, by: str) -> str:
    path = path_literal(element.keys)
    return f"json_set({body}, {path}, json_extract({body}, {path}) + {by})"


class SqliteCompiler(StatementCompiler):
    """SQLite's dialect of SQLAlchemy, and EXPLAIN QUERY PLAN."""

    dialect, row_dialect = _DIALECT, _ROW_DIALECT
    explain = "EXPLAIN QUERY PLAN "
    elements = {
        BodyText: lambda _, body: body,
        BodyFromText: lambda _, text: text,
        JsonbText: lambda _, body: f"json({body})",
        JsonbFromText: lambda _, text: f"jsonb({text})",
        BodyMatches: lambda element, body, *parameters: rendered(
            body, element.condition, iter(parameters), is_text=not element.is_jsonb
        ),
        AnyOf: lambda _, column, texts: f"{column} IN (SELECT value FROM json_each({texts}))",
        AnyInteger: lambda _, column, numbers: (
            f"{column} IN (SELECT value FROM json_each({numbers}))"
        ),
        ArrayTest: _array_test,
        CollatedPart: lambda part, body: _INDEXED_FORM.ordering.collated_part(
            body, part.keys, part.part, part.key_name
        ),
        CollatedTest: lambda indexed, body, _, *parameters: _INDEXED_FORM.collated_test(
            body,
            indexed.field.path.keys,
            indexed.test(parameters, _INDEXED_FORM.widths),
            indexed.key_name,
        ),
        ValueText: lambda element, body: f"({body} -> {path_literal(element.keys)})",
        Unwound: _unwound,
        Addend: lambda _, kind, text: (
            f"CASE WHEN {kind} = 'integer' AND length({text}) <= {_SHORT} THEN CAST({text} AS INTEGER) END"
        ),
        NumberText: lambda _, kind, text: (
            f"CASE {kind} WHEN 'real' THEN {text} WHEN 'integer' THEN "
            f"CASE WHEN length({text}) > {_SHORT} THEN {text} END END"
        ),
        OtherText: lambda _, kind, text: (
            f"CASE WHEN {kind} = 'integer' AND length({text}) <= {_SHORT} THEN NULL ELSE {text} END"
        ),
        WithinLimits: _within_limits,
        HasInteger: _has_integer,
        Increased: _increased,
        PositionIn: lambda _, text, part: f"instr({text}, {part})",
        TextFits: lambda _, body, size: f"length(CAST({body} AS BLOB)) <= {size}",
        ReportedVersion: lambda _, version: f"coalesce({_REPORT_VERSION}({version}), {version})",
    }

    def insert(self, table: sa.Table) -> Any:
        return insert(table)

    def list_parameter(self, texts: Sequence[str] | Sequence[int]) -> str:
        """Return the list as JSON: SQLite limits the number of parameters."""
        return _LISTS.encode(list(texts))

    def row(self, id: str, body: str, now: int, ttl: int | None) -> tuple[Any, ...]:
        """Return the values of the columns, in their order: the times of the first write, the last write and the end."""
        return id, body, now, now, None if ttl is None else now + ttl, ttl

    def elements_of(self, array: sa.ColumnElement[Any]) -> tuple[sa.FromClause, Any, Any]:
        """Return the elements as text: `json_each.value` rounds numbers."""
        each = sa.func.json_each(array).table_valued("key", name="each")
        return each, array.op("->")(each.c.key), each.c.key

    def reported_versions(self, connection: Any) -> list[int] | None:
        """Return a new list. Its `append` is a function of SQL: no Python code runs, which a signal could meet."""
        versions: list[int] = []
        connection.create_function(_REPORT_VERSION, 1, versions.append)
        return versions

    def read_by(self, rows: Rows, table: sa.FromClause, index: str | None) -> Rows:
        if index == "$id":
            index = f"sqlite_autoindex_{table.description}_1"
        quote = _DIALECT.identifier_preparer.quote
        hint = "NOT INDEXED" if index is None else f"INDEXED BY {quote(index)}"
        if isinstance(rows, sa.Delete):
            return rows.with_hint(hint)
        return rows.with_hint(table, hint)

    def plan(self, rows: Sequence[Any], table: sa.Table) -> Plan:
        """Read the plan: a line of text for each step."""
        lines = tuple(row[3] for row in rows)
        found = (match for line in lines for match in _USED.finditer(line))
        indexes = tuple(_index_name(match[1] or match[2] or match[3]) for match in found)
        scanned = (line for line in lines if line.startswith("SCAN "))
        walked = tuple(
            match[1] for line in scanned for match in _USED.finditer(line) if match[1] is not None
        )
        scans = any(line == f"SCAN {table.name}" for line in lines)
        sorts = "USE TEMP B-TREE FOR ORDER BY" in lines
        return Plan(lines, indexes, walked, scans, sorts)


def _index_name(name: str) -> str:
    if name.startswith("sqlite_autoindex"):
        return "$id"
    return "$expires_at" if name.endswith("$x") else name


class SqliteDDL(DDL):
    """Rowid tables, and triggers for indexes of arrays."""

    serial_type = sa.Integer()
    serial_options = MappingProxyType({"sqlite_autoincrement": True})
    body_type = sa.Text()
    """A column of text also holds a BLOB of JSONB, unconverted."""
    has_table = sa.text("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :reference")
    jsonb_probe = "SELECT sqlite_version()"
    """Of the library that is loaded, which may be the caller's."""

    def reference(self, table: sa.Table) -> str:
        return str(table.name)

    def document_columns(self) -> tuple[sa.Column[int], sa.Column[str]]:
        """The rowid is the natural order."""
        return (
            sa.Column("seq", sa.Integer, primary_key=True),
            sa.Column("id", sa.Text, nullable=False, unique=True),
        )

    def jsonb_problem(self, version: str) -> str | None:
        if tuple(map(int, version.split("."))) >= JSONB_SINCE:
            return None
        return f"SQLite {version} has no JSONB: it takes 3.45 or newer"

    def create_array_index(self, table: sa.Table, index: Index) -> Sequence[str]:
        """Create the table `physical`, fill it, and create its triggers."""
        name, physical = self.reference(table), index.physical
        if index.has_entries or index.is_wildcard:
            return self._create_entries(name, index)
        keys = index.paths[0].keys
        filled = _values(f"{name}.body", f"{name}.seq", keys, (name,))
        added = f"INSERT OR IGNORE INTO {physical} {_values('NEW.body', 'NEW.seq', keys)};"
        gone = _values("OLD.body", "OLD.seq", keys)
        # with (rank, value, seq) IN (...) SQLite searches by the rank alone, which is most of the table
        removed = (
            f"DELETE FROM {physical} WHERE rank IN (2, 3, 8, 9) AND value IN (WITH gone(rank, value, seq) AS "
            f"({gone}) SELECT value FROM gone) AND seq = OLD.seq;"
        )
        changed = f"AFTER UPDATE OF body ON {name} WHEN OLD.body IS NOT NEW.body"
        triggers = {
            "insert": (f"AFTER INSERT ON {name}", added),
            "update": (changed, f"{removed} {added}"),
            "delete": (f"AFTER DELETE ON {name}", removed),
        }
        columns = "rank INTEGER NOT NULL, value NOT NULL, seq INTEGER NOT NULL"
        return [
            f"CREATE TABLE {physical} ({columns}, PRIMARY KEY (rank, value, seq)) WITHOUT ROWID",
            f"INSERT OR IGNORE INTO {physical} {filled}",
            *_triggers(physical, triggers),
        ]

    def create_journal(self, table: sa.Table, journal: str, vectors: str) -> Sequence[str]:
        name = self.reference(table)
        noted = f'INSERT INTO "{journal}" (seq) VALUES ({{0}}.seq);'
        erased = f'UPDATE "{vectors}" SET vector = NULL, hash = NULL WHERE seq = OLD.seq;'
        triggers = {
            "insert": (f"AFTER INSERT ON {name}", noted.format("NEW")),
            "update": (
                f"AFTER UPDATE OF body ON {name} WHEN OLD.body IS NOT NEW.body",
                noted.format("NEW"),
            ),
            "delete": (f"AFTER DELETE ON {name}", f"{noted.format('OLD')} {erased}"),
        }
        return [
            f'CREATE TRIGGER "{journal}_{event}" {when} BEGIN {then} END'
            for event, (when, then) in triggers.items()
        ]

    def drop_journal(self, table: sa.Table, journal: str) -> Sequence[str]:
        return [f'DROP TRIGGER IF EXISTS "{journal}_{event}"' for event in _EVENTS]

    def drop_array_index(self, table: sa.Table, index: Index) -> Sequence[str]:
        physical = index.physical
        triggers = (f"DROP TRIGGER IF EXISTS {physical}_{event}" for event in _EVENTS)
        return [*triggers, f"DROP TABLE IF EXISTS {physical}"]

    def _create_entries(self, name: str, index: Index) -> Sequence[str]:
        physical, unique = index.physical, "UNIQUE " * index.unique
        names = [each for field in entry_columns(index) for each in field]
        declared, columns = ", ".join(f"{each} NOT NULL" for each in names), ", ".join(names)
        added = f"INSERT INTO {physical} {entries('NEW.body', 'NEW.seq', index)};"
        removed = f"DELETE FROM {physical} WHERE seq = OLD.seq;"
        firsts = dict.fromkeys(path_literal(path.keys[:1]) for path in index.paths)
        differ = " OR ".join(f"(OLD.body -> {p}) IS NOT (NEW.body -> {p})" for p in firsts)
        triggers = {
            "insert": (f"AFTER INSERT ON {name}", added),
            "update": (f"AFTER UPDATE OF body ON {name} WHEN {differ}", f"{removed} {added}"),
            "delete": (f"AFTER DELETE ON {name}", removed),
        }
        key = f"seq INTEGER NOT NULL, {declared}, PRIMARY KEY (seq, {columns})"
        return [
            f"CREATE TABLE {physical} ({key}) WITHOUT ROWID",
            f"INSERT INTO {physical} {entries(f'{name}.body', f'{name}.seq', index, name)}",
            f"CREATE {unique}INDEX {physical}_keys ON {physical} ({columns})",
            *_triggers(physical, triggers),
        ]


def _triggers(physical: str, triggers: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield the statements that create triggers, of the event and the statements of each."""
    for event, (when, then) in triggers.items():
        yield f"CREATE TRIGGER {physical}_{event} {when} BEGIN {then} END"


class ReachedValues(NamedTuple):
    """Values reached by a path: the tables to read from, the conditions, and type and value of each."""

    tables: tuple[str, ...]
    conditions: tuple[str, ...]
    type: str
    value: str

    def select(self, seq: str) -> str:
        """Return the SELECT of rank, value and `seq`."""
        read = f" FROM {', '.join(self.tables)}" if self.tables else ""
        conditions = " AND ".join((*self.conditions, f"{self.type} IN {SCALAR_TYPES}"))
        ranks = "WHEN 'text' THEN 3 WHEN 'false' THEN 8 WHEN 'true' THEN 9 ELSE 2"
        columns = f"CASE {self.type} {ranks} END, {self.value}, {seq}"
        return f"SELECT {columns}{read} WHERE {conditions}"


def _values(body: str, seq: str, keys: Keys, tables: tuple[str, ...] = ()) -> str:
    """Return the SELECT of rank, value and `seq` of all scalars at a path."""
    aliases = (f"e{number}" for number in count(1))
    every = sources(body, (), keys, aliases, tables)
    return " UNION ".join(source.select(seq) for source in every)


def sources(
    body: str,
    conditions: tuple[str, ...],
    keys: Keys,
    aliases: Iterator[str],
    tables: tuple[str, ...],
) -> Iterator[ReachedValues]:
    """Yield the value at the path, the elements of an array at the path, and values behind arrays before the end of the
    path.
    """
    path, element = path_literal(keys), next(aliases)
    yield ReachedValues(
        tables, conditions, f"json_type({body}, {path})", f"json_extract({body}, {path})"
    )
    inside = (*conditions, f"json_type({body}, {path}) = 'array'")
    elements = (*tables, f"json_each({body}, {path}) AS {element}")
    yield ReachedValues(elements, inside, f"{element}.type", f"{element}.value")
    for depth in range(1, len(keys)):
        prefix, element = path_literal(keys[:depth]), next(aliases)
        opened = (f"json_type({body}, {prefix}) = 'array'", f"{element}.type = 'object'")
        elements = (*tables, f"json_each({body}, {prefix}) AS {element}")
        inside = (*conditions, *opened)
        yield from sources(f"{element}.value", inside, keys[depth:], aliases, elements)


class SqlitePlacement(Placement):
    """Tables in the database's single file."""

    reads_for_size = True

    def size(self, table: sa.Table) -> str:
        name = _DIALECT.identifier_preparer.format_table(table)
        return f"(SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM {name})"
