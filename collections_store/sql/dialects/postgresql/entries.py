"""The entries of an index through arrays in PostgreSQL: the columns of each field, from `jsonb_array_elements`.

A value that is no array is put into an array. A key whose paths lead to two arrays side by side has no rank, which the
table refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ....query.conditions import Compare, Equals, Kind, Matches, OneOf, Parameter, Test
from ....query.index import Index
from ....query.sort import FALSE, NUMBER, STRING
from ...entries import chains_of, column_names, steps_of
from ..indexed_form import SIGNS
from .ordering import PostgresOrdering, literal

_ORDERING: Final = PostgresOrdering()
PARTS: Final = tuple(_ORDERING.index_parts(unique=True))
_TYPES: Final = {
    "rank": "INTEGER",
    "number": "NUMERIC",
    "text": 'TEXT COLLATE "C"',
    "digest": "TEXT",
}
_OPENED: Final = (
    "CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN jsonb_typeof({value}) = 'array' AND {value} <> '[]' "
    "THEN {value} ELSE jsonb_build_array({value}) END) AS {alias}(value)"
)


def entry_columns(index: Index) -> list[list[str]]:
    """Return the names of the columns of each field."""
    return column_names(PARTS, len(index.paths))


def scalar_tests(number: int, test: Test) -> Iterator[str]:
    """Yield the alternatives of a test of the columns of a field, each of all columns before the last that it compares, as
    in `ordering`. The test is necessary, not sufficient: the columns hold only the beginning of a string.
    """
    rank, decimal, text, _ = (f"{part}{number or ''}" for part in PARTS)
    of_string = f"{rank} = {STRING} AND {decimal} = 0 AND {text}"
    match test:
        case Equals(Parameter(kind, sql)):
            yield _compared((rank, decimal, text), "=", kind, sql[0])
        case Compare(operator, Parameter(kind, sql)):
            yield _compared((rank, decimal, text), SIGNS[operator], kind, sql[0])
        case OneOf(lists):
            for given in lists:
                assert isinstance(given, Parameter)
                before, type = {
                    "booleans": (rank, "INTEGER"),
                    "numbers": (f"{rank} = {NUMBER} AND {decimal}", "NUMERIC"),
                    "strings": (of_string, "TEXT"),
                }[given.kind]
                yield f"{before} = ANY (CAST({given.sql[0]} AS {type}[]))"
        case Matches(Parameter(sql=(first, _, past))):
            yield f"{of_string} >= CAST({first} AS TEXT) AND {text} < CAST({past} AS TEXT)"


def _compared(columns: tuple[str, str, str], sign: str, kind: Kind, value: str) -> str:
    rank, decimal, text = columns
    if kind == "number":
        compared = f"{rank} = {NUMBER} AND {decimal} {sign} CAST({value} AS NUMERIC)"
        return f"{compared} AND {text} = ''" if sign == "=" else compared
    if kind == "string":
        near = sign if sign in {"=", ">=", "<="} else f"{sign}="
        return f"{rank} = {STRING} AND {decimal} = 0 AND {text} {near} CAST({value} AS TEXT)"
    compared = f"{rank} {sign} CAST({value} AS INTEGER)"
    if sign == "=":
        return f"{compared} AND {decimal} = 0 AND {text} = ''"
    return f"{compared} AND {rank} >= {FALSE}"


def declarations(index: Index) -> list[str]:
    """Return the columns of the table with their types."""
    typed = (zip(field, PARTS, strict=True) for field in entry_columns(index))
    return [f"{name} {_TYPES[part]} NOT NULL" for field in typed for name, part in field]


def entries(body: str, seq: str, index: Index, table: str = "(SELECT 1) AS one") -> str:
    """Return the SELECT of `seq` and the columns of each key of `body`, in each row of `table`."""
    steps = steps_of(index)
    owners = (body if step.owner is None else f"e{step.owner}.value" for step in steps)
    values = [
        f"({owner} -> {literal(step.keys[-1])})" for owner, step in zip(owners, steps, strict=True)
    ]
    opened = (_OPENED.format(value=value, alias=f"e{n}") for n, value in enumerate(values))
    number = {step.keys: n for n, step in enumerate(steps)}
    ends = [number[path.keys] for path in index.paths]
    columns = [each for end in ends for each in _columns(values[end], f"e{end}.value")]
    some = [f"{values[end]} IS NOT NULL" for end in ends]
    if parallel := _side_by_side(chains_of(index, steps), values):
        columns[0] = f"CASE WHEN {parallel} THEN NULL ELSE {columns[0]} END"
        some.append(f"({parallel})")
    where = f" WHERE {' OR '.join(some)}" if index.sparse else ""
    return f"SELECT DISTINCT {seq}, {', '.join(columns)} FROM {table} {' '.join(opened)}{where}"


def _columns(value: str, element: str) -> Iterator[str]:
    """Yield the columns of an element; an empty array comes before null."""
    rank, *others = (_ORDERING.part(element, (), name) for name in PARTS)
    yield f"(CASE WHEN {value} = '[]' THEN 0 ELSE {rank} END)"
    yield from others


def _side_by_side(chains: Sequence[Sequence[int]], values: Sequence[str]) -> str:
    """Return the test that more arrays are opened than are on any one path; empty if there is one path only."""
    if len(chains) < 2:
        return ""
    arrays = [f"(jsonb_typeof({each}) IS NOT DISTINCT FROM 'array')::INTEGER" for each in values]
    most = ", ".join(" + ".join(arrays[number] for number in chain) for chain in chains)
    return f"{' + '.join(arrays)} > greatest({most})"
