"""Writing dialogues down, within a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

from ..errors import DialogueConflict, DuplicateKey, VersionConflict
from ..filter import Filter
from ..operations import (
    DeleteMany,
    Given,
    Insert,
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
from .records import Draft

Run: TypeAlias = Callable[[Any], Any]


def writing(names: Namespace, drafts: Sequence[Draft]) -> Operation[Any]:
    """Return the operation that writes drafts, all or none: a single statement where only a message is
    new.
    """
    if len(drafts) == 1 and len(drafts[0].messages) == 1 and not drafts[0].has_new_header:
        draft = drafts[0]
        id = message_id(draft.label.key, draft.kept.messages + 1)
        return Insert(names.messages, id, draft.messages[0])
    return Work(names.all[:3], lambda run: write(run, names, drafts))


def write(run: Run, names: Namespace, drafts: Sequence[Draft]) -> None:
    """Write drafts; raises `DialogueConflict` where the disk is not as they take it to be."""
    for draft in drafts:
        if draft.has_new_header:
            _write_header(run, names, draft)
    for batch in batches(chain.from_iterable(map(_messages, drafts))):
        try:
            run(PutBatch(names.messages, batch, "insert", strict=True))
        except DuplicateKey as error:
            raise conflict(drafts, error) from error


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
            run(Insert(new, key, draft.header))
    except VersionConflict as error:
        raise DialogueConflict(draft.label) from error


def conflict(drafts: Sequence[Draft], error: VersionConflict | DuplicateKey) -> DialogueConflict:
    """Return the error that names the dialogue which somebody else wrote to."""
    met = (each.label for each in drafts if str(error.id).startswith(each.label.key))
    return DialogueConflict(next(met, drafts[0].label))


def erase(run: Run, names: Namespace, label: DialogueLabel, *, remember: bool) -> bool:
    """Delete a dialogue; `remember` that it was there, so that it does not begin again. Tells whether
    it was there.
    """
    key = label.key
    found = [run(Remove(place, key)) for place in (names.active, names.terminal)]
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
