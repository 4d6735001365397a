"""Indexes of the values in arrays, which SQLite lacks: a table beside the collection's with a row for
each scalar that a path reaches, through whatever arrays. Triggers keep it, whoever writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from ....query.values import value_class
from .filters import path_literal

_RANKED = (
    "CASE {T} WHEN 'text' THEN 3 WHEN 'false' THEN 8 WHEN 'true' THEN 9 ELSE 2 END, {V}, {seq}"
)
_SCALARS = "('integer', 'real', 'text', 'true', 'false')"


@value_class(eq=True)
class _Way:
    """How values are reached: what is read, under which conditions, and a value's type and itself."""

    sources: tuple[str, ...]
    conditions: tuple[str, ...]
    type: str
    value: str


def create(table: str, beside: str, keys: tuple[str, ...]) -> Sequence[str]:
    """Return the statements that make the table `beside`, fill it, and have it kept."""
    filled = _values(f"{table}.body", f"{table}.seq", keys, (table,))
    added = f"INSERT OR IGNORE INTO {beside} {_values('NEW.body', 'NEW.seq', keys)};"
    gone = _values("OLD.body", "OLD.seq", keys)
    # with (rank, value, seq) IN (...) SQLite goes by the rank alone, which is most of the table
    removed = (
        f"DELETE FROM {beside} WHERE rank IN (2, 3, 8, 9) AND value IN (WITH gone(rank, value, seq) AS "
        f"({gone}) SELECT value FROM gone) AND seq = OLD.seq;"
    )
    changed = "AFTER UPDATE OF body ON {table} WHEN OLD.body IS NOT NEW.body"
    triggers = {
        "insert": (f"AFTER INSERT ON {table}", added),
        "update": (changed.format(table=table), f"{removed} {added}"),
        "delete": (f"AFTER DELETE ON {table}", removed),
    }
    columns = "rank INTEGER NOT NULL, value NOT NULL, seq INTEGER NOT NULL"
    return [
        f"CREATE TABLE {beside} ({columns}, PRIMARY KEY (rank, value, seq)) WITHOUT ROWID",
        f"INSERT OR IGNORE INTO {beside} {filled}",
        *(
            f"CREATE TRIGGER {beside}_{event} {when} BEGIN {then} END"
            for event, (when, then) in triggers.items()
        ),
    ]


def drop(beside: str) -> Sequence[str]:
    """Return the statements that drop it."""
    triggers = (
        f"DROP TRIGGER IF EXISTS {beside}_{event}" for event in ("insert", "update", "delete")
    )
    return [*triggers, f"DROP TABLE IF EXISTS {beside}"]


def _values(body: str, seq: str, keys: tuple[str, ...], sources: tuple[str, ...] = ()) -> str:
    """Return the SELECT of rank, value and place of all scalars at a path."""
    return " UNION ".join(_select(way, seq) for way in _ways(body, (), keys, _Numbers(), sources))


class _Numbers:
    """Names for the elements of arrays."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def next(self) -> str:
        return f"e{next(self._numbers)}"


def _select(way: _Way, seq: str) -> str:
    read = f" FROM {', '.join(way.sources)}" if way.sources else ""
    conditions = " AND ".join((*way.conditions, f"{way.type} IN {_SCALARS}"))
    return f"SELECT {_RANKED.format(T=way.type, V=way.value, seq=seq)}{read} WHERE {conditions}"


def _ways(
    body: str,
    conditions: tuple[str, ...],
    keys: tuple[str, ...],
    names: _Numbers,
    sources: tuple[str, ...],
) -> Iterator[_Way]:
    """Yield the ways to a value: itself, an element of it, or on through an array before the end."""
    path, element = path_literal(keys), names.next()
    yield _Way(sources, conditions, f"json_type({body}, {path})", f"json_extract({body}, {path})")
    inside = (*conditions, f"json_type({body}, {path}) = 'array'")
    each = (*sources, f"json_each({body}, {path}) AS {element}")
    yield _Way(each, inside, f"{element}.type", f"{element}.value")
    for depth in range(1, len(keys)):
        before, element = path_literal(keys[:depth]), names.next()
        through = (f"json_type({body}, {before}) = 'array'", f"{element}.type = 'object'")
        each = (*sources, f"json_each({body}, {before}) AS {element}")
        on = (*conditions, *through)
        yield from _ways(f"{element}.value", on, keys[depth:], names, each)
