"""Keys, ids, values and names of an attacker: they work or are rejected, and are never part of SQL text."""

from typing import Any

import pytest

from collections_store import (
    InvalidBody,
    InvalidFilter,
    InvalidId,
    InvalidIndex,
    InvalidName,
    InvalidSort,
    Path,
)

pytestmark = pytest.mark.each_backend

HOSTILE = [
    "'",
    "''",
    "' OR 1=1 --",
    "'; DROP TABLE cs_collections; --",
    '"',
    '""',
    '" || "1" == "1',
    '")) || (1==1',
    "\\",
    "\\\\",
    "\\'",
    '\\"',
    "\\u0041",
    "\\n",
    "a.b",
    ".",
    "..",
    "$",
    "$.a",
    "$id",
    "$where",
    "%",
    "%s",
    "%(id)s",
    "%(value_0)s",
    "%%",
    ":",
    ":id",
    ":value_0",
    "?",
    "[0]",
    "a[0]",
    "*",
    "@",
    "",
    " ",
    "0",
    "01",
    "-1",
    "é",
    "日本語",
    "\u202e",
    "🙂",
    "\x01\x1f\x7f",
    "\n\r\t",
    "--",
    "/* */",
    "__[POSTCOMPILE_id]",
    "{a,b}",
    "null",
    "k" * 10_000,
    "é" * 10_000,
]
UNSTORABLE = ["a\0b", "\0", "\ud800", "a\udfffb"]


@pytest.fixture
def store(emptied_store: Any) -> Any:
    return emptied_store


@pytest.mark.parametrize("key", HOSTILE, ids=lambda key: ascii(key)[:20])
def test_hostile_keys_work(things: Any, key: str) -> None:
    body = {key: {"x": 1, key: [2, {key: "deep"}]}, "other": 1}
    things.put("target", body)
    things.put("bystander", {"other": 1, "x": {"x": 1}})
    assert things.get("target") == body
    assert [d.id for d in things.find(Path(key, "x"), 1)] == ["target"]
    assert [d.id for d in things.find(Path(key, key), 2)] == ["target"]
    assert [d.id for d in things.find(Path(key, key, key), "deep")] == ["target"]
    assert [d.id for d in things.find(Path(key, "y", key), 1)] == []
    assert things.count(Path(key, "x"), 1) == 1
    missing = [d.id for d in things.find(Path(key), None)]
    assert missing == ["bystander"]
    if "." not in key and not key.startswith("$"):
        assert [d.id for d in things.find({key: {"$eq": body[key]}})] == ["target"]
    assert things.count() == 2


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:20])
def test_hostile_values_and_ids_work(things: Any, text: str) -> None:
    things.put("target", {"v": text, "list": [text]})
    things.put("bystander", {"v": "x"})
    assert [d.id for d in things.find({"v": text, "list": text})] == ["target"]
    assert [d.id for d in things.find("v", {text: text})] == []
    if len(text.encode()) > 2000:
        with pytest.raises(InvalidId, match="more than 2,000"):
            things.put(text, 1)
        return
    things.put(text, {"n": 1})
    assert things.get(text) == {"n": 1}
    assert things.get_many([text]) == {text: {"n": 1}}
    assert [d.id for d in things.find("$id", text)] == [text]
    assert things.remove_many([text]) == 1
    assert things.count() == 2


@pytest.mark.parametrize("text", UNSTORABLE, ids=ascii)
def test_unstorable_text_is_rejected(things: Any, text: str) -> None:
    things.put("a", 1)
    for body in ({text: 1}, {"v": text}, text, [[text]]):
        with pytest.raises(InvalidBody):
            things.put("a", body)
    with pytest.raises(InvalidId):
        things.put(text, 1)
    with pytest.raises(InvalidFilter):
        things.find({text: 1})
    with pytest.raises(InvalidFilter):
        things.find("v", text)
    with pytest.raises(InvalidSort):
        things.find(sort=text)
    with pytest.raises(InvalidIndex):
        things.create_index(text)
    assert [(d.id, d.body, d.version) for d in things.list()] == [("a", 1, 1)]


def test_nul_can_be_replaced(open_store: Any) -> None:
    things = open_store(nul="replace")["things"]
    things.put("a", {"k\0": ["v\0"]})
    assert things.get("a") == {"k\ufffd": ["v\ufffd"]}
    assert [d.id for d in things.find("k\ufffd", "v\0")] == ["a"]
    with pytest.raises(InvalidBody, match="two keys become one"):
        things.put("a", {"k\0": 1, "k\ufffd": 2})


FINE_NAMES = {"0", "01", "null"}
BAD_NAMES = [*HOSTILE, *UNSTORABLE, "a b", "a-b", "x" * 201, "٣", "abc\n"]


@pytest.mark.parametrize(
    "name", [n for n in BAD_NAMES if n not in FINE_NAMES], ids=lambda n: ascii(n)[:20]
)
def test_hostile_names_are_rejected(store: Any, name: str) -> None:
    for method in (store.get_sync_collection, store.drop, lambda name: store[name], store.model):
        with pytest.raises(InvalidName, match="cannot name a collection"):
            method(name)
    with pytest.raises(InvalidName):
        store.rename("fine", name)
    assert store.collections() == []


@pytest.mark.parametrize("id", [None, 1, 1.5, True, b"a", ("a",)], ids=repr)
def test_an_id_is_a_string(things: Any, id: Any) -> None:
    for method in (things.get, things.document, things.exists, things.remove):
        with pytest.raises(InvalidId, match="not a string"):
            method(id)
    with pytest.raises(InvalidId):
        things.put(id, 1)
    with pytest.raises(InvalidId):
        things.get_many([id])
