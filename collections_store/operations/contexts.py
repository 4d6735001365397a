"""The contexts in which what is executed takes place as one, or not at all.

They are no generators: a signal that raises as such a context is entered leaves the generator behind,
and that would roll back at any time later.
"""

from __future__ import annotations

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
        except BaseException:
            self._connection.rollback()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        if kind is not None:
            self._connection.rollback()


class Savepoint:
    """The context of a part of a transaction."""

    __slots__ = ("_connection", "_mark")

    def __init__(self, connection: Any) -> None:
        self._connection, self._mark = connection, None

    def __enter__(self) -> None:
        self._mark = self._connection.mark()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.release(self._mark)
        except BaseException:
            self._connection.back_to(self._mark)
            raise
        if kind is not None:
            self._connection.back_to(self._mark)
