"""Indexes that a model declares: `Annotated[str, Indexed(unique=True)]`, or a list in `__indexes__`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from ..errors import InvalidIndex, shortened
from ..expressions.path import Path, Wildcard
from ..query.index import Index
from .declared import alternatives, declared_fields, metadata_within, name_of


@dataclass(frozen=True, slots=True)
class Indexed:
    """The index of a field, in the annotation of the field; the options are those of `Collection.create_index`.

    `wildcard` indexes the field and all paths below, as the field "name.$**" does. The fields of a nested model are
    indexed by their paths, but not within arrays and dicts: list such an index in `__indexes__`.

    >>> from typing import Annotated, TypedDict
    >>> Person = TypedDict("Person", {"email": Annotated[str, Indexed(unique=True)]})
    >>> print(*store.collection(Person).indexes())
    email_1: {'email': 1}, unique
    """

    unique: bool = False
    descending: bool = False
    where: Any = field(default=None, hash=False)  # a mapping has no hash
    arrays: bool = False
    sparse: bool = False
    expire_after_seconds: int | None = None
    name: str | None = None
    wildcard: bool = False
    collation: Any = field(default=None, hash=False)
    hidden: bool = False


def declared_indexes(model: Any) -> list[Index]:
    """Return the indexes of a model's fields, of nested models, and of `__indexes__`; raise `InvalidIndex`."""
    found = [
        Index.parse(
            [(Wildcard(*path.keys) if each.wildcard else path, -1 if each.descending else 1)],
            unique=each.unique,
            where=each.where,
            arrays=each.arrays,
            sparse=each.sparse,
            expire_after_seconds=each.expire_after_seconds,
            collation=each.collation,
            hidden=each.hidden,
            name=each.name,
        )
        for path, metadata in _annotated(model, (), ())
        for each in metadata
        if isinstance(each, Indexed)
    ]
    for each in alternatives(model):
        for index in getattr(each, "__indexes__", ()):
            if not isinstance(index, Index):
                problem = f"__indexes__ of {name_of(each)} must list Index.parse(…), got {shortened(index)}"
                raise InvalidIndex("", problem)
            found.append(index)
    return found


def _annotated(
    model: Any, keys: tuple[str, ...], seen: tuple[Any, ...]
) -> Iterator[tuple[Path, tuple[Any, ...]]]:
    """Yield the path and the metadata of each field. A model within itself is skipped."""
    for each in alternatives(model):
        for member in (declared_fields(each) or {}).values() if each not in seen else ():
            path = (*keys, member.key)
            yield Path(*path), (*member.metadata, *metadata_within(member.type))
            for inside in alternatives(member.type):
                if any(
                    isinstance(i, Indexed) for arg in get_args(inside) for i in metadata_within(arg)
                ):
                    problem = "annotate the field, not what is in it: Annotated[list[…], Indexed(arrays=True)]"
                    raise InvalidIndex(str(Path(*path)), problem)
            yield from _annotated(member.type, path, (*seen, each))
