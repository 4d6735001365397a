"""MongoDB's values as JSON: Extended JSON, as mongoexport writes it, and BSON, as mongodump does.

docs/how-to/import-export.md has the table of types. BSON needs pymongo's package `bson`, of the extra `mongodb`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Final
from uuid import UUID

from .. import Document, MissingExtra

MAX_DOCUMENT: Final = 17 * 2**20
"""Bytes; MongoDB's limit is 16 MiB, and 16 KiB more for its own documents."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UUID: Final = 4
"""The subtype of BSON's UUIDs; those of subtype 3 have several orders of bytes."""
_INTEGER: Final = re.compile("[+-]?[0-9]+")
"""`int` reads more, such as "1_0"."""
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def from_extended_json(value: Any) -> Any:
    """Return plain JSON for a parsed value of MongoDB's Extended JSON, canonical or relaxed. Raise `ValueError` for
    a value without a JSON form.

    >>> from_extended_json({"_id": {"$oid": "65a0c0ffee00000000000000"}, "n": {"$numberLong": "5"}})
    {'_id': '65a0c0ffee00000000000000', 'n': 5}
    """
    if isinstance(value, list):
        return [from_extended_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    key = next((key for key in value if key in _TYPES), None)
    if key is None or value.keys() - _TYPES[key][1] != {key}:
        return {key: from_extended_json(each) for key, each in value.items()}
    try:
        return _TYPES[key][0](value[key], value)
    except (AttributeError, KeyError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{key} has an invalid value ({error})") from None


def document_of(value: Any) -> tuple[Any, Any]:
    """Return the id and the body of a document of MongoDB in Extended JSON; raise `ValueError`.

    >>> document_of({"_id": {"$numberInt": "7"}, "name": "Ada"})
    (7, {'name': 'Ada'})
    """
    if not isinstance(value, dict) or "_id" not in value:
        raise ValueError("it must be a document with the field '_id'")
    body = from_extended_json(value)
    id = body.pop("_id")
    if isinstance(id, dict | list):
        id = json.dumps(id, separators=(",", ":"), ensure_ascii=False)
    elif isinstance(id, float) and id.is_integer():
        id = int(id)  # as MongoDB compares them
    elif id is None or isinstance(id, bool | float):
        raise ValueError(f"_id must not be {json.dumps(id)}")
    return id, body


def to_extended_json(document: Document) -> dict[str, Any]:
    """Return a document as mongoimport reads it: the id as `_id`, before the fields of the body. Raise `ValueError`
    if the body is not an object or has a field `_id`.

    >>> to_extended_json(Document("ada", {"age": 36}))
    {'_id': 'ada', 'age': 36}
    """
    if not isinstance(document.body, dict) or "_id" in document.body:
        raise ValueError(f"{document.id!r}: the body must be an object without a field '_id'")
    return {"_id": document.id, **document.body}


def read_dump(stream: IO[bytes]) -> Iterator[str]:
    """Yield the documents of a collection of mongodump, a .bson file, as texts of canonical Extended JSON. Raise
    `MissingExtra`, and `ValueError` where the file is damaged.
    """
    try:
        import bson
        from bson import json_util
    except ImportError as error:
        raise MissingExtra("pymongo", "mongodb") from error
    options = json_util.CANONICAL_JSON_OPTIONS
    codec: Any = bson.CodecOptions(
        document_class=bson.SON, datetime_conversion=bson.DatetimeConversion.DATETIME_AUTO
    )
    try:
        while size := stream.read(4):
            length = int.from_bytes(size, "little")
            if length > MAX_DOCUMENT:
                raise bson.errors.InvalidBSON(f"a document of {length:,} bytes")
            document = bson.decode(size + stream.read(max(length - 4, 0)), codec)
            yield json_util.dumps(document, json_options=options)
    except bson.errors.InvalidBSON as error:
        raise ValueError(f"the BSON is damaged: {error}") from error


def _integer(given: Any, _: Any = None) -> int:
    if type(given) is int:
        return given
    if not isinstance(given, str) or not _INTEGER.fullmatch(given):
        raise ValueError("it must be an integer")
    return int(given)


def _double(given: Any, _: Any) -> float:
    found = float(given)
    if not math.isfinite(found):
        raise ValueError(f"{given} is not JSON")
    if not _NUMBER.fullmatch(str(given)):
        raise ValueError("it must be a number")
    return found


def _text(text: Any, _: Any) -> str:
    if not isinstance(text, str):
        raise TypeError("it must be a string")
    return text


def _date(given: Any, _: Any) -> str:
    """Return the time in UTC, with six digits: such strings sort by time."""
    if isinstance(given, str):
        time = datetime.fromisoformat(given)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    else:
        milliseconds = given["$numberLong"] if isinstance(given, dict) else given
        time = _EPOCH + timedelta(milliseconds=_integer(milliseconds))
    return f"{time.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _binary(given: Any, whole: Any) -> str:
    text, kind = given, whole.get("$type", "0")  # before MongoDB 4.2
    if isinstance(given, dict):
        text, kind = given["base64"], given["subType"]
    data = base64.b64decode(text, validate=True)
    return str(UUID(bytes=data)) if int(str(kind), 16) == _UUID else str(text)


def _pattern(given: Any, whole: Any) -> str:
    if isinstance(given, dict):
        return f"/{given['pattern']}/{given['options']}"
    return f"/{given}/{whole.get('$options', '')}"


def _timestamp(given: Any, _: Any) -> dict[str, int]:
    return {"t": _integer(given["t"]), "i": _integer(given["i"])}


def _pointer(given: Any, _: Any) -> Any:
    return {"$ref": given["$ref"], "$id": from_extended_json(given["$id"])}


def _nothing(_given: Any, _whole: Any) -> None:
    return None


def _refused(_given: Any, _whole: Any) -> Any:
    raise ValueError("JSON has no such value")


_TYPES: Final[dict[str, tuple[Callable[[Any, Any], Any], frozenset[str]]]] = {
    "$oid": (_text, frozenset()),
    "$numberInt": (_integer, frozenset()),
    "$numberLong": (_integer, frozenset()),
    "$numberDouble": (_double, frozenset()),
    "$numberDecimal": (_text, frozenset()),
    "$date": (_date, frozenset()),
    "$binary": (_binary, frozenset({"$type"})),
    "$uuid": (_text, frozenset()),
    "$regularExpression": (_pattern, frozenset()),
    "$regex": (_pattern, frozenset({"$options"})),
    "$timestamp": (_timestamp, frozenset()),
    "$symbol": (_text, frozenset()),
    "$code": (_text, frozenset({"$scope"})),
    "$dbPointer": (_pointer, frozenset()),
    "$undefined": (_nothing, frozenset()),
    "$minKey": (_refused, frozenset()),
    "$maxKey": (_refused, frozenset()),
}
"""The keys of Extended JSON: the function that returns the JSON value, and the keys that may be beside it."""
