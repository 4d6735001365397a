"""The catalogue of a store's connections: a cache of the statements of the collections' tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, TypeAlias

from ..errors import CollectionsStoreError, DatabaseError, SchemaError, SchemaTooNew
from ..options import CollectionOptions
from ..search.vectors import Resident
from ..sql.catalogue import CatalogueStatements
from ..sql.select import Statements
from .connection import Connection


class CollectionAbsent(CollectionsStoreError):
    """The collection `name` does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no collection {name!r}")
        self.name = name


def read_options(collection: str, text: str) -> CollectionOptions:
    """Return the options in a collection's entry; raises `SchemaTooNew`, and `DatabaseError` where the entry is damaged."""
    try:
        return CollectionOptions.from_text(text)
    except SchemaTooNew:
        raise
    except Exception as error:
        raise DatabaseError(
            f"collection {collection}: its entry in the catalogue is damaged: restore the database from a backup"
        ) from error


def jsonb_problem(connection: Connection) -> str | None:
    """Return why the database has no JSONB; None if JSONB is available."""
    database = connection.database
    probe = database.ddl.jsonb_probe
    if probe is None:
        return None
    [(version,)] = connection.rows(probe)
    return database.ddl.jsonb_problem(version)


def check_readable(connection: Connection, collection: str, options: CollectionOptions) -> None:
    """Raise `SchemaError` where the database cannot read the bodies of a collection."""
    if options.jsonb and (problem := jsonb_problem(connection)):
        found, expected = problem.split(": ")
        message = f"the collection {collection!r} keeps its bodies as JSONB: {problem}"
        raise SchemaError(message, found=found, expected=expected)


Tables: TypeAlias = dict[str, tuple[str, str, Statements]]
"""Compiled statements by collection, with the table and the options of the catalogue's entry."""
MOST_TABLES: Final = 1024
"""Collections whose statements are cached, at most: about 60 KB each."""


REFRESHED_AFTER: Final = 5.0
"""Seconds after which a collection is looked up again, and the indexes of another process are seen."""


class Catalogue:
    """A cache of the collections' tables. An entry may be out of date for `REFRESHED_AFTER` seconds: see `forget`.

    Compiled statements have their own cache, by table and options: a lookup never makes a compiled statement wrong.
    """

    statements: CatalogueStatements

    def __init__(
        self,
        statements: CatalogueStatements,
        parent: Catalogue | None = None,
        *,
        caches: bool = True,
    ) -> None:
        """A transaction of the store has a catalogue with a `parent`: the entries it reads may be rolled back."""
        self.statements, self._parent, self._caches = statements, parent, caches
        self.changed: Callable[[Iterable[str]], None] = (
            (lambda _: None) if parent is None else parent.changed
        )
        """Called after each commit that recorded changes, with the collections."""
        self.known: dict[str, tuple[Statements, float]] = {}
        """The statements of collections, and the time of the next lookup."""
        self.of_replicas: Catalogue | None = None
        """The cache of replicas, which lag behind; `forget` applies to both caches."""
        self._tables: Tables = {} if parent is None else parent._tables
        self.exists: bool = parent is not None and parent.exists
        """Whether the store's own tables are known to exist."""
        self._forgotten: set[str] = set()
        self.resident: Resident = Resident() if parent is None else parent.resident
        """What is in memory for vector indexes. Replicas have matrices of their own."""

    def look_up(self, connection: Connection, name: str) -> Statements:
        """Look up the table of a collection, and return the table's statements; raises `CollectionAbsent`."""
        rows = connection.rows(self.statements.resolve, {"name": name}) if self.exists else ()
        if not rows:
            self._tables.pop(name, None)
            raise CollectionAbsent(name)
        table, options = rows[0]
        known = self._tables.get(name)
        if known is None or known[:2] != (table, options):
            read = read_options(name, options)
            check_readable(connection, name, read)
            self._evict()
            known = self._tables[name] = table, options, self.statements.documents(table, read)
        if self._caches:
            self.known[name] = known[2], monotonic() + REFRESHED_AFTER
        return known[2]

    def cache_figures(self) -> tuple[int, int]:
        """Return the hits and misses of the caches of compiled statements, of the collections in use."""
        hits = misses = 0
        for _, _, statements in list(self._tables.values()):
            for each in list(vars(statements).values()):
                cache = getattr(each, "__wrapped__", each)
                if hasattr(cache, "cache_info"):
                    info = cache.cache_info()
                    hits, misses = hits + info.hits, misses + info.misses
        return hits, misses

    def note_tables(self) -> None:
        self.exists = True
        if self.of_replicas is not None:
            self.of_replicas.exists = True

    def _evict(self) -> None:
        """Make room in the cache: collections that another process dropped would stay cached for ever."""
        while len(self._tables) >= MOST_TABLES:
            for name in tuple(self._tables)[: MOST_TABLES // 4]:
                self._tables.pop(name, None)
                self.known.pop(name, None)

    def forget(self, name: str) -> None:
        """Look the collection up again, the next time, and release the memory of its vector indexes."""
        self.known.pop(name, None)
        self.resident.forget(name)
        if self.of_replicas is not None:
            self.of_replicas.forget(name)
        if self._parent is not None:
            self._forgotten.add(name)
        elif self._caches:
            self._tables.pop(name, None)

    def forget_all(self) -> None:
        """Look each collection up again: a rollback may have undone the entries that were read."""
        self.known.clear()

    def of_store(self) -> Catalogue:
        """Return the store's catalogue: the parent of a transaction's catalogue, else this catalogue."""
        return self._parent or self

    def after_commit(self) -> Catalogue:
        """Forget the collections that the transaction changed, and return the store's catalogue."""
        store = self._parent or self
        for name in self._forgotten:
            store.forget(name)
        return store

    def uncached(self) -> Catalogue:
        """Return a catalogue for a caller's transaction, without a cache of collections: a rollback may undo the entry,
        and a later table get the same name.
        """
        catalogue = Catalogue(self.statements, caches=False)
        catalogue._tables, catalogue.exists = self._tables, self.exists
        catalogue.resident = self.resident
        return catalogue
