"""Keys: the id of the document under a key of a namespace, and errors that name the key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

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
from ..options import check_iterable

E = TypeVar("E", bound=BaseException)
_KEY: Final = "/"
"""Stands before a key. An inner namespace begins with a digit, which sorts right after it."""
_NAMESPACE: Final = ":"
_SESSION: Final = ";"
_LONGEST: Final = 150


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace of keys.

    A document's id is the names of its namespaces, each after its length, and the key. So no two pairs of a
    namespace and a key have the same id, whatever characters they contain.

    >>> Space().within("room", "42").id_of("topic")
    '4:room2:42/topic'
    """

    path: str = ""
    names: tuple[str, ...] = field(default=(), compare=False)

    def within(self, *names: str) -> Space:
        """Return a namespace in this one; raises `InvalidOption`."""
        return self._with(names, _NAMESPACE, "namespace")

    def session(self, name: str) -> Space:
        """Return the namespace of a session, which differs from every `within`."""
        return self._with((name,), _SESSION, "session")

    def id_of(self, key: Any, option: str = "key") -> str:
        """Return the id of the document under a key; raises `InvalidOption`."""
        return _joined(option, self.path + _KEY, key)

    def ids_of(self, keys: Any) -> tuple[str, ...]:
        """Return the ids of several keys; raises `InvalidOption`, for a single string too."""
        return tuple(self.id_of(key) for key in check_iterable("keys", keys))

    def key_of(self, id: str) -> str:
        """Return the key of a document of this namespace."""
        return id[len(self.path) + 1 :]

    def keys(self, prefix: str = "", after: str | None = None) -> dict[str, Any]:
        """Return the filter of this namespace's keys with a prefix, after a key."""
        first = self.id_of(prefix, "prefix")
        begin = {"$gte": first}
        if after is not None and (past := self.id_of(after, "after")) >= first:
            begin = {"$gt": past}
        return {"$id": {**begin, "$lt": _following(first)}}

    def everything(self) -> dict[str, Any]:
        """Return the filter of the keys of this namespace and of all inner ones."""
        return {"$id": {"$gte": f"{self.path}{_KEY}", "$lt": f"{self.path}:"}}

    def _with(self, names: tuple[Any, ...], kind: str, option: str) -> Space:
        if not names:
            raise InvalidOption(option, "must have a name, got none")
        path = self.path
        for name in names:
            plain = _joined(option, "", name)
            path = _joined(option, f"{path}{len(plain)}{kind}", plain)
        return Space(path, (*self.names, *map(str.__str__, names)))


def _joined(option: str, path: str, text: Any) -> str:
    """Return a path and a string, of any subclass, as an id; raises `InvalidOption`."""
    if not isinstance(text, str):
        raise InvalidOption(option, f"must be a string, got {shortened(text)}")
    try:
        return check_id(path + str.__str__(text))
    except InvalidId as error:
        where = " with its namespaces" if path else ""
        raise InvalidOption(option, f"{shortened(text)}{where}: {error.problem}") from None


def _following(prefix: str) -> str:
    """Return the first string after all that begin with `prefix`."""
    last = ord(prefix[-1])
    if last == 0x10FFFF:
        return _following(prefix[:-1])
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)


def collection_of(namespace: Any) -> str:
    """Return the name of a memory's collection; raises `InvalidOption`."""
    if not isinstance(namespace, str) or not namespace:
        raise InvalidOption("namespace", f"must be a non-empty string, got {shortened(namespace)}")
    name = spelled(namespace)
    if len(name) > _LONGEST:  # no spelled name begins with two underscores
        name = f"__{hashlib.sha256(namespace.encode(errors='surrogatepass')).hexdigest()}"
    return f"memory__{name}"


@contextmanager
def body_of(key: str) -> Iterator[None]:
    """Put the key before the path of an `InvalidBody`."""
    try:
        yield
    except InvalidBody as error:
        raise InvalidBody(f"{key}.{error.path}".rstrip("."), error.problem) from error


@contextmanager
def document_of(collection: str, space: Space, key: str) -> Iterator[None]:
    """Replace the id by the key in errors of the key's document; others, of a caller's function, pass."""
    try:
        yield
    except (DocumentNotFound, VersionConflict) as error:
        if (error.collection, error.id) != (collection, space.id_of(key)):
            raise
        if isinstance(error, DocumentNotFound):
            raise missing(collection, space, key) from None
        named = VersionConflict(collection, key, error.expected, error.found)
        raise _noted(named, collection, space) from None


def missing(collection: str, space: Space, key: str) -> DocumentNotFound:
    """Return the error of a key without a value."""
    return _noted(DocumentNotFound(collection, key), collection, space)


def _noted(error: E, collection: str, space: Space) -> E:
    error.add_note(f"in the memory {'/'.join((collection, *space.names))!r}")
    return error


@contextmanager
def after_block(error: BaseException | None) -> Iterator[None]:
    """Note on a block's exception that clearing the memory failed: a cancellation above all must not be lost."""
    try:
        yield
    except CollectionsStoreError as failed:
        if error is None:
            raise
        error.add_note(f"the memory was not cleared: {failed}")
