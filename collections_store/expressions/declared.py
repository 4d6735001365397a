"""The declaration of an operator, and the call of its function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any, Final

from .. import codec
from . import times
from .evaluation import Scope, array, integer, mapping, number, string
from .values import MISSING

TYPES: Final[dict[str, Callable[[Any], Any] | None]] = {
    "any": None,
    "number": number,
    "integer": integer,
    "int": partial(integer, low=-(2**31), high=2**31 - 1),
    "position": partial(integer, low=0, high=2**31 - 1),
    "count": partial(integer, low=1),
    "digits": partial(integer, low=-20, high=100),
    "string": string,
    "array": array,
    "object": mapping,
    "time": times.instant,
    "unit": times.unit,
    "zone": times.zone,
}
"""The types of operands. Each is checked before the function is called; an integer may be given as 2.0."""
ALL: Final = 100


class Operator:
    """A declared operator: the name, the function, and the types of the operands, such as `"array, int?"`.

    `?` marks an optional operand, `*` an operand that may be repeated. Operands with names, as in `"input: string,
    chars: string?"`, are written as a document; an optional one may have a default, which is JSON (`"n: count = 1"`).
    The first operand of a `bare` operator may stand alone, without the document. The result is null if any of the first
    `null` operands is null or missing. The first argument of a `scoped` function is the `Scope`, which compares
    (`scope.ordered`) or charges large values (`scope.hold`).

    `recovers`: the operator also takes `onNull`, the result for a first operand of null or missing, and `onError`, the
    result of a failed conversion, or one of both. `syntax` parses an operator with a syntax of its own. Without a function
    the operator has a node of its own.
    """

    __slots__ = (
        "_checks", "_null", "_scoped", "bare", "defaults", "function", "least", "most", "name", "names",
        "recovers", "syntax",
    )  # fmt: skip

    function: Any
    names: tuple[str, ...]
    defaults: dict[str, Any]
    least: int
    most: int | None

    def __init__(
        self,
        name: str,
        function: Callable[..., Any] | None = None,
        operands: str = "any*",
        *,
        null: int = 0,
        scoped: bool = False,
        bare: bool = False,
        recovers: tuple[str, ...] = (),
        syntax: Callable[[Any, Operator, Any, str], Any] | None = None,
    ) -> None:
        self.name, self.syntax = name, syntax
        self.bare, self.recovers, self.defaults = bare, recovers, {}
        each = [operand.partition(" = ")[0].rpartition(": ") for operand in operands.split(", ")]
        types = [kind for *_, kind in each]
        checks = [TYPES[kind.rstrip("?*")] for kind in types]
        repeated = types[-1].endswith("*")
        self.function, self._null, self._scoped = function, null, scoped
        self.names = tuple(name for name, *_ in each if name)
        for operand in operands.split(", "):
            head, _, default = operand.partition(" = ")
            if default:
                self.defaults[head.partition(":")[0]] = codec.decode(default)
        self.least = sum(kind.isalpha() for kind in types) - len(self.defaults)
        self.most = None if repeated else len(types)
        self._checks: Iterable[Any] = ()
        if any(checks):
            self._checks = repeat(checks[-1]) if repeated else checks

    def call(self, values: list[Any], scope: Scope) -> Any:
        """Return the result; raises `OperandError`."""
        if self._null:
            first = values[: self._null]
            if None in first or MISSING in first:
                return None
        if self._checks:
            pairs = zip(self._checks, values, strict=False)
            values = [each if check is None else check(each) for check, each in pairs]
        return self.function(scope, *values) if self._scoped else self.function(*values)
