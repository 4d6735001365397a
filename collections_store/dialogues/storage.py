"""Writing, reading and deleting the records of dialogues within a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeAlias

from ..codec import Codec, decode
from ..document import Document, new_id
from ..errors import DialogueConflict, DuplicateKey, InvalidBody, VersionConflict
from ..operations.bulk import Given, PutBatch, batches
from ..operations.by_id import (
    DocumentExists,
    GetDocument,
    HoldMany,
    Insert,
    InsertBeside,
    Put,
    RemoveById,
    Replace,
)
from ..operations.combine import Work
from ..operations.find import Count, DeleteMatching, Find
from ..operations.operation import Operation
from ..query.filter import Filter
from ..query.sort import Sort
from .model import DialogueLabel
from .records import (
    NOTHING,
    Attempt,
    BadRecord,
    DialogueNamespace,
    Draft,
    Kept,
    Record,
    key_of,
    label_of,
    message_id,
    messages_of,
)
from .records import key_of as key_of_message


def writing(names: DialogueNamespace, drafts: Sequence[Draft]) -> Operation[Any]:
    """Return the operation that writes drafts, all or none: a single statement where only a message is
    new.
    """
    if len(drafts) == 1 and len(drafts[0].messages) == 1 and not drafts[0].has_new_header:
        draft = drafts[0]
        key, place = draft.label.key, draft.kept.messages + 1
        beside = names.place(is_terminal=draft.is_terminal), key
        return InsertBeside(names.messages, message_id(key, place), draft.messages[0], beside)
    return Work(names.all[:3], lambda run: write(run, names, drafts), snapshot=False)


def write(run: Run, names: DialogueNamespace, drafts: Sequence[Draft]) -> None:
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


def _hold(run: Run, names: DialogueNamespace, drafts: Sequence[Draft]) -> None:
    for is_terminal in (False, True):
        some = [each for each in drafts if each.is_terminal is is_terminal]
        keys = tuple(each.label.key for each in some)
        there = run(HoldMany(names.place(is_terminal=is_terminal), keys)) if keys else ()
        for each in some:
            if each.label.key not in there:
                raise DialogueConflict(each.label)


def _write_header(run: Run, names: DialogueNamespace, draft: Draft) -> None:
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
            run(RemoveById(there, key, kept.version))
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
    run: Run,
    names: DialogueNamespace,
    label: DialogueLabel,
    *,
    remember: bool,
    known: int | None = None,
) -> bool:
    """Delete a dialogue; `remember` that it was there, so that it does not begin again. Tells whether
    it was there. Raises `DialogueConflict` if it has more messages than are `known`.
    """
    key = label.key
    found = [run(RemoveById(place, key)) for place in (names.active, names.terminal)]
    if known is not None and last_place(run, names, key) > known:  # nobody adds one any more
        raise DialogueConflict(label)
    run(DeleteMatching(names.messages, Filter.parse(messages_of(key))))
    if remember:
        run(Put(names.finished, key, "null"))
    return any(found)


def take_back(
    run: Run, names: DialogueNamespace, key: str, attempts: Sequence[Attempt], rules: Codec
) -> Kept:
    """Undo the write of a dialogue that took place though nobody was told; return what is on the disk then. What
    another process wrote stays, and conflicts with the next write.
    """
    first, _ = attempts[0]
    found = _found(run, names, key, first, rules)
    for before, after in attempts:
        if found.matches(after) and not found.matches(before):
            _undo(run, names, key, before, after)
            return _found(run, names, key, first, rules)
    return found if found.messages == first.messages else first


def _found(run: Run, names: DialogueNamespace, key: str, before: Kept, rules: Codec) -> Kept:
    found = kept(run, names, [key], rules).get(key, NOTHING)
    return replace(found, unknown=before.unknown)


def _undo(run: Run, names: DialogueNamespace, key: str, before: Kept, after: Kept) -> None:
    there, then = (names.place(is_terminal=each.is_terminal) for each in (after, before))
    for place in range(before.messages + 1, after.messages + 1):
        run(RemoveById(names.messages, message_id(key, place)))
    if after.header is None:
        run(RemoveById(names.finished, key))
    elif then == there and before.header is not None:
        if after.version != before.version:
            run(Replace(there, key, before.header, after.version))
    else:
        run(RemoveById(there, key, after.version))
        if before.header is not None:
            run(Insert(then, key, before.header))


def _messages(draft: Draft) -> Iterable[Given]:
    key, first = draft.label.key, draft.kept.messages + 1
    return (
        Given(place, message_id(key, place), text)
        for place, text in enumerate(draft.messages, first)
    )


Run: TypeAlias = Callable[[Any], Any]
"""Runs operations, within a transaction."""
_BY_ID: Final = Sort.parse("$id")
_LAST: Final = Sort.parse({"$id": -1})
_WIDTH: Final = 10


def load(run: Run, names: DialogueNamespace, key: str) -> Record | None:
    """Return the dialogue with a key, active or terminal."""
    for is_terminal, place in enumerate((names.active, names.terminal)):
        document = run(GetDocument(place, key))
        if document is not None:
            return record_of(run, names, document, is_terminal=bool(is_terminal))
    return None


def load_any(run: Run, names: DialogueNamespace, keys: Iterable[str]) -> Record | None:
    """Return the first dialogue that has one of the keys."""
    return next(filter(None, (load(run, names, key) for key in keys)), None)


def record_of(
    run: Run, names: DialogueNamespace, document: Document, *, is_terminal: bool
) -> Record:
    """Return a header with its messages."""
    found = run(Find(names.messages, Filter.parse(messages_of(document.id)), _BY_ID))
    own = [each for each in found if key_of(each.id) == document.id]  # a foreign id may begin many
    return Record(document, is_terminal, tuple((place_of(each), each.body) for each in own))


def is_of(run: Run, names: DialogueNamespace, label: DialogueLabel) -> bool:
    """Is a label that of the dialogue with its key? A complete one may hold another reference."""
    if not label.is_complete:
        return True
    places = (run(GetDocument(place, label.key)) for place in (names.active, names.terminal))
    header = next(filter(None, places), None)
    if header is None or not isinstance(header.body, dict):
        return header is None
    return label.is_in(header.body.get("dialogue_label"))


def page(
    run: Run, names: DialogueNamespace, label: DialogueLabel, after: int, limit: int
) -> list[Any]:
    """Return some messages of a dialogue past a place."""
    if not is_of(run, names, label):
        return []
    asked = Filter.parse(messages_of(label.key, after))
    return [each.body for each in run(Find(names.messages, asked, _BY_ID, limit=limit))]


def headers(run: Run, place: str, after: str, limit: int) -> list[Document]:
    """Return headers in the order of their ids, past an id."""
    found: list[Document] = run(
        Find(place, Filter.parse({"$id": {"$gt": after}}), _BY_ID, limit=limit)
    )
    return found


def last_place(run: Run, names: DialogueNamespace, key: str) -> int:
    """Return how many messages of a dialogue there are."""
    found = _last(run, names, key)
    return place_of(found[0]) if found else 0


def _last(run: Run, names: DialogueNamespace, key: str) -> list[Document]:
    asked = Filter.parse(messages_of(key))
    found: list[Document] = run(Find(names.messages, asked, _LAST, limit=1))
    return found


def is_known(run: Run, names: DialogueNamespace, label: DialogueLabel) -> bool:
    """Is there, or was there, a dialogue with a label?"""
    places = names.finished, names.terminal, names.active
    return any(run(DocumentExists(place, label.key)) for place in places) and is_of(
        run, names, label
    )


def by_ids(run: Run, place: str, keys: Iterable[str]) -> list[Document]:
    """Return those headers of a collection that have one of the keys."""
    found: list[Document] = run(Find(place, Filter.parse({"$id": {"$in": list(keys)}})))
    return found


def place_of(message: Document) -> int:
    """Return the place of a message in its dialogue."""
    digits = message.id[-_WIDTH:]
    return int(digits) if digits.isdecimal() else 0


def kept(run: Run, names: DialogueNamespace, keys: Iterable[str], rules: Codec) -> dict[str, Kept]:
    """Return what is on the disk of the dialogues with some keys."""
    found: dict[str, Kept] = {}
    for is_terminal, place in enumerate((names.active, names.terminal)):
        for each in by_ids(run, place, keys):
            last = _last(run, names, each.id)
            header, count = rules.encode(each.body), place_of(last[0]) if last else 0
            text = rules.encode(last[0].body) if count else None
            found[each.id] = Kept(count, header, bool(is_terminal), each.version, text)
    return found


AT_ONCE: Final = 100
"""Dialogues that are purged in one transaction."""
_TOLERANT: Final = Codec()


def purge(
    run: Run, names: DialogueNamespace, before: int | None, kept: int | None
) -> dict[str, bool]:
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


def _forget(run: Run, names: DialogueNamespace, header: Document) -> bool:
    try:
        label = label_of(Record(header, is_terminal=True, messages=()))
    except BadRecord:
        found: bool = run(RemoveById(names.terminal, header.id))
        for place, _ in record_of(run, names, header, is_terminal=True).messages:
            run(RemoveById(names.messages, message_id(header.id, place)))
        return found
    return erase(run, names, label, remember=by_opponent(label))


def by_opponent(label: DialogueLabel) -> bool:
    """Did the other side begin? Then its first message may come again."""
    return label.dialogue_opponent_addr == label.dialogue_starter_addr


def put_aside(
    run: Run, names: DialogueNamespace, record: Record, reason: str, rules: Codec
) -> None:
    """Move a record that cannot be read, with its messages, where it does no harm. Raises `VersionConflict` if
    it is not there any more as it was read: somebody else put it aside, say.
    """
    place, header = names.place(is_terminal=record.is_terminal), record.document
    _move(run, names, place, header, header.version, reason=reason, rules=rules)
    whole = record_of(run, names, header, is_terminal=record.is_terminal)
    for number, json in whole.messages:
        message = Document(message_id(header.id, number), json)
        _move(run, names, names.messages, message, None, reason=reason, rules=rules)


def was_put_aside(names: DialogueNamespace, aside: Document) -> bool:
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


def put_back(run: Run, names: DialogueNamespace, key: str, aside: Sequence[Document]) -> bool:
    """Put what was put aside of a dialogue back where it was, unless that has begun anew, or was ended or removed
    since; tells whether. Raises `VersionConflict` if something is in its place, or somebody else put it back.
    """
    places = names.active, names.terminal, names.finished
    is_headless = all(each.body["collection"] == names.messages for each in aside)
    if is_headless or any(run(DocumentExists(place, key)) for place in places):
        return False
    for each in aside:
        run(RemoveById(names.quarantine, each.id, each.version))
        run(Insert(each.body["collection"], each.body["id"], _TOLERANT.encode(shown(each.body))))
    return True


def shown(aside: dict[str, Any]) -> Any:
    """Return the body of a record that was put aside."""
    return aside["body"] if "body" in aside else decode(aside["text"])


def key_of_quarantined(aside: Document) -> str:
    """Return the key of the dialogue that something put aside is of."""
    is_message = aside.body["collection"].endswith("__messages")
    return key_of_message(aside.body["id"]) if is_message else aside.body["id"]


def _move(
    run: Run,
    names: DialogueNamespace,
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
    run(RemoveById(place, document.id, expected))
    run(Put(names.quarantine, new_id(), text))
