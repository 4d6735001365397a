"""Commands `import` and `export`, and the import batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path as File
from typing import Any, Final

import click

from .. import (
    Collection,
    CollectionsStoreError,
    Document,
    DuplicateKey,
    Index,
    IndexExists,
    InvalidBody,
    InvalidId,
    InvalidIndex,
    Path,
    Store,
)
from .exits import Exit, Failure, code_of, one_line
from .files import (
    STANDARD,
    BadItem,
    DamagedInput,
    Indexes,
    Item,
    Record,
    check_readable,
    progress,
    read_items,
    reading,
    shown,
    to_record,
    writing,
)
from .indexes import header, read_indexes
from .output import Format, as_line, binary_output, on_terminal, write_lines
from .target import Target, database_options, require

BATCH_BYTES: Final = 16 * 2**20
"""A batch ends with the line that exceeds it."""


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
    _bytes: int = 0
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
        """Read up to `size` objects, or lines of `BATCH_BYTES`. What ends the import waits for them: one of them
        may be bad too, and stands before it.
        """
        batch: list[Record] = []
        self._bytes = 0
        try:
            while self._has_room(batch) and (record := self._next()) is not None:
                batch.append(record)
        except (BadLine, DamagedInput) as error:
            self._end = error
        return batch

    def _has_room(self, batch: list[Record]) -> bool:
        return len(batch) < self.size and self._bytes < BATCH_BYTES

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
            self._bytes += item.size
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


_SHOWN_EACH = 500
"""Documents between two looks of the progress."""


@click.command("import")
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option("--collection", "-c", metavar="NAME", help="The collection to import into.")
@click.option(
    "--id",
    "id_field",
    metavar="FIELD",
    help="The field of each object, dotted if nested, that is its id: a string or an integer. "
    "Without it, the input is what export writes.",
)
@click.option("--skip-errors", is_flag=True, help="Report bad objects, count them, and go on.")
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="How many objects are written in one transaction.",
)
@click.option("--no-indexes", is_flag=True, help="Do not make the indexes that an export tells of.")
@database_options
@click.pass_obj
def import_(
    target: Target,
    file: str | None,
    *,
    collection: str | None,
    id_field: str | None,
    skip_errors: bool,
    batch_size: int,
    no_indexes: bool,
) -> None:
    """Put the objects of FILE into a collection; one whose id is there already is overwritten.

    FILE holds JSON lines or one JSON array, gzipped or not. Without FILE, or when it is "-",
    standard input is read, and the collection may be the only argument:

    \b
      collections-store export a | collections-store import b

    Each batch is one transaction. At a bad object the import ends: nothing of its batch is kept,
    and the message tells how many objects before it are. With --skip-errors it goes on without.

    The indexes that an export tells of are made when all objects are in. An object that expires keeps
    its time; one that has expired is left out.
    """
    file, name = _file_and_collection(file, collection)
    path = None if id_field is None else Path.parse(id_field)
    tell = _tell if skip_errors else None
    with ExitStack() as stack:
        stream, size = stack.enter_context(reading(file))
        store = stack.enter_context(target.to_write())
        target.refuse(file)
        handle = store.get_sync_collection(name)
        items, made = read_items(stream), not no_indexes
        work = Import(store, handle, items, shown(file), path, batch_size, tell, made)
        show = stack.enter_context(progress(size))
        for kept in work.batches():
            show(kept, stream.tell() if size else 0)
        work.make_indexes()
    indexes = f" and {_indexes(work.made)}" if work.made else ""
    skipped = f", skipped {objects(work.skipped)}" if work.skipped else ""
    expired = f", left out {objects(work.expired)} that had expired" if work.expired else ""
    _tell(f"imported {objects(work.kept)}{indexes} into {name}{skipped}{expired}")


@click.command()
@click.argument("collection")
@click.argument("file", required=False, type=click.Path(allow_dash=True, dir_okay=False))
@click.option(
    "--output",
    type=click.Choice(["jsonl", "json"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or one JSON array.",
)
@click.option("--no-indexes", is_flag=True, help="Write objects only.")
@database_options
@click.pass_obj
def export(
    target: Target, collection: str, file: str | None, *, output: Format, no_indexes: bool
) -> None:
    """Write all objects of COLLECTION to FILE, or to standard output.

    Each is {"id": …, "body": …}, in natural order, as import reads it, with "expires_at" if it expires. If the collection has
    indexes, {"indexes": […]} comes before them. A FILE whose name ends in .gz is gzipped. The file
    comes into being, or is replaced, when everything is written.
    """
    with target.to_read() as store:
        found = require(store, collection)
        indexes = [] if no_indexes else header(found.indexes())
        with ExitStack() as stack:
            stream, documents = binary_output(), iter(found.stream())
            if file not in {None, STANDARD}:
                target.refuse(str(file))
                stream = stack.enter_context(writing(str(file)))
            if file not in {None, STANDARD} or not on_terminal():
                documents = stack.enter_context(_shown(documents, found))
            lines = chain(indexes, map(as_line, documents))
            write_lines(lines, stream, array=output == "json")


def _file_and_collection(file: str | None, collection: str | None) -> tuple[str, str]:
    """Tell which is which: without --collection the only argument is the collection."""
    if collection is not None:
        file = file or STANDARD
        check_readable(file)
        return file, collection
    if file in {None, STANDARD}:
        raise click.UsageError("name the collection to import into: --collection NAME")
    name = str(file)
    if File(name).is_file():
        raise click.UsageError(
            f"name the collection to import {shown(name)} into: --collection NAME"
        )
    check_readable(STANDARD)
    return STANDARD, name


@contextmanager
def _shown(documents: Iterable[Document], found: Collection) -> Iterator[Iterator[Document]]:
    """Show how many of a collection's documents are taken, if standard error is a terminal."""
    size = found.count() if sys.stderr.isatty() else None
    with progress(size) as show:
        yield _counted(documents, show)


def _counted(documents: Iterable[Document], show: Callable[[int, int], None]) -> Iterator[Document]:
    number = 0
    for number, document in enumerate(documents, 1):
        if number % _SHOWN_EACH == 0:
            show(number, number)
        yield document
    show(number, number)


def _indexes(count: int) -> str:
    return f"{count} index" if count == 1 else f"{count} indexes"


def _tell(sentence: str) -> None:
    click.echo(sentence, err=True)
