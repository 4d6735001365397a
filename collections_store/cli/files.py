"""Files to read and to write: JSON lines or one JSON array, gzipped or not, and how far the reading has come."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BufferedReader
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, NoReturn, cast

import click

from .. import Path as FieldPath
from .. import codec
from ..document import MAX_TTL
from ..errors import CollectionsStoreError
from ..options import MAX_BODY
from .exits import Exit, Failure

STANDARD = "-"
"""The name that means standard input or output."""

Stream = IO[bytes]
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def check_readable(name: str) -> None:
    """Refuse what cannot be read from, before anything else is done."""
    if name == STANDARD:
        if sys.stdin.isatty():
            raise click.UsageError("standard input is a terminal: name a file, or pipe one in")
    elif not Path(name).exists():
        raise click.UsageError(f"there is no file {shown(name)}")
    elif Path(name).is_dir():
        raise click.UsageError(f"{shown(name)} is a folder")


def shown(name: str) -> str:
    """Return a file's name for a message."""
    return "standard input" if name == STANDARD else repr(click.format_filename(name))


@contextmanager
def reading(name: str) -> Iterator[tuple[Stream, int | None]]:
    """Give the stream to read, and its size if that is known."""
    if name == STANDARD:
        yield sys.stdin.buffer, None
        return
    with Path(name).open("rb") as stream:
        yield stream, os.fstat(stream.fileno()).st_size or None


@contextmanager
def writing(name: str) -> Iterator[Stream]:
    """Do as `_writing` does; errors of the file name it, not the one that takes its place."""
    try:
        with _writing(name) as stream:
            yield stream
    except (CollectionsStoreError, BrokenPipeError):
        raise
    except OSError as error:
        raise Failure(f"{shown(name)}: {error.strerror or error}", Exit.FAILED) from error


@contextmanager
def _writing(name: str) -> Iterator[Stream]:
    """Give a stream whose contents take the file's place once they are complete. They are private, unless the file was not."""
    path = Path(name).resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as device:  # /dev/null, a named pipe: nothing to replace
            yield device
        return
    with (
        _cleaning_up(),
        NamedTemporaryFile(
            prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent, delete=False
        ) as raw,
    ):
        part = Path(raw.name)
        try:
            with _zipped(raw, path) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
            if path.exists():
                shutil.copymode(path, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _cleaning_up() -> Iterator[None]:
    """Have a signal that ends the program do so when what is half written is removed."""
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


def _zipped(raw: Stream, path: Path) -> Any:
    if path.suffix.lower() != ".gz":
        return nullcontext(raw)
    return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)


def _show_nothing(kept: int, position: int) -> None:
    """Take what `progress` would show."""


@contextmanager
def progress(size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how many documents are done, and how much of `size` is.

    The bar is drawn on standard error, and only if that is a terminal.
    """
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    words = TextColumn("{task.fields[kept]:,} objects")
    columns = (BarColumn(), TaskProgressColumn(show_speed=False), words)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=size, kept=0)
        yield lambda kept, position: bar.update(task, completed=position, kept=kept)


_GZIP: Final = b"\x1f"
"""The first of gzip's two magic bytes; no JSON begins with it."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
MAX_LINE: Final = 4 * MAX_BODY
"""Bytes; with escapes and spaces JSON may be several times as long as the body that is stored."""
MAX_ARRAY: Final = 256 * 2**20
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
EXPIRES: Final = "expires_at"
"""The key of a line of an export that tells when its object expires, if it does."""
INDEXES: Final = "indexes"
"""The one key of the line of an export that tells of indexes; a line of an object has others."""


class BadItem(ValueError):
    """What stands there is not an object that can be imported."""


class DamagedInput(ValueError):
    """The input ends or breaks in the middle: nothing behind that place can be read."""


@dataclass(frozen=True, slots=True)
class Item:
    """A line, or an element of an array; `load` returns its JSON and raises `BadItem`. `size`: bytes of a line."""

    place: str
    load: Callable[[], Any]
    size: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """An object to import, where it stands, and when it expires; None: the collection says."""

    place: str
    id: str
    body: Any
    ends: datetime | None = None

    @property
    def is_gone(self) -> bool:
        """Has it expired?"""
        return self.ends is not None and self.ends <= datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Indexes:
    """What an export tells of the indexes of its collection, unread, and where."""

    place: str
    values: Any


def parse_json(text: bytes) -> Any:
    """Read JSON; raises `BadItem`.

    `codec.decode` rounds an integer beyond 64 bit to a float. Python's own reader does not, so the
    store can refuse it; it is the slower one, and only texts with long numbers take it.
    """
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
    """Read JSON of which no more was read than one byte too many; raises `BadItem`."""
    if len(text) > MAX_LINE:
        raise BadItem(f"too long: more than {_mebibytes(MAX_LINE)}")
    return parse_json(text)


def read_items(stream: IO[bytes]) -> Iterator[Item]:
    """Yield what a stream holds; an array is read as a whole, lines one by one.

    Raises `DamagedInput`; an array that is not JSON is one bad item, and so is a line that is too long.
    """
    lines, begun, is_open, number = _lines(_unzipped(stream)), False, False, 0
    for line in lines:
        continues, is_open = is_open, not line.endswith(b"\n")
        if continues:  # the rest of a line that is too long
            continue
        number += 1
        if not begun and line.lstrip()[:1] == b"[":
            yield from _array(chain([b"\n" * (number - 1), line], lines))
        elif line.strip():
            begun = True
            yield Item(f"line {number}", partial(parse_line, line), len(line))


def to_record(item: Item, id_field: FieldPath | None) -> Record | Indexes:
    """Return what an item is: a body with its id in a field, or a line of `export`; raises
    `BadItem`.
    """
    value = item.load()
    if id_field is None:
        if isinstance(value, dict) and value.keys() == {INDEXES}:
            return Indexes(item.place, value[INDEXES])
        if not isinstance(value, dict) or value.keys() - {EXPIRES} != {"id", "body"}:
            raise BadItem(
                'expected {"id": …, "body": …} as export writes it; '
                "--id FIELD takes the id from a field of the object"
            )
        return Record(item.place, _as_id(value["id"], "id"), value["body"], _end(value))
    return Record(item.place, _as_id(_field(value, id_field), str(id_field)), value)


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
        raise BadItem(f"{EXPIRES} is over 1,000 years away: leave it out of what never expires")
    return found


def _field(value: Any, field: FieldPath) -> Any:
    for key in field.keys:
        if not isinstance(value, dict) or key not in value:
            raise BadItem(f"there is no field {str(field)!r} to take the id from")
        value = value[key]
    return value


def _as_id(value: Any, field: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadItem(f"the field {field!r} is neither a string nor an integer, and so is no id")


def _array(parts: Iterable[bytes]) -> Iterator[Item]:
    text = bytearray()
    try:
        for part in parts:
            text += part
            if len(text) > MAX_ARRAY:
                size = _mebibytes(MAX_ARRAY)
                raise BadItem(f"too long: more than {size}; write an object in each line")
        values = parse_json(bytes(text))
    except BadItem as error:
        yield Item("the array", partial(_fail, error))
        return
    for position, value in enumerate(values, 1):
        yield Item(f"element {position}", partial(_same, value))


def _unzipped(stream: IO[bytes]) -> IO[bytes]:
    buffered = stream if isinstance(stream, BufferedReader) else BufferedReader(cast(Any, stream))
    if buffered.peek(1)[:1] == _GZIP:
        return BufferedReader(gzip.GzipFile(fileobj=buffered))
    return buffered


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines; one that is too long comes in several parts."""
    try:
        line = stream.readline(MAX_LINE + 1).removeprefix(_BYTE_ORDER_MARK)
        while line:
            yield line
            line = stream.readline(MAX_LINE + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedInput(f"the gzipped data is damaged: {error}") from error


def _mebibytes(limit: int) -> str:
    return f"{limit >> 20} MiB"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _fail(error: BadItem) -> NoReturn:
    raise error


def _same(value: Any) -> Any:
    return value
