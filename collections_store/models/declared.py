"""What a model declares: its fields, the keys that they are stored under, and their types.

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

from ..errors import InvalidOption

MAX_CACHED = 1024


@dataclass(frozen=True, slots=True)
class DeclaredField:
    """A field of a model: its key in the body, its type, and what `Annotated` adds to it."""

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


def declared_fields(model: Any) -> dict[str, DeclaredField] | None:
    """Return the fields of a class by the names of their attributes; None if it is not a model."""
    model = get_origin(model) or model
    return _declared_fields(model) if isinstance(model, type) else None


@lru_cache(MAX_CACHED)
def _declared_fields(model: type) -> dict[str, DeclaredField] | None:
    if is_pydantic(model):
        return {
            name: DeclaredField(each.alias or name, each.annotation, tuple(each.metadata))
            for name, each in model.__pydantic_fields__.items()  # type: ignore[attr-defined]
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


def is_pydantic(model: Any) -> bool:
    """Return whether a type is a model or a dataclass of pydantic."""
    return isinstance(model, type) and hasattr(model, "__pydantic_fields__")


def name_of(model: Any) -> str:
    """Return how errors name a model or another type."""
    names = [str(getattr(each, "__name__", each)) for each in alternatives(model)]
    return " or ".join(dict.fromkeys(names))


def collection_of(model: Any) -> str:
    """Return the name of a model's collection: its `__collection__`, or that of the class."""
    return str(getattr(model, "__collection__", None) or name_of(model))


def _declared_field(key: str, hint: Any) -> DeclaredField:
    while get_origin(hint) in {typing.Required, typing.NotRequired, typing.ClassVar}:
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated:
        return DeclaredField(key, hint.__origin__, hint.__metadata__)
    return DeclaredField(key, hint)
