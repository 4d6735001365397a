"""The fields read by a pipeline: a database returns these fields in place of whole bodies.

A field is a key at the top of a body. With the whole value of a field, arrays at any depth have their usual meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..expressions.fields import Named, Tree
from ..expressions.nodes import Meta, Reference, nodes_of
from ..expressions.path import Path
from ..query.conditions import Metadata
from ..query.sort import Sort, SortField
from . import stages
from .stages import PlacedStage


class _Whole(Exception):
    """A stage reads whole documents, or metadata."""


def fields_read(steps: tuple[PlacedStage, ...], *, ordered: bool) -> tuple[str, ...] | None:
    """Return the fields that stages read of each document, in their order; None: a stage reads whole documents, or their
    metadata.

    `ordered`: objects keep the order of their keys. Only a whole body has this order, and a `$project` of several fields
    keeps the order.
    """
    try:
        found = set(_read(steps, ordered=ordered))
    except _Whole:
        return None
    return tuple(sorted(found, key=lambda key: (len(key.encode()), key.encode())))


def _read(steps: tuple[PlacedStage, ...], *, ordered: bool) -> Iterator[str]:
    """Yield the fields. After a stage such as `$group`, rows have no fields of documents."""
    for number, step in enumerate(steps, 1):
        match step.stage:
            case stages.Project() | stages.ReplaceRoot() if _reads_metadata(steps[number:]):
                raise _Whole  # these rows still have the metadata of their documents
            case stages.Skip() | stages.Limit() | stages.ExcludeFields():
                pass
            case stages.SortRows(sort):
                yield from _sorted_by(sort)
            case stages.Unwind(path):
                yield path[0]
            case stages.AddFields(tree):
                yield from _referred(tree)
            case stages.Lookup(local=local, variables=variables):
                yield from _first(() if local is None else local)
                yield from _referred(tuple(node for _, node in variables))
            case stages.Project(tree):
                named = [key for key, entry in tree.entries if isinstance(entry, Named | Tree)]
                if ordered and len(named) > 1:
                    raise _Whole
                yield from named
                yield from _referred(tree)
                return
            case stages.ReplaceRoot(body):
                yield from _referred(body)
                return
            case stages.Group(key, fields) | stages.BucketAuto(key, _, fields):
                yield from _referred(key)
                for _, each in fields:
                    yield from _referred(each.operand)
                    yield from _sorted_by(each.sort or Sort(()))
                return
            case stages.CountRows():
                return
            case stages.Facet(pipelines):
                for _, inner in pipelines:
                    yield from _read(inner, ordered=ordered)
                return
            case _:
                raise _Whole
    raise _Whole


def _reads_metadata(steps: tuple[PlacedStage, ...]) -> bool:
    for node in nodes_of(steps):
        match node:
            case Meta() | Metadata() | SortField(target=str()) | stages.Lookup(local=str()):
                return True
    return False


def _first(keys: Any) -> Iterator[str]:
    """Yield the first key of a path; metadata has none."""
    if isinstance(keys, str):
        raise _Whole
    yield from keys[:1]


def _sorted_by(sort: Sort) -> Iterator[str]:
    for field in sort.fields:
        if not isinstance(field.target, Path) or not field.target.keys:
            raise _Whole
        yield field.target.keys[0]


def _referred(expression: Any) -> Iterator[str]:
    """Yield the fields in an expression."""
    for node in nodes_of(expression):
        match node:
            case Meta() | Reference("CURRENT" | "ROOT", ()):
                raise _Whole
            case Reference("CURRENT" | "ROOT", (key, *_)):
                yield key
