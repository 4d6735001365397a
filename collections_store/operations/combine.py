"""Several operations in one transaction, and one of them that may fail alone."""

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
from .indexes import FindDuplicate
from .operation import Operation

if TYPE_CHECKING:
    from .connection import Connection


T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
"""Yields operations, takes their results (or what they raise), and returns what comes of them."""


@value_class
class Together(Operation[Any]):
    """Run steps in one transaction; `begin` gives them anew for each attempt."""

    collection: str
    begin: Callable[[], Steps[Any]] = field(repr=False)
    writes = True
    creates_collection = True

    def __call__(self, connection: Connection) -> Any:
        connection.collection(self.collection)  # before anything is read that cannot be read again
        return follow(lambda operation: attempt(connection, operation), self.begin())


@value_class
class Work(Operation[Any]):
    """Call a function with what runs operations, in one transaction. It may be called again, and ends
    with the first operation that fails. `snapshot`: all of them see one moment; else each sees what was
    committed before it.
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
    """Run the operations that steps yield, one after the other; returns what they return."""
    try:
        operation = next(steps)
        while True:
            try:
                result = run(operation)
            except BaseException as error:  # noqa: BLE001 - the steps know what it means
                operation = steps.throw(error)
            else:
                operation = steps.send(result)
    except StopIteration as stop:
        found: T = stop.value
        return found


def attempt(connection: Connection, operation: Any) -> Any:
    """Do an operation of several in a transaction; if it fails, the others are as they were."""
    while True:
        try:
            with connection.savepoint():
                return operation(connection)
        except connection.database.errors.types() as error:
            violated = connection.database.errors.translate(error)
            if not isinstance(violated, UniqueViolated):
                raise
            if Purge(operation.collection)(connection):
                continue  # what has expired was in the way
            where = operation.collection, violated.physical
            told = FindDuplicate(*where, refused=operation.written)(connection)
            raise told or TransactionConflict(str(violated)) from error
