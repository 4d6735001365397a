"""Results of methods: pages, the results of writes, copies and upgrades, by pymongo's names, and the records and figures of
operations.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from .document import Body, Body_co, Document
from .errors import CollectionsStoreError, Refusal, missing_cursor, outcome_of

MAX_PAIRS: Final = 50_000
"""Pairs of equal lines of a difference: `difflib` takes about 0.2 seconds for so many, and minutes for ten times as many."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Body_co]):
    """A page of documents; `cursor` fetches the next page, and is None on the last page.

    >>> [document.id for document in Page((Document("berlin", {}),))]
    ['berlin']
    """

    documents: tuple[Document[Body_co], ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[Document[Body_co]]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)

    def _repr_html_(self) -> str:
        return _html_of(self.documents, self.cursor)


@dataclass(frozen=True, slots=True)
class SearchResult(Generic[Body_co]):
    """A document that a search found; better documents have a higher score. `snippets` has the passage of each field with
    words of the query, if `highlight` was given.

    `place` is the field with the nearest vector, or of its text, such as "notes.2.text". If the index cuts texts, the
    characters from `start` to before `stop` of that text are the nearest.

    >>> result = SearchResult(Document("1", {"text": "green tea"}), 1.5, {"text": "green **tea**"})
    >>> result.id, result.body
    ('1', {'text': 'green tea'})
    """

    document: Document[Body_co]
    score: float
    snippets: Mapping[str, str] = field(default_factory=dict)
    place: str | None = None
    start: int | None = None
    stop: int | None = None

    @property
    def id(self) -> str:
        """The document's id."""
        return self.document.id

    @property
    def body(self) -> Body_co:
        """The document's body."""
        return self.document.body


@dataclass(frozen=True, slots=True)
class SearchPage(Generic[Body_co]):
    """The best results of a search; `cursor` fetches the next results, and is None after the last.

    >>> len(SearchPage(()))
    0
    """

    results: tuple[SearchResult[Body_co], ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[SearchResult[Body_co]]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def _repr_html_(self) -> str:
        from .codec.html import html_of_bodies

        rows = [({"id": each.id, "score": each.score}, each.body) for each in self.results]
        return html_of_bodies(rows, note=_note(self.cursor))


@dataclass(frozen=True, slots=True)
class Unindexed:
    """A document whose vectors in an index are not those of its current version. `problem`: why they could not be
    computed; None: nobody has tried yet.
    """

    id: str
    index: str
    problem: str | None = None


class FoundDocuments(list[Document[Body]]):
    """The list of documents that `find` and `list` return. Its errors name the replacements of the methods of
    pymongo's cursors.
    """

    __slots__ = ()

    def sort(self, *fields: Any, key: Any = None, reverse: bool = False) -> None:
        """Sort the list by a function of a document, as `list.sort` does."""
        if fields:
            raise TypeError(missing_cursor("sort"))
        super().sort(key=key, reverse=reverse)

    def _repr_html_(self) -> str:
        return _html_of(self)

    if not TYPE_CHECKING:  # a type checker that saw this would take any misspelt name

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_cursor(name), name=name, obj=self)


class AggregationResults(list[Any]):
    """The list of results that `aggregate` returns, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from .codec.html import html_of_bodies

        return html_of_bodies([({}, each) for each in self], "result")


def _html_of(documents: Sequence[Document[Any]], cursor: str | None = None) -> str:
    from .codec.html import html_of_bodies

    return html_of_bodies([({"id": each.id}, each.body) for each in documents], note=_note(cursor))


def _note(cursor: str | None) -> str:
    return "" if cursor is None else "; the cursor fetches the next page"


@dataclass(frozen=True, slots=True)
class Invalid:
    """A stored body that does not fit the model of its collection, or is not a value of a memory: the plain JSON, and
    the problem at the path of a field.

    >>> Invalid({"age": "old"}, "age", "must be an integer").path
    'age'
    """

    body: Any
    path: str
    problem: str


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection as `Store.collections` lists it.

    `count` is exact. `size` is in bytes: table and indexes on disk if the database reports them, else the sum of the
    bodies.
    """

    name: str
    count: int
    size: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class InsertOneResult:
    """The id of the inserted document."""

    inserted_id: str


@dataclass(frozen=True, slots=True)
class InsertManyResult:
    """The ids of the inserted documents, in their order."""

    inserted_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The numbers of matched and of changed documents, and the id of an upserted document.

    `version` is the new version after an update of one document, or after an upsert; None after `update_many`, or
    without a match.
    """

    matched_count: int
    modified_count: int
    upserted_id: str | None = None
    version: int | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The number of deleted documents."""

    deleted_count: int


@dataclass(frozen=True, slots=True)
class PutManyResult:
    """The numbers of new, of replaced and of unchanged documents (`mode="ignore"`), and the refused items."""

    inserted_count: int = 0
    replaced_count: int = 0
    unchanged_count: int = 0
    refused: tuple[Refusal, ...] = field(default=(), repr=False)

    @property
    def written_count(self) -> int:
        """The number of written documents."""
        return self.inserted_count + self.replaced_count

    def __add__(self, other: PutManyResult) -> PutManyResult:
        return PutManyResult(
            self.inserted_count + other.inserted_count,
            self.replaced_count + other.replaced_count,
            self.unchanged_count + other.unchanged_count,
            self.refused + other.refused,
        )


@dataclass(frozen=True, slots=True)
class BulkWriteResult:
    """The total counts of write requests; `inserted_ids` and `upserted_ids` have ids by the positions of their requests,
    `refused` the failed requests.
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
        """The number of upserted documents."""
        return len(self.upserted_ids)

    def __add__(self, other: Any) -> BulkWriteResult:
        upserted, inserted = self.upserted_ids.copy(), self.inserted_ids.copy()
        return extended(replace(self, upserted_ids=upserted, inserted_ids=inserted), other)


def extended(result: BulkWriteResult, other: BulkWriteResult) -> BulkWriteResult:
    """Return the sum of two results, with the dictionaries of `result`: a sum of many copies no ids."""
    result.upserted_ids.update(other.upserted_ids)
    result.inserted_ids.update(other.inserted_ids)
    return BulkWriteResult(
        result.inserted_count + other.inserted_count,
        result.matched_count + other.matched_count,
        result.modified_count + other.modified_count,
        result.deleted_count + other.deleted_count,
        result.upserted_ids,
        result.inserted_ids,
        result.refused + other.refused,
    )


R = TypeVar("R", PutManyResult, BulkWriteResult)


def in_order(result: R) -> R:
    """Return a result with refusals ordered by position."""
    if not result.refused:
        return result
    return replace(result, refused=tuple(sorted(result.refused, key=lambda each: each.position)))


def partial_result(error: BaseException) -> PutManyResult | BulkWriteResult | None:
    """Return the result of the finished batches of a `put_many`, `insert_many` or `bulk_write` that was cancelled or
    failed between two batches. None: `error` is not from such a call, or nothing was written.

    >>> partial_result(ValueError()) is None
    True
    """
    outcome = outcome_of(error)
    result = None if outcome is None else outcome.result
    if isinstance(result, InsertManyResult):
        return PutManyResult(len(result.inserted_ids))
    return result if isinstance(result, PutManyResult | BulkWriteResult) else None


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a store's database, as `Store.health` finds it.

    `is_healthy`: the database answers, and the store can use its tables. `latency`: the seconds until the answer.
    `schema`: the revision of the tables; None before the first write, which creates them. `is_current`: this version's
    schema. `is_read_only`: the file or the server accepts no write. `uses_replica`: reads run on a replica at present;
    None without the option `replicas`. `error`: the reason if not healthy.
    """

    is_healthy: bool
    latency: float
    schema: str | None
    is_current: bool
    is_read_only: bool
    uses_replica: bool | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CopiedCollection:
    """A copied collection: its name and the `count` of its documents.

    `sha256` is the checksum of the documents in natural order, in hexadecimal: equal for equal documents on any
    database. Each document adds a line of canonical JSON (minified, keys sorted, -0.0 as 0.0) with a line feed: the
    list of id, body, version, and `created_at`, `updated_at`, `expires_at`, time to live in microseconds, or null.
    """

    name: str
    count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The state of a copy: the present collection, and how many documents are done, of all collections.

    `total` is an estimate: expired documents count, but are not copied. For a backup as a database file both numbers
    are pages, and the collection is "".
    """

    collection: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class UpgradeFailure:
    """A document without an upgrade, and the error."""

    id: str
    error: CollectionsStoreError


@dataclass(frozen=True, slots=True)
class UpgradeSample:
    """A document's stored bodies before and after an upgrade.

    >>> print(UpgradeSample("ada", {"name": "Ada"}, {"schema_version": 2, "first": "Ada"}).diff())
      {
    -   "name": "Ada"
    +   "first": "Ada",
    +   "schema_version": 2
      }
    """

    id: str
    before: Any
    after: Any

    def diff(self) -> str:
        """Return the difference, in lines of JSON with sorted keys. Bodies of many repeated lines are not compared: the
        difference is all of both.
        """
        before, after = (
            json.dumps(body, indent=2, sort_keys=True, ensure_ascii=False).splitlines()
            for body in (self.before, self.after)
        )
        if _pairs(before, after) > MAX_PAIRS:
            lines = [f"-{line}" for line in before] + [f"+{line}" for line in after]
        else:
            whole = len(before) + len(after)
            lines = list(unified_diff(before, after, n=whole, lineterm=""))[3:]
        return "\n".join(f"{line[0]} {line[1:]}" for line in lines)


def _pairs(before: list[str], after: list[str]) -> int:
    """Return how many pairs of equal lines `difflib` compares again and again; of 200 lines or more, `difflib` skips those
    that are more than a hundredth.
    """
    most = len(after) // 100 + 1 if len(after) >= 200 else len(after)
    counts = Counter(after)
    return sum(counts[line] for line in before if counts[line] <= most)


@dataclass(frozen=True, slots=True)
class UpgradeResult:
    """The result of `upgrade_documents`, or of a dry run.

    `failed_count` documents stay unchanged, and `quarantined_count` were moved; `failures` lists up to 1,000 of the
    first. `samples` are up to 5 documents of a dry run.
    """

    upgraded_count: int
    failed_count: int = 0
    quarantined_count: int = 0
    failures: tuple[UpgradeFailure, ...] = ()
    samples: tuple[UpgradeSample, ...] = ()


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
    comment: str | None = None
    """The `comment` of the call."""
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
        parts += [] if self.comment is None else [f"comment {self.comment!r}"]
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
