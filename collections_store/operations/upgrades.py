"""`upgrade_documents`: bring every document of a collection to the declared schema version.

Rules:

1. The version marks upgraded documents: an interrupted call continues where the last call ended.
2. Documents are read without a lock, and the functions are called outside of a transaction. A batch is written in one
   transaction, each document only in the version read; a changed document is read again.
3. A document that cannot be upgraded stays unchanged, or moves to the quarantine. The call continues.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from ..codec import Codec
from ..document import Document, check_name
from ..errors import (
    CollectionsStoreError,
    DuplicateKey,
    InvalidBody,
    InvalidOption,
    VersionConflict,
)
from ..expressions.classes import value_class
from ..models.versioned import UpgradedBody, VersionedCodec
from ..options import check_flag, check_function
from ..results import UpgradeFailure, UpgradeResult, UpgradeSample
from .by_id import Get, GetDocument, GetMany, Rewrite
from .indexes import CreateIndex, DeclareVersion
from .operation import Operation, Steps
from .procedures import ATTEMPTS, MAX_PAUSE, CallFunction, Pause
from .read import BEFORE_ALL, FIRST_BATCH, next_limit
from .versions import (
    CheckVersions,
    CountOutdated,
    Quarantine,
    ReadOutdated,
    Refused,
    Upgraded,
    WriteUpgraded,
    for_version,
)

Progress: TypeAlias = Callable[[int, int], Any]
"""Called after each batch with the number of processed documents, and the initial number of outdated documents."""
MAX_FAILURES: Final = 1000
"""Failures that a result lists; all are counted."""
SAMPLES: Final = 5
"""Documents of which a dry run returns the bodies before and after."""
_UNLIMITED: Final = Codec(2**40, nul="replace")
"""For quarantined bodies: the record around a body may exceed the limit of the collection."""


@dataclass(slots=True)
class _Tally:
    """The counts and lists of a call so far."""

    upgraded: int = 0
    failed: int = 0
    quarantined: int = 0
    failures: list[UpgradeFailure] = field(default_factory=list)
    samples: list[UpgradeSample] = field(default_factory=list)

    def fail(self, id: str, error: CollectionsStoreError) -> None:
        """Count a document that stays unchanged."""
        self.failed += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(UpgradeFailure(id, error))

    def result(self) -> UpgradeResult:
        lists = tuple(self.failures), tuple(self.samples)
        return UpgradeResult(self.upgraded, self.failed, self.quarantined, *lists)


@value_class
class Upgrading:
    """A call of `upgrade_documents`."""

    collection: str
    codec: VersionedCodec
    dry_run: bool
    quarantine: str | None
    progress: Progress | None
    tally: _Tally = field(default_factory=_Tally)

    def run(self) -> Steps[UpgradeResult]:
        version = self.codec.upgrades.version
        if not self.dry_run:
            yield DeclareVersion(self.collection, version)
        total: int = yield CountOutdated(self.collection, version)
        after: int | None = BEFORE_ALL
        limit, done = FIRST_BATCH, 0
        while after is not None:
            batch = yield ReadOutdated(self.collection, version, after, limit)
            documents = tuple(batch.documents)
            for document in (yield from self._upgrade(documents)):
                yield from self._again(document.id)
            done += len(documents)
            if self.progress is not None and documents:
                yield CallFunction(self._report, (done, max(total, done)))
            after, limit = batch.after, next_limit(limit, batch.characters)
        if not self.dry_run and not self.tally.failed:
            yield DeclareVersion(self.collection, version, only=True)
        return self.tally.result()

    def _report(self, counts: tuple[int, int]) -> Any:
        assert self.progress is not None
        return self.progress(*counts)

    def _upgrade(self, documents: tuple[Document, ...]) -> Steps[list[Document]]:
        """Upgrade documents in the versions read; return the documents that were changed meanwhile."""
        upgraded, failures = self._convert(documents)
        refused: list[Refused] = []
        if self.dry_run:
            self.tally.upgraded += len(upgraded)
            self.tally.samples += self._samples(upgraded)
        else:
            if upgraded:
                refused = yield WriteUpgraded(self.collection, upgraded)
            self.tally.upgraded += len(upgraded) - len(refused)
        read = {each.id: each for each in documents}
        conflicts = [read[id] for id, error in refused if isinstance(error, VersionConflict)]
        failures += [each for each in refused if not isinstance(each[1], VersionConflict)]
        for id, error in failures:
            if not (yield from self._failed(read[id], error)):
                conflicts.append(read[id])
        return conflicts

    def _convert(
        self, documents: tuple[Document, ...]
    ) -> tuple[tuple[Upgraded, ...], list[Refused]]:
        """Return the documents with the texts of their new bodies, and the failed ids with their errors."""
        upgraded, failures = list[Upgraded](), list[Refused]()
        for document in documents:
            try:
                upgraded.append((document, self.codec.encode_upgraded(document)))
            except InvalidBody as error:
                named = error.of(self.collection, document.id)
                named.__cause__ = error.__cause__
                failures.append((document.id, named))
        return tuple(upgraded), failures

    def _samples(self, upgraded: Iterable[Upgraded]) -> Iterator[UpgradeSample]:
        for document, _ in upgraded:
            if len(self.tally.samples) >= SAMPLES:
                return
            after = self.codec.current(document)
            yield UpgradeSample(document.id, document.body, after)

    def _failed(self, document: Document, error: CollectionsStoreError) -> Steps[bool]:
        """Leave a document, or move the document; return False if the document was changed meanwhile."""
        if self.dry_run or self.quarantine is None:
            self.tally.fail(document.id, error)
            return True
        record = {"reason": str(error), "version": document.version, "body": document.body}
        members = (f'"{key}":{_UNLIMITED.encode(each)}' for key, each in record.items())
        text = (
            f"{{{','.join(members)}}}"  # by itself the body has at most the levels that are allowed
        )
        try:
            moved: bool = yield Quarantine(self.collection, self.quarantine, document, text)
        except DuplicateKey as refused:
            refused.__cause__ = error
            self.tally.fail(document.id, refused)
            return True
        self.tally.quarantined += moved
        return moved

    def _again(self, id: str) -> Steps[None]:
        """Upgrade a document that is changed at the same time."""
        for attempt in range(ATTEMPTS):
            document = yield GetDocument(self.collection, id)
            if document is None or self.codec.is_current(document.body):
                return
            if not (yield from self._upgrade((document,))):
                return
            yield Pause(random.uniform(0, min(MAX_PAUSE, 0.001 * 2 ** min(attempt, 7))))


def upgrade_documents(
    collection: str, codec: Any, *, dry_run: Any, quarantine: Any, progress: Any
) -> Steps[UpgradeResult]:
    """Return the steps of a call; raise `InvalidOption` and `InvalidName`."""
    if not isinstance(codec, VersionedCodec):
        problem = (
            f"must be declared: store.collection({collection!r}, schema_version=…, upgrades=…)"
        )
        raise InvalidOption("schema_version", problem)
    if quarantine is not None and check_name(quarantine) == collection:
        raise InvalidOption("quarantine", "must be another collection")
    if progress is not None:
        check_function("progress", progress)
    return Upgrading(collection, codec, check_flag("dry_run", dry_run), quarantine, progress).run()


def versioned_steps(operation: Operation[Any], codec: VersionedCodec) -> Steps[Any]:
    """Run an operation on a collection with a schema version."""
    if codec.upgrades.write_back:
        match operation:  # a `change` reads with another `decode`
            case Get(collection, id, default, decode=codec.decode_body):
                document = yield from _read_and_write(collection, id, codec)
                return default if document is None else document.body
            case GetDocument(collection, id, decode=codec.decode_body):
                return (yield from _read_and_write(collection, id, codec))
            case GetMany(collection, ids, decode=codec.decode_body):
                bodies = {}
                for id in ids:
                    document = yield from _read_and_write(collection, id, codec)
                    if document is not None:
                        bodies[id] = document.body
                return bodies
    is_unique = isinstance(operation, CreateIndex) and getattr(operation.index, "unique", False)
    if is_unique:
        yield CheckVersions(operation.collection, codec.upgrades.version)
    return (yield for_version(operation, codec.upgrades.version))


def _read_and_write(collection: str, id: str, codec: VersionedCodec) -> Steps[Document | None]:
    """Read a document, and write the upgraded body, unless the document changed meanwhile or a unique index refuses
    the body.
    """
    document: Document | None = yield GetDocument(collection, id, partial(codec.decode_noting, id))
    if document is None or not isinstance(document.body, UpgradedBody):
        return document
    noted = document.body
    try:
        version = yield Rewrite(collection, replace(document, body=noted.stored), noted.text)
    except (VersionConflict, DuplicateKey):
        version = document.version
    return replace(document, body=noted.body, version=version)
