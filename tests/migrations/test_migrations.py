"""Databases of every released schema are upgraded once, with their data intact. A recipe is the schema as it was,
frozen as SQL: no later change of the code may touch it.
"""

import hashlib
import itertools
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from backends import Backend
from faults.test_processes import finish, start
from faults.test_processes import stop_processes as stop_processes

from collections_store import (
    AsyncStore,
    DatabaseBusy,
    SchemaError,
    SchemaOutdated,
    SchemaTooNew,
    Store,
    migrate,
)
from collections_store.sql.schema import REVISION

PROJECT = Path(__file__).parents[2]
RECIPES = Path(__file__).with_name("recipes")
REVISIONS = sorted({path.name.split(".")[0] for path in RECIPES.glob("*.sql")})
HISTORY = sorted(path.name[:4] for path in (PROJECT / "migrations" / "versions").glob("*.py"))


def names(backend: Backend) -> dict[str, Any]:
    return {"schema": backend.options.get("schema")}


def execute(backend: Backend, sql: str) -> None:
    if backend.is_postgresql:
        schema = backend.options["schema"]
        with psycopg.connect(backend.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}; SET search_path = {schema}")
            connection.execute(sql)
    else:
        file = sqlite3.connect(backend.url.removeprefix("sqlite:///"))
        file.executescript(sql)
        file.close()


def cook(backend: Backend, revision: str) -> None:
    database = "postgresql" if backend.is_postgresql else "sqlite"
    execute(backend, (RECIPES / f"{revision}.{database}.sql").read_text())


def check_data(store: Store) -> None:
    things = store["Things"]
    assert [(d.id, d.body, d.version, d.updated_us) for d in things.list()] == [
        ("b", {"x": [1, {"y": "é"}]}, 1, 1700000000000004),
        ("a", None, 5, 1700000000000006),
    ]
    assert [d.id for d in things.find("x.y", "é")] == ["b"]
    assert [(info.name, info.count) for info in store.collections()] == [
        ("Things", 2),
        ("empty", 0),
    ]
    assert things.put("a", 1) == 6
    assert things.put("c", 2) == 1
    assert [d.id for d in things.list()] == ["b", "a", "c"]
    store["new"].put("x", 1)
    assert store["new"].count() == 1
    page = things.page(limit=2)
    assert [d.id for d in things.page(limit=2, after=page.cursor)] == ["c"]
    assert things.create_index("x.y") == "x.y_1"
    things.put("short", 1, ttl=0.001)
    time.sleep(0.002)
    assert (things.get("short"), things.count(), things.purge_expired()) == (None, 3, 1)
    assert things.update("b", {"$set": {"x": 2}}, if_version=1).modified_count == 1
    store.get_sync_collection("Things", changes=True).put("d", 1)
    assert [change.id for change in things.watch(after="oldest", timeout=0)] == ["d"]


def test_history_is_one_line_with_a_recipe_for_each_step() -> None:
    assert migrate.head() == REVISION == HISTORY[-1]
    assert HISTORY == REVISIONS
    for before, after in itertools.pairwise(HISTORY):
        [script] = (PROJECT / "migrations" / "versions").glob(f"{after}_*.py")
        assert f'down_revision = "{before}"' in script.read_text()


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_older_database_is_upgraded_when_it_is_opened(
    shared_backend: Backend, revision: str
) -> None:
    cook(shared_backend, revision)
    with Store(shared_backend.url, upgrade="auto", **shared_backend.options) as store:
        check_data(store)
    assert migrate.check(shared_backend.url, **names(shared_backend)) == []
    assert migrate.current(shared_backend.url, **names(shared_backend)) == REVISION


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_older_database_is_upgraded_by_command(shared_backend: Backend, revision: str) -> None:
    cook(shared_backend, revision)
    assert migrate.current(shared_backend.url, **names(shared_backend)) == revision
    upgraded = migrate.upgrade(shared_backend.url, **names(shared_backend))
    assert upgraded == (revision, REVISION)
    assert migrate.upgrade(shared_backend.url, **names(shared_backend)) == (REVISION, REVISION)
    with Store(shared_backend.url, upgrade="manual", **shared_backend.options) as store:
        check_data(store)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_printed_sql_does_the_same(shared_backend: Backend, revision: str) -> None:
    cook(shared_backend, revision)
    execute(shared_backend, migrate.sql(shared_backend.url, **names(shared_backend)))
    assert migrate.check(shared_backend.url, **names(shared_backend)) == []
    with Store(shared_backend.url, upgrade="manual", **shared_backend.options) as store:
        check_data(store)


ODD = "a); END %:b"
"""The field of the recipe's array index."""


def steps_of_changes(path: Path, body: dict[str, Any]) -> int:
    """Return the steps of SQLite's virtual machine to overwrite one document and delete another."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    file = sqlite3.connect(path)
    file.set_progress_handler(count, 1)
    file.execute("UPDATE cs_1_things SET body = ? WHERE id = '5'", [json.dumps(body)])
    file.execute("DELETE FROM cs_1_things WHERE id = '6'")
    file.rollback()
    file.close()
    return steps


@pytest.mark.parametrize("made", ["fresh", "upgraded", "by printed SQL"])
def test_an_array_index_is_migrated_by_its_key(tmp_path: Path, made: str) -> None:
    backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
    if made != "fresh":
        cook(backend, "0004")
        execute(backend, (RECIPES / "0004.arrays.sql").read_text())
    if made == "by printed SQL":
        execute(backend, migrate.sql(backend.url))
    steps = []
    with Store(backend.url) as store:
        things = store["Things"]
        things.create_index(ODD, arrays=True)
        for count in (100, 400):
            things.put_many({str(n): {ODD: [n, "x", True]} for n in range(count)})
            steps.append(steps_of_changes(tmp_path / "store.db", {ODD: ["y"]}))
        assert steps[1] < 1.2 * steps[0]
        things.put("5", {ODD: ["y", "z"]})
        things.delete_many({"$id": "6"})
        assert things.explain(ODD, "y").indexes == (f"{ODD}_arrays",)
        assert [d.id for d in things.find(ODD, "y")] == ["5"]
        assert [d.id for d in things.find({ODD: {"$in": [5, 6, 7]}})] == ["7"]
        things.delete_many({ODD: {"$exists": True}})
    file = sqlite3.connect(tmp_path / "store.db")
    assert file.execute("SELECT * FROM cs_1$i1").fetchall() == []
    file.close()


def test_migrations_create_the_tables_of_the_models(shared_backend: Backend) -> None:
    execute(shared_backend, migrate.sql(shared_backend.url, **names(shared_backend)))
    assert migrate.check(shared_backend.url, **names(shared_backend)) == []
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put("a", 1)
        assert store["things"].get("a") == 1
    assert migrate.sql(shared_backend.url, **names(shared_backend)) == ""


def test_the_models_create_the_tables_that_check_expects(shared_backend: Backend) -> None:
    assert migrate.current(shared_backend.url, **names(shared_backend)) is None
    assert migrate.check(shared_backend.url, **names(shared_backend)) != []
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["things"].put("a", 1)
        store["things"].create_index("a.b", unique=True)
    assert migrate.check(shared_backend.url, **names(shared_backend)) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("ALTER TABLE cs_collections DROP COLUMN options", "options"),
        ("ALTER TABLE cs_1_things ADD COLUMN surplus TEXT", "surplus"),
        ("ALTER TABLE cs_1_things DROP COLUMN ttl", "ttl"),
        ("DROP TABLE cs_1_things", "cs_1_things"),
        ("ALTER TABLE cs_1$changes DROP COLUMN before", "before"),
    ],
)
def test_check_reports_differences(shared_backend: Backend, change: str, word: str) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store.create_collection("things", changes=True)
        store["things"].put("a", 1)
    execute(shared_backend, change)
    [difference] = migrate.check(shared_backend.url, **names(shared_backend))
    assert word in difference


def test_check_of_the_default_schema_by_name(postgres_url: str) -> None:
    backend = Backend("postgresql", postgres_url, {"schema": "public"})
    prefix = f"check{os.getpid()}_"
    try:
        with Store(backend.url, prefix=prefix, schema="public") as store:
            store["things"].put("a", 1)
        assert migrate.check(backend.url, prefix=prefix, schema="public") == []
        assert migrate.check(backend.url, prefix=prefix) == []
        execute(backend, f"ALTER TABLE {prefix}1_things DROP COLUMN expires_at")
        [difference] = migrate.check(backend.url, prefix=prefix, schema="public")
        assert "expires_at" in difference
    finally:
        tables = ("1_things", "collections", "revision")
        execute(backend, f"DROP TABLE IF EXISTS {', '.join(prefix + table for table in tables)}")


def test_current_and_check_create_no_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'missing.db'}"
    assert migrate.current(url) is None
    [difference] = migrate.check(url)
    assert "no tables" in difference
    printed = migrate.sql(url)
    assert list(tmp_path.iterdir()) == []
    execute(Backend("sqlite-file", url), printed)
    assert migrate.check(url) == []


HALF_MADE = {
    "cs_collections is missing": "CREATE TABLE cs_revision (version_num VARCHAR(32) NOT NULL); "
    f"INSERT INTO cs_revision VALUES ('{REVISION}')",
    "cs_revision is empty": "CREATE TABLE cs_revision (version_num VARCHAR(32) NOT NULL)",
    "cs_revision is missing": "CREATE TABLE cs_collections (number INTEGER)",
}


@pytest.mark.parametrize("problem", HALF_MADE)
def test_incomplete_tables_are_rejected_with_advice(shared_backend: Backend, problem: str) -> None:
    execute(shared_backend, HALF_MADE[problem])
    advice = f"{problem}.*backup.*drop"
    drives: list[Any] = [migrate.current, migrate.check, migrate.sql, migrate.upgrade]
    for drive in drives:
        with pytest.raises(SchemaError, match=advice):
            drive(shared_backend.url, **names(shared_backend))
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        pytest.raises(SchemaError, match=advice) as caught,
    ):
        store["things"].put("a", 1)
    assert (caught.value.found, caught.value.expected) == ("nothing", REVISION)


def test_a_required_upgrade_names_the_command(shared_backend: Backend) -> None:
    cook(shared_backend, "0001")
    with (
        Store(shared_backend.url, upgrade="manual", **shared_backend.options) as store,
        pytest.raises(SchemaOutdated, match="collections-store db upgrade") as caught,
    ):
        store["Things"].get("a")
    assert (caught.value.found, caught.value.expected) == ("0001", REVISION)
    assert migrate.current(shared_backend.url, **names(shared_backend)) == "0001"


def test_the_default_is_auto_on_sqlite_and_manual_on_postgresql(shared_backend: Backend) -> None:
    cook(shared_backend, "0001")
    with Store(shared_backend.url, **shared_backend.options) as store:
        if shared_backend.is_postgresql:
            with pytest.raises(SchemaOutdated):
                store["Things"].get("a")
        else:
            check_data(store)


def test_a_newer_database_is_rejected_unchanged(shared_backend: Backend) -> None:
    cook(shared_backend, REVISION)
    execute(shared_backend, "UPDATE cs_revision SET version_num = '9999'")
    before = _hash(shared_backend)
    with (
        Store(shared_backend.url, upgrade="auto", **shared_backend.options) as store,
        pytest.raises(SchemaTooNew, match="upgrade the library") as caught,
    ):
        store["Things"].put("x", 1)
    assert caught.value.found == "9999"
    for drive in (migrate.upgrade, migrate.sql):
        with pytest.raises(SchemaTooNew):
            drive(shared_backend.url, **names(shared_backend))
    assert _hash(shared_backend) == before


def _hash(backend: Backend) -> str:
    if backend.is_postgresql:
        return ""
    path = Path(backend.url.removeprefix("sqlite:///"))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("variant", [Store, AsyncStore])
def test_a_bound_store_upgrades_within_the_callers_transaction(
    shared_backend: Backend, variant: Any
) -> None:
    import sqlalchemy as sa

    cook(shared_backend, "0001")
    engine = sa.create_engine(shared_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    options = {**shared_backend.options, "upgrade": "auto"}
    with Store(engine=engine, **options) as store:
        if variant is Store:
            with engine.connect() as connection:
                store.bind(connection)["Things"].put("z", 1)
                connection.rollback()
            assert migrate.current(shared_backend.url, **names(shared_backend)) == "0001"
            with engine.begin() as connection:
                assert store.bind(connection)["Things"].get("b") == {"x": [1, {"y": "é"}]}
        check_data(store)
    engine.dispose()
    assert migrate.check(shared_backend.url, **names(shared_backend)) == []


def test_concurrent_processes_open_an_old_database(shared_backend: Backend) -> None:
    cook(shared_backend, "0001")
    at = time.time() + 0.5
    finish(*(start("open_and_put", shared_backend, id, at, upgrade="auto") for id in "cdefgh"))
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert store["Things"].get("b") == {"x": [1, {"y": "é"}]}
        assert store["things"].count() == 6
    assert migrate.check(shared_backend.url, **names(shared_backend)) == []


@pytest.mark.parametrize("revision", [None, "0001"])
def test_concurrent_upgrades(shared_backend: Backend, revision: str | None) -> None:
    if revision is not None:
        cook(shared_backend, revision)
    at = time.time() + 0.5
    outputs = finish(*(start("upgrade", shared_backend, at) for _ in range(8)))
    known = {f"{before} {REVISION}\n" for before in (revision, REVISION)}
    assert set(outputs) <= known
    if revision is None:
        assert outputs.count(f"None {REVISION}\n") == 1
    assert migrate.check(shared_backend.url, **names(shared_backend)) == []


@contextmanager
def locked(backend: Backend, seconds: float) -> Iterator[None]:
    """Hold the write lock of an SQLite file for some seconds."""
    file = sqlite3.connect(
        backend.url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False
    )
    file.execute("BEGIN IMMEDIATE")
    end = threading.Timer(seconds, lambda: file.execute("COMMIT"))
    end.start()
    try:
        yield
    finally:
        end.join()
        file.close()


@pytest.mark.parametrize("revision", [None, "0001"])
def test_an_upgrade_waits_for_writers(tmp_path: Path, revision: str | None) -> None:
    backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
    if revision is not None:
        cook(backend, revision)
    with locked(backend, 1.2):
        assert migrate.upgrade(backend.url) == (revision, REVISION)


def test_an_upgrade_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "_TIMEOUT", 0.4)
    backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
    with locked(backend, 1.5), pytest.raises(DatabaseBusy):
        migrate.upgrade(backend.url)


def test_the_wheel_contains_the_migrations(tmp_path: Path) -> None:
    backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
    cook(backend, "0001")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    subprocess.run([*build, str(PROJECT)], check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    assert list((tmp_path / "dist").glob("*.tar.gz"))
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    script = (
        "import collections_store, sys; from collections_store import Store, migrate; "
        "print(migrate._MIGRATIONS); "
        f"store = Store({backend.url!r}); print(store['Things'].get('b')); store.close()"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, body = result.stdout.splitlines()
    assert Path(folder) == tmp_path / "installed" / "collections_store" / "migrations"
    assert body == "{'x': [1, {'y': 'é'}]}"
    assert migrate.current(backend.url) == REVISION


def test_migrations_are_numbered_and_named() -> None:
    for path in (PROJECT / "migrations" / "versions").glob("*.py"):
        assert re.fullmatch(r"\d{4}_[a-z_]+\.py", path.name)
