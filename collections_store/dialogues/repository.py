"""The repository of a namespace's dialogues: stored, read, found, deleted, quarantined.

Public methods are procedures, which yield operations, for sync and async. Methods with `run` work within a transaction.

Rules:

1. A procedure writes all of its drafts in one transaction, or nothing.
2. `persisted` has the stored states of dialogues. An acknowledged write changes the state, and so does a read, unless a write to
   the dialogue ended during the read.
3. A write is in doubt from its first statement until the database acknowledges, or an error proves the rollback. Before
   the next write to the dialogue `settle` undoes a write in doubt, because the caller got an error.
4. A record that restores no dialogue moves to the quarantine, and stops nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from ..codec import Codec
from ..document import Document, now, read_ttl
from ..errors import (
    CollectionsStoreError,
    DialogueConflict,
    DialoguesNotSaved,
    DuplicateKey,
    SchemaTooNew,
    VersionConflict,
    shortened,
)
from ..operations import by_id
from ..operations.bulk import Given, PutBatch, batches
from ..operations.find import Count, Find, check_page
from ..operations.indexes import CreateIndex
from ..operations.operation import Steps, Work
from ..operations.search import FindWords, read_marks, words_of
from ..operations.update import DeleteMatching
from ..options import check_count, check_flag
from ..query.filter import Filter
from ..query.index import Index
from .model import DialogueLabel, check_label, check_string
from .quarantine import DialogueQuarantine
from .reader import DialogueReader, Run
from .records import (
    NEWER,
    NOTHING,
    Attempt,
    BadRecord,
    DialogueCodec,
    DialogueNamespace,
    Draft,
    FoundDialogue,
    Quarantined,
    Record,
    RecordCodec,
    key_of,
    message_id,
    messages_of,
)
from .search import Search
from .states import Note, StoredStates
from .undo import undo

D = TypeVar("D")
LOG: Final = logging.getLogger("collections_store")
COUNTERPARTY: Final = "dialogue_label.dialogue_opponent_addr"
PURGE_BATCH: Final = 100
"""Dialogues that are purged in one transaction."""
_SEARCHED: Final = 200
"""Messages of a page of a search."""
_WITHDRAWABLE: Final = 100
"""The number of last writes that `withdraw` can undo."""


class DialogueRepository(Generic[D]):
    """The stored dialogues of a namespace, and the stored state of the dialogues in memory."""

    names: DialogueNamespace
    codec: RecordCodec[D]
    label: Callable[[D], DialogueLabel]

    def __init__(
        self, names: DialogueNamespace, codec: DialogueCodec[D], json: Codec, *, ordered: bool
    ) -> None:
        self.names, self.codec, self.label = names, RecordCodec(codec, json), codec.label
        self.persisted = StoredStates()
        self.reported: list[Quarantined] = []
        """Records moved to the quarantine since the list was last cleared."""
        self._in_doubt: dict[str, list[Attempt]] = {}
        """The writes in doubt, by the keys of their dialogues."""
        self._last: deque[tuple[str, Attempt]] = deque(maxlen=_WITHDRAWABLE)
        self._stored = DialogueReader(names, json, ordered)
        self._quarantine = DialogueQuarantine(self._stored)
        self._has_indexes = False
        """Whether the collections have their indexes."""

    def _read(self, method: Callable[..., Any], *arguments: Any) -> Work:
        return Work(self.names.all, lambda run: method(run, *arguments), writes=False)

    def _write(self, method: Callable[..., Any], *arguments: Any) -> Work:
        return Work(self.names.all, lambda run: method(run, *arguments), snapshot=False)

    # -- writing ----------------------------------------------------------------------------------

    def save(
        self, dialogues: Iterable[D], stored: Container[str] = (), purgeable: Container[str] = ()
    ) -> Steps[int]:
        """Save the changes of dialogues in one transaction; return the number of changed dialogues.

        A dialogue with an error does not prevent the save of the rest. Dialogues with the keys `stored` must be stored
        already, except the `purgeable`, which another process may have deleted.
        """
        errors: dict[Any, Exception] = {}
        labelled = list(self._labelled(dialogues, errors))
        keys = {label.key for label, _ in labelled}
        yield from self.settle(keys)
        if unknown := self.persisted.unknown(keys):
            with self.persisted.reading() as note:
                read = yield self._read(self._stored.persisted, unknown)
                for key, state in read.items():
                    note(key, state)
        drafts: list[Draft] = []
        for label, dialogue in labelled:
            before = self.persisted.get(label.key)
            if label.key in stored and before is None:
                if label.key not in purgeable:
                    errors[label] = DialogueConflict(label)
                continue
            try:
                drafts.append(self.codec.draft(dialogue, before or NOTHING))
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
            if draft.is_terminal and draft.label not in errors:
                self.persisted.forget(draft.label.key)
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
        if not self._has_indexes:
            for collection in (self.names.active, self.names.terminal):
                yield CreateIndex(collection, Index.parse(COUNTERPARTY))
            self._has_indexes = True
        operation: Any
        first = drafts[0]
        if len(drafts) == 1 and len(first.messages) == 1 and not first.has_new_header:
            # a single statement, which inserts only beside the header
            beside = self.names.headers(first.is_terminal), first.label.key
            operation = by_id.Insert(self.names.messages, *first.records()[0], beside=beside)
        else:
            operation = self._write(self._write_drafts, drafts)
        try:
            yield from self._attempt(operation, [(each.label.key, each.attempt) for each in drafts])
        except (VersionConflict, DuplicateKey) as error:
            met = (each.label for each in drafts if str(error.id).startswith(each.label.key))
            raise DialogueConflict(next(met, first.label)) from error
        for draft in drafts:
            self.persisted.written(draft.label.key, draft.after)

    def _attempt(self, operation: Any, attempts: Sequence[tuple[str, Attempt]]) -> Steps[Any]:
        """Run a write. An interrupted thread or a lost connection leaves the write in doubt."""
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

    def _write_drafts(self, run: Run, drafts: Sequence[Draft]) -> None:
        """Write drafts; raises `VersionConflict`, `DuplicateKey` and `DialogueConflict` if the stored state has changed.

        An unchanged header is locked against deletion. Each statement must see all commits before it.
        """
        same = [each for each in drafts if not each.has_new_header]
        for is_terminal in sorted({each.is_terminal for each in same}):
            some = {each.label.key: each.label for each in same if each.is_terminal is is_terminal}
            there = run(by_id.LockMany(self.names.headers(is_terminal), tuple(some)))
            for key, label in some.items():
                if key not in there:
                    raise DialogueConflict(label)
        for draft in drafts:
            if draft.has_new_header:
                self._write_header(run, draft)
        records = chain.from_iterable(each.records() for each in drafts)
        for batch in batches(Given(number, *each) for number, each in enumerate(records)):
            run(PutBatch(self.names.messages, batch, "insert", strict=True))

    def _write_header(self, run: Run, draft: Draft) -> None:
        key, before = draft.label.key, draft.before
        old, new = map(self.names.headers, (before.is_terminal, draft.is_terminal))
        if before.header is not None and old == new:
            run(by_id.Replace(new, key, draft.header, before.version))
            return
        if before.header is not None:
            run(by_id.RemoveById(old, key, before.version))
            if self._stored.count(run, key) > before.messages:
                raise DialogueConflict(draft.label)
        run(by_id.Insert(new, key, draft.header))

    # -- writes in doubt --------------------------------------------------------------------------

    def withdraw(self, label: DialogueLabel, count: int) -> None:
        """Let `settle` undo the last write of a dialogue if the write stored more than `count` messages, which the
        caller did not accept after all.
        """
        for key, (before, after) in reversed(tuple(self._last)):
            if key == label.key:
                if after.messages > count and key not in self._in_doubt:
                    self._in_doubt[key] = [(before, after)]
                return

    def settle(self, keys: Set[str] | None = None) -> Steps[None]:
        """Undo the committed writes in doubt, of dialogues with `keys` or of all."""
        for key in tuple(self._in_doubt) if keys is None else keys & self._in_doubt.keys():
            attempts = tuple(self._in_doubt[key])
            self.persisted.written(key, (yield self._write(undo, self._stored, key, attempts)))

    @property
    def is_settled(self) -> bool:
        """Whether no write is in doubt."""
        return not self._in_doubt

    def forget(self) -> None:
        self.persisted.clear()
        self._in_doubt.clear()

    # -- deleting ---------------------------------------------------------------------------------

    def remove(
        self, label: DialogueLabel, *, remember: bool, expected: int | None = None
    ) -> Steps[bool]:
        """Delete a dialogue; return whether the dialogue existed. A dialogue with a key to `remember` cannot begin again.
        Raises `DialogueConflict` for more messages than `expected`.
        """
        yield from self.settle({check_label(label).key})
        before = self.persisted.get(label.key)
        attempts = [] if before is None else [(label.key, (before, NOTHING))]
        erase = self._write(self._erase, label, remember, expected)
        found: bool = yield from self._attempt(erase, attempts)
        self.persisted.forget(label.key)
        return found

    def purge(
        self, ttl: Any, kept: Any, forget: Callable[..., object] = lambda *_: None
    ) -> Steps[int]:
        """Delete terminal dialogues older than `ttl`, or more than `kept`; return the number of dialogues that this process
        deleted. `forget` is called with the keys of the deleted dialogues. Those of a newer format move to the quarantine.
        """
        age = read_ttl(ttl) or None
        if kept is not None:
            check_count("kept", kept)
        before, count = None if age is None else now() - age, 0
        while age is not None or kept is not None:
            purged, newer = yield self._write(self.purge_batch, before, kept)
            forget(*purged)
            count += sum(purged.values())
            is_last = len(purged) + len(newer) < PURGE_BATCH
            for record, reason in newer:
                is_last |= not (yield from self._to_quarantine(record, reason))
            if is_last:
                break
        return count

    def _erase(self, run: Run, label: DialogueLabel, remember: bool, expected: int | None) -> bool:
        key, names = label.key, self.names
        if not self._stored.is_of(run, label):
            return False
        found = [run(by_id.RemoveById(each, key)) for each in (names.active, names.terminal)]
        # without the header nobody can add a message
        if expected is not None and self._stored.count(run, key) > expected:
            raise DialogueConflict(label)
        run(DeleteMatching(names.messages, Filter.parse(messages_of(key))))
        if remember:
            run(by_id.Put(names.finished, key, "null"))
        return any(found)

    def purge_batch(
        self, run: Run, before: int | None, kept: int | None
    ) -> tuple[dict[str, bool], list[tuple[Record, str]]]:
        """Delete a batch of the oldest terminal dialogues: older than a time, in microseconds since 1970, or more than
        `kept`. Return the keys, and for each whether this transaction deleted the dialogue; and the records of a newer
        format, with the reason to leave them.
        """
        terminal = self.names.terminal
        oldest: list[Document] = run(Find(terminal, Filter(), limit=PURGE_BATCH))
        # counted afterwards: what others purge in between is among the oldest, and no longer counts
        excess = 0 if kept is None else max(0, run(Count(terminal, Filter())) - kept)
        purged: dict[str, bool] = {}
        newer: list[tuple[Record, str]] = []
        for number, each in enumerate(oldest):
            if number < excess or (before is not None and each.created_us < before):
                record = Record(each, is_terminal=True, messages=())
                try:
                    purged[each.id] = self._purge(run, record)
                except SchemaTooNew as error:
                    newer.append((record, NEWER.format(error.found, error.expected)))
        return purged, newer

    def _purge(self, run: Run, record: Record) -> bool:
        header = record.document
        try:
            label = record.label.get_incomplete_version()
        except BadRecord:
            found: bool = run(by_id.RemoveById(self.names.terminal, header.id))
            for number, _ in self._stored.record(run, header, is_terminal=True).messages:
                run(by_id.RemoveById(self.names.messages, message_id(header.id, number)))
            return found
        return self._erase(run, label, label.is_by_counterparty, None)

    # -- reading ----------------------------------------------------------------------------------

    def restore(
        self, after: str, *, is_terminal: bool = False
    ) -> Steps[tuple[list[D], str | None]]:
        """Return a batch of dialogues past a key, and the last of their keys; None: the batch is the last."""
        check_flag("terminal", is_terminal)
        with self.persisted.reading() as note:
            records, last = yield self._read(self._stored.page, after, is_terminal)
            return (yield from self._restored(records, note)), last

    def get(self, *labels: DialogueLabel, note: bool = True) -> Steps[D | None]:
        """Return the dialogue with any of the labels, complete or not; `note` the stored state."""
        keys = [check_label(label).key for label in labels]
        with self.persisted.reading() as read:
            records = yield self._read(self._stored.load, keys)
            found = yield from self._restored(records, read if note else None)
        matching = (each for each in found for label in labels if label.names(self.label(each)))
        return next(matching, None)

    def reload(self, label: DialogueLabel) -> Steps[D | None]:
        """Return the stored dialogue with a label's key; discard the state in memory."""
        key = check_label(label).key
        self.persisted.forget(key)
        self._in_doubt.pop(key, None)
        return (yield from self.get(label.get_incomplete_version()))

    def messages(self, label: DialogueLabel, after: int, limit: int) -> Steps[list[Any]]:
        """Return `limit` messages of a dialogue past the number `after`, as JSON."""
        check_label(label)
        check_count("after", after)
        check_count("limit", limit)
        found: list[Any] = yield self._read(self._stored.messages, label, after, limit)
        return found

    def is_known(self, label: DialogueLabel) -> Steps[bool]:
        """Return whether a dialogue is stored, or was deleted and must not begin again."""
        found: bool = yield self._read(self._stored.is_known, check_label(label))
        return found

    def find(
        self,
        filter: Any,
        equals: Any,
        limit: Any,
        *parts: bool,
        hold: Callable[[D], D | None] | None = None,
    ) -> Steps[list[D]]:
        """Return the matching dialogues, for each value of `is_terminal` in the order of their beginning or end. The
        arguments are validated at once. `hold` returns the object in memory for a dialogue, None to omit the dialogue;
        without it the stored states are noted.
        """
        search = Search.of(Filter.parse(filter, equals, self.codec.json))
        if limit is not None:
            check_count("limit", limit)
        return self._find(search, limit, [check_flag("terminal", each) for each in parts], hold)

    def _find(
        self,
        search: Search,
        limit: int | None,
        parts: Iterable[bool],
        hold: Callable[[D], D | None] | None,
    ) -> Steps[list[D]]:
        found: dict[int, D] = {}  # each object once: one may end between the two
        for is_terminal in parts:
            left = None if limit is None else limit - len(found)
            if left == 0:
                break
            for most in (left, None):
                with self.persisted.reading() as note:
                    records = yield self._read(self._stored.find, search, most, is_terminal)
                    some = yield from self._restored(records, note if hold is None else None)
                held = [each if hold is None else hold(each) for each in some]
                if most is None or None not in held:  # enough
                    break
            found |= {id(each): each for each in held if each is not None}
        return list(found.values())[:limit]

    def search(
        self,
        query: Any,
        match: Any,
        limit: Any,
        highlight: Any,
        *parts: bool,
        hold: Callable[[D], D | None] | None = None,
    ) -> Steps[list[FoundDialogue[D]]]:
        """Return the dialogues with the words of a query in a message, the best first. The arguments are as of `find`."""
        words = FindWords(
            self.names.messages,
            words_of(query, match),
            Filter(),
            _SEARCHED,
            marks=read_marks(highlight),
        )
        most = check_page(limit)
        return self._search_steps(
            words, most, [check_flag("terminal", each) for each in parts], hold
        )

    def _search_steps(
        self,
        words: FindWords,
        limit: int,
        parts: Iterable[bool],
        hold: Callable[[D], D | None] | None,
    ) -> Steps[list[FoundDialogue[D]]]:
        found: list[FoundDialogue[D]] = []
        for most in (limit, None):
            with self.persisted.reading() as note:
                matching = yield self._read(self._stored.search, words, most, parts)
                records = [record for record, _ in matching]
                dialogues = yield from self._restored(records, note if hold is None else None)
            results = {record.document.id: result for record, result in matching}
            found = []
            for dialogue in dialogues:
                held = dialogue if hold is None else hold(dialogue)
                result = results[self.label(dialogue).key]
                if held is not None:
                    match = result.body, result.score, result.snippets
                    found.append(FoundDialogue(held, *match))
            if len(found) == len(matching):  # enough: no bad record, and none omitted
                break
        return found[:limit]

    def with_counterparty(self, address: str) -> Steps[list[D]]:
        address = check_string("counterparty", address)
        return self.find(COUNTERPARTY, address, None, False, True)

    # -- quarantine -------------------------------------------------------------------------------

    def _restored(self, records: Iterable[Record], note: Note | None = None) -> Steps[list[D]]:
        """Return the dialogues of records; bad records move to the quarantine. `note` the stored state of active
        dialogues, and forget that of terminal ones.
        """
        dialogues: list[D] = []
        for record in records:
            try:
                dialogue, persisted = self.codec.read(record)
            except BadRecord as error:
                yield from self._to_quarantine(record, str(error))
                continue
            dialogues.append(dialogue)
            if note is not None:
                note(record.document.id, None if record.is_terminal else persisted)
        return dialogues

    def _to_quarantine(self, record: Record, reason: str) -> Steps[bool]:
        """Move a record to the quarantine; return False after an error, which is logged."""
        document, collection = record.document, self.names.headers(record.is_terminal)
        self.reported.append(Quarantined(collection, document.id, reason, document.body))
        id = shortened(document.id)
        LOG.warning("%s %s cannot be restored and moves to quarantine: %s", collection, id, reason)
        try:
            yield self._write(self._quarantine.move, record, reason)
        except VersionConflict:
            pass  # somebody else moved it, or wrote it again
        except CollectionsStoreError:
            LOG.exception("%s %s could not be moved to quarantine", collection, id)
            return False
        return True

    def quarantined(self) -> Steps[list[Quarantined]]:
        found: list[Document] = yield Find(self.names.quarantine, Filter())
        names, reason = self.names, "not written by this library"
        return [
            self._quarantine.record_of(each)
            or Quarantined(names.quarantine, each.id, reason, each.body)
            for each in found
        ]

    def restore_quarantined(self, hold: Callable[[D], D] = lambda each: each) -> Steps[list[D]]:
        """Move records back from the quarantine, and return the restored dialogues, each given to `hold` at once. Bad
        records return to the quarantine; records whose dialogue has begun again stay.
        """
        found: list[Document] = yield Find(self.names.quarantine, Filter())
        groups: dict[str, list[tuple[Document, Quarantined]]] = {}
        for each in found:
            if (record := self._quarantine.record_of(each)) is not None:
                is_message = record.collection == self.names.messages
                key = key_of(record.id) if is_message else record.id
                groups.setdefault(key, []).append((each, record))
        dialogues: list[D] = []
        for key, group in groups.items():
            with suppress(VersionConflict), self.persisted.reading() as note:
                restored = yield self._write(self._quarantine.move_back, key, group)
                dialogues += map(hold, (yield from self._restored(restored, note)))
        return dialogues
