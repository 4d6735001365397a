"""Whose dialogues they are, and in which collections they lie."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ..document import spelled
from ..errors import InvalidOption, shortened

_LONGEST: Final = 150
_WIDTH: Final = 10
"""Digits of a place: a dialogue has fewer messages than that allows."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The dialogues of one component of one agent, in collections of their own.

    The names are told apart whatever they hold: `a` and `b_c` are not `a_b` and `c`.

    >>> Namespace("ada", "my-shop").messages
    'dialogues__ada__my_2dshop__messages'
    """

    agent: str
    component: str

    def __post_init__(self) -> None:
        for name, given in (("agent", self.agent), ("component", self.component)):
            value: Any = given
            if not isinstance(value, str) or not value:
                raise InvalidOption(name, f"{shortened(value)} is no text, or an empty one")

    @property
    def active(self) -> str:
        """The collection of the dialogues that go on."""
        return self._named("active")

    @property
    def terminal(self) -> str:
        """The collection of those that have ended."""
        return self._named("terminal")

    def place(self, *, is_terminal: bool) -> str:
        """One of these two."""
        return self.terminal if is_terminal else self.active

    @property
    def messages(self) -> str:
        """The collection of the messages of both."""
        return self._named("messages")

    @property
    def finished(self) -> str:
        """The collection that tells of dialogues which have ended and are gone."""
        return self._named("finished")

    @property
    def quarantine(self) -> str:
        """The collection of the records that cannot be restored."""
        return self._named("quarantine")

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return self.active, self.terminal, self.messages, self.finished, self.quarantine

    def _named(self, part: str) -> str:
        return f"dialogues__{_begin(self.agent, self.component)}__{part}"


@lru_cache(maxsize=256)
def _begin(agent: str, component: str) -> str:
    """Return what the names have in common; every message asks for some of them."""
    begin = f"{spelled(agent)}__{spelled(component)}"
    if len(begin) > _LONGEST:  # two underscores at its beginning: no escaped text has that
        text = json.dumps([agent, component], ensure_ascii=False)
        begin = f"__{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return begin


def message_id(key: str, place: int) -> str:
    """Return the id of the message at a place, from 1 on, of the dialogue with a key."""
    return f"{key}{place:0{_WIDTH}d}"


def key_of(message: str) -> str:
    """Return the key of the dialogue that a message, by its id, is of."""
    return message[:-_WIDTH]


def messages_of(key: str, after: int = 0) -> dict[str, Any]:
    """Return the filter of a dialogue's messages past a place."""
    return {"$id": {"$gt": message_id(key, after), "$lt": f"{key}:"}}  # ":" comes after the digits
