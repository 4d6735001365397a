"""The ids of the documents: paths. A `/` of a name is written `%2F`. The documents under a path are a single range
of ids.

| Id | Document |
| --- | --- |
| `/app` | the state of an app |
| `/app/user` | the state of a user |
| `/app/user/session` | a session with its state |
| `/app/user/session/000000000007` | in the collection of events: the eighth event of a session |
| `/app/user/memory` | in the collection of memories: a memory; the memory of an event is named `session/event` |
"""

from __future__ import annotations

from typing import Any, Final

from ... import InvalidId, InvalidOption
from .. import ids

MAX_BYTES: Final = 1900
"""Of a session's path. An id has at most 2,000 bytes, and the path of an event is longer."""


def path(**names: str) -> str:
    """Return the path of an app, user and session; raise `InvalidOption` and `InvalidId`.

    >>> path(app_name="weather", user_id="a/b")
    '/weather/a%2Fb'
    """
    found = "".join([f"/{escaped(name, option)}" for option, name in names.items()])
    try:
        size = len(found.encode())
    except UnicodeEncodeError:
        raise InvalidId(found, "it holds a lone surrogate, which is not Unicode") from None
    if "\0" in found:
        raise InvalidId(found, "it holds a NUL character")
    if size > MAX_BYTES:
        raise InvalidId(found, f"{size:,} bytes are more than {MAX_BYTES:,}")
    return found


def escaped(name: str, option: str) -> str:
    """Return a name as a part of a path."""
    if not isinstance(name, str):
        raise InvalidOption(option, f"must be a string, got {type(name).__name__}")
    return ids.escaped(name)


def under(parent: str) -> dict[str, Any]:
    """Return the filter of the documents under a path.

    >>> under("/weather/ada")
    {'$id': {'$gte': '/weather/ada/', '$lt': '/weather/ada0'}}
    """
    return {"$id": ids.under(parent)}
