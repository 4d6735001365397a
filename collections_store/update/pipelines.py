"""Updates that are pipelines: stages that compute the new body from the old one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..codec import Codec
from ..document import Document
from ..errors import (
    InvalidOperand,
    InvalidPipeline,
    InvalidUpdate,
    UpdateRefused,
)
from ..formula import MEMORY_LIMIT
from ..pipeline import Nowhere, Pipeline
from ..pipeline.parsing import Parser
from ..pipeline.rows import Context
from ..pipeline.running import run
from ..values import identical
from .numbers import iso

STAGES: Final = ("$addFields", "$set", "$project", "$unset", "$replaceRoot", "$replaceWith")
_VARIABLES: Final = frozenset({"NOW"})


def read_stages(stages: list[Any] | tuple[Any, ...], rules: Codec) -> Pipeline:
    """Read a list of stages, of those that an update may have; raises `InvalidUpdate`."""
    for number, stage in enumerate(stages):
        name = next(iter(stage), None) if isinstance(stage, Mapping) else None
        if isinstance(name, str) and name not in STAGES:
            raise InvalidUpdate(
                f"{number}.{name}", f"an update has no stages but {', '.join(STAGES)}"
            )
    try:
        return Pipeline(Parser(rules, _VARIABLES).steps(stages))
    except InvalidPipeline as error:
        raise InvalidUpdate(error.place, error.problem) from error


def transformed(pipeline: Pipeline, document: Document, *, now: int, ordered: bool) -> Any:
    """Return the body that comes out, or the same one if it is spelled alike."""
    context = Context(Nowhere(), MEMORY_LIMIT, ordered, {"NOW": iso(now)})
    try:
        (row,) = run(pipeline.steps, [document], context)
    except InvalidOperand as error:
        problem = f"{error.operator} {error.problem}"
        raise UpdateRefused(document.id, error.place or "", problem) from error
    return document.body if identical(row.body, document.body) else row.body
