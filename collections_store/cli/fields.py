"""Fields and orders as the command line and JSON write them.

A field is a text with dots, `address.city`; in JSON also the list of its keys, which may hold dots
themselves. An order is `age` or `age:-1`, or in JSON a mapping or a list:
`{"age": -1, "name": 1}`, `[["age", -1], "name"]`, `[[["a.b", "c"], -1]]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from .. import Path
from ..errors import shortened

Pairs: TypeAlias = list[tuple[str | Path, int]]
Refusal: TypeAlias = Callable[[str, str], Exception]
"""Makes an error of a place and a problem: `InvalidSort` and its sisters."""

_DIRECTED: Final = re.compile(r"(.*):(-?1)", re.DOTALL)


def is_json(text: str) -> bool:
    """Tell whether an argument is JSON: a field that begins so must be written in JSON, too."""
    return text[:1] in {"{", "["}


def pair_of(text: str) -> tuple[str | Path, int]:
    """Read a field, with `:1` or `:-1` behind it or without."""
    directed = _DIRECTED.fullmatch(text)
    return (directed[1], int(directed[2])) if directed else (text, 1)


def pairs_of(order: Any, refuse: Refusal) -> Pairs:
    """Read an order in JSON; raises what `refuse` makes of what is none."""
    if isinstance(order, dict):
        return [_pair(field, direction, refuse) for field, direction in order.items()]
    if isinstance(order, list):
        return [_element(each, refuse) for each in order]
    raise refuse("", f"give a mapping, or a list of fields and pairs, not {shortened(order)}")


def field_of(value: Any, refuse: Refusal) -> str | Path:
    """Read a field in JSON: a text with dots, or a list of keys; raises what `refuse` makes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(key, str) for key in value):
        return Path(*value)
    raise refuse("", f"{shortened(value)} is neither a field nor a list of keys")


def _element(value: Any, refuse: Refusal) -> tuple[str | Path, int]:
    if isinstance(value, str):
        return value, 1
    if isinstance(value, list) and len(value) == 2:
        return _pair(value[0], value[1], refuse)
    raise refuse("", f"{shortened(value)} is no field and no pair of field and direction")


def _pair(field: Any, direction: Any, refuse: Refusal) -> tuple[str | Path, int]:
    named = field_of(field, refuse)
    if isinstance(direction, bool) or not isinstance(direction, int) or abs(direction) != 1:
        raise refuse(str(named), f"the direction is 1 or -1, not {shortened(direction)}")
    return named, direction
