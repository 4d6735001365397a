"""Formats of other programs, for `import` and `export`.

A reader yields items in the form of an export, `{"id": …, "body": …}`, for `files.to_record`.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import IO, Any, Final, Literal, TypeAlias, get_args

import click

from .. import Document, Path
from .. import codec as json_codec
from ..document import new_id
from ..engine.backup.atomic_file import DamagedInput, uncompressed
from .files import (
    MAX_ARRAY,
    MAX_LINE,
    BadItem,
    Item,
    parse_json,
    read_items,
)
from .output import Exit, Failure, to_text

Source: TypeAlias = Literal["json", "mongodb", "bson", "tinydb", "csv"]
SOURCES: Final[tuple[Source, ...]] = get_args(Source)
ID: Final = "$id"
"""The column of the id in an exported CSV file."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_TRUE: Final = {"true": True, "false": False}


def read(
    stream: IO[bytes],
    *,
    source: Source,
    id_field: str | None,
    new_ids: bool,
    table: str,
    types: str | None,
) -> Iterator[Item]:
    """Yield the items of a stream, by the options of `import`."""
    match source:
        case "mongodb":
            from ..integrations.bson import document_of

            return map(partial(_with_id, document_of), read_items(stream))
        case "bson":
            return _bson(stream)
        case "tinydb":
            return _tinydb(stream, table)
        case "csv":
            items = _csv(stream, id_field, _read_types(types))
        case "json":
            items = read_items(stream)
    return map(partial(_with_id, lambda body: (new_id(), body)), items) if new_ids else items


def _with_id(document_of: Callable[[Any], tuple[str, Any]], item: Item) -> Item:
    """Return an item in the form of an export; `document_of` returns the id and the body of a value."""
    if isinstance(item.value, BadItem):
        return item
    try:
        id, body = document_of(item.value)
    except ValueError as error:
        return replace(item, value=BadItem(str(error)))
    return replace(item, value={"id": id, "body": body})


def _bson(stream: IO[bytes]) -> Iterator[Item]:
    from ..integrations.bson import document_of, read_dump

    number = 0
    try:
        for number, text in enumerate(read_dump(uncompressed(stream)), 1):
            value = parse_json(text.encode())
            yield _with_id(document_of, Item(f"document {number}", value, len(text)))
    except ValueError as error:
        raise DamagedInput(f"after document {number}: {error}") from error


def _tinydb(stream: IO[bytes], table: str) -> Iterator[Item]:
    """Yield the documents of a table of TinyDB's file, read completely."""
    text = uncompressed(stream).read(MAX_ARRAY + 1)
    if len(text) > MAX_ARRAY:
        raise DamagedInput(f"too long: more than {MAX_ARRAY >> 20} MiB")
    try:
        tables = parse_json(text, MAX_ARRAY // 4)
    except BadItem as error:
        raise DamagedInput(str(error)) from error
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise DamagedInput('expected a file of TinyDB: {"table": {"1": {…}}}')
    if table not in tables:
        known = ", ".join(map(repr, tables)) or "none"
        raise DamagedInput(f"there is no table {table!r} (it has {known}): name one with --table")
    for id, body in tables[table].items():
        yield Item(f"document {id}", {"id": id, "body": body}, len(id))


# -- CSV ---------------------------------------------------------------------------------------


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> Any:
    found = json_codec.decode(text)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(text)
    return found


def _boolean(text: str) -> bool:
    return _TRUE[text.lower()]


_TYPES: Final[dict[str, Callable[[str], Any]]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "json": json_codec.decode,
}


def _read_types(text: str | None) -> dict[str, str]:
    """Parse `age=integer,tags=json`; raise `UsageError`."""
    found = {}
    for part in text.split(",") if text else ():
        column, _, kind = part.rpartition("=")
        if not column or kind not in _TYPES:
            known = ", ".join(_TYPES)
            raise click.UsageError(f"--types: {part!r} must be COLUMN=TYPE; types are {known}")
        found[column] = kind
    return found


def _csv(stream: IO[bytes], id_column: str | None, types: dict[str, str]) -> Iterator[Item]:
    """Yield the rows of a CSV file; the first row has the names of the columns."""
    csv.field_size_limit(MAX_LINE)
    rows = csv.reader(codecs.iterdecode(_lines(uncompressed(stream)), "utf-8-sig"), strict=True)
    try:
        header = next(rows, [])
        _check_header(header, id_column, types)
        for row in rows:
            if row:
                value = _row(header, row, id_column, types)
                yield Item(f"line {rows.line_num}", value, sum(map(len, row)))
    except UnicodeDecodeError as error:
        raise DamagedInput(f"after line {rows.line_num}: it is not UTF-8") from error
    except csv.Error as error:
        raise DamagedInput(f"line {rows.line_num}: it is not CSV: {error}") from error


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise DamagedInput(f"line {number}: too long: more than {MAX_LINE >> 20} MiB")
        yield line


def _check_header(header: list[str], id_column: str | None, types: dict[str, str]) -> None:
    if not header or len(set(header)) < len(header):
        raise DamagedInput("line 1: it must have the names of the columns, each once")
    for column in [*types, *([] if id_column is None else [id_column])]:
        if column not in header:
            raise DamagedInput(f"line 1: there is no column {column!r}; it has {', '.join(header)}")


def _row(
    header: list[str], row: list[str], id_column: str | None, types: dict[str, str]
) -> dict[str, Any] | BadItem:
    if len(row) != len(header):
        return BadItem(f"it must have {len(header)} cells, as the first line has, got {len(row)}")
    body: dict[str, Any] = {}
    for column, cell in zip(header, row, strict=True):
        if cell and column != ID:
            kind = types.get(column, "string")
            try:
                _set(body, column.split("."), _TYPES[kind](cell))
            except (LookupError, ValueError):
                return BadItem(f"{column}: {cell!r} must be of the type {kind}")
            except TypeError:
                return BadItem(f"{column}: another column has a value at the beginning of its name")
    if id_column is None:
        return body
    return {"id": row[header.index(id_column)], "body": body}


def _set(body: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set a field of a nested object; raise `TypeError` if the path meets another value."""
    for key in keys[:-1]:
        body = body.setdefault(key, {})
        if not isinstance(body, dict):
            raise TypeError(key)
    if keys[-1] in body:
        raise TypeError(keys[-1])
    body[keys[-1]] = value


def are_columns(fields: list[str]) -> bool:
    """Return whether a CSV file can have columns of these names beside the id."""
    return "" not in fields and len({ID, *fields}) == len(fields) + 1


def csv_lines(documents: Iterable[Document], fields: list[str]) -> Iterator[str]:
    """Yield the lines of a CSV file: ids, and a column for each field, a dotted path. A string is written as is, any other
    value as JSON; a missing or null field is an empty cell.
    """
    paths = [Path.parse(field).keys for field in fields]
    yield csv_line([ID, *fields])
    for each in documents:
        yield csv_line([each.id, *(_cell(each.body, keys) for keys in paths)])


def csv_line(cells: Iterable[str]) -> str:
    """Return the line of a CSV file, without its end."""
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def _cell(value: Any, keys: tuple[str, ...]) -> str:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return "" if value is None else value if isinstance(value, str) else to_text(value)


def mongodb_lines(documents: Iterable[Document]) -> Iterator[str]:
    """Yield documents as mongoimport reads documents; raise `Failure` for a document that MongoDB cannot store."""
    from ..integrations.bson import to_extended_json

    for each in documents:
        try:
            yield to_text(to_extended_json(each))
        except ValueError as error:
            raise Failure(str(error), Exit.BAD_INPUT) from error
