"""Checks of operands, comparison, the scope, and limits, for the evaluation of operators.

A short expression can exhaust a machine: `$range` to a billion, or an array that contains another array twice, which
contains a third array twice, and so on. The nested arrays take little memory until written as JSON. Therefore two
limits exist: on the bytes of memory, and on the characters of JSON of one computed value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cmp_to_key, partial
from sys import getsizeof
from typing import Any, Final, TypeVar

from ..codec import MAX_DEPTH, MAX_INTEGER, MIN_INTEGER
from ..document import Anonymous, Document
from ..errors import shortened
from .budget import spend
from .collation import Collator, Ordered
from .values import MISSING, compare, is_number

T = TypeVar("T")

MEMORY_LIMIT: Final = 100 * 2**20
"""Bytes that each stage of a pipeline, and the expressions of one document, may hold by default."""
MAX_SIZE: Final = 16 * 2**20
"""Characters of JSON that one computed value may have: as many as a body, by default."""
SCALAR: Final = 8
"""Characters that a value counts besides those of its strings."""
POINTER: Final = 8
"""Bytes of memory for an element of an array, besides its value."""
NUMBER: Final = 32
"""Bytes of memory for a number."""
STRING: Final = 57
"""Bytes of memory for a string, besides its characters."""
ARRAY: Final = 56
"""Bytes of memory for an array, besides its elements."""
PAIR: Final = 232
"""Bytes of memory for an object of two fields, besides their values."""
EVERY: Final = 32
"""Elements that are counted as steps at once: to count each takes 7 % of an evaluation (measured)."""
NO_VARIABLES: Final[Mapping[str, Any]] = {}
_SHARED: Final = 4
"""Arrays and objects with fewer elements are counted each time, even if values share them."""
_CONTAINERS: Final = frozenset({list, dict})
_EXACT_PART: Final = 64
"""Charges below this part of the limit are not replaced by the exact size."""


class OperandError(Exception):
    """An operator does not take the value. The node that evaluates the operator adds its name."""

    problem: str
    found: Any | None

    def __init__(self, problem: str, found: Any = None) -> None:
        super().__init__(problem)
        self.problem, self.found = problem, None if found is MISSING else found


# -- operands ----------------------------------------------------------------------------------


def is_null(value: Any) -> bool:
    """Return whether a value is null or missing."""
    return value is None or value is MISSING


def truthy(value: Any) -> bool:
    """Return whether a value counts as true: all but false, 0, null and missing do."""
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    return value is not MISSING


def number(value: Any) -> Any:
    """Return a number unchanged."""
    if type(value) is not int and not is_number(value):
        raise OperandError(f"requires a number, got {named(value)}", value)
    return value


def integer(value: Any, low: int = MIN_INTEGER, high: int = MAX_INTEGER) -> int:
    """Return an integer within bounds; 2.0, a float without a fraction, is an integer."""
    if not is_number(value) or value != value // 1 or not low <= value <= high:
        bounds = "" if (low, high) == (MIN_INTEGER, MAX_INTEGER) else f" from {low} to {high}"
        raise OperandError(f"requires an integer{bounds}, got {named(value)}", value)
    return int(value)


def _required(kind: type[T], name: str) -> Callable[[Any], T]:
    def check(value: Any) -> T:
        if not isinstance(value, kind):
            raise OperandError(f"requires {name}, got {named(value)}", value)
        return value

    return check


string = _required(str, "a string")
array: Callable[[Any], list[Any]] = _required(list, "an array")
mapping: Callable[[Any], dict[str, Any]] = _required(dict, "an object")


def result(value: float) -> float:
    """Return the result of a calculation as JSON holds numbers: an integer beyond 64 bit as a float."""
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        value = float(value)
    if not math.isfinite(value):
        raise OperandError(f"gives {value}, which is not JSON")
    return value


def named(value: Any) -> str:
    """Return a value as errors name the value."""
    return "a missing value" if value is MISSING else shortened(value)


# -- comparison --------------------------------------------------------------------------------


def order(left: Any, right: Any, *, ordered: Ordered = True) -> int:
    """Return -1, 0 or 1; `ordered`: the order of an object's keys counts."""
    if left is MISSING or right is MISSING:
        return int(right is MISSING) - int(left is MISSING)
    return compare(left, right, ordered=ordered)


def sort_key(ordered: Ordered) -> Callable[[Any], Any]:
    """Return the key function for a sort by `order`."""
    key = cmp_to_key(partial(order, ordered=bool(ordered)))
    return (lambda value: key(ordered.keyed(value))) if type(ordered) is Collator else key


def key_of(value: Any, *, ordered: Ordered = True) -> Hashable:
    """Return a hashable, the same for equal values only: for 1 and 1.0, but not for true."""
    if ordered is not True and type(ordered) is Collator:
        return key_of(ordered.keyed(value), ordered=ordered.ordered)
    if type(value) is str:  # sooner
        return value
    match value:
        case bool():
            return (bool, value)
        case list():
            return (list, *(key_of(each, ordered=ordered) for each in value))
        case dict():
            pairs = ((key, key_of(each, ordered=ordered)) for key, each in value.items())
            return (dict, *(pairs if ordered else sorted(pairs, key=lambda pair: pair[0])))
    found: Hashable = value
    return found


def distinct(values: Iterable[Any], *, ordered: Ordered = True) -> dict[Hashable, Any]:
    """Return the values by their keys, the first of equal values."""
    found: dict[Hashable, Any] = {}
    for value in values:
        found.setdefault(key_of(value, ordered=ordered), value)
    return found


# -- scope and limits --------------------------------------------------------------------------


class Scope:
    """The document, the variables, and the memory that the expressions of one document hold, in bytes.

    `held` counts created values, without small ones. Discarded values count too, until `settle` replaces the charges
    for a value by its exact size. `ordered`: the order of an object's keys counts.
    """

    __slots__ = ("_most", "_unsettled", "held", "limit", "ordered", "row", "variables")

    ordered: Ordered
    row: Document | Anonymous
    limit: int
    held: int
    variables: dict[str, Any]

    def __init__(
        self,
        row: Document | Anonymous,
        variables: Mapping[str, Any] = NO_VARIABLES,
        *,
        ordered: Ordered = True,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        body, self.row, self.ordered = row.body, row, ordered
        self.variables = {"ROOT": body, "CURRENT": body, "REMOVE": MISSING, **variables}
        self.held, self.limit, self._most = 0, memory_limit, memory_limit
        self._unsettled = memory_limit // _EXACT_PART

    def hold(self, size: int) -> None:
        """Charge bytes before allocation; raise `OperandError` beyond the limit."""
        self.held += size
        if self.held > self._most:
            self._check()

    def settle(self, before: int, value: Any) -> None:
        """Charge a value created while `held` grew from `before`: all other charges since then are discarded."""
        kind = type(value)
        if kind is list or kind is dict:
            self.held += getsizeof(value)
            if self.held - before > self._unsettled:
                self._settle(before, value)
        else:
            self.held = before + getsizeof(value) if kind is str else before

    def each(self, values: list[Any], results: list[Any]) -> Iterator[Any]:
        """Yield values; of everything created for the previous values, only `results` is still needed.

        The exact size is computed when the charges have grown by a quarter. Each added result is counted once; a
        single result that may be replaced is counted again.
        """
        before, mark = self.held, self.held + self._unsettled
        size, counted, seen = 0, 0, set[int]()
        for position, value in enumerate(values):
            if not position % EVERY:
                spend(EVERY)
            yield value
            if self.held > mark or self.held > self._most:
                if len(results) < 2:
                    self._settle(before, results)
                else:
                    size += size_of(results[counted:], 2**63, seen)
                    counted = len(results)
                    self._hold_at_most(before, size)
                mark = self.held + (self.held - before) // 4 + self._unsettled

    def _settle(self, before: int, value: Any) -> None:
        self._hold_at_most(before, size_of(value, self.held - before, set()))

    def _hold_at_most(self, before: int, size: int) -> None:
        self.held = min(self.held, before + size)
        if self.held > self._most:
            self._check()

    def _check(self) -> None:
        """Raise `OperandError` beyond the limit. The body may be part of the sizes, so its size is added to the limit."""
        if self._most == self.limit:
            self._most += size_of(self.row.body, 2**63)
        if self.held > self._most:
            raise OperandError(f"takes more than {self.limit:,} bytes of memory")


def size_of(value: Any, enough: int, seen: set[int] | None = None) -> int:
    """Return the bytes of memory of a value; the count ends beyond `enough`.

    `seen` has the ids of arrays and objects already counted, while these exist: shared values count once. Raise
    `OperandError` for a value nested deeper than a body may be.
    """
    kind = type(value)
    if kind is not dict and kind is not list:  # this and the next sooner, for most are flat
        return getsizeof(value)
    if len(value) < _SHARED:
        parts = value.values() if kind is dict else value
        if _CONTAINERS.isdisjoint(map(type, parts)):
            return sum(map(getsizeof, parts), getsizeof(value))
    total, level = 0, [value]
    for _ in range(MAX_DEPTH + 3):
        total += sum(map(getsizeof, level))
        below: list[Any] = []
        has_parts = not _CONTAINERS.isdisjoint(map(type, level))  # without, a tenth of the time
        for each in level if has_parts else ():
            if isinstance(each, list | dict):
                if seen is not None and len(each) >= _SHARED:
                    if id(each) in seen:
                        total -= getsizeof(each)
                        continue
                    seen.add(id(each))
                below.extend(each if isinstance(each, list) else each.values())
        if not below or total > enough:
            return total
        level = below
    raise _too_deep()


def json_size(value: Any) -> int:
    """Return about the characters of a value's JSON; the count ends beyond `MAX_SIZE`.

    Raise `OperandError` for a value nested deeper than a body may be.
    """
    total, level = 0, [value]
    for _ in range(MAX_DEPTH + 1):
        total += SCALAR * len(level)
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is str:
                total += len(each)
            elif kind is list:
                below += each
            elif kind is dict:
                total += sum(map(len, each))
                below += each.values()
            if len(below) * SCALAR > MAX_SIZE:
                return MAX_SIZE + 1
        if not below or total > MAX_SIZE:
            return total
        level = below
    raise _too_deep()


def _too_deep() -> OperandError:
    return OperandError(f"gives a value nested deeper than {MAX_DEPTH} levels")


def checked(value: Any) -> Any:
    """Return a computed value; raise `OperandError` if its JSON is too large."""
    check_size(json_size(value))
    return value


def check_size(characters: int) -> None:
    """Raise `OperandError` if a value of `characters` of JSON is too large."""
    if characters > MAX_SIZE:
        raise OperandError(f"gives a value of more than {MAX_SIZE:,} characters")
