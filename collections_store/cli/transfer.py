"""The commands `import` and `export`, and the import in batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path as File
from typing import IO, TYPE_CHECKING, Any, Final

import click

from .. import (
    CollectionsStoreError,
    DuplicateKey,
    IndexExists,
    InvalidBody,
    InvalidId,
    InvalidIndex,
    Path,
    TextIndex,
    VectorIndex,
)
from ..codec import Codec
from ..document import check_id
from ..engine.backup.atomic_file import DamagedInput
from . import formats
from .arguments import Target, collection_argument, on_database, output_option, skip_errors_option
from .catalogue import index_lines, read_indexes
from .files import (
    STANDARD,
    BadItem,
    Indexes,
    Item,
    Record,
    check_readable,
    progress,
    reading,
    shown,
    to_record,
    working,
    writing,
)
from .output import (
    Exit,
    Failure,
    Format,
    as_line,
    code_of,
    counted,
    one_line,
    write_lines,
)

if TYPE_CHECKING:
    from .. import Collection, Document, Index, Store

BATCH_BYTES: Final = 16 * 2**20
"""A batch ends with the line that exceeds it."""
_SHOWN_EACH: Final = 500
"""Documents between two updates of the progress bar."""


class BadLine(BadItem):
    """A bad line at which the import ends; the message has the position."""


@dataclass
class Import:
    """The import of `items` from the input `name` into a collection of a store.

    `id_field` is the field of a document's id; None: the items are lines of `export`. `report` is called with a
    sentence for each bad item, and the import continues; None: the first bad item ends the import. `with_indexes`:
    whether the indexes among the items are created.
    """

    store: Store
    collection: Collection
    items: Iterator[Item]
    name: str
    id_field: Path | None = None
    size: int = 500
    report: Callable[[str], None] | None = None
    with_indexes: bool = True
    written: int = 0
    skipped: int = 0
    expired: int = 0
    created: int = 0
    _indexes: list[Index | TextIndex | VectorIndex] = field(default_factory=list)
    _creating: Index | TextIndex | VectorIndex | None = None
    _bytes: int = 0
    _end: BadLine | DamagedInput | None = None

    def batches(self) -> Iterator[int]:
        """Write batch by batch; yield the number of written documents after each batch. Raise `Failure`; then
        nothing of the current batch is written.
        """
        with self._failing():
            while (count := self._write_batch()) is not None:
                self.written += count
                yield self.written

    def create_indexes(self) -> None:
        """Create the indexes among the items; raise `Failure`."""
        with self._failing():
            for index in self._indexes:
                self._creating = index
                with working(f"creating the index {index.name}"):
                    self._create(index)

    def summary(self) -> str:
        written, skipped, expired = (
            counted(count, "document") for count in (self.written, self.skipped, self.expired)
        )
        return (
            f"imported {written}"
            + (f" and {counted(self.created, 'index')}" if self.created else "")
            + f" into {self.collection.name}"
            + (f", skipped {skipped}" if self.skipped else "")
            + (f", left out {expired} that had expired" if self.expired else "")
        )

    def _created(self, index: Index | TextIndex | VectorIndex) -> None:
        options: dict[str, Any] = {"name": index.name}
        if isinstance(index, TextIndex):
            fields = dict(index.weights)
            options |= {"language": index.language, "substring": index.substring}
            self.collection.create_text_index(fields, **options)
        elif isinstance(index, VectorIndex):
            options |= {"dimensions": index.dimensions, "metric": index.metric}
            options |= {"model": index.model, "method": index.method}
            self.collection.create_vector_index(index.paths, **options)
        else:
            options |= {"where": index.where, "arrays": index.arrays, "unique": index.unique}
            options |= {"sparse": index.sparse, "hidden": index.hidden}
            options |= {"expire_after_seconds": index.expire_after_seconds}
            options |= {"collation": index.collation and index.collation.to_json()}
            self.collection.create_index(index.sort, **options)

    def _create(self, index: Index | TextIndex | VectorIndex) -> None:
        try:
            self._created(index)
            self.created += 1
        except (DuplicateKey, IndexExists, InvalidBody, InvalidIndex) as error:
            if self.report is None:
                raise
            self.report(f"skipped the index {index.name!r}: {one_line(error)}")

    def _write_batch(self) -> int | None:
        """Write up to `size` documents in a transaction; return their number, or None at the end of the input.

        A document forbidden by an index is named by its id. After a bad document is skipped, the batch is
        written again. Nothing is written for an empty batch: no collection is created.
        """
        batch = self._read_batch()
        some = bool(batch)
        while batch:
            refused = None if self._end is None else _first_refused(batch)
            try:
                if self._end is None:
                    self._write(batch)
            except (InvalidBody, InvalidId, DuplicateKey) as error:
                refused = _first_refused(batch) or _refused_by_index(batch, error)
                if refused is None:
                    raise
            if refused is None:
                break
            position, problem = refused
            self._bad(batch.pop(position).place, problem)
        if self._end is not None:
            raise self._end
        return sum(not each.is_expired for each in batch) if some else None

    def _read_batch(self) -> list[Record]:
        """Read up to `size` documents, or lines of `BATCH_BYTES`. An error at which the import ends is raised after
        the batch is written: the batch may have a bad document, whose error comes first.
        """
        batch: list[Record] = []
        self._bytes = 0
        try:
            while len(batch) < self.size and self._bytes < BATCH_BYTES:
                if (record := self._next()) is None:
                    break
                batch.append(record)
        except (BadLine, DamagedInput) as error:
            self._end = error
        return batch

    def _write(self, batch: list[Record]) -> None:
        """Write documents, the last of each id. An expired document removes its id."""
        last = {each.id: each for each in batch}
        if not any(each.ends for each in last.values()):
            self.collection.put_many(_pairs(batch), atomic=True)
            return
        with self.store.transaction() as tx:
            collection = tx[self.collection.name]
            collection.put_many(_pairs(batch), atomic=True)
            for id, each in last.items():
                if each.is_expired:
                    collection.remove(id)
                elif each.ends is not None:
                    left = each.ends - datetime.now(UTC)
                    collection.touch(id, ttl=max(left, timedelta.resolution))

    def _next(self) -> Record | None:
        for item in self.items:
            self._bytes += item.size
            try:
                found = to_record(item, self.id_field)
                if isinstance(found, Indexes) and self.with_indexes:
                    self._indexes += read_indexes(found.values)
            except BadItem as error:
                self._bad(item.place, error)
                continue
            if isinstance(found, Record):
                self.expired += found.is_expired
                return found
        return None

    def _bad(self, place: str, error: Exception) -> None:
        sentence = f"{self.name}, {place}: {one_line(error)}"
        if self.report is None:
            raise BadLine(sentence)
        self.skipped += 1
        self.report(f"skipped {sentence}")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn an error at which the import ends into a `Failure` with the number of written documents."""
        try:
            yield
        except KeyboardInterrupt:
            raise self._failure("interrupted", Exit.INTERRUPTED) from None
        except BadLine as error:
            raise self._failure(str(error), Exit.BAD_INPUT) from error
        except DamagedInput as error:
            raise self._failure(f"{self.name}: {error}", Exit.BAD_INPUT) from error
        except CollectionsStoreError as error:
            raise self._failure(one_line(error), code_of(error)) from error
        except OSError as error:
            raise self._failure(f"{self.name}: {error}", Exit.FAILED) from error

    def _failure(self, problem: str, code: Exit) -> Failure:
        written = counted(self.written, "document")
        if self._creating is not None:
            done = f"imported {written}, but not the index {self._creating.name!r}"
        elif self.written:
            done = f"nothing of this batch was imported, {written} before it were"
        else:
            done = "nothing was imported"
        return Failure(f"{problem}; {done}", code)


@click.command("import")
@click.argument("file", required=False, type=click.Path(allow_dash=True))
@click.option("--collection", "-c", metavar="NAME", help="The collection to import into.")
@click.option(
    "--format",
    "source",
    type=click.Choice(formats.SOURCES),
    default="json",
    show_default=True,
    help="The format of FILE: JSON of export or of any program, MongoDB's Extended JSON (mongoexport), BSON "
    "(mongodump), TinyDB's file, or CSV with names of columns in the first line.",
)
@click.option(
    "--id",
    "id_field",
    metavar="FIELD",
    help="The dotted path or the CSV column of the ids, which are strings or integers. "
    "Default: FILE has the format of export.",
)
@click.option("--new-ids", is_flag=True, help="Give each document of JSON or CSV a new id.")
@click.option("--table", metavar="NAME", default="_default", help="The table of a TinyDB file.")
@click.option(
    "--types",
    metavar="COLUMN=TYPE,...",
    help="The types of columns of CSV: string, integer, number, boolean or json. Default: string.",
)
@skip_errors_option
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Documents in a transaction.",
)
@click.option("--no-indexes", is_flag=True, help="Do not create the indexes of an export.")
@on_database
def import_(
    target: Target,
    file: str | None,
    *,
    collection: str | None,
    skip_errors: bool,
    batch_size: int,
    no_indexes: bool,
    **how: Any,
) -> None:
    """Import the documents of FILE into a collection, and replace existing documents.

    FILE is JSON lines or one JSON array, or has the --format of another program. FILE may be gzipped. Without FILE,
    or with "-", the command reads standard input, and the collection may be the only argument:

    \b
      collections-store import people.jsonl --collection people --id login
      collections-store export a | collections-store import b

    Each batch is one transaction. An invalid document ends the import: nothing of its batch is written, and the
    message has the number of documents already written. With --skip-errors the import omits invalid documents.

    The indexes of an export are created after all documents. A document keeps its time of expiry; an expired
    document is omitted.
    """
    file, name = _file_and_collection(file, collection)
    _check_ids(how["source"], how["id_field"], how["new_ids"])
    path = Path.parse(how["id_field"]) if how["source"] == "json" and how["id_field"] else None
    report = _report if skip_errors else None
    with ExitStack() as stack:
        stream, size = stack.enter_context(reading(file))
        store = stack.enter_context(target.to_write())
        target.refuse(file)
        handle, items = store.collection(name), formats.read(stream, **how)
        work = Import(store, handle, items, shown(file), path, batch_size, report, not no_indexes)
        with progress(size) as show:
            for count in work.batches():
                show(count, stream.tell() if size else 0)
        work.create_indexes()
    _report(work.summary())


def _pairs(batch: list[Record]) -> list[tuple[str, Any]]:
    """Return the documents of a batch that have not expired."""
    return [(each.id, each.body) for each in batch if not each.is_expired]


def _first_refused(batch: list[Record]) -> tuple[int, CollectionsStoreError] | None:
    """Return the position and the error of the first document that cannot be written."""
    codec = Codec()
    for position, each in enumerate(batch):
        try:
            if not each.is_expired:
                check_id(each.id)
                codec.encode_body(each.body)
        except CollectionsStoreError as error:
            return position, error
    return None


def _refused_by_index(
    batch: list[Record], error: CollectionsStoreError
) -> tuple[int, CollectionsStoreError] | None:
    """Return the position of the last document with the id that the error of an index names, and the error."""
    id = error.id if isinstance(error, DuplicateKey | InvalidBody) else None
    positions = [at for at, each in enumerate(batch) if each.id == id]
    return (positions[-1], error) if positions else None


def _check_ids(source: formats.Source, id_field: str | None, new_ids: bool) -> None:
    """Raise `UsageError` unless the ids have a single origin."""
    if id_field is not None and new_ids:
        raise click.UsageError("--id and --new-ids exclude each other: give one of them")
    if source == "csv" and id_field is None and not new_ids:
        raise click.UsageError("name the column of the ids with --id, or give --new-ids")
    if source in {"mongodb", "bson", "tinydb"} and (id_field is not None or new_ids):
        raise click.UsageError(f"the documents of {source} have ids: omit --id and --new-ids")


def _file_and_collection(file: str | None, collection: str | None) -> tuple[str, str]:
    """Return the file and the collection: without --collection the only argument is the collection."""
    if collection is not None:
        check_readable(file or STANDARD)
        return file or STANDARD, collection
    if file is None or file == STANDARD:
        raise click.UsageError("name the collection to import into: --collection NAME")
    if File(file).is_file():
        raise click.UsageError(
            f"name the collection to import {shown(file)} into: --collection NAME"
        )
    check_readable(STANDARD)
    return STANDARD, file


@click.command()
@collection_argument
@click.argument("file", required=False, type=click.Path(allow_dash=True, dir_okay=False))
@output_option("jsonl", "json", "mongodb", "csv")
@click.option(
    "--fields", metavar="FIELD,...", help="The CSV columns beside the id, as dotted paths."
)
@click.option("--no-indexes", is_flag=True, help="Write documents only.")
@on_database
def export(
    target: Target, collection: str, file: str | None, *, output: Format, **how: Any
) -> None:
    """Write all documents of COLLECTION to FILE, or to standard output.

    Each line is {"id": …, "body": …}, in natural order, with "expires_at" if the document expires. The first line
    has the indexes of the collection, {"indexes": […]}. The import command reads this format, mongoimport reads
    --output mongodb, and other programs read --output csv. A FILE whose name ends in .gz is gzipped. FILE is created
    or replaced when the export is complete:

    \b
      collections-store export people people.jsonl.gz
      collections-store export people people.csv --output csv --fields name,age
    """
    if (output == "csv") != (how["fields"] is not None):
        raise click.UsageError("--output csv needs --fields, and no other format has them")
    columns = (how["fields"] or "").split(",")
    if output == "csv" and not formats.are_columns(columns):
        raise click.UsageError("--fields must name the columns beside the id, each once")
    to_file = file not in {None, STANDARD}
    with target.to_read() as store, ExitStack() as stack:
        found = target.collection(store, collection)
        stream: IO[bytes] = sys.stdout.buffer
        documents = iter(found.stream())
        if to_file:
            target.refuse(str(file))
            stream = stack.enter_context(writing(str(file)))
        if to_file or not sys.stdout.isatty():
            size = found.count() if sys.stderr.isatty() else None
            documents = _counting(documents, stack.enter_context(progress(size)))
        if output == "csv":
            lines = formats.csv_lines(documents, columns)
        elif output == "mongodb":
            lines = formats.mongodb_lines(documents)
        else:
            indexes = [] if how["no_indexes"] else index_lines(found.indexes())
            lines = chain(indexes, map(as_line, documents))
        write_lines(lines, stream, array=output == "json")


def _counting(
    documents: Iterable[Document], show: Callable[[int, int], None]
) -> Iterator[Document]:
    number = 0
    for number, document in enumerate(documents, 1):
        if number % _SHOWN_EACH == 0:
            show(number, number)
        yield document
    show(number, number)


def _report(sentence: str) -> None:
    click.echo(sentence, err=True)
