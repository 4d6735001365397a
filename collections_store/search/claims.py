"""Claims: which documents a search of this process embeds now, so that no other search embeds them too.

Rules:

1. No lock is held while an embedder runs: a claim is an entry of a dictionary, and others look at it again.
2. A claim ends when its texts are stored or have failed, and for others after `LASTS` seconds, whatever its owner does.
3. A search claims what it has read before. If a claim ended meanwhile, the search reads again.
4. An embedder may use the store. A search within an embedder waits for nobody, and embeds nothing that is claimed: it would
   wait for itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextvars import ContextVar
from time import monotonic
from typing import Final

LASTS: Final = 60.0
"""Seconds for which others respect a claim: an embedder may load its model first."""
EMBEDDING: Final[ContextVar[bool]] = ContextVar("embedding", default=False)
"""Whether an embedder runs in this context."""


class Claims:
    """The claims of the searches of a store."""

    def __init__(self) -> None:
        self.held: dict[Hashable, Claim] = {}
        self.ended = object()
        """Another object each time that a claim ends: what was read before may have been stored."""


class Claim:
    """The claim of a search to embed documents, by the names of their entries in a journal."""

    def __init__(self) -> None:
        self._ends = monotonic() + LASTS
        self._taken: list[tuple[Claims, Hashable]] = []

    def take(self, claims: Claims, names: Iterable[Hashable]) -> bool:
        """Claim all names; return False if another has claimed one of them."""
        for name in names:
            other = claims.held.setdefault(name, self)
            if other is not self and not other.has_ended:
                return False
            claims.held[name] = self
            self._taken.append((claims, name))
        return True

    @property
    def has_ended(self) -> bool:
        """Whether others need not respect the claim any more."""
        return monotonic() > self._ends

    def give_up(self) -> None:
        """Let others claim the names, whose documents were not stored."""
        for claims, name in self._taken:
            if claims.held.get(name) is self:
                claims.held.pop(name, None)
        self._taken.clear()

    def end(self) -> None:
        """Let others read again which documents are not stored, then claim the names."""
        for claims in {claims for claims, _ in self._taken}:
            claims.ended = object()
        self.give_up()
