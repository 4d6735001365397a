"""Errors of PostgreSQL."""

from __future__ import annotations

import re
from typing import Any, Final

import sqlalchemy as sa

from .... import errors as ours
from ..protocols import Errors, TableVanished, UniqueViolated

_CONFLICTS: Final = frozenset({"40001", "40P01", "25P03"})
"""25P03: the server ended a session that was idle in its transaction for too long, and rolled that back."""
_BUSY: Final = frozenset({"55P03", "53300", "57P03"})
_NOT_YET: Final = re.compile(
    "is starting up|is shutting down|not yet accepting|too many (clients|connections)|connection slots"
)
"""The text of a refused connection: the driver has no state for it."""
_READ_ONLY: Final = (
    "the server lets this session read only (default_transaction_read_only, or a standby): "
    "connect to one that may write"
)
_OUR_INDEX: Final = re.compile(r"\$i[0-9]+$")
_LOST: Final = ("08", "57P")
_STORES_ROW: Final = "RelationGetBufferForTuple"
"""The server's function that reports a row too large for its page: an index's, for rows of collections never are."""
_TOO_LONG: Final = "its keys are too long for PostgreSQL before 18: use shorter ones, or fewer"


class PostgresErrors(Errors):
    """SQLSTATE codes."""

    def types(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.Error, sa.exc.DBAPIError, sa.exc.ResourceClosedError)

    def translate(self, error: Exception) -> ours.CollectionsStoreError:
        import psycopg

        cause: Any = getattr(error, "orig", None) or error
        state = getattr(cause, "sqlstate", None) or ""
        diagnosis = getattr(cause, "diag", None)
        # the rest of its text holds SQL and values
        message = getattr(diagnosis, "message_primary", None) or str(cause).strip()
        if state == "42P01":
            return TableVanished(message)
        if state == "23505" and _OUR_INDEX.search(cause.diag.constraint_name or ""):
            return UniqueViolated(cause.diag.constraint_name)
        if state == "23505" and (cause.diag.table_name or "").startswith("pg_"):
            return ours.TransactionConflict(message)  # two created something of the same name
        if state == "54000" and getattr(diagnosis, "source_function", "") == _STORES_ROW:
            return ours.InvalidIndex("", _TOO_LONG)
        if state in _CONFLICTS:
            return ours.TransactionConflict(message)
        if state in _BUSY or (not state and _NOT_YET.search(message)):
            return ours.DatabaseBusy(message)
        if state == "25006":
            return ours.DatabaseError(f"{message}: {_READ_ONLY}")
        lost = state.startswith(_LOST) or (
            not state and isinstance(cause, psycopg.OperationalError)
        )
        kind = ours.DatabaseUnavailable if lost else ours.DatabaseError
        return kind(message)
