"""The repository of a namespace's dialogues: each method is a procedure that yields operations, for sync and async.

Rules:

1. A procedure writes all of its drafts in one transaction, or nothing.
2. `persisted` says what is stored of the dialogues in memory. It changes when a write has been acknowledged.
3. The outcome of a write is in doubt from before its first statement until it is acknowledged, or fails with an error
   that says that nothing was written. `settle` must run before the next write to the dialogue: it reads what is
   stored, and undoes the write if it took place, because no caller has seen it succeed.
4. A record that no dialogue can be restored from moves to the quarantine, and stops nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ..codec import Codec
from ..document import Document, now, read_ttl
from ..errors import (
    CollectionsStoreError,
    DialogueConflict,
    DialoguesNotSaved,
    DuplicateKey,
    VersionConflict,
    shortened,
)
from ..operations.find import Find
from ..operations.indexes import CreateIndex
from ..operations.operation import Steps, Work
from ..options import check_count, check_flag
from ..query.filter import Filter
from ..query.index import Index
from .model import DialogueLabel, check_label, check_string
from .records import (
    NOTHING,
    Attempt,
    BadRecord,
    DialogueCodec,
    DialogueNamespace,
    Draft,
    Persisted,
    Quarantined,
    Record,
    RecordCodec,
    key_of,
)
from .storage import (
    PURGE_BATCH,
    Run,
    StoredDialogues,
    conflict,
    insert_message,
    read_quarantined,
)

D = TypeVar("D")
LOG: Final = logging.getLogger("collections_store")
COUNTERPARTY: Final = "dialogue_label.dialogue_opponent_addr"
_RESTORE_BATCH: Final = 200
_WITHDRAWABLE: Final = 100
"""The number of last writes that `withdraw` can undo."""


class DialogueRepository(Generic[D]):
    """The stored dialogues of a namespace; it knows what is stored of those in memory."""

    names: DialogueNamespace
    codec: RecordCodec[D]

    def __init__(
        self, names: DialogueNamespace, codec: DialogueCodec[D], json: Codec, *, ordered: bool
    ) -> None:
        self.names, self.codec = names, RecordCodec(codec, json)
        self.persisted: dict[str, Persisted] = {}
        self.reported: list[Quarantined] = []
        """Records moved to the quarantine since the list was last cleared."""
        self._in_doubt: dict[str, list[Attempt]] = {}
        """The writes in doubt, by the keys of their dialogues."""
        self._last: deque[tuple[str, Attempt]] = deque(maxlen=_WITHDRAWABLE)
        self._ordered, self._has_indexes = ordered, False

    # -- writing ----------------------------------------------------------------------------------

    def save(
        self, dialogues: Iterable[D], stored: Container[str] = (), purgeable: Container[str] = ()
    ) -> Steps[int]:
        """Save the changes of dialogues in one transaction; returns the number of dialogues that had changes.

        If some cannot be converted, or another process wrote to them, the others are saved all the same. Those with
        the keys `stored` must be stored already, except the `purgeable` ones, which another process may have deleted.
        """
        errors: dict[Any, Exception] = {}
        labelled = list(self._labelled(dialogues, errors))
        keys = {label.key for label, _ in labelled}
        yield from self.settle(keys)
        if unknown := keys - self.persisted.keys():
            self.persisted.update((yield self._read(StoredDialogues.persisted, unknown)))
        drafts: list[Draft] = []
        for label, dialogue in labelled:
            if label.key in stored and label.key not in self.persisted:
                if label.key not in purgeable:
                    errors[label] = DialogueConflict(label)
                continue
            try:
                drafts.append(self.codec.draft(dialogue, self.persisted.get(label.key, NOTHING)))
            except Exception as error:  # noqa: BLE001 - of a host's class; raised in the end
                errors[label] = error
        new = [each for each in drafts if not each.is_written]
        while new:
            try:
                yield from self.write(new)
                break
            except DialogueConflict as error:
                errors[error.label] = error
                new = [each for each in new if each.label != error.label]
        for draft in drafts:
            if draft.is_terminal:
                self.persisted.pop(draft.label.key, None)
        if errors:
            raise DialoguesNotSaved(errors)
        return len(new)

    def _labelled(
        self, dialogues: Iterable[D], errors: dict[Any, Exception]
    ) -> Iterator[tuple[DialogueLabel, D]]:
        for dialogue in {id(each): each for each in dialogues}.values():
            try:
                yield check_label(self.label(dialogue)), dialogue
            except Exception as error:  # noqa: BLE001 - of a host's class; raised in the end
                errors[f"{type(dialogue).__qualname__} at {id(dialogue):#x}"] = error

    def write(self, drafts: Sequence[Draft]) -> Steps[None]:
        """Write drafts, all or none; raises `DialogueConflict`."""
        yield from self._create_indexes()
        operation: Any = self._write(StoredDialogues.write, drafts)
        if len(drafts) == 1 and len(drafts[0].messages) == 1 and not drafts[0].has_new_header:
            operation = insert_message(self.names, drafts[0])
        try:
            yield from self._attempt(operation, [(each.label.key, each.attempt) for each in drafts])
        except (VersionConflict, DuplicateKey) as error:
            raise conflict(drafts, error) from error
        for draft in drafts:
            self.persisted[draft.label.key] = draft.after

    def _attempt(self, operation: Any, attempts: Sequence[tuple[str, Attempt]]) -> Steps[Any]:
        """Run an operation that writes. An interrupted thread or a lost connection leaves it in doubt."""
        for key, attempt in attempts:
            self._in_doubt.setdefault(key, []).append(attempt)
        try:
            result = yield operation
        except CollectionsStoreError as error:
            if not getattr(error, "in_doubt", False):
                for key, attempt in attempts:
                    self._in_doubt[key].remove(attempt)
                    if not self._in_doubt[key]:
                        del self._in_doubt[key]
            raise
        for key, _ in attempts:
            self._in_doubt.pop(key, None)
        self._last.extend(attempts)
        return result

    def withdraw(self, label: DialogueLabel, count: int) -> None:
        """Let `settle` undo the last write of a dialogue if it stored more than `count` messages: the caller
        did not accept them after all.
        """
        for key, (before, after) in reversed(tuple(self._last)):
            if key == label.key:
                if after.messages > count and key not in self._in_doubt:
                    self._in_doubt[key] = [(before, after)]
                return

    def settle(self, keys: Set[str] | None = None) -> Steps[None]:
        """Undo the writes in doubt that took place, of some dialogues or of all."""
        for key in tuple(self._in_doubt) if keys is None else keys & self._in_doubt.keys():
            attempts = tuple(self._in_doubt[key])
            self.persisted[key] = yield self._write(StoredDialogues.undo, key, attempts)

    @property
    def is_settled(self) -> bool:
        """Whether no write is in doubt."""
        return not self._in_doubt

    def forget(self) -> None:
        """Forget what is stored."""
        self.persisted.clear()
        self._in_doubt.clear()

    def remove(
        self, label: DialogueLabel, *, remember: bool, expected: int | None = None
    ) -> Steps[bool]:
        """Delete a dialogue; returns whether there was one. Raises `DialogueConflict` if it has more messages than
        `expected`.
        """
        yield from self.settle({check_label(label).key})
        erase = self._write(StoredDialogues.erase, label, remember=remember, expected=expected)
        before = self.persisted.get(label.key)
        attempts = [] if before is None else [(label.key, (before, NOTHING))]
        found: bool = yield from self._attempt(erase, attempts)
        self.persisted.pop(label.key, None)
        return found

    def purge(self, ttl: Any, kept: Any) -> Steps[dict[str, bool]]:
        """Delete terminal dialogues that ended more than `ttl` ago, or are more than `kept`; returns their keys,
        each with whether this process deleted it.
        """
        age = read_ttl(ttl) or None
        if kept is not None:
            check_count("kept", kept)
        before, total = None if age is None else now() - age, dict[str, bool]()
        while age is not None or kept is not None:
            purged = yield self._write(StoredDialogues.purge, before, kept)
            total |= purged
            if len(purged) < PURGE_BATCH:
                break
        return total

    # -- reading ----------------------------------------------------------------------------------

    def restore(self, after: str, *, is_terminal: bool = False) -> Steps[tuple[list[D], str]]:
        """Return a batch of dialogues past a key, and the last of their keys; "": there are no more."""
        check_flag("terminal", is_terminal)
        page = StoredDialogues.page, after, _RESTORE_BATCH
        found: list[Record] = yield self._read(*page, is_terminal=is_terminal)
        dialogues = yield from self._restored(found, note=True)
        return dialogues, found[-1].document.id if len(found) == _RESTORE_BATCH else ""

    def get(self, labels: Sequence[DialogueLabel], *, note: bool = False) -> Steps[D | None]:
        """Return the dialogue that has one of the labels, complete or not; `note` what is stored of it."""
        keys = [check_label(label).key for label in labels]
        record = yield self._read(StoredDialogues.load, keys)
        found = yield from self._restored([] if record is None else [record], note=note)
        matching = (each for each in found for label in labels if label.names(self.label(each)))
        return next(matching, None)

    def reload(self, label: DialogueLabel) -> Steps[D | None]:
        """Return the stored dialogue with a label's key, and forget what was known of it."""
        key = check_label(label).key
        self.persisted.pop(key, None)
        self._in_doubt.pop(key, None)
        record = yield self._read(StoredDialogues.load, [key])
        found = yield from self._restored([] if record is None else [record], note=True)
        return found[0] if found else None

    def label(self, dialogue: D) -> DialogueLabel:
        """Return the label of a dialogue."""
        return self.codec.dialogues.label(dialogue)

    def with_counterparty(self, address: str, *parts: bool) -> Steps[list[D]]:
        """Return the dialogues with an address; `parts` are values of `is_terminal`."""
        filter = Filter.parse(COUNTERPARTY, check_string("counterparty", address))
        found: list[D] = []
        for is_terminal in parts:
            found += yield from self.find(filter, None, is_terminal=is_terminal)
        return found

    def find(self, filter: Filter, limit: int | None, *, is_terminal: bool) -> Steps[list[D]]:
        """Return the dialogues that match."""
        check_flag("terminal", is_terminal)
        how = {"is_terminal": is_terminal, "ordered": self._ordered}
        found = yield self._read(StoredDialogues.find, filter, limit, **how)
        return (yield from self._restored(found))

    def query(self, filter: Any, equals: Any, limit: Any) -> tuple[Filter, int | None]:
        """Return the validated arguments of a search."""
        parsed = Filter.parse(filter, equals, self.codec.json)
        return parsed, None if limit is None else check_count("limit", limit)

    def messages(self, label: DialogueLabel, after: int, limit: int) -> Steps[list[Any]]:
        """Return some messages of a dialogue, past a number, as JSON."""
        check_label(label)
        check_count("after", after)
        check_count("limit", limit)
        found: list[Any] = yield self._read(StoredDialogues.messages, label, after, limit)
        return found

    def is_known(self, label: DialogueLabel) -> Steps[bool]:
        """Return whether there is such a dialogue, or one was deleted that must not begin again."""
        check_label(label)
        found: bool = yield self._read(StoredDialogues.is_known, label)
        return found

    def _create_indexes(self) -> Steps[None]:
        if not self._has_indexes:
            for collection in (self.names.active, self.names.terminal):
                yield CreateIndex(collection, Index.parse(COUNTERPARTY))
            self._has_indexes = True

    # -- quarantine -------------------------------------------------------------------------------

    def _restored(self, records: Iterable[Record], *, note: bool = False) -> Steps[list[D]]:
        """Return the dialogues of records; bad records move to the quarantine. `note` what is stored of active
        dialogues.
        """
        dialogues: list[D] = []
        for record in records:
            try:
                dialogue, persisted = self.codec.read(record)
            except BadRecord as error:
                yield from self._quarantine(record, str(error))
                continue
            dialogues.append(dialogue)
            if note and not record.is_terminal:
                self.persisted[record.document.id] = persisted
        return dialogues

    def _quarantine(self, record: Record, reason: str) -> Steps[None]:
        document = record.document
        collection = self.names.headers(is_terminal=record.is_terminal)
        self.reported.append(Quarantined(collection, document.id, reason, document.body))
        id = shortened(document.id)
        LOG.warning("%s %s cannot be restored and moves to quarantine: %s", collection, id, reason)
        try:
            yield self._write(StoredDialogues.move_to_quarantine, record, reason)
        except VersionConflict:
            pass  # somebody else moved it, or wrote it again
        except CollectionsStoreError:
            LOG.exception("%s %s could not be moved to quarantine", collection, id)

    def quarantined(self) -> Steps[list[Quarantined]]:
        """Return the records in the quarantine."""
        found: list[Document] = yield Find(self.names.quarantine, Filter())
        names, reason = self.names, "not written by this library"
        return [
            read_quarantined(names, each)
            or Quarantined(names.quarantine, each.id, reason, each.body)
            for each in found
        ]

    def restore_quarantined(self, hold: Callable[[D], D] = lambda each: each) -> Steps[list[D]]:
        """Move records back from the quarantine, and return the dialogues that can be restored, each given to `hold`
        at once. Those that cannot be restored return to the quarantine; those whose dialogue has begun again stay.
        """
        found: list[Document] = yield Find(self.names.quarantine, Filter())
        groups: dict[str, list[tuple[Document, Quarantined]]] = {}
        for each in found:
            if (record := read_quarantined(self.names, each)) is not None:
                is_message = record.collection == self.names.messages
                key = key_of(record.id) if is_message else record.id
                groups.setdefault(key, []).append((each, record))
        dialogues: list[D] = []
        for key, group in groups.items():
            with suppress(VersionConflict):
                restored = yield self._write(StoredDialogues.restore, key, group)
                some = yield from self._restored([restored] if restored else [], note=True)
                dialogues += map(hold, some)
        return dialogues

    def _read(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Work:
        """Return the operation that calls a method of `StoredDialogues`."""
        return Work(self.names.all, partial(self._call, method, arguments, options), writes=False)

    def _write(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Work:
        return Work(self.names.all, partial(self._call, method, arguments, options), snapshot=False)

    def _call(
        self, method: Callable[..., Any], arguments: Any, options: dict[str, Any], run: Run
    ) -> Any:
        return method(StoredDialogues(run, self.names, self.codec.json), *arguments, **options)
