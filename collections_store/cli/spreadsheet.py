"""CSV for spreadsheets: nested fields as columns, and no cell that is a formula.

The CSV of `export` is in `formats`: `import` reads it, and strings are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .. import Document, Path
from .formats import ID, csv_line
from .output import Keys, leaves, to_text, values_at

_FORMULAS: Final = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")
"""The beginnings of cells that a spreadsheet computes, the last four in full width."""
_BODY: Final = "$body"
"""The column of bodies that are no objects."""


def sheet_of_documents(
    documents: Iterable[Document], fields: Sequence[str] | None
) -> Iterator[str]:
    """Yield the lines of documents with a column for the ids and for each field.

    Without `fields`, the columns are the sorted paths of all values except objects; all documents are read first.
    """
    if fields is not None:
        paths = [Path.parse(each).keys for each in fields]
        yield csv_line([ID, *map(_safe, fields)])
        for each in documents:
            yield csv_line([_safe(each.id), *(_cell(values_at(each.body, p)) for p in paths)])
        return
    rows = [(each.id, dict(leaves(each.body))) for each in documents]
    columns = sorted({keys for _, row in rows for keys in row})
    yield csv_line([ID, *map(_name, columns)])
    for id, row in rows:
        yield csv_line([_safe(id), *_cells(row, columns)])


def sheet_of_bodies(bodies: Iterable[Any]) -> Iterator[str]:
    """Yield the lines of results without ids, as of documents."""
    rows = [dict(leaves(body)) for body in bodies]
    columns = sorted({keys for row in rows for keys in row})
    if columns:
        yield csv_line(map(_name, columns))
    for row in rows:
        yield csv_line(_cells(row, columns))


def _name(keys: Keys) -> str:
    """Return the dotted path; for a key with a dot or a metadata name, the list of keys in JSON."""
    if not keys:
        return _BODY
    is_dotted = keys[0][:1] != "$" and all("." not in key for key in keys)
    return _safe(".".join(keys) if is_dotted else to_text(list(keys)))


def _cells(row: dict[Keys, Any], columns: Iterable[Keys]) -> list[str]:
    return [_cell([row[keys]] if keys in row else []) for keys in columns]


def _cell(values: Sequence[Any]) -> str:
    """Return a cell: a string, JSON for another value, and nothing for a missing or null value."""
    if not values or values[0] is None:
        return ""
    return _safe(values[0]) if isinstance(values[0], str) else to_text(values[0])


def _safe(text: str) -> str:
    """Return the string, behind an apostrophe if a spreadsheet would compute the string."""
    return f"'{text}" if text.startswith(_FORMULAS) else text
