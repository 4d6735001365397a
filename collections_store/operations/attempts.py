"""One of several operations in a transaction, which may fail without the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dialects import UniqueViolated
from ..errors import TransactionConflict
from .documents import Purge
from .indexing import FindDuplicate

if TYPE_CHECKING:
    from .connection import Connection


def attempt(connection: Connection, operation: Any) -> Any:
    """Do an operation of several in a transaction; if it fails, the others are as they were."""
    while True:
        try:
            with connection.savepoint():
                return operation(connection)
        except connection.database.errors() as error:
            violated = connection.database.translate(error)
            if not isinstance(violated, UniqueViolated):
                raise
            if Purge(operation.collection)(connection):
                continue  # what has expired was in the way
            where = operation.collection, violated.physical
            told = FindDuplicate(*where, written=operation.written)(connection)
            raise told or TransactionConflict(str(violated)) from error
