"""The size of values, by a bounded look: large values take long to encode, to parse or to compare."""

from __future__ import annotations

from collections.abc import Collection
from gc import get_referents
from typing import Any, Final

SMALL: Final = 2**15
"""Bytes. Encoding this size is faster than switching to another thread; parsing a filter of this size takes 3 ms."""
_VALUE: Final = 32
"""Bytes of a value, beside its characters."""
_SCALARS: Final = frozenset({type(None), int, float, bool})
_LISTS: Final = (list, tuple, set, frozenset)
_TEXTS: Final = (str, bytes, bytearray)


def room_left(values: Collection[Any], room: int) -> int:
    """Return the bytes of `room` that values leave. The look ends when nothing is left: the result is negative.

    The fields of an object count, however declared: the referents that the garbage collector knows, without classes and
    functions.
    """
    unseen = [values]
    for some in unseen:
        room -= _VALUE * len(some)
        if room < 0:
            return room
        for value in some:
            kind = type(value)
            if kind is str:
                room -= len(value)
            elif kind in _SCALARS:
                continue
            elif kind is dict or isinstance(value, dict):
                unseen.append(value.values())
                try:  # noqa: SIM105 - `suppress` takes as long as all of this
                    room -= len("".join(value)) if len(value) <= SMALL else 0  # the values fill it
                except TypeError:  # no JSON
                    pass
            elif kind is list or isinstance(value, _LISTS):
                unseen.append(value)
            elif isinstance(value, _TEXTS):
                room -= len(value)
            elif not callable(value):
                unseen.append(get_referents(value))
    return room
