"""The argument of operations: a connection, with the catalogue and the recorder of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

import sqlalchemy as sa

from ..expressions.collation import Collation
from ..options import Isolation
from ..options.calls import Hint
from ..query.index import Index
from ..sql.catalogue import CatalogueStatements
from ..sql.select import Statements
from .catalogue import Catalogue
from .connection import Connection, Row
from .recorder import PendingChange, Recorder, Savepoint, prunable, prune
from .shared import SharedConnection


class Session(Connection):
    """The connection of an operation, the catalogue that the connection sees, and the changes of the transaction.

    A session is a connection: delegation would add a frame to every statement.
    """

    catalogue: Catalogue
    store: CatalogueStatements
    hint: tuple[str, Hint | Index, Collation | None] | None = None
    """The collection and the index of the hint of the call in execution, and the call's collation."""
    _recorder: Recorder | None = None

    def use(self, catalogue: Catalogue) -> None:
        """Read a catalogue from now on."""
        self.catalogue, self.store = catalogue, catalogue.statements

    @property
    def recorder(self) -> Recorder:
        """The recorder of changes; the first use creates the recorder, which most sessions do without."""
        if self._recorder is None:
            self._recorder = Recorder(self.store)
        return self._recorder

    def collection(self, name: str) -> Statements:
        """Return the statements of a collection's table; raises `CollectionAbsent`."""
        known = self.catalogue.known.get(name)
        if known is not None and monotonic() <= known[1]:
            found = known[0]
        else:
            found = self.catalogue.look_up(self, name)
        hint = self.hint
        return found if hint is None or hint[0] != name else found.hinted(*hint)

    @contextmanager
    def hinted(self, collection: str, index: Index) -> Iterator[None]:
        """Read a collection by an index, also by a hidden one."""
        hint, self.hint = self.hint, (collection, index, index.collation)
        try:
            yield
        finally:
            self.hint = hint

    @contextmanager
    def unhinted(self) -> Iterator[None]:
        """Read without the hint of the call."""
        hint, self.hint = self.hint, None
        try:
            yield
        finally:
            self.hint = hint

    def entries(self, sql: str, **parameters: str) -> list[Row]:
        """Return rows of the catalogue's table: none before the first write creates the table."""
        return self.rows(sql, parameters) if self.catalogue.exists else []

    def record(self, change: PendingChange) -> None:
        """Record a change with the transaction."""
        self.recorder.add(self, change)

    def record_pending(self) -> None:
        """Record the pending changes now, in this transaction."""
        if self._recorder is not None:
            self._recorder.record(self)

    def publish_recorded(self) -> None:
        """Notify watchers of the committed changes, and prune the feeds."""
        if self._recorder is None:
            return
        recorded, self._recorder.recorded = self._recorder.recorded, {}
        if recorded:
            self.catalogue.changed(recorded)
            for feed in prunable(recorded.values()):
                self.maintain(partial(prune, self, feed))

    def begin_transaction(self, isolation: Isolation, *, write: bool = True) -> None:
        """Begin a transaction of the user's, with a catalogue of its own."""
        super().begin_transaction(isolation, write=write)
        self.catalogue = Catalogue(self.store, self.catalogue)

    def commit(self) -> None:
        """Record the pending changes, commit, and publish the changes."""
        if self._recorder is not None and self._recorder.pending:
            self.record_pending()
        super().commit()
        if self._recorder is not None and self._recorder.recorded:
            self.publish_recorded()

    def rollback(self) -> None:
        if self._recorder is not None:
            self._recorder.clear()
        super().rollback()

    def reset(self) -> bool:
        self.catalogue = self.catalogue.of_store()
        return super().reset()

    def begin_savepoint(self) -> Savepoint:
        return Savepoint(super().begin_savepoint(), self.recorder.pending)

    def release_savepoint(self, savepoint: Savepoint) -> None:
        super().release_savepoint(savepoint.handle)

    def rollback_to(self, savepoint: Savepoint) -> None:
        self.recorder.rollback_to(savepoint)
        self.catalogue.forget_all()
        super().rollback_to(savepoint.handle)


class DriverSession(Session):
    """A session on a connection that the store owns."""

    def __init__(
        self,
        driver: Any,
        catalogue: Catalogue,
        settings: Sequence[str] = (),
        *,
        is_pooled: bool = False,
    ) -> None:
        super().__init__(driver, catalogue.statements.database, settings, is_pooled=is_pooled)
        self.use(catalogue)


class SharedSession(Session, SharedConnection):
    """A session on a connection that the caller owns."""

    def __init__(self, connection: sa.Connection, catalogue: Catalogue) -> None:
        SharedConnection.__init__(self, connection, catalogue.statements.database)
        self.use(catalogue)
