"""Taking dialogues away, within a transaction: what is old, and what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..codec import Codec, decode
from ..document import Document, new_id
from ..errors import InvalidBody
from ..filter import Filter
from ..operations import Count, Exists, Find, Insert, Put, Remove
from .label import DialogueLabel
from .names import Namespace, message_id
from .names import key_of as key_of_message
from .reading import Run, record_of
from .records import BadRecord, Record, label_of
from .writing import erase

AT_ONCE: Final = 100
"""Dialogues that are purged in one transaction."""
_TOLERANT: Final = Codec()


def purge(run: Run, names: Namespace, before: int | None, kept: int | None) -> dict[str, bool]:
    """Delete some terminal dialogues that ended before a time, in microseconds since 1970, or are more
    than `kept`, the oldest first; returns their keys, each with whether nobody else was faster.
    """
    oldest: list[Document] = run(Find(names.terminal, Filter(), limit=AT_ONCE))
    # counted afterwards: what somebody else purged in between is one of the oldest, and counts no more
    beyond = 0 if kept is None else max(0, run(Count(names.terminal, Filter())) - kept)
    doomed = [
        each
        for place, each in enumerate(oldest)
        if place < beyond or (before is not None and each.created_us < before)
    ]
    return {each.id: _forget(run, names, each) for each in doomed}


def _forget(run: Run, names: Namespace, header: Document) -> bool:
    try:
        label = label_of(Record(header, is_terminal=True, messages=()))
    except BadRecord:
        found: bool = run(Remove(names.terminal, header.id))
        for place, _ in record_of(run, names, header, is_terminal=True).messages:
            run(Remove(names.messages, message_id(header.id, place)))
        return found
    return erase(run, names, label, remember=by_opponent(label))


def by_opponent(label: DialogueLabel) -> bool:
    """Did the other side begin? Then its first message may come again."""
    return label.dialogue_opponent_addr == label.dialogue_starter_addr


def put_aside(run: Run, names: Namespace, record: Record, reason: str, rules: Codec) -> None:
    """Move a record that cannot be read, with its messages, where it does no harm. Raises `VersionConflict` if
    it is not there any more as it was read: somebody else put it aside, say.
    """
    place, header = names.place(is_terminal=record.is_terminal), record.document
    _move(run, names, place, header, header.version, reason=reason, rules=rules)
    whole = record_of(run, names, header, is_terminal=record.is_terminal)
    for number, json in whole.messages:
        message = Document(message_id(header.id, number), json)
        _move(run, names, names.messages, message, None, reason=reason, rules=rules)


def was_put_aside(names: Namespace, aside: Document) -> bool:
    """Is it what `put_aside` writes? Anybody may write there."""
    body = aside.body
    if not isinstance(body, dict) or body.get("collection") not in names.all[:3]:
        return False
    if not isinstance(body.get("id"), str) or not isinstance(body.get("reason"), str):
        return False
    return "body" in body or _is_json(body.get("text"))


def _is_json(text: Any) -> bool:
    try:
        decode(text)
    except (ValueError, TypeError):
        return False
    return True


def put_back(run: Run, names: Namespace, key: str, aside: Sequence[Document]) -> bool:
    """Put what was put aside of a dialogue back where it was, unless that has begun anew, or was ended or removed
    since; tells whether. Raises `VersionConflict` if something is in its place, or somebody else put it back.
    """
    places = names.active, names.terminal, names.finished
    is_headless = all(each.body["collection"] == names.messages for each in aside)
    if is_headless or any(run(Exists(place, key)) for place in places):
        return False
    for each in aside:
        run(Remove(names.quarantine, each.id, each.version))
        run(Insert(each.body["collection"], each.body["id"], _TOLERANT.encode(shown(each.body))))
    return True


def shown(aside: dict[str, Any]) -> Any:
    """Return the body of a record that was put aside."""
    return aside["body"] if "body" in aside else decode(aside["text"])


def key_of(aside: Document) -> str:
    """Return the key of the dialogue that something put aside is of."""
    is_message = aside.body["collection"].endswith("__messages")
    return key_of_message(aside.body["id"]) if is_message else aside.body["id"]


def _move(
    run: Run,
    names: Namespace,
    place: str,
    document: Document,
    expected: int | None,
    *,
    reason: str,
    rules: Codec,
) -> None:
    parts = {"collection": place, "id": document.id, "reason": reason}
    try:
        text = rules.encode({**parts, "body": document.body})
    except InvalidBody:  # one level deeper than a body may be
        text = rules.encode({**parts, "text": _TOLERANT.encode(document.body)})
    run(Remove(place, document.id, expected))
    run(Put(names.quarantine, new_id(), text))
