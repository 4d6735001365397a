"""`$jsonSchema`, with the same results on every backend, sync and async.

The cases are those of MongoDB's documentation and of what its server is known to accept and refuse.
"""

import builtins
import pickle
import sys
from typing import Any

import pytest

from collections_store import F, Filter, InvalidFilter, MissingExtra
from collections_store.query import json_schema
from collections_store.query.parser import READERS
from collections_store.query.shapes import shape_of

BODIES: dict[str, Any] = {
    "1": {"n": 1, "s": "str", "t": [1, "a"], "o": {"x": 1, "y": "z"}},
    "2": {"n": 1.0, "s": "string", "t": [], "o": {"x": "1"}},
    "3": {"n": -2.5, "s": "Ärger", "t": [1, True, 1.5], "o": {}},
    "4": {"n": 2**40, "t": [1, 1.0], "o": [{"x": 1}]},
    "5": {"n": True, "t": [[1], [True], {"k": 0}], "e": [{"k": 1}, {"k": "one"}]},
    "6": {"n": None, "t": [{"k": 1, "l": 2}, {"l": 2, "k": 1.0}]},
    "7": {"n": "1", "t": "a"},
    "8": {},
    "9": [1, "a"],
}


def of(field: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {field: schema}}


CASES: list[tuple[dict[str, Any], str]] = [
    ({}, "123456789"),
    ({"title": "any", "description": "thing"}, "123456789"),
    ({"type": "object"}, "12345678"),
    ({"type": ["array", "null"]}, "9"),
    ({"bsonType": "long"}, ""),
    ({"bsonType": "objectId"}, ""),
    ({"required": ["n", "s"]}, "1239"),
    ({"required": ["n"], **of("n", {"type": "number"})}, "12349"),
    # types; missing fields are valid
    (of("n", {"type": "number"}), "123489"),
    (of("n", {"bsonType": "number"}), "123489"),
    (of("n", {"bsonType": "int"}), "189"),
    (of("n", {"bsonType": ["long", "double"]}), "23489"),
    (of("n", {"type": "boolean"}), "589"),
    (of("n", {"bsonType": ["bool", "null", "string"]}), "56789"),
    (of("n", {"bsonType": "decimal"}), "89"),
    (of("t", {"type": "array"}), "12345689"),
    (of("t", {"type": "string"}), "789"),
    # keywords of one type do not apply to others
    (of("n", {"maximum": 1}), "12356789"),
    (of("n", {"maximum": 1, "exclusiveMaximum": True}), "356789"),
    (of("n", {"maximum": 1, "exclusiveMaximum": False}), "12356789"),
    (of("n", {"minimum": 1}), "12456789"),
    (of("n", {"minimum": 1, "exclusiveMinimum": True}), "456789"),
    (of("n", {"type": "string", "maximum": 0}), "789"),
    (of("n", {"multipleOf": 0.5}), "123456789"),
    (of("n", {"multipleOf": 2}), "456789"),
    (of("s", {"minLength": 4}), "23456789"),
    (of("s", {"maxLength": 5.0}), "13456789"),
    (of("s", {"pattern": "ing"}), "2456789"),
    (of("s", {"pattern": "^[A-ZÄ]"}), "3456789"),
    (of("n", {"enum": [1, None]}), "12689"),
    (of("n", {"enum": [True, "1"]}), "5789"),
    (of("o", {"enum": [{"y": "z", "x": 1.0}, {}]}), "1356789"),
    # arrays
    (of("t", {"minItems": 1}), "13456789"),
    (of("t", {"maxItems": 2}), "12467 89"),
    (of("t", {"uniqueItems": True}), "1235789"),
    (of("t", {"uniqueItems": False}), "123456789"),
    (of("t", {"items": {"type": "number"}}), "24789"),
    (of("t", {"items": [{"type": "number"}]}), "1234789"),
    (of("t", {"items": [{"type": "number"}], "additionalItems": False}), "2789"),
    (of("t", {"items": [{}], "additionalItems": {"type": "string"}}), "12789"),
    # objects
    (of("o", of("x", {"type": "number"})), "13456789"),
    (of("o", {"required": ["x"]}), "12456789"),
    (of("o", {"minProperties": 1}), "12456789"),
    (of("o", {"maxProperties": 1}), "23456789"),
    (of("o", {"properties": {"x": {}}, "additionalProperties": False}), "23456789"),
    (of("o", {"additionalProperties": {"type": "string"}}), "23456789"),
    (of("o", {"patternProperties": {"^[xy]$": {"type": "string"}}}), "23456789"),
    (
        of("o", {"patternProperties": {"(?i)X": {}, "y": {}}, "additionalProperties": False}),
        "123456789",
    ),
    (of("o", {"dependencies": {"x": ["y"]}}), "13456789"),
    (of("o", {"dependencies": {"x": of("x", {"type": "string"})}}), "23456789"),
    # logic
    ({"not": {"required": ["s"]}}, "45678"),
    (of("n", {"not": {"type": "number"}}), "56789"),
    ({"allOf": [{"required": ["n"]}, {"required": ["o"]}]}, "12349"),
    ({"anyOf": [{"required": ["s"]}, {"required": ["e"]}]}, "12359"),
    ({"oneOf": [{"required": ["n"]}, {"required": ["o"]}], "type": "object"}, "567"),
    # names that are keywords elsewhere
    ({"properties": {"$ref": {"type": "string"}, "id": {}, "default": {}}}, "123456789"),
]


@pytest.fixture
def filled(things: Any) -> Any:
    things.put_many(BODIES)
    return things


def test_schemas(filled: Any) -> None:
    wrong = {}
    for schema, expected in CASES:
        filter = {"$jsonSchema": schema}
        ids = "".join(document.id for document in filled.find(filter))
        if ids != expected.replace(" ", ""):
            wrong[str(schema)] = (ids, expected)
        assert filled.count(filter) == len(ids)
    assert not wrong


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"$jsonSchema": {"required": ["o"]}, "n": 1}, "12"),
        ({"$or": [{"n": "1"}, {"$jsonSchema": {"required": ["e"]}}]}, "579"),
        ({"$and": [{"n": 1}, {"$jsonSchema": of("s", {"maxLength": 3})}]}, "1"),
        ({"$nor": [{"$jsonSchema": {"required": ["n"]}}]}, "8"),
        ({"$or": [{"$id": "8"}, {"$jsonSchema": {"required": ["e"]}}]}, "589"),
        ({"e": {"$elemMatch": {"$and": [{"$jsonSchema": of("k", {"type": "string"})}]}}}, "5"),
        ({"e": {"$elemMatch": {"k": 1, "$jsonSchema": of("k", {"type": "string"})}}}, ""),
    ],
    ids=str,
)
def test_schemas_among_other_conditions(filled: Any, filter: Any, expected: str) -> None:
    assert "".join(document.id for document in filled.find(filter)) == expected
    assert "".join(document.id for document in filled.stream(filter)) == expected
    again = Filter.parse(Filter.parse(filter).to_json())
    assert again == Filter.parse(filter)
    assert "".join(document.id for document in filled.find(again)) == expected


def test_a_schema_is_a_value() -> None:
    one, other = ({"$jsonSchema": {"required": [name]}} for name in "ab")
    assert str(Filter.parse(one)) == "{'$jsonSchema': {'required': ['a']}}"
    assert Filter.parse(one) == Filter.parse(one)
    assert hash(Filter.parse(one)) == hash(Filter.parse(one))
    assert Filter.parse(one) != Filter.parse(other)
    assert shape_of(Filter.parse(one).condition) == shape_of(Filter.parse(other).condition)
    both = Filter.parse(one) & (F("x") == 1)
    assert str(~both) == "{'$nor': [{'$jsonSchema': {'required': ['a']}, 'x': 1}]}"


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": {"anyOf": [schema]}}
    return schema


def test_a_deep_schema() -> None:
    body: Any = {}
    for _ in range(199):
        body = {"a": body}
    schema: dict[str, Any] = {}
    for _ in range(50):
        schema = {"properties": {"a": schema}, "required": ["a"]}
    assert json_schema.read(schema).fits(body)
    assert json_schema.read(deep(32)).fits(body)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ("text", r"\$jsonSchema': must be a document"),
        ([], r"\$jsonSchema': must be a document"),
        ({"$ref": "#"}, r"\$jsonSchema\.\$ref': this keyword is not supported"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, r"\.\$schema'"),
        ({"default": {}}, r"\.default'"),
        ({"definitions": {}}, r"\.definitions'"),
        ({"format": "email"}, r"\.format'"),
        ({"id": "x"}, r"\.id'"),
        ({"const": 1}, r"\.const': no such keyword"),
        (of("a", {"$ref": "http://example.org/"}), r"\.properties\.a\.\$ref'"),
        ({"anyOf": [{}, {"if": {}}]}, r"\.anyOf\.1\.if'"),
        ({"items": [{"x": 1}]}, r"\.items\.0\.x'"),
        ({"dependencies": {"a": {"x": 1}}}, r"\.dependencies\.a\.x'"),
        ({"type": "integer"}, r"\.type': there is no type \"integer\""),
        (of("a", {"type": ["string", "integer"]}), r"\.properties\.a\.type'"),
        ({"type": "int"}, r"\.type': no such type: 'int'"),
        ({"bsonType": ["int", "int"]}, r"\.bsonType': must name each type once"),
        ({"type": 3}, r"\.type'"),
        ({"type": []}, r"\.type"),
        ({"type": {}}, r"\.type'"),
        ({"bsonType": "integer"}, r"\.bsonType'"),
        ({"bsonType": "boolean"}, r"\.bsonType'"),
        ({"bsonType": 2}, r"\.bsonType'"),
        ({"bsonType": []}, r"\.bsonType'"),
        ({"type": "object", "bsonType": "object"}, "not both"),
        ({"properties": 3}, r"\.properties'"),
        ({"properties": {"a": "number"}}, r"\.properties\.a'"),
        (of("a", {"maximum": "0"}), r"\.properties\.a\.maximum'"),
        (of("a", {"maxLength": -1}), r"\.maxLength'"),
        (of("a", {"minLength": 1.5}), r"\.minLength'"),
        (of("a", {"exclusiveMaximum": True}), "maximum"),
        (of("a", {"minimum": 1, "exclusiveMinimum": 1}), r"\.exclusiveMinimum'"),
        (of("a", {"pattern": 0}), r"\.pattern'"),
        (of("a", {"pattern": "("}), r"\.pattern': invalid regular expression"),
        ({"patternProperties": {"(": {}}}, r"\.patternProperties': invalid regular expression"),
        (of("a", {"multipleOf": 0}), r"\.multipleOf'"),
        ({"required": []}, r"\.required'"),
        ({"required": ["a", "a"]}, r"\.required'"),
        ({"enum": []}, r"\.enum'"),
        ({"enum": [1, 1.0]}, r"\.enum'"),
        ({"allOf": []}, r"\.allOf'"),
        ({"not": True}, r"\.not'"),
        ({"title": 1}, r"\.title'"),
        ({"uniqueItems": 1}, r"\.uniqueItems'"),
        ({"properties": {"a": {1, 2}}}, r"\.properties\.a': set is not JSON"),
        (deep(40), "nested deeper"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_invalid_schemas_name_the_path(schema: Any, where: str) -> None:
    with pytest.raises(InvalidFilter, match=where):
        Filter.parse({"$jsonSchema": schema})


def test_errors_name_the_path_within_a_filter() -> None:
    with pytest.raises(InvalidFilter, match=r"'\$or\.0\.\$jsonSchema\.type'"):
        Filter.parse({"$or": [{"$jsonSchema": {"type": "integer"}}]})
    with pytest.raises(InvalidFilter, match=r"a\.\$elemMatch\.\$jsonSchema'"):
        Filter.parse({"a": {"$elemMatch": {"$jsonSchema": {}}}})
    with pytest.raises(InvalidFilter, match=r"a\.\$jsonSchema'"):
        Filter.parse({"a": {"$jsonSchema": {}}})


def test_types_are_those_of_the_operator() -> None:
    for name in json_schema._BSON_TYPES:
        READERS["$type"](name, "")


def test_error_without_the_jsonschema_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("jsonschema"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments, **options)

    json_schema._dialect.cache_clear()
    monkeypatch.delitem(sys.modules, "jsonschema", raising=False)
    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match=r"collections-store\[schema\]"):
        Filter.parse({"$jsonSchema": {}})
    monkeypatch.undo()
    Filter.parse({"$jsonSchema": {}})


def test_filters_with_schemas_can_be_pickled() -> None:
    one = Filter.parse({"$jsonSchema": {"required": ["a"], "properties": {"a": {"enum": [1]}}}})
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert hash(again) == hash(one)
    schema = again.condition.schema.value
    assert schema.fits({"a": 1.0})
    assert not schema.fits({"a": True})
