"""What a name in a filter or a sort leads to: a place in the body, or what the store knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ..errors import cut
from ..path import Path, in_python
from .conditions import METADATA, MetadataField

Target: TypeAlias = Path | MetadataField
Refusal: TypeAlias = Callable[[str, str], Exception]
"""Makes an error of a place and a problem."""

_KNOWN: Final = ", ".join(f"${name}" for name in sorted((*METADATA, "body")))


def read_target(key: str | Path, refuse: Refusal, place: str | None = None) -> Target:
    """Read a dotted field, a `Path`, `$body` with what follows it, or `$id` and the like; raises
    what `refuse` makes of the rest.
    """
    if isinstance(key, Path):
        return key
    if not key.startswith("$"):
        return Path.parse(key)
    name, *rest = key[1:].split(".")
    if name == "body":
        return Path(*rest)
    if name in METADATA and not rest:
        return name  # type: ignore[return-value]
    raise refuse(
        key if place is None else place,
        f"no such operator or metadata; there is {_KNOWN}. A key of the body: "
        f"{cut(in_python(key.split('.')))}",
    )
