"""Orders and indexed tests in PostgreSQL's words: the rank of a value's type, a number, and the
beginning of a text.

`jsonb` has an order of its own, by the database's collation; numbers as `numeric` and text by code
point have MongoDB's. A row of an index ends at 2,704 bytes, hence the beginning: two texts that are
longer and begin alike are not told apart, and objects are not at all. A unique index also has a digest of what is
rough.
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
from ....query.sort import FALSE, NULL, NUMBER, STRING, TRUE, Key

SORT_PARTS: Final = ("rank", "number", "text")
INDEXES_NAME_SEQ: Final = True
BEGINNING: Final = 100
"""Characters of a text that are told apart."""
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
_TYPES: Final = {"bool": "boolean"}
_SIGNS: Final = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def can_order(keys: tuple[str, ...]) -> bool:  # noqa: ARG001
    """Every key can be said."""
    return True


def index_parts(*, unique: bool) -> Sequence[str]:
    """Return the columns of a field in an index."""
    return (*SORT_PARTS, "digest") if unique else SORT_PARTS


def sort_values(key: Key) -> Sequence[Any]:
    """Return rank, number, and the beginning of a text."""
    rank, value = key
    number = codec.spell(value) if rank == NUMBER else "0"
    return rank, number, _beginning(value) if rank == STRING else ""


def sort_varies(key: Key) -> Sequence[bool]:
    """Numbers vary in the number, texts in the text."""
    return True, key[0] == NUMBER, key[0] == STRING


def is_rough(key: Key) -> bool:
    """Objects, and arrays within arrays."""
    return isinstance(key[1], dict | list)


def is_cut(key: Key) -> bool:
    """Long texts."""
    rank, value = key
    return rank == STRING and len(value) > BEGINNING


def part(body: str, keys: tuple[str, ...], name: str) -> str:
    """Spell a `SortPart`."""
    return _PARTS[name].format(value=value_at(body, keys))


def place(parameter: str, name: str) -> str:
    """Spell a `SortValue`."""
    return f"CAST({parameter} AS {_CASTS[name]})"


def array_at(body: str, keys: tuple[str, ...], *, apart: bool = False) -> str:
    """Spell `ArrayAt`."""
    sign = "IS NOT DISTINCT FROM" if apart else "="
    return f"({type_at(body, keys)} {sign} 'array')"


def type_at(body: str, keys: tuple[str, ...]) -> str:
    """Spell `TypeAt`."""
    return f"jsonb_typeof({value_at(body, keys)})"


def value_at(body: str, keys: tuple[str, ...]) -> str:
    """Return the JSON at the end of keys that only objects have: `->` with text opens no array."""
    return f"({' -> '.join([body, *map(literal, keys)])})"


def literal(text: str) -> str:
    """Return an SQL literal. What a driver might take for a parameter is escaped."""
    quoted = text.replace("\\", "\\\\").replace("'", "''").replace("%", "\\x25")
    return f"E'{quoted}'"


# -- tests that an index serves ------------------------------------------------------------------


def plain_width(kind: Kind) -> int:
    """Return how many parameters a value takes: of a text, its beginning too; of a prefix, the
    beginning, the first text that has it, and the first that is past it.
    """
    return {"null": 0, "string": 2, "strings": 2, "prefix regex": 3}.get(kind, 1)


def pinned(test: Test) -> Sequence[str]:
    """Return the parts in which all values are alike that pass a test of scalars."""
    match test:
        case Equals():
            return SORT_PARTS
        case Compare(_, given) if given.kind == "number":
            return ("rank",)
        case Compare(_, given) if given.kind == "string":
            return "rank", "number"
        case Matches():
            return "rank", "number"
    return ()


def plain_values(value: Value) -> Sequence[Any]:
    """Return the parameters of a value."""
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


def plain_test(body: str, keys: tuple[str, ...], test: Test) -> str:
    """Spell a `PlainTest`; the slots of the test hold its words."""
    return f"({' OR '.join(_plain(body, keys, test))})"


def partial_test(body: str, keys: tuple[str, ...], test: Test) -> str:
    """Spell a `PartialTest` without its arrays."""
    return plain_test(
        body, keys, test_with_sql(test, lambda v: tuple(map(literal, plain_values(v))))
    )


def _plain(body: str, keys: tuple[str, ...], test: Test) -> Iterator[str]:
    value = value_at(body, keys)
    rank = _PARTS["rank"].format(value=value)
    null = [f"{rank} = {NULL}", _no_number(value), _no_text(value)]
    none = f"({' AND '.join([*null, *_not_opened(body, keys)])})"
    match test:
        case Equals(Parameter(kind="null")):
            yield none
        case Equals(given):
            yield _compared(value, "=", given)
        case Compare(operator, Parameter(kind="boolean") as slot):
            yield f"({_compared(value, _SIGNS[operator], slot)} AND {rank} >= {FALSE})"
        case Compare(operator, given):
            yield _compared(value, _SIGNS[operator], given)
        case OneOf(lists):
            yield from (none if g.kind == "null" else _among(value, g) for g in lists)
        case Matches(given):
            yield _begins(value, _words(given))
        case Exists():
            yield f"{value} IS NOT NULL"
        case HasType(types):
            listed = ", ".join(f"'{_TYPES.get(name, name)}'" for name in types)
            yield f"jsonb_typeof({value}) IN ({listed})"


def _not_opened(body: str, keys: tuple[str, ...]) -> Iterator[str]:
    """An array before the end hides what is missing in it."""
    for way in path_prefixes(keys)[:-1]:
        yield f"({array_at(body, way)} IS NOT TRUE)"


def _compared(value: str, sign: str, given: Operand) -> str:
    rank, number, text = (_PARTS[name].format(value=value) for name in SORT_PARTS)
    words = _words(given)
    match given.kind:
        case "boolean" if sign == "=":
            is_it = f"{rank} = CAST({words[0]} AS INTEGER)"
            return f"({is_it} AND {_no_number(value)} AND {_no_text(value)})"
        case "boolean":
            return f"{rank} {sign} CAST({words[0]} AS INTEGER)"
        case "number":
            told = f"{rank} = {NUMBER} AND {number} {sign} CAST({words[0]} AS NUMERIC)"
            return f"({told} AND {_no_text(value)})" if sign == "=" else f"({told})"
    near = sign if sign in {"=", ">=", "<="} else f"{sign}="
    return (
        f"({rank} = {STRING} AND {_no_number(value)} AND {text} {near} CAST({words[0]} AS TEXT) "
        f"AND ({value} #>> '{{}}') COLLATE \"C\" {sign} CAST({words[1]} AS TEXT))"
    )


def _begins(value: str, words: tuple[str, ...]) -> str:
    rank, text = (_PARTS[name].format(value=value) for name in ("rank", "text"))
    near, first, past = (f"CAST({word} AS TEXT)" for word in words)
    whole = f"({value} #>> '{{}}') COLLATE \"C\""
    return (
        f"({rank} = {STRING} AND {_no_number(value)} AND {text} >= {near} AND {text} < {past} "
        f"AND {whole} >= {first} AND {whole} < {past})"
    )


def _no_number(value: str) -> str:
    """Name the column all the same: an index goes on only past columns that are equal."""
    return f"{_PARTS['number'].format(value=value)} = 0"


def _no_text(value: str) -> str:
    return f"{_PARTS['text'].format(value=value)} = ''"


def _among(value: str, given: Operand) -> str:
    rank, number, text = (_PARTS[name].format(value=value) for name in SORT_PARTS)
    words = _words(given)
    match given.kind:
        case "booleans":
            return f"{rank} = ANY (CAST({words[0]} AS INTEGER[]))"
        case "numbers":
            return f"({rank} = {NUMBER} AND {number} = ANY (CAST({words[0]} AS NUMERIC[])))"
    return (
        f"({rank} = {STRING} AND {text} = ANY (CAST({words[0]} AS TEXT[])) "
        f"AND {value} #>> '{{}}' = ANY (CAST({words[1]} AS TEXT[])))"
    )


def _words(given: Operand) -> tuple[str, ...]:
    assert isinstance(given, Parameter)
    return given.sql


def _beginning(text: str) -> str:
    return text[: BEGINNING + 1]
