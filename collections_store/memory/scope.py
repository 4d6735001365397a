"""What a memory stands on, and what it answers with."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from ..bell import Bell
from ..codec import Codec
from ..operations import Operation
from .entries import Entry

T = TypeVar("T")
Strings: TypeAlias = list[str]
Entries: TypeAlias = list[Entry]
REQUEST_TTL: Final = 86_400.0
"""Seconds after which what a request leaves behind is gone, should its process be killed."""


class Scope(Protocol):
    """What runs operations, and hands out transactions: a store, or a transaction."""

    _codec: Codec
    _bell: Bell | None

    def run(self, operation: Operation[T]) -> T:
        """Return the operation's result."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Return the context of a transaction, or of a part of one."""
