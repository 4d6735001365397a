"""Collections whose bodies SQLite stores as JSONB: opt-in, rejected by old versions of SQLite, with the same results."""

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import newer_sqlite
import pytest
from backends import Backend

from collections_store import InvalidOption, SchemaError, Store

TESTS = Path(__file__).parents[1]
OLD = sqlite3.sqlite_version_info < (3, 45)
SAME = [
    "contract/test_jsonb.py",
    "contract/test_updates.py",
    "property/test_sql_is_the_matcher.py",
]
MAKES = """
import sys
from collections_store import Store

with Store(sys.argv[1]) as store:
    things = store.create_collection("things", jsonb=True)
    things.put_many({"a": {"n": 1, "text": "é\\\\u0007"}, "b": {"n": [2, 3.50, 1e16]}})
    things.create_index("n")
    store["others"].put("a", {"n": 1})
    assert things.update("a", {"$set": {"m": True}}).modified_count == 1
    assert things.increment("a", "n", 2) == 3
    assert [each.id for each in things.find("n", 3.5)] == ["b"]
    assert things.get("b") == {"n": [2, 3.5, 1e16]}
    assert things.document("a").body == {"n": 3, "text": "é\\\\u0007", "m": True}
"""
EXPIRES = """
import sys
from collections_store import Store

with Store(sys.argv[1]) as store:
    store.create_collection("kept", jsonb=True).put("a", {}, ttl=0.001)
    store["zoo"].put_many({"a": {}, "b": {}})
    store["zoo"].touch("a", 0.001)
"""


def newer() -> dict[str, str]:
    found = newer_sqlite.environment(PYTHONPATH=os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    if found is None:
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail("there is no SQLite of 3.45 or newer here, which pysqlite3 brings")
        pytest.skip("there is no SQLite of 3.45 or newer here")
    return found


@pytest.mark.skipif(not OLD, reason="this SQLite has JSONB")
def test_old_versions_of_sqlite_have_no_jsonb(store: Any, backend: Backend) -> None:

    if backend.is_postgresql:
        store.create_collection("things", jsonb=True)
        store["things"].put("a", {"n": 1})
        assert store["things"].find("n", 1)[0].body == {"n": 1}
        return
    with pytest.raises(InvalidOption, match=r"jsonb: SQLite \S+ has no JSONB: it takes 3.45 or ne"):
        store.create_collection("things", jsonb=True)
    assert not store.collections()


@pytest.mark.skipif("COLLECTIONS_STORE_TEST_JSONB" not in os.environ, reason="see conftest.py")
def test_every_collection_is_stored_as_jsonb(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store["things"].put("a", {"n": 1})
    with sqlite3.connect(tmp_path / "store.db") as connection:
        assert connection.execute("SELECT typeof(body) FROM cs_1_things").fetchall() == [("blob",)]
    connection.close()


@pytest.mark.parametrize("jsonb", [1, None, "yes"])
def test_jsonb_is_a_boolean(store: Any, jsonb: Any) -> None:
    with pytest.raises(InvalidOption, match="jsonb"):
        store.create_collection("things", jsonb=jsonb)


def test_bodies_are_stored_as_jsonb(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    subprocess.run([sys.executable, "-c", MAKES, url], env=newer(), check=True)
    with sqlite3.connect(path) as connection:
        kinds = {
            table: {kind for (kind,) in connection.execute(f"SELECT typeof(body) FROM {table}")}
            for table in ("cs_1_things", "cs_2_others")
        }
    connection.close()
    assert kinds == {"cs_1_things": {"blob"}, "cs_2_others": {"text"}}


FINDS_BEHIND_NULL = """
from collections_store import Store
with Store("sqlite://") as store:
    store.create_collection("things", jsonb=True)
    things = store["things"]
    things.put_many({"1": {"a": None, "b": [7]}, "2": {"a": None, "b": "word"}, "3": {"a": [None, 7]}})
    found = (things.find({"b": 7}), things.find({"b": "word"}), things.find({"a": 7}))
    print(*(each.id for some in found for each in some))
"""


def test_values_behind_null() -> None:
    command = [sys.executable, "-c", FINDS_BEHIND_NULL]
    done = subprocess.run(command, env=newer(), check=True, capture_output=True, encoding="utf-8")
    assert done.stdout == "1 2 3\n"


@pytest.mark.skipif(not OLD, reason="this SQLite has JSONB")
def test_an_old_sqlite_cannot_open_a_jsonb_collection(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    subprocess.run([sys.executable, "-c", MAKES, url], env=newer(), check=True)
    with Store(url) as store:
        things = store["things"]
        for call in (
            lambda: things.get("a"),
            lambda: things.put("c", {}),
            lambda: things.find("n", 3),
            lambda: things.create_index("m"),
        ):
            with pytest.raises(
                SchemaError, match=r"'things' keeps its bodies as JSONB: SQLite \S+"
            ):
                call()
        assert store["others"].get("a") == {"n": 1}
        assert [(each.name, each.count) for each in store.collections()] == [
            ("others", 1),
            ("things", 2),
        ]
        store.rename("things", "kept")
        assert store.drop("kept")


@pytest.mark.skipif(not OLD, reason="this SQLite has JSONB")
def test_an_old_sqlite_purges_other_collections(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    subprocess.run([sys.executable, "-c", EXPIRES, url], env=newer(), check=True)
    with (
        Store(url, sweep_interval=0.01) as store,
        sqlite3.connect(tmp_path / "store.db") as connection,
    ):
        assert store["zoo"].exists("b")
        counted = "SELECT count(*) FROM cs_2_zoo"
        give_up = time.monotonic() + 30
        while connection.execute(counted).fetchone() != (1,) and time.monotonic() < give_up:
            time.sleep(0.01)
        assert connection.execute(counted).fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM cs_1_kept").fetchone() == (1,)
    connection.close()


def test_results_are_the_same_with_jsonb(tmp_path: Path) -> None:
    """Tests of this folder and the next, with all collections in JSONB; `nox -s sqlite` runs many more."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    chosen = ["-k", "(sqlite or kept_so) and not async and not memory and not same", *SAME]
    done = subprocess.run(
        [*command, *chosen],
        env=newer() | {"COLLECTIONS_STORE_TEST_JSONB": "1"},
        cwd=TESTS,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
