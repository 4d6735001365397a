"""Backups: files that restore a store on any database, and what is refused."""

import gzip
import json
import os
import sqlite3
import stat
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from backends import Backend, unwrap
from conftest import Clock
from contract.test_copies import Enough as Enough
from contract.test_copies import Pair, contents, fill, stop_after
from contract.test_copies import other_backend as other_backend
from contract.test_copies import pair as pair
from selection import sampled

from collections_store import (
    ChangesLost,
    CollectionExists,
    CollectionNotFound,
    CopyFailed,
    CopyProgress,
    DuplicateKey,
    InvalidBackup,
    InvalidOption,
    SchemaError,
    SchemaOutdated,
    SchemaTooNew,
    Store,
)
from collections_store.codec import canonical
from collections_store.operations.copying import ReadStored

NAMES = ["store.jsonl", "store.jsonl.gz"]


def lines(path: Path) -> list[Any]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_a_text_restores_everything_on_any_database(pair: Pair, tmp_path: Path, name: str) -> None:
    fill(pair.source)
    path = tmp_path / name
    assert pair.source.backup(path) is None
    restored = pair.other.restore(path)
    assert contents(pair.other) == contents(pair.source)
    ends = [line for line in lines(path) if line.get("end")]
    assert [(each.name, each.count, each.sha256) for each in restored] == [
        (line["end"], line["count"], line["sha256"]) for line in ends
    ]
    pair.other.backup(tmp_path / "again.jsonl")
    assert [line for line in lines(tmp_path / "again.jsonl") if line.get("end")] == ends


def test_a_database_file_restores_everything(
    store: Any, backend: Backend, other_backend: Backend, tmp_path: Path
) -> None:
    path = tmp_path / "backup.db"
    fill(store)
    if backend.is_postgresql:
        with pytest.raises(InvalidOption, match=r"\.jsonl"):
            store.backup(path)
        return
    reported: list[CopyProgress] = []
    store.backup(path, progress=reported.append)
    assert reported[-1].done == reported[-1].total > 0
    with Store(other_backend.url, **other_backend.options) as other:
        other.restore(path)
        assert contents(other) == contents(store)
    with Store(f"sqlite:///{path}") as there:
        assert contents(there) == contents(store)


def test_a_database_file_is_of_one_moment_and_writers_go_on(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "backup.db"
    with Store(url) as store, Store(url) as writer:
        store["a"].put_many({str(n): "x" * 2000 for n in range(5000)})
        store["n"].put("n", 0)
        steps: list[CopyProgress] = []

        def write(step: CopyProgress) -> None:
            steps.append(step)
            writer["n"].put("n", len(steps))
            writer["a"].remove(str(len(steps)))

        store.backup(path, progress=write)
        assert len(steps) > 2
        assert [step.done for step in steps] == sorted({step.done for step in steps})
        assert store["n"].get("n") == len(steps)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    with Store(f"sqlite:///{path}") as there:
        assert there["n"].get("n") == 0
        assert there["a"].count() == 5000


@pytest.mark.parametrize("name", ["store.jsonl", "store.db"])
def test_a_backup_replaces_a_file_when_it_is_complete(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("before")
    path.chmod(0o640)

    def stop(_: CopyProgress) -> None:
        raise Enough

    with Store("sqlite://") as store:
        store["a"].put("x", 1)
        with pytest.raises(Enough):
            store.backup(path, progress=stop)
        assert path.read_text() == "before"
        assert list(tmp_path.iterdir()) == [path]
        store.backup(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.unlink()
        store.backup(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Store("sqlite://") as other:
            other.restore(str(path))
            assert other["a"].get("x") == 1


def test_some_collections_are_backed_up_and_restored(pair: Pair, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        pair.source[name].put("x", name)
    path = tmp_path / "some.jsonl"
    pair.source.backup(path, ["a", "c"])
    pair.other["z"].put("mine", 1)
    for wrong, message in (
        ("b", "no collection 'b'$"),
        ("aa", "no collection 'aa': did you mean 'a'"),
    ):
        with pytest.raises(CollectionNotFound, match=message):
            pair.other.restore(path, ["a", wrong])
    assert [each.name for each in pair.other.restore(path, ["c"])] == ["c"]
    assert [each.name for each in pair.other.collections()] == ["c", "z"]
    with pytest.raises(CollectionExists):
        pair.other.restore(path, ["c"])


@pytest.mark.parametrize("name", [*NAMES, "store.db"])
def test_hidden_and_collated_indexes_are_restored(tmp_path: Path, name: str) -> None:
    rules = {"locale": "simple", "strength": 1}
    path = tmp_path / name
    with Store(f"sqlite:///{tmp_path / 'a.db'}") as source:
        words = source["words"]
        words.put_many((str(n), {"w": f"Zoo{n}", "n": n}) for n in range(300))
        words.create_index("n", unique=True, hidden=True)
        words.create_index("w", unique=True, collation=rules)
        indexes = [each.to_json() for each in words.indexes()]
        source.backup(path)
    with Store(f"sqlite:///{tmp_path / 'b.db'}") as restored:
        restored.restore(path)
        words = restored["words"]
        assert [each.to_json() for each in words.indexes()] == indexes
        assert words.explain({"n": 7}).indexes == ()
        assert words.explain({"w": "ZOO7"}, collation=rules).indexes == ("w_1",)
        assert [each.id for each in words.find({"w": "ZOO7"}, collation=rules)] == ["7"]
        for body, index in (({"n": 7}, "n_1"), ({"n": 999, "w": "zoo7"}, "w_1")):
            with pytest.raises(DuplicateKey) as refused:
                words.put("x", body)
            assert refused.value.index == index
        words.unhide_index("n_1")
        assert words.explain({"n": 7}).indexes == ("n_1",)


def test_a_hidden_index_is_restored_on_another_database(pair: Pair, tmp_path: Path) -> None:
    pair.source["things"].put_many((str(n), {"n": n}) for n in range(300))
    pair.source["things"].create_index("n", unique=True, hidden=True)
    pair.source.backup(tmp_path / "store.jsonl")
    pair.other.restore(tmp_path / "store.jsonl")
    things = pair.other["things"]
    assert [each.hidden for each in things.indexes()] == [True]
    assert "n_1" not in things.explain({"n": 7}).indexes
    with pytest.raises(DuplicateKey):
        things.put("x", {"n": 7})


def test_a_store_that_is_not_empty_is_refused_unless_told(pair: Pair, tmp_path: Path) -> None:
    pair.source["a"].put("x", 1)
    path = tmp_path / "a.jsonl"
    pair.source.backup(path)
    pair.other["z"].put("mine", 1)
    with pytest.raises(CollectionExists, match="'z'.*empty"):
        pair.other.restore(path)
    pair.other["a"].put("x", "mine")
    pair.other["a"].create_index("n")
    pair.other.restore(path, replace=True)
    assert pair.other["z"].get("mine") == 1
    assert pair.other["a"].get("x") == 1
    assert pair.other["a"].indexes() == []


def staged(store: Any, name: str) -> list[int]:
    """Return the positions of the documents that an incomplete restore has written."""
    positions: list[int] = unwrap(store).core.run(ReadStored(f"{name}$", limit=2000)).positions
    return positions


@pytest.mark.parametrize("replace", [False, True])
def test_an_interrupted_restore_changes_nothing_and_goes_on(
    pair: Pair, tmp_path: Path, replace: bool
) -> None:
    things = pair.source["things"]
    things.put_many({str(n): {"n": n, "text": "x" * 2000} for n in range(1500)})
    things.create_index("n", unique=True)
    path = tmp_path / "a.jsonl.gz"
    pair.source.backup(path)
    if replace:
        pair.other["things"].put("old", {"n": 1})
        pair.other["things"].create_index("old")
    before = contents(pair.other)
    with pytest.raises(Enough):
        pair.other.restore(path, replace=replace, progress=stop_after(500))
    written = staged(pair.other, "things")
    assert 0 < len(written) < 1500
    assert contents(pair.other) == before
    with pytest.raises(Enough):
        pair.other.restore(path, replace=replace, progress=stop_after(1000))
    assert staged(pair.other, "things")[: len(written)] == written
    pair.other.restore(path, replace=replace)
    assert contents(pair.other) == contents(pair.source)
    assert staged(pair.other, "things") == []
    with pytest.raises(CollectionExists):
        pair.other.restore(path)


def test_an_interrupted_restore_can_be_given_up(pair: Pair, tmp_path: Path) -> None:
    pair.source["a"].put_many({str(n): n for n in range(100)})
    path = tmp_path / "a.jsonl"
    pair.source.backup(path)
    with pytest.raises(Enough):
        pair.other.restore(path, progress=stop_after(1))
    pair.other.copy_to(unwrap(pair.source))  # nothing: what is incomplete is not copied
    assert pair.other.drop("a") is False
    assert staged(pair.other, "a") == []
    pair.other.restore(path)
    assert contents(pair.other) == contents(pair.source)


@pytest.mark.parametrize("restored", ["a part", "all"])
@pytest.mark.parametrize("backup", ["second", "first"])
def test_concurrent_restores_leave_one_whole_backup(
    other_backend: Backend, tmp_path: Path, backup: str, restored: str
) -> None:
    with Store("sqlite://") as source:
        for name in ("a", "b"):
            source[name].put_many({str(n): "first" for n in range(300)})
        source.backup(tmp_path / "first.jsonl")
        source["a"].put_many({str(n): "second" for n in range(900)})
        source.drop("b")
        source.backup(tmp_path / "second.jsonl")
    store, other = (Store(other_backend.url, **other_backend.options) for _ in range(2))
    begun: list[CopyProgress] = []

    def restore_too(progress: CopyProgress) -> None:
        if progress.collection == "b" and not begun:
            begun.append(progress)
            limit = stop_after(200 if restored == "a part" else 2000)
            with suppress(Enough):
                other.restore(tmp_path / f"{backup}.jsonl", replace=True, progress=limit)

    with store, other:
        store["a"].put("old", "old")
        try:
            store.restore(tmp_path / "first.jsonl", replace=True, progress=restore_too)
        except CopyFailed as error:
            assert "$" not in str(error)
        else:
            assert store["a"].get("0") == "first"
            assert store["b"].count() == 300
        [body] = {each.body for each in store["a"].list()}
        assert store["a"].count() == {"old": 1, "first": 300, "second": 900}[body]
        store.restore(tmp_path / "first.jsonl", replace=True)
        assert [store[name].count("$body", "first") for name in ("a", "b")] == [300, 300]
    assert begun


def test_writers_and_watchers_go_on_with_the_restored_collection(
    pair: Pair, tmp_path: Path
) -> None:
    pair.source.collection("a", changes=True)
    pair.source["a"].put_many({str(n): n for n in range(100)})
    path = tmp_path / "a.jsonl"
    pair.source.backup(path)
    pair.other.collection("a", changes="both").put("old", 1)
    handle = pair.other["a"]
    stream = handle.watch(after="oldest")
    token = next(stream).token
    stream.close()
    pair.other.restore(path, replace=True, progress=lambda _: None)
    assert handle.put("new", 2) == 1
    assert handle.count() == 101
    assert [each.id for each in handle.find("$id", "old")] == []
    stream = handle.watch(after="oldest")
    assert next(stream).id == "new"
    stream.close()
    with pytest.raises(ChangesLost):
        next(pair.other["a"].watch(after=token))


HOSTILE: dict[str, tuple[Callable[[list[Any]], None], type[Exception]]] = {
    "a repeated id": (lambda found: found[3].update(id="x"), CopyFailed),
    "a unique index": (
        lambda found: found[1]["options"]["indexes"][0].update(unique=True),
        DuplicateKey,
    ),
}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("change", HOSTILE)
def test_documents_that_cannot_be_restored_change_nothing(
    pair: Pair, tmp_path: Path, change: str, replace: bool
) -> None:
    pair.source["a"].create_index("n")
    pair.source["a"].put_many({"x": {"n": 1}, "y": {"n": 1}})
    path = tmp_path / "a.jsonl"
    pair.source.backup(path)
    edited(HOSTILE[change][0], sealed=True)(path)
    if replace:
        pair.other["a"].put("old", 1)
    before = contents(pair.other)
    with pytest.raises(HOSTILE[change][1], match="collection '?a'?:? "):
        pair.other.restore(path, replace=replace)
    assert contents(pair.other) == before
    assert pair.other.drop("a") == replace
    assert staged(pair.other, "a") == []


def test_documents_that_expired_since_are_not_restored(
    pair: Pair, tmp_path: Path, clock: Clock
) -> None:
    pair.source["a"].put("x", 1, ttl=10)
    pair.source["a"].put("y", 1)
    path = tmp_path / "a.jsonl"
    pair.source.backup(path)
    clock.advance(11)
    assert pair.other.restore(path)[0].count == 1
    assert [each.id for each in pair.other["a"].list()] == ["y"]


def edited(edit: Callable[[list[Any]], None], *, sealed: bool = False) -> Callable[[Path], None]:
    """Return a function that changes the lines of a backup; `sealed`: the checksums too."""

    def change(path: Path) -> None:
        found = lines(path)
        edit(found)
        if sealed:
            seal(found)
        path.write_text("".join(json.dumps(line) + "\n" for line in found))

    return change


def set_option(found: list[Any], option: str, value: Any) -> None:
    found[1]["options"][option] = value


INDEX = {"name": "i", "fields": [[["n"], 1]], "unique": False, "where": None, "arrays": False}


WRONG_INDEXES: dict[str, dict[str, Any]] = {
    "no field": {"fields": []},
    "ids": {"fields": [["$id", 1]]},
    "many fields": {"fields": [[[f"f{n}"], 1] for n in range(33)]},
    "no condition": {"where": {}},
    "an object": {"where": {"n": {}}},
    "an array": {"where": {"n": {"$gt": [1]}}},
    "alternatives": {"where": {"$or": [{"n": 1}, {"m": 1}]}},
    "sparse and partial": {"sparse": True, "where": {"n": 1}},
    "sparse": {"sparse": 5},
    "a unique wildcard": {"fields": [["a.$**", 1]], "arrays": True, "unique": True},
    "a wildcard without arrays": {"fields": [["a.$**", 1]]},
    "expiry": {"expire_after_seconds": "x"},
    "no name": {"name": ""},
    "a name of the store's": {"name": "$n"},
}


def set_indexes(found: list[Any], indexes: list[Any]) -> None:
    found[1]["options"]["indexes"] = indexes


def seal(found: list[Any]) -> None:
    """Set the checksums of the lines of a backup."""
    keys, digest = ("id", "body", "version", "created_at", "updated_at", "expires_at", "ttl"), b""
    for line in found:
        if "collection" in line:
            entry = [line["collection"], line["created_at"], line["options"]]
            line["sha256"] = sha256(canonical(entry)).hexdigest()
        if "id" in line and "format" not in line:
            digest += canonical([line.get(key) for key in keys]) + b"\n"
        elif line.get("end"):
            line["sha256"], digest = sha256(digest).hexdigest(), b""


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "no backup"),
    "text": (lambda path: path.write_bytes(b"hello\n"), "no backup"),
    "binary": (lambda path: path.write_bytes(os.urandom(100)), "no backup"),
    "JSON lines": (edited(lambda found: found.pop(0)), "no backup"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-20]), "line 8"),
    "without the last line": (edited(lambda found: found.pop()), "line 8: .*incomplete"),
    "without an end": (edited(lambda found: found.pop(4)), "line 5"),
    "a lost document": (edited(lambda found: found.pop(3)), "line 4: .*checksum"),
    "a changed body": (edited(lambda found: found[2].update(body=2)), "line 5: .*checksum"),
    "a changed version": (edited(lambda found: found[2].update(version=7)), "line 5: .*checksum"),
    "a wrong order": (edited(lambda found: found.insert(2, found.pop(3))), "line 5: .*checksum"),
    "another line": (edited(lambda found: found.append({})), "line 9"),
    "an unknown key": (edited(lambda found: found[2].update(more=1)), "line 3"),
    "a missing key": (edited(lambda found: found[2].pop("version")), "line 3"),
    "a wrong version": (edited(lambda found: found[2].update(version="1")), "line 3: .*version"),
    "a wrong time": (edited(lambda found: found[2].update(created_at=2**63)), "line 3"),
    "a wrong id": (edited(lambda found: found[2].update(id=5)), "line 3"),
    "NUL": (edited(lambda found: found[2].update(body="\0")), "line 3: .*NUL"),
    "a wrong name": (edited(lambda found: found[1].update(collection="a b")), "line 2"),
    "wrong options": (edited(lambda found: found[1].update(options=[1])), "line 2"),
    "a version of 0": (edited(lambda found: found[2].update(version=0)), "line 3: .*version"),
    "a huge version": (edited(lambda found: found[2].update(version=2**63 - 1)), "line 3: .*vers"),
    "a huge time to live": (edited(lambda found: found[2].update(ttl=2**56)), "line 3: .*ttl"),
    "the format as text": (edited(lambda found: found[0].update(version="1")), "line 1: version"),
    "a null format": (edited(lambda found: found[0].update(version=None)), "line 1: version"),
    "a negative format": (edited(lambda found: found[0].update(version=-1)), "line 1: version"),
    "a format that is no integer": (edited(lambda found: found[0].update(version=1.5)), "line 1"),
    **{
        f"{option} = {value!r}": (
            edited(partial(set_option, option=option, value=value)),
            f"line 2: .*{option}",
        )
        for option, value in [
            ("format", "1"),
            ("format", -1),
            ("body_index", 1),
            ("jsonb", "yes"),
            ("sliding", None),
            ("distributed", []),
            ("ttl", "5"),
            ("ttl", 0),
            ("ttl", 2**60),
            ("feed", 5),
            ("feed", {"bodies": "all"}),
            ("feed", {"limit": "7"}),
            ("feed", {"age": 1.5}),
        ]
    },
    **{
        f"an index of {place}": (
            edited(partial(set_indexes, indexes=[{**INDEX, **change}]), sealed=True),
            "line 2: ",
        )
        for place, change in WRONG_INDEXES.items()
    },
    "two indexes of a name": (
        edited(partial(set_indexes, indexes=[INDEX, INDEX]), sealed=True),
        "line 2: .*two indexes",
    ),
    "wrong indexes": (edited(lambda found: found[1]["options"].update(indexes=5)), "line 2"),
    "a wrong index": (edited(lambda found: found[1]["options"].update(indexes=[{}])), "line 2"),
    "twice": (edited(lambda found: found.__setitem__(slice(7, 7), found[1:5])), "twice"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_text_changes_nothing(damage: str, tmp_path: Path) -> None:
    path, (change, message) = tmp_path / "a.jsonl", DAMAGES[damage]
    with Store("sqlite://") as store, Store("sqlite://") as other:
        store["a"].put_many({"x": 1, "y": {"n": [1]}})
        store.create_collection("b")
        store.backup(path)
        change(path)
        with pytest.raises(InvalidBackup, match=message):
            other.restore(path)
        assert other.collections() == []


def test_what_belongs_to_a_store_alone_is_not_restored(pair: Pair, tmp_path: Path) -> None:
    pair.source.collection("a", changes="both").put("x", {"n": 1})
    path = tmp_path / "a.jsonl"
    pair.source.backup(path)

    def change(found: list[Any]) -> None:
        options = found[1]["options"]
        options |= {"ways": 5, "versions": "x", "counter": "y", "cursor_key": [], "copy_of": 1}
        options["feed"] |= {"physical": "cs_revision", "key": 7}

    edited(change, sealed=True)(path)
    pair.other.restore(path)
    restored = pair.other["a"]
    assert restored.get("x") == {"n": 1}
    restored.create_index("n")
    restored.put("y", {"n": 2})
    assert [each.id for each in restored.page(limit=1, sort="n")] == ["x"]
    assert pair.other.drop("a")


@pytest.mark.parametrize("line", [0, 1, 2])
def test_many_values_are_counted_before_they_are_decoded(tmp_path: Path, line: int) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Store("sqlite://", max_body=2**20) as store:
        store["a"].put("x", 1)
        store.backup(path)
        texts = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
        texts[line] = texts[line][:-2] + b',"more":[' + b"[]," * 2_000_000 + b"[]]}\n"
        path.write_bytes(gzip.compress(b"".join(texts)))
        tracemalloc.start()
        with pytest.raises(InvalidBackup, match="no backup|max_body"):
            store.restore(path, replace=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 5 * 2**23
        assert store["a"].get("x") == 1


def test_any_cut_of_a_gzipped_text_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Store("sqlite://") as store, Store("sqlite://") as other:
        store["a"].put_many({str(n): {"n": n} for n in range(50)})
        store.backup(path)
        whole = path.read_bytes()
        for size in [*range(0, len(whole), 37), len(whole) - 1]:
            path.write_bytes(whole[:size])
            with pytest.raises(InvalidBackup):
                other.restore(path)
        for place in range(10, len(whole) - 8, 29):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(InvalidBackup):
                other.restore(path)
        assert other.collections() == []


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Store("sqlite://") as store:
        store["a"].put("x", 1)
        store.backup(path)
        edited(lambda found: found[0].update(version=3))(path)
        with pytest.raises(SchemaTooNew, match="backup"):
            store.restore(path, replace=True)
        store.backup(path)
        edited(lambda found: set_option(found, "format", 99))(path)
        with pytest.raises(SchemaTooNew, match="collection"):
            store.restore(path, replace=True)
        assert store["a"].get("x") == 1


def test_bad_arguments(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with Store(f"sqlite:///{file}") as store:
        store["a"].put("x", 1)
        with pytest.raises(InvalidOption, match="own file"):
            store.backup(file)
        with pytest.raises(InvalidOption, match="own file"):
            store.restore(file, replace=True)
        with pytest.raises(InvalidOption, match="collections"):
            store.backup(tmp_path / "b.db", ["a"])
        with pytest.raises(InvalidOption, match="path"):
            store.backup(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="replace"):
            store.restore("a", replace=1)  # type: ignore[arg-type]
        (tmp_path / "link").symlink_to(f"{file}-wal")
        for name in ("", "\0", tmp_path, os.devnull, f"{file}-wal", tmp_path / "link", "x-journal"):
            with pytest.raises(InvalidOption, match="path"):
                store.backup(name)
        with pytest.raises(FileNotFoundError, match="nowhere"):
            store.backup(tmp_path / "nowhere" / "a.jsonl")
        with pytest.raises(FileNotFoundError, match="missing"):
            store.restore(tmp_path / "missing.jsonl", replace=True)
        with Store(f"sqlite:///{tmp_path / 'used.db'}") as used:
            used["a"].put("x", 1)
            with pytest.raises(InvalidOption, match="in use"):
                store.backup(tmp_path / "used.db")
        assert store["a"].get("x") == 1
        assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("name", ["pipe.jsonl", "folder.jsonl", "device.jsonl", "pipe.db"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    os.mkfifo(tmp_path / "pipe.db")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "device.jsonl").symlink_to(os.devnull)
    with Store("sqlite://") as store:
        store["a"].put("x", 1)
        for method in (store.restore, store.backup):
            with pytest.raises(InvalidOption, match="path: must name a file"):
                method(tmp_path / name)


def test_a_database_of_another_program_is_no_backup(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()
    with Store("sqlite://") as store, pytest.raises(InvalidBackup, match=r"other\.db"):
        store.restore(tmp_path / "other.db")


@pytest.mark.parametrize("name", ["a.db", "a.jsonl"])
def test_any_changed_byte_is_found_or_changes_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with Store("sqlite://") as store, Store("sqlite://") as other:
        store["a"].put_many({str(n): {"n": n, "text": "x" * 300} for n in range(20)})
        store["a"].create_index("n", unique=True)
        store.backup(path)
        whole, before, found = path.read_bytes(), contents(store), 0
        step = len(whole) // 240 * sampled(4)
        for place in range(step // 2, len(whole), step):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            try:
                other.restore(path, replace=True)
            except (InvalidBackup, SchemaError):
                found += 1
                assert contents(other) in ({}, before)
            else:
                assert contents(other) == before
        assert found > 0


EDITS = {
    "a body": "UPDATE cs_4_people SET body = '{}' WHERE id = '7'",
    "a version": "UPDATE cs_4_people SET version = 7 WHERE id = '7'",
    "a huge version": "UPDATE cs_4_people SET version = 9223372036854775807 WHERE id = '7'",
    "a text as version": "UPDATE cs_4_people SET version = 'x' WHERE id = '7'",
    "no JSON": "UPDATE cs_5_odd SET body = '{' WHERE id = 'int'",
    "no UTF-8": "UPDATE cs_5_odd SET body = CAST(x'22ff22' AS TEXT) WHERE id = 'int'",
    "an order": "UPDATE cs_4_people SET seq = seq + 1000 WHERE id = '7'",
    "a lost document": "DELETE FROM cs_4_people WHERE id = '7'",
    "a lost collection": "DELETE FROM cs_collections WHERE name = 'empty'",
    "another name": "UPDATE cs_collections SET name = 'other' WHERE name = 'empty'",
    "another time": "UPDATE cs_collections SET created_at = 5 WHERE name = 'empty'",
    "an option": "UPDATE cs_collections SET options = json_set(options, '$.ttl', 7) WHERE name = 'empty'",
    "a wrong option": "UPDATE cs_collections SET options = json_set(options, '$.ttl', 'x')",
    "wrong indexes": "UPDATE cs_collections SET options = json_set(options, '$.indexes', 5)",
    "no options": "UPDATE cs_collections SET options = '{'",
    "another table": "UPDATE cs_collections SET table_name = 'sqlite_master'",
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_database_file_changes_nothing(tmp_path: Path, edit: str) -> None:
    path = tmp_path / "a.db"
    with Store("sqlite://") as store, Store("sqlite://") as other:
        fill(store)
        store.backup(path)
        connection = sqlite3.connect(path)
        connection.execute(EDITS[edit])
        connection.commit()
        connection.close()
        other["people"].put("old", 1)
        with pytest.raises(InvalidBackup, match=r"a\.db"):
            other.restore(path, replace=True)
        assert [each.name for each in other.collections()] == ["people"]
        assert other["people"].get("old") == 1


def test_the_checksums_of_a_file_hold_until_a_store_writes_to_it(
    tmp_path: Path, clock: Clock
) -> None:
    path, url = tmp_path / "a.db", f"sqlite:///{tmp_path / 'a.db'}"
    with Store("sqlite://") as store, Store("sqlite://") as other:
        store["a"].put("x", 1, ttl=10)
        store["a"].put("y", 1)
        store.backup(path)
        clock.advance(11)
        whole = path.read_bytes()
        for options in ("?mode=ro", "?immutable=1"):
            with Store(f"{url}{options}") as there:
                assert there["a"].get("y") == 1
        assert path.read_bytes() == whole
        assert other.restore(path)[0].count == 1
        with Store(url) as there:
            there["a"].put("y", 2)
            there["b"].put("z", 3)
            assert len(other.restore(path, replace=True)) == 2
            there.backup(tmp_path / "again.db")
        assert len(other.restore(tmp_path / "again.db", replace=True)) == 2
        assert other["a"].get("y") == 2


def test_a_database_file_has_a_prefix(tmp_path: Path) -> None:
    with Store("sqlite://", prefix="bot_") as store:
        store["a"].put("x", 1)
        store.backup(tmp_path / "bot.db")
        store.backup(tmp_path / "bot.jsonl")
        assert store.restore(tmp_path / "bot.db", replace=True)[0].count == 1
    with Store("sqlite://") as store:
        with pytest.raises(InvalidBackup, match="prefix 'cs_'"):
            store.restore(tmp_path / "bot.db")
        assert store.restore(tmp_path / "bot.jsonl")[0].count == 1


def test_a_database_file_of_an_older_schema_must_be_upgraded_first(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with Store("sqlite://") as store:
        store["a"].put("x", 1)
        store.backup(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE cs_revision SET version_num = '0004'")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with Store("sqlite://") as store, pytest.raises(SchemaOutdated, match="db upgrade"):
        store.restore(path)
    assert path.read_bytes() == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files cannot be listed here")
def test_a_failed_restore_leaves_no_file_open(store: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        store[name].put_many((str(n), {"n": n}) for n in range(10))
    backup = tmp_path / "store.jsonl"
    store.backup(backup)

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        try:
            store.restore(backup, replace=True, progress=fail)
        finally:  # the traceback holds what failed
            opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert str(backup) not in opened
