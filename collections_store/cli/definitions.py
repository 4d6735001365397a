"""Indexes as JSON: what `export` writes, `import` reads and `index list` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import CollectionsStoreError, Index, InvalidIndex
from ..errors import shortened
from .fields import pairs_of
from .output import to_text
from .reading import INDEXES, BadItem

_KEYS = {"name", "fields", "unique", "where", "arrays"}


def as_json(index: Index) -> dict[str, Any]:
    """Return what defines an index; a field is the list of its keys, which may hold dots."""
    pairs = zip(index.paths, index.fields, strict=True)
    return {
        "name": index.name,
        "fields": [[list(path.keys), direction] for path, (_, direction) in pairs],
        "unique": index.unique,
        "where": None if index.where is None else index.where.to_json(),
        "arrays": index.arrays,
    }


def header(indexes: Sequence[Index]) -> list[str]:
    """Return the lines that an export begins with: one that no object can have, or none."""
    return [to_text({INDEXES: list(map(as_json, indexes))})] if indexes else []


def read_indexes(values: Any) -> list[Index]:
    """Read what `header` wrote; raises `BadItem`."""
    if not isinstance(values, list):
        raise BadItem(f"the indexes are a list, not {shortened(values)}")
    return [_index(number, value) for number, value in enumerate(values, 1)]


def _index(number: int, value: Any) -> Index:
    if not isinstance(value, dict) or "fields" not in value or not value.keys() <= _KEYS:
        known = ", ".join(sorted(_KEYS))
        raise BadItem(
            f"index {number} is {shortened(value)}: it needs fields, and may have {known}"
        )
    options = {key: each for key, each in value.items() if key != "fields"}
    try:
        return Index.parse(pairs_of(value["fields"], InvalidIndex), **options)
    except CollectionsStoreError as error:
        raise BadItem(f"index {number}: {error}") from error
