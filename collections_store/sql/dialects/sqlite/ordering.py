"""Orders and indexed tests in SQLite's words: the rank of a value's type, then the value.

SQLite compares numbers exactly and text by code point, so that only objects, whose text says nothing
of their order, are rough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from .... import codec
from ....query.conditions import (
    Compare,
    Equals,
    Exists,
    HasType,
    Kind,
    Matches,
    OneOf,
    Operand,
    Parameter,
    Test,
    Value,
    prefix_range,
)
from ....query.path import path_prefixes
from ....query.shapes import test_with_sql
from ....query.sort import FALSE, NULL, NUMBER, OBJECT, STRING, TRUE, Key
from .filters import TYPES, path_literal

SORT_PARTS: Final = ("rank", "value")
INDEXES_NAME_SEQ: Final = False
"""The place in natural order ends every row of an index anyway."""
_RANK: Final = (
    "CASE json_type({body}, {path}) WHEN 'integer' THEN 2 WHEN 'real' THEN 2 WHEN 'text' THEN 3 "
    "WHEN 'object' THEN 4 WHEN 'array' THEN 5 WHEN 'false' THEN 8 WHEN 'true' THEN 9 ELSE 1 END"
)
_VALUE: Final = "ifnull(json_extract({body}, {path}), '')"
_RANKS: Final[dict[Kind, int]] = {
    "null": NULL,
    "number": NUMBER,
    "numbers": NUMBER,
    "string": STRING,
    "strings": STRING,
}
_SIGNS: Final = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def can_order(keys: tuple[str, ...]) -> bool:
    """SQLite 3.40 cannot address a key that holds a double quote."""
    return not any('"' in key for key in keys)


def index_parts(*, unique: bool) -> Sequence[str]:  # noqa: ARG001
    """Return the columns of a field in an index."""
    return SORT_PARTS


def sort_values(key: Key) -> Sequence[Any]:
    """Return rank and value."""
    rank, value = key
    if rank in {NUMBER, STRING}:
        return rank, value
    return rank, rank - FALSE if rank > OBJECT else ""


def sort_varies(key: Key) -> Sequence[bool]:
    """The value of a number and of a text varies, that of null and of a boolean does not."""
    return True, key[0] in {NUMBER, STRING}


def is_rough(key: Key) -> bool:
    """Objects, and arrays within arrays."""
    return isinstance(key[1], dict | list)


def is_cut(key: Key) -> bool:  # noqa: ARG001
    """Texts are compared as a whole."""
    return False


def part(body: str, keys: tuple[str, ...], name: str) -> str:
    """Spell a `SortPart`."""
    path = path_literal(keys)
    return (_RANK if name == "rank" else _VALUE).format(body=body, path=path)


def array_at(body: str, keys: tuple[str, ...], *, apart: bool = False) -> str:
    """Spell `ArrayAt`."""
    return f"{type_at(body, keys)} {'IS' if apart else '='} 'array'"


def type_at(body: str, keys: tuple[str, ...]) -> str:
    """Spell `TypeAt`."""
    return f"json_type({body}, {path_literal(keys)})"


# -- tests that an index serves ------------------------------------------------------------------


def plain_width(kind: Kind) -> int:
    """Return how many parameters a value takes: a boolean comes as its rank and as a number, a prefix
    as the first text that has it and the first that is past it.
    """
    return {"null": 0, "boolean": 2, "prefix regex": 2}.get(kind, 1)


def pinned(test: Test) -> Sequence[str]:
    """Return the parts in which all values are alike that pass a test of scalars."""
    match test:
        case Equals():
            return SORT_PARTS
        case Compare(_, given) if given.kind != "boolean":
            return ("rank",)
        case Matches():
            return ("rank",)
    return ()


def plain_values(value: Value) -> Sequence[Any]:
    """Return the parameters of a value."""
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


def plain_test(body: str, keys: tuple[str, ...], test: Test) -> str:
    """Spell a `PlainTest`; the slots of the test hold its words."""
    return f"({' OR '.join(_plain(body, keys, test))})"


def partial_test(body: str, keys: tuple[str, ...], test: Test) -> str:
    """Spell a `PartialTest` without its arrays."""
    return plain_test(
        body, keys, test_with_sql(test, lambda v: tuple(map(literal, plain_values(v))))
    )


def test_of(rank: str, value: str, test: Test) -> str:
    """Spell a test of scalars over two columns; the slots of the test hold its words."""
    match test:
        case Equals(Parameter(kind="boolean", sql=(ranked, whole))):
            return f"({rank} = {ranked} AND {value} = {whole})"
        case Equals(given):
            return _compared(rank, value, "=", given)
        case Compare(operator, Parameter(kind="boolean") as slot):
            return f"({_compared(rank, value, _SIGNS[operator], slot)} AND {rank} >= {FALSE})"
        case Compare(operator, given):
            return _compared(rank, value, _SIGNS[operator], given)
        case Matches(Parameter(sql=(first, past))):
            return f"({rank} = {STRING} AND {value} >= {first} AND {value} < {past})"
        case OneOf(lists):
            return f"({' OR '.join(_compared(rank, value, 'IN', given) for given in lists)})"
    raise AssertionError(test)


def literal(value: Any) -> str:
    """Return an SQL literal of a text or a number."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else codec.spell(value)


def _plain(body: str, keys: tuple[str, ...], test: Test) -> Iterator[str]:
    path = path_literal(keys)
    rank, value = _RANK.format(body=body, path=path), _VALUE.format(body=body, path=path)
    null = f"{rank} = {NULL} AND {value} = ''"
    none = f"({' AND '.join([null, *_not_opened(body, keys)])})"
    match test:
        case Equals(Parameter(kind="null")):
            yield none
        case OneOf(lists):
            yield from (
                none if g.kind == "null" else _compared(rank, value, "IN", g) for g in lists
            )
        case Exists():
            yield f"json_type({body}, {path}) IS NOT NULL"
        case HasType(types):
            T, V = f"json_type({body}, {path})", f"json_extract({body}, {path})"  # noqa: N806
            yield from (TYPES[name].format(T=T, V=V) for name in types)
        case _:
            yield test_of(rank, value, test)


def _not_opened(body: str, keys: tuple[str, ...]) -> Iterator[str]:
    """An array before the end hides what is missing in it."""
    for way in path_prefixes(keys)[:-1]:
        yield f"json_type({body}, {path_literal(way)}) IS NOT 'array'"


def _compared(rank: str, value: str, sign: str, given: Operand) -> str:
    assert isinstance(given, Parameter)
    [word, *_] = given.sql
    listed = f"(SELECT value FROM json_each({word}))" if sign == "IN" else word
    match given.kind:
        case "boolean" | "booleans":
            return f"{rank} {sign} {listed}"
    return f"({rank} = {_RANKS[given.kind]} AND {value} {sign} {listed})"
