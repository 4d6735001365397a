"""The declarations of a model: fields, their stored keys, and their types.

Only annotations are read, so no library of models is imported.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ..errors import InvalidOption, shortened

MAX_CACHED = 1024


@dataclass(frozen=True, slots=True)
class DeclaredField:
    """A field of a model: its key in the body, its type, and its metadata from `Annotated`."""

    key: str
    type: Any
    metadata: tuple[Any, ...] = ()


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, without the `Annotated`, aliases and unions around them.

    >>> [each.__name__ for each in alternatives(Annotated[int, "years"] | str | None)]
    ['int', 'str', 'NoneType']
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif origin is Union or origin is types.UnionType:
        for each in get_args(annotation):
            yield from alternatives(each)
    elif hasattr(annotation, "__supertype__"):  # a NewType
        yield from alternatives(annotation.__supertype__)
    elif hasattr(annotation, "__value__"):  # a type statement's alias
        yield from alternatives(annotation.__value__)
    else:
        yield annotation


def metadata_within(annotation: Any) -> Iterator[Any]:
    """Yield the metadata of each `Annotated` around an alternative.

    >>> [*metadata_within(Annotated[int, "years"] | None)]
    ['years']
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from annotation.__metadata__
    if origin is Annotated or origin is Union or origin is types.UnionType:
        for each in get_args(annotation)[: 1 if origin is Annotated else None]:
            yield from metadata_within(each)
    elif named := getattr(annotation, "__supertype__", getattr(annotation, "__value__", None)):
        yield from metadata_within(named)


def types_in(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, and all inner types."""
    seen: list[Any] = []  # some types have no hash
    left = [annotation]
    while left:
        for each in alternatives(left.pop()):
            if each not in seen:
                seen.append(each)
                yield each
                fields = declared_fields(each)
                left += (
                    get_args(each) if fields is None else [part.type for part in fields.values()]
                )


def declared_fields(model: Any) -> dict[str, DeclaredField] | None:
    """Return the fields of a class by the names of their attributes; None for a class that is no model."""
    model = get_origin(model) or model
    return _declared_fields(model) if isinstance(model, type) else None


@lru_cache(MAX_CACHED)
def _declared_fields(model: type) -> dict[str, DeclaredField] | None:
    if is_pydantic(model):
        fields: dict[str, Any] = model.__pydantic_fields__  # type: ignore[attr-defined]
        _check_aliases(model, fields)
        return {
            name: DeclaredField(
                each.serialization_alias or name, each.annotation, (*each.metadata,)
            )
            for name, each in fields.items()
        }
    keys: dict[str, str]
    if hasattr(model, "__struct_encode_fields__"):  # msgspec's; it can rename
        struct: Any = model
        config, names = struct.__struct_config__, struct.__struct_encode_fields__
        if config.array_like:  # stored as an array, behind the tag
            names = map(str, range(config.tag is not None, len(names) + (config.tag is not None)))
        keys = dict(zip(struct.__struct_fields__, names, strict=True))
    elif hasattr(model, "__attrs_attrs__"):
        keys = {each.name: each.name for each in model.__attrs_attrs__}
        for name in keys:
            if name.startswith("_"):  # msgspec leaves it out
                raise InvalidOption(
                    "model", _lost(model, name, "must not begin with _ to be stored")
                )
    elif dataclasses.is_dataclass(model):
        keys = {each.name: each.name for each in dataclasses.fields(model)}
    elif typing.is_typeddict(model):
        keys = {name: name for name in model.__annotations__}
    else:
        return None
    try:
        hints = get_type_hints(model, include_extras=True)
    except NameError as error:
        problem = f"an annotation of {name_of(model)} must be a name of its module: {error}"
        raise InvalidOption("model", problem) from None
    return {name: _declared_field(key, hints[name]) for name, key in keys.items()}


def _check_aliases(model: Any, fields: dict[str, Any]) -> None:
    """Reject a field of pydantic's that is written under one key and read under another: its values would be lost."""
    config = getattr(model, "model_config", None) or getattr(model, "__pydantic_config__", None)
    options = config or {}
    by_name = options.get("populate_by_name") or options.get("validate_by_name")
    by_alias = options.get("validate_by_alias", True)
    for name, each in fields.items():
        alias = each.validation_alias
        choices = getattr(alias, "choices", [name if alias is None else alias])
        read = [*(choices if by_alias else []), *([name] if by_name else [])]
        written = each.serialization_alias or name
        if not each.exclude and written not in read:
            problem = f"must be read under the key {written!r} that it is written under: give it one alias"
            raise InvalidOption("model", _lost(model, name, problem))


def _lost(model: Any, field: str, problem: str) -> str:
    return f"the field {field!r} of {name_of(model)} {problem}"


def is_pydantic(model: Any) -> bool:
    """Return whether a type is a model or a dataclass of pydantic."""
    return isinstance(model, type) and hasattr(model, "__pydantic_fields__")


def name_of(model: Any) -> str:
    """Return how errors name a model or another type."""
    names = [
        each.__name__ if isinstance(each, type) else shortened(each) for each in alternatives(model)
    ]
    return " or ".join(dict.fromkeys(names))


def collection_of(model: Any) -> str:
    """Return the name of a model's collection: `__collection__`, or the name of the class."""
    return str(getattr(model, "__collection__", None) or name_of(model))


def _declared_field(key: str, hint: Any) -> DeclaredField:
    while get_origin(hint) in {typing.Required, typing.NotRequired, typing.ClassVar}:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        return DeclaredField(key, hint.__origin__, hint.__metadata__)
    return DeclaredField(key, hint)
