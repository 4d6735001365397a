"""Keys: which document a key of a namespace is, and errors that name the key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ..codec import Codec
from ..document import check_id, spelled
from ..errors import (
    CollectionsStoreError,
    DocumentNotFound,
    InvalidBody,
    InvalidId,
    InvalidOption,
    VersionConflict,
    shortened,
)
from ..operations.procedures import check_many
from .values import to_json

_KEY: Final = "/"
"""Before a key; a digit comes right after it, and begins what lies further within."""
_NAMESPACE: Final = ":"
_SESSION: Final = ";"
_LONGEST: Final = 150


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace of keys.

    An object's id is the parts of its namespace, each with its length before it, and the key: so no key and no
    name, whatever they hold, are taken for others.

    >>> Space().within("room", "42").id_of("topic")
    '4:room2:42/topic'
    """

    path: str = ""
    names: tuple[str, ...] = field(default=(), compare=False)

    def within(self, *names: str) -> Space:
        """Return a namespace in this one; raises `InvalidOption`."""
        return self._with(names, _NAMESPACE)

    def session(self, name: str) -> Space:
        """Return the namespace of a session, which is no other's."""
        return self._with((name,), _SESSION)

    def id_of(self, key: Any, option: str = "key") -> str:
        """Return the id of the object that a key is of; raises `InvalidOption`."""
        return _joined(option, self.path + _KEY, key)

    def ids_of(self, keys: Any) -> list[str]:
        """Return the ids of several keys; raises `InvalidOption`, for a single text too."""
        return [self.id_of(key) for key in check_many("keys", keys)]

    def key_of(self, id: str) -> str:
        """Return the key of an object of this namespace."""
        return id[len(self.path) + 1 :]

    def keys(self, prefix: str = "", after: str | None = None) -> dict[str, Any]:
        """Return the filter of the keys of this namespace that begin so, past a key."""
        first = self.id_of(prefix, "prefix")
        begin = {"$gte": first}
        if after is not None and (past := self.id_of(after, "after")) >= first:
            begin = {"$gt": past}
        return {"$id": {**begin, "$lt": _following(first)}}

    def everything(self) -> dict[str, Any]:
        """Return the filter of the keys of this namespace and of all within it."""
        return {"$id": {"$gte": f"{self.path}{_KEY}", "$lt": f"{self.path}:"}}

    def _with(self, names: tuple[Any, ...], kind: str) -> Space:
        option = "session" if kind == _SESSION else "namespace"
        if not names:
            raise InvalidOption(option, "give it a name")
        path = self.path
        for name in names:
            plain = _joined(option, "", name)
            path = _joined(option, f"{path}{len(plain)}{kind}", plain)
        return Space(path, (*self.names, *map(str.__str__, names)))


def _joined(option: str, path: str, text: Any) -> str:
    """Return an id, or what one begins with: a path and a text, whatever kind of text; raises `InvalidOption`."""
    if not isinstance(text, str):
        raise InvalidOption(option, f"{shortened(text)} is no text")
    try:
        return check_id(path + str.__str__(text))
    except InvalidId as error:
        where = " with its namespaces" if path else ""
        raise InvalidOption(option, f"{shortened(text)}{where}: {error.problem}") from None


def _following(prefix: str) -> str:
    """Return the first text past all that begin with `prefix`."""
    last = ord(prefix[-1])
    if last == 0x10FFFF:
        return _following(prefix[:-1])
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)


def collection_of(namespace: Any) -> str:
    """Return the name of the collection that a memory is kept in; raises `InvalidOption`."""
    if not isinstance(namespace, str) or not namespace:
        raise InvalidOption("namespace", f"{shortened(namespace)} is no text, or an empty one")
    name = spelled(namespace)
    if len(name) > _LONGEST:  # two underscores at its beginning: no spelled text has that
        name = f"__{hashlib.sha256(namespace.encode(errors='surrogatepass')).hexdigest()}"
    return f"memory__{name}"


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
