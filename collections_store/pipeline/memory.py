"""What stages hold, weighed against a limit."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidOperand, MemoryLimitExceeded
from ..formula import Unfit, weight_of


class Memory:
    """What one stage holds."""

    __slots__ = ("_limit", "_place", "held")

    def __init__(self, place: str, limit: int) -> None:
        self._place, self._limit, self.held = place, limit, 0

    def hold(self, weight: int) -> None:
        """Hold that much more; raises `MemoryLimitExceeded`."""
        self.held += weight
        if self.held > self._limit:
            raise self._exceeded()

    def weigh(self, value: Any) -> int:
        """Return the weight of a value; raises `MemoryLimitExceeded` if it alone is too much."""
        try:
            weight = weight_of(value, self._limit)
        except Unfit as error:
            raise InvalidOperand(self._stage, error.problem) from None
        if weight > self._limit:
            raise self._exceeded()
        return weight

    def hold_value(self, value: Any) -> int:
        """Hold a value; returns its weight."""
        weight = self.weigh(value)
        self.hold(weight)
        return weight

    def let_go(self, weight: int) -> None:
        """Hold that much less."""
        self.held -= weight

    @property
    def _stage(self) -> str:
        return self._place.rsplit(".", 1)[-1]

    def _exceeded(self) -> MemoryLimitExceeded:
        return MemoryLimitExceeded(self._place, self._stage, self._limit)
