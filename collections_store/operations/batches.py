"""Writing many objects at once: a batch is written whole or not at all, but for what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from ..errors import CollectionsStoreError, VersionConflict
from ..results import PutManyResult, Refusal
from ..schema import now
from .documents import id_taken
from .reading import BATCH_CHARACTERS
from .writing import Writer

if TYPE_CHECKING:
    from .connection import Connection, Row

Mode: TypeAlias = Literal["replace", "insert", "ignore", "if_version"]
MAX_ROWS: Final = 1000
"""Objects of a batch, at most."""


@dataclass(frozen=True, slots=True)
class Given:
    """An object to write: its place among all that are given, and the version that is expected to be
    there; None: none is.
    """

    position: int
    id: str
    text: str = field(repr=False)
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class PutBatch:
    """Write objects with different ids, in their order; `strict` raises what is refused."""

    collection: str
    given: tuple[Given, ...]
    mode: Mode = "replace"
    ttl: int | None = None
    strict: bool = False
    _written: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    WRITES: ClassVar = True
    SINGLE: ClassVar = False

    def __call__(self, connection: Connection) -> PutManyResult:
        writer, ids = Writer(connection, self.collection), [each.id for each in self.given]
        [(some,)] = connection.rows(writer.statements.by_id.has_expired, {"now": now()})
        if some:
            writer.purge(ids)
        there = self._there(connection, writer, ids)
        wanted, refused, unchanged = self._chosen({id: row[0] for id, row in there.items()})
        self._written.clear()
        self._written.update((each.id, each.text) for each in wanted)
        versions = {each.id: there.get(each.id, (0, None))[0] + 1 for each in wanted}
        versions.update(_write(connection, writer, wanted, self.ttl))
        for each in wanted:
            before = there.get(each.id, (0, None))[1]
            kind = "insert" if versions[each.id] == 1 else "update"
            writer.note(kind, each.id, versions[each.id], before, each.text)
        replaced = sum(each.id in there for each in wanted)
        return PutManyResult(len(wanted) - replaced, replaced, unchanged, tuple(refused))

    def written(self) -> dict[str, str]:
        return self._written

    def one_by_one(self) -> Iterator[PutBatch]:
        """Yield a batch for each of the objects."""
        for each in self.given:
            yield PutBatch(self.collection, (each,), self.mode, self.ttl)

    def _there(self, connection: Connection, writer: Writer, ids: list[str]) -> dict[str, Row]:
        """Return version and, if it is asked for, the text of what is there."""
        listed = {"ids": connection.database.list_parameter(ids), "now": now()}
        sql = writer.statements.by_id
        rows = connection.rows(sql.bodies if writer.keeps_before else sql.versions, listed)
        return {row[0]: row[1:] for row in rows}

    def _chosen(self, versions: dict[str, int]) -> tuple[list[Given], list[Refusal], int]:
        """Return what shall be written, what is refused, and how many are left as they are."""
        wanted: list[Given] = []
        refused: list[Refusal] = []
        for each in self.given:
            error = self._problem(each, versions.get(each.id))
            if error is not None and self.strict:
                raise error
            if error is not None:
                refused.append(Refusal(each.position, each.id, error))
            elif self.mode != "ignore" or each.id not in versions:
                wanted.append(each)
        return wanted, refused, len(self.given) - len(wanted) - len(refused)

    def _problem(self, given: Given, found: int | None) -> CollectionsStoreError | None:
        if self.mode == "insert" and found is not None:
            return id_taken(self.collection, given.id)
        if self.mode == "if_version" and found != given.expected:
            return VersionConflict(self.collection, given.id, given.expected, found)
        return None


def _write(
    connection: Connection, writer: Writer, wanted: list[Given], ttl: int | None
) -> dict[str, int]:
    """Write in the way that is the database's fastest; gives versions that may not be as expected."""
    sql, life = writer.statements.by_id, writer.life(ttl)
    if not wanted:
        return {}
    if not connection.database.TAKES_LISTS:
        rows = ({"id": each.id, "body": each.text, **life} for each in wanted)
        connection.each(sql.put_silently, rows)
        return {}
    ids, bodies = [each.id for each in wanted], [each.text for each in wanted]
    parameters = {"ids": ids, "bodies": bodies, **life}
    if writer.statements.feed is not None:
        return dict(connection.rows(sql.put_all_told, parameters))
    connection.changed(sql.put_all, parameters)
    return {}


def batches(given: Iterable[Given]) -> Iterator[tuple[Given, ...]]:
    """Yield objects in batches of about `BATCH_CHARACTERS` at most; an id comes once in each."""
    batch: dict[str, Given] = {}
    characters = 0
    for each in given:
        full = len(batch) == MAX_ROWS or characters > BATCH_CHARACTERS
        if full or each.id in batch:
            yield tuple(batch.values())
            batch, characters = {}, 0
        batch[each.id] = each
        characters += len(each.text)
    if batch:
        yield tuple(batch.values())
