"""What the writing verbs answer: pymongo's words, and what a bulk of them came to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from .errors import CollectionsStoreError


@dataclass(frozen=True, slots=True)
class InsertOneResult:
    """The id of the object that was inserted."""

    inserted_id: str


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """How many objects were deleted."""

    deleted_count: int


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """How many objects an update was for, how many of them it changed, and the id of the one that it
    inserted because there was none.
    """

    matched_count: int
    modified_count: int
    upserted_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not written and why: `position` counts from 0, in the order given."""

    position: int
    id: str | None
    error: CollectionsStoreError


@dataclass(frozen=True, slots=True)
class PutManyResult:
    """What became of the objects given: new ones, those that took the place of others, those that
    were left as they are (`mode="ignore"`), and those that were refused.
    """

    inserted_count: int = 0
    replaced_count: int = 0
    unchanged_count: int = 0
    refused: tuple[Refusal, ...] = field(default=(), repr=False)

    @property
    def written_count(self) -> int:
        """How many objects were written."""
        return self.inserted_count + self.replaced_count

    def __add__(self, other: PutManyResult) -> PutManyResult:
        return PutManyResult(
            self.inserted_count + other.inserted_count,
            self.replaced_count + other.replaced_count,
            self.unchanged_count + other.unchanged_count,
            self.refused + other.refused,
        )


@dataclass(frozen=True, slots=True)
class InsertManyResult:
    """The ids of the objects that were inserted, in their order."""

    inserted_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BulkWriteResult:
    """What the requests of a bulk came to, added up; `inserted_ids` and `upserted_ids` hold ids by the
    positions of their requests, `refused` the requests that failed.
    """

    inserted_count: int = 0
    matched_count: int = 0
    modified_count: int = 0
    deleted_count: int = 0
    upserted_ids: dict[int, str] = field(default_factory=dict)
    inserted_ids: dict[int, str] = field(default_factory=dict, repr=False)
    refused: tuple[Refusal, ...] = field(default=(), repr=False)

    @property
    def upserted_count(self) -> int:
        """How many objects were inserted because an update found none."""
        return len(self.upserted_ids)

    def __add__(self, other: Any) -> BulkWriteResult:
        return BulkWriteResult(
            self.inserted_count + other.inserted_count,
            self.matched_count + other.matched_count,
            self.modified_count + other.modified_count,
            self.deleted_count + other.deleted_count,
            {**self.upserted_ids, **other.upserted_ids},
            {**self.inserted_ids, **other.inserted_ids},
            self.refused + other.refused,
        )


R = TypeVar("R", PutManyResult, BulkWriteResult)


def in_order(result: R) -> R:
    """Return a result whose refusals are in the order of their positions."""
    return replace(result, refused=tuple(sorted(result.refused, key=lambda each: each.position)))
