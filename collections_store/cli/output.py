"""The results of a command: exit codes, and on standard output JSON lines, a JSON array, or a table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from typing import IO, Any, Literal, TypeAlias

from .. import Document, Path, errors
from ..codec import Codec

Format: TypeAlias = Literal["jsonl", "json", "table", "mongodb", "csv"]
Keys: TypeAlias = tuple[str, ...]

_CODEC = Codec(max_bytes=2**62)
"""Without a limit: stored bodies are printed whatever limit they were written under."""

_ID_WIDTH = 40
_COLUMN_WIDTH = 4
"""The narrowest column, with its border."""


# -- exit codes --------------------------------------------------------------------------------


class Exit(IntEnum):
    """An exit code; `--help` prints its `meaning`."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        member = int.__new__(cls, code)
        member._value_, member.meaning = code, meaning
        return member

    DONE = 0, "done"
    NO = (
        1,
        "no such document, collection or index; tables differ; the doctor found problems; documents cannot be upgraded; a question was answered no",
    )
    USAGE = 2, "wrong use: an option, an argument or the URL"
    BAD_INPUT = (
        3,
        "bad input: a body, filter, sort order, projection, index, name, id or line of an import",
    )
    UNAVAILABLE = 4, "the database cannot be reached, does not exist or is busy"
    SCHEMA = 5, "the database's schema is older or newer than this version's"
    FAILED = 6, "another error of the database or of a file"
    MISSING_EXTRA = 7, "a package is missing; the message names the extra"
    INTERRUPTED = 130, "interrupted (Ctrl-C)"
    BROKEN_PIPE = 141, "the reader of the output was closed"


_CODES: tuple[tuple[type[errors.CollectionsStoreError], Exit], ...] = (
    (errors.CollectionNotFound, Exit.NO),
    (errors.InvalidUrl, Exit.USAGE),
    (errors.InvalidOption, Exit.USAGE),
    (errors.MissingExtra, Exit.MISSING_EXTRA),
    (errors.SchemaError, Exit.SCHEMA),
    (errors.DatabaseUnavailable, Exit.UNAVAILABLE),
    (errors.DatabaseBusy, Exit.UNAVAILABLE),
    (errors.DatabaseError, Exit.FAILED),
)


class Failure(Exception):
    """Ends the command with an exit code, and a message on standard error unless it is empty."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: Exception) -> Exit:
    """Return the exit code of a `Failure` or an error of the library."""
    if isinstance(error, Failure):
        return error.code
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.BAD_INPUT if isinstance(error, ValueError) else Exit.FAILED


def one_line(error: BaseException) -> str:
    """Return an error's message without line breaks, which messages of drivers may contain."""
    return " ".join(str(error).split())


# -- standard output ---------------------------------------------------------------------------


def to_text(value: Any) -> str:
    """Return a JSON value on one line."""
    return _CODEC.encode(value)


def as_line(document: Document) -> str:
    """Return a document as `export` writes and `import` reads a line: `{"id":…,"body":…}`, and `"expires_at"`.

    The body is encoded separately: inside the line it may be a level deeper than the codec allows.
    """
    time = document.expires_at
    end = "" if time is None else f',"expires_at":"{time.isoformat()}"'
    return f'{{"id":{to_text(document.id)},"body":{to_text(document.body)}{end}}}'


def emit(*lines: str) -> None:
    """Print lines on standard output, in UTF-8 whatever the terminal's encoding."""
    _send((f"{line}\n" for line in lines), sys.stdout.buffer)


def write_documents(
    documents: Iterable[Document], format: Format, fields: Sequence[str] | None = None
) -> None:
    """Write documents on standard output in order: a table at once, any other format document by document.

    A table has a column for each of `fields`, or else for each top-level field of the documents.
    """
    if format == "table":
        ids = {"id": {"no_wrap": True, "max_width": _ID_WIDTH}}
        rows = (((each.id,), each.body) for each in documents)
        _send([_bodies_table(ids, rows, fields)], sys.stdout.buffer)
    else:
        write_lines(map(as_line, documents), sys.stdout.buffer, array=format == "json")


def write_lines(lines: Iterable[str], stream: IO[bytes], *, array: bool) -> None:
    """Write JSON texts, a line each, optionally as an array."""
    _send(_array(lines) if array else (f"{line}\n" for line in lines), stream)


def write_values(values: Iterable[Any], format: Format) -> None:
    """Write values on standard output as JSON lines, or as an array."""
    write_lines(map(to_text, values), sys.stdout.buffer, array=format == "json")


def write_bodies(bodies: Iterable[Any], format: Format) -> None:
    """Write bodies on standard output as documents without ids."""
    if format == "table":
        _send([_bodies_table({}, (((), body) for body in bodies), None)], sys.stdout.buffer)
    else:
        write_values(bodies, format)


def write_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Write named values on standard output as a line of JSON, or each on a line."""
    if as_json:
        emit(to_text(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else value
        emit(f"{name:<{width}}  {'-' if shown is None else shown}")


def write_rows(
    values: Iterable[Any],
    format: Format,
    columns: Mapping[str, Mapping[str, Any]],
    rows: Iterable[Sequence[str]],
) -> None:
    """Write values on standard output as JSON, or `rows` as a table of `columns` with rich's options."""
    if format == "table":
        emit(table(columns.items(), rows).rstrip("\n"))
    else:
        write_values(values, format)


def _send(pieces: Iterable[str], stream: IO[bytes]) -> None:
    """Write each piece completely: with PYTHONUNBUFFERED, `write` may write only a part."""
    for piece in pieces:
        rest = memoryview(piece.encode())
        while rest:
            rest = rest[stream.write(rest) :]
    stream.flush()


def _array(lines: Iterable[str]) -> Iterator[str]:
    before = "[\n"
    for line in lines:
        yield f"{before}{line}"
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def table(
    columns: Iterable[tuple[str, Mapping[str, Any]]],
    rows: Iterable[Sequence[str]],
    *,
    cut: bool = False,
) -> str:
    """Return a table of columns, with rich's options for each, and rows. With `cut`, each row is a single line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    style: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"} if cut else {}
    drawn = Table()
    for name, options in columns:
        drawn.add_column(Text(printable(name), **style), **options)
    for row in rows:
        drawn.add_row(*(Text(printable(cell), **style) for cell in row))
    console = Console()
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def _bodies_table(
    first: Mapping[str, Mapping[str, Any]],
    bodies: Iterable[tuple[Sequence[str], Any]],
    fields: Sequence[str] | None,
) -> str:
    """Return a table of the `first` columns, whose cells come with each body, and of the fields of the bodies."""
    from rich.console import Console

    width = Console().width
    paths = None if fields is None else {name: Path.parse(name).keys for name in fields}
    rows = [(cells, _cells(body, paths, width)) for cells, body in bodies]
    found = dict.fromkeys(name for _, cells in rows for name in cells)
    names = list(dict.fromkeys([*(paths or ()), *found]))
    shown = names[: width // _COLUMN_WIDTH]
    columns = [*first.items(), *(("(body)" if name is None else name, {}) for name in shown)]
    if names != shown:
        columns.append((f"+{len(names) - len(shown)}", {}))
    lines = ([*before, *(cells.get(name, "") for name in shown)] for before, cells in rows)
    return table(columns, lines, cut=True)


def _cells(
    body: Any, paths: Mapping[str, tuple[str, ...]] | None, width: int
) -> dict[str | None, str]:
    """Return the values of a body by field; None stands for a body without fields."""
    if not isinstance(body, dict):
        return {None: to_text(body)[:width]}
    if paths is None:
        paths = {name: (name,) for name in islice(body, width)}
    found = ((name, each) for name, keys in paths.items() for each in values_at(body, keys))
    return {n: (each if isinstance(each, str) else to_text(each))[:width] for n, each in found}


def values_at(value: Any, keys: Keys) -> list[Any]:
    """Return the value of a field in a list, empty for a missing field; for an array, the values of its elements."""
    if not keys:
        return [value]
    if isinstance(value, list):
        found = [inner for each in value for inner in values_at(each, keys)]
        return [found] if found else []
    if isinstance(value, dict) and keys[0] in value:
        return values_at(value[keys[0]], keys[1:])
    return []


def leaves(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield the paths and the values of all fields that are no objects with fields."""
    if isinstance(value, dict) and (value or not keys):
        for key, inner in value.items():
            yield from leaves(inner, (*keys, key))
    else:
        yield keys, value


def printable(text: str) -> str:
    """Escape characters that would move the cursor or change the direction of writing."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: "1 index", "2 indexes", "1,000 documents"."""
    ending = "" if count == 1 else "es" if noun.endswith("x") else "s"
    return f"{count:,} {noun}{ending}"
