"""SQL functions in Python for connections to SQLite.

1. A function takes one text: what a filter asks for and the text of the database, joined by `||` (`packed`).
2. SQLite reports what it raises as "user-defined function raised exception". The exception is stored, and raised again
   as itself (`raised_within`): Ctrl-C, a cancellation, the limit of a pattern.
3. It is the `send` of a generator, which goes on within its `try`. Python asks for signals at the first
   instruction of a function, where nothing catches what their handlers raise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from .... import codec
from ....query import values
from ....query.patterns import compiled
from ..protocols import Function

Test: TypeAlias = Callable[[str], Any]
"""A function of the database's text, for one operand."""

_RAISED: Final = "user-defined function raised exception"
_MISSING: Final = object()


class _Raised(threading.local):
    error: BaseException | None = None


_raised = _Raised()


def packed(text: str) -> str:
    """Return the operand as it stands in front of the database's text."""
    return f"{len(text)}/{text}"


def functions() -> Sequence[Function]:
    """Return name, number of arguments and function of each, for one connection."""
    return [(name, 1, _callback(function)) for name, function in _FUNCTIONS.items()]


def raised_within(error: Exception) -> BaseException | None:
    """Return what a function raised, where that is why a statement failed in this thread."""
    raised = _raised.error
    _raised.error = None  # even if this statement failed for another reason
    return raised if _RAISED in str(error) else None


def _callback(function: Callable[[str], Test]) -> Callable[[str | None], Any]:
    results = _results(function)
    next(results)
    return results.send


def _results(function: Callable[[str], Test]) -> Generator[Any, str | None, None]:
    result: Any = None
    test: Test
    prefix, test = "/", _decoded  # no argument begins with this prefix
    while True:
        try:
            while True:
                argument = yield result
                if argument is None:
                    result = None
                    continue
                if not argument.startswith(
                    prefix
                ):  # most rows of a statement have the same operand
                    begin = argument.index("/") + 1
                    end = begin + int(argument[: begin - 1])
                    prefix, test = argument[:end], function(argument[begin:end])
                result = test(argument[len(prefix) :])
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 - it is raised where the statement was executed
            _raised.error, result = error, _MISSING  # SQLite rejects this result


def _decoded(text: str) -> Any:
    """Return the array or object of a JSON text; `_MISSING` for any other value: SQLite evaluates the parts of
    AND in any order, and may call a function before it has tested the type.
    """
    try:
        found = codec.decode(text)
    except ValueError:
        return _MISSING
    return found if isinstance(found, dict | list) else _MISSING


def _equal(operand: str) -> Test:
    value = codec.decode(operand)
    return lambda text: (found := _decoded(text)) is not _MISSING and values.equal(found, value)


def _compare(operand: str) -> Test:
    value = codec.decode(operand)
    return lambda text: (
        None if (found := _decoded(text)) is _MISSING else values.compare(found, value)
    )


@lru_cache(maxsize=256)
def _found(operand: str) -> Test:
    options, _, pattern = operand.partition("/")
    return compiled(pattern, options).is_found


_FUNCTIONS: Final[dict[str, Callable[[str], Test]]] = {
    "collections_store_equal": _equal,
    "collections_store_compare": _compare,
    "collections_store_found": _found,
}
