"""Statements of PostgreSQL: compilation of `sql.elements`, plans, tables and indexes.

An equality is a jsonpath predicate, bound as a parameter: a GIN index over the body serves `body @? $1` at any depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg, PGIdentifierPreparer_psycopg

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
    KeyedBodyFromText,
    KeysFromText,
    ListOf,
    NumberText,
    OtherText,
    PositionIn,
    ReportedVersion,
    TextFits,
    Unwound,
    ValueText,
    WithinLimits,
)
from ...keys import column_of, entry_of
from ..indexed_form import scalar_test
from ..names import ForgottenNames
from ..protocols import DDL, KEYS_CHECK, Placement, StatementCompiler
from .entries import declarations, entries, entry_columns, scalar_tests
from .filters import rendered
from .ordering import PostgresIndexedForm, literal, value_at

_INDEXED_FORM: Final = PostgresIndexedForm()
OLDEST_CITUS: Final = 12
"""The first version that distributes schemas."""


class _Names(ForgottenNames, PGIdentifierPreparer_psycopg):
    """PostgreSQL's."""


_DIALECT: Final[sa.Dialect] = PGDialect_psycopg()  # type: ignore[no-untyped-call]
_DIALECT.identifier_preparer = _Names(_DIALECT)


def table_name(table: sa.Table) -> str:
    """Return the table's name as SQL."""
    return str(_DIALECT.identifier_preparer.format_table(table))


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return _DIALECT.identifier_preparer.quote(name)


def regclass(table: sa.Table) -> str:
    """Return the table as a value for functions of the server."""
    return "CAST('{}' AS REGCLASS)".format(table_name(table).replace("'", "''"))


def _body_text(_: object, body: str) -> str:
    return f"CAST({body} AS TEXT)"


def _body_from_text(_: object, text: str) -> str:
    return f"CAST({text} AS JSONB)"


def _keyed_body(_: object, text: str) -> str:
    return f"(CAST({text} AS JSONB) -> 'body')"


def _digest(body: str) -> str:
    return f"md5(CAST({body} AS TEXT))"


def _collated_test(element: CollatedTest, body: str, keys: str, *parameters: str) -> str:
    path = element.field.path.keys
    columns = value_at(keys, (entry_of(element.key_name, path),))
    test = element.test(parameters, _INDEXED_FORM.widths)
    return scalar_test(_INDEXED_FORM, columns, body, path, test)


def _has_integer(element: HasInteger, body: str) -> str:
    value = value_at(body, element.keys)
    digits = f"CAST({value} AS TEXT) ~ '^-?[0-9]{{1,18}}$'"
    return f"(jsonb_typeof({value}) = 'number' AND {digits})"


def _array_test(element: ArrayTest, seq: str, *parameters: str) -> str:
    tests = element.tests(parameters, PostgresIndexedForm.widths)
    every = (f"({' OR '.join(scalar_tests(n, test))})" for n, test in enumerate(tests))
    return f"{seq} IN (SELECT seq FROM {table_name(element.index)} WHERE {' AND '.join(every)})"


def _is_short(number: str) -> str:
    """Return the test for an integer of fewer than 19 digits: `jsonb` writes no exponent."""
    return f"(length({number}) <= 18 AND strpos({number}, '.') = 0)"


def _unwound(element: Unwound, body: str) -> str:
    value = value_at(body, element.keys)
    other = f"WHEN jsonb_typeof({value}) <> 'null' THEN jsonb_build_array({value})"
    return f"CASE WHEN jsonb_typeof({value}) = 'array' THEN {value} {other} END"


def _within_limits(element: WithinLimits, kind: str, text: str) -> str:
    chosen = element.chosen(f"CAST({text} AS NUMERIC)", text)
    return f"CASE WHEN {kind} = 'number' THEN {chosen} ELSE {text} END"


def _increased(element: Increased, body: str, by: str) -> str:
    path = f"ARRAY[{', '.join(map(literal, element.keys))}]"
    number = f"CAST(CAST({value_at(body, element.keys)} AS TEXT) AS BIGINT)"
    # Citus takes no to_jsonb where rows are in conflict: it is not immutable
    return f"jsonb_set({body}, {path}, CAST(CAST({number} + {by} AS TEXT) AS JSONB))"


def _list_of(element: ListOf) -> str:
    """Render a list in the driver's binary format: in text, psycopg escapes each quotation mark in Python."""
    return f"CAST(%({element.parameter})b AS {'TEXT' if element.texts else 'BIGINT'}[])"


class PostgresCompiler(StatementCompiler):
    """SQLAlchemy's dialect for psycopg, and EXPLAIN."""

    dialect = row_dialect = _DIALECT
    explain = "EXPLAIN (FORMAT JSON) "
    elements = {
        BodyText: _body_text,
        BodyFromText: _body_from_text,
        JsonbText: _body_text,
        JsonbFromText: _body_from_text,
        KeyedBodyFromText: _keyed_body,
        KeysFromText: lambda _, text: (
            f"(jsonb_build_object('of', {_digest(_keyed_body(_, text))}) || (CAST({text} AS JSONB) -> 'keys'))"
        ),
        CollatedPart: lambda part, keys: _INDEXED_FORM.ordering.part(
            keys, (entry_of(part.key_name, part.keys),), part.part
        ),
        CollatedTest: _collated_test,
        BodyMatches: lambda element, body, parameter: rendered(body, element.condition, parameter),
        ArrayTest: _array_test,
        AnyOf: lambda _, column, texts: f"{column} = ANY (CAST({texts} AS TEXT[]))",
        AnyInteger: lambda _, column, numbers: f"{column} = ANY (CAST({numbers} AS BIGINT[]))",
        ListOf: _list_of,
        ValueText: lambda element, body: f"CAST({value_at(body, element.keys)} AS TEXT)",
        Unwound: _unwound,
        Addend: lambda _, kind, text: (
            f"CASE WHEN {kind} = 'number' AND {_is_short(text)} THEN CAST({text} AS BIGINT) END"
        ),
        NumberText: lambda _, kind, text: (
            f"CASE WHEN {kind} = 'number' AND NOT {_is_short(text)} THEN {text} END"
        ),
        OtherText: lambda _, kind, text: (
            f"CASE WHEN {kind} = 'number' AND {_is_short(text)} THEN NULL ELSE {text} END"
        ),
        WithinLimits: _within_limits,
        HasInteger: _has_integer,
        Increased: _increased,
        PositionIn: lambda _, text, part: f"strpos({text}, {part})",
        ReportedVersion: lambda _, version: version,
        TextFits: lambda _, body, size: f"octet_length(CAST({body} AS TEXT)) <= {size}",
    }

    def insert(self, table: sa.Table) -> Any:
        return insert(table)

    def commented(self, sql: str, comment: str) -> str:
        return super().commented(sql, comment.replace("%", "%%"))  # the driver looks for parameters

    def list_parameter(self, texts: Sequence[str] | Sequence[int]) -> list[Any]:
        """Psycopg adapts lists."""
        return list(texts)

    def row(self, id: str, body: str, now: int, ttl: int | None) -> dict[str, Any]:
        """Return the parameters by name."""
        expires = None if ttl is None else now + ttl
        return {"id": id, "body": body, "now": now, "expires": expires, "ttl": ttl}

    def elements_of(self, array: sa.ColumnElement[Any]) -> tuple[sa.FromClause, Any, Any]:
        of = sa.func.jsonb_array_elements(array)
        each = of.table_valued("value", with_ordinality="number", name="each").render_derived()
        return each, each.c.value, each.c.number

    def plan(self, rows: Sequence[Any], table: sa.Table) -> Plan:
        """Read the plan: a tree of steps. The steps of the array guard use separate indexes."""
        root = self.root(rows[0][0][0]["Plan"])
        steps = list(steps_below(root, 0))
        main = [step for _, step in steps_below(root, 0, guard=False)]
        used = [step["Index Name"] for step in main if "Index Name" in step]
        natural = f"{table.name}_seq_key"
        return Plan(
            lines=tuple(_line(depth, step) for depth, step in steps),
            indexes=tuple(_known(name, table) for name in used if name != natural),
            walked=tuple(
                step["Index Name"]
                for step in main
                if "Index Name" in step and "Index Cond" not in step
            ),
            scans=any(_reads_all(step, str(table.name), natural) for _, step in steps),
            sorts=any(step["Node Type"] == "Sort" for step in main),
            rows=max(step["Plan Rows"] for step in main),
        )

    def root(self, plan: Any) -> Any:
        """Return the plan of the table's server."""
        return plan


def steps_below(step: Any, depth: int, *, guard: bool = True) -> Iterator[tuple[int, Any]]:
    """Yield a step of a plan and the steps below, each with a depth."""
    if guard or step.get("Parent Relationship") != "InitPlan":
        yield depth, step
        for below in step.get("Plans", ()):
            yield from steps_below(below, depth + 1, guard=guard)


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


class PostgresDDL(DDL):
    """Tables with JSONB, each with a GIN index over bodies."""

    name_type = sa.Text(collation="C")
    body_type = JSONB()
    has_table = sa.text("SELECT 1 WHERE to_regclass(:reference) IS NOT NULL")
    # the snapshot is older than the lock, unless the transaction created the table: no rename changes a system column
    misses_rows = sa.text(
        "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(:reference) AND attname = 'ctid' "
        "AND age(xmin) > 0 AND current_setting('transaction_isolation') <> 'read committed'"
    )

    def reference(self, table: sa.Table) -> str:
        return table_name(table)

    def create_schema(self, name: str) -> Sequence[str]:
        creating = sa.schema.CreateSchema(name, if_not_exists=True)
        return [str(creating.compile(dialect=_DIALECT))]

    def document_columns(self) -> tuple[sa.Column[int], sa.Column[str]]:
        """Ids compare by code point, as on SQLite."""
        return (
            sa.Column("seq", sa.BigInteger, sa.Identity(), nullable=False, unique=True),
            sa.Column("id", sa.Text(collation="C"), primary_key=True),
        )

    def create_body_index(self, table: sa.Table, physical: str) -> Sequence[str]:
        """Return the statements: a single index serves equality at any depth, in arrays too."""
        gin: dict[str, Any] = {"using": "gin", "ops": {"body": "jsonb_path_ops"}}
        options = {f"postgresql_{name}": value for name, value in gin.items()}
        index = sa.Index(physical, table.c.body, **options)
        return [str(sa.schema.CreateIndex(index).compile(dialect=_DIALECT))]

    def set_keys(self, table: sa.Table, old: Sequence[str], new: Sequence[str]) -> Sequence[str]:
        """The constraint is not validated: it reads no rows, and the rows' keys are written afterwards."""
        altered = f"ALTER TABLE {table_name(table)}"
        before, keys = column_of(old), column_of(new)
        if not keys:
            return [f"{altered} DROP COLUMN {before}"]
        changes = [f"DROP CONSTRAINT {KEYS_CHECK}", f"RENAME COLUMN {before} TO {keys}"]
        is_of_body = f"{keys} ->> 'of' IS NOT DISTINCT FROM {_digest('body')}"
        has_all = f"{keys} ?& ARRAY[{', '.join(map(literal, new))}]"
        check = f"CHECK ({keys} IS NOT NULL AND {is_of_body} AND {has_all}) NOT VALID"
        changes = changes if before else [f"ADD COLUMN {keys} JSONB"]
        return [f"{altered} {each}" for each in (*changes, f"ADD CONSTRAINT {KEYS_CHECK} {check}")]

    def create_array_index(self, table: sa.Table, index: Index) -> Sequence[str]:
        if not index.has_entries:
            return ()
        physical, documents = index.physical, table_name(table)
        stored, function = self._entries(table, physical), self._entries(table, f"{physical}_keep")
        keys, rest, trigger = (quoted(f"{physical}_{each}") for each in ("keys", "rest", "keep"))
        parts = (field if index.unique else field[:-1] for field in entry_columns(index))
        columns = ", ".join(each for field in parts for each in field)
        firsts = [path.keys[:1] for path in index.paths]
        new, old = (", ".join(value_at(f"{row}.body", k) for k in firsts) for row in ("NEW", "OLD"))
        had = f" AND EXISTS ({entries('OLD.body', 'OLD.seq', index)})" if index.sparse else ""
        # the index may be newer than the snapshot of the transaction, which then sees no entry to delete
        unseen = "RAISE EXCEPTION 'the index is newer than the transaction' USING ERRCODE = '40001'"
        body = (
            f"BEGIN IF TG_OP = 'UPDATE' AND ROW({old}) IS NOT DISTINCT FROM ROW({new}) THEN RETURN NULL; END IF; "
            f"IF TG_OP <> 'INSERT' THEN DELETE FROM {stored} WHERE seq = OLD.seq; "
            f"IF NOT FOUND{had} THEN {unseen}; END IF; END IF; "
            f"IF TG_OP <> 'DELETE' THEN INSERT INTO {stored} {entries('NEW.body', 'NEW.seq', index)}; END IF; "
            "RETURN NULL; END"
        )
        creating = f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql"
        event = f"AFTER INSERT OR DELETE OR UPDATE OF body ON {documents}"
        return [
            f"CREATE TABLE {stored} (seq BIGINT NOT NULL, {', '.join(declarations(index))})",
            f"INSERT INTO {stored} {entries('d.body', 'd.seq', index, f'{documents} AS d')}",
            f"CREATE {'UNIQUE ' * index.unique}INDEX {keys} ON {stored} ({columns})",
            f"CREATE INDEX {rest} ON {stored} (seq)",
            f"{creating} SET search_path FROM CURRENT AS {literal(body)}",
            f"CREATE TRIGGER {trigger} {event} FOR EACH ROW EXECUTE FUNCTION {function}()",
        ]

    def drop_array_index(self, table: sa.Table, index: Index) -> Sequence[str]:
        """CASCADE drops the trigger."""
        if not index.has_entries:
            return ()
        function = self._entries(table, f"{index.physical}_keep")
        return [
            f"DROP FUNCTION IF EXISTS {function}() CASCADE",
            f"DROP TABLE IF EXISTS {self._entries(table, index.physical)}",
        ]

    def _entries(self, table: sa.Table, name: str) -> str:
        return table_name(sa.Table(name, sa.MetaData(schema=table.schema)))

    def create_journal(self, table: sa.Table, journal: str, vectors: str) -> Sequence[str]:
        schema = table.schema
        function, noted, stored = (
            table_name(sa.Table(each, sa.MetaData(schema=schema)))
            for each in (f"{journal}_noted", journal, vectors)
        )
        body = (
            "BEGIN IF TG_OP = 'DELETE' THEN "
            f"INSERT INTO {noted} (seq) VALUES (OLD.seq); "
            f"UPDATE {stored} SET vector = NULL, hash = NULL WHERE seq = OLD.seq; "
            "ELSIF TG_OP = 'INSERT' OR OLD.body IS DISTINCT FROM NEW.body THEN "
            f"INSERT INTO {noted} (seq) VALUES (NEW.seq); END IF; RETURN NULL; END"
        )
        trigger = _DIALECT.identifier_preparer.quote(f"{journal}_noted")
        creating = (
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql "
            "SET search_path FROM CURRENT AS"
        )
        event = f"AFTER INSERT OR DELETE OR UPDATE OF body ON {table_name(table)}"
        return [
            f"{creating} $journal$ {body} $journal$",
            f"CREATE TRIGGER {trigger} {event} FOR EACH ROW EXECUTE FUNCTION {function}()",
        ]

    def drop_journal(self, table: sa.Table, journal: str) -> Sequence[str]:
        """CASCADE drops the trigger."""
        function = table_name(sa.Table(f"{journal}_noted", sa.MetaData(schema=table.schema)))
        return [f"DROP FUNCTION IF EXISTS {function}() CASCADE"]


class PostgresPlacement(Placement):
    """Tables on a single server, with or without the extension Citus."""

    probe = (
        "SELECT CASE WHEN EXISTS (SELECT FROM pg_dist_schema WHERE schemaid = oid) THEN 'schema' "
        "WHEN EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass(%(catalogue)s)) "
        "THEN 'collections' END, to_regclass(%(catalogue)s) IS NOT NULL FROM pg_namespace "
        "WHERE nspname = coalesce(CAST(%(schema)s AS TEXT), current_schema())"
    )

    def distributes(self, version: str | None) -> bool:
        return version is not None and int(version.split("-")[0].split(".")[0]) >= OLDEST_CITUS

    def problem(
        self, schema: str | None, version: str | None, found: tuple[str | None, bool] | None
    ) -> str | None:
        sharding = found and found[0]
        if sharding is None:
            return None
        return (
            f"must be {sharding!r}, as it was when {schema or 'the default schema'!r} was created"
        )

    def size(self, table: sa.Table) -> str:
        return f"pg_total_relation_size({regclass(table)})"

    def estimate(self, table: sa.Table) -> str:
        """Return the expression: the number of the last VACUUM or ANALYZE; -1 before the first."""
        rows = "nullif(reltuples, -1)::BIGINT"
        return f"(SELECT {rows} FROM pg_class WHERE oid = {regclass(table)})"
