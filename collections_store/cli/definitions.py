"""Indexes as JSON."""

from __future__ import annotations

from typing import Any

from .. import Index


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
