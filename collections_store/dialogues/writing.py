"""Writing dialogues down, within a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ..errors import DialogueConflict, DuplicateKey, VersionConflict
from ..filter import Filter
from ..operations import (
    DeleteMany,
    Given,
    HoldMany,
    Insert,
    InsertBeside,
    Operation,
    Put,
    PutBatch,
    Remove,
    Replace,
    Work,
    batches,
)
from .label import DialogueLabel
from .names import Namespace, message_id, messages_of
from .reading import Run, last_place
from .records import Draft


def writing(names: Namespace, drafts: Sequence[Draft]) -> Operation[Any]:
    """Return the operation that writes drafts, all or none: a single statement where only a message is
    new.
    """
    if len(drafts) == 1 and len(drafts[0].messages) == 1 and not drafts[0].has_new_header:
        draft = drafts[0]
        key, place = draft.label.key, draft.kept.messages + 1
        beside = names.place(is_terminal=draft.is_terminal), key
        return InsertBeside(names.messages, message_id(key, place), draft.messages[0], beside)
    return Work(names.all[:3], lambda run: write(run, names, drafts), SNAPSHOT=False)


def write(run: Run, names: Namespace, drafts: Sequence[Draft]) -> None:
    """Write drafts; raises `DialogueConflict` where the disk is not as they take it to be. A header that does
    not change is held, so that nobody takes it away meanwhile: each statement must see what was committed before it.
    """
    _hold(run, names, [each for each in drafts if not each.has_new_header])
    for draft in drafts:
        if draft.has_new_header:
            _write_header(run, names, draft)
    for batch in batches(chain.from_iterable(map(_messages, drafts))):
        try:
            run(PutBatch(names.messages, batch, "insert", strict=True))
        except DuplicateKey as error:
            raise conflict(drafts, error) from error


def _hold(run: Run, names: Namespace, drafts: Sequence[Draft]) -> None:
    for is_terminal in (False, True):
        some = [each for each in drafts if each.is_terminal is is_terminal]
        keys = tuple(each.label.key for each in some)
        there = run(HoldMany(names.place(is_terminal=is_terminal), keys)) if keys else ()
        for each in some:
            if each.label.key not in there:
                raise DialogueConflict(each.label)


def _write_header(run: Run, names: Namespace, draft: Draft) -> None:
    key, kept = draft.label.key, draft.kept
    there, new = (
        names.place(is_terminal=kept.is_terminal),
        names.place(is_terminal=draft.is_terminal),
    )
    try:
        if kept.header is None:
            run(Insert(new, key, draft.header))
        elif there == new:
            run(Replace(new, key, draft.header, kept.version))
        else:
            run(Remove(there, key, kept.version))
            if last_place(run, names, key) > kept.messages:
                raise DialogueConflict(draft.label)
            run(Insert(new, key, draft.header))
    except VersionConflict as error:
        raise DialogueConflict(draft.label) from error


def conflict(drafts: Sequence[Draft], error: VersionConflict | DuplicateKey) -> DialogueConflict:
    """Return the error that names the dialogue which somebody else wrote to."""
    met = (each.label for each in drafts if str(error.id).startswith(each.label.key))
    return DialogueConflict(next(met, drafts[0].label))


def erase(
    run: Run, names: Namespace, label: DialogueLabel, *, remember: bool, known: int | None = None
) -> bool:
    """Delete a dialogue; `remember` that it was there, so that it does not begin again. Tells whether
    it was there. Raises `DialogueConflict` if it has more messages than are `known`.
    """
    key = label.key
    found = [run(Remove(place, key)) for place in (names.active, names.terminal)]
    if known is not None and last_place(run, names, key) > known:  # nobody adds one any more
        raise DialogueConflict(label)
    run(DeleteMany(names.messages, Filter.parse(messages_of(key))))
    if remember:
        run(Put(names.finished, key, "null"))
    return any(found)


def _messages(draft: Draft) -> Iterable[Given]:
    key, first = draft.label.key, draft.kept.messages + 1
    return (
        Given(place, message_id(key, place), text)
        for place, text in enumerate(draft.messages, first)
    )
