"""Several steps as one operation: all of them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from ..errors import CollectionsStoreError
from .attempts import attempt

if TYPE_CHECKING:
    from .connection import Connection

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
"""Yields operations, takes their results (or what they raise), and returns what comes of them."""


@dataclass(frozen=True, slots=True)
class Together:
    """Run steps in one transaction; `begin` gives them anew for each attempt."""

    collection: str
    begin: Callable[[], Steps[Any]] = field(repr=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> Any:
        connection.collection(self.collection)  # before anything is read that cannot be read again
        return follow(lambda operation: attempt(connection, operation), self.begin())


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
