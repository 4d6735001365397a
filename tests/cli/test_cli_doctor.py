"""The command doctor."""

import json
import shlex
import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from backends import Backend
from cli.cli_process import Cli, cli_for
from postgres_cluster import Cluster

from collections_store import Store
from collections_store.operations.diagnosis import LIMITS

Problem = tuple[str, str, str]
"""Severity, check, where."""


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    return cli_for(shared_backend)


@pytest.fixture
def store(shared_backend: Backend) -> Iterator[Store]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        yield store


@contextmanager
def connected(backend: Backend) -> Iterator[Any]:
    """Connect to the tables without the library; yields a function that executes a statement."""
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if backend.is_postgresql:
                connection.exec_driver_sql(f"SET search_path TO {backend.options['schema']}")
            yield connection.exec_driver_sql
    finally:
        engine.dispose()


def table_of(execute: Any, collection: str) -> str:
    name = f"SELECT table_name FROM cs_collections WHERE name = '{collection}'"
    table: str = execute(name).scalar_one()
    return table


def findings(cli: Cli, code: int = 1) -> list[dict[str, str]]:
    result = cli("doctor", "--json")
    assert result.exit_code == code, (result.stdout, result.stderr)
    report = json.loads(result.stdout)
    assert report["url"].startswith(("sqlite:", "postgresql:"))
    found: list[dict[str, str]] = report["findings"]
    assert all(each["problem"] and each["advice"] for each in found)
    return found


def problems(cli: Cli, code: int = 1) -> list[Problem]:
    """Return the errors and warnings."""
    return [
        (each["severity"], each["check"], each["where"])
        for each in findings(cli, code)
        if each["severity"] != "info"
    ]


pytestmark = pytest.mark.each_backend


def test_a_database_without_problems(cli: Cli, store: Store) -> None:
    people = store.collection("people", changes=True, ttl=3600)
    people.create_index("age")
    people.create_index("login", unique=True)
    people.create_index("tags", arrays=True)
    people.create_index(["tags", "age"], unique=True, arrays=True)
    people.put_many({str(n): {"age": n, "login": n, "tags": ["a"]} for n in range(50)})
    store.collection("old").put("a", 1)
    store.rename("old", "new")
    assert problems(cli, 0) == []
    result = cli("doctor")
    assert (result.exit_code, "error" in result.stdout) == (0, False)
    assert result.stderr.startswith("found ")


def test_a_hidden_index_is_no_problem(cli: Cli, store: Store) -> None:
    people = store["people"]
    people.put_many({str(n): {"age": n, "at": f"{2020 + n}"} for n in range(50)})
    people.create_index("age", unique=True, hidden=True)
    people.create_index("at")
    assert problems(cli, 0) == []
    people.hide_index("at_1")
    people.unhide_index("age_1")
    assert problems(cli, 0) == []


def test_a_hidden_index_that_was_dropped_by_hand(
    cli: Cli, store: Store, shared_backend: Backend
) -> None:
    store["people"].put("a", {"n": 1})
    store["people"].create_index("n", hidden=True)
    [index] = store["people"].indexes()
    with connected(shared_backend) as execute:
        execute(f'DROP INDEX "{index.physical}"')
    assert problems(cli) == [("warning", "indexes", "people")]


def test_a_collated_index_is_no_problem(cli: Cli, store: Store) -> None:
    people = store["people"]
    people.put_many({str(n): {"name": f"Zoo{n}"} for n in range(50)})
    people.create_index("name", unique=True, collation={"locale": "simple", "strength": 1})
    assert problems(cli, 0) == []


def test_fields_that_mix_forms_of_times(cli: Cli, store: Store) -> None:
    whole, short, offset = (
        "2026-11-22T10:00:00.123456Z",
        "2026-11-22T10:00:00.5Z",
        "2026-11-22T10:00+02:00",
    )
    store["clean"].put_many(
        {"a": {"at": whole, "text": "2026-11-22 x"}, "b": {"at": whole, "text": offset}}
    )
    store["people"].put_many(
        {
            "a": {"at": whole, "log": [{"my day": short}, {"my day": offset}], "n": short},
            "b": {"at": short, "n": "2026-11-22"},
            "c": {"at": whole},
        }
    )
    [found] = [each for each in findings(cli) if each["check"] == "times"]
    assert (found["severity"], found["where"]) == ("warning", "people")
    assert found["problem"] == (
        "times do not sort where a field mixes their forms: "
        "at (2 as 0000-00-00T00:00:00.000000Z, 1 as 0000-00-00T00:00:00.0Z); "
        "log.my day (1 as 0000-00-00T00:00:00.0Z, 1 as 0000-00-00T00:00+02:00); 3 documents were read"
    )
    command = found["advice"].split("`")[1]
    assert shlex.split(command) == [
        "collections-store",
        "documents",
        "upgrade",
        "people",
        "--times",
        "at",
        "--times",
        "log.my day",
        "--dry-run",
    ]
    cli.done(*shlex.split(command)[1:-1])
    assert [each for each in findings(cli, 0) if each["check"] == "times"] == []


def test_times_of_several_offsets(cli: Cli, store: Store) -> None:
    """Summer and winter: the strings do not sort as the times do."""
    store["people"].put_many(
        {"a": {"at": "2026-11-22T10:00+01:00"}, "b": {"at": "2026-07-22T10:00+02:00"}}
    )
    [found] = [each for each in findings(cli) if each["check"] == "times"]
    assert "at (1 as 0000-00-00T00:00+01:00, 1 as 0000-00-00T00:00+02:00)" in found["problem"]


def test_times_that_no_dotted_name_means(cli: Cli, store: Store) -> None:
    times = ["2026-11-22T10:00Z", "2026-11-22T10:00:00Z"]
    store["people"].put("a", {"at.last": times, "at": {"last": "2026-11-22T10:00Z"}})
    store["people"].put("b", times[0])
    store["people"].put("c", times[1])
    [found] = [each for each in findings(cli) if each["check"] == "times"]
    assert "Path() (1 as 0000-00-00T00:00Z, 1 as" in found["problem"]
    assert "Path('at.last') (1 as 0000-00-00T00:00Z, 1 as" in found["problem"]
    assert "no --times names these fields" in found["advice"]
    store["people"].put("d", {"at": {"last": times[1]}})
    [found] = [each for each in findings(cli) if each["check"] == "times"]
    assert "upgrade people --times at.last --dry-run" in found["advice"]


def test_a_database_without_tables(cli: Cli, shared_backend: Backend, tmp_path: Path) -> None:
    if not shared_backend.is_postgresql:
        assert "there is no SQLite file" in cli.fails(4, "doctor")
        Path(shared_backend.url.removeprefix("sqlite:///")).touch()
    first = findings(cli, 0)[0]
    assert (first["severity"], first["check"]) == ("info", "schema")
    assert "no SQLite file" in Cli().fails(4, "doctor", f"sqlite:///{tmp_path / 'none.db'}")


@pytest.mark.parametrize("revision", ["0004", "9999"])
def test_another_schema(cli: Cli, store: Store, shared_backend: Backend, revision: str) -> None:
    store["people"].put("ada", 1)
    with connected(shared_backend) as execute:
        execute(f"UPDATE cs_revision SET version_num = '{revision}'")
        assert problems(cli) == [("warning", "schema", "")]
        assert list(execute("SELECT version_num FROM cs_revision")) == [(revision,)]


def test_incomplete_tables(cli: Cli, store: Store, shared_backend: Backend) -> None:
    store["people"].put("ada", 1)
    with connected(shared_backend) as execute:
        execute("DROP TABLE cs_collections")
    assert problems(cli) == [("error", "schema", "")]
    assert "cs_collections is missing" in findings(cli)[0]["problem"]


def test_a_table_of_keys_that_was_dropped_by_hand(
    cli: Cli, store: Store, shared_backend: Backend
) -> None:
    store["people"].create_index("tags", unique=True, arrays=True)
    [index] = store["people"].indexes()
    with connected(shared_backend) as execute:
        execute(f'DROP TABLE "{index.physical}"')
    assert problems(cli) == [("error", "indexes", "people")]
    [missing] = [each for each in findings(cli) if each["severity"] == "error"]
    assert "duplicates are not refused" in missing["problem"]
    cli.done("index", "drop", "people", index.name)
    assert problems(cli, 0) == []


def test_what_was_dropped_by_hand(cli: Cli, store: Store, shared_backend: Backend) -> None:
    for name in ("gone", "people", "watched"):
        store.collection(name, changes=name == "watched").put("a", {"n": 1})
    store["people"].create_index("n")
    store["people"].create_index("login", unique=True)
    [plain, *_, unique] = [each.physical for each in store["people"].indexes()]
    with connected(shared_backend) as execute:
        execute(f"DROP TABLE {table_of(execute, 'gone')}")
        execute(f'DROP INDEX "{plain}"')
        execute(f'DROP INDEX "{unique}"')
        changes = table_of(execute, "watched").replace("_watched", "$changes")
        execute(f'DROP TABLE "{changes}"')
    found = findings(cli)
    assert [each["where"] for each in found if each["severity"] == "error"] == [
        "gone",
        "people",
        "watched",
    ]
    [missing] = [each for each in found if each["severity"] == "warning"]
    assert (missing["check"], missing["where"]) == ("indexes", "people")
    assert "'n_1'" in missing["problem"]
    assert "collections-store index drop people n_1" in missing["advice"]
    cli.done("index", "drop", "people", "n_1")
    cli.done("index", "create", "people", "n")
    assert ("warning", "indexes", "people") not in problems(cli)


def test_the_advice_to_drop_an_index_is_a_command_for_a_shell(
    cli: Cli, store: Store, shared_backend: Backend
) -> None:
    store["people"].create_index("$updated_at")
    store["people"].create_index("n", name="it's mine; true")
    with connected(shared_backend) as execute:
        for index in store["people"].indexes():
            execute(f'DROP INDEX "{index.physical}"')
    advised = [each["advice"].split("`")[1] for each in findings(cli) if each["check"] == "indexes"]
    for advice in advised:
        program, *arguments = shlex.split(advice)
        assert program == "collections-store"
        cli.done(*arguments)
    assert len(advised) == 2
    assert "'$updated_at_1'" in advised[0] + advised[1]
    assert store["people"].indexes() == []


def test_the_tables_of_a_text_index_are_known(
    cli: Cli, store: Store, shared_backend: Backend
) -> None:
    store["notes"].create_text_index("t")
    store["notes"].put("1", {"t": "tea"})
    assert problems(cli, 0) == []
    [index] = store["notes"].indexes()
    with connected(shared_backend) as execute:
        execute(f'DROP TABLE "{index.physical}"')
    assert problems(cli) == [("error", "indexes", "notes")]
    [missing] = [each for each in findings(cli) if each["severity"] == "error"]
    assert "'text'" in missing["problem"]
    assert "collections-store index drop notes text" in missing["advice"]
    cli.done("index", "drop", "notes", "text")
    cli.done("index", "create", "notes", "t", "--text")
    assert problems(cli, 0) == []
    assert [each.id for each in store["notes"].search("tea")] == ["1"]


DAMAGES = {
    "lost": {
        "sqlite": ['DELETE FROM "{0}_docsize" WHERE id = (SELECT seq FROM "{1}" WHERE id = \'b\')'],
        "postgresql": ['DELETE FROM "{0}" WHERE seq = (SELECT seq FROM "{1}" WHERE id = \'b\')'],
    },
    "stale": {
        "sqlite": ['DROP TRIGGER "{0}_update"', 'UPDATE "{1}" SET body = \'{{"t": "cake"}}\' WHERE id = \'b\''],
        "postgresql": ['UPDATE "{0}" SET words = \'\' WHERE seq = (SELECT seq FROM "{1}" WHERE id = \'b\')'],
    },
    "left": {
        "sqlite": ['DROP TRIGGER "{0}_delete"', 'DELETE FROM "{1}" WHERE id = \'b\''],
        "postgresql": ['INSERT INTO "{0}" SELECT 4711, words, level FROM "{0}" LIMIT 1'],
    },
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_words_that_are_not_those_of_the_documents(
    cli: Cli, store: Store, shared_backend: Backend, damage: str
) -> None:
    notes = store["notes"]
    notes.create_text_index({"t": 2, "$body": 1})
    long = " ".join(f"word{n}" for n in range(20_000))
    notes.put_many(
        {"a": {"t": ["tea", "é \u0301 -", 5]}, "b": {"t": "a cup of tea"}, "c": "x " * 200}
    )
    notes.put_many({"d": {"t": long}, "e": 5, "f": {"t": ""}, "g": {"t": "tea " * 130}})
    assert problems(cli, 0) == []
    [index] = notes.indexes()
    with connected(shared_backend) as execute:
        table = table_of(execute, "notes")
        kind = "postgresql" if shared_backend.is_postgresql else "sqlite"
        for statement in DAMAGES[damage][kind]:
            execute(statement.format(index.physical, table))
    assert problems(cli) == [("error", "words", "notes")]
    [found] = [each for each in findings(cli) if each["check"] == "words"]
    named = "" if damage == "left" else ", of 'b' first"
    assert found["problem"] == f"the text index 'text' has other words than 1 documents{named}"
    assert "collections-store index drop notes text" in found["advice"]
    cli.done("index", "drop", "notes", "text")
    cli.done("index", "create", "notes", "t:2", "$body", "--text")
    assert problems(cli, 0) == []


def test_tables_that_the_catalogue_does_not_know(
    cli: Cli, store: Store, shared_backend: Backend
) -> None:
    store["people"].put("ada", 1)
    with connected(shared_backend) as execute:
        execute("CREATE TABLE cs_17_orphan (a INTEGER)")
        execute("CREATE TABLE cs_x_another_prefix (a INTEGER)")
        assert problems(cli) == [("warning", "catalogue", "cs_17_orphan")]
        execute('CREATE TABLE "cs_1$i9" (a INTEGER)')
        assert len(problems(cli)) == 2
        execute("UPDATE cs_collections SET options = 'damaged'")
        found = findings(cli)
    assert {(each["severity"], each["where"]) for each in found} >= {("error", "people")}
    assert "damaged" in found[0]["problem"]
    assert not any("cs_1$i9" in each["problem"] for each in found)  # it may be the collection's


def test_a_restore_that_was_interrupted(cli: Cli, store: Store, tmp_path: Path) -> None:
    store["people"].put_many({str(number): number for number in range(10)})
    store.backup(tmp_path / "a.jsonl")

    def stop(_: object) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        store.restore(tmp_path / "a.jsonl", ["people"], replace=True, progress=stop)
    assert problems(cli) == [("warning", "restores", "people")]
    store.restore(tmp_path / "a.jsonl", ["people"], replace=True)
    assert problems(cli, 0) == []


def test_what_nobody_purged(
    cli: Cli, store: Store, shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = store.collection("people", changes=True)
    people.put_many({str(number): number for number in range(10)}, ttl=3600)
    monkeypatch.setitem(LIMITS, "rows", 10)
    assert problems(cli, 0) == []
    with connected(shared_backend) as execute:
        execute(f"UPDATE {table_of(execute, 'people')} SET expires_at = 1")
        execute("UPDATE cs_collections SET options = replace(options, ':100000', ':4')")
    assert {kind for _, kind, _ in problems(cli)} >= {"expiry", "feed"}
    cli.done("purge")
    monkeypatch.undo()
    assert problems(cli, 0) == []


def test_text_has_the_advice_below_the_problem(
    cli: Cli, store: Store, shared_backend: Backend
) -> None:
    store["people"].put("ada", 1)
    with connected(shared_backend) as execute:
        execute("CREATE TABLE cs_17_orphan (a INTEGER)")
    result = cli("doctor")
    assert result.exit_code == 1
    problem, advice, *_ = result.stdout.splitlines()
    assert problem.startswith("warning: cs_17_orphan: the catalogue does not know")
    assert advice.startswith("    drop the table")
    assert result.stderr.startswith("Error: found 1 warning")


class TestFiles:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        with Store(f"sqlite:///{tmp_path / 'a.db'}") as store:
            things = store["things"]
            things.create_index("n")
            things.put_many({f"{n:05}": {"n": n, "text": "x" * 500} for n in range(1000)})
        return tmp_path / "a.db"

    @pytest.fixture
    def cli(self, file: Path) -> Cli:
        return Cli((f"--url=sqlite:///{file}",))

    def test_it_runs_beside_a_writer_and_changes_nothing(self, cli: Cli, file: Path) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE cs_1_things SET version = 2")
            before = file.read_bytes()
            assert problems(cli, 0) == []
            assert file.read_bytes() == before
            other.execute("ROLLBACK")
        for options in ("?mode=ro", "?immutable=1"):
            assert cli.done("doctor", f"sqlite:///{file}{options}")

    def test_it_leaves_no_file_beside_a_closed_database(self, cli: Cli, file: Path) -> None:
        assert problems(cli, 0) == []
        assert [each.name for each in file.parent.iterdir()] == ["a.db"]

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "is a folder" in Cli().fails(4, "doctor", f"sqlite:///{tmp_path}")

    def test_damaged_pages(self, cli: Cli, file: Path) -> None:
        whole = file.read_bytes()
        pages = range(2, len(whole) // 4096, 16)
        for page in pages:
            damaged = bytearray(whole)
            for offset in range(page * 4096, page * 4096 + 12):
                damaged[offset] ^= 0xFF
            file.write_bytes(damaged)
            assert ("error", "integrity", "") in problems(cli), page
        file.write_bytes(b"\xff" + whole[1:])
        assert "not a database" in cli.fails(4, "doctor")
        damaged = bytearray(whole)
        damaged[100:140] = bytes(40)  # the table of tables
        file.write_bytes(damaged)
        assert "restore it from a backup" in cli.fails(6, "doctor")

    def test_a_large_log(self, cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(LIMITS, "bytes", 2**20)
        with Store(f"sqlite:///{file}") as store, closing(sqlite3.connect(file)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM cs_1_things").fetchone() == (1000,)
            store["things"].put_many({f"{n:05}": {"text": "y" * 5000} for n in range(1000)})
            assert problems(cli) == [("warning", "log", "")]
            reader.rollback()
        assert problems(cli, 0) == []

    def test_free_pages(self, cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(LIMITS, "bytes", 2**16)
        assert not any(each["check"] == "bloat" for each in findings(cli, 0))
        with Store(f"sqlite:///{file}") as store:
            store["things"].delete_many({})
        [found] = [each for each in findings(cli, 0) if each["check"] == "bloat"]
        assert "MB of the file" in found["problem"]
        assert "scans" in [each["check"] for each in findings(cli, 0)]


class TestServers:
    @pytest.fixture
    def store(self, postgres_backend: Backend) -> Iterator[Store]:
        with Store(postgres_backend.url, **postgres_backend.options) as store:
            things = store["things"]
            things.create_index("n")
            things.put_many({f"{n:05}": {"n": n, "text": "x" * 50} for n in range(100)})
            yield store

    @pytest.fixture
    def cli(self, postgres_backend: Backend, store: Store) -> Cli:
        return cli_for(postgres_backend)

    def test_an_index_whose_creation_failed(self, cli: Cli, postgres_backend: Backend) -> None:
        with connected(postgres_backend) as execute:
            with pytest.raises(sa.exc.IntegrityError):
                execute("CREATE UNIQUE INDEX CONCURRENTLY broken ON cs_1_things (version)")
            [found] = [each for each in findings(cli) if each["severity"] == "warning"]
            assert (found["check"], found["where"]) == ("indexes", "things")
            assert "broken" in found["problem"]
            execute("DROP INDEX broken")
        assert problems(cli, 0) == []

    def test_statistics(
        self, cli: Cli, postgres_backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with connected(postgres_backend) as execute:
            execute("ALTER TABLE cs_1_things SET (autovacuum_enabled = false)")
            for _ in range(3):
                execute("SELECT sum(version) FROM cs_1_things").fetchall()
            execute("UPDATE cs_1_things SET version = version + 1")
            execute("SELECT pg_stat_force_next_flush()")
        assert problems(cli, 0) == []
        monkeypatch.setitem(LIMITS, "rows", 50)
        monkeypatch.setitem(LIMITS, "scans", 3)
        found = {(each["check"], each["where"]): each["problem"] for each in findings(cli)}
        assert "scans read 100 rows each" in found["scans", "things"]
        assert "100 dead rows" in found["bloat", "things"]
        assert "was not used since" in found["indexes", "things"]

    def test_transactions_and_slots(
        self, cli: Cli, postgres_backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert problems(cli, 0) == []
        monkeypatch.setitem(LIMITS, "seconds", 0)
        monkeypatch.setitem(LIMITS, "bytes", 0)
        name = f"slot_{postgres_backend.options['schema']}"
        with (
            psycopg.connect(postgres_backend.url, application_name="sleepy {0}") as idle,
            connected(postgres_backend) as execute,
        ):
            idle.execute("SELECT 1")
            execute(f"SELECT pg_create_physical_replication_slot('{name}', true)")
            try:
                found = findings(cli)
            finally:
                execute(f"SELECT pg_drop_replication_slot('{name}')")
        texts = [each["problem"] for each in found if each["severity"] == "warning"]
        assert any("'sleepy {0}' (idle in transaction)" in each for each in texts)
        assert any(name in each and "(inactive)" in each for each in texts)

    def test_a_role_that_may_only_select(self, cli: Cli, postgres_backend: Backend) -> None:
        role = f"role_{postgres_backend.options['schema']}"
        schema = postgres_backend.options["schema"]
        with connected(postgres_backend) as execute:
            execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
            execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
            execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
            url = sa.make_url(postgres_backend.url).set(username=role, password="secret")
            limited = Cli(
                (f"--url={url.render_as_string(hide_password=False)}", f"--schema={schema}")
            )
            try:
                found = findings(limited, 0)
                execute(f"REVOKE SELECT ON {schema}.cs_1_things FROM {role}")
                denied = problems(limited)
            finally:
                execute(f"DROP OWNED BY {role}")
                execute(f"DROP ROLE {role}")
        assert [each["where"] for each in found if each["check"] == "privileges"] == [""]
        assert "secret" not in json.dumps(found)
        assert denied == [("error", "schema", "")]

    def test_replicas(self, postgres_cluster: Cluster) -> None:
        primary = postgres_cluster.add()
        replica = postgres_cluster.add(primary)
        with Store(primary.url) as store:
            store["things"].put("a", 1)
        primary.wait_for(replica)
        url = sa.make_url(primary.url)

        def check(replicas: str, code: int) -> list[Problem]:
            whole = url.update_query_dict({"replicas": replicas})
            return problems(Cli((f"--url={whole.render_as_string(hide_password=False)}",)), code)

        assert check(replica.url, 0) == []
        [(severity, kind, where)] = check(primary.url, 1)  # no replica
        assert (severity, kind) == ("warning", "replication")
        assert where.startswith("postgresql")
        replica.kill()
        assert [kind for _, kind, _ in check(replica.url, 1)] == ["replication"]

    def test_a_damaged_index(self, postgres_cluster: Cluster) -> None:
        primary = postgres_cluster.add()
        with Store(primary.url) as store:
            store["things"].put_many({f"{n:05}": n for n in range(1000)})
        cli = Cli((f"--url={primary.url}",))
        if not primary.query("SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'"):
            assert any("amcheck" in each["problem"] for each in findings(cli, 0))
            pytest.skip("the server has no amcheck")
        primary.query("CREATE EXTENSION amcheck")
        assert not any("amcheck" in each["problem"] for each in findings(cli, 0))
        [(path,)] = primary.query("SELECT pg_relation_filepath('cs_1_things_pkey')")
        primary.query("CHECKPOINT")
        primary.shut_down()
        file = primary._data / path
        content = bytearray(file.read_bytes())
        for offset in range(8192 + 4000, 8192 + 8000):
            content[offset] ^= 0x55
        file.write_bytes(content)
        primary.start()
        assert ("error", "integrity", "") in problems(cli)


def test_an_index_whose_keys_this_python_cannot_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))
    cli.done("put", "things", "1", "{}")
    rules = '{"locale": "simple", "strength": 1}'
    cli.done("index", "create", "things", "w", "--collation", rules)
    before = findings(cli, 0)
    monkeypatch.setattr(unicodedata, "unidata_version", "99.0.0")
    [found] = [each for each in findings(cli) if each not in before]
    assert (found["severity"], found["check"], found["where"]) == ("error", "indexes", "things")
    assert "the index 'w_1' has keys of unicode" in found["problem"]
    assert "makes those of unicode 99.0.0" in found["problem"]
    assert "index drop things w_1" in found["advice"]
