r"""Bodies to JSON text and back, and the rules for bodies. The only module that uses orjson. Knows no database.

Rules:

1. Every database returns the written body, or the write is rejected: the error names the dotted path of the offending
   value, and nothing is written.
2. The text is orjson's: minified, keys unchanged, only `"`, `\` and control characters escaped. SQLite 3.40 compares a
   key's spelling, not its meaning, so this module spells every text and every path.
3. A float from 1e16 to 2**64 is written with all digits (`10000000000000000.0`). Else PostgreSQL would return an
   integer.

A plain body is walked once (`walk`), and handed to orjson. Only a body with an unusual value takes the careful way,
which knows paths.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import orjson

from ..errors import InvalidBody, shortened
from .times import advice_for, query_value
from .walk import MAX_DEPTH as MAX_DEPTH
from .walk import MAX_INTEGER as MAX_INTEGER
from .walk import MIN_INTEGER as MIN_INTEGER
from .walk import SPELLED_OUT, bytes_left

MAX_BODY: Final = 16 * 2**20
"""The default limit of a body, in bytes."""

if TYPE_CHECKING:
    from ..document import Document

_STRUCTURE: Final = (b",", b":", b"[", b"]", b"{", b"}")
"""Each takes a byte of any spelling of a value, also within a string."""
_NUL = b"\\u0000"
_BACKSLASH: Final = ord("\\")
"""Most texts have none, which is found sooner: a number is sought by `memchr`."""

Unreadable: TypeAlias = Literal["raise", "return", "skip"]
Extra: TypeAlias = Literal["forbid", "allow"]
"""What a read does with a stored body that does not fit the model of its collection."""
Decode: TypeAlias = Callable[[str | bytes], Any]
"""Returns a body from its text. Raises `ValueError`; an `InvalidBody` is raised again with the name of the document."""
decode: Final[Decode] = orjson.loads


def is_larger(text: bytes, most: int) -> bool:
    """Return whether the values of a JSON text take more than `most` bytes, without spaces and escapes. The text is
    not decoded: an empty list, 3 bytes with its comma, takes 64 in memory.
    """
    return len(text) > most and sum(map(text.count, _STRUCTURE)) > most


class BodySkipped(InvalidBody):
    """A stored body does not fit its codec, and reads leave out the document; a warning names the document."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The encoding of bodies in a store.

    `max_bytes` limits the encoded body. `nul`: "error" rejects NUL characters, which PostgreSQL cannot store,
    "replace" writes U+FFFD. `default` is called with each value that is not JSON, and returns JSON, as in
    `json.dumps`.

    `encode` serves filters, updates and pipelines, in which a `datetime` is a time. The bodies of a collection pass
    `encode_body` and `decode_body`, which a subclass overrides for bodies other than
    plain JSON.
    """

    is_plain: ClassVar[bool] = True
    """Whether every JSON value is a body. If not, `encode_updated` must see what an update makes, so SQL cannot."""

    max_bytes: int = MAX_BODY
    nul: Literal["error", "replace"] = "error"
    default: Callable[[Any], Any] | None = None

    def encode_body(self, body: Any) -> str:
        """Return the text of a body that a caller gave; raises `InvalidBody`."""
        text: bytes | None = None
        if bytes_left(body, self.max_bytes) >= 0:
            try:  # noqa: SIM105 - `suppress` takes as long as all of this
                text = orjson.dumps(body)
            except TypeError:  # a key, or a lone surrogate
                pass
        if text is None or (_BACKSLASH in text and _NUL in text):
            _check_size(body, self.max_bytes)
            text = orjson.dumps(self._careful(body, (), 0))
        if len(text) > self.max_bytes:
            raise InvalidBody(
                "", f"{len(text):,} bytes of JSON are more than the limit of {self.max_bytes:,}"
            )
        return text.decode()

    def encode(self, value: Any) -> str:
        """Return the text of a value of a filter, an update or a pipeline; raises `InvalidBody`."""
        try:
            return Codec.encode_body(self, value)
        except InvalidBody:
            default = partial(query_value, self.default)
            return Codec(self.max_bytes, self.nul, default).encode_body(value)

    @property
    def has_model(self) -> bool:
        """Whether bodies are instances of a model, not JSON."""
        return False

    encode_updated = encode_body
    """Return the text of a stored body, as plain JSON, that an update has changed; raises `InvalidBody`."""

    def check_fields(self, parsed: object, what: str = "filter") -> None:
        """Raise `UnknownField` if the argument `what` names a field of no body."""

    def current(self, document: Document) -> Any:
        """Return the body of a stored document, as plain JSON, for an update to change; raises `InvalidBody`."""
        return document.body

    if TYPE_CHECKING:

        def decode_body(self, text: str | bytes) -> Any:
            """Return the body of a stored text; raise the errors of `Decode`."""
    else:
        decode_body = staticmethod(decode)

    def _careful(self, value: Any, path: tuple[str, ...], depth: int) -> Any:
        """Return `value` in the spelling of rules 2 and 3."""
        match value:
            case None | bool():
                return value
            case enum.Enum():
                return self._external(value, path, depth)
            case str():
                return self._text(value, path)
            case int():
                return _integer(value, path)
            case float():
                return _float(value, path)
            case dict():
                return self._object(value, path, _deeper(depth, path))
            case list():
                below = _deeper(depth, path)
                return [self._careful(v, (*path, str(i)), below) for i, v in enumerate(value)]
        return self._external(value, path, depth)

    def _object(self, value: dict[Any, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, below in value.items():
            if not isinstance(key, str) or isinstance(key, enum.Enum):
                raise InvalidBody(_dotted(path), f"the key {shortened(key)} is not a string")
            position = (*path, key)
            name = self._text(key, position)
            if name in result:
                raise InvalidBody(_dotted(position), "two keys become one when NUL is replaced")
            result[name] = self._careful(below, position, depth)
        return result

    def _text(self, value: str, path: tuple[str, ...]) -> str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidBody(
                _dotted(path), f"a lone surrogate at character {error.start} is not Unicode"
            ) from None
        if "\0" not in value:
            return str.__str__(value)
        if self.nul == "replace":
            return value.replace("\0", "\ufffd")
        raise InvalidBody(
            _dotted(path),
            "holds a NUL character, as no stored string does; "
            "in a store with nul='replace' U+FFFD takes its place",
        )

    def _external(self, value: Any, path: tuple[str, ...], depth: int) -> Any:
        kind = type(value).__name__
        if self.default is None:
            raise InvalidBody(_dotted(path), f"{kind} is not JSON: {advice_for(value)}")
        try:
            replacement = self.default(value)
        except TypeError as error:
            raise InvalidBody(_dotted(path), f"{kind} is not JSON: {error}") from error
        return self._careful(replacement, path, _deeper(depth, path))


def plain_text(value: Any, most: int) -> bytes | None:
    """Return the text of a value that has only plain JSON in it, of about `most` bytes; None for any other value."""
    if bytes_left(value, most) < 0:
        return None
    try:
        return orjson.dumps(value)
    except TypeError:
        return None


def spell(value: Any) -> str:
    """Return a string or a number in the spelling of stored texts."""
    return orjson.dumps(_float(value, ()) if isinstance(value, float) else value).decode()


def canonical(value: Any) -> bytes:
    """Return the only spelling of equal JSON values of all databases, for comparisons and checksums: minified, keys
    sorted by code point, and no minus zero, which PostgreSQL cannot store.
    """
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if b"-0.0" in text:
        text = orjson.dumps(_without_minus_zero(value), option=orjson.OPT_SORT_KEYS)
    return text


def _without_minus_zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_minus_zero(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_minus_zero(each) for each in value]
    return 0.0 if isinstance(value, float) and value == 0 else value


def _check_size(body: Any, most: int) -> None:
    """Raise `InvalidBody` for a body of more than `most` bytes, as far as its values show, before the encoding."""
    level, remaining = [(body,)], most + 2
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for values in level:
            remaining -= 2 * len(values)
            for value in values:
                if type(value) is str:
                    remaining -= len(value)
                else:
                    below += _values_in(value)
            if remaining < 0:
                raise InvalidBody("", f"its bytes of JSON are more than the limit of {most:,}")
        level = below


def _values_in(value: Any) -> tuple[Any, ...]:
    """Return the values of a dict or list, subclasses included."""
    if isinstance(value, dict):
        return (value.values(),)
    return (value,) if isinstance(value, list) else ()


def _integer(value: int, path: tuple[str, ...]) -> int:
    number = int.__int__(value)  # a subclass may compare as it likes
    if MIN_INTEGER <= number <= MAX_INTEGER:
        return number
    raise InvalidBody(_dotted(path), "an integer beyond 64 bit: store it as a string")


def _float(value: float, path: tuple[str, ...]) -> float | orjson.Fragment:
    number = float.__float__(value)
    if not math.isfinite(number):
        raise InvalidBody(_dotted(path), f"{number} is not JSON: store null or a string")
    if SPELLED_OUT <= abs(number) < 2.0**64:
        return orjson.Fragment(f"{int(number)}.0")
    return number


def _deeper(depth: int, path: tuple[str, ...]) -> int:
    if depth == MAX_DEPTH:
        raise InvalidBody(_dotted(path), f"nested deeper than {MAX_DEPTH} levels")
    return depth + 1


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(path)
