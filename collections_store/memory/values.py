"""Python's values as JSON and back: what hosts keep besides what JSON has.

What JSON has no type for is an object whose only key is a tag, such as `{"$date": "2026-11-21"}`. In a caller's own
objects each key that begins with `$` gets another `$`, so no object of theirs is ever taken for a tag.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

from ..codec import MAX_DEPTH
from ..errors import InvalidBody, shortened

Default: TypeAlias = Callable[[Any], Any] | None
_MARK: Final = "$"
_LARGEST: Final = 2**63
_MICROSECOND: Final = timedelta(microseconds=1)


def to_json(value: Any, default: Default = None, depth: int = 0) -> Any:
    """Return a value as JSON; what is of none of the types that come back is left as it is, unless `default`,
    the store's, makes another value of it.

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
            return _foreign(value, default, depth)
        return encoded if encoded is value else {tag: encoded}
    if kind in _GROUPS:
        made = {_GROUPS[kind]: _sorted(value, default, depth + 2)}
        return made if kind is tuple or default is None else _unique(made, value)
    if isinstance(value, dict):
        return _of_dict(value, default, depth + 1)
    if isinstance(value, list):
        return [to_json(each, default, depth + 1) for each in value]
    return _foreign(value, default, depth)


def from_json(json: Any) -> Any:
    """Return the value that was made JSON of.

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
            raise ValueError(f"this version does not know the type {shortened(tag)}")
    return {_unmarked(key): from_json(each) for key, each in json.items()}


def value_of(key: str, json: Any) -> Any:
    """Return the value that is kept under a key; raises `InvalidBody` for what was written by hand, or where there
    is another database of zones.
    """
    try:
        return from_json(json)
    except Exception as error:
        problem = f"it cannot be read: {type(error).__name__}: {error}. It stays as it is"
        raise InvalidBody(key, problem) from error


def _of_dict(value: dict[Any, Any], default: Default, depth: int) -> Any:
    if all(type(key) is str or _is_text(key) for key in value):
        return {_marked(key): to_json(each, default, depth) for key, each in value.items()}
    within = depth + 2
    pairs = ([to_json(each, default, within) for each in pair] for pair in value.items())
    made = {"$map": list(pairs)}
    return made if default is None else _unique(made, value)


def _foreign(value: Any, default: Default, depth: int) -> Any:
    """Return what the store's function makes of a value: a value too, and so never taken for a tag."""
    if not isinstance(value, Enum):
        for kind, plain in _PLAINLY.items():
            if isinstance(value, kind):
                return to_json(plain(value))
    if default is None:
        return value  # the codec refuses it, and tells where it is
    try:
        made = default(value)
    except TypeError:
        return value  # the codec tells what the function said, too
    return to_json(made, default, depth + 1)


def _unique(made: Any, value: set[Any] | frozenset[Any] | dict[Any, Any]) -> Any:
    """Return a set or a dict as JSON if it can be read: raises `InvalidBody` if the store's function made of
    its elements or keys what cannot be one, or the same of two.
    """
    try:
        count = len(from_json(made))
    except TypeError as error:
        problem = f"what the store's 'default' makes cannot be a key, or in a set: {error}"
        raise InvalidBody("", problem) from error
    if count < len(value):
        raise InvalidBody("", "the store's 'default' makes one of two keys, or elements of a set")
    return made


def _is_text(key: Any) -> bool:
    return isinstance(key, str) and not isinstance(key, Enum)


def _marked(key: str) -> str:
    plain = str.__str__(key)
    return _MARK + plain if plain.startswith(_MARK) else plain


def _unmarked(key: str) -> str:
    return key[1:] if key.startswith(_MARK) else key


def _sorted(value: Any, default: Default, depth: int) -> list[Any]:
    """Return the elements: of a set in an order that depends on nothing else."""
    found = [to_json(each, default, depth) for each in value]
    return found if isinstance(value, tuple) else sorted(found, key=repr)


def _moment(value: datetime | time) -> list[Any] | None:
    """Return local time with its offset, the name of its zone if it has one, and which of two it is; None:
    of its zone nothing would come back. Python does not read all offsets that are no whole seconds: those are
    there in microseconds, too.
    """
    zone: str | int | None = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    if zone is None and value.tzinfo is not None:
        offset = value.utcoffset()
        if offset is None:
            return None
        zone = offset // _MICROSECOND if offset.microseconds else None
    return [value.isoformat(), zone, value.fold]


def _with_zone(value: Any, zone: str | int | None, fold: int) -> Any:
    if isinstance(zone, int):
        value = value.replace(tzinfo=timezone(zone * _MICROSECOND))
    elif zone is not None:
        value = value.replace(tzinfo=ZoneInfo(zone))
    return value.replace(fold=fold)


def _datetime(json: list[Any]) -> datetime:
    found: datetime = _with_zone(datetime.fromisoformat(json[0]), *json[1:])
    return found


def _time(json: list[Any]) -> time:
    found: time = _with_zone(time.fromisoformat(json[0]), *json[1:])
    return found


def _integer(value: int) -> int | str:
    """Spell large ones by 16, as Python refuses to spell thousands of digits by 10."""
    return value if -_LARGEST <= value < _LARGEST else hex(value)


def _float(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


_PLAIN: Final = frozenset({type(None), bool, str})
_PLAINLY: Final[dict[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}
"""What a value of a subclass of these is taken for."""
_GROUPS: Final[dict[type, str]] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset"}
_SCALARS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    int: ("$integer", _integer),
    float: ("$float", _float),
    datetime: ("$datetime", _moment),
    date: ("$date", date.isoformat),
    time: ("$time", _moment),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    Decimal: ("$decimal", str),
    UUID: ("$uuid", str),
    bytes: ("$bytes", lambda value: b64encode(value).decode()),
}
_DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$integer": lambda json: int(json, 16),
    "$float": float,
    "$datetime": _datetime,
    "$date": date.fromisoformat,
    "$time": _time,
    "$timedelta": lambda json: timedelta(*json),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$bytes": b64decode,
    "$tuple": lambda json: tuple(map(from_json, json)),
    "$set": lambda json: set(map(from_json, json)),
    "$frozenset": lambda json: frozenset(map(from_json, json)),
    "$map": lambda json: {from_json(key): from_json(each) for key, each in json},
}
