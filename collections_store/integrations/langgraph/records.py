"""The stored form of checkpoints: ids and bodies of documents, all in a single collection.

| id | body |
| --- | --- |
| `c/<thread>/<namespace>/<checkpoint>` | a checkpoint with metadata, the small and the changed values of its channels, and in `channels` the positions of the remaining values |
| `c/<thread>/<namespace>/<checkpoint> <task>/` | the pending writes of a task |
| `c/<thread>/<namespace>/<checkpoint> <task>/<index>` | a write of a task to a channel of LangGraph's own, such as an interrupt |
| `b/<thread>/<namespace>/<digest>` | a large value of a channel, shared by all checkpoints of the namespace |

A `/` in a part is written `%2F`, and a space `%20`. The documents of a thread, a namespace or a checkpoint are
therefore a single range of ids. Checkpoints are in the order of their LangGraph ids, each before its writes. The
serializer's result is in `type` and, in base64, in `data`; the digest covers both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from pybase64 import b64decode, b64encode_as_string

from ... import Document, InvalidOption

CHECKPOINTS: Final = "c"
VALUES: Final = "b"
LARGE: Final = 8192
"""Bytes of a value that has a document of its own. A smaller one costs less in each checkpoint than another read."""
INLINE: Final = 65_536
"""Bytes of a checkpoint up to which it holds its changed values, whatever their size."""
SCALARS: Final = (str, int, float, bool, type(None))
NO_WRITE: Final = {"task": {"$exists": False}}
"""A condition that no document of writes meets."""
_ESCAPED: Final = re.compile("[\x01-\x20%/]")


def join(*parts: str) -> str:
    """Return the id made of parts, or the common prefix of the ids that begin with the parts.

    >>> join("c", "my/thread", "", "1ef")
    'c/my%2Fthread//1ef'
    """
    return "/".join(map(escaped, parts))


@lru_cache(maxsize=4096)
def escaped(part: str) -> str:
    """Return a part as ids have it."""
    return _ESCAPED.sub(_escape, part)


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def split(path: str) -> tuple[str, ...]:
    """Return the parts of a joined path.

    >>> split("my%2Fthread/1ef")
    ('my/thread', '1ef')
    """
    parts = path.split("/")
    return tuple(map(unquote, parts)) if "%" in path else tuple(parts)


def under(prefix: str, last: str | None = None) -> dict[str, str]:
    """Return a condition on `$id`: under a prefix, or from a prefix up to `last`.

    >>> under("c/t")
    {'$gte': 'c/t/', '$lt': 'c/t0'}
    """
    return {"$gte": f"{prefix}/", "$lt": f"{prefix if last is None else last}0"}  # 0 follows /


def at_checkpoint(id: str) -> dict[str, str]:
    """Return a condition on `$id`: a checkpoint and its writes.

    >>> at_checkpoint("c/t//1ef")
    {'$gte': 'c/t//1ef', '$lt': 'c/t//1ef!'}
    """
    return {"$gte": id, "$lt": f"{id}!"}  # ! follows the space


def checkpoint_of(id: str) -> str:
    """Return the id of the checkpoint for the id of a checkpoint or a write."""
    return id.partition(" ")[0]


def value_id(checkpoint: str, digest: str) -> str:
    """Return the id of a large value of a stored checkpoint.

    >>> value_id("c/t//1ef", "5feceb66")
    'b/t//5feceb66'
    """
    return f"{VALUES}{checkpoint[len(CHECKPOINTS) : checkpoint.rindex('/')]}/{digest}"


def value_ids(document: Document) -> dict[str, str]:
    """Return the ids of the large values of a stored checkpoint, by channel."""
    found = {}
    for channel, place in document.body["channels"].items():
        if place:
            found[channel] = value_id(document.id, place["digest"])
    return found


def space_of(document: Document) -> tuple[str, str]:
    """Return the thread and the namespace of a stored checkpoint."""
    return document.body["thread"], document.body["namespace"]


def pack(serde: Any, value: Any) -> dict[str, str]:
    """Return the body of a value, written by the serializer."""
    return packed(serde.dumps_typed(value))


def packed(written: tuple[str, bytes]) -> dict[str, str]:
    """Return the body of a value already written by the serializer."""
    kind, data = written
    return {"type": kind, "data": b64encode_as_string(data)}


def digest(written: tuple[str, bytes]) -> str:
    """Return the name of a large value, a function of the value alone."""
    kind, data = written
    return hashlib.blake2b(data, digest_size=16, person=kind.encode()[:16]).hexdigest()


def typed(body: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the serializer's result stored in a body by `pack`."""
    return body["type"], b64decode(body["data"], validate=True)


def unpack(serde: Any, body: Mapping[str, Any]) -> Any:
    """Return the value stored in a body by `pack`."""
    return serde.loads_typed(typed(body))


@lru_cache(maxsize=4096, typed=True)
def version_key(version: Any) -> str:
    """Return the version of a channel as text. The texts of 1, 1.0 and "1" differ."""
    return json.dumps(version)


def plain(value: Any) -> Any:
    """Return a value with lists in place of tuples, which LangGraph's metadata can contain.

    >>> plain({"counters": {"channel": (1, 2)}})
    {'counters': {'channel': [1, 2]}}
    """
    if isinstance(value, dict):
        return {key: plain(below) for key, below in value.items()}
    return [plain(below) for below in value] if isinstance(value, list | tuple) else value


class Address(NamedTuple):
    """The target of a LangGraph config: a thread, a namespace (None: any), a checkpoint (None: the latest)."""

    thread: str
    namespace: str | None = None
    checkpoint: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Address:
        """Parse a config; raise `InvalidOption` for a config without a thread."""
        given = config.get("configurable") or {}
        if given.get("thread_id") is None:
            raise InvalidOption(
                "config", 'must have a thread: {"configurable": {"thread_id": "1"}}'
            )
        checkpoint = given.get("checkpoint_id")
        return cls(
            str(given["thread_id"]),
            given.get("checkpoint_ns"),
            str(checkpoint) if checkpoint else None,
        )

    @classmethod
    def of_body(cls, body: Mapping[str, Any]) -> Address:
        """Return the address of a stored checkpoint."""
        return cls(body["thread"], body["namespace"], body["id"])

    def at(self, checkpoint: str | None) -> Address:
        """Return the address of another checkpoint of the namespace, by default of the root namespace."""
        return Address(self.thread, self.namespace or "", checkpoint)

    def id(self, kind: str, *parts: str) -> str:
        """Return the id of a document of the namespace, or a prefix."""
        return join(kind, self.thread, self.namespace or "", *parts)

    def config(self) -> dict[str, Any]:
        """Return the config of this address."""
        return config_of(self.thread, self.namespace or "", self.checkpoint)


def config_of(thread: str, namespace: str, checkpoint: str | None) -> dict[str, Any]:
    """Return the config of a checkpoint."""
    where = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return {"configurable": where}
