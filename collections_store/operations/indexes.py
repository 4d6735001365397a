"""Creating, dropping and listing indexes, and the duplicates that unique indexes refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Any, Final, TypeAlias

from .. import codec
from ..document import Document
from ..errors import DatabaseError, DuplicateKey, IndexExists, InvalidBody, InvalidIndex
from ..expressions.classes import value_class
from ..expressions.path import Path, path_prefixes
from ..expressions.values import MISSING
from ..options import CollectionOptions, Settings
from ..query.conditions import And, Condition, Equals, Field, HasType, Or, Value
from ..query.filter import Filter
from ..query.index import MAX_INDEXES, Index, limits_of, prefixes_of
from ..query.matcher import found_at, matches, value_at
from ..query.multikey import EMPTY, ParallelArrays, index_keys
from ..query.sort import key_of
from ..query.text_index import TextIndex
from ..query.vector_index import VectorIndex
from ..sql.clauses import can_index
from ..sql.dialects.protocols import Database
from ..sql.dialects.text_search import Extension
from ..sql.keys import keyed_paths, with_keys
from .by_id import body_of
from .catalogue import check_readable
from .collections import Entry, existing, lock_entry, read_entry, set_options
from .find import Find
from .operation import Operation, Written
from .read import BEFORE_ALL, matching
from .session import Session

Key: TypeAlias = tuple[Any, ...]
ENTRIES: Final = (
    "a unique or compound index through arrays needs a single server: create it without arrays=True, "
    "or use a store without sharding"
)
COLLATION: Final = (
    "needs a single server: create the index without a collation, of a field that holds the string in the compared "
    "form, or use a store without sharding"
)
KEYED_ROWS: Final = 200
"""Documents whose keys are written at once."""
QUOTE: Final = "SQLite 3.40 cannot address a key that holds a double quote"


@value_class
class CreateIndex(Operation[str]):
    """Create an index, unless the index exists; returns the name."""

    collection: str
    index: Index | TextIndex | VectorIndex
    writes = True
    snapshot = False  # what a writer committed before the lock was acquired is indexed, too
    creates_collection = True

    def __call__(self, session: Session) -> str:
        present = _read(session, self.collection)[1]
        if self._exists(present):
            return self.index.name  # without waiting for a lock
        if isinstance(self.index, TextIndex):
            check_text_index(session, self.index)
        elif isinstance(self.index, VectorIndex):
            _check_vectors(session.database, present, self.index)
        else:
            self._check(session.database, present, self.index)
        stores_keys = self._stores_keys(session.database)
        table, options = _lock(session, self.collection, readers=stores_keys)  # ALTER TABLE
        if not self._exists(options):
            if not isinstance(self.index, Index) or self.index.has_entries or stores_keys:
                _check_snapshot(session, table)
            indexes = _Indexes(session, self.collection, table, options)
            if isinstance(self.index, TextIndex):
                indexes.add_text(self.index)
            elif isinstance(self.index, VectorIndex):
                indexes.add_vectors(self.index)
            else:
                indexes.add(self.index)
        return self.index.name

    def _stores_keys(self, database: Database) -> bool:
        is_collated = isinstance(self.index, Index) and self.index.collation is not None
        return is_collated and database.stores_keys

    def _check(self, database: Database, options: CollectionOptions, index: Index) -> None:
        if index.unique and options.distributed:
            problem = (
                "must not be unique in a distributed collection, whose ids alone are: put the value "
                "into the id, or create the collection without distributed=True"
            )
            raise InvalidIndex(index.fields[0][0], problem)
        if index.has_entries and (options.distributed or not database.indexes_text):
            raise InvalidIndex(index.fields[0][0], ENTRIES)
        if index.collation is not None and (options.distributed or database.is_remote):
            raise InvalidIndex("collation", COLLATION)
        if not can_index(database, index):
            raise InvalidIndex(index.fields[0][0], QUOTE)

    def _exists(self, options: CollectionOptions) -> bool:
        for other in options.every_index:
            if other == self.index:
                return True
            mine = isinstance(self.index, TextIndex) and self.index.kind
            is_second = isinstance(other, TextIndex) and other.kind == mine
            renamed: Any = replace(other, name=self.index.name)
            if is_second or other.name == self.index.name or renamed == self.index:
                raise IndexExists(self.index.name, str(other))
        if len(options.indexes) + len(options.vector_indexes) >= MAX_INDEXES:
            raise InvalidIndex(
                "", f"a collection can have {MAX_INDEXES} indexes, and has them: drop one"
            )
        return False


@value_class
class DropIndex(Operation[bool]):
    """Drop an index; returns whether the index existed."""

    collection: str
    name: str
    writes = True
    empty = bool

    def __call__(self, session: Session) -> bool:
        if _read(session, self.collection)[1].find(self.name) is None:
            return False
        table, options = _lock(session, self.collection, readers=True)
        index = options.find(self.name)
        if index is None:
            return False
        _Indexes(session, self.collection, table, options).remove(index)
        return True


@value_class
class HideIndex(Operation[bool]):
    """Hide an index of fields from queries; returns whether the index exists."""

    collection: str
    name: str
    hidden = True
    writes = True
    snapshot = False  # as `CreateIndex`
    empty = bool

    def __call__(self, session: Session) -> bool:
        found = self._found(_read(session, self.collection)[1])
        if found is None or found.hidden == self.hidden:
            return found is not None  # without waiting for a lock
        table, options = _lock(session, self.collection, readers=True)
        found = self._found(options)
        if found is not None and found.hidden != self.hidden:
            indexes = _Indexes(session, self.collection, table, options)
            indexes.change(found, replace(found, hidden=self.hidden))
        return found is not None

    def _found(self, options: CollectionOptions) -> Index | None:
        found = options.find(self.name)
        if found is None or isinstance(found, Index):
            return found
        raise InvalidIndex(
            "name", f"must be that of an index of fields, got {self.name!r}: {found}"
        )


@value_class
class UnhideIndex(HideIndex):
    """Let queries use a hidden index again; returns whether the index exists."""

    hidden = False


@value_class
class ListIndexes(Operation[list[Index | TextIndex | VectorIndex]]):
    """List the indexes, in the order of creation, then the text index, then those of vectors."""

    collection: str
    method = "indexes"
    atomic = True
    empty = list

    def __call__(self, session: Session) -> list[Index | TextIndex | VectorIndex]:
        return list(_read(session, self.collection)[1].every_index)


@value_class
class IsDeclared(Operation[bool]):
    """Return whether a collection has all given settings, the index of a schema version, and all given indexes."""

    collection: str
    settings: Settings
    version: int | None
    indexes: tuple[Index, ...]
    atomic = True
    empty = bool

    def __call__(self, session: Session) -> bool:
        _, options = _read(session, self.collection)
        is_set = self.settings.apply(options) == options
        versions = {None, *(version for version, _ in options.versions)}
        return (
            is_set
            and self.version in versions
            and all(each in options.indexes for each in self.indexes)
        )


@value_class
class DeclareVersion(Operation[None]):
    """Create the index of the documents without a schema version, unless the index exists. `only`: drop the indexes of
    all different versions.
    """

    collection: str
    version: int
    only: bool = False
    writes = True
    creates_collection = True

    def __call__(self, session: Session) -> None:
        if self._is_done(_read(session, self.collection)[1]):
            return  # without waiting for a lock
        table, options = _lock(session, self.collection, readers=self.only)
        if not self._is_done(options):
            indexes = _Indexes(session, self.collection, table, options)
            indexes.set_version(self.version, only=self.only)

    def _is_done(self, options: CollectionOptions) -> bool:
        declared = [version for version, _ in options.versions]
        return declared == [self.version] if self.only else self.version in declared


@value_class
class FindDuplicate(Operation[DuplicateKey | InvalidBody | None]):
    """Return the error of the document that the index `physical` refused: a duplicate, or two arrays side by side.
    `refused` returns the ids and texts of the refused write; without `refused`, stored documents are refused. None: the
    document, or the other of two duplicates, no longer exists.
    """

    collection: str
    physical: str
    index: Index | None = None
    refused: Callable[[Session], Written] | None = field(default=None, repr=False)

    def __call__(self, session: Session) -> DuplicateKey | InvalidBody | None:
        options = _read(session, self.collection)[1]
        known = (each for each in options.indexes if each.physical == self.physical)
        index = self.index or next(known, None)
        if index is None:
            return None
        try:
            return next(self._duplicates(session, index), None)
        except InvalidBody as error:
            return error

    def _duplicates(self, session: Session, index: Index) -> Iterator[DuplicateKey]:
        """Yield the errors of documents with a key of another document."""
        seen: set[Any] = set()
        written: set[str] = set()
        for document in self._documents(session):
            written.add(document.id)
            keys = self._keys(index, document)
            comparable = {self._comparable(session, index, key): key for key in keys}
            for one, key in comparable.items():
                if index.unique and (one in seen or self._is_taken(session, index, written, key)):
                    yield self._error(index, document, key)
            seen.update(comparable)

    def _error(self, index: Index, document: Document, key: Key) -> DuplicateKey:
        shown = ([] if value is EMPTY else value for value in key)
        values = dict(zip([name for name, _ in index.fields], shown, strict=True))
        hidden = () if index.arrays else index.paths
        in_arrays = tuple(str(path) for path in hidden if _has_array(document, path.keys[:-1]))
        return DuplicateKey(self.collection, index.name, values, document.id, in_arrays)

    def _keys(self, index: Index, document: Document) -> list[Key]:
        """Return the keys of a document in an index; raises `InvalidBody` for two arrays side by side."""
        if not index.arrays:
            return [_key(document, index)] if _is_in(index, document) else []
        try:
            return list(index_keys(document.body, index.paths, sparse=index.sparse))
        except ParallelArrays as parallel:
            first, second = (index.paths[each] for each in (parallel.first, parallel.second))
            problem = (
                f"the index {index.name!r} holds one array of a document, and there is one at {first}, too: "
                "write one of them otherwise, or drop the index"
            )
            raise InvalidBody(str(second), problem, self.collection, document.id) from None

    def _comparable(self, session: Session, index: Index, key: Key) -> Any:
        """Return a comparable value of a key: equal if the index holds two keys for equal."""
        ordered = session.database.ordered_keys
        if index.collation is not None:
            key = tuple(map(index.collation.keyed, key))
        return tuple("empty" if v is EMPTY else _hashable(v, ordered) for v in key)

    def _documents(self, session: Session) -> Iterator[Document]:
        if self.refused is not None:
            texts = self.refused(session)
            yield from (Document(id, codec.decode(text)) for id, text in texts)
            return
        for _, document in matching(session, self.collection, Filter()):
            yield document

    def _is_taken(self, session: Session, index: Index, written: set[str], key: Key) -> bool:
        """Return whether a document outside the refused write has the key."""
        if self.refused is None:
            return False
        where = () if index.where is None else (index.where.condition,)
        fields = (_has(path, value) for path, value in zip(index.paths, key, strict=True))
        comparable = self._comparable(session, index, key)
        alike = Filter(And((*fields, *where))).collated(index.collation)
        others = Find(self.collection, alike)(session)
        return any(
            comparable
            in [self._comparable(session, index, each) for each in self._keys(index, other)]
            for other in others
            if other.id not in written
        )


def check_text_index(session: Session, index: TextIndex) -> None:
    """Raise `InvalidIndex` if the database has no such text index."""
    text, language = session.database.text, index.language
    if not session.database.indexes_text:
        raise InvalidIndex(
            index.fields[0][0],
            "a store with sharding has no text index: use a store on a single server",
        )
    for path, _ in index.weights:
        if not session.database.ordering.can_order(path.keys):
            raise InvalidIndex(str(path), QUOTE)
    if not session.rows(text.probe):
        raise InvalidIndex(
            index.fields[0][0], "this SQLite has no FTS5: use a Python whose SQLite has it"
        )
    if language is None:
        return
    if text.languages is not None:
        if language not in text.languages:
            problem = f"SQLite has {', '.join(sorted(text.languages))} and None, got {language!r}"
            raise InvalidIndex("language", problem)
    elif not session.rows(text.language_probe, {"language": language}):
        problem = (
            f"must be a text search configuration of the server, got {language!r}: see pg_ts_config"
        )
        raise InvalidIndex("language", problem)


def duplicate_of(operation: Operation[Any], physical: str) -> FindDuplicate:
    """Return the operation that finds the duplicate that the unique index `physical` refused in an operation."""
    if isinstance(operation, CreateIndex) and isinstance(operation.index, Index):
        return FindDuplicate(operation.collection, physical, operation.index)
    return FindDuplicate(operation.collection, physical, refused=operation.written)


class _Indexes:
    """The indexes of a locked collection."""

    def __init__(
        self, session: Session, collection: str, table: str, options: CollectionOptions
    ) -> None:
        self._connection, self._collection, self._options = session, collection, options
        self._table = table
        self._statements = session.store.indexes(table, options.indexes)

    def add(self, index: Index) -> None:
        """Create an index, and the array guards of the index's fields."""
        key_name = "" if index.collation is None else index.collation.key_name
        added = replace(index, physical=self._next(), key_name=key_name)
        self._set_keys((*self._options.indexes, added))
        for statement in self._statements.create(added):
            self._connection.changed(statement)
        there = {prefix for prefix, _ in self._options.array_guards}
        guards = [(each, self._next()) for each in prefixes_of(added) if each not in there]
        for prefix, physical in guards:
            self._connection.changed(self._statements.create_prefix_index(prefix, physical))
        self._set_options(
            indexes=(*self._options.indexes, added),
            array_guards=(*self._options.array_guards, *guards),
        )

    def add_text(self, index: TextIndex) -> None:
        """Create a text index."""
        extension, trigrams = "", self._connection.database.text.trigrams
        if index.substring and trigrams is not None:
            extension = _extension(self._connection, trigrams, "substring", "True", "")
        added = replace(index, physical=self._next())
        for statement in self._statements.create_text(added, extension):
            self._connection.changed(statement)
        self._set_options(**{added.kind: added})

    def add_vectors(self, index: VectorIndex) -> None:
        """Create a vector index."""
        extension = ""
        if index.method != "exact":
            approximate = self._connection.database.approximate
            assert approximate is not None
            otherwise = ", or use method='exact'"
            extension = _extension(self._connection, approximate, "method", "'hnsw'", otherwise)
        added = replace(index, physical=self._next(), extension=extension)
        for statement in self._statements.create_vectors(added):
            self._connection.changed(statement)
        self._set_options(vector_indexes=(*self._options.vector_indexes, added))

    def remove(self, index: Index | TextIndex | VectorIndex) -> None:
        """Drop an index, and the array guards that no remaining index needs."""
        if isinstance(index, TextIndex):
            for statement in self._statements.drop(index):
                self._connection.changed(statement)
            self._set_options(**{index.kind: None})
            return
        if isinstance(index, VectorIndex):
            for statement in self._statements.drop(index):
                self._connection.changed(statement)
            left = (each for each in self._options.vector_indexes if each.name != index.name)
            self._set_options(vector_indexes=tuple(left))
            return
        remaining = tuple(each for each in self._options.indexes if each.name != index.name)
        needed = {prefix for each in remaining for prefix in prefixes_of(each)}
        for statement in self._statements.drop(index):
            self._connection.changed(statement)
        for prefix, physical in self._options.array_guards:
            if prefix not in needed:
                self._connection.changed(self._statements.drop_index(physical))
        guards = tuple(each for each in self._options.array_guards if each[0] in needed)
        self._set_keys(remaining)
        self._set_options(indexes=remaining, array_guards=guards)

    def change(self, old: Index, new: Index) -> None:
        """Create an index again with other options; a table of entries stays."""
        if not old.arrays:
            new = replace(new, physical=self._next())
            for statement in (*self._statements.drop(old), *self._statements.create(new)):
                self._connection.changed(statement)
        changed = (new if each.name == old.name else each for each in self._options.indexes)
        self._set_options(indexes=tuple(changed))

    def set_version(self, version: int, *, only: bool) -> None:
        """Create the index of the documents with different schema versions; `only`: drop the indexes of all different
        versions.
        """
        versions = dict(self._options.versions)
        if version not in versions:
            versions[version] = self._next()
            sql = self._statements.create_version_index(version, versions[version])
            self._connection.changed(sql)
        for other in [each for each in versions if only and each != version]:
            self._connection.changed(self._statements.drop_index(versions.pop(other)))
        self._set_options(versions=tuple(sorted(versions.items())))

    def _set_keys(self, indexes: tuple[Index, ...]) -> None:
        """Store the keys of other indexes beside the bodies, where the database stores them."""
        session, old = self._connection, self._options.indexes
        statements = self._statements.set_keys(old, indexes)
        if not statements:
            return
        for statement in statements:
            session.changed(statement)
        self._statements = session.store.indexes(self._table, indexes)
        if set(keyed_paths(indexes)) <= set(keyed_paths(old)):
            return
        paths, after = keyed_paths(indexes), BEFORE_ALL
        read, write = self._statements.bodies(), self._statements.write_keys()
        while rows := session.rows(read, {"seq": after, "limit": KEYED_ROWS}):
            texts = [
                with_keys(text, body_of(self._collection, id, text, codec.decode), paths)
                for _, id, text in rows
            ]
            session.changed(write, {"seq": [row[0] for row in rows], "body": texts})
            after = rows[-1][0]

    def _next(self) -> str:
        number = self._options.counter
        self._options = replace(self._options, counter=number + 1)
        return self._statements.physical(number)

    def _set_options(self, **changed: Any) -> None:
        set_options(self._connection, self._collection, replace(self._options, **changed))
        self._connection.catalogue.forget(self._collection)


def _check_vectors(database: Database, options: CollectionOptions, index: VectorIndex) -> None:
    if options.distributed or database.is_remote:
        raise InvalidIndex("", "a collection on the servers of a cluster has no vector indexes")
    if index.method == "exact":
        return
    if database.approximate is None:
        where = f"must be 'exact' on {database.name}, got {index.method!r}: use PostgreSQL"
        raise InvalidIndex("method", where)
    if problem := database.approximate.problem(index):
        raise InvalidIndex("dimensions", problem)


def _check_snapshot(session: Session, table: str) -> None:
    """Raise `InvalidIndex` where the index, filled by a SELECT, would miss what others committed."""
    store = session.store
    if session.database.ddl.misses_rows is None or not session.rows(
        store.misses_rows, store.find_table(table)
    ):
        return
    problem = (
        "must be created outside of the transaction, which does not see what others have written since it began: "
        "call this method of the store's collection, before the transaction"
    )
    raise InvalidIndex("", problem)


def _extension(
    session: Session, extension: Extension, option: str, value: str, otherwise: str
) -> str:
    """Return the schema of the extension that a value of an option needs, and install the extension; raises `InvalidIndex`."""
    [(schema, is_recent, is_there)] = session.rows(extension.probe)
    if schema is None and is_there:
        try:
            with session.savepoint():
                session.changed(extension.install)
        except session.database.errors.types() as error:
            found = session.database.errors.translate(error)
            if type(found) is not DatabaseError:
                raise  # another connection installs it: the operation is tried again
            problem = f"{value} needs {extension.advice}, which this role cannot install ({found}): have {extension.installer} execute CREATE EXTENSION {extension.name}{otherwise}"
            raise InvalidIndex(option, problem) from None
        [(schema, is_recent, _)] = session.rows(extension.probe)
    if not is_recent:
        problem = f"{value} needs {extension.advice}, which the server does not have: install it{otherwise}"
        raise InvalidIndex(option, problem)
    return str(schema)


def _read(session: Session, collection: str) -> Entry:
    return existing(collection, read_entry(session, collection))


def _lock(session: Session, collection: str, *, readers: bool) -> Entry:
    entry = existing(collection, lock_entry(session, collection, readers=readers))
    check_readable(session, collection, entry[1])
    return entry


def _is_in(index: Index, document: Document) -> bool:
    """Return whether a unique index counts a document: `where` and `sparse` do not look into arrays."""
    if index.sparse:
        return any(found_at(document.body, path.keys) is not MISSING for path in index.paths)
    fields = (field for limit in limits_of(index) for field in limit)
    return (index.where is None or matches(index.where, document)) and not any(
        _has_array(document, each.path.keys) for each in fields
    )


def _has_array(document: Document, keys: tuple[str, ...]) -> bool:
    """Return whether an array is at a field, or on the way to the field."""
    return bool(keys) and any(
        isinstance(value_at(document.body, way), list) for way in path_prefixes(keys)
    )


def _has(path: Path, value: Any) -> Condition:
    """Return the condition of all documents that a unique index may have under a value."""
    equal = Field(path, Equals(Value.of(value)))
    if value is not None:
        return equal
    arrays = (Field(Path(*way), HasType(("array",))) for way in path_prefixes(path.keys)[:-1])
    return Or((equal, *arrays))


def _key(document: Document, index: Index) -> Key:
    """Return the key of a document in a unique index: null where a field is missing, or within an array."""
    return tuple(value_at(document.body, path.keys) for path in index.paths)


def _hashable(value: Any, ordered: bool) -> Any:
    rank, inner = key_of(value)
    return rank, codec.spell(_sorted(inner, ordered)) if isinstance(inner, dict | list) else inner


def _sorted(value: Any, ordered: bool) -> Any:
    """Return the value with its keys sorted, unless their order counts."""
    if isinstance(value, list):
        return [_sorted(each, ordered) for each in value]
    if ordered or not isinstance(value, dict):
        return value
    return {key: _sorted(value[key], ordered) for key in sorted(value)}
