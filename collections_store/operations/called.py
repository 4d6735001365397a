"""Operations with the options of their call, such as a comment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ..expressions.classes import value_class
from ..options import CallContext
from ..options.calls import PLAIN
from .find import Batches
from .operation import Operation, Wrapper
from .session import Session

T = TypeVar("T")


@value_class
class Called(Wrapper):
    """Do an operation with the options of its call."""

    operation: Operation[Any]
    call: CallContext
    if not TYPE_CHECKING:

        @property
        def atomic(self) -> bool:
            return self.operation.atomic

        @property
        def begins(self) -> bool:
            return self.operation.begins

        @property
        def comment(self) -> str | None:
            return self.call.comment

    def __call__(self, session: Session) -> Any:
        before = session.comment, session.hint
        call, hint = self.call, None
        if call.hint is not None:
            hint = self.collection, call.hint, call.collation
        try:
            session.comment, session.hint = call.comment or before[0], hint
            return self.operation(session)
        finally:
            session.comment, session.hint = before  # no signal can come before


class _CalledBatches:
    """The batches of a stream, each read with the options of the call."""

    def __init__(self, batches: Batches, call: CallContext) -> None:
        self._batches, self._call = batches, call

    def next(self) -> Any:
        operation = self._batches.next()
        return None if operation is None else called(operation, self._call)

    def advance(self, batch: Any) -> Iterable[Any]:
        return self._batches.advance(batch)


def called_batches(batches: Batches, call: CallContext) -> Batches:
    """Return the batches of a stream, read with the options of its call."""
    return batches if call.is_pure else _CalledBatches(batches, call)


def called(operation: Operation[T], call: CallContext) -> Operation[T]:
    """Return the operation with the options of its call."""
    return operation if call is PLAIN or call.is_pure else Called(operation, call)


def plain_operation(operation: Operation[Any]) -> Operation[Any]:
    """Return the operation without the options of its call."""
    return operation.operation if isinstance(operation, Called) else operation
