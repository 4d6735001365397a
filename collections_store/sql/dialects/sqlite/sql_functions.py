"""The SQL functions that a connection to SQLite is given.

1. A function takes one text: what a filter asks for and the text of the database, joined by `||` (`packed`).
2. What it raises comes out of SQLite as "user-defined function raised exception". It is kept, and raised again
   as itself (`raised_within`): Ctrl-C, a cancellation, the limit of a pattern.
3. It is the `send` of a generator, which goes on within its `try`. Python asks for signals at the first
   instruction of a function, where nothing catches what their handlers raise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Any, Final

from .... import codec
from ....query import values
from ....query.patterns.pattern import Pattern, compiled
from ..protocols import Function

_ENDED: Final = "user-defined function raised exception"
_MISSING: Final = object()


class _Kept(threading.local):
    error: BaseException | None = None


_kept = _Kept()


def packed(text: str) -> str:
    """Return the parameter in front of the database's text."""
    return f"{len(text)}/{text}"


def functions() -> Sequence[Function]:
    """Return name, number of arguments and function of each, for one connection."""
    return [(name, 1, _callback(function)) for name, function in _FUNCTIONS.items()]


def raised_within(error: Exception) -> BaseException | None:
    """Return what a function raised, where that is why a statement failed in this thread."""
    kept, _kept.error = (
        _kept.error,
        None,
    )  # also of a statement that failed for another reason since
    return kept if _ENDED in str(error) else None


def _callback(function: Callable[[str, str], Any]) -> Callable[[str | None], Any]:
    answers = _answers(function)
    next(answers)
    return answers.send


def _answers(function: Callable[[str, str], Any]) -> Generator[Any, str | None, None]:
    answer: Any = None
    while True:
        try:
            while True:
                argument = yield answer
                if argument is None:
                    answer = None
                    continue
                end = argument.index("/")
                begin = end + 1 + int(argument[:end])
                answer = function(argument[end + 1 : begin], argument[begin:])
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 - it is raised where the statement was executed
            _kept.error, answer = error, _MISSING  # which SQLite cannot take


def _decoded(text: str) -> Any:
    """Return the array or object of a JSON text; `_MISSING` for any other value: SQLite takes the parts of
    AND in any order, and may ask before it has looked at the type.
    """
    try:
        found = codec.decode(text)
    except ValueError:
        return _MISSING
    return found if isinstance(found, dict | list) else _MISSING


def _equal(wanted: str, text: str) -> bool:
    found = _decoded(text)
    return found is not _MISSING and values.equal(found, codec.decode(wanted))


def _compare(wanted: str, text: str) -> int | None:
    found = _decoded(text)
    return None if found is _MISSING else values.compare(found, codec.decode(wanted))


def _found(wanted: str, text: str) -> bool:
    return _pattern(wanted).is_found(text)


@lru_cache(maxsize=256)
def _pattern(wanted: str) -> Pattern:
    options, _, pattern = wanted.partition("/")
    return compiled(pattern, options)


_FUNCTIONS: Final = {
    "collections_store_equal": _equal,
    "collections_store_compare": _compare,
    "collections_store_found": _found,
}
