"""The stages over single rows: `$project`, `$addFields`, `$unset` and `$replaceRoot`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..errors import InvalidOperand, InvalidPipeline, shortened
from ..expressions.budget import spend
from ..expressions.evaluation import Scope
from ..expressions.fields import NAMED, Keys, Tree, added, computed, excluded, included, tree_of
from ..expressions.values import MISSING
from . import stages
from .operands import fields_of, path_of
from .parser import PipelineParser
from .rows import Context, Row, StageMemory, name_at, placed, with_body
from .stages import Stage

_PART: Final = 64
"""A row is measured if its expressions hold more than this part of the limit."""


def parse_project(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$project`: either included and computed fields, or excluded fields. `_id` is included by default."""
    leaves = list(_leaves(parser, fields_of(operand, place), (), place, flags=True))
    others = [leaf for keys, leaf, _ in leaves if keys != ("_id",)]
    id_leaf = next((leaf for keys, leaf, _ in leaves if keys == ("_id",)), None)
    includes = others[0] is not False if others else id_leaf is not False
    for keys, leaf, here in leaves:
        is_neutral = keys == ("_id",) and (includes or leaf is True)
        if (leaf is False) is includes and not is_neutral:
            raise InvalidPipeline(here, "included and excluded fields do not mix")
    if not includes:
        named = [(k, NAMED if leaf is False else None, at) for k, leaf, at in leaves]
        return stages.ExcludeFields(tree_of(named, InvalidPipeline))
    entries = {True: NAMED, False: None}
    chosen = [(k, entries[leaf] if isinstance(leaf, bool) else leaf, at) for k, leaf, at in leaves]
    if id_leaf is None and not any(keys[0] == "_id" for keys, _, _ in leaves):
        chosen.insert(0, (("_id",), NAMED, place))
    return stages.Project(tree_of(chosen, InvalidPipeline))


def parse_add_fields(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$addFields` or `$set`."""
    if operand == {}:
        return stages.AddFields(Tree(()))
    return stages.AddFields(
        tree_of(_leaves(parser, fields_of(operand, place), (), place, flags=False), InvalidPipeline)
    )


def parse_unset(_parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$unset`."""
    fields = operand if isinstance(operand, list) else [operand]
    if not fields:
        raise InvalidPipeline(place, "must be a field or a list of fields")
    return stages.ExcludeFields(
        tree_of(
            ((path_of(each, place), NAMED, f"{place}.{each}") for each in fields),
            InvalidPipeline,
        )
    )


def parse_replace_root(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$replaceRoot`."""
    if not isinstance(operand, dict) or set(operand) != {"newRoot"}:
        raise InvalidPipeline(place, "must be a document of newRoot")
    return parse_replace_with(parser, operand["newRoot"], f"{place}.newRoot")


def parse_replace_with(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$replaceWith`."""
    return stages.ReplaceRoot(parser.expressions.parse(operand, place))


def _leaves(
    parser: PipelineParser, document: dict[str, Any], above: Keys, place: str, *, flags: bool
) -> Iterator[tuple[Keys, Any, str]]:
    """Yield paths, expressions and places; `flags`: a number or boolean includes or excludes the field."""
    for key, value in document.items():
        here = f"{place}.{key}"
        keys = (*above, *path_of(key, here))
        if isinstance(value, dict) and not next(iter(value), "$" * (not flags)).startswith("$"):
            if not value:
                raise InvalidPipeline(here, "must not be an empty object: use $literal")
            yield from _leaves(parser, value, keys, here, flags=flags)
        elif flags and isinstance(value, bool | int | float):
            yield keys, bool(value), here
        else:
            yield keys, parser.expressions.parse(value, here), here


def adds_id(operand: Mapping[str, Any]) -> bool:
    """Return whether a document of new fields has `_id`."""
    return any(key.split(".")[0] == "_id" for key in operand)


def computes_id(operand: Mapping[str, Any]) -> bool:
    """Return whether a `$project` computes `_id`."""
    return adds_id(
        {key: each for key, each in operand.items() if not isinstance(each, int | float)}
    )


def changed(
    stage: stages.Change, rows: Iterator[Row], context: Context, place: str
) -> Iterator[Row]:
    """Yield each row with its new body."""
    memory = StageMemory(place, context.memory_limit)
    with placed(place):
        for row in rows:
            spend()
            scope = context.scope(row)
            body = _new_body(stage, row.body, scope, place)
            if scope.held > context.memory_limit // _PART:
                memory.measure(body)
            yield with_body(row, body)


def _new_body(stage: stages.Change, body: Any, scope: Scope, place: str) -> Any:
    fields = body if isinstance(body, dict) else {}
    match stage:
        case stages.Project(tree):
            return included(tree, fields, scope)
        case stages.ExcludeFields(tree):
            return excluded(tree, body) if isinstance(body, dict) else body
        case stages.AddFields(tree):
            return added(tree, fields, scope)
        case stages.ReplaceRoot(expression):
            found = computed(expression, scope)
            if not isinstance(found, dict):
                problem = "a missing value" if found is MISSING else shortened(found)
                raise InvalidOperand(name_at(place), f"requires an object, got {problem}", found)
            return found
