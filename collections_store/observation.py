"""Reports of a store's operations: records for `on_operation`, and the figures of `stats`.

Knows no database, and no operation. Everything here is a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Context
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """A finished operation, for `StoreOptions.on_operation`. The record contains no body and no value of a filter."""

    name: str
    """The kind: `get`, `put`, `find`, `create_collection` and so on."""
    collection: str | None
    database: str
    """`sqlite` or `postgresql`."""
    started: int
    """The time of the call, in nanoseconds since 1970 as `time.time_ns` returns."""
    seconds: float
    """The whole time, with waits and retries."""
    waited: float = 0.0
    """The part of `seconds` for which the operation waited for the writer, a connection or a thread."""
    writes: bool = False
    """Whether the operation changes documents, collections or indexes."""
    rows: int | None = None
    """The number of documents or other results returned or written; None if unknown."""
    retries: int = 0
    error: BaseException | None = field(default=None, repr=False)
    """The error raised to the caller instead of a result."""
    group: int = 1
    """The number of operations committed together."""
    in_transaction: bool = False
    consistency: str = "strong"
    shape: str | None = None
    """The filter with `?` in place of each value."""
    context: Context | None = field(default=None, repr=False)
    """The context variables of the caller; an `AsyncStore` runs operations in other threads."""

    def __str__(self) -> str:
        parts = [f"{self.name} {self.collection or ''}".rstrip(), f"{self.seconds * 1000:.2f} ms"]
        parts += [] if self.rows is None else [f"{self.rows} rows"]
        parts += [f"{self.retries} retries"] if self.retries else []
        parts += [f"waited {self.waited * 1000:.2f} ms"] if self.waited else []
        parts += [f"group of {self.group}"] if self.group > 1 else []
        parts += ["in a transaction"] if self.in_transaction else []
        parts += [] if self.shape is None else [self.shape]
        parts += [] if self.error is None else [type(self.error).__name__]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class OperationStats:
    """The operations of one kind since the store was created."""

    count: int = 0
    errors: int = 0
    seconds: float = 0.0
    """The sum of the operations' times."""
    longest: float = 0.0
    """The time of the slowest, in seconds."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The figures of a store, from `Store.stats`. Times are in seconds."""

    operations: Mapping[str, OperationStats]
    """By kind: `get`, `put`, `find` and so on."""
    retries: int
    """Further attempts after a lock, a conflict or a lost connection."""
    conflicts: int
    """Attempts ended by a conflict of two transactions."""
    groups: Mapping[int, int]
    """The number of group commits by the number of operations in each."""
    waited_for_writer: float
    waited_for_pool: float
    statements: Mapping[str, int]
    """The compiled statements: `hits` and `misses` of the cache."""
    replica_lag: float | None
    """Seconds since a replica last had everything this store had written and read; None without replicas, or before the
    first check.
    """
