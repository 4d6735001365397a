"""The operands of stages: fields, names, numbers and collections, with errors that name the place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..document import check_name
from ..errors import InvalidFilter, InvalidName, InvalidPipeline, shortened
from ..expressions import times
from ..expressions.evaluation import OperandError
from ..expressions.fields import Keys
from ..expressions.operand_parser import check_keys
from ..expressions.path import Path
from ..expressions.values import is_number
from ..query.conditions import read_target
from . import stages
from .stages import PlacedStage, Side

MAX_COUNT: Final = 2**63 - 1


def path_of(dotted: Any, place: str) -> Keys:
    """Parse the dotted name of a field, without `$`."""
    if not isinstance(dotted, str):
        raise InvalidPipeline(place, f"must be the name of a field, got {shortened(dotted)}")
    keys = tuple(dotted.split("."))
    check_keys(keys, place, InvalidPipeline)
    return keys


def side_of(dotted: Any, place: str, names_id: bool) -> Side:
    """Parse a field of `$lookup`: a path, or metadata such as `$id`."""
    special = ("$", "_id") if names_id else ("$",)
    if not isinstance(dotted, str) or not dotted.startswith(special):
        return path_of(dotted, place)
    try:
        target = read_target(dotted, InvalidPipeline, place)
    except InvalidFilter as error:  # no path
        raise InvalidPipeline(place, error.problem) from None
    return target.keys if isinstance(target, Path) else target


def fields_of(operand: Any, place: str) -> dict[str, Any]:
    """Return a document with at least one field."""
    if not isinstance(operand, dict) or not operand:
        problem = f"must be a document with at least one field, got {shortened(operand)}"
        raise InvalidPipeline(place, problem)
    return operand


def integer_of(value: Any, least: int, place: str, most: int | None = None) -> int:
    """Return an integer; 2.0 is one."""
    end = MAX_COUNT - 1 if most is None else most
    if not is_number(value) or value != value // 1 or not least <= value <= end:
        bounds = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InvalidPipeline(place, f"must be an integer {bounds}, got {shortened(value)}")
    return int(value)


def name_of(name: Any, place: str) -> str:
    """Return the name of a field, not a path."""
    if not isinstance(name, str) or not name or name.startswith("$") or "." in name:
        problem = (
            f"{shortened(name)}: a field's name is not empty, has no dot and does not begin with $"
        )
        raise InvalidPipeline(place, problem)
    return name


def collection_of(name: Any, place: str) -> str:
    """Return the name of a collection."""
    if isinstance(name, dict) and "db" in name:
        problem = f"another database is not supported: name a collection, got {shortened(name)}"
        raise InvalidPipeline(place, problem)
    try:
        return check_name(name)
    except InvalidName as error:
        raise InvalidPipeline(place, str(error)) from None


def check_choice(value: Any, choices: tuple[str, ...], place: str) -> None:
    """Raise `InvalidPipeline` for another value than the choices."""
    if value not in choices:
        problem = f"must be one of {', '.join(choices)}, got {shortened(value)}"
        raise InvalidPipeline(place, problem)


def unit_of(given: Mapping[str, Any], place: str) -> str | None:
    """Return the unit of time in a document; None without one."""
    if "unit" not in given:
        return None
    try:
        return times.unit(given["unit"])
    except OperandError as error:
        raise InvalidPipeline(f"{place}.unit", error.problem) from None


def source_of(
    given: Mapping[str, Any], key: str, steps: tuple[PlacedStage, ...], place: str
) -> str | None:
    """Return the collection of a stage; None: the pipeline within the stage begins with `$documents`."""
    has_documents = bool(steps) and isinstance(steps[0].stage, stages.Documents)
    if has_documents is (key in given):
        raise InvalidPipeline(
            place, f"requires either {key}, or a pipeline that begins with $documents"
        )
    return None if has_documents else collection_of(given[key], f"{place}.{key}")
