"""Vector indexes of collections that are copied, backed up, restored, dropped, or damaged."""

import json
import math
import struct
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import InvalidBackup, Store
from collections_store.operations.copied_vectors import ReadStoredVectors, WriteStoredVectors
from collections_store.operations.diagnosis import Diagnose
from collections_store.operations.vectors import FindVectorIndex
from collections_store.sql.vectors import journal_of

POINTS = {"one": {"at": [1, 0]}, "two": {"at": [2, 0]}, "three": {"at": [3, 0]}}


def found(points: Any, k: int = 10) -> list[str]:
    return [each.id for each in points.nearest([2.9, 0], k)]


@pytest.fixture
def store(shared_backend: Backend) -> Any:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["points"].create_vector_index("at", dimensions=2, metric="l2")
        store["points"].put_many(POINTS)
        assert found(store["points"]) == ["three", "two", "one"]
        yield store


def tables(store: Store) -> set[str]:
    """Return the tables of vector indexes."""
    options = store.core.options.names()
    engine = sa.create_engine(store.core.url)
    with engine.connect() as connection:
        names = sa.inspect(connection).get_table_names(schema=options.schema)
    engine.dispose()
    return {each for each in names if "$i" in each}


def test_a_copy_has_the_index(store: Any, tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'copy.db'}") as other:
        store.copy_to(other)
        assert other["points"].indexes() == store["points"].indexes()
        assert found(other["points"]) == ["three", "two", "one"]
        other["points"].put("one", {"at": [2.9, 0]})
        assert found(other["points"], 1) == ["one"]
    assert found(store["points"], 1) == ["three"]


@pytest.mark.parametrize("name", ["backup.jsonl", "backup.db"])
def test_a_backup_has_the_index(store: Any, tmp_path: Path, name: str) -> None:
    if name.endswith("db") and store.core.database.name != "sqlite":
        pytest.skip("a backup of PostgreSQL is text")
    store.backup(tmp_path / name)
    store["points"].put_many({"one": {"at": [2.9, 0]}, "four": {"at": [2.9, 0]}})
    assert found(store["points"], 2) == ["four", "one"]
    store.restore(tmp_path / name, replace=True)
    assert found(store["points"]) == ["three", "two", "one"]
    store["points"].put("four", {"at": [2.9, 0]})
    assert found(store["points"], 1) == ["four"]


def test_dropped_collections_and_indexes_leave_no_table(store: Any) -> None:
    store["points"].create_vector_index("other", dimensions=3)
    assert len(tables(store)) == 4
    assert store["points"].drop_index("other_vector")
    assert len(tables(store)) == 2
    store["points"].reindex("at", dimensions=3, metric="l2")
    assert len(tables(store)) == 2
    store.rename("points", "places")
    assert store.drop("places")
    assert tables(store) == set()


def test_the_doctor_knows_the_tables_and_misses_them(store: Any) -> None:
    def problems() -> list[str]:
        checks = {"catalogue", "indexes", "schema"}
        return [each.problem for each in store.run(Diagnose()) if each.check in checks]

    assert problems() == []
    [physical] = tables(store) - {each for each in tables(store) if each.endswith("$j")}
    schema = store.core.options.names().schema
    engine = sa.create_engine(store.core.url)
    with engine.begin() as connection:
        prefix = f'"{schema}".' if schema else ""
        connection.execute(sa.text(f'DROP TABLE {prefix}"{journal_of(physical)}"'))
    engine.dispose()
    [problem] = problems()
    assert f"a table of the index 'at_vector' ({physical}) does not exist" in problem


class Words:
    """An embedder that counts its texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        return [[len(text), text.count("e"), 1] for text in texts]

    def index(self, notes: Any) -> None:
        notes.create_vector_index("text", dimensions=3, embed=self, model="words")


NOTES = {
    "many": {"text": ["tea", "green", "a longer text"]},
    **{f"{n:04}": {"text": f"text {n}"} for n in range(250)},
    "none": {"n": 1},
}


@pytest.fixture
def noted(shared_backend: Backend) -> Any:
    """A store with texts and their vectors, one of which is not stored, and the embedder."""
    with Store(shared_backend.url, **shared_backend.options) as store:
        embed = Words()
        embed.index(store["notes"])
        store["notes"].put_many(NOTES)
        assert store["notes"].store_vectors() == 0
        store["notes"].put("0007", {"text": "changed"})
        embed.texts.clear()
        yield store, embed


def check_notes(notes: Any, copied: bool, expected: Any) -> None:
    """Search a copy: the texts whose vectors were not copied are embedded."""
    embed = Words()
    embed.index(notes)
    waiting = [each.id for each in notes.search_backlog(1000)]
    assert waiting == (["0007"] if copied else [*NOTES])
    assert [(e.id, e.score, e.place) for e in notes.nearest([13, 2, 1], 300)] == expected
    assert embed.texts == ["changed"] if copied else "tea" in embed.texts
    notes.put("many", {"text": ["green", "new"]})
    embed.texts.clear()
    assert notes.nearest([5, 2, 1], 1)[0].id == "many"
    assert embed.texts == (["new"])


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("name", ["copy", "backup.jsonl", "backup.jsonl.gz", "backup.db"])
def test_vectors_in_copies(noted: Any, tmp_path: Path, name: str, vectors: bool) -> None:
    store, embed = noted
    if name == "backup.db" and store.core.database.name != "sqlite":
        pytest.skip("a backup of PostgreSQL is text")
    with Store(f"sqlite:///{tmp_path / 'copy.db'}") as other:
        if name == "copy":
            store.copy_to(other, vectors=vectors)
        else:
            store.backup(tmp_path / name, vectors=vectors)
        expected = [(e.id, e.score, e.place) for e in store["notes"].nearest([13, 2, 1], 300)]
        assert embed.texts == ["changed"]
        if name != "copy":
            other.restore(tmp_path / name)
        check_notes(other["notes"], vectors or name == "backup.db", expected)


def test_vectors_copied_to_the_other_database_and_back(
    noted: Any, postgres_backend: Backend, tmp_path: Path
) -> None:
    store, _ = noted
    store["notes"].create_vector_index("at", dimensions=2)  # its vectors are in the documents
    expected = [(e.id, e.score, e.place) for e in store["notes"].nearest([13, 2, 1], 300, index="text_vector")]  # fmt: skip
    with (
        Store(postgres_backend.url, **{**postgres_backend.options, "prefix": "x_"}) as other,
        Store(f"sqlite:///{tmp_path / 'copy.db'}") as third,
    ):
        store.copy_to(other, vectors=True)
        other.copy_to(third, vectors=True)
        third["notes"].drop_index("at_vector")
        assert third["notes"].search_backlog(1000) == []
        assert [(e.id, e.score, e.place) for e in third["notes"].nearest([13, 2, 1], 300)] == expected  # fmt: skip


def test_an_interrupted_copy_with_vectors_continues(noted: Any, tmp_path: Path) -> None:
    store, embed = noted
    expected = [(e.id, e.score, e.place) for e in store["notes"].nearest([13, 2, 1], 300)]
    embed.texts.clear()
    with Store(f"sqlite:///{tmp_path / 'copy.db'}") as other:
        written: list[Any] = []
        original = WriteStoredVectors.__call__

        def write(operation: Any, session: Any) -> None:
            if written:
                raise KeyboardInterrupt
            original(operation, session)
            written.append(operation)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(WriteStoredVectors, "__call__", write)
            with pytest.raises(KeyboardInterrupt):
                store.copy_to(other, vectors=True)
        store["notes"].put("0000", {"text": "now"})  # no longer the state that was copied
        store["notes"].put("0000", NOTES["0000"])
        assert store["notes"].store_vectors() == 0
        store.copy_to(other, vectors=True)
        embed.index(other["notes"])
        assert other["notes"].search_backlog(1000) == []
        assert [(e.id, e.score, e.place) for e in other["notes"].nearest([13, 2, 1], 300)] == expected  # fmt: skip


def test_vectors_of_a_document_that_changed_are_not_stored(noted: Any, tmp_path: Path) -> None:
    store, _ = noted
    with Store(f"sqlite:///{tmp_path / 'copy.db'}") as other:
        store.copy_to(other)
        index = store.run(FindVectorIndex("notes"))[0]
        read = store.run(ReadStoredVectors("notes", index.name))
        other["notes"].put("many", {"text": "tea"})
        other.run(WriteStoredVectors("notes", read.rows))
        left = [each.id for each in other["notes"].search_backlog(1000)]
        assert "many" in left
        assert "0001" not in left


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"index_name": "other"}, "'other' must be a vector index with a model"),
        ({"vector": b64encode(bytes(8)).decode()}, "a vector must have 3 numbers"),
        ({"vector": b64encode(bytes(12)).decode()}, "a vector must have 3 numbers, .* not all 0"),
        ({"vector": b64encode(struct.pack("<3f", 1, 2, math.nan)).decode()}, "finite"),
        ({"vector": "?"}, "it must be a vector"),
        ({"hash": "AAAA"}, "a place and a hash"),
        ({"place": 1}, "a place and a hash"),
        ({"place": "a\0"}, "a place and a hash"),
        ({"more": 1}, "must have id, index_name, updated_at, version"),
        ({"start": -1}, "start must be an integer from 0"),
        ({"stop": 2**31}, "stop must be an integer from 0 to 2147483647"),
        ({"stop": 5}, "the checksum of the 253 vectors before differs"),
    ],
)
def test_a_damaged_vector_is_refused(
    noted: Any, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "backup.jsonl"
    noted[0].backup(path, vectors=True)
    lines = path.read_bytes().splitlines(keepends=True)
    n, line = next((n, json.loads(each)) for n, each in enumerate(lines) if b'"index_name"' in each)
    lines[n] = json.dumps({**line, **change}).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    with Store("sqlite://") as other:
        with pytest.raises(InvalidBackup, match=problem):
            other.restore(path)
        assert other.collections() == []


def test_a_backup_without_vectors_is_of_the_first_version(noted: Any, tmp_path: Path) -> None:
    for vectors, version in ((False, 1), (True, 2)):
        noted[0].backup(tmp_path / "backup.jsonl", vectors=vectors)
        first = (tmp_path / "backup.jsonl").read_text().splitlines()[0]
        assert json.loads(first)["version"] == version
