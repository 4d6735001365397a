"""Orders and the indexed form in SQLite: the rank of a value's type, then the value.

SQLite compares numbers exactly and strings by code point. Only objects cannot be ordered: the JSON text does not
reflect the order. `json_extract` alone would take true for 1, an array for JSON text, and any string for more than any
number: hence the rank. Under a collation, the value has keys in place of strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .... import codec
from ....expressions.path import path_prefixes
from ....query.conditions import (
    Kind,
    Operand,
    Parameter,
    Test,
    Value,
    prefix_range,
)
from ....query.sort import FALSE, NULL, NUMBER, OBJECT, STRING, TRUE, Key
from ...elements import Keys
from ..indexed_form import IndexedForm, Ordering, scalar_test
from .filters import KEY, KEYED_JSON, TYPES, packed, path_literal

_RANK: Final = (
    "CASE json_type({body}, {path}) WHEN 'integer' THEN 2 WHEN 'real' THEN 2 WHEN 'text' THEN 3 "
    "WHEN 'object' THEN 4 WHEN 'array' THEN 5 WHEN 'false' THEN 8 WHEN 'true' THEN 9 ELSE 1 END"
)
_VALUE: Final = "ifnull(json_extract({body}, {path}), '')"
_KEYED_VALUE: Final = (
    f"CASE json_type({{body}}, {{path}}) WHEN 'text' THEN {KEY}({{name}} || json_extract({{body}}, {{path}})) "
    f"WHEN 'object' THEN {KEYED_JSON}({{name}} || json_extract({{body}}, {{path}})) "
    f"WHEN 'array' THEN {KEYED_JSON}({{name}} || json_extract({{body}}, {{path}})) "
    "ELSE ifnull(json_extract({body}, {path}), '') END"
)
"""A value of an index under a collation: functions in Python make the keys. Each takes a single text, see `filters`."""
_RANKS: Final[dict[Kind, int]] = {
    "number": NUMBER,
    "numbers": NUMBER,
    "string": STRING,
    "strings": STRING,
}


class SqliteOrdering(Ordering):
    """Rank and value."""

    parts = ("rank", "value")

    def can_order(self, keys: Keys) -> bool:
        """Return whether no key holds a double quote: SQLite 3.40 cannot address such a key."""
        return '"' not in "".join(keys)

    def values(self, key: Key) -> Sequence[Any]:
        rank, value = key
        if rank in {NUMBER, STRING}:
            return rank, value
        return rank, rank - FALSE if rank > OBJECT else ""

    def varies(self, key: Key) -> Sequence[bool]:
        return True, key[0] in {NUMBER, STRING}

    def part(self, body: str, keys: Keys, name: str) -> str:
        return (_RANK if name == "rank" else _VALUE).format(body=body, path=path_literal(keys))

    def collated_part(self, body: str, keys: Keys, name: str, key_name: str) -> str:
        """Render a `CollatedPart`."""
        return self.part(body, keys, name) if name == "rank" else _keyed(body, keys, key_name)


class SqliteIndexedForm(IndexedForm[tuple[str, str]]):
    """The indexed form; the columns are rank and value."""

    ordering = SqliteOrdering()
    widths = {"null": 0, "boolean": 2, "prefix regex": 2}
    constant = {"number": ("rank",), "string": ("rank",), "prefix regex": ("rank",)}
    as_they_are = frozenset({"number", "string"})
    ordered = frozenset({"number", "string", "prefix regex"})

    def values(self, value: Value) -> Sequence[Any]:
        """Return rank and number of a boolean. Of a prefix, return the first string with the prefix, and the first
        string after all such strings.
        """
        match value.kind:
            case "null":
                return ()
            case "boolean":
                return (TRUE if value.value else FALSE, int(value.value))
            case "booleans":
                return (codec.spell([TRUE if each else FALSE for each in value.value]),)
            case "numbers" | "strings":
                return (value.text,)
            case "prefix regex":
                return prefix_range(value)
        return (value.value,)

    def columns(self, body: str, keys: Keys) -> tuple[str, str]:
        path = path_literal(keys)
        return _RANK.format(body=body, path=path), _VALUE.format(body=body, path=path)

    def compared(self, columns: tuple[str, str], sign: str, given: Operand) -> str:
        assert isinstance(given, Parameter)
        (rank, value), parameter = columns, given.sql[0]
        if given.kind != "boolean":
            return f"({rank} = {_RANKS[given.kind]} AND {value} {sign} {parameter})"
        if sign == "=":
            return f"({rank} = {parameter} AND {value} = {given.sql[1]})"
        return f"({rank} {sign} {parameter} AND {rank} >= {FALSE})"

    def among(self, columns: tuple[str, str], given: Operand) -> str:
        assert isinstance(given, Parameter)
        (rank, value), listed = columns, f"(SELECT value FROM json_each({given.sql[0]}))"
        if given.kind == "booleans":
            return f"{rank} IN {listed}"
        return f"({rank} = {_RANKS[given.kind]} AND {value} IN {listed})"

    def begins(self, columns: tuple[str, str], given: Operand) -> str:
        assert isinstance(given, Parameter)
        (rank, value), (first, past) = columns, given.sql
        return f"({rank} = {STRING} AND {value} >= {first} AND {value} < {past})"

    def null(self, columns: tuple[str, str], body: str, keys: Keys) -> Iterator[str]:
        rank, value = columns
        yield f"{rank} = {NULL} AND {value} = ''"
        for prefix in path_prefixes(keys)[:-1]:
            yield f"{self.type_at(body, prefix)} IS NOT 'array'"

    def collated_test(self, body: str, keys: Keys, test: Test, key_name: str) -> str:
        """Render a `CollatedTest`; the slots of the test hold the SQL of the parameters."""
        columns = self.columns(body, keys)[0], _keyed(body, keys, key_name)
        return scalar_test(self, columns, body, keys, test)

    def exists(self, body: str, keys: Keys) -> str:
        return f"{self.type_at(body, keys)} IS NOT NULL"

    def types(self, body: str, keys: Keys, names: Sequence[str]) -> Iterable[str]:
        value = f"json_extract({body}, {path_literal(keys)})"
        return (TYPES[name].format(T=self.type_at(body, keys), V=value) for name in names)

    def literal(self, value: Any) -> str:
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return codec.spell(value)

    def type_at(self, body: str, keys: Keys) -> str:
        return f"json_type({body}, {path_literal(keys)})"

    def array_at(self, body: str, keys: Keys, *, null_safe: bool = False) -> str:
        return f"{self.type_at(body, keys)} {'IS' if null_safe else '='} 'array'"


def _keyed(body: str, keys: Keys, key_name: str) -> str:
    name = SqliteIndexedForm().literal(packed(key_name))
    return _KEYED_VALUE.format(body=body, path=path_literal(keys), name=name)
