"""Opening, creating and upgrading a database; the components of a store."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from ..errors import (
    DatabaseBusy,
    InvalidOption,
    SchemaOutdated,
    StoreClosed,
    shortened,
)
from ..operations.schema import create_or_find, read_revision
from ..operations.session import DriverSession, SharedSession
from ..options import Options
from ..sql.dialects.protocols import Database
from ..sql.dialects.support import upgrades
from ..sql.schema import REVISION
from .pool import PooledConnection, translate

C = TypeVar("C")


class Component(Protocol):
    """A part of a program with the lifetime of an open store."""

    def setup(self) -> Any:
        """Begin."""

    def teardown(self) -> Any:
        """End: the store is about to be closed."""


class AsyncComponent(Protocol):
    """An asynchronous component."""

    def setup(self) -> Awaitable[Any]:
        """Begin."""

    def teardown(self) -> Awaitable[Any]:
        """End: the store is about to be closed."""


class Components(Generic[C]):
    """The components attached to a store. Any thread may attach one, until all are torn down."""

    def __init__(self) -> None:
        self._attached: list[C] = []
        self._guard = threading.Lock()
        self._have_ended = False

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._attached))

    def attach(self, component: C, *, is_synchronous: bool = False) -> None:
        """Attach a component; raise `InvalidOption` and `StoreClosed`. A store that `is_synchronous` rejects
        asynchronous components: nobody would await their methods.
        """
        methods = [getattr(component, name, None) for name in ("setup", "teardown")]
        if isinstance(component, type) or not all(map(callable, methods)):
            problem = "is no object with the methods setup() and teardown()"
            raise InvalidOption("component", f"{shortened(component)} {problem}")
        if is_synchronous and any(map(inspect.iscoroutinefunction, methods)):
            problem = "is asynchronous: attach it to an AsyncStore"
            raise InvalidOption("component", f"{shortened(component)} {problem}")
        with self._guard:
            if self._have_ended:
                raise StoreClosed("the store is closed: nothing can be attached any more")
            self._attached.append(component)

    def taken(self) -> Iterator[C]:
        """Remove and yield all components, also components attached meanwhile, the last first. Afterwards no component
        can be attached.
        """
        while True:
            with self._guard:
                self._have_ended = not self._attached
                if self._have_ended:
                    return
                component = self._attached.pop()
            yield component


def tear_down(components: Iterable[Component]) -> None:
    """Tear down all components; then raise their errors."""
    errors: list[BaseException] = []
    for each in components:
        try:
            each.teardown()
        except BaseException as error:  # noqa: BLE001 - it is raised when the others had their turn
            errors.append(error)
    raise_all(errors)


@contextmanager
def noting_failure(error: BaseException) -> Iterator[None]:
    """Return a context that adds errors as notes to an earlier error."""
    try:
        yield
    except Exception as another:  # noqa: BLE001 - the first one is raised
        error.add_note(f"and then it could not be closed either: {another!r}")


def raise_all(errors: list[BaseException]) -> None:
    """Raise a single error unchanged, several as a group. An error that ends the program is raised alone."""
    ordinary = [each for each in errors if isinstance(each, Exception)]
    urgent = [each for each in errors if not isinstance(each, Exception)]
    if urgent:
        for each in urgent[1:] + ordinary:
            urgent[0].add_note(f"and another component could not be torn down: {each!r}")
        raise urgent[0]
    if len(ordinary) == 1:
        raise ordinary[0]
    if ordinary:
        raise ExceptionGroup("several components could not be torn down", ordinary)


RETRY_PAUSE = 0.01


def make_ready(pooled: PooledConnection, options: Options, *, write: bool) -> None:
    """Upgrade the store's tables of an older version. Before the first `write`, create missing tables, and set the
    settings that a file keeps. Raise `SchemaError` without changing anything.
    """
    connection, database = pooled.connection, pooled.connection.database
    try:
        if isinstance(connection, SharedSession):
            connection.prepare(write=write)
        revision = read_revision(connection)
        _upgrade(pooled, revision, options)
        if write and isinstance(connection, DriverSession):
            _persist(connection, options.busy_timeout)
        if write and revision is None:
            _upgrade(pooled, create_or_find(connection), options)
        if write or revision is not None:
            connection.catalogue.note_tables()
    except database.errors.types() as error:
        raise translate(error, pooled.sa.engine, database) from error


def _upgrade(pooled: PooledConnection, revision: str | None, options: Options) -> None:
    check_revision(revision, options, pooled.connection.database)
    if revision not in {None, REVISION}:
        from .. import migrate

        migrate.bring_up(pooled, options.names())


def check_revision(revision: str | None, options: Options, database: Database) -> None:
    """Raise `SchemaError` if a store with these options cannot use tables of this revision, nor upgrade them."""
    if revision is None or revision == REVISION:
        return
    from .. import migrate

    migrate.refuse_unknown(revision)
    if not upgrades(options, database):
        raise SchemaOutdated(
            f"the database is at schema {revision}, this version of collections_store needs "
            f"{REVISION}: run `collections-store db upgrade`, or open it with upgrade='auto'",
            found=revision,
            expected=REVISION,
        )


def _persist(connection: DriverSession, timeout: float) -> None:
    """Set the settings that a file keeps. While another process sets these, SQLite reports "busy" at once, whatever the
    busy timeout.
    """
    errors, deadline = connection.database.errors, time.monotonic() + timeout
    for setting in connection.database.connections.persistent_settings:
        while True:
            try:
                connection.command(setting)
                break
            except errors.types() as error:
                if errors.is_read_only(error):
                    break  # it stays as it is
                is_busy = isinstance(errors.translate(error), DatabaseBusy)
                if not is_busy or time.monotonic() >= deadline:
                    raise
                time.sleep(RETRY_PAUSE)
