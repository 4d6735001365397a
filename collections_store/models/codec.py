"""Instances of models to JSON text and back.

Rules:

1. A write stores only what a read can validate. The text of an instance is decoded before the write, and so is the
   result of an update.
2. A datetime has one spelling, so strings sort and compare as times do: in UTC, with six digits and a `Z`. A datetime
   without a time zone has no `Z`. Values of filters and updates are spelled alike.
3. pydantic serves its own models and dataclasses; msgspec serves its structs, the standard library's dataclasses,
   `TypedDict` and attrs. Other installed packages make no difference.
4. An update changes only the fields it names: fields that a model does not declare stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol, cast, get_args, get_origin, is_typeddict
from uuid import UUID

from ..codec import BodySkipped, Codec, Extra, Unreadable, decode
from ..codec.times import iso
from ..errors import CollectionsStoreError, InvalidBody, InvalidOption, MissingExtra, shortened
from ..options import check_choice, check_flag
from ..results import Invalid
from .declared import MAX_CACHED, alternatives, declared_fields, is_pydantic, name_of, types_in
from .shape import COMPUTED, Shape


class Library(Protocol):
    """The adapter of a library for a type."""

    def to_json(self, value: Any) -> Any:
        """Return a value as JSON, with datetimes by rule 2. The value may be of another type."""

    def from_text(self, text: str | bytes) -> Any:
        """Return the value of a JSON text; raise an error for `problem`."""

    @property
    def from_trusted_text(self) -> Callable[[str | bytes], Any]:
        """Returns the value of a JSON text that was validated before the write."""

    def from_python(self, value: Any) -> Any:
        """Return an instance from a dict, or the instance; raise an error for `problem`."""

    def check_schema(self) -> None:
        """Raise an error if JSON cannot hold the type."""

    @property
    def shape(self) -> Shape:
        """The stored fields; raise an error if JSON cannot hold the type."""

    def problem(self, error: Exception) -> tuple[str, str] | None:
        """Return the path and the reason of an error of the library; None for other errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCodec(Codec):
    """Bodies of a collection that are instances of a model; all other values are encoded as by `Codec`."""

    is_plain: ClassVar[bool] = False
    model: Any
    library: Library
    invalid: Unreadable = "raise"
    trusted: bool = False
    shape: Shape | None = None
    """The fields that filters and updates may name, None for any."""

    @property
    def has_model(self) -> bool:
        return True

    def check_fields(self, parsed: object, what: str = "filter") -> None:
        """Raise `UnknownField` if a filter, a sort order, an index, an update or a path names a field of no body."""
        if self.shape is not None:
            self.shape.check(parsed, what)

    def encode_body(self, body: Any) -> str:
        """Return the text of an instance, or of a dict with its fields; raise `InvalidBody`."""
        try:
            value = self.library.to_json(self.library.from_python(body))
        except Exception as error:  # noqa: BLE001 - validators may raise anything
            if self._is_other(body):
                got = f"{type(body).__module__}.{type(body).__qualname__}".removeprefix("builtins.")
                problem = f"must be a {name_of(self.model)}, or a dict with its fields, got a {got}"
                raise InvalidBody("", problem) from self._foreign(error)
            raise self._invalid(error) from self._foreign(error)
        text = Codec.encode_body(self, value)
        self._validated(text)
        return text

    def encode_updated(self, body: Any) -> str:
        """Return the text of plain JSON in the model's spelling, see rule 4; raise `InvalidBody`."""
        instance = self._validated(Codec.encode_body(self, body))
        return Codec.encode_body(self, _spelled_as(self.library.to_json(instance), body))

    def decode_body(self, text: str | bytes) -> Any:
        """Return the instance; `invalid` decides on a body that does not fit."""
        try:
            if self.trusted:
                return self.library.from_trusted_text(text)
            return self.library.from_text(text)
        except Exception as error:  # noqa: BLE001 - validators may raise anything
            plain = decode(text)
            found = self._invalid(error)
            if self.invalid == "raise":
                raise found from self._foreign(error)
        if self.invalid == "return":
            return Invalid(plain, found.path, found.problem)
        raise BodySkipped(found.path, found.problem)

    def _is_other(self, body: Any) -> bool:
        """Return whether a body is of a class that is neither of the model nor a dict."""
        kinds = [get_origin(each) or each for each in alternatives(self.model)]
        kinds = [dict if is_typeddict(each) else each for each in kinds]
        is_declared = all(each is dict or declared_fields(each) is not None for each in kinds)
        return is_declared and not isinstance(body, (dict, *kinds))

    def _validated(self, text: str) -> Any:
        try:
            return self.library.from_text(text)
        except Exception as error:  # noqa: BLE001 - validators may raise anything
            raise self._invalid(error) from self._foreign(error)

    def _invalid(self, error: Exception) -> InvalidBody:
        """Return the error for a body that a library, or a validator, refuses."""
        raised = f"its model raised {type(error).__name__}"
        path, reason = self.library.problem(error) or ("", raised)
        return InvalidBody(path, f"{reason}: it must be a {name_of(self.model)}")

    def _foreign(self, error: Exception) -> Exception | None:
        """Return the error if it is the model's own: a library's error shows values of the body."""
        return error if self.library.problem(error) is None else None


def codec_of(
    model: Any,
    codec: Codec,
    *,
    invalid: Unreadable = "raise",
    trusted: bool = False,
    extra: Extra = "forbid",
) -> ModelCodec:
    """Return the codec of a model's instances; raise `InvalidOption` and `MissingExtra`."""
    check_choice("invalid", invalid, get_args(Unreadable))
    check_flag("trusted", trusted)
    check_choice("extra", extra, get_args(Extra))
    try:
        library = library_of(model)
        library.check_schema()
        shape = library.shape if extra == "forbid" else None
    except CollectionsStoreError:
        raise
    except Exception as error:
        raise InvalidOption("model", _unencodable(model)) from error
    values = json_value if codec.default is None else _either(codec.default)
    options: dict[str, Any] = {"invalid": invalid, "trusted": trusted, "shape": shape}
    return ModelCodec(codec.max_bytes, codec.nul, values, model=model, library=library, **options)


def library_of(model: Any) -> Library:
    """Return the adapter of a type by rule 3."""
    return adapter_of(model)(model)


def adapter_of(model: Any) -> Callable[[Any], Library]:
    """Return the function that makes the adapters of a model and of its inner types."""
    every = [
        *types_in(model)
    ]  # also those behind the first of pydantic's: reading them checks their fields
    return _pydantic if any(map(is_pydantic, every)) else _msgspec


def json_value(value: Any) -> Any:
    """Return a value of a filter or an update in the models' spelling; raise `TypeError`."""
    match value:
        case datetime():
            return spelled(value)
        case date() | time():
            return value.isoformat()
        case Enum():
            return value.value
        case Decimal() | UUID():
            return str(value)
    if declared_fields(type(value)) is not None:
        return library_of(type(value)).to_json(value)
    raise TypeError("use a value of JSON, a datetime, a Decimal, a UUID, an Enum or a model")


def spelled(moment: datetime) -> str:
    """Return the spelling of rule 2.

    >>> from datetime import UTC
    >>> spelled(datetime(2026, 11, 22, 10, tzinfo=UTC)), spelled(datetime(2026, 11, 22, 10))
    ('2026-11-22T10:00:00.000000Z', '2026-11-22T10:00:00.000000')
    """
    if moment.tzinfo is None:
        return moment.isoformat(timespec="microseconds")
    return iso(moment)


class _Masked(Exception):
    """A value would be stored changed."""


class _Pydantic:
    """pydantic's adapter. Rule 2 needs the Python values beside the JSON values, if the type can hold a datetime."""

    def __init__(self, model: Any) -> None:
        try:
            from pydantic import TypeAdapter
        except ImportError:
            raise MissingExtra("pydantic", "pydantic") from None
        self._model, self._adapter = model, cast(Any, TypeAdapter(model))
        self._has_datetimes = _can_hold_datetimes(self._adapter.core_schema)
        self.from_text: Callable[[str | bytes], Any] = self._adapter.validate_json
        self._classes = tuple(each for each in alternatives(model) if is_pydantic(each))

    @cached_property
    def from_trusted_text(self) -> Callable[[str | bytes], Any]:
        """Validates without the functions of the model, by a validator made on first use."""
        from pydantic_core import SchemaValidator

        schema = _without_after_validators(self._adapter.core_schema)
        make: Any = SchemaValidator
        try:  # else the validators of nested models are those of their classes, with the functions
            validator = make(schema, _use_prebuilt=False)
        except TypeError:  # a version of pydantic-core without that option: slower, not wrong
            validator = make(schema)
        validate: Callable[[str | bytes], Any] = validator.validate_json
        return validate

    def from_python(self, value: Any) -> Any:
        found = self._adapter.validate_python(value)
        kind = type(found)
        if kind not in self._classes and isinstance(found, self._classes):
            bases = [each for each in self._classes if isinstance(found, each)]
            known = {name for each in bases for name in declared_fields(each) or ()}
            if more := [name for name in declared_fields(kind) or () if name not in known]:
                raise _Masked(f"{kind.__name__} has fields that would be lost: {', '.join(more)}")
        return found

    def to_json(self, value: Any) -> Any:
        options = {"by_alias": True, "round_trip": True, "warnings": "none"}
        found = self._adapter.dump_python(value, mode="json", **options)
        if self._has_datetimes:
            return _respelled(found, self._adapter.dump_python(value, **options))
        return found

    @cached_property
    def shape(self) -> Shape:
        from pydantic.json_schema import GenerateJsonSchema

        class Stored(GenerateJsonSchema):
            """The schema of the results of `to_json`."""

            def computed_field_schema(self, schema: Any) -> Any:
                return {**super().computed_field_schema(schema), COMPUTED: True}

            def ser_schema(self, schema: Any) -> Any:
                """Leave open the results of a function without a return type."""
                is_open = "function" in schema and schema.get("return_schema") is None
                return {} if is_open else super().ser_schema(schema)

        schema = self._adapter.json_schema(mode="serialization", schema_generator=Stored)
        return Shape(self._model, schema)

    def check_schema(self) -> None:
        self.shape  # noqa: B018 - is made
        if _masks_secrets(self._adapter.core_schema):
            raise _Masked("a secret is written as asterisks: give it a serializer")

    def problem(self, error: Exception) -> tuple[str, str] | None:
        from pydantic import ValidationError
        from pydantic_core import PydanticSerializationError

        if isinstance(error, ValidationError):
            first, *_ = error.errors(include_url=False, include_input=False, include_context=False)
            return ".".join(map(str, first["loc"])), first["msg"]
        if isinstance(error, _Masked):
            return "", str(error)
        if isinstance(error, PydanticSerializationError):
            return "", "a value cannot be encoded as JSON"
        return None


class _Msgspec:
    """msgspec's adapter."""

    _where = re.compile(r"(.*) - at `(?:key in )?\$(.*)`", re.DOTALL)

    def __init__(self, model: Any) -> None:
        try:
            import msgspec
        except ImportError:
            raise MissingExtra("msgspec", "msgspec") from None
        self._model, self._msgspec = model, msgspec
        self.from_text: Callable[[str | bytes], Any] = msgspec.json.Decoder(model).decode
        self.from_trusted_text: Callable[[str | bytes], Any] = self.from_text

    def to_json(self, value: Any) -> Any:
        return _listed(self._msgspec.to_builtins(value, builtin_types=(datetime,), str_keys=True))

    def from_python(self, value: Any) -> Any:
        return self._msgspec.convert(value, self._model, str_keys=True)

    @cached_property
    def shape(self) -> Shape:
        return Shape(self._model, self._msgspec.json.schema(self._model))

    def check_schema(self) -> None:
        self.shape  # noqa: B018 - is made

    def problem(self, error: Exception) -> tuple[str, str] | None:
        if not isinstance(error, self._msgspec.ValidationError | TypeError):
            return None
        if found := self._where.fullmatch(str(error)):
            reason, path = found.groups()
            return path.replace("[", ".").replace("]", "").removeprefix("."), reason
        return "", str(error)


_pydantic: Callable[[Any], Library] = lru_cache(MAX_CACHED)(_Pydantic)
_msgspec: Callable[[Any], Library] = lru_cache(MAX_CACHED)(_Msgspec)


def _unencodable(model: Any) -> str:
    """Return the reason why `model` has no JSON, by the first field with a type that JSON cannot hold."""
    for name, declared in (declared_fields(model) or {}).items():
        try:
            adapter_of(model)(declared.type).check_schema()
        except CollectionsStoreError:
            raise
        except _Masked as error:
            return f"the field {name!r} of {name_of(model)}: {error}"
        except Exception:  # noqa: BLE001 - each library has errors of its own
            shown = shortened(declared.type)
            return f"JSON cannot hold the field {name!r} of {name_of(model)}, whose type is {shown}"
    return f"JSON cannot hold a {name_of(model)}"


def _either(default: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def chain(value: Any) -> Any:
        try:
            return json_value(value)
        except TypeError:
            return default(value)

    return chain


def _spelled_as(stored: Any, body: Any) -> Any:
    """Return a body with stored values in place of the same fields, and all other fields unchanged."""
    if isinstance(stored, dict) and isinstance(body, dict):
        return {k: _spelled_as(stored[k], v) if k in stored else v for k, v in body.items()}
    if isinstance(stored, list) and isinstance(body, list) and len(stored) == len(body):
        return [_spelled_as(*pair) for pair in zip(stored, body, strict=True)]
    return stored


def _can_hold_datetimes(schema: Any) -> bool:
    """Return whether a type of pydantic's can hold a datetime, by its core schema."""
    if isinstance(schema, dict):
        if schema.get("type") in {"datetime", "any"}:
            return True
        return any(map(_can_hold_datetimes, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_can_hold_datetimes, schema))


def _masks_secrets(schema: Any) -> bool:
    """Return whether pydantic's serializer of secrets, which writes asterisks, is in a core schema."""
    if isinstance(schema, dict):
        serializer = schema.get("serialization") or {}
        if serializer.get("type") == "function-plain":
            function = serializer["function"]
            return _is_pydantics(function) and "secret" in getattr(function, "__name__", "")
        return any(map(_masks_secrets, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_masks_secrets, schema))


def _without_after_validators(schema: Any) -> Any:
    """Return a core schema of pydantic's without the functions that a model calls after its own validation."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_without_after_validators, schema))
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "function-after" and not _is_pydantics(schema["function"]["function"]):
        inside = _without_after_validators(schema["schema"])
        return {**inside, "ref": schema["ref"]} if "ref" in schema else inside
    return {k: v if k == "metadata" else _without_after_validators(v) for k, v in schema.items()}


def _is_pydantics(function: Any) -> bool:
    """Return whether a function is pydantic's own, and converts values."""
    return str(getattr(function, "__module__", "pydantic")).startswith("pydantic")


def _respelled(json: Any, value: Any) -> Any:
    """Return JSON with the datetimes of `value`, the same in Python, by rule 2."""
    if isinstance(value, datetime):
        return spelled(value) if isinstance(json, str) else json  # else by a serializer of the user
    if isinstance(json, dict) and isinstance(value, dict) and len(json) == len(value):
        return {k: _respelled(j, v) for (k, j), v in zip(json.items(), value.values(), strict=True)}
    if isinstance(json, list) and hasattr(value, "__iter__") and len(json) == len(value):
        return [_respelled(j, v) for j, v in zip(json, value, strict=True)]
    return json


def _listed(value: Any) -> Any:
    """Return builtins with lists in place of tuples, and datetimes by rule 2."""
    kind = type(value)
    if kind is dict:
        return {key: _listed(each) for key, each in value.items()}
    if kind is list or kind is tuple:
        return [_listed(each) for each in value]
    return spelled(value) if kind is datetime else value
