"""The accumulators of `$group`: the state of each in a group, and the table `ACCUMULATORS` of their declarations.

To add an accumulator, write a state and a row. A value can come with a number of occurrences, since a database may return
equal values once. Accumulators without `in_order` have the same results for all orders of the documents.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from ..expressions import numbers
from ..expressions.budget import spend
from ..expressions.classes import value_class
from ..expressions.collation import Ordered
from ..expressions.evaluation import (
    NUMBER,
    POINTER,
    array,
    is_null,
    key_of,
    mapping,
    order,
    result,
    sort_key,
)
from ..expressions.nodes import Constant
from ..expressions.numbers import Total
from ..expressions.values import MISSING, is_number
from ..query.sort import NATURAL
from .rows import StageMemory
from .stages import Accumulator

Form: TypeAlias = Literal["value", "n", "sorted", "sorted n", "median", "percentile"]
"""How an accumulator is written: `"value"` is an expression, `"n"` a document of `input` and `n`, `"sorted"` one of
`output` and `sortBy`, `"percentile"` one of `input`, `p` and `method`.
"""


class Setting(NamedTuple):
    """The input of the state of an accumulator."""

    memory: StageMemory
    ordered: Ordered
    accumulator: Accumulator
    most: int
    """The `n` of the group."""


class Integers(NamedTuple):
    """The sum and the number of integers combined by a database; `least` and `greatest` are the results of `$min` and `$max`."""

    total: int
    number: int
    least: int | None = None
    greatest: int | None = None


class State:
    """The state of an accumulator in a group. The base class is `$sum`."""

    __slots__ = ("_total",)

    def __init__(self, setting: Setting) -> None:  # noqa: ARG002
        self._total = Total()

    def add(self, value: Any, times: int) -> None:
        """Add a value that occurs `times` times; raises `OperandError`. The value of an accumulator that sorts is a
        pair of the keys of `Sort.keys` and a value.
        """
        if is_number(value):
            self._total.add(value, times)

    def add_integers(self, integers: Integers) -> None:
        """Add combined integers."""
        self._total.add_integers(integers.total, integers.number)

    def result(self) -> Any:
        """Return the accumulated value; raises `OperandError`."""
        return self._total.total()


class _Multiple(State):
    """`$sum` of an integer."""

    __slots__ = ("_integer", "_times")

    def __init__(self, integer: int) -> None:
        self._integer, self._times = integer, 0

    def add(self, value: Any, times: int) -> None:  # noqa: ARG002
        self._times += times

    def result(self) -> Any:
        return result(self._integer * self._times)


class _Average(State):
    __slots__ = ()

    def result(self) -> Any:
        return self._total.average()


class _Last(State):
    """Holds a value. `_size` is 0 before the first."""

    __slots__ = ("_memory", "_ordered", "_size", "_value")

    def __init__(self, setting: Setting) -> None:
        self._memory, self._ordered = setting.memory, setting.ordered
        self._value, self._size = MISSING, 0

    def add(self, value: Any, times: int) -> None:  # noqa: ARG002
        before, self._size = self._size, self._memory.measure(value)
        self._memory.hold(self._size - before)
        self._value = value

    def result(self) -> Any:
        return None if self._value is MISSING else self._value


class _First(_Last):
    __slots__ = ()

    def add(self, value: Any, times: int) -> None:
        if not self._size:
            super().add(value, times)


class _Least(_Last):
    __slots__ = ()
    sign: ClassVar = 1

    def add(self, value: Any, times: int) -> None:
        if is_null(value):
            return
        first = self._value is MISSING
        if first or order(value, self._value, ordered=self._ordered) * self.sign < 0:
            super().add(value, times)

    def add_integers(self, integers: Integers) -> None:
        self.add(integers.least, 1)
        self.add(integers.greatest, 1)


class _Greatest(_Least):
    __slots__ = ()
    sign: ClassVar = -1


class _List(State):
    __slots__ = ("_memory", "_values")

    def __init__(self, setting: Setting) -> None:
        self._memory, self._values = setting.memory, list[Any]()

    def add(self, value: Any, times: int) -> None:
        if value is not MISSING:
            self._memory.hold(self._memory.measure(value) * times)
            self._values.extend([value] * times)

    def result(self) -> Any:
        return self._values


class _Concatenated(_List):
    __slots__ = ()

    def add(self, value: Any, times: int) -> None:
        if value is not MISSING:
            super().add(array(value), times)

    def result(self) -> Any:
        return [each for values in self._values for each in values]


class _Set(State):
    __slots__ = ("_memory", "_ordered", "_values")

    def __init__(self, setting: Setting) -> None:
        self._memory, self._ordered = setting.memory, setting.ordered
        self._values = dict[Hashable, Any]()

    def add(self, value: Any, times: int) -> None:  # noqa: ARG002
        if value is MISSING:
            return
        size, key = self._memory.measure(value), key_of(value, ordered=self._ordered)
        if key not in self._values:
            self._memory.hold(2 * size)
            self._values[key] = value

    def result(self) -> Any:
        return list(self._values.values())


class _Union(_Set):
    __slots__ = ()

    def add(self, value: Any, times: int) -> None:
        for each in () if value is MISSING else array(value):
            super().add(each, times)


class _Merged(State):
    __slots__ = ("_memory", "_merged", "_sizes")

    def __init__(self, setting: Setting) -> None:
        self._memory = setting.memory
        self._merged, self._sizes = dict[str, Any](), dict[str, int]()

    def add(self, value: Any, times: int) -> None:  # noqa: ARG002
        for key, each in () if is_null(value) else mapping(value).items():
            size = self._memory.measure(key) + self._memory.measure(each) + 2 * NUMBER
            self._memory.hold(size - self._sizes.get(key, 0))
            self._merged[key], self._sizes[key] = each, size

    def result(self) -> Any:
        return self._merged


class _FirstN(_List):
    """The first `n` values; a missing value is null."""

    __slots__ = ("_count",)

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._count = setting.most

    def add(self, value: Any, times: int) -> None:
        if len(self._values) < self._count:
            super().add(None if value is MISSING else value, times)


class _LastN(State):
    __slots__ = ("_memory", "_values")

    def __init__(self, setting: Setting) -> None:
        self._memory = setting.memory
        self._values: deque[Any] = deque(maxlen=min(setting.most, 2**31))

    def add(self, value: Any, times: int) -> None:  # noqa: ARG002
        if len(self._values) == self._values.maxlen:
            self._memory.release(self._memory.measure(self._values[0]))
        value = None if value is MISSING else value
        self._memory.hold_value(value)
        self._values.append(value)

    def result(self) -> Any:
        return list(self._values)


class _Ranked(State):
    """The first `n` values in an order, or the last ones. Values whose keys are equal stay in the order of the rows."""

    __slots__ = ("_count", "_memory", "_ordered", "_sort", "_values")
    last: ClassVar = False

    def __init__(self, setting: Setting) -> None:
        self._memory, self._ordered, self._count = setting.memory, setting.ordered, setting.most
        self._sort = setting.accumulator.sort or NATURAL
        self._values = list[tuple[Any, Any, int]]()

    def add(self, value: Any, times: int) -> None:
        keys, found = value
        size = self._memory.measure([key for _, key in keys])
        self._rank(self._sort.comparable(keys, ordered=self._ordered), found, times, size)

    def _rank(self, key: Any, value: Any, times: int, size: int = 0) -> None:
        """Add a value; `size`: the bytes of the key, besides the bytes of the value."""
        value = None if value is MISSING else value
        size += self._memory.measure(value) + NUMBER
        for _ in range(min(times, self._count)):
            insort(self._values, (key, value, size), key=itemgetter(0))
            self._memory.hold(size)
            if len(self._values) > self._count:
                *_, released = self._values.pop(0 if self.last else -1)
                self._memory.release(released)

    def result(self) -> Any:
        return [value for _, value, _ in self._values]


class _RankedLast(_Ranked):
    __slots__ = ()
    last: ClassVar = True


class _Top(_Ranked):
    __slots__ = ()

    def result(self) -> Any:
        return next(iter(super().result()), None)


class _Bottom(_RankedLast):
    __slots__ = ()

    def result(self) -> Any:
        return next(reversed(super().result()), None)


class _LeastN(_Ranked):
    __slots__ = ()

    def add(self, value: Any, times: int) -> None:
        if not is_null(value):
            self._rank(sort_key(self._ordered)(value), value, times)


class _GreatestN(_LeastN):
    __slots__ = ()
    last: ClassVar = True

    def result(self) -> Any:
        return super().result()[::-1]


class _Deviation(State):
    """The standard deviation of a population, from exact sums."""

    __slots__ = ("_count", "_squares", "_sum")
    besides: ClassVar = 0

    def __init__(self, setting: Setting) -> None:  # noqa: ARG002
        self._sum: int | Fraction = 0
        self._squares: int | Fraction = 0
        self._count = 0

    def add(self, value: Any, times: int) -> None:
        if is_number(value):
            exact = value if isinstance(value, int) else Fraction(value)
            self._sum += exact * times
            self._squares += exact * exact * times
            self._count += times

    def result(self) -> Any:
        return numbers.deviation(self._sum, self._squares, self._count, self.besides)


class _SampleDeviation(_Deviation):
    __slots__ = ()
    besides: ClassVar = 1


class _Percentiles(State):
    """The values at the points `p` of the numbers in ascending order."""

    __slots__ = ("_accumulator", "_memory", "_values")

    def __init__(self, setting: Setting) -> None:
        self._memory, self._accumulator = setting.memory, setting.accumulator
        self._values = list[float]()

    def add(self, value: Any, times: int) -> None:
        if is_number(value):
            self._memory.hold((POINTER + NUMBER) * times)
            self._values.extend([value] * times)

    def result(self) -> Any:
        spend(len(self._values))
        return numbers.percentiles(self._values, self._accumulator.points)


class _Median(_Percentiles):
    __slots__ = ()

    def result(self) -> Any:
        return super().result()[0]


@value_class
class Declared:
    """An accumulator as it is declared; `in_order`: the result depends on the order of the documents."""

    state: Callable[[Setting], State]
    form: Form = "value"
    in_order: bool = False


ACCUMULATORS: Final[dict[str, Declared]] = {
    "$sum": Declared(State),
    "$avg": Declared(_Average),
    "$min": Declared(_Least),
    "$max": Declared(_Greatest),
    "$first": Declared(_First, in_order=True),
    "$last": Declared(_Last, in_order=True),
    "$push": Declared(_List, in_order=True),
    "$addToSet": Declared(_Set),
    "$concatArrays": Declared(_Concatenated, in_order=True),
    "$setUnion": Declared(_Union),
    "$mergeObjects": Declared(_Merged, in_order=True),
    "$firstN": Declared(_FirstN, "n", in_order=True),
    "$lastN": Declared(_LastN, "n", in_order=True),
    "$minN": Declared(_LeastN, "n", in_order=True),
    "$maxN": Declared(_GreatestN, "n", in_order=True),
    "$top": Declared(_Top, "sorted", in_order=True),
    "$topN": Declared(_Ranked, "sorted n", in_order=True),
    "$bottom": Declared(_Bottom, "sorted", in_order=True),
    "$bottomN": Declared(_RankedLast, "sorted n", in_order=True),
    "$stdDevPop": Declared(_Deviation),
    "$stdDevSamp": Declared(_SampleDeviation),
    "$median": Declared(_Median, "median"),
    "$percentile": Declared(_Percentiles, "percentile"),
}
"""The accumulators. `{"$count": {}}` is parsed as `{"$sum": 1}`."""


def maker_of(accumulator: Accumulator, setting: Setting) -> Callable[[], State]:
    """Return the function that makes the state of an accumulator for each group."""
    match accumulator:
        case Accumulator("$sum", Constant(value=int() as value)) if not isinstance(value, bool):
            return partial(_Multiple, value)
    return partial(ACCUMULATORS[accumulator.operator].state, setting)
