"""What a store of dialogues does, for sync and async: each verb is a procedure that yields operations."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ..codec import Codec
from ..document import Document
from ..errors import (
    CollectionsStoreError,
    DialogueConflict,
    DialoguesNotSaved,
    DuplicateKey,
    VersionConflict,
    shortened,
)
from ..operations.combine import Steps, Work
from ..operations.find import Find
from ..operations.indexes import CreateIndex
from ..query.filter import Filter
from ..query.index import Index
from ..sql.schema import now
from . import search as searching
from . import storage as cleaning
from . import storage as reading
from .model import DialogueLabel, check_address, check_label
from .records import (
    NOTHING,
    Attempt,
    BadRecord,
    DialogueCodec,
    DialogueNamespace,
    DialogueRecorder,
    Draft,
    Kept,
    Record,
)
from .storage import Run, conflict, erase, take_back, writing

D = TypeVar("D")
LOG: Final = logging.getLogger("collections_store")
RESTORED_AT_ONCE: Final = 200
COUNTERPARTY: Final = "dialogue_label.dialogue_opponent_addr"
_LAST: Final = 100


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record of which no dialogue could be made: where it was, what it is, and the reason."""

    collection: str
    id: str
    reason: str
    body: Any


class Keeper(Generic[D]):
    """Keeps the dialogues of a namespace; what is on the disk of those in memory it knows."""

    def __init__(
        self, names: DialogueNamespace, codec: DialogueCodec[D], rules: Codec, *, ordered: bool
    ) -> None:
        self.names, self.recorder = names, DialogueRecorder(codec, rules)
        self.kept: dict[str, Kept] = {}
        self.reported: list[Quarantined] = []
        """What was put aside since somebody last looked."""
        self._doubtful: dict[str, list[Attempt]] = {}
        """The writes of each dialogue whose outcome is not known."""
        self._last: deque[tuple[str, Attempt]] = deque(maxlen=_LAST)
        self._ordered, self._is_ready = ordered, False

    def save(
        self, dialogues: Iterable[D], there: Container[str] = (), purgeable: Container[str] = ()
    ) -> Steps[int]:
        """Write what is new of dialogues, in one transaction; returns of how many there was anything.

        What cannot be taken apart, or is another's by now, keeps none of the others from being written. Those
        with the keys `there` are on the disk, unless somebody else took them away; he may do so with those
        that are `purgeable`.
        """
        yield from self.ready()
        errors: dict[Any, Exception] = {}
        labelled = list(self._labelled(dialogues, errors))
        yield from self.settle({label.key for label, _ in labelled})
        yield from self._look({label.key for label, _ in labelled} - self.kept.keys())
        gone = {each for each, _ in labelled if each.key in there and each.key not in self.kept}
        errors.update((each, DialogueConflict(each)) for each in gone if each.key not in purgeable)
        drafts = list(self._drafts((each for each in labelled if each[0] not in gone), errors))
        new = yield from self._write_all([each for each in drafts if not each.is_written], errors)
        for draft in drafts:
            if draft.is_terminal:
                self.kept.pop(draft.label.key, None)
        if errors:
            raise DialoguesNotSaved(errors)
        return new

    def _drafts(
        self, labelled: Iterable[tuple[DialogueLabel, D]], errors: dict[Any, Exception]
    ) -> Iterator[Draft]:
        for label, dialogue in labelled:
            try:
                yield self.recorder.draft(dialogue, self.kept.get(label.key, NOTHING))
            except Exception as error:  # noqa: BLE001 - of a host's class: it is raised in the end
                errors[label] = error

    def _write_all(self, drafts: list[Draft], errors: dict[Any, Exception]) -> Steps[int]:
        """Write drafts in one transaction, but for those that somebody else wrote to."""
        while drafts:
            try:
                yield from self.write(drafts)
                break
            except DialogueConflict as error:
                errors[error.label] = error
                drafts = [each for each in drafts if each.label != error.label]
        return len(drafts)

    def write(self, drafts: Sequence[Draft]) -> Steps[None]:
        """Write drafts, all or none; raises `DialogueConflict`."""
        if not drafts:
            return
        attempts = [(each.label.key, each.attempt) for each in drafts]
        try:
            yield from self._try(writing(self.names, drafts), attempts)
        except (VersionConflict, DuplicateKey) as error:
            raise conflict(drafts, error) from error
        for draft in drafts:
            self.kept[draft.label.key] = draft.written

    def _try(self, operation: Any, attempts: Sequence[tuple[str, Attempt]]) -> Steps[Any]:
        """Run an operation that writes. Its outcome is in doubt until it returns, or fails and says that nothing
        was written: an interrupted thread or a lost connection says neither.
        """
        for key, attempt in attempts:
            self._doubtful.setdefault(key, []).append(attempt)
        try:
            result = yield operation
        except CollectionsStoreError as error:
            if not getattr(error, "in_doubt", False):
                self._drop(attempts)
            raise
        for key, _ in attempts:
            self._doubtful.pop(key, None)
        self._last.extend(attempts)
        return result

    def _drop(self, attempts: Sequence[tuple[str, Attempt]]) -> None:
        for key, attempt in attempts:
            self._doubtful[key].remove(attempt)
            if not self._doubtful[key]:
                del self._doubtful[key]

    def withdraw(self, label: DialogueLabel, count: int) -> None:
        """Have the last write of a dialogue undone by the next, if more than `count` messages are on the disk since:
        whoever had them written did not accept them after all.
        """
        for key, (before, after) in reversed(tuple(self._last)):
            if key == label.key:
                if after.messages > count and key not in self._doubtful:
                    self._doubtful[key] = [(before, after)]
                return

    def settle(self, keys: Set[str] | None = None) -> Steps[None]:
        """Read dialogues again of which a write is in doubt, and undo that if it took place: nobody was told."""
        for key in tuple(self._doubtful) if keys is None else keys & self._doubtful.keys():
            attempts, rules = tuple(self._doubtful[key]), self.recorder.rules
            undo = partial(take_back, names=self.names, key=key, attempts=attempts, rules=rules)
            self.kept[key] = yield self._writes(undo)

    @property
    def is_settled(self) -> bool:
        """Return whether the outcome of each write is known."""
        return not self._doubtful

    def forget(self) -> None:
        """Know nothing of what is on the disk."""
        self.kept.clear()
        self._doubtful.clear()

    def restore(self, after: str, *, is_terminal: bool = False) -> Steps[tuple[list[D], str]]:
        """Return some dialogues past an id, and the last of these ids; "": that was all."""
        yield from self.ready()
        place = self.names.place(is_terminal=is_terminal)

        def read(run: Run) -> list[Record]:
            found = reading.headers(run, place, after, RESTORED_AT_ONCE)
            return [
                reading.record_of(run, self.names, each, is_terminal=is_terminal) for each in found
            ]

        records: list[Record] = yield self._reads(read)
        dialogues = yield from self.made(records, note=True)
        full = len(records) == RESTORED_AT_ONCE
        return dialogues, records[-1].document.id if full else ""

    def get(self, labels: Sequence[DialogueLabel], *, note: bool = False) -> Steps[D | None]:
        """Return the dialogue that has one of the labels, complete or not; `note` as `made` does."""
        keys = [check_label(label).key for label in labels]
        record = yield self._reads(lambda run: reading.load_any(run, self.names, keys))
        found = yield from self.made([] if record is None else [record], note=note)
        fitting = (each for each in found for label in labels if label.names(self._label(each)))
        return next(fitting, None)

    def reload(self, label: DialogueLabel) -> Steps[D | None]:
        """Return the dialogue with a label as it is on the disk, whatever was known of that."""
        key = check_label(label).key
        self.kept.pop(key, None)
        self._doubtful.pop(key, None)
        record = yield self._reads(lambda run: reading.load(run, self.names, key))
        found = yield from self.made([] if record is None else [record], note=True)
        return found[0] if found else None

    def _label(self, dialogue: D) -> DialogueLabel:
        return self.recorder.codec.label(dialogue)

    def with_counterparty(self, address: str, *, is_terminal: bool) -> Steps[list[D]]:
        """Return the dialogues with an address."""
        check_address(address)
        asked = Filter.parse(COUNTERPARTY, address)
        return (yield from self.find(asked, None, is_terminal=is_terminal))

    def find(self, asked: Filter, limit: int | None, *, is_terminal: bool) -> Steps[list[D]]:
        """Return the dialogues that match."""
        yield from self.ready()
        how: dict[str, Any] = {"is_terminal": is_terminal, "ordered": self._ordered}
        records = yield self._reads(
            lambda run: searching.find(run, self.names, asked, limit, **how)
        )
        return (yield from self.made(records))

    def messages(self, label: DialogueLabel, after: int, limit: int) -> Steps[list[Any]]:
        """Return some messages of a dialogue, past a place, as JSON."""
        check_label(label)
        found: list[Any] = yield self._reads(
            lambda run: reading.page(run, self.names, label, after, limit)
        )
        return found

    def is_known(self, label: DialogueLabel) -> Steps[bool]:
        """Is there, or was there, such a dialogue?"""
        check_label(label)
        found: bool = yield self._reads(lambda run: reading.is_known(run, self.names, label))
        return found

    def remove(
        self, label: DialogueLabel, *, remember: bool, known: int | None = None
    ) -> Steps[bool]:
        """Delete a dialogue; returns whether it was there. Raises `DialogueConflict` if it has more messages
        than are `known`.
        """
        yield from self.settle({check_label(label).key})
        how: dict[str, Any] = {"remember": remember, "known": known}
        erasing = self._writes(
            lambda run: (
                reading.is_of(run, self.names, label) and erase(run, self.names, label, **how)
            )
        )
        before = self.kept.get(label.key)
        attempts = [] if before is None else [(label.key, (before, NOTHING))]
        found: bool = yield from self._try(erasing, attempts)
        self.kept.pop(label.key, None)
        return found

    def purge(self, age: int | None, kept: int | None) -> Steps[dict[str, bool]]:
        """Delete terminal dialogues that are older, in microseconds, or more than `kept`; returns their
        keys, each with whether nobody else was faster.
        """
        before, total = None if age is None else now() - age, dict[str, bool]()
        while age is not None or kept is not None:
            gone: dict[str, bool] = yield self._writes(
                lambda run: cleaning.purge(run, self.names, before, kept)
            )
            total |= gone
            if len(gone) < cleaning.AT_ONCE:
                break
        return total

    def quarantined(self) -> Steps[list[Quarantined]]:
        """Return the records that were put aside."""
        found: list[Document] = yield Find(self.names.quarantine, Filter())
        return [self._quarantined(each) for each in found]

    def restore_quarantined(self, hold: Callable[[D], D] = lambda each: each) -> Steps[list[D]]:
        """Put back what was put aside, and return the dialogues that can be made of it, each given to `hold` as
        soon as it is back; what cannot be read is put aside again, and what has begun anew meanwhile stays where
        it is.
        """
        aside: list[Document] = yield Find(self.names.quarantine, Filter())
        groups: dict[str, list[Document]] = {}
        for each in aside:
            if cleaning.was_put_aside(self.names, each):
                groups.setdefault(cleaning.key_of_quarantined(each), []).append(each)
        found: list[D] = []
        for key, some in groups.items():
            record = yield from self._put_back(key, some)
            made = yield from self.made([] if record is None else [record], note=True)
            found += map(hold, made)
        return found

    def _put_back(self, key: str, aside: list[Document]) -> Steps[Record | None]:
        def put_back(run: Run) -> Record | None:
            is_back = cleaning.put_back(run, self.names, key, aside)
            return reading.load(run, self.names, key) if is_back else None

        try:
            record: Record | None = yield self._writes(put_back)
        except VersionConflict:
            return None
        return record

    def made(self, records: Iterable[Record], *, note: bool = False) -> Steps[list[D]]:
        """Return the dialogues of records; those of which none can be made are put aside. `note` what
        is on the disk of those that go on.
        """
        dialogues: list[D] = []
        for record in records:
            try:
                dialogue, kept = self.recorder.read(record)
            except BadRecord as error:
                yield from self._put_aside(record, str(error))
                continue
            dialogues.append(dialogue)
            if note and not record.is_terminal:
                self.kept[record.document.id] = kept
        return dialogues

    def ready(self) -> Steps[None]:
        """Have the indexes that lookups use."""
        if not self._is_ready:
            for place in (self.names.active, self.names.terminal):
                yield CreateIndex(place, Index.parse(COUNTERPARTY))
            self._is_ready = True

    def _look(self, keys: set[str]) -> Steps[None]:
        """Learn what is on the disk of dialogues that were not read from there."""
        if keys:
            found: dict[str, Kept] = yield self._reads(
                lambda run: reading.kept(run, self.names, keys, self.recorder.rules)
            )
            self.kept.update(found)

    def _labelled(
        self, dialogues: Iterable[D], errors: dict[Any, Exception]
    ) -> Iterator[tuple[DialogueLabel, D]]:
        for dialogue in {id(each): each for each in dialogues}.values():
            try:
                yield check_label(self.recorder.codec.label(dialogue)), dialogue
            except Exception as error:  # noqa: BLE001 - of a host's class: it is raised in the end
                errors[f"{type(dialogue).__qualname__} at {id(dialogue):#x}"] = error

    def _put_aside(self, record: Record, reason: str) -> Steps[None]:
        document, rules = record.document, self.recorder.rules
        place = self.names.place(is_terminal=record.is_terminal)
        self.reported.append(Quarantined(place, document.id, reason, document.body))
        id = shortened(document.id)
        LOG.warning("%s %s: no dialogue can be made of it, it is put aside: %s", place, id, reason)
        try:
            yield self._writes(
                lambda run: cleaning.put_aside(run, self.names, record, reason, rules)
            )
        except VersionConflict:
            pass  # somebody else put it aside, or wrote it anew
        except CollectionsStoreError:
            LOG.exception("%r in %s could not be put aside", document.id, place)

    def _reads(self, function: Callable[[Run], Any]) -> Work:
        return Work(self.names.all, function, writes=False)

    def _writes(self, function: Callable[[Run], Any]) -> Work:
        return Work(self.names.all, function, snapshot=False)

    def _quarantined(self, aside: Document) -> Quarantined:
        body = aside.body
        if not cleaning.was_put_aside(self.names, aside):
            return Quarantined(self.names.quarantine, aside.id, "it was not put aside", body)
        return Quarantined(body["collection"], body["id"], body["reason"], cleaning.shown(body))
