"""Files of other programs: MongoDB, TinyDB, CSV, JSON without ids."""

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for
from tinydb import TinyDB

EXTENDED: list[dict[str, Any]] = [
    {"_id": {"$oid": "65a0c0ffee00000000000000"}, "n": {"$numberInt": "1"}},
    {"_id": "ada", "at": {"$date": "2023-11-14T22:13:20Z"}},
]
PLAIN = {"65a0c0ffee00000000000000": {"n": 1}, "ada": {"at": "2023-11-14T22:13:20.000000Z"}}


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    return cli_for(shared_backend)


@pytest.fixture
def sqlite(tmp_path: Path) -> Cli:
    return Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))


@pytest.mark.parametrize("is_array", [False, True])
def test_extended_json_is_imported(cli: Cli, tmp_path: Path, is_array: bool) -> None:
    path = tmp_path / "a.json"
    lines = json.dumps(EXTENDED) if is_array else "\n".join(map(json.dumps, EXTENDED))
    path.write_text(lines)
    cli.done("import", str(path), "-c", "a", "--format", "mongodb")
    assert cli.documents("a") == PLAIN


def test_a_bad_document_of_mongodb_is_named(sqlite: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"_id": 1}\n{"_id": 2, "x": {"$numberDouble": "NaN"}}\n{"_id": true}\n')
    how = ("import", str(path), "-c", "a", "--format", "mongodb")
    assert "line 2: $numberDouble" in sqlite.fails(3, *how)
    result = sqlite(*how, "--skip-errors")
    assert result.exit_code == 0
    assert "line 3" in result.stderr
    assert sqlite.documents("a") == {"1": {}}


def test_bson_is_imported(cli: Cli, tmp_path: Path) -> None:
    bson = pytest.importorskip("bson")
    data = bson.encode({"_id": bson.ObjectId("65a0c0ffee00000000000000"), "n": 1})
    path = tmp_path / "a.bson.gz"
    path.write_bytes(gzip.compress(data + bson.encode({"_id": "ada"})))
    cli.done("import", str(path), "-c", "a", "--format", "bson")
    assert cli.documents("a") == {"65a0c0ffee00000000000000": {"n": 1}, "ada": {}}
    path.write_bytes(data + data[:-2])
    assert "document 1" in cli.fails(3, "import", str(path), "-c", "b", "--format", "bson")


def test_bson_without_its_package_names_the_extra(sqlite: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.bson").write_bytes(b"\5\0\0\0\0")
    program = (
        "import sys; sys.modules['bson'] = None; from collections_store.cli.app import program; "
        f"program({[*sqlite.options, 'import', str(tmp_path / 'a.bson'), '-c', 'a', '--format', 'bson']})"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)  # noqa: PLW1510
    assert result.returncode == 7
    assert "collections-store[mongodb]" in result.stderr


def test_a_table_of_tinydb_is_imported(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "db.json"
    with TinyDB(path) as old:
        old.insert({"name": "Ada"})
        old.table("people").insert_multiple([{"n": 1}, {"n": 2}])
    cli.done("import", str(path), "-c", "a", "--format", "tinydb")
    cli.done("import", str(path), "-c", "b", "--format", "tinydb", "--table", "people")
    assert cli.documents("a") == {"1": {"name": "Ada"}}
    assert cli.documents("b") == {"1": {"n": 1}, "2": {"n": 2}}
    how = ("import", str(path), "-c", "c", "--format", "tinydb", "--table", "nobody")
    assert "'_default', 'people'" in cli.fails(3, *how)
    path.write_text("[]")
    assert "TinyDB" in cli.fails(3, "import", str(path), "-c", "c", "--format", "tinydb")


def test_csv_is_imported(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "\ufefflogin,name,age,address.city,address.zip,tags,active\r\n"
        'ada,"Ada, ""Countess""",36,Berlin,01234,"[1,2]",TRUE\r\n'
        'bob,"two\r\nlines",,,,,false\r\n',
        newline="",
        encoding="utf-8",
    )
    types = "age=integer,tags=json,active=boolean"
    cli.done("import", str(path), "-c", "a", "--format", "csv", "--id", "login", "--types", types)
    assert cli.documents("a") == {
        "ada": {
            "login": "ada",
            "name": 'Ada, "Countess"',
            "age": 36,
            "address": {"city": "Berlin", "zip": "01234"},
            "tags": [1, 2],
            "active": True,
        },
        "bob": {"login": "bob", "name": "two\r\nlines", "active": False},
    }


CSV: list[tuple[str, tuple[str, ...], str]] = [
    ("a,b\n1\n", (), "line 2: it must have 2 cells, as the first line has, got 1"),
    ("a,b\n1,x\n2,3\n", ("--types", "b=integer"), "line 2: b: 'x' must be of the type integer"),
    *(
        (f"a,b\n1,{cell}\n", ("--types", "b=integer"), "line 2: b")
        for cell in ("1_000", " 5", "\u0663", "1.0", "+")
    ),
    ("a,b\n1,true\n", ("--types", "b=number"), "line 2: b"),
    ("a,b\n1,yes\n", ("--types", "b=boolean"), "line 2: b"),
    ("a,b\n1,{\n", ("--types", "b=json"), "line 2: b"),
    ("a,a\n1,2\n", (), "line 1"),
    ("", (), "line 1"),
    ("b\n1\n", (), "no column 'a'"),
    ("a\n1\n", ("--types", "b=json"), "no column 'b'"),
    ("a,b,b.c\n1,2,3\n", (), "line 2: b.c"),
    ("a,b.c,b\n1,2,3\n", (), "line 2: b"),
    ('a\n"1\n', (), "not CSV"),
]


@pytest.mark.parametrize(("text", "more", "message"), CSV, ids=map(str, range(len(CSV))))
def test_bad_csv_is_named(
    sqlite: Cli, tmp_path: Path, text: str, more: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    how = ("import", str(path), "-c", "a", "--format", "csv", "--id", "a")
    assert message in sqlite.fails(3, *how, *more)


def test_csv_that_is_not_utf8_is_refused(sqlite: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a\n\xff\n")
    how = ("import", str(path), "-c", "a", "--format", "csv", "--id", "a")
    assert "UTF-8" in sqlite.fails(3, *how)


def test_documents_get_new_ids(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n5\n')
    (tmp_path / "a.csv").write_text("n\n1\n")
    cli.done("import", str(tmp_path / "a.jsonl"), "-c", "a", "--new-ids")
    cli.done("import", str(tmp_path / "a.csv"), "-c", "b", "--format", "csv", "--new-ids")
    assert list(cli.documents("a").values()) == [{"n": 1}, 5]
    assert list(cli.documents("b").values()) == [{"n": "1"}]
    assert all(len(id) >= 20 for id in cli.documents("a"))


def test_the_ids_have_one_origin(sqlite: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("")
    for more in (
        ("--id", "a", "--new-ids"),
        ("--format", "csv"),
        ("--format", "mongodb", "--id", "a"),
        ("--format", "tinydb", "--new-ids"),
        ("--format", "csv", "--id", "a", "--types", "b"),
        ("--format", "csv", "--id", "a", "--types", "b=date"),
        ("--format", "xml"),
    ):
        sqlite.fails(2, "import", str(path), "-c", "a", *more)


def test_csv_is_exported_and_comes_back(cli: Cli, tmp_path: Path) -> None:
    bodies = {
        "ada": {"name": 'A "B", C', "address": {"city": "Köln\n"}, "n": 1.5, "tags": ["x"]},
        "bob": {"name": None, "address": 5, "n": -2},
        "text": "no object",
    }
    for id, body in bodies.items():
        cli.done("put", "people", id, json.dumps(body))
    path = tmp_path / "people.csv"
    how = ("--output", "csv", "--fields", "name,address.city,n,tags")
    cli.done("export", "people", str(path), *how)
    with path.open(newline="", encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [
            ["$id", "name", "address.city", "n", "tags"],
            ["ada", 'A "B", C', "Köln\n", "1.5", '["x"]'],
            ["bob", "", "", "-2", ""],
            ["text", "", "", "", ""],
        ]
    cli.done(
        *("import", str(path), "-c", "again", "--format", "csv", "--id", "$id"),
        *("--types", "n=number,tags=json"),
    )
    assert cli.documents("again") == {"ada": bodies["ada"], "bob": {"n": -2}, "text": {}}
    assert "--fields" in cli.fails(2, "export", "people", "--output", "csv")
    assert "--fields" in cli.fails(2, "export", "people", "--fields", "a")
    for fields in ("", "a,", "a,b,a", "$id"):
        assert "--fields" in cli.fails(2, "export", "people", *how[:3], fields)


def test_extended_json_is_exported_and_comes_back(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / "a.json")
    cli.done("put", "a", "x", '{"n": 1}')
    cli.done("export", "a", path, "--output", "mongodb")
    assert Path(path).read_text() == '{"_id":"x","n":1}\n'
    cli.done("import", path, "-c", "b", "--format", "mongodb")
    assert cli.documents("b") == {"x": {"n": 1}}
    cli.done("put", "a", "bad", "5")
    assert "'bad'" in cli.fails(3, "export", "a", path, "--output", "mongodb")
    assert Path(path).read_text() == '{"_id":"x","n":1}\n'
