"""The checkpoints to list: LangGraph's arguments of `list` as a filter and a sort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ... import Document, InvalidFilter, Path, Sort
from .records import CHECKPOINTS, NO_WRITE, SCALARS, Address, join, under

BATCH: Final = 100
"""Documents that are read at once."""
LAST_FIRST: Final = Sort.parse([("$id", -1)])
_LATEST_FIRST: Final = Sort.parse([("id", -1)])


@dataclass(frozen=True, slots=True)
class Listing:
    """The checkpoints to list: a filter, a sort, and the metadata to be equal. `ids`: the range of ids of a list in a
    single namespace; None: any other list.
    """

    filter: dict[Any, Any]
    sort: Sort
    metadata: Mapping[str, Any]
    ids: dict[str, str] | None = None

    @classmethod
    def parse(
        cls,
        config: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        before: Mapping[str, Any] | None,
    ) -> Listing:
        """Read the arguments of `list`."""
        at = Address.of(config) if config else None
        is_one = at is not None and at.namespace is not None
        found: dict[Any, Any] = {"$id": under(_prefix(at))}
        if at is not None and at.checkpoint is not None:
            found["id"] = {"$eq": at.checkpoint}
        if before is not None and (last := before.get("configurable", {}).get("checkpoint_id")):
            if at is not None and is_one:
                found["$id"]["$lt"] = at.id(CHECKPOINTS, str(last))
            else:
                found["id"] = found.get("id", {}) | {"$lt": str(last)}
        for key, value in (metadata or {}).items():
            if not isinstance(key, str):
                raise InvalidFilter(str(key), "must be a key of the metadata, a string")
            if isinstance(value, SCALARS):  # others are compared after reading
                # a filter of strings is parsed in a third of the time
                name = f"metadata.{key}" if key.isidentifier() else Path("metadata", key)
                found[name] = value
        ids = found["$id"] if is_one and "id" not in found else None
        if (metadata or ids is None) and all(
            value is None or not isinstance(value, SCALARS) for value in (metadata or {}).values()
        ):
            found |= NO_WRITE  # no write has metadata
        return cls(found, LAST_FIRST if is_one else _LATEST_FIRST, metadata or {}, ids)

    def matches(self, document: Document) -> bool:
        """Return whether the metadata has the wanted values. Arrays and objects are compared as a whole."""
        found = document.body["metadata"]
        return all(found.get(key) == value for key, value in self.metadata.items())


def _prefix(at: Address | None) -> str:
    if at is None:
        return CHECKPOINTS
    if at.namespace is None:
        return join(CHECKPOINTS, at.thread)
    return at.id(CHECKPOINTS)
