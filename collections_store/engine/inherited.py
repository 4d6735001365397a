"""The connections of callers' engines, in a forked child.

Rules:

1. The child neither uses nor closes a connection of the parent. In SQLite a close would delete the log of a file open
   elsewhere, and a rollback the journal of the parent's transaction. PostgreSQL's server would end the parent's
   session.
2. The child keeps these connections until the process is gone, also past the end of the interpreter. The engine gets a
   new pool.
3. A connection in use at the fork is taken from the user in the child, as SQLAlchemy recommends: the connection's
   context then ends without a rollback, and a commit fails.
4. A database in memory is left alone. The child has a copy.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import PoolProxiedConnection

from .database_file import leak
from .forks import at_fork

_engines: Final[weakref.WeakSet[sa.Engine]] = weakref.WeakSet()
_in_use: Final[weakref.WeakSet[PoolProxiedConnection]] = weakref.WeakSet()


def protect(engine: sa.Engine, in_use: sa.Connection | None = None) -> None:
    """Let no forked child end the connections of a caller's engine. Of the connections in use before this call, only
    `in_use` is protected.
    """
    # `Engine.execution_options` returns an engine that may die before the pool
    engine = getattr(engine, "_proxied", engine)
    if engine not in _engines:
        _engines.add(engine)
        sa.event.listen(engine, "checkout", _note_use)
    if in_use is not None:
        _in_use.add(in_use.connection)


def _note_use(_: Any, __: Any, connection: PoolProxiedConnection) -> None:
    _in_use.add(connection)


def _after_fork() -> None:
    connection: Any
    for connection in list(_in_use):
        leak((connection, connection.dbapi_connection))
        record = getattr(connection, "_connection_record", None)  # it has no public name
        if record is not None:
            record.dbapi_connection = None
        connection.dbapi_connection = None
    _in_use.clear()
    for engine in list(_engines):
        leak(engine.pool)
        engine.dispose(close=False)


at_fork("engines", in_child=_after_fork)
