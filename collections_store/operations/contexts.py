"""The contexts in which what is executed takes place as one, or not at all.

They are no generators: a signal that raises as such a context is entered leaves the generator behind,
and that would roll back at any time later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connection import DriverConnection


class Whole:
    """The context of a transaction."""

    __slots__ = ("_connection", "_snapshot", "_write")

    def __init__(self, connection: DriverConnection, write: bool, snapshot: bool) -> None:
        self._connection, self._write, self._snapshot = connection, write, snapshot

    def __enter__(self) -> None:
        try:  # within: a signal may raise once it is done
            self._connection.begin(write=self._write, snapshot=self._snapshot)
        except BaseException as error:
            _undo(self._connection.rollback, error)
            raise

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None:
                self._connection.commit()
        except BaseException as failure:
            _undo(self._connection.rollback, failure)
            raise
        if error is not None:
            _undo(self._connection.rollback, error)


class Savepoint:
    """The context of a part of a transaction."""

    __slots__ = ("_connection", "_mark")

    def __init__(self, connection: Any) -> None:
        self._connection, self._mark = connection, None

    def __enter__(self) -> None:
        self._mark = self._connection.mark()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None:
                self._connection.release(self._mark)
        except BaseException as failure:
            _undo(self._back, failure)
            raise
        if error is not None:
            _undo(self._back, error)

    def _back(self) -> None:
        self._connection.back_to(self._mark)


def _undo(undo: Callable[[], None], error: BaseException) -> None:
    """Undo what was done before an error. If that fails, too, what a signal raised is not replaced: a lost connection is
    answered by one more attempt, and Ctrl-C would be forgotten.
    """
    try:
        undo()
    except Exception:
        if isinstance(error, Exception):
            raise
