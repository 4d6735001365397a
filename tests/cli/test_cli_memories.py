"""Memories of other programs, from the command line."""

import sqlite3
from pathlib import Path

from backends import Backend
from cli.cli_process import cli_for

from collections_store import Store


def opsdroid_file(folder: Path) -> Path:
    file = sqlite3.connect(folder / "sqlite.db")
    with file:
        file.execute("CREATE TABLE opsdroid (key text PRIMARY KEY, data text)")
        file.execute("""INSERT INTO opsdroid VALUES ('name', '"Ada"'), ('visits', '3')""")
    file.close()
    return folder / "sqlite.db"


def test_memories_of_opsdroid(shared_backend: Backend, tmp_path: Path) -> None:
    cli, file = cli_for(shared_backend), opsdroid_file(tmp_path)
    done = cli("import-opsdroid", str(file), "--namespace", "bot")
    assert (done.exit_code, done.stderr) == (0, f"imported 2 values from '{file}' into bot\n")
    with Store(shared_backend.url, **shared_backend.options) as store:
        entries = store.memory("bot").items()
        assert {each.key: each.value for each in entries} == {"name": "Ada", "visits": 3}


def test_a_missing_table_is_an_error_that_names_the_existing_ones(
    shared_backend: Backend, tmp_path: Path
) -> None:
    cli, file = cli_for(shared_backend), str(opsdroid_file(tmp_path))
    message = cli.fails(2, "import-opsdroid", file, "--table", "bot")
    assert message.endswith("no table 'bot' (key, data); its tables are: 'opsdroid'")
    assert "does not exist" in cli.fails(2, "import-opsdroid", str(tmp_path / "nothing"))


def test_a_value_that_cannot_be_stored_is_named_by_its_key(
    shared_backend: Backend, tmp_path: Path
) -> None:
    cli, file = cli_for(shared_backend), opsdroid_file(tmp_path)
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("""INSERT INTO opsdroid VALUES ('bad', '{"a": "\\u0000"}')""")
    connection.close()
    message = cli.fails(3, "import-opsdroid", str(file))
    assert message.startswith("at 'bad.a': holds a NUL character")
    with Store(shared_backend.url, **shared_backend.options) as store:
        assert store.memory("opsdroid").count() == 0
