"""Queries to the servers of a database: identity of a server, position of the log, progress of replicas."""

from __future__ import annotations

from typing import NamedTuple

from ..expressions.classes import value_class
from ..options import Options
from .operation import Operation
from .session import Session


class Server(NamedTuple):
    """A running server."""

    system: str
    """The database system and the database, the same for a primary and its replicas."""
    is_replica: bool
    started: str
    """The time of the start."""


class LogPosition(NamedTuple):
    """A position in the log of a timeline; each failover begins a timeline."""

    position: str
    timeline: int


@value_class
class IdentifyServer(Operation[Server]):
    """Return the server of the connection."""

    collection = ""
    atomic = True

    def __call__(self, session: Session) -> Server:
        return Server(*session.rows(session.database.replication.server)[0])


@value_class
class ReadPosition(Operation[LogPosition]):
    """Return the position in the primary's log behind all earlier commits."""

    options: Options
    collection = ""
    atomic = True

    def __call__(self, session: Session) -> LogPosition:
        return LogPosition(*session.rows(session.database.replication.position(self.options))[0])


@value_class
class HasReplayed(Operation[bool]):
    """Return whether the server is a replica that has replayed the log up to a position."""

    position: LogPosition
    collection = ""
    atomic = True

    def __call__(self, session: Session) -> bool:
        sql = session.database.replication.has_replayed
        [(has_replayed,)] = session.rows(sql, self.position._asdict())
        return has_replayed is True
