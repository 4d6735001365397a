"""The real opsdroid: its loader, its memory, its files, and a bot in processes."""

import asyncio
import builtins
import json
import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from backends import Backend
from cli.cli_process import Cli
from pages import DOCS, ROOT, blocks
from selection import sampled

from collections_store import (
    DatabaseUnavailable,
    InvalidBody,
    InvalidOption,
    InvalidUrl,
    Store,
    StoreClosed,
)
from collections_store.integrations.sqlite_files import import_opsdroid

if not os.environ.get("CI"):
    pytest.importorskip("opsdroid", reason="opsdroid is not installed: pip install -e '.[dev]'")

import aiohttp
from opsdroid.database.sqlite import DatabaseSqlite
from opsdroid.memory import Memory

from collections_store.integrations.opsdroid import DatabaseCollectionsStore

PAGE = DOCS / "how-to" / "opsdroid.md"
MODULE = "collections_store.integrations.opsdroid"
SUMMER = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
VALUES = [
    None, False, 0, "", [], {}, 2**70, 1.5, "Ada", [1, [2]], {"a": {"b": None}}, {1: "a", "1": "b"},
    SUMMER, datetime(2026, 11, 21, 9), date(2026, 11, 21), time(9, tzinfo=UTC), timedelta(1),
    Decimal("1.50"), b"\x00", {1, 2}, (1, 2), {"__class__": "date"}, {"key": 1, "_id": 2},
]  # fmt: skip


@pytest.fixture(autouse=True)
def translation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running opsdroid has this builtin."""
    monkeypatch.setattr(builtins, "_", str, raising=False)


@pytest.fixture
def config(shared_backend: Backend) -> dict[str, Any]:
    return {"name": "memory", "url": shared_backend.url, **shared_backend.options}


@asynccontextmanager
async def connected(config: dict[str, Any]) -> AsyncIterator[DatabaseCollectionsStore]:
    database = DatabaseCollectionsStore(config)
    await database.connect()
    try:
        yield database
    finally:
        await database.disconnect()


def run(
    config: dict[str, Any], function: Callable[[DatabaseCollectionsStore], Awaitable[Any]]
) -> Any:
    """Return the result of a function with a connected database, on a new event loop."""

    async def main() -> Any:
        async with connected(config) as database:
            return await function(database)

    return asyncio.run(main())


# -- a database ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_restored(config: dict[str, Any], value: Any) -> None:
    async def keep(database: DatabaseCollectionsStore) -> None:
        assert await database.put("key", value) is True

    async def find(database: DatabaseCollectionsStore) -> None:
        found = [await database.get("key"), await database.delete("key")]
        assert found == [value, value]
        assert type(found[0]) is type(value)
        assert [await database.get("key"), await database.delete("key")] == [None, None]

    run(config, keep)
    run(config, find)


def test_a_datetime_keeps_its_zone(config: dict[str, Any]) -> None:
    async def keep(database: DatabaseCollectionsStore) -> Any:
        await database.put("then", SUMMER)
        return await database.get("then")

    found = run(config, keep)
    assert (found.tzinfo, found.fold) == (SUMMER.tzinfo, 1)
    assert found.utcoffset() == timedelta(hours=1)


def test_creation_and_use_in_different_loops(config: dict[str, Any]) -> None:
    async def make() -> DatabaseCollectionsStore:
        return DatabaseCollectionsStore(config)

    database = asyncio.run(make())
    assert asyncio.run(database.connect()) is None
    assert asyncio.run(database.put("a", 1)) is True
    assert asyncio.run(database.get("a")) == 1
    asyncio.run(database.disconnect())


def test_use_before_connect_is_an_error(config: dict[str, Any]) -> None:
    database = DatabaseCollectionsStore(config)
    for call in (database.put("a", 1), database.get("a"), database.delete("a")):
        with pytest.raises(StoreClosed, match="the database 'memory' is not connected"):
            asyncio.run(call)
    with pytest.raises(StoreClosed), database.memory_in_room("kitchen"):
        pass


def test_repeated_connect_and_disconnect_do_nothing(config: dict[str, Any]) -> None:
    async def main() -> None:
        database = DatabaseCollectionsStore(config)
        await database.disconnect()
        await database.connect()
        client = database.client
        await database.connect()
        assert database.client is client
        await database.disconnect()
        await database.disconnect()
        await database.connect()
        assert await database.put("a", 1)
        await database.disconnect()

    asyncio.run(main())


def test_an_unreachable_database_is_an_error_at_connect(tmp_path: Path) -> None:
    database = DatabaseCollectionsStore({"url": f"sqlite:///{tmp_path}/nowhere/bot.db"})
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(database.connect())
    assert database.client is None


def test_an_empty_url_is_an_error(tmp_path: Path) -> None:
    """`url: $DATABASE_URL` is empty if the variable is: the bot would use another database."""
    database = DatabaseCollectionsStore({"name": "bots", "url": ""})
    with pytest.raises(InvalidUrl) as failed:
        asyncio.run(database.connect())
    assert failed.value.__notes__ == ["in opsdroid's database 'bots'"]
    assert database.client is None
    assert database.database is None


def test_concurrent_connects_open_one_store(config: dict[str, Any]) -> None:
    async def main() -> None:
        database = DatabaseCollectionsStore(config)
        first = asyncio.create_task(database.connect())
        await asyncio.sleep(0)
        client = database.client
        await asyncio.gather(first, database.connect())
        assert database.client is client
        assert await database.put("a", 1)
        await database.disconnect()

    asyncio.run(main())


@pytest.mark.parametrize("key", [None, 1, 1.5, True, b"a", ("a",), "a\0b", "\ud800", "k" * 2000])
def test_invalid_keys_are_rejected(config: dict[str, Any], key: Any) -> None:
    async def main(database: DatabaseCollectionsStore) -> None:
        for call in (lambda: database.put(key, 1), lambda: database.get(key)):
            with pytest.raises(InvalidOption, match="key"):
                await call()
        with pytest.raises(InvalidOption, match="key"):
            await database.delete(key)
        assert await database.memory.count() == 0

    run(config, main)


@pytest.mark.parametrize("key", ["", " ", "a/b", "$id", "'; --", "ä", "\U0010ffff", "k" * 1999])
def test_keys_are_any_other_strings(config: dict[str, Any], key: str) -> None:
    async def main(database: DatabaseCollectionsStore) -> None:
        assert await database.put(key, key) is True
        assert [await database.get(key), await database.delete(key)] == [key, key]
        assert await database.delete(key) is None

    run(config, main)


@pytest.mark.parametrize(
    "value", [object(), "a\0b", [{"a": "\ud800"}]], ids=["object", "nul", "odd"]
)
def test_a_rejected_value_keeps_the_old_one(config: dict[str, Any], value: object) -> None:
    async def main(database: DatabaseCollectionsStore) -> None:
        await database.put("key", "old")
        with pytest.raises(InvalidBody):
            await database.put("key", value)
        assert await database.get("key") == "old"

    run(config, main)


def test_unknown_options_are_named(config: dict[str, Any]) -> None:
    odd: dict[Any, Any] = {**config, 1: 2, "zone": 3}
    with pytest.raises(InvalidOption, match=r"option 1: the database 'memory' takes url"):
        DatabaseCollectionsStore(odd)
    with pytest.raises(InvalidOption, match=r"path.*the database 'memory' takes url, namespace"):
        DatabaseCollectionsStore({**config, "path": "/data/memory.db"})
    with pytest.raises(InvalidOption, match="durability"):
        asyncio.run(DatabaseCollectionsStore({**config, "durability": "half"}).connect())


def test_namespaces_are_isolated(config: dict[str, Any]) -> None:
    async def main() -> None:
        other = {**config, "namespace": "other"}
        async with connected(config) as one, connected(other) as two:
            await one.put("a", 1)
            assert await two.get("a") is None

    asyncio.run(main())


def test_eighty_concurrent_puts_from_two_instances(config: dict[str, Any]) -> None:
    async def main() -> None:
        async with connected(config) as one, connected(config) as two:
            puts = [each.put("key", n) for n in range(20) for each in (one, two)]
            puts += [each.put(f"key {n}", n) for n in range(20) for each in (one, two)]
            assert await asyncio.gather(*puts) == [True] * 80
            assert await one.get("key") in range(20)
            assert [await two.get(f"key {n}") for n in range(20)] == list(range(20))

    asyncio.run(main())


WRITER = """
import asyncio, json, sys
from collections_store.integrations.opsdroid import DatabaseCollectionsStore

async def main():
    one, two = (DatabaseCollectionsStore(json.loads(sys.argv[1])) for _ in range(2))
    await asyncio.gather(one.connect(), two.connect())
    puts = [each.put(key, n) for n in range(20) for each in (one, two) for key in ("key", f"{sys.argv[2]} {n}")]
    assert await asyncio.gather(*puts) == [True] * 80
    await asyncio.gather(*(each.memory.increment("puts") for each in (one, two) for _ in range(40)))
    await one.disconnect()
    await two.disconnect()

asyncio.run(main())
"""


def test_eighty_concurrent_puts_from_each_of_two_processes(config: dict[str, Any]) -> None:
    """In an empty database."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", WRITER, json.dumps(config)]
    writers = [subprocess.Popen([*command, str(n)], env=environment) for n in range(2)]
    assert [each.wait(60) for each in writers] == [0, 0]
    with Store(
        config["url"], **{k: v for k, v in config.items() if k not in {"name", "url"}}
    ) as store:
        found = all_of(store)
    assert found.pop("key") in range(20)
    assert found.pop("puts") == 160
    assert found == {f"{process} {n}": n for process in range(2) for n in range(20)}


def test_a_reader_sees_no_gap_while_a_key_is_overwritten(config: dict[str, Any]) -> None:
    async def main() -> None:
        async with connected(config) as writer, connected(config) as reader:
            await writer.put("key", {"n": 0})
            done = asyncio.Event()

            async def write() -> None:
                for n in range(1, 101):
                    await writer.put("key", {"n": n})
                done.set()

            async def read() -> list[Any]:
                seen = []
                while not done.is_set():
                    seen.append(await reader.get("key"))
                return seen

            _, seen = await asyncio.gather(write(), read())
            assert seen
            assert None not in seen
            assert [each["n"] for each in seen] == sorted(each["n"] for each in seen)

    asyncio.run(main())


# -- scopes ----------------------------------------------------------------------------------


def test_concurrent_skills_keep_their_rooms(config: dict[str, Any]) -> None:
    async def skill(database: DatabaseCollectionsStore, memory: Any, room: str) -> None:
        with database.memory_in_room(room) as view:
            for n in range(5):
                await memory.put("topic", [room, n])
                await asyncio.sleep(0)
                assert await memory.get("topic") == [room, n]
                assert await view.get("topic") == [room, n]

    async def main(database: DatabaseCollectionsStore) -> None:
        memory = Memory()
        memory.databases = [database]
        await memory.put("topic", "no room's")
        await asyncio.gather(*(skill(database, memory, f"room {n}") for n in range(8)))
        assert await memory.get("topic") == "no room's"

    run(config, main)


def test_a_room_ends_with_its_context_even_on_errors(config: dict[str, Any]) -> None:
    async def main(database: DatabaseCollectionsStore) -> None:
        with pytest.raises(ZeroDivisionError), database.memory_in_room("kitchen"):
            await database.put("topic", 1 // 0)
        with database.memory_in_room("kitchen"), database.memory_in_room("garden"):
            await database.put("topic", "weeds")
        with database.memory_in("room", "garden"):
            assert await database.get("topic") == "weeds"
            assert await asyncio.create_task(database.get("topic")) == "weeds"
        assert await database.get("topic") is None

    run(config, main)


def test_a_room_is_bound_to_one_database(config: dict[str, Any]) -> None:
    async def main() -> None:
        async with connected(config) as one, connected({**config, "namespace": "two"}) as two:
            with one.memory_in_room("kitchen"):
                await one.put("a", 1)
                await two.put("a", 2)
            assert [await one.get("a"), await two.get("a")] == [None, 2]

    asyncio.run(main())


def test_a_room_is_reentrant_and_concurrent(config: dict[str, Any]) -> None:
    async def main(database: DatabaseCollectionsStore) -> None:
        kitchen = database.memory_in_room("kitchen")

        async def skill(n: int) -> None:
            with kitchen, database.memory_in_room("garden"), kitchen as view:
                await asyncio.sleep(0)
                await database.put(f"{n}", await view.increment("count"))
            await database.put("last", n)

        await asyncio.gather(*(skill(n) for n in range(4)))
        with kitchen:
            found = {key: await database.get(key) for key in "0123"}
            assert sorted(found.values()) == [1, 2, 3, 4]
        assert await database.memory.keys() == ["last"]

    run(config, main)


def test_a_room_is_not_a_decorator(config: dict[str, Any]) -> None:
    """A coroutine function runs after its decorator has exited: it would have no room."""

    async def main(database: DatabaseCollectionsStore) -> None:
        for bound in (database.memory_in_room("kitchen"), database.memory_in("room")):
            assert not callable(bound)

    run(config, main)


def test_rooms_of_connectors_may_be_numbers_or_none(config: dict[str, Any]) -> None:
    async def main(database: DatabaseCollectionsStore) -> None:
        rooms = None, 42, -7, "kitchen"
        for room in rooms:
            with database.memory_in_room(room):
                await database.put("topic", room)
        for room in rooms:
            with database.memory_in_room(room):
                assert await database.get("topic") == room
        assert await database.get("topic") is None

    run(config, main)


def test_rooms_of_connectors_may_be_objects(config: dict[str, Any]) -> None:
    """Webex Teams' target is a dict, and that of Teams a reference, in which the rest differs between messages."""

    def reference(message: str) -> Any:
        return SimpleNamespace(activity_id=message, conversation=SimpleNamespace(id="19:abc"))

    async def main(database: DatabaseCollectionsStore) -> None:
        targets: list[tuple[Any, Any]] = [
            ({"id": "Y2lz", "type": "group"}, {"id": "Y2lz", "type": "direct"}),
            (reference("1"), reference("2")),
        ]
        for target, later in targets:
            with database.memory_in_room(target):
                await database.put("topic", "tea")
            with database.memory_in_room(later):
                assert await database.memory.pop("topic") == "tea"
        with database.memory_in_room({"id": "kitchen"}), database.memory_in("room", "kitchen"):
            await database.put("topic", "tea")
        with database.memory_in_room("kitchen"):
            assert await database.get("topic") == "tea"
        bad: Any
        for bad in ({}, {"id": None}, {"id": ["a"]}, True, SimpleNamespace(id="a")):
            with pytest.raises(InvalidOption, match="namespace: must be a string, got"):
                database.memory_in_room(bad)

    run(config, main)


@pytest.mark.parametrize("room", [True, 1.5, b"a", ["a"]])
def test_invalid_rooms_are_rejected(config: dict[str, Any], room: Any) -> None:
    async def main(database: DatabaseCollectionsStore) -> None:
        with (
            pytest.raises(InvalidOption, match="must be a string, got "),
            database.memory_in_room(room),
        ):
            pass

    run(config, main)


# -- files of opsdroid -----------------------------------------------------------------------

STORED = {
    "text": "Grüße", "number": 0, "nothing": None, "list": [1, "a"], "nested": {"at": [date(2026, 1, 2)]},
    "datetime": datetime(2026, 11, 21, 9, 8, 7, 6), "time": time(1, 2, 3), "$key": {"$date": 1},
}  # fmt: skip


def opsdroid_file(folder: Path, table: str = "opsdroid") -> Path:
    """Let opsdroid's own SQLite database write all values that it can."""

    async def write() -> None:
        database = DatabaseSqlite({"path": str(folder / "sqlite.db"), "table": table})
        await database.connect()
        for key, value in STORED.items():
            await database.put(key, value)
        await database.disconnect()

    asyncio.run(write())
    return folder / "sqlite.db"


def all_of(store: Any, namespace: str = "opsdroid") -> dict[str, Any]:
    return dict(store.memory(namespace).items(limit=1000))


def test_a_file_of_opsdroid_is_imported(shared_backend: Backend, tmp_path: Path) -> None:
    file = opsdroid_file(tmp_path)
    before = file.read_bytes()
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert import_opsdroid(store.memory("opsdroid"), file) == len(STORED)
        assert all_of(store) == STORED
    assert file.read_bytes() == before
    assert sorted(each.name for each in tmp_path.glob("sqlite.db*")) == ["sqlite.db"]


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a b?mode=rw#c%20d"
    folder.mkdir()
    file = opsdroid_file(folder)
    with Store("sqlite://") as store:
        assert import_opsdroid(store.memory("opsdroid"), str(file)) == len(STORED)
    assert [each.name for each in folder.iterdir()] == ["sqlite.db"]
    assert not list(folder.parent.glob("a b"))


def test_many_values_are_imported(shared_backend: Backend, tmp_path: Path) -> None:
    file = opsdroid_file(tmp_path)
    with sqlite3.connect(file) as connection:
        rows = [(f"key {n}", str(n)) for n in range(5_000)]
        connection.executemany("INSERT INTO opsdroid VALUES (?, ?)", rows)
    connection.close()
    with Store(shared_backend.url, **shared_backend.options) as store:
        memory = store.memory("opsdroid")
        assert import_opsdroid(memory, file) == len(STORED) + 5_000
        assert import_opsdroid(memory, file) == memory.count() == len(STORED) + 5_000


def test_values_without_a_key_are_not_imported(tmp_path: Path) -> None:
    async def write() -> None:
        database = DatabaseSqlite({"path": str(tmp_path / "sqlite.db")})
        await database.connect()
        for key in (None, 1, "name"):
            await database.put(key, "Ada")
        assert await database.get(None) is None
        await database.disconnect()

    asyncio.run(write())
    with Store("sqlite://") as store:
        assert import_opsdroid(store.memory("opsdroid"), tmp_path / "sqlite.db") == 2
        assert all_of(store) == {"1": "Ada", "name": "Ada"}


def test_objects_that_resemble_dates_stay_objects(tmp_path: Path) -> None:
    file = opsdroid_file(tmp_path)
    odd = [{"__class__": "date"}, {"__class__": "date", "year": 0, "month": 1, "day": 1}]
    odd += [{"__class__": "Robot", "year": 1}, {"__class__": 3}, {"__class__": ["date"]}]
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO opsdroid VALUES ('odd', ?)", (json.dumps(odd),))
    connection.close()
    with Store("sqlite://") as store:
        import_opsdroid(store.memory("opsdroid"), file)
        assert store.memory("opsdroid").get("odd") == odd


def test_a_file_that_cannot_be_imported_changes_nothing(tmp_path: Path) -> None:
    file = opsdroid_file(tmp_path, table="bot")
    with Store("sqlite://") as store:
        memory = store.memory("opsdroid")
        with pytest.raises(InvalidOption, match=r"no table 'opsdroid'.*its tables are: 'bot'"):
            import_opsdroid(memory, file)
        with pytest.raises(DatabaseUnavailable, match=r"no SQLite file '/nowhere/sqlite\.db'"):
            import_opsdroid(memory, "/nowhere/sqlite.db")
        (tmp_path / "text").write_text("no database, but long enough to look like one " * 50)
        with pytest.raises(DatabaseUnavailable, match="no SQLite database"):
            import_opsdroid(memory, tmp_path / "text")
        with sqlite3.connect(file) as connection:
            connection.execute("INSERT INTO bot VALUES ('bad', '{')")
        connection.close()
        with pytest.raises(InvalidBody, match=r"bot\.bad.*must hold JSON"):
            import_opsdroid(memory, file, table="bot")
        assert memory.count() == 0


def test_the_command_of_the_page_imports_data_of_opsdroid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From opsdroid's default file to that of the page's bot."""
    [command] = [block.text for block in blocks(PAGE) if "import-opsdroid" in block.text]
    folder = tmp_path / ".local" / "share" / "opsdroid"
    folder.mkdir(parents=True)
    opsdroid_file(folder)
    monkeypatch.chdir(tmp_path)
    words = [word.replace("~", str(tmp_path)) for word in shlex.split(command.replace("\\\n", ""))]
    done = Cli()(*words[1:])
    assert (words[0], done.exit_code) == ("collections-store", 0), done.stderr
    with Store("sqlite:///bot.db") as store:
        assert all_of(store) == STORED


# -- the loader, and a bot -------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this library, installed from its wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture
def environment(installed: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a process of opsdroid: its own home, and this library installed."""
    home = {name: str(tmp_path / "home") for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    return {**inherited, **home, **quiet, "PYTHONPATH": str(installed)}


LOADING = """
import asyncio, json, sys
from opsdroid.cli.utils import configure_lang
from opsdroid.core import OpsDroid
from opsdroid.loader import Loader
configure_lang({})
with OpsDroid() as opsdroid:
    configs = json.loads(sys.argv[1])
    loaded = Loader(opsdroid).load_modules_from_config(
        {"databases": configs, "connectors": {"websocket": {}}}
    )["databases"]
    asyncio.run(opsdroid.setup_databases(loaded))
    for database in opsdroid.memory.databases:
        kind = type(database)
        assert opsdroid.get_database(database.name) is database
        print(kind.__name__, kind.__module__, database.name, database.config.get("url"))
"""


def test_the_loader_finds_the_module_and_the_entry_point(
    environment: dict[str, str], tmp_path: Path
) -> None:
    configs = {
        "bots": {"module": MODULE, "url": "sqlite:///bots.db"},
        "collections_store": None,
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADING, json.dumps(configs)],
        check=False, cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        f"DatabaseCollectionsStore {MODULE} bots sqlite:///bots.db",
        f"DatabaseCollectionsStore {MODULE} collections_store None",
    ], done.stderr


def test_an_invalid_option_stops_opsdroid(environment: dict[str, str], tmp_path: Path) -> None:
    configs = {"collections_store": {"url": 5}}
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADING, json.dumps(configs)],
        check=False, cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert "url" in done.stdout + done.stderr


def test_the_default_database_is_a_file_in_opsdroids_folder(
    environment: dict[str, str], tmp_path: Path
) -> None:
    script = (
        f"import asyncio; from {MODULE} import DatabaseCollectionsStore as Database; "
        "database = Database({}); asyncio.run(database.connect()); "
        "asyncio.run(database.put('a', 1)); asyncio.run(database.disconnect())"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True, env=environment)
    file = tmp_path.joinpath("home", "opsdroid", "collections_store.db")
    with Store(f"sqlite:///{file}") as store:
        assert all_of(store) == {"a": 1}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Bot:
    """A bot with the page's configuration and skill, in a new process."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self._folder, self._process = folder, process
        self._url = f"http://127.0.0.1:{port}/connector/websocket"

    def hears(self, *texts: str) -> list[str]:
        """Return the bot's replies."""
        return asyncio.run(self._talk(texts))

    def replies_in_rooms(self, *talks: list[str]) -> list[list[str]]:
        """Return the bot's replies in several rooms: a connection is a room."""

        async def main() -> list[list[str]]:
            return await asyncio.gather(*(self._talk(tuple(texts)) for texts in talks))

        return asyncio.run(main())

    async def _talk(self, texts: tuple[str, ...]) -> list[str]:
        answers = []
        async with aiohttp.ClientSession() as session:
            id = await self._socket(session)
            async with session.ws_connect(f"{self._url}/{id}") as websocket:
                for text in texts:
                    await websocket.send_json({"message": text, "user": "ada", "socket": id})
                    answers.append(await websocket.receive_str(timeout=30))
        return answers

    async def _socket(self, session: aiohttp.ClientSession) -> str:
        """Wait for the bot, and return the id of a connection to it."""
        while True:
            assert self._process.poll() is None, self.log()
            try:
                async with session.post(self._url, json={}) as response:
                    found: str = (await response.json(content_type=None))["socket"]
                    return found
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.1)

    def ends_by_itself(self) -> int:
        """Wait for the exit, and return the exit code."""
        return self._process.wait(60)

    def log(self) -> str:
        return (self._folder / "log").read_text()


@contextmanager
def bot(folder: Path, database: dict[str, Any], environment: dict[str, str]) -> Iterator[Bot]:
    port = _free_port()
    for block in blocks(PAGE):
        if block.title is not None:
            (folder / block.title).write_text(block.text)
    given = folder / "configuration.yaml"
    url = next(line for line in given.read_text().splitlines() if "url:" in line)
    named = {
        "url": "$BOT_DATABASE_URL",
        **{k: json.dumps(v) for k, v in database.items() if k != "url"},
    }
    options = "".join(f"    {name}: {value}\n" for name, value in named.items())
    web = f"\nweb: {{host: 127.0.0.1, port: {port}}}\n"
    given.write_text(given.read_text().replace(url + "\n", options) + web)
    start = [sys.executable, "-P", "-m", "opsdroid", "start", "-f", str(given)]
    with (folder / "log").open("wb") as log:
        env = {**environment, "BOT_DATABASE_URL": database["url"]}
        process = subprocess.Popen(start, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        yield Bot(folder, port, process)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, (folder / "log").read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "shared_backend", ["postgresql", "sqlite-file"][:: sampled(2)], indirect=True
)
def test_a_bot_keeps_its_memory_over_three_processes(
    shared_backend: Backend, tmp_path: Path, environment: dict[str, str]
) -> None:
    database = {"url": shared_backend.url, **shared_backend.options}
    with bot(tmp_path, database, environment) as first:
        assert first.hears("remember tea is Darjeeling", "remember cup is blue") == [
            "I will remember tea.",
            "I will remember cup.",
        ]
    with bot(tmp_path, database, environment) as second:
        heard = second.hears("remind me of tea", "forget tea", "remind me of tea")
        assert heard == ["Darjeeling", "Forgotten.", "I know nothing of that."]
    with bot(tmp_path, database, environment) as third:
        heard = third.hears("remind me of tea", "remind me of cup")
        assert heard == ["I know nothing of that.", "blue"]
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert all_of(store) == {"cup": {"value": "blue", "by": "ada"}}


def test_concurrent_rooms_of_a_bot_have_separate_memories(
    shared_backend: Backend, tmp_path: Path, environment: dict[str, str]
) -> None:
    database = {"url": shared_backend.url, **shared_backend.options}
    messages = [
        [text for n in range(10) for text in (f"the topic is {room}{n}", "what is the topic")]
        for room in "abcdef"
    ]
    with bot(tmp_path, database, environment) as one:
        replies = one.replies_in_rooms(*messages)
        assert one.hears("what is the topic") == ["Whatever you like."]
    assert replies == [
        [text for n in range(10) for text in ("Noted, for this room.", f"{room}{n}")]
        for room in "abcdef"
    ]
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert all_of(store) == {}


def test_a_bot_without_its_database_does_not_start(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with bot(tmp_path, {"url": "sqlite:////nowhere/bot.db"}, environment) as nobody:
        assert nobody.ends_by_itself() != 0
        assert "does the folder exist" in nobody.log()


def test_without_opsdroid_the_extra_is_named() -> None:
    script = f"import sys; sys.modules['opsdroid'] = None; import {MODULE}"
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert "MissingExtra: opsdroid is not installed" in done.stderr
    assert done.stderr.endswith("pip install 'collections-store[opsdroid]'\n")
