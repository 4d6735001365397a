"""`$redact`: keeps or leaves out documents, and objects within documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..errors import InvalidOperand
from ..expressions.budget import spend
from ..expressions.evaluation import Scope, named
from ..expressions.nodes import Node, evaluate
from ..expressions.values import MISSING
from .parser import PipelineParser
from .rows import Context, Row, placed, with_body
from .stages import Redact, Stage

DECISIONS: Final[Mapping[str, str]] = {"DESCEND": "descend", "PRUNE": "prune", "KEEP": "keep"}
"""The values of the variables, as on MongoDB's server."""


def parse_redact(parser: PipelineParser, operand: Any, place: str) -> Stage:
    """Parse `$redact`."""
    return Redact(parser.expressions.within(*DECISIONS).parse(operand, place))


def redacted(decision: Node, rows: Iterable[Row], context: Context, place: str) -> Iterator[Row]:
    """Yield the rows without the parts left out."""
    with placed(place):
        for row in rows:
            spend()
            scope = context.scope(row)
            scope.variables.update(DECISIONS)
            body = _decided(decision, row.body, scope)
            if body is not MISSING:
                yield with_body(row, body)


def _decided(decision: Node, value: Any, scope: Scope) -> Any:
    """Return an object, or `MISSING` to leave the object out."""
    spend()
    scope.variables["CURRENT"] = value
    match evaluate(decision, scope):
        case "keep":
            return value
        case "prune":
            return MISSING
        case "descend" if isinstance(value, dict):
            inner = ((key, _within(decision, each, scope)) for key, each in value.items())
            return {key: each for key, each in inner if each is not MISSING}
        case "descend":
            return _within(decision, value, scope)
        case other:
            problem = f"requires $$DESCEND, $$PRUNE or $$KEEP, got {named(other)}"
            raise InvalidOperand("$redact", problem, other)


def _within(decision: Node, value: Any, scope: Scope) -> Any:
    if isinstance(value, dict):
        return _decided(decision, value, scope)
    if isinstance(value, list):
        inner = (_within(decision, each, scope) for each in value)
        return [each for each in inner if each is not MISSING]
    return value
