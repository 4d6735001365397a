"""Measures of a collection that do not read all of it, on every backend."""

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from backends import Backend

from collections_store import Store
from collections_store.document import SCHEMA_VERSION
from collections_store.operations import survey
from collections_store.operations.survey import (
    LastPosition,
    ListNames,
    MeasureIndexes,
    SampleDocuments,
    Scans,
    Survey,
)
from collections_store.query.filter import Filter
from collections_store.query.sort import Sort
from collections_store.sql.survey import SurveyStatements


@pytest.mark.each_backend
def test_a_small_collection_is_measured_exactly(store: Any) -> None:
    store["things"].put_many({f"{n:03}": {SCHEMA_VERSION: 1 + n % 2} for n in range(98)})
    store["things"].put("z", "no object", ttl=60)
    store["things"].put("y", 1, ttl=3 * 86_400)
    store["things"].put("expired", 1, ttl=1e-6)
    [(name, created)] = store.run(ListNames())
    assert name == "things"
    assert created == store.collections()[0].created_at
    found = store.run(Survey("things"))
    assert (found.name, found.count, found.is_exact, found.sampled) == ("things", 100, True, 100)
    assert found.versions == {"1": 49, "2": 49, None: 2}
    assert found.expiring == (1, 0, 1, 0, 0)
    assert found.size > 0
    assert store.run(Survey("nothing")) is None
    assert store.run(SampleDocuments("nothing", 10)) == []


@pytest.mark.each_backend
def test_a_large_collection_is_estimated(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "COUNTED", 50)
    store["things"].put_many({f"{n:04}": {"n": n} for n in range(1000)})
    store["things"].delete_many({"n": {"$lt": 10}})
    found = store.run(Survey("things", 20))
    assert not found.is_exact
    assert 980 <= found.count <= 1000
    assert found.sampled == 20
    assert found.versions == {None: 20}


@pytest.mark.each_backend
def test_a_sample_comes_from_everywhere(store: Any) -> None:
    store["things"].put_many({f"{n:04}": {"n": n} for n in range(1000)})
    store["things"].delete_many({"n": {"$gte": 100, "$lt": 300}})
    found = [each.body["n"] for each in store.run(SampleDocuments("things", 50))]
    assert 40 <= len(found) <= 50
    assert found == sorted(set(found))
    assert {n // 100 for n in found} >= {0, 3, 4, 5, 6, 7, 8, 9}
    assert len(store.run(SampleDocuments("things", 5000))) == 800


@pytest.mark.each_backend
def test_a_plan_shows_whether_a_page_may_read_all(store: Any) -> None:
    store["things"].put_many({f"{n:04}": {"n": n, "m": -n} for n in range(5000)})
    store["things"].create_index("n")
    few: dict[str, Any] = {"n": {"$gte": 7, "$lt": 9}}
    every: dict[str, Any] = {}
    asked = [(few, ()), (every, ()), (every, "n"), (few, "n"), (few, "m"), (every, "m"), ({"m": 1}, "n")]  # fmt: skip
    found = [store.run(Scans("things", Filter.parse(f), Sort.parse(s))) for f, s in asked]
    assert found[:4] == [False] * 4
    assert found[4] is True  # it looks for arrays in m, too
    assert found[5:] == [True] * 2
    assert store.run(Scans("nothing", Filter(), Sort.parse("n"))) is False


@pytest.mark.each_backend
@pytest.mark.parametrize("changes", [False, True])
def test_the_last_position_grows_with_each_insert(store: Any, changes: bool) -> None:
    assert store.run(LastPosition("things")) == 0
    things = store.collection("things", changes=changes)
    positions = []
    for n in range(3):
        things.put(str(n), n)
        positions.append(store.run(LastPosition("things")))
    assert positions == sorted(set(positions))
    things.put("0", "again")
    assert (store.run(LastPosition("things")) > positions[-1]) >= changes


def test_the_statements_search_in_indexes(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store(f"sqlite:///{file}") as store:
        store["things"].put_many({f"{n:04}": {"n": n} for n in range(1000)}, ttl=60)
        statements = SurveyStatements(store.model("things").__table__, store.core.database)
        values = {"start": 0, "end": 2**62, "limit": 10, "now": 0, "seq": 500}
        with closing(sqlite3.connect(file)) as connection:
            for sql in (
                statements.ends,
                statements.expiring,
                statements.measures,
                statements.documents,
            ):
                plan = str(connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
                assert "SEARCH" in plan
                assert re.findall(r"SCAN (?!CONSTANT ROW|rows)", plan) == [], sql


@pytest.mark.each_backend
def test_indexes_are_measured(store: Any, backend: Backend) -> None:
    things = store.create_collection("things")
    things.put_many({f"{n:04}": {"n": n, "tags": [n], "text": f"word {n}", "v": [1, n]} for n in range(2000)})  # fmt: skip
    names = [
        things.create_index("n"),
        things.create_index("tags", arrays=True),
        things.create_text_index("text"),
        things.create_vector_index("v", dimensions=2),
    ]
    found = store.run(MeasureIndexes("things"))
    if backend.is_postgresql:  # its index of whole bodies has the elements of arrays
        names.remove("tags_arrays")
    assert [*found] == names
    assert all(each.size >= 4096 for each in found.values())
    assert found["n_1"].size > 16 * 1024
    if not backend.is_postgresql:
        assert {each.uses for each in found.values()} == {None}
        return
    deadline = time.monotonic() + 60  # the server publishes its statistics after a while
    while not (found["n_1"].uses and found["text"].uses):
        assert time.monotonic() < deadline
        things.find({"n": 7})
        things.search("word 7")
        found = store.run(MeasureIndexes("things"))


def test_a_collection_without_indexes_has_no_measures(store: Any) -> None:
    store["things"].put("1", 1)
    assert store.run(MeasureIndexes("things")) == {}
    assert store.run(MeasureIndexes("nothing")) == {}
