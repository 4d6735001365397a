"""What kdeps' functions are asked: texts that are not empty, and for how long; and in which words they answer."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from ... import InvalidOption

Mode: TypeAlias = Literal["documentation", "source"]
Duration: TypeAlias = float | str | timedelta | None
M = TypeVar("M")

NOTHING: Final = object()
"""Where there is no value, as opposed to None, which is one."""
_UNITS: Final = {
    **dict.fromkeys(("us", "µs", "μs"), 1e-6),  # two different signs
    "ns": 1e-9,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "w": 604_800.0,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([nuµμm]s|[smhdw])")
_DURATION: Final = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)")


@dataclass(frozen=True, slots=True)
class Answers:
    """What is answered of texts, by the documentation or as the source has it."""

    noun: str
    mode: Mode

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise InvalidOption("mode", f"{self.mode!r} is none of {', '.join(get_args(Mode))}")

    def found(self, value: Any) -> str:
        """Return a value as text: that of `MemoryStorage` may be no text, and is its JSON then, if it has one."""
        if value is NOTHING:
            return ""
        try:
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        except TypeError:
            return str(value)

    def deleted(self, value: Any) -> str:
        """Return what is said of a value that was deleted."""
        if self.mode == "source":
            return f"Deleted {int(value is not NOTHING)} {self.noun}(s)"
        return self.found(value)

    def cleared(self, count: int) -> str:
        """Return what is said of all values that were deleted."""
        return f"Cleared {count} {self.noun}s"


def memory_of(kind: type[M], memory: Any) -> M:
    """Return a memory if it is of this colour; raises `InvalidOption`."""
    if isinstance(memory, kind):
        return memory
    advice = "classes whose names begin with Async take an AsyncMemory, others a Memory"
    raise InvalidOption("memory", f"{type(memory).__name__} is no {kind.__name__}: {advice}")


def text_of(name: str, text: Any) -> str:
    """Return a text that is not empty, as kdeps wants it; raises `InvalidOption`."""
    if not isinstance(text, str):
        raise InvalidOption(name, f"{text!r} is no text")
    if not text:
        raise InvalidOption(name, "it is empty, and kdeps takes no empty one")
    return text


def life_of(ttl: Duration) -> float | timedelta | None:
    """Return how long a value lives, as a `Memory` has it; raises `InvalidOption`."""
    if isinstance(ttl, str):
        ttl = _seconds(ttl)
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds <= 0:
        return math.inf
    return seconds  # what is no number either, the memory refuses


def _seconds(text: str) -> float:
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if not _DURATION.fullmatch(text) or not math.isfinite(total):
        raise InvalidOption(
            "ttl", f"{text!r} is no duration: write 90s, 1h30m or 7d, of {', '.join(_UNITS)}"
        )
    return -total if text.startswith("-") else total
