"""Reading dialogues back, within a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from ..codec import Codec
from ..document import Document
from ..filter import Filter
from ..operations import Exists, Find, GetDocument
from ..ordering import Sort
from .label import DialogueLabel
from .names import Namespace, key_of, messages_of
from .records import Kept, Record

Run: TypeAlias = Callable[[Any], Any]
"""Runs operations, within a transaction."""
_BY_ID: Final = Sort.parse("$id")
_LAST: Final = Sort.parse({"$id": -1})
_WIDTH: Final = 10


def load(run: Run, names: Namespace, key: str) -> Record | None:
    """Return the dialogue with a key, active or terminal."""
    for is_terminal, place in enumerate((names.active, names.terminal)):
        document = run(GetDocument(place, key))
        if document is not None:
            return record_of(run, names, document, is_terminal=bool(is_terminal))
    return None


def load_any(run: Run, names: Namespace, keys: Iterable[str]) -> Record | None:
    """Return the first dialogue that has one of the keys."""
    return next(filter(None, (load(run, names, key) for key in keys)), None)


def record_of(run: Run, names: Namespace, document: Document, *, is_terminal: bool) -> Record:
    """Return a header with its messages."""
    found = run(Find(names.messages, Filter.parse(messages_of(document.id)), _BY_ID))
    own = [each for each in found if key_of(each.id) == document.id]  # a foreign id may begin many
    return Record(document, is_terminal, tuple((place_of(each), each.body) for each in own))


def is_of(run: Run, names: Namespace, label: DialogueLabel) -> bool:
    """Is a label that of the dialogue with its key? A complete one may hold another reference."""
    if not label.is_complete:
        return True
    places = (run(GetDocument(place, label.key)) for place in (names.active, names.terminal))
    header = next(filter(None, places), None)
    if header is None or not isinstance(header.body, dict):
        return header is None
    found = header.body.get("dialogue_label")
    return found in (label.json, label.get_incomplete_version().json)


def page(run: Run, names: Namespace, label: DialogueLabel, after: int, limit: int) -> list[Any]:
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


def last_place(run: Run, names: Namespace, key: str) -> int:
    """Return how many messages of a dialogue there are."""
    found = _last(run, names, key)
    return place_of(found[0]) if found else 0


def _last(run: Run, names: Namespace, key: str) -> list[Document]:
    asked = Filter.parse(messages_of(key))
    found: list[Document] = run(Find(names.messages, asked, _LAST, limit=1))
    return found


def is_known(run: Run, names: Namespace, label: DialogueLabel) -> bool:
    """Is there, or was there, a dialogue with a label?"""
    places = names.finished, names.terminal, names.active
    return any(run(Exists(place, label.key)) for place in places) and is_of(run, names, label)


def by_ids(run: Run, place: str, keys: Iterable[str]) -> list[Document]:
    """Return those headers of a collection that have one of the keys."""
    found: list[Document] = run(Find(place, Filter.parse({"$id": {"$in": list(keys)}})))
    return found


def place_of(message: Document) -> int:
    """Return the place of a message in its dialogue."""
    digits = message.id[-_WIDTH:]
    return int(digits) if digits.isdecimal() else 0


def kept(run: Run, names: Namespace, keys: Iterable[str], rules: Codec) -> dict[str, Kept]:
    """Return what is on the disk of the dialogues with some keys."""
    found: dict[str, Kept] = {}
    for is_terminal, place in enumerate((names.active, names.terminal)):
        for each in by_ids(run, place, keys):
            last = _last(run, names, each.id)
            header, count = rules.encode(each.body), place_of(last[0]) if last else 0
            text = rules.encode(last[0].body) if count else None
            found[each.id] = Kept(count, header, bool(is_terminal), each.version, text)
    return found
