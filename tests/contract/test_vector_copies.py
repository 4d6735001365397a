"""Vector indexes of collections that are copied, backed up, restored, dropped, or damaged."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend

from collections_store import Store
from collections_store.operations.diagnosis import Diagnose
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
