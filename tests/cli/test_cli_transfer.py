"""The commands import and export: formats, errors, and what they write."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import Cli, cli_for

from collections_store import Collection, PutManyResult, Store
from collections_store.cli import files as reading
from collections_store.cli import formats, transfer
from collections_store.cli import transfer as importing
from collections_store.cli.files import BadItem, parse_json, read_items
from collections_store.cli.output import write_lines

BODIES: dict[str, Any] = {
    "null": None,
    "true": True,
    "number": -1.5,
    "big": 1e16,
    "text": "\u2028 ü \x1b \\ \" '",
    "empty": "",
    "list": [1, [], {}],
    "looks like a line": {"id": "x", "body": 1},
    "": {"a.b": {"$c": None}},
}
DEEP = "[" * 200 + "]" * 200


@pytest.fixture
def cli(shared_backend: Backend) -> Cli:
    return cli_for(shared_backend)


@pytest.fixture
def sqlite(tmp_path: Path) -> Cli:
    return Cli((f"--url=sqlite:///{tmp_path / 'one.db'}",))


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def numbered(count: int) -> str:
    return lines(*({"n": n, "half": n / 2} for n in range(count)))


def test_exports_can_be_imported(cli: Cli, tmp_path: Path) -> None:
    for id, body in BODIES.items():
        cli.done("put", "a", "--", id, json.dumps(body))
    cli.done("put", "a", "deep", DEEP)
    for name in ("a.jsonl", "a.jsonl.gz", "a.JSON.GZ"):
        cli.done("export", "a", str(tmp_path / name))
        cli.done("import", str(tmp_path / name), "--collection", "b")
        assert cli.done("export", "b") == cli.done("export", "a")
        cli.done("drop", "b", "--yes")
    for output in ("jsonl", "json"):
        exported = cli.done("export", "a", "--output", output)
        cli.done("import", "b", input=exported)
        cli.done("import", "-", "-c", "c", input=gzip.compress(exported.encode()))
        assert cli.done("export", "b", "--output", output) == exported
        assert cli.done("export", "c", "--output", output) == exported
        cli.done("drop", "b", "--yes")


def test_a_gzipped_export_is_gzipped_and_the_same_each_time(sqlite: Cli, tmp_path: Path) -> None:
    sqlite.done("import", "a", "--id", "n", input=numbered(10))
    files = [tmp_path / "1.gz", tmp_path / "2.gz"]
    for file in files:
        sqlite.done("export", "a", str(file))
    assert files[0].read_bytes() == files[1].read_bytes()
    assert gzip.decompress(files[0].read_bytes()).decode() == sqlite.done("export", "a")


def test_ids_from_a_field(cli: Cli) -> None:
    given = [{"key": {"k": "a"}, "v": 1}, {"key": {"k": 7}}, {"key": {"k": "ü"}}]
    result = cli("import", "things", "--id", "key.k", input=lines(*given))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "imported 3 documents into things\n"
    assert cli.documents("things") == {"a": given[0], "7": given[1], "ü": given[2]}


def test_import_of_a_json_array(cli: Cli) -> None:
    given = [{"n": 1}, {"n": 2}, {"n": 3}]
    cli.done("import", "things", "--id", "n", input=f"\n  {json.dumps(given, indent=2)}\n")
    assert cli.documents("things") == {"1": given[0], "2": given[1], "3": given[2]}
    cli.done("import", "empty", input=" [] ")
    assert "no collection" in cli.fails(1, "list", "empty")


def test_line_ends_blank_lines_and_the_byte_order_mark(sqlite: Cli) -> None:
    text = '\ufeff\r\n{"n": 1}\r\n\r\n  \n\t{"n": 2}'.encode()
    sqlite.done("import", "things", "--id", "n", input=text)
    assert list(sqlite.documents("things")) == ["1", "2"]
    sqlite.done("import", "others", "--id", "n", input=b'\xef\xbb\xbf[{"n": 1}]')
    assert list(sqlite.documents("others")) == ["1"]


def test_an_empty_input_imports_nothing(sqlite: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for arguments in (("-",), (str(tmp_path / "empty"),)):
        result = sqlite("import", *arguments, "-c", "things", input="")
        assert (result.exit_code, result.stderr) == (0, "imported 0 documents into things\n")
    assert sqlite.done("import", "things", input=" \n\n [] ") == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]


def test_an_import_without_valid_lines_creates_no_collection(sqlite: Cli, tmp_path: Path) -> None:
    for given in ("[1, ", "no\nJSON\n", '{"n": 1, "v": "\\u0000"}\n' * 3, '{"n": "\\u0000"}'):
        result = sqlite("import", "t", "--id", "n", "--skip-errors", input=given)
        assert result.exit_code == 0
        assert "imported 0 documents into t, skipped " in result.stderr
    assert not list(tmp_path.iterdir())
    sqlite.done("put", "other", "a", "1")
    sqlite.done("import", "t", "--id", "n", "--skip-errors", input="[1")
    assert [json.loads(line)["name"] for line in sqlite.done("collections").splitlines()] == [
        "other"
    ]


def test_the_last_body_of_a_repeated_id_wins(cli: Cli) -> None:
    given = lines({"id": "a", "body": 1}, {"id": "b", "body": 2}, {"id": "a", "body": 3})
    cli.done("import", "things", "--batch-size", "1", input=given)
    assert cli.documents("things") == {"a": 3, "b": 2}


BAD: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{'n': 1}", "not JSON: "),
    "cut off": (b'{"n": 1', "not JSON: "),
    "not UTF-8": (b'{"n": "\xff"}', "not JSON: "),
    "half a character": (b'{"n": "\\ud800"}', "not JSON: "),
    "NaN": (b'{"n": 1, "v": NaN}', "not JSON: "),
    "infinite": (b'{"n": 1, "v": 1e400}', "not JSON: "),
    "infinite and long": (b'{"n": 1, "v": [1e400, 1234567890123456789]}', "inf is not JSON"),
    "too deep to read": (b'{"n": 1, "v": ' + b"[" * 5000 + b"]" * 5000 + b"}", "not JSON: "),
    "too deep to keep": (b'{"n": 1, "v": ' + b"[" * 200 + b"]" * 200 + b"}", "deeper"),
    "not an object": (b"5", "there is no field 'n' to take the id from"),
    "no id": (b'{"m": 1}', "there is no field 'n' to take the id from"),
    "id of another kind": (b'{"n": [1]}', "must be a string or an integer"),
    "id true": (b'{"n": true}', "must be a string or an integer"),
    "id 1.0": (b'{"n": 1.0}', "must be a string or an integer"),
    "id null": (b'{"n": null}', "must be a string or an integer"),
    "long id": (b'{"n": "' + b"x" * 2001 + b'"}', "cannot be a document's id"),
    "NUL in the id": (b'{"n": "\\u0000"}', "NUL"),
    "NUL in the body": (b'{"n": 1, "v": "\\u0000"}', "at 'v': holds a NUL"),
    "large integer": (b'{"n": 1, "v": 123456789012345678901}', "at 'v': an integer beyond 64 bit"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_stops_the_import_and_rolls_back_its_batch(
    sqlite: Cli, tmp_path: Path, name: str
) -> None:
    bad, reason = BAD[name]
    good = numbered(14).encode().splitlines(keepends=True)
    (tmp_path / "input").write_bytes(b"".join([*good[:7], bad, b"\n", *good[7:]]))
    arguments = ("import", str(tmp_path / "input"), "-c", "t", "--id", "n", "--batch-size", "3")
    message = sqlite.fails(3, *arguments)
    assert message.startswith(f"'{tmp_path / 'input'}', line 8: ")
    assert reason in message
    assert message.endswith("; nothing of this batch was imported, 6 documents before it were")
    assert list(sqlite.documents("t")) == [str(n) for n in range(6)]


@pytest.mark.parametrize("name", BAD)
def test_skip_errors_imports_the_valid_lines(sqlite: Cli, name: str) -> None:
    bad, reason = BAD[name]
    good = numbered(14).encode().splitlines(keepends=True)
    given = b"".join([bad + b"\n", *good[:7], bad, b"\n", *good[7:], bad])
    arguments = ("import", "t", "--id", "n", "--batch-size", "5", "--skip-errors")
    result = sqlite(*arguments, input=given)
    assert result.exit_code == 0
    *reports, summary = result.stderr.splitlines()
    locations = [report.split(":")[0] for report in reports]
    assert locations == [f"skipped standard input, line {n}" for n in (1, 9, 17)]
    assert all(reason in report for report in reports)
    assert summary == "imported 14 documents into t, skipped 3 documents"
    assert list(sqlite.documents("t")) == [str(n) for n in range(14)]


def test_without_id_field_only_exported_lines_are_accepted(sqlite: Cli) -> None:
    for bad in ({"n": 1}, {"id": "a"}, {"body": 1}, {"id": "a", "body": 1, "more": 2}, "text"):
        assert "--id FIELD" in sqlite.fails(3, "import", "t", input=lines(bad))
    assert "'id'" in sqlite.fails(3, "import", "t", input=lines({"id": None, "body": 1}))
    sqlite.done("import", "t", input=lines({"id": 5, "body": None}))
    assert sqlite.documents("t") == {"5": None}


def test_the_first_bad_line_is_the_one_reported(sqlite: Cli) -> None:
    given = '{"n": 1, "v": "\\u0000"}\nnot json\n'
    assert "line 1:" in sqlite.fails(3, "import", "t", "--id", "n", input=given)


def test_bad_elements_of_an_array_are_named_by_their_position(sqlite: Cli) -> None:
    given = json.dumps([{"n": 1}, {"m": 2}, {"n": "x\0"}, {"n": 4}])
    message = sqlite.fails(3, "import", "t", "--id", "n", input=given)
    assert message.startswith("standard input, element 2: there is no field 'n'")
    assert message.endswith("; nothing was imported")
    result = sqlite("import", "t", "--id", "n", "--skip-errors", input=given)
    assert "element 2" in result.stderr
    assert "element 3" in result.stderr
    assert list(sqlite.documents("t")) == ["1", "4"]


def test_an_invalid_json_array_is_one_bad_item(sqlite: Cli) -> None:
    given = '\n[\n{"n": 1},\n{"n": 2]\n'
    message = sqlite.fails(3, "import", "t", "--id", "n", input=given)
    assert message.startswith("standard input, the array: not JSON: ")
    assert "line 4" in message
    result = sqlite("import", "t", "--id", "n", "--skip-errors", input=given)
    assert result.stderr.endswith("imported 0 documents into t, skipped 1 document\n")


@pytest.mark.parametrize("options", [(), ("--skip-errors",)])
def test_damaged_gzip_stops_the_import(sqlite: Cli, tmp_path: Path, options: tuple[str]) -> None:
    compressed = gzip.compress(os.urandom(3000).hex().encode().join([b'{"n": 1, "v": "', b'"}\n']))
    for number, damaged in enumerate(
        (compressed[:-9], compressed[:200], b"\x1f", b"\x1f\x8bno gzip at all")
    ):
        file = tmp_path / f"{number}.gz"
        file.write_bytes(damaged)
        for source in (("--id=n",), ("--format=tinydb",), ("--format=csv", "--id=n")):
            message = sqlite.fails(3, "import", str(file), "-c", "t", *source, *options)
            assert message.startswith(f"'{file}': the gzipped data is damaged: ")
            assert message.endswith("; nothing was imported")


def test_usage_errors_of_import(sqlite: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(lines({"id": "a", "body": 1}))
    file = str(tmp_path / "file")
    assert "--collection NAME" in sqlite.fails(2, "import")
    assert "--collection NAME" in sqlite.fails(2, "import", "-")
    assert "--collection NAME" in sqlite.fails(2, "import", file)
    assert "no file" in sqlite.fails(2, "import", f"{file}.no", "-c", "t")
    assert "folder" in sqlite.fails(2, "import", str(tmp_path), "-c", "t")
    assert "batch-size" in sqlite.fails(2, "import", file, "-c", "t", "--batch-size", "0")
    assert "cannot name a collection" in sqlite.fails(3, "import", file, "-c", "a-b")
    assert "cannot name a collection" in sqlite.fails(3, "import", "no.jsonl", input="")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_batches_are_transactions_of_the_given_size(
    sqlite: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    put_many = Collection.put_many

    def watched(collection: Collection, bodies: Any, **options: Any) -> PutManyResult:
        result = put_many(collection, bodies, **options)
        sizes.append(result.inserted_count)
        return result

    monkeypatch.setattr(Collection, "put_many", watched)
    sqlite.done("import", "t", "--id", "n", input=numbered(1100))
    assert sizes == [500, 500, 100]


def test_ten_thousand_lines(cli: Cli) -> None:
    cli.done("import", "t", "--id", "n", input=numbered(10_000))
    assert cli.done("find", "t", "--count") == "10000\n"
    exported = cli.done("export", "t").splitlines()
    assert [json.loads(line)["id"] for line in exported] == [str(n) for n in range(10_000)]


def test_lines_are_read_one_at_a_time() -> None:
    """In constant memory: the next line is read only after the previous one is consumed."""

    class Endless(io.RawIOBase):
        lines_read = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            line = b'{"n": 1}\n'
            buffer[: len(line)] = line
            self.lines_read += 1
            return len(line)

    stream: Any = Endless()
    items = read_items(stream)
    assert [next(items).value for _ in range(1000)] == [{"n": 1}] * 1000
    assert stream.lines_read < 2000


@pytest.mark.parametrize("packed", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_line_that_is_too_long_is_a_bad_line(
    sqlite: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: Any
) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 2**20)
    file = tmp_path / "lines"
    long = b'{"n": 2, "text": "' + b"x" * (5 * 2**20) + b'"}'
    file.write_bytes(packed(b'{"n": 1}\n' + long + b'\n\n{"n": 3}\n' + long))
    message = sqlite.fails(3, "import", str(file), "-c", "t", "--id", "n")
    assert message == f"'{file}', line 2: too long: more than 1 MiB; nothing was imported"
    result = sqlite("import", str(file), "-c", "t", "--id", "n", "--skip-errors")
    assert "imported 2 documents into t, skipped 2 documents" in result.stderr
    assert f"skipped '{file}', line 5: too long" in result.stderr
    assert sqlite.fails(3, "put", "t", "x", input=long) == "BODY is too long: more than 1 MiB"


def test_a_line_of_zeros_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 2**20)
    zeros = io.BytesIO(gzip.compress(bytes(64 * 2**20)))
    tracemalloc.start()
    [item] = read_items(zeros)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20
    assert isinstance(item.value, BadItem)
    assert "more than 1 MiB" in str(item.value)


@pytest.mark.parametrize("source", ["json", "mongodb", "tinydb"])
@pytest.mark.parametrize("start", [b"[", b'{"n": 1}\n[', b'{"t": ['])
def test_many_values_are_counted_before_they_are_decoded(
    sqlite: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, start: bytes
) -> None:
    for module in (reading, formats):
        monkeypatch.setattr(module, "MAX_LINE", 2**23)
        monkeypatch.setattr(module, "MAX_ARRAY", 2**23)
    file = tmp_path / "many.gz"
    file.write_bytes(gzip.compress(start + b"[]," * 2_700_000 + b"[]]"))
    tracemalloc.start()
    message = sqlite.fails(3, "import", str(file), "-c", "t", "--format", source)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * 2**23
    assert message.startswith(f"'{file}'")


def test_a_cell_that_is_too_long_ends_the_import(
    sqlite: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_LINE", 2**10)
    file = tmp_path / "long.csv"
    file.write_bytes(b"id\n1\n" + b"x" * 2000)
    message = sqlite.fails(3, "import", str(file), "-c", "t", "--format", "csv", "--id", "id")
    assert "line 3: too long" in message


def test_an_array_that_is_too_long_is_a_bad_item(
    sqlite: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_ARRAY", 2**20)
    monkeypatch.setattr(reading, "MAX_LINE", 2**10)
    given = json.dumps([{"n": n, "text": "x" * 3000} for n in range(300)])
    done = sqlite("import", "-", "-c", "t", "--id", "n", input=given.encode())
    assert "imported 300 documents" in done.stderr
    message = sqlite.fails(3, "import", "-", "-c", "t", "--id", "n", input=given.encode() * 2)
    assert "the array: too long: more than 1 MiB; write each document on its own line" in message


def test_batches_are_limited_in_bytes(sqlite: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_BYTES", 10_000)
    given = lines(*({"n": n, "text": "x" * 3000} for n in range(9)), {"text": 1})
    message = sqlite.fails(3, "import", "-", "-c", "t", "--id", "n", input=given)
    assert "nothing of this batch was imported, 8 documents before it were" in message


def test_an_export_replaces_its_file_atomically(
    sqlite: Cli, tmp_path: Path, monkeypatch: Any
) -> None:
    sqlite.done("import", "t", "--id", "n", input=numbered(1000))
    file = tmp_path / "out.jsonl"
    file.write_text("what was there")
    file.chmod(0o600)
    link = tmp_path / "link.jsonl"
    link.symlink_to(file)
    (tmp_path / "reader").hardlink_to(file)  # as a reader that has the file open
    before = sorted(path.name for path in tmp_path.iterdir())

    def broken(lines: Any, stream: Any, *, array: bool) -> None:
        stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(transfer, "write_lines", broken)
        assert "No space left" in sqlite.fails(6, "export", "t", str(link))
    assert file.read_text() == "what was there"
    sqlite.done("export", "t", str(link))
    assert file.read_text() == sqlite.done("export", "t")
    assert (tmp_path / "reader").read_text() == "what was there"
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_export_to_a_device_does_not_replace_it(sqlite: Cli) -> None:
    sqlite.done("put", "t", "a", "1")
    sqlite.done("export", "t", os.devnull)
    assert not Path(os.devnull).is_file()


def test_unwritable_exports(sqlite: Cli, tmp_path: Path) -> None:
    sqlite.done("put", "t", "a", "1")
    assert "No such file" in sqlite.fails(6, "export", "t", str(tmp_path / "no" / "where"))
    sqlite.fails(2, "export", "t", str(tmp_path))


def test_export_includes_bodies_over_the_limit(sqlite: Cli, tmp_path: Path) -> None:
    with Store(sqlite.options[0].removeprefix("--url="), max_body=2**25) as store:
        store["t"].put("large", "x" * (17 * 2**20))
    assert len(sqlite.done("get", "t", "large")) == 17 * 2**20 + 3
    assert "16,777,216" in sqlite.fails(3, "import", "u", input=sqlite.done("export", "t"))


@pytest.mark.parametrize("text", ["1" * 5000, "-" + "9" * 40, "[" * 3000 + "1" * 20 + "]" * 3000])
def test_numbers_that_would_be_rounded_are_rejected(text: str) -> None:
    try:
        value = parse_json(text.encode())
    except BadItem:
        return
    while isinstance(value, list):  # Python 3.13 reads lists as deep as these
        [value] = value
    assert value == int(text.strip("[]"))


def test_a_truncated_input_reports_what_was_imported(
    sqlite: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(stream: Any) -> Any:
        yield from islice(read_items(stream), 7)
        raise OSError(5, "Input/output error")

    (tmp_path / "input").write_text(numbered(10))
    monkeypatch.setattr(formats, "read_items", broken)
    arguments = ("import", str(tmp_path / "input"), "-c", "t", "--id", "n", "--batch-size", "3")
    message = sqlite.fails(6, *arguments)
    assert "Input/output error; nothing of this batch was imported, 6 documents" in message


def test_imported_documents_keep_their_expiry_time(cli: Cli) -> None:
    cli.done("put", "a", "1", "{}", "--ttl", "3600")
    cli.done("put", "a", "2", "[]")
    cli.done("put", "a", "3", "3", "--ttl", "0.001")
    cli.done("put", "a", "4", "4", "--ttl", "3600")
    for output in ("jsonl", "json"):
        exported = cli.done("export", "a", "--output", output)
        assert [each.keys() - {"id", "body"} for each in parsed(exported)] == [
            {"expires_at"},
            set(),
            {"expires_at"},
        ]
        cli.done("import", "b", input=exported)
        found = [parsed(cli.done(*command)) for command in (("export", "b"), ("find", "b"))]
        assert found[0] == found[1]
        for before, after in zip(parsed(exported), found[0], strict=True):
            assert (before["id"], before["body"]) == (after["id"], after["body"])
            assert ("expires_at" in before) == ("expires_at" in after)
            if "expires_at" in before:
                times = [datetime.fromisoformat(each["expires_at"]) for each in (before, after)]
                assert abs(times[1] - times[0]) < timedelta(seconds=30)


def test_expired_documents_are_not_imported(cli: Cli) -> None:
    dead = {"id": "a", "body": 1, "expires_at": "2001-01-01T00:00:00Z"}
    result = cli("import", "t", input=lines(dead, {"id": "b", "body": 2, "expires_at": None}))
    assert result.stderr == "imported 1 document into t, left out 1 document that had expired\n"
    assert cli.documents("t") == {"b": 2}
    again = cli("import", "u", input=lines(dead | {"expires_at": "2999-01-01T00:00:00Z"}, dead))
    assert again.stderr.startswith("imported 1 document into u, left out 1 document")
    assert cli.documents("u") == {}  # it has expired since
    cli.done("put", "v", "a", "1")
    cli.done("import", "v", input=lines(dead))
    assert cli.documents("v") == {}


@pytest.mark.parametrize("bad", ["expired", "no JSON", "not to be stored"])
def test_an_empty_batch_does_not_stop_the_import(sqlite: Cli, bad: str) -> None:
    item = {
        "expired": lines({"id": "a", "body": 1, "expires_at": "2001-01-01T00:00:00Z"}),
        "no JSON": "no JSON\n",
        "not to be stored": lines({"id": "a", "body": "\0"}),
    }
    given = item[bad] * 7 + lines({"id": "b", "body": 2})
    sqlite.done("import", "t", "--batch-size", "3", "--skip-errors", input=given)
    assert sqlite.documents("t") == {"b": 2}


def test_an_expiry_time_out_of_range_is_a_bad_line(sqlite: Cli) -> None:
    far = lines(
        {"id": "a", "body": 1, "expires_at": "9999-01-01T00:00:00Z"}, {"id": "b", "body": 2}
    )
    message = sqlite.fails(3, "import", "t", input=far)
    assert message.startswith("standard input, line 1: expires_at must be within 1,000 years")
    assert sqlite("import", "t", "--skip-errors", input=far).exit_code == 0
    assert sqlite.documents("t") == {"b": 2}


@pytest.mark.parametrize("time", [5, "soon", "2030-01-31T12:00:00", True, ["x"]])
def test_an_invalid_expiry_time_is_a_bad_line(sqlite: Cli, time: object) -> None:
    bad = lines({"id": "b", "body": 2}, {"id": "a", "body": 1, "expires_at": time})
    message = sqlite.fails(3, "import", "t", input=bad)
    assert message.startswith("standard input, line 2: expires_at: expected a time with its zone")
    assert message.endswith("; nothing was imported")


def test_purge_of_expired_documents(cli: Cli) -> None:
    for collection in ("a", "b"):
        cli.done("put", collection, "1", "{}", "--ttl", "0.001")
        cli.done("put", collection, "2", "{}", "--ttl", "0.001")
    cli.done("put", "b", "3", "{}")
    assert cli("purge", "a").stderr == "deleted 2 documents that had expired\n"
    assert cli("purge").stderr == "deleted 2 documents that had expired\n"
    assert cli("purge").stderr == "deleted 0 documents that had expired\n"
    assert "no collection" in cli.fails(1, "purge", "c")
    assert "ttl" in cli.fails(2, "put", "b", "4", "{}", "--ttl", "soon")
    assert "ttl" in cli.fails(2, "put", "b", "4", "{}", "--ttl=-1")


def parsed(text: str) -> list[Any]:
    values = [json.loads(line) for line in ([text] if text.startswith("[") else text.splitlines())]
    return values[0] if text.startswith("[") else values


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has modes")
@pytest.mark.parametrize("mode", [None, 0o600, 0o644])
def test_an_export_is_private_or_keeps_the_mode_of_its_file(
    sqlite: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    sqlite.done("put", "t", "a", "1")
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "t.jsonl"
    seen: list[int] = []
    if mode is not None:
        file.touch()
        file.chmod(mode)

    def looked_at(*arguments: Any, **options: Any) -> None:
        write_lines(*arguments, **options)
        seen.extend(each.stat().st_mode & 0o777 for each in file.parent.glob(".*"))

    monkeypatch.setattr(transfer, "write_lines", looked_at)
    sqlite.done("export", "t", str(file))
    assert seen == [0o600]
    assert file.stat().st_mode & 0o777 == (mode or 0o600)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has these signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_terminated_export_leaves_no_file(tmp_path: Path, number: int) -> None:
    code = """
import os, signal, sys
from collections_store.cli.files import writing
if signal.getsignal(int(sys.argv[2])) is signal.SIG_IGN:
    signal.signal(int(sys.argv[2]), signal.SIG_DFL)  # as `nohup pytest` ignores SIGHUP
with writing(sys.argv[1]) as stream:
    stream.write(b"half")
    os.kill(os.getpid(), int(sys.argv[2]))
"""
    file = tmp_path / "out.jsonl"
    file.write_text("what was there")
    command = [sys.executable, "-c", code, str(file), str(int(number))]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == -number
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]
    assert file.read_text() == "what was there"


def test_export_to_the_database_file_is_rejected(sqlite: Cli, tmp_path: Path) -> None:
    sqlite.done("put", "t", "a", "1")
    [database] = tmp_path.iterdir()
    link = tmp_path / "link"
    link.symlink_to(database)
    for name in (database, link):
        assert "is the database itself" in sqlite.fails(2, "export", "t", str(name))
        assert "is the database itself" in sqlite.fails(2, "import", str(name), "-c", "t")
    assert sqlite.documents("t") == {"a": 1}
