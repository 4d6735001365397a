"""The entries of an index through arrays in SQLite: rank and value of each field, from the rows of `json_each`.

`json_each` has a row for each element of an array. Any other value is put into an object, whose key shows what the value
is: a test of the value itself would read the whole body again for each element. A key whose paths lead to two arrays side
by side has no rank, which the table refuses. A wildcard index has the path, too, and scalars only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ....query.index import Index
from ...elements import Keys
from ...entries import KeyStep, chains_of, column_names, steps_of
from .filters import path_literal
from .ordering import SqliteIndexedForm, SqliteOrdering

SCALAR_TYPES: Final = "('integer', 'real', 'text', 'true', 'false')"
_RANK: Final = (
    "CASE k{n} WHEN 'empty' THEN 0 ELSE "
    "CASE t{n} WHEN 'integer' THEN 2 WHEN 'real' THEN 2 WHEN 'text' THEN 3 WHEN 'object' THEN 4 "
    "WHEN 'array' THEN 5 WHEN 'false' THEN 8 WHEN 'true' THEN 9 ELSE 1 END END"
)
"""An empty array at the end of a path comes before null."""
_OPENED: Final = (
    "CASE json_type({owner}, {path}) WHEN 'array' THEN CASE json_array_length({owner}, {path}) "
    "WHEN 0 THEN '{{\"empty\":null}}' ELSE {owner} -> {path} END "
    "ELSE ifnull('{{\"value\":' || ({owner} -> {path}) || '}}', '{{\"missing\":null}}') END"
)
_IS_ARRAY: Final = "(k{n} NOT IN ('value', 'missing'))"
_INNER: Final = "(CASE e{n}.type WHEN 'object' THEN e{n}.value ELSE '{{}}' END)"


def entry_columns(index: Index) -> list[list[str]]:
    """Return the names of the columns of each field."""
    if index.is_wildcard:
        return [["path", *SqliteOrdering.parts]]
    return column_names(SqliteOrdering.parts, len(index.paths))


def entries(body: str, seq: str, index: Index, table: str = "") -> str:
    """Return the SELECT of `seq` and the columns of each key; `table` is the table of `body`, unless a trigger has it."""
    if index.is_wildcard:
        return _entries_below(body, seq, index, table)
    steps = steps_of(index)
    number = {step.keys: n for n, step in enumerate(steps)}
    ends = [number[path.keys] for path in index.paths]
    ranks = [_RANK.format(n=n) for n in ends]
    some = [f"k{n} <> 'missing'" for n in ends]
    arrays = [_IS_ARRAY.format(n=n) for n in range(len(steps))]
    if parallel := _side_by_side(chains_of(index, steps), arrays):
        ranks[0] = f"CASE WHEN {parallel} THEN NULL ELSE {ranks[0]} END"
        some.append(f"({parallel})")
    columns = [each for n, rank in zip(ends, ranks, strict=True) for each in (rank, f"v{n}")]
    where = f" WHERE {' OR '.join(some)}" if index.sparse else ""
    rows = _opened(body, seq, steps, set(ends), table)
    return f"SELECT DISTINCT seq, {', '.join(columns)} FROM ({rows}){where}"


def _opened(body: str, seq: str, steps: Sequence[KeyStep], ends: set[int], table: str) -> str:
    """Return the SELECT of `seq`, and of each step's key (`k0`), and at the ends of paths type and value.

    Each depth is a query of its own. With a limit SQLite does not flatten a query, and evaluates its columns once: else a
    value would be read again for each element of an array beside it.
    """
    kept = ["seq"]
    columns = [f"{seq} AS seq", *_texts(steps, None, body)]
    rows = f"SELECT {', '.join(columns)}{f' FROM {table}' * bool(table)} LIMIT -1"
    for depth in range(1, max(len(step.keys) for step in steps) + 1):
        here = [n for n, step in enumerate(steps) if len(step.keys) == depth]
        columns = kept.copy()
        for n in here:
            columns.append(f"e{n}.key AS k{n}")
            kept.append(f"k{n}")
            if n in ends:
                columns.append(f"e{n}.type AS t{n}, ifnull(e{n}.value, '') AS v{n}")
                kept.append(f"t{n}, v{n}")
            columns.extend(_texts(steps, n, _INNER.format(n=n)))
        opened = ", ".join(f"json_each(o{n}) AS e{n}" for n in here)
        rows = f"SELECT {', '.join(columns)} FROM ({rows}), {opened} LIMIT -1"
    return rows


def _texts(steps: Sequence[KeyStep], owner: int | None, value: str) -> Iterator[str]:
    """Yield the columns of the values within an owner's value, as `json_each` opens them."""
    for n, step in enumerate(steps):
        if step.owner == owner:
            yield f"{_OPENED.format(owner=value, path=path_literal(step.keys[-1:]))} AS o{n}"


def spelled(keys: Keys) -> str:
    """Return the keys of a path as a wildcard index stores them: a string that no other keys have."""
    return "".join(f"{len(key)}:{key}" for key in keys)


def _entries_below(body: str, seq: str, index: Index, table: str) -> str:
    """Return the SELECT of `seq`, and path, rank and value of each scalar that a path reaches.

    `opens`: a path leads on into a value: an object, or an array that is a value of an object.
    """
    path = "r.path || CASE r.type WHEN 'object' THEN length(e.key) || ':' || e.key ELSE '' END"
    begin = SqliteIndexedForm().literal(spelled(index.paths[0].keys))
    is_on_path = f"substr({path}, 1, length({begin})) = substr({begin}, 1, length({path}))"
    rows = (
        f"SELECT {seq} AS seq, '' AS path, json_type({body}) AS type, {body} AS value, "
        f"json_type({body}) = 'object' AS opens{' FROM ' * bool(table)}{table} "
        f"UNION ALL SELECT r.seq, {path}, e.type, e.value, "
        "e.type = 'object' OR (e.type = 'array' AND r.type = 'object') "
        "FROM reached AS r, json_each(CASE WHEN r.opens THEN r.value ELSE '[]' END) AS e "
        f"WHERE r.opens{f' AND {is_on_path}' if index.paths[0].keys else ''}"
    )
    rank = "CASE type WHEN 'text' THEN 3 WHEN 'false' THEN 8 WHEN 'true' THEN 9 ELSE 2 END"
    where = f"type IN {SCALAR_TYPES} AND length(path) >= length({begin})"
    found = f"SELECT DISTINCT seq, path, {rank}, value FROM reached WHERE {where}"
    return f"SELECT * FROM (WITH RECURSIVE reached AS ({rows}) {found})"


def _side_by_side(chains: Sequence[Sequence[int]], arrays: Sequence[str]) -> str:
    """Return the test that more arrays are opened than are on any one path; empty if there is one path only."""
    if len(chains) < 2:
        return ""
    most = ", ".join(" + ".join(arrays[number] for number in chain) for chain in chains)
    return f"{' + '.join(arrays)} > max({most})"
