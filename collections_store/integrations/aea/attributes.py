"""What a subclass of AEA's `Dialogue` has beside its label and its messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from aea.protocols.dialogue.base import Dialogue

from .encoding import decoded, encoded

ATTRIBUTES: Final = "attributes"
OWN: Final = "json"
_LONGEST: Final = 100_000
"""Characters of an attribute that is kept: all are written again whenever one has changed."""
_DEEPEST: Final = 20
_OF_AEA: Final = frozenset(
    {
        "_self_address",
        "_dialogue_label",
        "_role",
        "_outgoing_messages",
        "_incoming_messages",
        "_message_class",
        "_terminal_state_callbacks",
        "_last_message_id",
        "_ordered_message_ids",
    }
)
_OF_JSON: Final = frozenset(
    {
        "dialogue_label",
        "self_address",
        "role",
        "incoming_messages",
        "outgoing_messages",
        "last_message_id",
        "ordered_message_ids",
    }
)


def metadata_of(dialogue: Dialogue) -> dict[str, Any]:
    """Return what is kept: the keys that the class's own `json` adds, or else the attributes that JSON can say."""
    if type(dialogue).json is not Dialogue.json:
        added = dialogue.json().items()
        return {OWN: {key: encoded(value) for key, value in added if key not in _OF_JSON}}
    found = {name: encoded(value) for name, value in _attributes(dialogue) if _is_json(value)}
    return {ATTRIBUTES: found} if found else {}


def added_to_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the class's own `from_json` gets beside AEA's keys."""
    return {key: decoded(value) for key, value in metadata.get(OWN, {}).items()}


def set_attributes(dialogue: Dialogue, metadata: Mapping[str, Any]) -> None:
    """Set the attributes again; those that the class does not take by now are left out."""
    for name, value in metadata.get(ATTRIBUTES, {}).items():
        if _is_its_own(name) and not callable(getattr(type(dialogue), name, None)):
            with suppress(AttributeError, TypeError):
                setattr(dialogue, name, decoded(value))


def _attributes(dialogue: Dialogue) -> Iterator[tuple[str, Any]]:
    slots = {name for each in type(dialogue).__mro__ for name in _slots(each)}
    for name in sorted(slots | vars(dialogue).keys()):
        if _is_its_own(name) and hasattr(dialogue, name):
            yield name, getattr(dialogue, name)


def _is_its_own(name: str) -> bool:
    return name not in _OF_AEA and not name.startswith("__")


def _slots(of: type) -> tuple[str, ...]:
    slots = vars(of).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_json(value: Any) -> bool:
    """Does it come back from JSON as what it is?"""
    return _is_plain(value, _DEEPEST) and len(json.dumps(value)) <= _LONGEST


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, list | dict) and not depth:
        return False
    if type(value) is list:
        return all(_is_plain(each, depth - 1) for each in value)
    if type(value) is dict:
        return all(type(key) is str and _is_plain(each, depth - 1) for key, each in value.items())
    return value is None or type(value) in {bool, int, float, str}
