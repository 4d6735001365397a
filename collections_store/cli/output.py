"""How objects are written: JSON lines, a JSON array, or a table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal, TypeAlias

from .. import Document
from ..codec import Codec

Format: TypeAlias = Literal["jsonl", "json", "table"]

_CODEC = Codec(max_bytes=2**62)
"""What is in the database is shown, whatever limit it was written under."""

_ID_WIDTH = 40


def to_text(value: Any) -> str:
    """Return a JSON value on one line."""
    return _CODEC.encode(value)


def as_line(document: Document) -> str:
    """Return the object as `export` writes and `import` reads it: `{"id":…,"body":…}`, and
    `"expires_at"` if it expires.

    The body is encoded by itself: inside the line it may be one level deeper than a body may be.
    """
    time = document.expires_at
    end = "" if time is None else f',"expires_at":"{time.isoformat()}"'
    return f'{{"id":{to_text(document.id)},"body":{to_text(document.body)}{end}}}'


def emit(*lines: str) -> None:
    """Print lines on standard output: UTF-8, whatever the terminal's encoding."""
    _send((f"{line}\n" for line in lines), binary_output())


def write_documents(documents: Iterable[Document], format: Format, stream: IO[bytes]) -> None:
    """Write objects in the order they come, one at a time except in a table."""
    if format == "table":
        _send([_documents_table(documents)], stream)
    else:
        write_lines(map(as_line, documents), stream, array=format == "json")


def write_lines(lines: Iterable[str], stream: IO[bytes], *, array: bool) -> None:
    """Write JSON texts, each on a line of its own; as an array's elements if asked."""
    _send(_array(lines) if array else (f"{line}\n" for line in lines), stream)


def _send(pieces: Iterable[str], stream: IO[bytes]) -> None:
    """Write each piece to its end: with PYTHONUNBUFFERED standard output may take a part only."""
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
    columns: Mapping[str, Mapping[str, Any]], rows: Iterable[Sequence[str]], *, full: bool = False
) -> str:
    """Return a table; `columns` tells rich how to set each, `full` makes it as wide as the
    terminal.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(expand=full)
    for name, options in columns.items():
        drawn.add_column(name, **options)
    for row in rows:
        drawn.add_row(*(Text(_printable(cell)) for cell in row))
    console = Console()
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def _documents_table(documents: Iterable[Document]) -> str:
    """Set the bodies, as much of each as there is room for, beside what the store knows."""
    from rich.console import Console

    width = Console().width
    rows = [
        (d.id, str(d.version), f"{d.updated_at:%Y-%m-%d %H:%M:%S}", to_text(d.body)[:width])
        for d in documents
    ]
    columns: dict[str, dict[str, Any]] = {
        "id": {"no_wrap": True, "max_width": _ID_WIDTH},
        "version": {"no_wrap": True, "justify": "right"},
        "updated (UTC)": {"no_wrap": True},
        "body": {"no_wrap": True, "ratio": 1},
    }
    return table(columns, rows, full=True)


def _printable(text: str) -> str:
    """Spell out what would move the cursor or turn the writing round."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def binary_output() -> IO[bytes]:
    """Return standard output for bytes."""
    return sys.stdout.buffer


def on_terminal() -> bool:
    """Tell whether a person reads standard output."""
    return sys.stdout.isatty()
