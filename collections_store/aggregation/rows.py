"""Rows, which go from stage to stage, and the memory that stages hold.

A row is a body. As long as it stems from one object of the collection it is that `Document` with
its present body, so that `$id` and `{"$meta": "version"}` still have an answer; what a `$group`
creates is an `Anonymous` body.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, Protocol, TypeAlias

from ..document import Anonymous, Document, new_document
from ..errors import InvalidOperand, MemoryLimitExceeded
from ..query.filter import Filter
from ..query.values import MISSING, value_class
from .expressions.nodes import Node, evaluate
from .expressions.operands import OperandError
from .expressions.scope import MEMORY_LIMIT, Scope, checked, size_of
from .stages import Keys


class StageMemory:
    """What one stage holds."""

    __slots__ = ("_limit", "_place", "_seen", "held")

    def __init__(self, place: str, limit: int) -> None:
        self._place, self._limit, self.held = place, limit, 0
        self._seen: set[int] = set()

    def hold(self, weight: int) -> None:
        """Hold that much more; raises `MemoryLimitExceeded`."""
        self.held += weight
        if self.held > self._limit:
            raise self._exceeded()

    def weigh(self, value: Any) -> int:
        """Return the bytes that a value takes in memory; raises `MemoryLimitExceeded` if it alone is too much."""
        try:
            weight = size_of(value, self._limit)
        except OperandError as error:
            raise InvalidOperand(self._stage, error.problem) from None
        if weight > self._limit:
            raise self._exceeded()
        return weight

    def hold_value(self, value: Any) -> int:
        """Hold a value; returns its weight."""
        weight = self.weigh(value)
        self.hold(weight)
        return weight

    def hold_for_good(self, value: Any) -> None:
        """Hold a value that is never let go: what it shares with others of that kind is held once."""
        self.hold(size_of(value, self._limit, self._seen))

    def let_go(self, weight: int) -> None:
        """Hold that much less."""
        self.held -= weight

    @property
    def _stage(self) -> str:
        return self._place.rsplit(".", 1)[-1]

    def _exceeded(self) -> MemoryLimitExceeded:
        return MemoryLimitExceeded(self._place, self._stage, self._limit)


Row: TypeAlias = Document | Anonymous


class Source(Protocol):
    """Where `$lookup` finds the objects of other collections."""

    def find(self, collection: str, filter: Filter) -> Iterable[Document]:
        """Return the objects that match, in natural order; none, if there is no such collection."""


class Nowhere:
    """A source in which there is nothing."""

    def find(self, collection: str, filter: Filter) -> Iterable[Document]:  # noqa: ARG002
        """Find nothing."""
        return ()


@value_class(eq=True)
class Context:
    """What stages need besides rows; `ordered`: does the order of an object's keys count?"""

    source: Source
    memory_limit: int = MEMORY_LIMIT
    ordered: bool = True
    variables: Mapping[str, Any] = field(default_factory=dict)

    def scope(self, row: Row) -> Scope:
        """Return what an expression can see at a row."""
        limit = self.memory_limit
        return Scope(row, self.variables, ordered=self.ordered, memory_limit=limit)

    def memory(self, place: str) -> StageMemory:
        """Return the memory of the stage at a place."""
        return StageMemory(place, self.memory_limit)

    def having(self, variables: Mapping[str, Any]) -> Context:
        """Return the context with more variables."""
        return replace(self, variables={**self.variables, **variables})


@contextmanager
def placed(place: str | None) -> Iterator[None]:
    """Have an operator that cannot take something name the stage, the innermost one."""
    try:
        yield
    except InvalidOperand as error:
        if place is None or error.place is not None:
            raise
        named = InvalidOperand(error.operator, error.problem, error.found, place)
        raise named.with_traceback(error.__traceback__) from None


def with_body(row: Row, body: Any) -> Row:
    """Return the row with another body."""
    if isinstance(row, Anonymous):
        return Anonymous(body)
    return new_document(row.id, body, row.version, row.created_us, row.updated_us, row.expires_us)


def computed(expression: Node, scope: Scope) -> Any:
    """Return what an expression gives, if it is not too large to be handed on."""
    value = evaluate(expression, scope)
    if not isinstance(value, list | dict):
        return value
    try:
        return checked(value)
    except OperandError as error:
        raise InvalidOperand(
            str(getattr(expression, "operator", "a field")), error.problem
        ) from None


def within(body: Any, keys: Keys) -> Any:
    """Return what is at a path that goes through objects only, or `MISSING`."""
    for key in keys:
        if not isinstance(body, dict) or key not in body:
            return MISSING
        body = body[key]
    return body


def having(body: Any, keys: Keys, value: Any) -> Any:
    """Return the body with `value` at a path; what is on the way and no object becomes one."""
    if not keys:
        return value
    key, *rest = keys
    fields = dict(body) if isinstance(body, dict) else {}
    changed = having(fields.get(key, MISSING), tuple(rest), value)
    if changed is MISSING:
        fields.pop(key, None)
    else:
        fields[key] = changed
    return fields
