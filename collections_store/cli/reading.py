"""What `import` reads: JSON lines or one JSON array, gzipped or not, an object at a time."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BufferedReader
from typing import IO, Any, Final, NoReturn, cast

from .. import Path, codec
from ..expiry import MAX_TTL

_GZIP: Final = b"\x1f"
"""The first of gzip's two magic bytes; no JSON begins with it."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
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
    """A line, or an element of an array; `load` returns its JSON and raises `BadItem`."""

    place: str
    load: Callable[[], Any]


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


def read_items(stream: IO[bytes]) -> Iterator[Item]:
    """Yield what a stream holds; an array is read as a whole, lines one by one.

    Raises `DamagedInput`; an array that is not JSON is one bad item.
    """
    lines, begun = _lines(_unzipped(stream)), False
    for number, line in enumerate(lines, 1):
        if not begun and line.lstrip()[:1] == b"[":
            yield from _elements(b"\n" * (number - 1) + line + b"".join(lines))
        elif line.strip():
            begun = True
            yield Item(f"line {number}", partial(parse_json, line))


def to_record(item: Item, id_field: Path | None) -> Record | Indexes:
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


def _field(value: Any, field: Path) -> Any:
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


def _elements(text: bytes) -> Iterator[Item]:
    try:
        values = parse_json(text)
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
    try:
        for number, line in enumerate(stream):
            yield line if number else line.removeprefix(_BYTE_ORDER_MARK)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedInput(f"the gzipped data is damaged: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _fail(error: BadItem) -> NoReturn:
    raise error


def _same(value: Any) -> Any:
    return value
