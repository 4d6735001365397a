"""Several operations in one transaction, of which one may fail alone."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..errors import TransactionConflict
from ..query.values import value_class
from ..sql.dialects.protocols import UniqueViolated
from .by_id import Purge
from .catalogue import CollectionAbsent
from .indexes import duplicate_of
from .operation import Operation

if TYPE_CHECKING:
    from .connection import Connection


T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
"""Yields operations, receives their results or what they raise, and returns a result of its own."""


@value_class
class Together(Operation[Any]):
    """Run steps in one transaction; `begin` returns them, for each attempt again."""

    collection: str
    begin: Callable[[], Steps[Any]] = field(repr=False)
    writes = True
    creates_collection = True

    def __call__(self, connection: Connection) -> Any:
        connection.collection(self.collection)  # before anything is read that cannot be read again
        return follow(lambda operation: attempt(connection, operation), self.begin())


@value_class
class Work(Operation[Any]):
    """Call a function in one transaction, with a function that runs operations there. It may be called again, and ends with
    the first operation that fails.
    """

    names: tuple[str, ...]
    function: Callable[[Callable[[Any], Any]], Any] = field(repr=False)
    writes: bool = True
    snapshot: bool = True
    creates_collection = True

    @property
    def collection(self) -> str:
        """The first of the collections."""
        return self.names[0]

    @property
    def collections(self) -> tuple[str, ...]:
        """All of them."""
        return self.names

    def __call__(self, connection: Connection) -> Any:
        return self.function(partial(_run, connection))


def _run(connection: Connection, operation: Any) -> Any:
    try:
        return operation(connection)
    except CollectionAbsent:
        if operation.creates_collection:
            raise
        return operation.absent()


def follow(run: Callable[[Any], Any], steps: Steps[T]) -> T:
    """Run the operations that steps yield, one after the other; return what they return."""
    try:
        operation = next(steps)
        while True:
            try:
                result = run(operation)
            except BaseException as error:  # noqa: BLE001 - the steps handle it
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        found: T = stop.value
        return found


def attempt(connection: Connection, operation: Any) -> Any:
    """Run one operation of several in a transaction; a failure undoes only that one."""
    while True:
        try:
            with connection.savepoint():
                return operation(connection)
        except connection.database.errors.types() as error:
            violated = connection.database.errors.translate(error)
            if not isinstance(violated, UniqueViolated):
                raise
            if Purge(operation.collection)(connection):
                continue  # an expired document was in the way
            duplicate = duplicate_of(operation, violated.physical)(connection)
            raise duplicate or TransactionConflict(str(violated)) from error
