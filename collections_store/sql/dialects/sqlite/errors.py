"""Errors of SQLite."""

from __future__ import annotations

import sqlite3
from typing import Final

import sqlalchemy as sa

from .... import errors as ours
from ..protocols import Errors, TableVanished, UniqueViolated
from .functions import raised_within

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNAVAILABLE: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB})
_ADVICE: Final = {
    sqlite3.SQLITE_CANTOPEN: "is it a file, does the folder exist, and may this process write there?",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
}


class SqliteErrors(Errors):
    """SQLite's result codes."""

    def types(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, sa.exc.DBAPIError, sa.exc.ResourceClosedError)

    def translate(self, error: Exception) -> ours.CollectionsStoreError:
        cause = getattr(error, "orig", None) or error
        extended = getattr(cause, "sqlite_errorcode", 0)
        code = extended & 0xFF
        if code == sqlite3.SQLITE_ERROR and "no such table" in str(cause):
            return TableVanished(str(cause))
        if extended == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            return UniqueViolated(str(cause).rpartition("index ")[2].strip("'"))
        if code in _BUSY:
            return ours.DatabaseBusy(
                f"{cause}: another process kept the SQLite file locked for longer than busy_timeout"
            )
        if code == sqlite3.SQLITE_INTERRUPT:
            return ours.TransactionConflict("interrupted")
        advice = _ADVICE.get(extended) or _ADVICE.get(code)
        message = f"{cause}: {advice}" if advice else str(cause)
        kind = ours.DatabaseUnavailable if code in _UNAVAILABLE else ours.DatabaseError
        return kind(message)

    def raised_within(self, error: Exception) -> BaseException | None:
        return raised_within(error)
