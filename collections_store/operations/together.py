"""Several steps as one operation: all of them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from ..errors import CollectionsStoreError, TransactionConflict

if TYPE_CHECKING:
    from .connection import Connection

T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
"""Yields operations, takes their results (or what they raise), and returns what comes of them."""


class ReadBefore(TransactionConflict):
    """Steps that met a conflict cannot begin anew: what they read can be read once."""


@dataclass(frozen=True, slots=True)
class Together:
    """Run steps in one transaction; `begin` gives them anew for each attempt."""

    collection: str
    begin: Callable[[], Steps[Any]] = field(repr=False)
    _current: list[Any] = field(default_factory=list, repr=False, compare=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> Any:
        connection.collection(self.collection)  # where there is none, nothing is read in vain
        return follow(lambda operation: self._step(connection, operation), self.begin())

    def written(self) -> Mapping[str, str]:
        """Return what the last step was to write."""
        made: Callable[[], Mapping[str, str]] = getattr(self._current[-1], "written", dict)
        return made()

    def _step(self, connection: Connection, operation: Any) -> Any:
        self._current[:] = [operation]
        return operation(connection)


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
