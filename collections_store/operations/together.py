"""Several operations as one: all of them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from ..errors import CollectionsStoreError
from ..frozen import frozen
from .attempts import attempt
from .catalogue import CollectionAbsent

if TYPE_CHECKING:
    from .connection import Connection

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
"""Yields operations, takes their results (or what they raise), and returns what comes of them."""


@frozen
class Together:
    """Run steps in one transaction; `begin` gives them anew for each attempt."""

    collection: str
    begin: Callable[[], Steps[Any]] = field(repr=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> Any:
        connection.collection(self.collection)  # before anything is read that cannot be read again
        return follow(lambda operation: attempt(connection, operation), self.begin())


@frozen
class Work:
    """Call a function with what runs operations, in one transaction. It may be called again, and ends
    with the first operation that fails. `SNAPSHOT`: all of them see one moment; else each sees what was
    committed before it.
    """

    collections: tuple[str, ...]
    function: Callable[[Callable[[Any], Any]], Any] = field(repr=False)
    WRITES: bool = True
    SNAPSHOT: bool = True
    SINGLE: ClassVar = False

    @property
    def collection(self) -> str:
        """The first of the collections."""
        return self.collections[0]

    def __call__(self, connection: Connection) -> Any:
        return self.function(partial(_run, connection))


def _run(connection: Connection, operation: Any) -> Any:
    try:
        return operation(connection)
    except CollectionAbsent:
        if hasattr(operation, "nothing"):
            return operation.nothing()
        raise


def follow(run: Callable[[Any], Any], steps: Steps[T]) -> T:
    """Run the operations that steps yield, one after the other; returns what they return."""
    try:
        operation = next(steps)
        while True:
            try:
                result = run(operation)
            except CollectionsStoreError as error:
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        found: T = stop.value
        return found
