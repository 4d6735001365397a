"""Undoing a committed write in doubt to a dialogue, within a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..operations import by_id
from .reader import DialogueReader, Run
from .records import NOTHING, Attempt, Persisted, message_id


def undo(run: Run, stored: DialogueReader, key: str, attempts: Sequence[Attempt]) -> Persisted:
    """Undo the committed write in doubt of a dialogue; return the stored state. The writes of another process stay, and
    conflict with the next write.
    """
    first, _ = attempts[0]
    found = _persisted_like(run, stored, key, first)
    for before, after in attempts:
        if found.matches(after) and not found.matches(before):
            _undo_write(run, stored, key, before, after)
            return _persisted_like(run, stored, key, first)
    return found if found.messages == first.messages else first


def _persisted_like(run: Run, stored: DialogueReader, key: str, before: Persisted) -> Persisted:
    found = stored.persisted(run, [key]).get(key, NOTHING)
    return replace(found, unknown=before.unknown)


def _undo_write(
    run: Run, stored: DialogueReader, key: str, before: Persisted, after: Persisted
) -> None:
    old, new = map(stored.names.headers, (before.is_terminal, after.is_terminal))
    for number in range(before.messages + 1, after.messages + 1):
        run(by_id.RemoveById(stored.names.messages, message_id(key, number)))
    if after.header is None:
        run(by_id.RemoveById(stored.names.finished, key))
    elif old == new and before.header is not None:
        if after.version != before.version:
            run(by_id.Replace(new, key, before.header, after.version))
    else:
        run(by_id.RemoveById(new, key, after.version))
        if before.header is not None:
            run(by_id.Insert(old, key, before.header))
