"""Keys as ids and values as JSON, and back; errors that name the key.

The id of a document is the names of its namespaces, each after its length, and the key. A value of a type unknown to JSON
is an object whose only key is a tag, such as `{"$date": "2026-11-21"}`. A key with `$` at the start, in a dict of the
user, gets another `$`: no dict is mistaken for a tag.
"""

from __future__ import annotations

import hashlib
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from ..codec import MAX_DEPTH
from ..document import check_id, first_after, spelled
from ..errors import (
    CollectionsStoreError,
    DocumentNotFound,
    InvalidBody,
    InvalidId,
    InvalidOption,
    VersionConflict,
    shortened,
)
from ..options import check_iterable

E = TypeVar("E", bound=BaseException)
MEMORY: Final = "memory__"
"""The beginning of the names of all collections of memories."""
_KEY: Final = "/"
"""Stands before a key. An inner namespace begins with a digit, which sorts right after it."""
_NAMESPACE: Final = ":"
_SESSION: Final = ";"
_LENGTH: Final = re.compile(f"(?P<length>[0-9]{{1,4}})(?P<kind>[{_NAMESPACE}{_SESSION}])")
_LONGEST: Final = 150


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace of keys.

    A document's id is the names of its namespaces, each after its length, and the key. Two different pairs of
    namespace and key never have the same id.

    >>> Space().within("room", "42").id_of("topic")
    '4:room2:42/topic'
    """

    path: str = ""
    names: tuple[str, ...] = field(default=(), compare=False)

    def within(self, *names: str) -> Space:
        """Return an inner namespace; raises `InvalidOption`."""
        return self._with(names, _NAMESPACE, "namespace")

    def session(self, name: str) -> Space:
        """Return the namespace of a session, which differs from every `within`."""
        return self._with((name,), _SESSION, "session")

    def id_of(self, key: Any, option: str = "key") -> str:
        """Return the id of the document under a key; raises `InvalidOption`."""
        return _joined(option, self.path + _KEY, key)

    def ids_of(self, keys: Any) -> tuple[str, ...]:
        """Return the ids of several keys; raises `InvalidOption`, for a single string too."""
        return tuple(self.id_of(key) for key in check_iterable("keys", keys))

    def key_of(self, id: str) -> str:
        """Return the key of a document of this namespace."""
        return id[len(self.path) + 1 :]

    def keys(self, prefix: str = "", after: str | None = None) -> dict[str, Any]:
        """Return the filter of this namespace's keys with a prefix, after a key."""
        first = self.id_of(prefix, "prefix")
        begin = {"$gte": first}
        if after is not None and (past := self.id_of(after, "after")) >= first:
            begin = {"$gt": past}
        return {"$id": {**begin, "$lt": first_after(first)}}

    def everything(self) -> dict[str, Any]:
        """Return the filter of the keys of this namespace and of all inner namespaces."""
        return {"$id": {"$gte": f"{self.path}{_KEY}", "$lt": f"{self.path}:"}}

    def _with(self, names: tuple[Any, ...], kind: str, option: str) -> Space:
        if not names:
            raise InvalidOption(option, "must have a name, got none")
        path = self.path
        for name in names:
            plain = _joined(option, "", name)
            path = _joined(option, f"{path}{len(plain)}{kind}", plain)
        return Space(path, (*self.names, *map(str.__str__, names)))


@dataclass(frozen=True, slots=True)
class SpaceName:
    """The name of a namespace or of a session in an id."""

    name: str
    is_session: bool = False


def spaces_of(id: str) -> list[tuple[SpaceName, Space]]:
    """Return the namespaces and sessions of an id, from the outermost on; a rest that is no namespace is a key.

    >>> [(each.name, space.path) for each, space in spaces_of("4:room2:42/topic")]
    [('room', '4:room'), ('42', '4:room2:42')]
    """
    found: list[tuple[SpaceName, Space]] = []
    names: tuple[str, ...] = ()
    position = 0
    while (match := _LENGTH.match(id, position)) is not None:
        end = match.end() + int(match["length"])
        if end > len(id):
            break
        name, position = id[match.end() : end], end
        names = (*names, name)
        found.append((SpaceName(name, match["kind"] == _SESSION), Space(id[:end], names)))
    return found


def _joined(option: str, path: str, text: Any) -> str:
    """Return a path and a string, of any subclass, as an id; raises `InvalidOption`."""
    if not isinstance(text, str):
        raise InvalidOption(option, f"must be a string, got {shortened(text)}")
    try:
        return check_id(path + str.__str__(text))
    except InvalidId as error:
        where = " with its namespaces" if path else ""
        raise InvalidOption(option, f"{shortened(text)}{where}: {error.problem}") from None


def collection_of(namespace: Any) -> str:
    """Return the name of a memory's collection; raises `InvalidOption`."""
    if not isinstance(namespace, str) or not namespace:
        raise InvalidOption("namespace", f"must be a non-empty string, got {shortened(namespace)}")
    name = spelled(namespace)
    if len(name) > _LONGEST:  # no spelled name begins with two underscores
        name = f"__{hashlib.sha256(namespace.encode(errors='surrogatepass')).hexdigest()}"
    return f"{MEMORY}{name}"


@contextmanager
def body_of(key: str) -> Iterator[None]:
    """Put the key before the path of an `InvalidBody`."""
    try:
        yield
    except InvalidBody as error:
        raise InvalidBody(f"{key}.{error.path}".rstrip("."), error.problem) from error


@contextmanager
def document_of(collection: str, space: Space, key: str) -> Iterator[None]:
    """Replace the id by the key in errors of the key's document; errors of a caller's function pass."""
    try:
        yield
    except (DocumentNotFound, VersionConflict) as error:
        if (error.collection, error.id) != (collection, space.id_of(key)):
            raise
        if isinstance(error, DocumentNotFound):
            raise missing(collection, space, key) from None
        named = VersionConflict(collection, key, error.expected, error.found)
        raise _noted(named, collection, space) from None


def missing(collection: str, space: Space, key: str) -> DocumentNotFound:
    """Return the error of a key without a value."""
    return _noted(DocumentNotFound(collection, key), collection, space)


def _noted(error: E, collection: str, space: Space) -> E:
    error.add_note(f"in the memory {'/'.join((collection, *space.names))!r}")
    return error


@contextmanager
def after_block(error: BaseException | None) -> Iterator[None]:
    """Add a note to a block's exception if clearing the memory fails: the exception, above all a cancellation, is raised."""
    try:
        yield
    except CollectionsStoreError as failed:
        if error is None:
            raise
        error.add_note(f"the memory was not cleared: {failed}")


# -- values -----------------------------------------------------------------------------------

Default: TypeAlias = Callable[[Any], Any] | None
_MARK: Final = "$"
_LARGEST: Final = 2**63
_MICROSECOND: Final = timedelta(microseconds=1)


def to_json(value: Any, default: Default = None, depth: int = 0) -> Any:
    """Return a value as JSON; a value of an unknown type stays unchanged, unless the store's `default` converts the value.

    >>> to_json({"when": date(2026, 11, 21), "$price": Decimal("1.50")})
    {'when': {'$date': '2026-11-21'}, '$$price': {'$decimal': '1.50'}}
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > MAX_DEPTH:
        raise InvalidBody("", f"it is nested deeper than {MAX_DEPTH} levels")
    if kind in _SCALARS:
        tag, encode = _SCALARS[kind]
        encoded = encode(value)
        if encoded is None:
            return _converted(value, default, depth)
        return encoded if encoded is value else {tag: encoded}
    if kind in _GROUPS:
        found = [to_json(each, default, depth + 2) for each in value]
        if kind is tuple:
            return {"$tuple": found}
        made = {_GROUPS[kind]: sorted(found, key=repr)}  # a deterministic order
        return made if default is None else _unique(made, value)
    if isinstance(value, dict):
        if all(isinstance(key, str) and not isinstance(key, Enum) for key in value):
            return {_marked(key): to_json(each, default, depth + 1) for key, each in value.items()}
        pairs = [[to_json(each, default, depth + 3) for each in pair] for pair in value.items()]
        made = {"$map": pairs}
        return made if default is None else _unique(made, value)
    if isinstance(value, list):
        return [to_json(each, default, depth + 1) for each in value]
    return _converted(value, default, depth)


def from_json(json: Any) -> Any:
    """Return the value of `to_json`'s result.

    >>> from_json(to_json({"when": date(2026, 11, 21)}))
    {'when': datetime.date(2026, 11, 21)}
    """
    if isinstance(json, list):
        return [from_json(each) for each in json]
    if not isinstance(json, dict):
        return json
    if len(json) == 1:
        [(tag, inner)] = json.items()
        if tag in _DECODERS:
            return _DECODERS[tag](inner)
        if tag.startswith(_MARK) and not tag.startswith(_MARK * 2):
            raise ValueError(f"the type {shortened(tag)} is unknown to this version")
    return {key.removeprefix(_MARK): from_json(each) for key, each in json.items()}


def value_of(key: str, json: Any) -> Any:
    """Return the value of a key; raises `InvalidBody` for JSON written by hand, or with an unknown time zone."""
    try:
        return from_json(json)
    except Exception as error:
        problem = f"cannot be read: {type(error).__name__}: {error}; it stays as it is"
        raise InvalidBody(key, problem) from error


def _converted(value: Any, default: Default, depth: int) -> Any:
    """Return the JSON of the result of the store's `default`; dicts in the result are no tags either."""
    if not isinstance(value, Enum):
        for kind, plain in _PLAINLY.items():
            if isinstance(value, kind):
                return to_json(plain(value))
    if default is None:
        return value  # the codec rejects it, with its path
    try:
        made = default(value)
    except TypeError:
        return value  # the codec rejects it, with this error
    return to_json(made, default, depth + 1)


def _unique(made: Any, value: set[Any] | frozenset[Any] | dict[Any, Any]) -> Any:
    """Return the JSON of a set or a dict; raises `InvalidBody` if the store's `default` made
    unhashable or equal elements or keys.
    """
    try:
        count = len(from_json(made))
    except TypeError as error:
        problem = f"the store's 'default' must make hashable keys and elements of sets: {error}"
        raise InvalidBody("", problem) from error
    if count < len(value):
        raise InvalidBody("", "the store's 'default' must not make equal keys or elements of a set")
    return made


def _marked(key: str) -> str:
    plain = str.__str__(key)
    return _MARK + plain if plain.startswith(_MARK) else plain


def _local_time(value: datetime | time) -> list[Any] | None:
    """Return local time with its offset, the key of its zone, and its fold; None: the zone would be lost. Python
    cannot parse all offsets of fractional seconds: such an offset is added in microseconds.
    """
    zone: str | int | None = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    if zone is None and value.tzinfo is not None:
        offset = value.utcoffset()
        if offset is None:
            return None
        zone = offset // _MICROSECOND if offset.microseconds else None
    return [value.isoformat(), zone, value.fold]


def _with_zone(value: Any, zone: str | int | None, fold: int) -> Any:
    """Return the local time of the parts from `_local_time`."""
    if isinstance(zone, int):
        value = value.replace(tzinfo=timezone(zone * _MICROSECOND))
    elif zone is not None:
        value = value.replace(tzinfo=ZoneInfo(zone))
    return value.replace(fold=fold)


_PLAIN: Final = frozenset({type(None), bool, str})
_PLAINLY: Final[dict[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}
"""The types as which values of their subclasses are stored."""
_GROUPS: Final[dict[type, str]] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}
_SCALARS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    # Python refuses to convert thousands of decimal digits: large integers are hexadecimal
    int: ("$integer", lambda value: value if -_LARGEST <= value < _LARGEST else hex(value)),
    float: ("$float", lambda value: value if math.isfinite(value) else repr(value)),
    datetime: ("$datetime", _local_time),
    date: ("$date", date.isoformat),
    time: ("$time", _local_time),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
    bytes: ("$bytes", lambda value: b64encode(value).decode()),
}
_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$integer": lambda json: int(json, 16),
    "$float": float,
    "$datetime": lambda json: _with_zone(datetime.fromisoformat(json[0]), *json[1:]),
    "$date": date.fromisoformat,
    "$time": lambda json: _with_zone(time.fromisoformat(json[0]), *json[1:]),
    "$timedelta": lambda json: timedelta(*json),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$bytes": lambda json: b64decode(json, validate=True),
    "$tuple": lambda json: tuple(map(from_json, json)),
    "$set": lambda json: set(map(from_json, json)),
    "$frozenset": lambda json: frozenset(map(from_json, json)),
    "$map": lambda json: {from_json(key): from_json(each) for key, each in json},
}
