"""Orders and the indexed form in PostgreSQL: the rank of a value's type, a number, and the beginning of a string.

`jsonb` has a different order, with strings by the database's collation. Numbers as `numeric`, and strings COLLATE "C"
(by code point), have MongoDB's order. A cast stands in a CASE: the planner may run the cast before the guarding
condition.

A row of an index ends at 2,704 bytes: a column holds only the beginning of a string. The columns do not distinguish two
longer strings with the same beginning, or objects. A unique index also has a digest of such values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .... import codec
from ....expressions.path import path_prefixes
from ....query.conditions import Operand, Parameter, Value, prefix_range
from ....query.sort import FALSE, NULL, NUMBER, STRING, TRUE, Key
from ...elements import Keys
from ..indexed_form import IndexedForm, Ordering

BEGINNING: Final = 100
"""Characters of a string that the columns distinguish."""
_PARTS: Final = {
    "rank": (
        "(CASE jsonb_typeof({value}) WHEN 'number' THEN 2 WHEN 'string' THEN 3 WHEN 'object' THEN 4 "
        "WHEN 'array' THEN 5 WHEN 'boolean' THEN CASE WHEN {value} = 'true' THEN 9 ELSE 8 END "
        "ELSE 1 END)"
    ),
    "number": "(CASE WHEN jsonb_typeof({value}) = 'number' THEN ({value})::numeric ELSE 0 END)",
    "text": (
        "((CASE WHEN jsonb_typeof({value}) = 'string' THEN left({value} #>> '{{}}', "
        f"{BEGINNING + 1}) ELSE '' END) COLLATE \"C\")"
    ),
    "digest": (
        "(CASE WHEN jsonb_typeof({value}) IN ('object', 'array') "
        f"OR length({{value}} #>> '{{{{}}}}') > {BEGINNING} "
        "THEN md5(({value})::text) ELSE '' END)"
    ),
}
_CASTS: Final = {"rank": "INTEGER", "number": "NUMERIC", "text": "TEXT"}


class PostgresOrdering(Ordering):
    """Rank, number, and the beginning of a string."""

    parts = ("rank", "number", "text")

    def index_parts(self, *, unique: bool) -> Sequence[str]:
        return (*self.parts, "digest") if unique else self.parts

    def values(self, key: Key) -> Sequence[Any]:
        rank, value = key
        number = codec.spell(value) if rank == NUMBER else "0"
        return rank, number, _beginning(value) if rank == STRING else ""

    def varies(self, key: Key) -> Sequence[bool]:
        return True, key[0] == NUMBER, key[0] == STRING

    def is_truncated(self, key: Key) -> bool:
        rank, value = key
        return rank == STRING and len(value) > BEGINNING

    def part(self, body: str, keys: Keys, name: str) -> str:
        return _PARTS[name].format(value=value_at(body, keys))

    def parameter(self, parameter: str, name: str) -> str:
        return f"CAST({parameter} AS {_CASTS[name]})"


class PostgresIndexedForm(IndexedForm[str]):
    """The indexed form; the columns are computed from the SQL of the value.

    Every comparison of a column names all columns before, too: a scan of an index continues only past equal columns. A
    string is compared by the column and, beyond the beginning, as a whole.
    """

    ordering = PostgresOrdering()
    widths = {"null": 0, "string": 2, "strings": 2, "prefix regex": 3}
    constant = {
        "number": ("rank",),
        "string": ("rank", "number"),
        "prefix regex": ("rank", "number"),
        "plain regex": ("rank", "number"),
    }
    as_they_are = frozenset()
    ordered = frozenset({"number"})

    def values(self, value: Value) -> Sequence[Any]:
        """Return the beginning and the whole of a string. Of a prefix, return the beginning, the first string with the
        prefix, and the first string after all such strings.
        """
        match value.kind:
            case "null":
                return ()
            case "boolean":
                return (str(TRUE if value.value else FALSE),)
            case "booleans":
                return ([str(TRUE if each else FALSE) for each in value.value],)
            case "numbers":
                return ([codec.spell(each) for each in value.value],)
            case "strings":
                return [_beginning(each) for each in value.value], value.value
            case "string":
                return _beginning(value.value), value.value
            case "prefix regex":
                first, past = prefix_range(value)
                return _beginning(first), first, past
        return (value.text,)

    def columns(self, body: str, keys: Keys) -> str:
        return value_at(body, keys)

    def compared(self, columns: str, sign: str, given: Operand) -> str:
        assert isinstance(given, Parameter)
        rank, parameter = _part(columns, "rank"), given.sql[0]
        if given.kind == "boolean" and sign == "=":
            is_equal = f"{rank} = CAST({parameter} AS INTEGER)"
            return f"({is_equal} AND {_no_number(columns)} AND {_no_string(columns)})"
        if given.kind == "boolean":
            return f"({rank} {sign} CAST({parameter} AS INTEGER) AND {rank} >= {FALSE})"
        if given.kind == "number":
            number = f"{_part(columns, 'number')} {sign} CAST({parameter} AS NUMERIC)"
            compared = f"{rank} = {NUMBER} AND {number}"
            return f"({compared} AND {_no_string(columns)})" if sign == "=" else f"({compared})"
        near = sign if sign in {"=", ">=", "<="} else f"{sign}="
        beginning = f"{_part(columns, 'text')} {near} CAST({parameter} AS TEXT)"
        return (
            f"({rank} = {STRING} AND {_no_number(columns)} AND {beginning} "
            f"AND {_string(columns)} {sign} CAST({given.sql[1]} AS TEXT))"
        )

    def begins(self, columns: str, given: Operand) -> str:
        assert isinstance(given, Parameter)
        rank, text, string = _part(columns, "rank"), _part(columns, "text"), _string(columns)
        near, first, past = (f"CAST({parameter} AS TEXT)" for parameter in given.sql)
        return (
            f"({rank} = {STRING} AND {_no_number(columns)} AND {text} >= {near} AND {text} < {past} "
            f"AND {string} >= {first} AND {string} < {past})"
        )

    def among(self, columns: str, given: Operand) -> str:
        assert isinstance(given, Parameter)
        rank, number, text = (_part(columns, name) for name in self.ordering.parts)
        match given.kind:
            case "booleans":
                return f"{rank} = ANY (CAST({given.sql[0]} AS INTEGER[]))"
            case "numbers":
                one_of = f"{number} = ANY (CAST({given.sql[0]} AS NUMERIC[]))"
                return f"({rank} = {NUMBER} AND {one_of})"
        return (
            f"({rank} = {STRING} AND {text} = ANY (CAST({given.sql[0]} AS TEXT[])) "
            f"AND {columns} #>> '{{}}' = ANY (CAST({given.sql[1]} AS TEXT[])))"
        )

    def null(self, columns: str, body: str, keys: Keys) -> Iterator[str]:
        yield f"{_part(columns, 'rank')} = {NULL}"
        yield _no_number(columns)
        yield _no_string(columns)
        for prefix in path_prefixes(keys)[:-1]:
            yield f"({self.array_at(body, prefix)} IS NOT TRUE)"

    def exists(self, body: str, keys: Keys) -> str:
        return f"{value_at(body, keys)} IS NOT NULL"

    def types(self, body: str, keys: Keys, names: Sequence[str]) -> Iterable[str]:
        listed = ", ".join("'boolean'" if name == "bool" else f"'{name}'" for name in names)
        return [f"{self.type_at(body, keys)} IN ({listed})"]

    def literal(self, value: Any) -> str:
        return literal(value)

    def type_at(self, body: str, keys: Keys) -> str:
        return f"jsonb_typeof({value_at(body, keys)})"

    def array_at(self, body: str, keys: Keys, *, null_safe: bool = False) -> str:
        sign = "IS NOT DISTINCT FROM" if null_safe else "="
        return f"({self.type_at(body, keys)} {sign} 'array')"


def value_at(body: str, keys: Keys) -> str:
    """Return the JSON at the end of keys of objects: `->` with text opens no array."""
    return f"({' -> '.join([body, *map(literal, keys)])})"


def literal(text: str) -> str:
    """Return an SQL literal, without a percent sign: the driver would take the sign for a parameter."""
    quoted = text.replace("\\", "\\\\").replace("'", "''").replace("%", "\\x25")
    return f"E'{quoted}'"


def _part(value: str, name: str) -> str:
    return _PARTS[name].format(value=value)


def _no_number(value: str) -> str:
    return f"{_part(value, 'number')} = 0"


def _no_string(value: str) -> str:
    return f"{_part(value, 'text')} = ''"


def _string(value: str) -> str:
    return f"({value} #>> '{{}}') COLLATE \"C\""


def _beginning(text: str) -> str:
    return text[: BEGINNING + 1]
