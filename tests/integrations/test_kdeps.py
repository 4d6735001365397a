"""kdeps: its functions in Python, with the results of its documentation and source, and its files."""

import shlex
import sqlite3
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from backends import Backend, Opener
from cli.cli_process import Cli, cli_for
from conftest import Clock
from pages import DOCS, blocks

from collections_store import AsyncStore, InvalidBody, InvalidOption, Store
from collections_store.integrations import kdeps as classes
from collections_store.integrations.kdeps import MemoryStorage, Records
from collections_store.integrations.sqlite_files import import_kdeps, import_opsdroid
from collections_store.memory import Memory

PAGE = DOCS / "how-to" / "kdeps.md"
ODD = ["_?op=clear", "a?b", "a#b", "a%20b", "a b", "a/b", "a:b", "_", "a", "ä", ".", "'; --"]


class Classes:
    """kdeps' classes, of one variant."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    def __getattr__(self, name: str) -> Any:
        return partial(self._opener.kdeps, name)


@pytest.fixture
def kdeps(open_store: Opener) -> Classes:
    return Classes(open_store)


@pytest.fixture
def memory(store: Any) -> Any:
    return store.memory("agent")


# -- up to version 0.6 -----------------------------------------------------------------------


def test_items_behave_as_documented(kdeps: Any, memory: Any) -> None:
    items = kdeps.Items(memory)
    assert items.getItem("name") == ""
    assert items.setItem("name", "Ada") == "Ada"
    assert items.setItem("city", "Berlin") == "Berlin"
    assert items.getItem("name") == "Ada"
    assert [items.deleteItem("name"), items.deleteItem("name")] == ["Ada", ""]
    assert items.clear() == "Cleared 1 items"
    assert items.getItem("city") == ""


def test_records_behave_like_items(kdeps: Any, memory: Any) -> None:
    records = kdeps.Records(memory)
    assert [records.getRecord("name"), records.setRecord("name", "Ada")] == ["", "Ada"]
    assert [kdeps.Items(memory).getItem("name"), records.getRecord("name")] == ["Ada", "Ada"]
    assert [records.deleteRecord("name"), records.deleteRecord("name")] == ["Ada", ""]
    records.setRecord("name", "Ada")
    assert records.clear() == "Cleared 1 records"


def test_ids_are_literal(kdeps: Any, memory: Any) -> None:
    records = kdeps.Records(memory)
    for id in ODD:
        records.setRecord(id, f"value of {id}")
    assert {id: records.getRecord(id) for id in ODD} == {id: f"value of {id}" for id in ODD}
    assert records.clear() == f"Cleared {len(ODD)} records"


def test_empty_and_non_string_arguments_are_rejected(kdeps: Any, memory: Any) -> None:
    items, records, nothing = kdeps.Items(memory), kdeps.Records(memory), ""
    for call in (items.getItem, items.deleteItem, records.getRecord, records.deleteRecord):
        with pytest.raises(InvalidOption, match="id: must be a non-empty string, got "):
            call(nothing)
    for write in (items.setItem, records.setRecord):
        with pytest.raises(InvalidOption, match="id: must be a non-empty string, got "):
            write(nothing, "value")
        with pytest.raises(InvalidOption, match="value: must be a non-empty string, got "):
            write("id", nothing)
        number: Any = 3
        with pytest.raises(InvalidOption, match="value: must be a non-empty string, got 3"):
            write("id", number)
    assert memory.count() == 0


def test_a_session_lasts_one_request(kdeps: Any, memory: Any) -> None:
    kdeps.Records(memory).setRecord("name", "Ada")
    with kdeps.Records(memory.request()) as one, kdeps.Records(memory.request()) as two:
        one.setRecord("step", "1")
        assert [two.getRecord("step"), two.getRecord("name")] == ["", ""]
        assert one.getRecord("step") == "1"
    assert one.getRecord("step") == ""
    assert kdeps.Records(memory).getRecord("name") == "Ada"


def test_a_permanent_memory_is_not_cleared_by_its_context(kdeps: Any, memory: Any) -> None:
    records = kdeps.Records(memory)
    records.setRecord("name", "Ada")
    for each in (records, kdeps.Items(memory), kdeps.Items(memory.namespace("a"))):
        with pytest.raises(InvalidOption, match="it would delete this memory at its end"), each:
            pass
    assert records.getRecord("name") == "Ada"


@pytest.mark.parametrize("error", [None, ZeroDivisionError], ids=repr)
def test_a_session_is_always_cleared(
    kdeps: Any, memory: Any, error: type[Exception] | None
) -> None:
    request = memory.request()
    try:
        with kdeps.Records(request) as session:
            session.setRecord("step", "1")
            if error is not None:
                raise error
    except ZeroDivisionError:
        pass
    assert request.count() == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (False, "false"),
        (0, "0"),
        ("", ""),
        ({"a": ["ä"]}, '{"a": ["ä"]}'),
        ({b"a"}, "{b'a'}"),
        (date(2026, 1, 2), "2026-01-02"),
        ({b"a": 1}, "{b'a': 1}"),
    ],
    ids=repr,
)
def test_values_of_a_storage_are_read_as_json(
    kdeps: Any, memory: Any, value: Any, text: str
) -> None:
    storage, records = kdeps.MemoryStorage(memory), kdeps.Records(memory)
    storage.set("key", value)
    assert [records.getRecord("key"), records.deleteRecord("key")] == [text, text]


def test_functions_report_missing_values(kdeps: Any, memory: Any) -> None:
    items, records = kdeps.Items(memory), kdeps.Records(memory)
    assert [items.getItem("a"), records.getRecord("a")] == ["", ""]
    assert [items.deleteItem("a"), records.deleteRecord("a")] == ["", ""]
    assert [items.clear(), records.clear()] == ["Cleared 0 items", "Cleared 0 records"]


# -- from version 1.9 on ---------------------------------------------------------------------


def test_memory_stores_json(kdeps: Any, memory: Any) -> None:
    storage = kdeps.MemoryStorage(memory)
    values: dict[str, Any] = {"a": None, "b": 0, "c": "", "d": [1, 2.5, {"e": True}], "f": {}}
    for key, value in values.items():
        assert storage.set(key, value) is True
    assert {key: storage.get(key, "nothing") for key in values} == values
    assert [storage.fetch("a"), storage.fetch("g")] == [(None, True), (None, False)]
    assert storage.get("g", "nothing") == "nothing"
    storage.delete("a")
    storage.delete("a")
    assert storage.fetch("a") == (None, False)
    with pytest.raises(InvalidOption, match="key: must be a non-empty string, got "):
        storage.set("", 1)


def test_methods_report_missing_values(kdeps: Any, memory: Any) -> None:
    session = kdeps.SessionStorage(memory, "ada")
    for storage in (kdeps.MemoryStorage(memory), session):
        assert [storage.get("a"), storage.get("a", 7), storage.fetch("a")] == [
            None,
            7,
            (None, False),
        ]
        assert storage.delete("a") is None
    assert [session.touch("a"), session.is_expired("a")] == [False, True]
    assert [session.get_all(), session.clear()] == [{}, 0]


def test_values_of_a_memory_may_expire(clock: Clock, kdeps: Any, memory: Any) -> None:
    storage = kdeps.MemoryStorage(memory)
    storage.set("short", 1, ttl=10)
    storage.set("long", 2)
    clock.advance(11)
    assert [storage.get("short"), storage.get("long")] == [None, 2]


def test_a_session_has_a_sliding_ttl_of_30_minutes(clock: Clock, kdeps: Any, memory: Any) -> None:
    session = kdeps.SessionStorage(memory, "ada")
    session.set("cart", ["tea"])
    for _ in range(3):
        clock.advance(25 * 60)
        assert session.get("cart") == ["tea"]
    assert not session.is_expired("cart")
    clock.advance(31 * 60)
    assert session.is_expired("cart")
    assert session.fetch("cart") == (None, False)


def test_a_ttl_of_a_value_is_not_extended_by_reads(clock: Clock, kdeps: Any, memory: Any) -> None:
    session = kdeps.SessionStorage(memory, "ada")
    session.set("short", 1, ttl=timedelta(seconds=10))
    session.set("never", 2, ttl=0)
    session.set("never either", 3, ttl=-1)
    clock.advance(5)
    assert [session.get(key) for key in ("short", "never", "never either")] == [1, 2, 3]
    assert session.touch("short")  # a write restarts the ttl, a read does not
    clock.advance(9)
    assert session.get("short") == 1
    clock.advance(2)
    assert session.is_expired("short")
    assert not session.touch("short")
    clock.advance(10**7)
    assert [session.get("never"), session.get("never either")] == [2, 3]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("1w", 604_800),
        ("+1.5h", 5400),
        (".5h1.m", 1860),
        ("5000000us", 5),
        ("4000000µs1000000000ns", 5),
    ],
)
def test_durations_have_the_syntax_of_workflows(
    clock: Clock, kdeps: Any, memory: Any, text: str, seconds: float
) -> None:
    session = kdeps.SessionStorage(memory, "ada", ttl=text)
    session.set("key", 1)
    clock.advance(seconds * 0.9)
    assert not session.is_expired("key")
    clock.advance(seconds * 0.2)
    assert session.is_expired("key")


def test_a_session_may_never_expire(clock: Clock, kdeps: Any, memory: Any) -> None:
    for ttl in (0, -1.5, "0", "-0", "0s", "-1h", timedelta(0)):
        session = kdeps.SessionStorage(memory, "ada", ttl=ttl)
        session.set("key", ttl == 0)
        clock.advance(10**6)
        assert not session.is_expired("key")


@pytest.mark.parametrize(
    "ttl", ["", "7", "7x", "soon", "1h 30m", "h", "-", ".s", "٣s", "1m\n", "9" * 400 + "s"]
)
def test_invalid_durations_are_rejected(kdeps: Any, memory: Any, ttl: str) -> None:
    with pytest.raises(InvalidOption, match="must be a duration such as 90s, 1h30m or 7d"):
        kdeps.SessionStorage(memory, "ada", ttl=ttl)
    with pytest.raises(InvalidOption, match="must be a duration"):
        kdeps.MemoryStorage(memory).set("key", 1, ttl=ttl)


@pytest.mark.parametrize("ttl", [True, float("nan"), [1]], ids=repr)
def test_invalid_numbers_are_rejected(kdeps: Any, memory: Any, ttl: Any) -> None:
    with pytest.raises(InvalidOption, match="ttl"):
        kdeps.MemoryStorage(memory).set("key", 1, ttl=ttl)
    with pytest.raises(InvalidOption, match="ttl"):
        kdeps.SessionStorage(memory, "ada", ttl=ttl).set("key", 1)
    assert memory.count() == 0


def test_sessions_are_isolated(kdeps: Any, memory: Any) -> None:
    sessions = {id: kdeps.SessionStorage(memory, id) for id in ODD}
    for id, session in sessions.items():
        session.set("b:key", id)
        session.set("key", id)
    kdeps.MemoryStorage(memory).set("key", "the memory's")
    for id, session in sessions.items():
        assert session.get_all() == {"b:key": id, "key": id}
    assert sessions["a"].clear() == 2
    assert [sessions["a"].get_all(), len(sessions["a:b"].get_all())] == [{}, 2]
    assert kdeps.MemoryStorage(memory).get("key") == "the memory's"
    with pytest.raises(InvalidOption, match="session: must be a non-empty string, got "):
        kdeps.SessionStorage(memory, "")


def test_a_session_without_a_ttl_has_that_of_its_memory(
    clock: Clock, kdeps: Any, memory: Any
) -> None:
    within = memory.session("an hour", ttl=3600)
    lasting, passing = (kdeps.SessionStorage(each, "ada", ttl=None) for each in (memory, within))
    lasting.set("key", 1)
    passing.set("key", 2)
    clock.advance(3601)
    assert [lasting.get_all(), passing.get_all()] == [{"key": 1}, {}]


@pytest.mark.parametrize("name", ["Items", "Records", "MemoryStorage", "SessionStorage"])
def test_sync_and_async_memories_cannot_be_mixed(name: str) -> None:
    sync_class, async_class = getattr(classes, name), getattr(classes, f"Async{name}")
    rest = ("ada",) * (name == "SessionStorage")
    with Store("sqlite://") as store:
        with pytest.raises(
            InvalidOption, match=r"^option memory: must be an AsyncMemory for .* got Memory$"
        ):
            async_class(store.memory("agent"), *rest)
        other: Any = AsyncStore("sqlite://").memory("agent")
        with pytest.raises(
            InvalidOption, match="memory: must be .* a Memory for others, got AsyncMemory"
        ):
            sync_class(other, *rest)
        with pytest.raises(InvalidOption, match="memory: must be .* a Memory for others, got dict"):
            sync_class({}, *rest)


def test_a_session_lists_many_values(kdeps: Any, memory: Any) -> None:
    session = kdeps.SessionStorage(memory, "ada")
    for number in range(150):
        session.set(f"key {number}", number)
    assert session.get_all() == {f"key {number}": number for number in range(150)}


# -- files of kdeps' -------------------------------------------------------------------------


@pytest.fixture
def plain(backend: Backend) -> Iterator[Memory]:
    with Store(backend.url, **backend.options) as store:
        yield store.memory("agent")


TABLES = {
    "items": "CREATE TABLE items (id TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "records": "CREATE TABLE records (id TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "memory": "CREATE TABLE memory (key TEXT PRIMARY KEY, value TEXT NOT NULL, "
    "created_at DATETIME DEFAULT CURRENT_TIMESTAMP, updated_at DATETIME DEFAULT CURRENT_TIMESTAMP)",
}


def kdeps_file(folder: Path, **rows: dict[str, Any]) -> Path:
    """Write a file as kdeps does since 1.9: in WAL mode."""
    connection = sqlite3.connect(folder / "memory.db")
    connection.execute("PRAGMA journal_mode = WAL")
    for table, values in rows.items():
        connection.execute(TABLES[table])
        key = "key" if table == "memory" else "id"
        words = f"INSERT INTO {table} ({key}, value) VALUES (?, ?)"
        connection.executemany(words, values.items())
    connection.commit()
    connection.close()
    return folder / "memory.db"


@pytest.mark.parametrize("table", ["items", "records"])
def test_a_file_up_to_0_6_is_imported(plain: Memory, tmp_path: Path, table: str) -> None:
    file = kdeps_file(tmp_path, **{table: {"name": "Ada", "number": "3", "json": '{"a": 1}'}})
    before = file.read_bytes()
    assert import_kdeps(plain, file) == 3
    records = Records(plain)
    found = [records.getRecord(id) for id in ("name", "number", "json")]
    assert found == ["Ada", "3", '{"a": 1}']
    assert file.read_bytes() == before


def test_a_file_from_1_9_on_is_imported(plain: Memory, tmp_path: Path) -> None:
    rows = {"number": "3", "null": "null", "json": '{"a": [1.5]}', "text": '"Ada"', "bare": "Ada"}
    assert import_kdeps(plain, kdeps_file(tmp_path, memory=rows)) == 5
    storage = MemoryStorage(plain)
    expected = {"number": 3, "null": None, "json": {"a": [1.5]}, "text": "Ada", "bare": "Ada"}
    assert {key: storage.get(key, "nothing") for key in rows} == expected


@pytest.mark.parametrize("table", ["items", "records", "memory"])
def test_invalid_values_change_nothing(plain: Memory, tmp_path: Path, table: str) -> None:
    """Bytes that a program writes are text; no other value is converted."""
    file = kdeps_file(tmp_path, **{table: {"bytes": '"é"'.encode(), "text": '"é"'}})
    assert import_kdeps(plain, file) == 2
    assert plain.get("bytes") == plain.get("text") == ("é" if table == "memory" else '"é"')
    (tmp_path / "bad").mkdir()
    file = kdeps_file(tmp_path / "bad", **{table: {"text": "new", "bad": b"\xff"}})
    with pytest.raises(InvalidBody, match=f"'{table}.bad': the row must hold text"):
        import_kdeps(plain, file)
    assert (plain.get("text") != "new", plain.count()) == (True, 2)


def test_the_newest_of_several_tables_is_read(plain: Memory, tmp_path: Path) -> None:
    old, new = {"a": "old", "b": "old"}, {"b": "new"}
    assert import_kdeps(plain, kdeps_file(tmp_path, items=old, records=new)) == 2
    assert [Records(plain).getRecord(id) for id in "ab"] == ["old", "new"]


def test_a_file_of_another_program_changes_nothing(plain: Memory, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE memory (user TEXT, data TEXT)")
    connection.close()
    with pytest.raises(
        InvalidOption, match=r"no table 'items' \(id, value\) and no.*are: 'memory'"
    ):
        import_kdeps(plain, tmp_path / "other.db")
    assert plain.count() == 0


def test_a_file_is_imported_from_the_command_line(shared_backend: Backend, tmp_path: Path) -> None:
    cli, file = cli_for(shared_backend), kdeps_file(tmp_path, records={"name": "Ada"})
    done = cli("import-kdeps", str(file), "--namespace", "agent")
    assert (done.exit_code, done.stderr) == (0, f"imported 1 value from '{file}' into agent\n")
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert Records(store.memory("agent")).getRecord("name") == "Ada"


def test_files_of_several_agents_are_imported_separately(plain: Memory, tmp_path: Path) -> None:
    for agent in ("one", "my_memory"):
        file = kdeps_file(tmp_path, records={"name": agent}).rename(tmp_path / f"{agent}_memory.db")
        assert import_kdeps(plain, file) == 1
    found = [Records(plain.namespace(each)).getRecord("name") for each in ("one", "my_memory")]
    assert (found, plain.count()) == (["one", "my_memory"], 0)


@pytest.mark.parametrize("table", ["records", "memory"])
def test_invalid_values_are_skipped_or_repaired_on_request(
    shared_backend: Backend, tmp_path: Path, table: str
) -> None:
    rows = {"good": "1", "bad": b"\xff", "nul": "a\0b", "": "no key", "last": "2"}
    file, cli = kdeps_file(tmp_path, **{table: rows}), cli_for(shared_backend)
    assert cli("import-kdeps", str(file)).exit_code == 3
    done = cli("import-kdeps", str(file), "--skip-errors", "--namespace", "a", "--namespace", "b")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.endswith(f"from '{file}' into a/b, skipped 2 values\n")
    done = cli("import-kdeps", str(file), "--skip-errors", "--nul", "replace")
    assert done.stderr.endswith("into kdeps, skipped 1 value\n")
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert store.memory("a").namespace("b").keys() == ["", "good", "last"]
        assert store.memory("kdeps").get("nul") == "a\ufffdb"


def test_the_command_of_the_page_imports_data_of_kdeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From kdeps' file to that of the page's program."""
    [command] = [block.text for block in blocks(PAGE) if "import-kdeps" in block.text]
    (tmp_path / ".kdeps").mkdir()
    kdeps_file(tmp_path / ".kdeps", memory={"greeting": '{"de": "Hallo"}'})
    monkeypatch.chdir(tmp_path)
    words = [word.replace("~", str(tmp_path)) for word in shlex.split(command.replace("\\\n", ""))]
    done = Cli()(*words[1:])
    assert (words[0], done.exit_code) == ("collections-store", 0), done.stderr
    with Store("sqlite:///agents.db") as store:
        assert MemoryStorage(store.memory("kdeps")).get("greeting") == {"de": "Hallo"}


@pytest.mark.parametrize("load", [import_kdeps, import_opsdroid])
def test_import_needs_a_synchronous_memory(tmp_path: Path, load: Any) -> None:
    file = kdeps_file(tmp_path, memory={"a": "1"})
    with pytest.raises(
        InvalidOption, match=r"memory: must be a Memory, from Store\.memory\(\), got AsyncMemory"
    ):
        load(AsyncStore("sqlite://").memory("kdeps"), file)
