"""MongoDB's values as JSON."""

import io
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from collections_store import Document
from collections_store.integrations.bson import (
    document_of,
    from_extended_json,
    read_dump,
    to_extended_json,
)

UUID_TEXT = "00112233-4455-6677-8899-aabbccddeeff"
VALUES: list[tuple[Any, Any]] = [
    ({"$oid": "65a0c0ffee00000000000000"}, "65a0c0ffee00000000000000"),
    ({"$numberInt": "-5"}, -5),
    ({"$numberLong": "9223372036854775807"}, 2**63 - 1),
    ({"$numberDouble": "1.5"}, 1.5),
    ({"$numberDouble": "-0.0"}, 0.0),
    ({"$numberDouble": "1e+300"}, 1e300),
    ({"$numberDouble": "-.5E-1"}, -0.05),
    ({"$numberDouble": 7}, 7.0),
    ({"$numberLong": 5}, 5),
    ({"$numberDecimal": "1.10"}, "1.10"),
    ({"$date": {"$numberLong": "1700000000123"}}, "2023-11-14T22:13:20.123000Z"),
    ({"$date": {"$numberLong": "-62135596800000"}}, "0001-01-01T00:00:00.000000Z"),
    ({"$date": 0}, "1970-01-01T00:00:00.000000Z"),
    ({"$date": "2023-11-14T22:13:20Z"}, "2023-11-14T22:13:20.000000Z"),
    ({"$date": "2023-11-14T23:13:20.5+01:00"}, "2023-11-14T22:13:20.500000Z"),
    ({"$binary": {"base64": "AQI=", "subType": "00"}}, "AQI="),
    ({"$binary": {"base64": "ABEiM0RVZneImaq7zN3u/w==", "subType": "04"}}, UUID_TEXT),
    ({"$binary": "AQI=", "$type": "00"}, "AQI="),
    ({"$uuid": UUID_TEXT}, UUID_TEXT),
    ({"$regularExpression": {"pattern": "^a", "options": "i"}}, "/^a/i"),
    ({"$regex": "^a", "$options": ""}, "/^a/"),
    ({"$timestamp": {"t": 5, "i": 1}}, {"t": 5, "i": 1}),
    ({"$symbol": "s"}, "s"),
    ({"$code": "f()"}, "f()"),
    ({"$code": "f()", "$scope": {}}, "f()"),
    ({"$undefined": True}, None),
    (
        {"$dbPointer": {"$ref": "a", "$id": {"$oid": "65a0c0ffee00000000000000"}}},
        {"$ref": "a", "$id": "65a0c0ffee00000000000000"},
    ),
    ({"$ref": "a", "$id": {"$numberInt": "1"}}, {"$ref": "a", "$id": 1}),
    ({"a": [{"$numberInt": "1"}, {"b": {"$oid": "x"}}]}, {"a": [1, {"b": "x"}]}),
    ({"$numberInt": "1", "other": 2}, {"$numberInt": "1", "other": 2}),
    ({"$unknown": 1}, {"$unknown": 1}),
    (None, None),
    (1.5, 1.5),
]
BAD: list[Any] = [
    {"$numberDouble": "NaN"},
    {"$numberDouble": "Infinity"},
    {"$numberLong": "x"},
    {"$numberLong": None},
    {"$numberLong": "1_0"},
    {"$numberInt": " 1"},
    {"$numberInt": True},
    {"$numberInt": 1.5},
    {"$numberInt": "\u0663"},
    {"$numberDouble": "1_0.5"},
    {"$numberDouble": True},
    {"$date": {"$numberLong": "1_0"}},
    {"$timestamp": {"t": 1.5, "i": 1}},
    {"$date": {"$numberLong": "999999999999999999"}},
    {"$date": "yesterday"},
    {"$date": None},
    {"$binary": {"base64": "?", "subType": "00"}},
    {"$binary": {"subType": "00"}},
    {"$binary": {"base64": "AQI=", "subType": "04"}},
    {"$oid": 5},
    {"$timestamp": 5},
    {"$minKey": 1},
    {"$maxKey": 1},
]


@pytest.mark.parametrize(("extended", "plain"), VALUES, ids=str)
def test_extended_json_becomes_json(extended: Any, plain: Any) -> None:
    found = from_extended_json(extended)
    assert found == plain
    assert type(found) is type(plain)


@pytest.mark.parametrize("extended", BAD, ids=str)
def test_what_json_cannot_have_is_an_error(extended: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(extended)).replace("$", r"\$")):
        from_extended_json({"a": [extended]})


def test_a_document_has_its_id() -> None:
    assert document_of({"_id": {"$oid": "ab"}, "_x": 1}) == ("ab", {"_x": 1})
    assert document_of({"_id": {"a": {"$numberInt": "1"}, "b": "ü"}}) == ('{"a":1,"b":"ü"}', {})
    whole: list[Any] = [7, 7.0, {"$numberDouble": "7.0"}, {"$numberLong": "7"}]
    assert [document_of({"_id": each}) for each in whole] == [(7, {})] * 4
    values: list[Any] = [5, [], {}, {"id": 1}, *({"_id": each} for each in (True, None, 1.5))]
    for value in values:
        with pytest.raises(ValueError, match="_id"):
            document_of(value)


def test_documents_for_mongodb_are_objects_without_an_id() -> None:
    assert list(to_extended_json(Document("a", {"x": 1}))) == ["_id", "x"]
    bodies: list[Any] = [5, [], {"_id": 1}]
    for body in bodies:
        with pytest.raises(ValueError, match="'a'"):
            to_extended_json(Document("a", body))


def test_a_dump_is_read() -> None:
    bson = pytest.importorskip("bson")
    documents = [
        {
            "_id": bson.ObjectId("65a0c0ffee00000000000000"),
            "at": datetime(2030, 1, 31, tzinfo=UTC),
            "far": bson.DatetimeMS(2**45),
            "long": bson.Int64(2**40),
            "decimal": bson.Decimal128("1.10"),
            "uuid": bson.Binary.from_uuid(UUID(UUID_TEXT)),
            "bytes": b"\x01\x02",
            "pattern": bson.Regex("^a", "i"),
            "nested": {"list": [1, 2.5, None, True]},
        },
        {"_id": 7},
    ]
    data = b"".join(map(bson.encode, documents))
    found = [document_of(json.loads(text)) for text in read_dump(io.BytesIO(data))]
    assert found == [
        (
            "65a0c0ffee00000000000000",
            {
                "at": "2030-01-31T00:00:00.000000Z",
                "far": "3084-12-12T12:41:28.832000Z",
                "long": 2**40,
                "decimal": "1.10",
                "uuid": UUID_TEXT,
                "bytes": "AQI=",
                "pattern": "/^a/i",
                "nested": {"list": [1, 2.5, None, True]},
            },
        ),
        (7, {}),
    ]
    for damaged in (data[:1], data[:3], data[:-1], bytes(8), b"\xff\xff\xff\x7f" + bytes(8)):
        with pytest.raises(ValueError, match="damaged"):
            list(read_dump(io.BytesIO(damaged)))
