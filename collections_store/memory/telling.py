"""What the errors of a memory tell: of which key they are, where a collection's are of an object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from ..codec import Codec
from ..errors import CollectionsStoreError, DocumentNotFound, InvalidBody, VersionConflict
from .keys import Space
from .values import to_json

E = TypeVar("E", bound=BaseException)


def bodies_of(space: Space, values: Mapping[str, Any], codec: Codec) -> dict[str, Any]:
    """Return values under their keys as bodies under their ids; raises `InvalidBody` that names the key."""
    bodies = {}
    for key, value in values.items():
        with within(key):
            bodies[space.id_of(key)] = to_json(value, codec.default)
    return bodies


@contextmanager
def told_apart(space: Space, bodies: Mapping[str, Any], codec: Codec) -> Iterator[None]:
    """Have the error of a body that cannot be stored name its key."""
    try:
        yield
    except InvalidBody:
        for id, body in bodies.items():
            with within(space.key_of(id)):
                codec.encode(body)
        raise


@contextmanager
def within(key: str) -> Iterator[None]:
    """Have an error of a value name its key, too."""
    try:
        yield
    except InvalidBody as error:
        raise InvalidBody(f"{key}.{error.path}".rstrip("."), error.problem) from error


@contextmanager
def named(collection: str, space: Space, key: str) -> Iterator[None]:
    """Have errors of the object that is of a key name the key; those of what a caller's function does stay."""
    try:
        yield
    except (DocumentNotFound, VersionConflict) as error:
        if (error.collection, error.id) != (collection, space.id_of(key)):
            raise
        if isinstance(error, DocumentNotFound):
            raise missing(collection, space, key) from None
        told = VersionConflict(collection, key, error.expected, error.found)
        raise noted(told, collection, space) from None


def missing(collection: str, space: Space, key: str) -> DocumentNotFound:
    """Return the error of a key that there is not."""
    return noted(DocumentNotFound(collection, key), collection, space)


def noted(error: E, collection: str, space: Space) -> E:
    """Return an error that tells in which namespace it is."""
    error.add_note(f"in the memory {'/'.join((collection, *space.names))!r}")
    return error


@contextmanager
def beside(error: BaseException | None) -> Iterator[None]:
    """Have what a block raised go on though its end fails: a cancellation above all must not be lost."""
    try:
        yield
    except CollectionsStoreError as failed:
        if error is None:
            raise
        error.add_note(f"what the memory held was not cleared: {failed}")
