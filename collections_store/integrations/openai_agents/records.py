"""The stored form of sessions: a document for each session, the header, and a document for each item.

1. The id of an item is `5:alice/4:main/1763856000000007`: the session and the branch, each with its length, and a
   number. No two sessions share an id, and the items of a branch are a range of ids.
2. The header, `5:alice/`, has the last number of the session, and the names of its branches. Every append takes
   numbers from the header. The items of a call are therefore adjacent, and later calls append after them.
3. An item that begins a turn, a message of the user, has `user`, and the `usage` of the turn. Copies and deletions
   of a turn include the usage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ... import Document, InvalidBody, InvalidOption, Sort

if TYPE_CHECKING:
    from agents import TResponseInputItem
    from agents.usage import Usage

Json: TypeAlias = dict[str, Any]
COLLECTION: Final = "agent_sessions"
MAIN: Final = "main"
"""The SDK's name of the branch that a session begins with."""
HEADERS: Final = {"branches": {"$exists": True}}
"""The filter of the headers of sessions. A header has only `last` until its first items are there."""
LAST_FIRST: Final = Sort.parse([("$id", -1)])
COUNTS: Final = ("requests", "input_tokens", "output_tokens", "total_tokens")
DETAILS: Final = ("input_tokens_details", "output_tokens_details")
MAX_NAME: Final = 900
"""Bytes of the id of a session, and of the name of a branch: an id has both."""
_PREVIEW: Final = 100
"""Characters of a message in a list of turns."""


def header_id(session: str) -> str:
    """Return the id of a session's header; raise `InvalidOption`.

    >>> header_id("alice")
    '5:alice/'
    """
    return f"{len(check_name('session_id', session))}:{session}/"


def items_prefix(session: str, branch: str) -> str:
    """Return the common beginning of the ids of a branch's items.

    >>> items_prefix("alice", "main")
    '5:alice/4:main/'
    """
    return f"{header_id(session)}{len(check_name('branch_id', branch))}:{branch}/"


def under(prefix: str) -> dict[str, str]:
    """Return the condition on ids with a prefix. The prefix ends with /.

    >>> under("5:alice/")
    {'$gte': '5:alice/', '$lt': '5:alice0'}
    """
    return {"$gte": prefix, "$lt": f"{prefix[:-1]}0"}  # 0 is the character after /


def names_of(header: Json | None) -> list[str]:
    """Return the names of the branches, in the order of their creation.

    >>> names_of({"branches": ["other", "main"]})
    ['main', 'other']
    """
    names = [] if header is None else header.get("branches", [])
    return [MAIN, *(name for name in names if name != MAIN)]


def start() -> int:
    """Return the number before the first item of a new session: the time in microseconds.

    Numbers therefore also grow from a deleted session to a new session of the same id.
    """
    return time.time_ns() // 1000


def numbered(
    session: str, branch: str, bodies: Iterable[Json], first: int
) -> Iterator[tuple[str, Json]]:
    """Yield the ids and the documents of items.

    >>> dict(numbered("alice", "main", [{"item": {"type": "reasoning"}}], 1763856000000007))
    {'5:alice/4:main/1763856000000007': {'session': 'alice', 'branch': 'main', 'item': {'type': 'reasoning'}}}
    """
    prefix = items_prefix(session, branch)
    for number, body in enumerate(bodies, first):
        yield f"{prefix}{number}", {"session": session, "branch": branch, **body}


def body_of(item: object) -> Json:
    """Return the stored form of an item.

    >>> body_of({"role": "user", "content": "Hello"})
    {'user': True, 'item': {'role': 'user', 'content': 'Hello'}}
    """
    begins_turn = isinstance(item, Mapping) and item.get("role") == "user"
    return {"user": True, "item": item} if begins_turn else {"item": item}


def as_text(body: Json, error: InvalidBody) -> Json:
    """Return an item that no body can hold, such as an item with NUL, as JSON text; raise `error` if the item has
    no JSON.
    """
    fields = body.copy()
    try:
        return {"text": json.dumps(fields.pop("item"))} | fields
    except (TypeError, ValueError, RecursionError):
        raise error from None


def item_of(document: Document[Any]) -> TResponseInputItem:
    """Return the item of a document."""
    body = document.body
    item: TResponseInputItem = json.loads(body["text"]) if "text" in body else body["item"]
    return item


def turn_of(number: int, document: Document[Any]) -> Json:
    """Return a turn as the SDK's AdvancedSQLiteSession does."""
    content = dict(item_of(document)).get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return {
        "turn": number,
        "content": f"{text[:_PREVIEW]}..." if len(text) > _PREVIEW else text,
        "full_content": content,
        "timestamp": document.created_at,
        "can_branch": True,
    }


def usage_of(usage: Usage) -> Json:
    """Return the stored form of the usage of a turn."""
    counts = {name: getattr(usage, name) or 0 for name in COUNTS}
    details = {name: getattr(usage, name) for name in DETAILS}
    return counts | {name: each and each.model_dump() for name, each in details.items()}


def new_name(turn: int, names: Iterable[str]) -> str:
    """Return an unused name for a branch from a turn.

    >>> new_name(2, ["main", "branch_from_turn_2"])
    'branch_from_turn_2_2'
    """
    name, count, taken = f"branch_from_turn_{turn}", 1, set(names)
    while name in taken:
        count += 1
        name = f"branch_from_turn_{turn}_{count}"
    return name


def check_name(option: str, value: object) -> str:
    """Return the id of a session or the name of a branch; raise `InvalidOption`."""
    with suppress(UnicodeEncodeError):
        if isinstance(value, str) and "\0" not in value and len(value.encode()) <= MAX_NAME:
            return value
    problem = f"must be a string of up to {MAX_NAME} bytes, without NUL and lone surrogates"
    raise InvalidOption(option, f"{problem}, got {shown(value)}")
