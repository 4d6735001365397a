"""Input and output files: JSON lines or a JSON array, gzipped or not, and the progress bar."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import click

from .. import Path as FieldPath
from .. import codec
from ..codec import MAX_BODY
from ..document import MAX_TTL
from ..engine.backup.atomic_file import compressed, replacing, uncompressed
from ..engine.database_file import open_to_read
from ..errors import CollectionsStoreError
from .output import Exit, Failure, printable

STANDARD = "-"
"""The name that means standard input or output."""

Stream = IO[bytes]
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def check_readable(name: str) -> None:
    """Raise `UsageError` for an unreadable file, before any work."""
    if name == STANDARD:
        if sys.stdin.isatty():
            raise click.UsageError("standard input is a terminal: name a file, or pipe one in")
    elif not Path(name).exists():
        raise click.UsageError(f"there is no file {shown(name)}")
    elif Path(name).is_dir():
        raise click.UsageError(f"{shown(name)} is a folder")


def shown(name: str) -> str:
    """Return the name of a file in messages."""
    return "standard input" if name == STANDARD else repr(click.format_filename(name))


@contextmanager
def reading(name: str) -> Iterator[tuple[Stream, int | None]]:
    """Yield the stream to read, and its size if known."""
    if name == STANDARD:
        yield sys.stdin.buffer, None
        return
    with open_to_read(Path(name)) as stream:
        yield stream, os.fstat(stream.fileno()).st_size or None


@contextmanager
def writing(name: str) -> Iterator[Stream]:
    """Yield a stream to write; errors name the file, not the temporary file."""
    path = Path(name)
    with naming(name), cleaning_up(), replacing(path) as file, compressed(file, path) as stream:
        yield stream


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Turn the system's errors about a file into a `Failure` with the file's name."""
    try:
        yield
    except (CollectionsStoreError, BrokenPipeError):
        raise
    except OSError as error:
        raise Failure(f"{shown(name)}: {error.strerror or error}", Exit.FAILED) from error


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Delay a signal to terminate until the incomplete file is removed."""
    received: list[int] = []

    def end(number: int, _: object) -> None:
        received.append(number)
        raise SystemExit(128 + number)

    before = {each: signal.getsignal(each) for each in _ENDING}
    for each, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in received:
            signal.raise_signal(number)


@contextmanager
def progress(size: int | None = None, noun: str = "documents") -> Iterator[Callable[..., None]]:
    """Yield a function that shows a count of documents or of another noun, the position in `size`, and a new size,
    if standard error is a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _count, _position, _size=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    words = TextColumn(f"{{task.fields[count]:,}} {noun}")
    columns = (BarColumn(), TaskProgressColumn(show_speed=False), words)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, count=0)
        yield lambda count, position, size=size: bar.update(
            task, completed=position, total=size, count=count
        )


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that work of unknown length goes on, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(printable(what))):  # no markup: a name is in it
        yield


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
MAX_LINE: Final = 4 * MAX_BODY
"""Bytes; with escapes and spaces, JSON may be several times as long as the stored body."""
MAX_ARRAY: Final = 256 * 2**20
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
EXPIRES: Final = "expires_at"
"""The key of the time when the document of an exported line expires."""
INDEXES: Final = "indexes"
"""The only key of the exported line of indexes; the line of a document has others."""


class BadItem(ValueError):
    """An item that is not a valid document."""


@dataclass(frozen=True, slots=True)
class Item:
    """A line, or an element of an array; `value` may be a `BadItem`. `size`: bytes of a line."""

    place: str
    value: Any
    size: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """A document to import, its position in the input, and its time of expiry; None: the default of the collection."""

    place: str
    id: str
    body: Any
    ends: datetime | None = None

    @property
    def is_expired(self) -> bool:
        return self.ends is not None and self.ends <= datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes of an export, not parsed."""

    values: Any


def parse_json(text: bytes, most: int | None = None) -> Any:
    """Parse JSON whose values take up to `most` bytes, by default the limit of a line; raise `BadItem`.

    `codec.decode` rounds an integer beyond 64 bits to a float. Python's own parser returns the integer, and the
    store can reject the document. Python's parser is slower and only parses texts with long numbers.
    """
    if codec.is_larger(text, MAX_LINE // 4 + 2**20 if most is None else most):
        raise BadItem("too large: it has more values than a body may have")
    try:
        if _LONG_NUMBER.search(text):
            return json.loads(text, parse_constant=_refuse)
        return codec.decode(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise BadItem(f"not JSON: {error.msg} ({line}column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise BadItem(f"not JSON: {error}") from None


def parse_line(text: bytes) -> Any:
    """Parse JSON of at most `MAX_LINE` bytes; raise `BadItem`. The caller reads up to a byte more."""
    if len(text) > MAX_LINE:
        raise BadItem(f"too long: more than {MAX_LINE >> 20} MiB")
    return parse_json(text)


def read_items(stream: IO[bytes]) -> Iterator[Item]:
    """Yield the items of a stream. An array is read completely, lines are read in turn.

    Raise `DamagedInput`. An array of invalid JSON is a single bad item, and so is a line that is too long.
    """
    lines, begun, is_open, number = _lines(uncompressed(stream)), False, False, 0
    for line in lines:
        continues, is_open = is_open, not line.endswith(b"\n")
        if continues:  # the rest of a line that is too long
            continue
        number += 1
        if not begun and line.lstrip()[:1] == b"[":
            yield from _array(chain([b"\n" * (number - 1), line], lines))
        elif line.strip():
            begun = True
            try:
                value = parse_line(line)
            except BadItem as error:
                value = error
            yield Item(f"line {number}", value, len(line))


def to_record(item: Item, id_field: FieldPath | None) -> Record | Indexes:
    """Parse an item: a body with an id field, or a line of `export`; raise `BadItem`."""
    value = item.value
    if isinstance(value, BadItem):
        raise value
    if id_field is None:
        if isinstance(value, dict) and value.keys() == {INDEXES}:
            return Indexes(value[INDEXES])
        if not isinstance(value, dict) or value.keys() - {EXPIRES} != {"id", "body"}:
            raise _not_exported(value)
        return Record(item.place, _as_id(value["id"], "id"), value["body"], _end(value))
    id = value
    for key in id_field.keys:
        if not isinstance(id, dict) or key not in id:
            raise BadItem(f"there is no field {str(id_field)!r} to take the id from")
        id = id[key]
    return Record(item.place, _as_id(id, str(id_field)), value)


def _not_exported(value: Any) -> BadItem:
    from ..engine.backup.archive import FORMAT

    if isinstance(value, dict) and value.get("format") == FORMAT:
        return BadItem("it is the backup of a store: use restore")
    return BadItem(
        'expected {"id": …, "body": …} as export writes it; '
        "--id FIELD takes the id from a field of the document"
    )


def _end(value: dict[str, Any]) -> datetime | None:
    text = value.get(EXPIRES)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        found = None
    if found is None or found.tzinfo is None:
        raise BadItem(f"{EXPIRES}: expected a time with its zone: 2030-01-31T12:00:00Z")
    if (found - datetime.now(UTC)).total_seconds() > MAX_TTL:
        raise BadItem(
            f"{EXPIRES} must be within 1,000 years: omit it if the document never expires"
        )
    return found


def _as_id(value: Any, field: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadItem(f"the field {field!r} must be a string or an integer to be the id")


def _array(parts: Iterable[bytes]) -> Iterator[Item]:
    text = bytearray()
    try:
        for part in parts:
            text += part
            if len(text) > MAX_ARRAY:
                size = f"{MAX_ARRAY >> 20} MiB"
                raise BadItem(f"too long: more than {size}; write each document on its own line")
        values = parse_json(bytes(text), MAX_ARRAY // 4)
    except BadItem as error:
        yield Item("the array", error)
        return
    for position, value in enumerate(values, 1):
        yield Item(f"element {position}", value)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines. A line that is too long comes in parts."""
    line = stream.readline(MAX_LINE + 1).removeprefix(_BYTE_ORDER_MARK)
    while line:
        yield line
        line = stream.readline(MAX_LINE + 1)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
