"""Backups as text: JSON lines, the same for every database. docs/reference/backup.md describes the format.

An archive is read twice: the first pass checks the whole archive, and nothing of a damaged archive is restored.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TypeAlias

from ...codec import Codec, canonical, decode, is_larger
from ...document import MAX_TTL, check_id, check_name, now
from ...errors import (
    CollectionNotFound,
    CollectionsStoreError,
    InvalidBackup,
    SchemaTooNew,
    check_format,
    shortened,
)
from ...operations.bulk import MAX_ROWS
from ...operations.copied_vectors import StoredVector
from ...operations.copying import StoredCollection, StoredRow
from ...operations.read import BATCH_CHARACTERS
from ...query.vector_index import VectorIndex
from ...results import CopiedCollection
from ..database_file import open_to_read
from .atomic_file import DamagedInput, uncompressed

Sections: TypeAlias = (
    "Generator[tuple[StoredCollection, Iterator[list[StoredRow]], Iterator[list[StoredVector]]]]"
)

FORMAT: Final = "collections_store"
VERSION: Final = 2
"""The newest version of the format, of a backup with vectors; one without has version 1."""
UNPARSED: Final = (AttributeError, LookupError, TypeError, ValueError)
"""Errors raised for options of a wrong form."""
TOO_LARGE: Final = "it is longer than a body of the store may be: raise max_body"
NO_BACKUP: Final = "it is no backup of a store"
VECTORS: Final = 100
"""Vectors from which on a batch ends with the document."""
_ENVELOPE: Final = 2**20
"""Bytes of a line besides the body."""
_ESCAPED: Final = 6
"""Bytes that an escaped byte of a body may take."""
_TIMES: Final = ("created_at", "updated_at")
_OPTIONAL: Final = ("expires_at", "ttl")
_ENTRY: Final = frozenset({"collection", "created_at", "options"})
_ROW: Final = frozenset({"id", "body", "version", *_TIMES})
_VECTOR: Final = frozenset(StoredVector._fields[:4])
_UNLIMITED: Final = Codec(2**62)
_LAST_VERSION: Final = 2**62
"""Far from the largest integer of the databases: each write increments a version."""
_LAST_MOMENT: Final = 253_402_300_799_999_999
"""The end of the year 9999, the last one of `datetime`."""


@dataclass
class ArchiveTarget:
    """The target of a copy to a stream."""

    stream: IO[bytes]
    has_vectors: bool = False
    _written: int = 0

    def begin(self, entries: list[StoredCollection]) -> None:  # noqa: ARG002
        header = {"format": FORMAT, "version": 1 + self.has_vectors, "id": secrets.token_hex(16)}
        self._write({**header, "created_at": now()})

    def write(
        self,
        entry: StoredCollection,
        batches: Iterable[list[StoredRow]],
        vectors: Iterable[list[StoredVector]],
    ) -> CopiedCollection:
        """Write a collection: the header line, the documents, and their number and checksum; the same of the vectors."""
        header = {"collection": entry.name, "created_at": entry.created_at}
        self._write({**header, "options": dict(entry.options), "sha256": entry.checksum()})
        digest, count = sha256(), 0
        for batch in batches:
            for row in batch:
                self._write(_to_json(row))
                digest.update(row.line())
            count += len(batch)
        self._write({"end": entry.name, "count": count, "sha256": digest.hexdigest()})
        if self.has_vectors:
            self._write_vectors(entry, vectors)
        self._written += 1
        return CopiedCollection(entry.name, count, digest.hexdigest())

    def _write_vectors(
        self, entry: StoredCollection, vectors: Iterable[list[StoredVector]]
    ) -> None:
        digest, count = sha256(), 0
        for batch in vectors:
            for row in batch:
                line = _vector_to_json(row)
                self._write({key: each for key, each in line.items() if each is not None})
                digest.update(canonical(list(line.values())))
            count += len(batch)
        self._write({"end": entry.name, "vectors": count, "sha256": digest.hexdigest()})

    def end(self) -> None:
        """Write the last line. An archive without a last line is incomplete."""
        self._write({"end": None, "collections": self._written})

    def _write(self, value: dict[str, Any]) -> None:
        """Write a line. Each member is encoded alone: inside the line a body may be a level deeper than the codec
        allows.
        """
        members = (f"{_text(key)}:{_text(each)}" for key, each in value.items())
        self.stream.write(f"{{{','.join(members)}}}\n".encode())


def _text(value: Any) -> str:
    return _UNLIMITED.encode(value)


def _to_json(row: StoredRow) -> dict[str, Any]:
    stored = row._asdict()
    return {key: each for key, each in stored.items() if key not in _OPTIONAL or each is not None}


def _vector_to_json(row: StoredVector) -> dict[str, Any]:
    encoded = {
        key: None if value is None else b64encode(value).decode()
        for key, value in (("hash", row.hash), ("vector", row.vector))
    }
    return {**row._asdict(), **encoded}


@dataclass
class ArchiveSource:
    """The collections of an archive, all or by `names`. `codec` is the codec of the store to restore into.

    The constructor checks the archive; raise `InvalidBackup`, `SchemaTooNew`, `CollectionNotFound`, and `OSError`.
    """

    file: str
    codec: Codec
    names: tuple[str, ...] | None = None
    _entries: list[StoredCollection] = field(default_factory=list)
    _total: int = 0
    _pass: Sections | None = None
    _vectors: Iterable[list[StoredVector]] = ()

    def __post_init__(self) -> None:
        found = set()
        for entry, batches, _ in self._sections():
            if entry.name in found:
                raise InvalidBackup(self.file, entry.name, "the collection is there twice")
            found.add(entry.name)
            count = sum(map(len, batches))
            if self.names is None or entry.name in self.names:
                self._entries.append(entry)
                self._total += count
        for name in self.names or ():
            if name not in found:
                raise CollectionNotFound(name, found)

    def entries(self) -> list[StoredCollection]:
        return self._entries

    def total(self) -> int:
        return self._total

    def close(self) -> None:
        if self._pass is not None:
            self._pass.close()

    def batches(self, entry: StoredCollection) -> Iterator[list[StoredRow]]:
        """Yield the unexpired documents. The collections must be read in the order of `entries`."""
        time = now()
        self._pass = self._pass or self._sections()
        for each, batches, vectors in self._pass:
            if each.name == entry.name:
                self._vectors = vectors
                for batch in batches:
                    yield [r for r in batch if r.expires_at is None or r.expires_at > time]
                return

    def vectors(self, entry: StoredCollection) -> Iterator[list[StoredVector]]:  # noqa: ARG002
        """Yield the vectors of the collection whose `batches` were read last."""
        yield from self._vectors

    def _sections(self) -> Sections:
        """Yield each collection with the documents. The documents are read before the next collection."""
        with open_to_read(Path(self.file)) as raw:
            lines = _Lines(self.file, uncompressed(raw), self.codec.max_bytes)
            header, count = lines.header(), 0
            while "end" not in (value := lines.next()):
                entry = lines.entry(value, header)
                batches = lines.batches(entry, self.codec)
                vectors = lines.vectors(entry) if lines.version > 1 else iter(())
                yield entry, batches, vectors
                for _ in batches:
                    pass
                for _ in vectors:
                    pass
                count += 1
            if value != {"end": None, "collections": count}:
                lines.fail(f"it must be the end of {count} collections, got {shortened(value)}")
            lines.check_end()


class _Lines:
    """The lines of an archive, in order. An invalid line raises `InvalidBackup` with the line number."""

    def __init__(self, file: str, stream: IO[bytes], max_body: int) -> None:
        self._file, self._stream, self._number = file, stream, 0
        self._longest, self._largest = _ESCAPED * max_body + _ENVELOPE, max_body + _ENVELOPE

    def fail(self, problem: str) -> NoReturn:
        """Raise `InvalidBackup` with the number of the present line."""
        raise InvalidBackup(self._file, f"line {self._number}", problem)

    def next(self) -> dict[str, Any]:
        text = self._read()
        if not text:
            self.fail("the file ends here: it is incomplete")
        if is_larger(text, self._largest):
            self.fail(TOO_LARGE)
        try:
            value = decode(text)
        except ValueError:
            value = None
        if not isinstance(value, dict) or not text.endswith(b"\n"):
            self.fail("it must be a JSON object on a line of its own")
        return value

    def check_end(self) -> None:
        if self._read():
            self.fail("it follows the end of the backup")

    def _read(self) -> bytes:
        self._number += 1
        try:
            text = self._stream.readline(self._longest + 1)
        except DamagedInput as error:
            self.fail(str(error))
        if len(text) > self._longest:
            self.fail(TOO_LARGE)
        return text

    def header(self) -> str:
        """Read the header; return the backup's id."""
        value = self._first()
        if value.get("format") != FORMAT:
            raise InvalidBackup(self._file, "", NO_BACKUP)
        check_format("the backup", value.get("version"), VERSION)
        try:
            self.version = _integer(value, "version", 1, VERSION)
        except ValueError as error:
            self.fail(str(error))
        if not isinstance(value.get("id"), str):
            self.fail("the backup must have an id")
        id: str = value["id"]
        return id

    def _first(self) -> dict[str, Any]:
        try:
            return self.next()
        except InvalidBackup:
            raise InvalidBackup(self._file, "", NO_BACKUP) from None

    def entry(self, value: Mapping[str, Any], backup: str) -> StoredCollection:
        try:
            created = _integer(value, "created_at", 0, _LAST_MOMENT)
            name, options = check_name(value["collection"]), value["options"]
            source = sha256(f"{backup} {name}".encode()).hexdigest()[:32]
            entry = StoredCollection(name, options, created, source)
            entry.check()
            if not _ENTRY <= value.keys() <= _ENTRY | {"sha256"}:
                self.fail(
                    f"a collection must have {', '.join(sorted(_ENTRY))}, and may have sha256"
                )
            if value.get("sha256", entry.checksum()) != entry.checksum():
                self.fail("the checksum of the collection differs: it was changed")
        except InvalidBackup:
            raise
        except SchemaTooNew:
            raise
        except CollectionsStoreError as error:
            self.fail(str(error))
        except UNPARSED as error:
            self.fail(f"it must be the line of a collection ({type(error).__name__}: {error})")
        return entry

    def batches(self, entry: StoredCollection, codec: Codec) -> Iterator[list[StoredRow]]:
        """Yield the documents of a collection, and compare their number and checksum."""
        digest, count, batch, size = sha256(), 0, list[StoredRow](), 0
        while "end" not in (value := self.next()):
            batch.append(row := self._row(value, codec))
            digest.update(line := row.line())
            count, size = count + 1, size + len(line)
            if len(batch) == MAX_ROWS or size > BATCH_CHARACTERS:
                yield batch
                batch, size = [], 0
        if value != {"end": entry.name, "count": count, "sha256": digest.hexdigest()}:
            self.fail(f"the checksum of the {count:,} documents before differs: they were changed")
        yield batch

    def vectors(self, entry: StoredCollection) -> Iterator[list[StoredVector]]:
        """Yield the vectors of a collection, those of a document together, and compare their number and checksum."""
        digest, count, batch = sha256(), 0, list[StoredVector]()
        indexes = entry.parsed().vector_indexes
        while "end" not in (value := self.next()):
            row = self._vector(value, indexes)
            digest.update(canonical(list(_vector_to_json(row).values())))
            if len(batch) >= VECTORS and batch[-1][:2] != row[:2]:
                yield batch
                batch = []
            batch.append(row)
            count += 1
        if value != {"end": entry.name, "vectors": count, "sha256": digest.hexdigest()}:
            self.fail(f"the checksum of the {count:,} vectors before differs: they were changed")
        yield batch

    def _vector(self, value: dict[str, Any], indexes: Iterable[VectorIndex]) -> StoredVector:
        try:
            if not _VECTOR <= value.keys() <= {*StoredVector._fields}:
                raise ValueError(f"must have {', '.join(sorted(_VECTOR))}")
            for key in {"hash", "vector"} & value.keys():
                value[key] = b64decode(value[key], validate=True)
            row = StoredVector(**value)
            check_id(row.id)
            for key in ("version", "updated_at"):
                _integer(value, key, 0, _LAST_VERSION)
            row.check(indexes)
        except (CollectionsStoreError, TypeError, ValueError) as error:
            self.fail(f"it must be a vector: {error}")
        return row

    def _row(self, value: Mapping[str, Any], codec: Codec) -> StoredRow:
        if not _ROW <= value.keys() <= _ROW | {*_OPTIONAL}:
            self.fail(
                f"a document must have {', '.join(sorted(_ROW))}, and may have expires_at, ttl"
            )
        row = StoredRow._make(value.get(key) for key in StoredRow._fields)
        try:
            check_row(row, codec)
        except (CollectionsStoreError, ValueError) as error:
            self.fail(str(error))
        return row


def check_row(row: StoredRow, codec: Codec) -> None:
    """Raise `InvalidId`, `InvalidBody` or `ValueError` for a document that no store can have written."""
    check_id(row.id)
    codec.encode(row.body)
    value = row._asdict()
    _integer(value, "version", 1, _LAST_VERSION)
    for key in _TIMES:
        _integer(value, key, 0, _LAST_MOMENT)
    if row.expires_at is not None:
        _integer(value, "expires_at", 0, _LAST_MOMENT)
    if row.ttl is not None:
        _integer(value, "ttl", 1, MAX_TTL * 1_000_000)


def _integer(value: Mapping[str, Any], key: str, least: int, most: int) -> int:
    """Return an integer; raise `ValueError`."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        problem = f"must be an integer from {least} to {most}, got {shortened(found)}"
        raise ValueError(f"{key} {problem}")
    return found
