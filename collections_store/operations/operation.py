"""The base class of all operations, and operations in steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import field
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ..expressions.classes import value_class
from .catalogue import CollectionAbsent
from .session import Session

T_co = TypeVar("T_co", covariant=True)
Written: TypeAlias = Iterable[tuple[str, str]]
"""Ids, and the JSON texts of the bodies to write under the ids."""


class Operation(Generic[T_co]):
    """Something to do on a connection.

    An operation is a value: printed in errors, and called again after a conflict. A subclass adds fields and
    `__call__`, and overrides defaults.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # a property of the base class would be the default of the subclasses' field

        @property
        def collection(self) -> str:
            """The collection to read or write; of several, the first."""

    method: str
    """The public method that the operation serves: its name in records and figures. Without one, the name of the class."""
    writes: bool = False
    """Whether the operation writes. A write runs on the writer's connection where the database has a single writer, and
    is not repeated when the connection is lost and the outcome unknown.
    """
    atomic: bool = False
    """Whether the operation is atomic by itself: a single statement, or a transaction of its own. An atomic operation
    may join a group; the executor calls any other operation within a transaction.
    """
    begins: bool = False
    """Whether the operation begins its own transaction unless one statement suffices. The operation joins no group."""
    snapshot: bool = True
    """Whether all statements see the same moment; else each statement sees everything committed before."""
    creates_collection: bool = False
    """Whether a missing collection is created for the operation; else `absent` returns the result."""
    empty: Callable[[], Any] = NoneType
    """Returns the result where the collection does not exist."""
    comment: str | None = None
    """The comment of the call, in the record of the operation."""

    def __init_subclass__(cls) -> None:
        if "method" not in cls.__dict__ and not isinstance(getattr(cls, "method", None), property):
            cls.method = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__.strip("_")).lower()

    def __call__(self, session: Session) -> T_co:
        """Execute the operation, and return the result."""
        raise NotImplementedError

    @property
    def collections(self) -> tuple[str, ...]:
        """All collections to read or write, looked up again after a table has vanished."""
        return (self.collection,)

    def absent(self) -> T_co:
        """Return the result where the collection does not exist; not called if `creates_collection`."""
        return type(self).empty()  # type: ignore[no-any-return]

    def written(self, session: Session) -> Written:  # noqa: ARG002
        """Return the write that a unique index refused: the error names the duplicate by these texts."""
        return ()

    def missed(self) -> Operation[list[Any]] | None:
        """Return the query for a document that an upsert may have missed before its insert; None without an insert. If
        a unique index refuses the new document and the query finds a document, the operation runs again.
        """
        return None


class Wrapper(Operation[Any]):
    """The base class of operations that do another operation."""

    __slots__ = ()
    if TYPE_CHECKING:
        operation: Operation[Any]
    else:  # a type checker takes the base class's for writable

        @property
        def method(self) -> str:
            return self.operation.method

        @property
        def writes(self) -> bool:
            return self.operation.writes

        @property
        def snapshot(self) -> bool:
            return self.operation.snapshot

        @property
        def creates_collection(self) -> bool:
            return self.operation.creates_collection

    @property
    def collection(self) -> str:
        """The collection of the operation."""
        return self.operation.collection

    @property
    def collections(self) -> tuple[str, ...]:
        return self.operation.collections

    def absent(self) -> Any:
        return self.operation.absent()

    def written(self, session: Session) -> Written:
        return self.operation.written(session)

    def missed(self) -> Operation[list[Any]] | None:
        return self.operation.missed()


T = TypeVar("T")
Steps: TypeAlias = Generator[Any, Any, T]
"""Yields operations, receives their results or errors, and returns a result of its own."""


@value_class
class Work(Operation[Any]):
    """Call `function(run)` in one transaction; `run` executes an operation in the transaction. `function` may be called
    again, and ends with the first operation that fails.
    """

    names: tuple[str, ...]
    function: Callable[[Callable[[Any], Any]], Any] = field(repr=False)
    writes: bool = True
    snapshot: bool = True
    method: str = "transaction"
    creates_collection = True

    @property
    def collection(self) -> str:
        """The first of the collections."""
        return self.names[0]

    @property
    def collections(self) -> tuple[str, ...]:
        return self.names

    def __call__(self, session: Session) -> Any:
        return self.function(partial(_run, session))


def _run(session: Session, operation: Any) -> Any:
    try:
        return operation(session)
    except CollectionAbsent:
        if operation.creates_collection:
            raise
        return operation.absent()


def follow(run: Callable[[Any], Any], steps: Steps[T]) -> T:
    """Run the operations that steps yield, in sequence; return the result of the steps."""
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
