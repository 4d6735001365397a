"""The rows between stages, and the memory of stages.

A row is a body. While a row stems from one document of the collection, the row is the `Document` with the present
body, and `$id` and `{"$meta": "version"}` have a value. A `$group` creates `Anonymous` bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Final, Protocol, TypeAlias

from ..codec.times import iso
from ..document import Anonymous, Document, Scored, moment, now, with_other_body
from ..errors import InvalidOperand, MemoryLimitExceeded
from ..expressions.classes import value_class
from ..expressions.collation import Ordered
from ..expressions.evaluation import MEMORY_LIMIT, OperandError, Scope, size_of
from ..expressions.fields import Keys
from ..expressions.values import MISSING
from ..query.filter import Filter
from .stages import PlacedStage

Row: TypeAlias = Document | Anonymous
ROW: Final = 400
"""Bytes that a held row takes besides its body."""


class Source(Protocol):
    """Provides the documents of other collections."""

    def find(self, collection: str, filter: Filter) -> Iterable[Document]:
        """Return the matching documents in natural order; none without a collection of that name."""


class NoCollections:
    """A source without collections."""

    def find(self, collection: str, filter: Filter) -> Iterable[Document]:  # noqa: ARG002
        return ()


@value_class(eq=True)
class Context:
    """The input of stages besides rows; `ordered`: the order of an object's keys counts."""

    source: Source
    memory_limit: int = MEMORY_LIMIT
    ordered: Ordered = True
    variables: Mapping[str, Any] = field(default_factory=lambda: {"NOW": iso(moment(now()))})
    spilled: frozenset[str] = frozenset()
    """The places of the stages that sort in a temporary file."""

    def scope(self, row: Row) -> Scope:
        limit = self.memory_limit
        return Scope(row, self.variables, ordered=self.ordered, memory_limit=limit)


Runner: TypeAlias = Callable[[tuple[PlacedStage, ...], Iterable[Row], Context], Iterator[Row]]
"""Runs the pipeline within a stage."""


class StageMemory:
    """The memory of one stage, in bytes."""

    __slots__ = ("_limit", "_seen", "held", "place")

    held: int
    place: str

    def __init__(self, place: str, limit: int) -> None:
        self.place, self._limit, self.held = place, limit, 0
        self._seen: set[int] = set()

    def hold(self, size: int) -> None:
        """Hold more bytes; raise `MemoryLimitExceeded`."""
        self.held += size
        if self.held > self._limit:
            raise MemoryLimitExceeded(self.place, name_at(self.place), self._limit)

    def measure(self, value: Any) -> int:
        """Return the size of a value; raise `MemoryLimitExceeded` for a value larger than the limit."""
        try:
            size = size_of(value, self._limit)
        except OperandError as error:
            raise InvalidOperand(name_at(self.place), error.problem) from None
        if size > self._limit:
            raise MemoryLimitExceeded(self.place, name_at(self.place), self._limit)
        return size

    def hold_value(self, value: Any) -> int:
        size = self.measure(value)
        self.hold(size)
        return size

    def hold_shared(self, value: Any) -> None:
        """Hold a value that is never released. Parts shared by such values are held once."""
        self.hold(size_of(value, self._limit, self._seen))

    def release(self, size: int) -> None:
        self.held -= size


def name_at(place: str) -> str:
    """Return the name of the stage at a place: `$group` at `2.$group`."""
    return place.rsplit(".", 1)[-1]


class placed:  # noqa: N801 - it reads as a function
    """The context that adds the place of the stage to an `InvalidOperand`, unless an inner stage did."""

    __slots__ = ("_place",)

    def __init__(self, place: str | None) -> None:
        self._place = place

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._place is not None and isinstance(error, InvalidOperand) and error.place is None:
            named = InvalidOperand(error.operator, error.problem, error.found, self._place)
            raise named.with_traceback(error.__traceback__) from None


def with_body(row: Row, body: Any) -> Row:
    """Return the row with another body."""
    if isinstance(row, Anonymous):
        return Anonymous(body)
    if isinstance(row, Scored):
        return replace(row, body=body)
    return with_other_body(row, body)


def with_value(body: Any, keys: Keys, value: Any) -> Any:
    """Return the body with a value at a path, or with no value (`MISSING`). Objects replace other values on
    the path.
    """
    if not keys:
        return value
    key, *rest = keys
    fields = dict(body) if isinstance(body, dict) else {}
    changed = with_value(fields.get(key, MISSING), tuple(rest), value)
    if changed is MISSING:
        fields.pop(key, None)
    else:
        fields[key] = changed
    return fields
