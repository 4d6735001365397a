"""Objects into a collection, batch by batch: what `import` does, apart from the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from .. import (
    Collection,
    CollectionsStoreError,
    DuplicateKey,
    Index,
    IndexExists,
    InvalidBody,
    InvalidId,
    InvalidIndex,
    Path,
    Store,
)
from .definitions import read_indexes
from .exits import Exit, Failure, code_of, one_line
from .reading import BadItem, DamagedInput, Indexes, Item, Record, to_record


class BadLine(BadItem):
    """The import ends at a bad line: its message names the place."""


@dataclass
class Import:
    """The import of `items` into a collection of a store.

    `name` is the input's. `id_field` is where an object has its id; None: the items are lines of `export`. `tell` is
    called with a sentence for each bad item, which is then left out; None: the first one ends the
    import. `with_indexes`: are the indexes that the items tell of made?
    """

    store: Store
    collection: Collection
    items: Iterator[Item]
    name: str
    id_field: Path | None = None
    size: int = 500
    tell: Callable[[str], None] | None = None
    with_indexes: bool = True
    kept: int = 0
    skipped: int = 0
    expired: int = 0
    made: int = 0
    _indexes: list[Index] = field(default_factory=list)
    _making: Index | None = None
    _given: int = 0
    _end: BadLine | DamagedInput | None = None

    def batches(self) -> Iterator[int]:
        """Write batch by batch, and yield how many objects are kept after each; raises `Failure`,
        and then nothing of the current batch is kept.
        """
        with self._told():
            while (kept := self._write_batch()) is not None:
                self.kept += kept
                yield self.kept

    def make_indexes(self) -> None:
        """Make the indexes that the items told of; raises `Failure`."""
        with self._told():
            for index in self._indexes:
                self._making = index
                self._make(index)

    def _make(self, index: Index) -> None:
        options: dict[str, Any] = {
            "unique": index.unique,
            "where": index.where,
            "arrays": index.arrays,
        }
        try:
            self.collection.create_index(index.sort, name=index.name, **options)
            self.made += 1
        except (DuplicateKey, IndexExists, InvalidIndex) as error:
            if self.tell is None:
                raise
            self.tell(f"skipped the index {index.name!r}: {one_line(error)}")

    def _write_batch(self) -> int | None:
        """Write up to `size` objects in one transaction; returns how many. None: there were none left.

        The library refuses an object when it meets it: that is the last one given. What a unique index
        forbids it names by its id. Where bad ones are left out, the good ones are given again. Where
        none are left nothing is written, so that no collection comes into being.
        """
        batch = self._read_batch()
        some = bool(batch)
        while batch:
            try:
                self._write(batch)
            except (InvalidBody, InvalidId) as error:
                self._bad(batch.pop(self._given - 1).place, error)
            except DuplicateKey as error:
                self._bad(_taken_out(batch, error).place, error)
            else:
                break
        if self._end is not None:
            raise self._end
        return sum(not each.is_gone for each in batch) if some else None

    def _read_batch(self) -> list[Record]:
        """Read up to `size` objects. What ends the import waits for them: one of them may be bad too,
        and stands before it.
        """
        batch: list[Record] = []
        try:
            while len(batch) < self.size and (record := self._next()) is not None:
                batch.append(record)
        except (BadLine, DamagedInput) as error:
            self._end = error
        return batch

    def _write(self, batch: list[Record]) -> None:
        """Write objects, the last of each id. One that has expired is gone, as it was where it comes from."""
        last = {each.id: each for each in batch}
        if not any(each.ends for each in last.values()):
            self.collection.put_many(self._giving(batch), atomic=True)
            return
        with self.store.transaction() as tx:
            collection = tx[self.collection.name]
            collection.put_many(self._giving(batch), atomic=True)
            for id, each in last.items():
                if each.is_gone:
                    collection.remove(id)
                elif each.ends is not None:
                    left = each.ends - datetime.now(UTC)
                    collection.touch(id, ttl=max(left, timedelta.resolution))

    def _giving(self, batch: list[Record]) -> Iterator[tuple[str, object]]:
        """Yield objects, counting them; what ended the reading ends the writing too."""
        for self._given, each in enumerate(batch, 1):
            if not each.is_gone:
                yield each.id, each.body
        if self._end is not None:
            raise self._end

    def _next(self) -> Record | None:
        for item in self.items:
            try:
                found = to_record(item, self.id_field)
            except BadItem as error:
                self._bad(item.place, error)
                continue
            if isinstance(found, Indexes):
                self._learn(item, found)
            else:
                self.expired += found.is_gone
                return found
        return None

    def _learn(self, item: Item, found: Indexes) -> None:
        try:
            if self.with_indexes:
                self._indexes += read_indexes(found.values)
        except BadItem as error:
            self._bad(item.place, error)

    def _bad(self, place: str, error: Exception) -> None:
        sentence = f"{self.name}, {place}: {one_line(error)}"
        if self.tell is None:
            raise BadLine(sentence)
        self.skipped += 1
        self.tell(f"skipped {sentence}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Have what ends the import tell how much of it is kept."""
        try:
            yield
        except KeyboardInterrupt:
            raise Failure(f"interrupted; {self._so_far()}", Exit.INTERRUPTED) from None
        except BadLine as error:
            raise Failure(f"{error}; {self._so_far()}", Exit.BAD_INPUT) from error
        except DamagedInput as error:
            message = f"{self.name}: {error}; {self._so_far()}"
            raise Failure(message, Exit.BAD_INPUT) from error
        except CollectionsStoreError as error:
            raise Failure(f"{one_line(error)}; {self._so_far()}", code_of(error)) from error
        except OSError as error:
            raise Failure(f"{self.name}: {error}; {self._so_far()}", Exit.FAILED) from error

    def _so_far(self) -> str:
        if self._making is not None:
            return f"imported {objects(self.kept)}, but not the index {self._making.name!r}"
        if not self.kept:
            return "nothing was imported"
        return f"nothing of this batch was imported, {objects(self.kept)} before it were"


def _taken_out(batch: list[Record], error: DuplicateKey) -> Record:
    """Take out of a batch the object that a unique index forbids; raises `error` if it is not told.

    An id that comes twice is written with its last body.
    """
    for place in reversed(range(len(batch))):
        if batch[place].id == error.id:
            return batch.pop(place)
    raise error


def objects(count: int) -> str:
    """Return the count in words."""
    return f"{count:,} object" if count == 1 else f"{count:,} objects"
