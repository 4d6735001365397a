"""Claims: the documents and queries that a search of this process embeds now. No other search embeds the same texts.

Rules:

1. No lock is held while an embedder runs: a claim is an entry of a dictionary, and other searches poll.
2. A claim ends when the texts are stored or have failed. Other searches ignore a claim after `LASTS` seconds.
3. A search claims the documents that were read before. If a claim ended meanwhile, the search reads again.
4. An embedder may use the store. A search within an embedder never waits, and embeds no claimed text. Otherwise the
   search could wait for the search around the embedder.
5. A search takes the vector of an equal query that another search embeds. If that fails, each embeds its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final

LASTS: Final = 60.0
"""Seconds until a claim is ignored: an embedder may load a model first."""
EMBEDDING: Final[ContextVar[bool]] = ContextVar("embedding", default=False)
"""Whether an embedder runs in this context."""


class Claims:
    """The claims of the searches of a store."""

    def __init__(self) -> None:
        self.held: dict[Hashable, Claim] = {}
        self.ended: object = object()
        """A new object each time that a claim ends: documents that were read before may have been stored."""


class Claim:
    """The claim of a search to embed documents, by the names of their entries in a journal."""

    def __init__(self) -> None:
        self._ends = monotonic() + LASTS
        self._taken: list[tuple[Claims, Hashable]] = []

    def take(self, claims: Claims, names: Iterable[Hashable]) -> bool:
        """Claim all names; return False if a name has another claim."""
        for name in names:
            other = claims.held.setdefault(name, self)
            if other is not self and not other.has_ended:
                return False
            claims.held[name] = self
            self._taken.append((claims, name))
        return True

    @property
    def has_ended(self) -> bool:
        """Whether other searches ignore the claim."""
        return monotonic() > self._ends

    def give_up(self) -> None:
        """Release the names, whose documents were not stored."""
        for claims, name in self._taken:
            if claims.held.get(name) is self:
                claims.held.pop(name, None)
        self._taken.clear()

    def end(self) -> None:
        """Release the names, and let other searches read again."""
        for claims in {claims for claims, _ in self._taken}:
            claims.ended = object()
        self.give_up()


class QueryClaim:
    """The claim to embed the text of a query, of the searches for this text at a time. One of them takes the claim; after
    a cancellation, another.
    """

    __slots__ = ("_ends", "_free", "has_failed", "vector")

    def __init__(self) -> None:
        self._ends, self._free = monotonic() + LASTS, [self]
        self.vector: Any = None
        self.has_failed: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether the searches wait: no vector yet, no error of the embedder, and rule 2."""
        return self.vector is None and not self.has_failed and monotonic() <= self._ends

    def take(self) -> bool:
        """Take the claim; return False while another search has it."""
        try:
            self._free.pop()
        except IndexError:
            return False
        self._ends = monotonic() + LASTS
        return True

    def release(self) -> None:
        """Leave the claim to another search, unless the vector is there or the embedder failed."""
        self._free.append(self)
