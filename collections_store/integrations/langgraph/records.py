"""The stored form of checkpoints: ids and bodies of documents. All are in one collection, so that a `put` is one write.

| id | body |
| --- | --- |
| `c/<thread>/<namespace>/<checkpoint>` | the checkpoint without the values of its channels, its metadata, and in `channels` the version of each value |
| `b/<thread>/<namespace>/<channel>/<version>` | the value of a channel, which all checkpoints with that version share |
| `w/<thread>/<namespace>/<checkpoint>/<task>/<index>` | one pending write of a task |

A `/` in a part is written `%2F`. So the documents of a thread, a namespace or a checkpoint are one range of ids, and
checkpoints are in the order of their creation there. What LangGraph's serializer returns is in `type` and, in base64, in `data`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ... import InvalidOption

CHECKPOINTS: Final = "c"
VALUES: Final = "b"
WRITES: Final = "w"


def join(*parts: str) -> str:
    """Return the id of those parts, or the prefix of the ids that begin with them.

    >>> join("c", "my/thread", "", "1ef")
    'c/my%2Fthread//1ef'
    """
    return "/".join([part.replace("%", "%25").replace("/", "%2F") for part in parts])


def under(prefix: str, last: str | None = None) -> dict[str, str]:
    """Return a condition on `$id`: under a prefix, or under one up to `last`.

    >>> under("c/t")
    {'$gte': 'c/t/', '$lt': 'c/t0'}
    """
    return {"$gte": f"{prefix}/", "$lt": f"{prefix if last is None else last}0"}  # 0 follows /


def pack(serde: Any, value: Any) -> dict[str, str]:
    """Return the body of a value that the serializer writes."""
    kind, data = serde.dumps_typed(value)
    return {"type": kind, "data": b64encode(data).decode("ascii")}


def typed(body: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return what the serializer wrote, of a body that `pack` made."""
    return body["type"], a2b_base64(body["data"])


def unpack(serde: Any, body: Mapping[str, Any]) -> Any:
    """Return the value of a body that `pack` made."""
    return serde.loads_typed(typed(body))


def version_key(version: Any) -> str:
    """Return the version of a channel as a part of an id: 1, 1.0 and "1" differ."""
    return json.dumps(version)


def plain(value: Any) -> Any:
    """Return a value with lists for tuples, which LangGraph's metadata holds.

    >>> plain({"counters": {"channel": (1, 2)}})
    {'counters': {'channel': [1, 2]}}
    """
    if isinstance(value, Mapping):
        return {key: plain(below) for key, below in value.items()}
    return [plain(below) for below in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Address:
    """Where a config of LangGraph leads: a thread, a namespace (None: any), a checkpoint (None: the latest)."""

    thread: str
    namespace: str | None = None
    checkpoint: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Address:
        """Read a config; raise `InvalidOption` if it names no thread."""
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
        return replace(self, namespace=self.namespace or "", checkpoint=checkpoint)

    def id(self, kind: str, *parts: str) -> str:
        """Return the id of a document of the namespace, or a prefix."""
        return join(kind, self.thread, self.namespace or "", *parts)

    def config(self) -> dict[str, Any]:
        """Return the config that leads here."""
        return {
            "configurable": {
                "thread_id": self.thread,
                "checkpoint_ns": self.namespace or "",
                "checkpoint_id": self.checkpoint,
            }
        }
