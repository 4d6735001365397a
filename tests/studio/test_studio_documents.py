"""The pages of a document: looked at, edited with a conflict, added, deleted and restored, with its history."""

import html
import re
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.testclient import TestClient
from studio.browsing import browser, form_token
from studio.test_studio_collections import text_of

from collections_store import InvalidOption
from collections_store.studio import document as pages

ODD = "a/../b?c=d&e=#f\r\n\u202e%20"


class Editor:
    """A client that submits the forms of a collection `things`."""

    def __init__(self, store: Any, **options: Any) -> None:
        self.client: TestClient = browser(store, write=True, **options)
        self.token = form_token(self.client, "/c/things/new")

    def post(self, page: str, of: str | None = None, **fields: Any) -> Any:
        query = {} if of is None else {"id": of}
        fields = {"form_token": self.token, **{name: str(value) for name, value in fields.items()}}
        return self.client.post(f"/c/things/{page}", params=query, data=fields)


@pytest.fixture
def editor(store: Any) -> Editor:
    store["things"].put("x", {"a": 1})
    return Editor(store)


@pytest.mark.each_backend
def test_an_edit_replaces_the_version_that_was_read(store: Any, editor: Editor) -> None:
    store["things"].put(ODD, {"a": 1}, ttl=1000)
    before = store["things"].document(ODD)
    answer = editor.post(
        "document", ODD, version=1, body='{"a": 12345678901234567890.5, "b": [null]}'
    )
    assert answer.status_code == 200
    assert "The document is saved." in answer.text
    after = store["things"].document(ODD)
    assert (after.version, after.body) == (2, {"a": 12345678901234567890.5, "b": [None]})
    assert after.expires_at == before.expires_at
    assert editor.post("document", "x", version=1, body="[5]").status_code == 200
    assert store["things"].get("x") == [5]


@pytest.mark.each_backend
def test_a_conflict_shows_both_sides(store: Any, editor: Editor) -> None:
    store["things"].put("x", {"a": "theirs"})
    answer = editor.post("document", "x", version=1, body='{"a": "mine"}')
    assert answer.status_code == 409
    assert store["things"].get("x") == {"a": "theirs"}
    page = text_of(answer.text)
    assert "version 1 was edited, and version 2 is stored" in page
    assert '- "a": "theirs" + "a": "mine"' in page
    assert '{"a": "mine"}' in html.unescape(answer.text)
    [version] = re.findall(r'name="version" value="(\d+)"', answer.text)
    assert editor.post("document", "x", version=version, body='{"a": "mine"}').status_code == 200
    assert store["things"].get("x") == {"a": "mine"}


def test_an_edit_of_a_deleted_document_can_add_it_again(store: Any, editor: Editor) -> None:
    store["things"].remove("x")
    answer = editor.post("document", "x", version=1, body='{"a": "mine"}')
    assert answer.status_code == 409
    assert not store["things"].exists("x")
    assert editor.post("undo", "x", body='{"a": mine}').status_code == 400
    assert editor.post("undo", "x", body='{"a": "mine"}', expires="1").status_code == 404
    assert editor.post("undo", "x", body='{"a": "mine"}').status_code == 200
    assert store["things"].get("x") == {"a": "mine"}


@pytest.mark.parametrize(
    ("text", "problem", "marked"),
    [
        ('{"a": tru}', "must be JSON", "t"),
        ("", "must be JSON", None),
        ('{"b": 1, "a": "x\\u0000y"}', "NUL", '"a"'),
    ],
)
def test_a_refused_body_stays_in_the_form(
    store: Any, editor: Editor, text: str, problem: str, marked: str | None
) -> None:
    for answer in (
        editor.post("document", "x", version=1, body=text),
        editor.post("new", id="y", ttl="", body=text),
    ):
        assert answer.status_code == 400
        shown = html.unescape(answer.text)
        assert text in shown
        [found] = re.findall(r'id="body-problem".*?<strong>(.*?)</strong>', shown)
        assert problem in found
        assert ([marked] if marked else []) == re.findall("<mark>(.*?)</mark>", shown)
    assert store["things"].document("x").version == 1
    assert not store["things"].exists("y")


@pytest.mark.each_backend
def test_a_unique_index_refuses_a_document(store: Any, editor: Editor) -> None:
    store["things"].create_index("a", unique=True)
    store["things"].put("y", {"a": 2})
    for answer in (
        editor.post("document", "x", version=1, body='{"a": 2}'),
        editor.post("new", id="z", ttl="", body='{"a": 2}'),
    ):
        assert answer.status_code == 400
        assert "unique index" in answer.text
        assert "{&#34;a&#34;: 2}" in answer.text


@pytest.mark.each_backend
def test_a_document_is_added(store: Any, editor: Editor) -> None:
    assert editor.post("new", id=ODD, ttl="60", body="7").status_code == 200
    assert store["things"].document(ODD).expires_at is not None
    assert editor.post("new", id="", ttl="", body='{"b": 1}').status_code == 200
    assert store["things"].find_one("b", 1).expires_at is None
    assert editor.post("new", id="x", ttl="", body="1").status_code == 400
    assert editor.post("new", id="n", ttl="soon", body="1").status_code == 400
    assert editor.post("new", id="n", ttl="-1", body="1").status_code == 400
    assert store["things"].count() == 3


@pytest.mark.each_backend
@pytest.mark.parametrize("ttl", [None, 1000])
def test_a_deletion_can_be_undone(store: Any, editor: Editor, ttl: float | None) -> None:
    store["things"].put(ODD, {"a": ["é", 2.5]}, ttl=ttl)
    before = store["things"].document(ODD)
    answer = editor.post("delete", ODD, version=1)
    assert answer.status_code == 200
    assert not store["things"].exists(ODD)
    fields = {
        name: html.unescape(value)
        for name, value in re.findall(r'name="(body|expires)" value="([^"]*)"', answer.text)
    }
    [action] = re.findall(r'action="([^"]*undo[^"]*)"', answer.text)
    undone = editor.client.post(html.unescape(action), data={"form_token": editor.token, **fields})
    assert undone.status_code == 200
    after = store["things"].document(ODD)
    assert (after.body, after.version) == (before.body, 1)
    assert (after.expires_us is None) is (ttl is None)
    assert ttl is None or abs(after.expires_us - before.expires_us) < 1_000_000


def test_another_version_is_not_deleted(store: Any, editor: Editor) -> None:
    store["things"].put("x", {"a": 2})
    answer = editor.post("delete", "x", version=1)
    assert answer.status_code == 409
    assert "must have version 1, got version 2" in text_of(answer.text)
    assert store["things"].exists("x")
    for version in ("1 or 1=1", "", "-1", "9" * 5000):
        assert editor.post("delete", "x", version=version).status_code == 400


def test_what_only_reads_has_no_form(store: Any) -> None:
    store["things"].put("x", {"a": 1})
    client = browser(store)
    for page in ("/c/things", "/c/things/document?id=x"):
        assert "<form method" not in client.get(page).text
        assert "/new" not in client.get(page).text
    assert client.get("/c/things/document?id=x&view=edit").status_code == 403
    assert client.get("/c/things/new").status_code == 403
    token = {"form_token": "0" * 64}
    for action in ("document?id=x", "delete?id=x", "undo?id=y", "new"):
        assert (
            client.post(
                f"/c/things/{action}", data={**token, "version": "1", "body": "2"}
            ).status_code
            == 403
        )
    assert [(each.id, each.version) for each in store["things"].list()] == [("x", 1)]


@pytest.mark.each_backend
def test_a_body_is_shown_as_a_tree_and_as_json(store: Any) -> None:
    deep: Any = "end"
    for _ in range(190):
        deep = [deep]
    store["things"].put("deep", deep)
    store["things"].put("wide", {f"k{n}": n for n in range(1000)})
    store["things"].put("null", None)
    client = browser(store)
    assert "end" in client.get("/c/things/document?id=deep").text
    assert "800 more: see JSON" in text_of(client.get("/c/things/document?id=wide").text)
    assert "null" in text_of(client.get("/c/things/document?id=null").text)
    assert "&#34;k999&#34;: 999" in client.get("/c/things/document?id=wide&view=json").text
    assert client.get("/c/things/document?id=nobody").status_code == 404


@pytest.mark.each_backend
@pytest.mark.parametrize("changes", ["after", "both"])
def test_the_history_has_the_differences(store: Any, changes: Any) -> None:
    things = store.collection("things", changes=changes)
    things.put("y", {"other": 1})
    things.put("x", {"a": 1, "b": 2})
    things.put("x", {"a": 1, "b": 3})
    things.remove("x")
    page = text_of(browser(store).get("/c/things/history?id=x").text)
    kinds = re.findall(r"(insert|update|remove), version (\d)", page)
    assert kinds == [("remove", "2"), ("update", "2"), ("insert", "1")]
    assert '- "b": 2 + "b": 3' in page
    assert "other" not in page


@pytest.mark.each_backend
def test_a_history_without_bodies_says_so(store: Any) -> None:
    store["plain"].put("x", 1)
    client = browser(store)
    assert "records none" in text_of(client.get("/c/plain/history?id=x").text)
    store.collection("things", changes=True).put("x", 1)
    assert "does not keep the bodies" in text_of(client.get("/c/things/history?id=x").text)
    assert "no change of this document" in text_of(client.get("/c/things/history?id=y").text)


def test_a_long_feed_is_read_for_a_while(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "READ", 2)
    things = store.collection("things", changes="after")
    for n in range(9):
        things.put("x", n)
    client = browser(store)
    assert "only the older part" not in client.get("/c/things/history?id=x").text
    monkeypatch.setattr(pages, "PATIENCE", 0.0)
    assert "only the older part" in client.get("/c/things/history?id=x").text


@dataclass
class Thing:
    a: int


@pytest.mark.each_backend
def test_a_document_is_checked_against_its_model(store: Any) -> None:
    store["things"].put("x", {"a": 1})
    store["things"].put("y", {"a": "one"})
    store["others"].put("x", {"a": "one"})
    editor = Editor(store, using={"things": Thing})
    client = editor.client
    assert "Model valid" in text_of(client.get("/c/things/document?id=x").text)
    assert "Model invalid a :" in text_of(client.get("/c/things/document?id=y").text)
    assert "Model" not in text_of(client.get("/c/others/document?id=x").text)
    assert re.search(r"things 2 .* 50 % invalid", text_of(client.get("/").text))
    answer = editor.post("document", "x", version=1, body='{"a": "no"}')
    assert answer.status_code == 400
    assert "<mark>&#34;a&#34;</mark>" in answer.text
    assert store["things"].get("x") == {"a": 1}


@pytest.mark.parametrize(
    ("using", "option"), [({"things": 5}, "model"), ("people:Person", "using")]
)
def test_a_model_must_be_one(store: Any, using: Any, option: str) -> None:
    with pytest.raises(InvalidOption, match=f"option {option}: "):
        browser(store, using=using)


def test_a_model_names_its_collection(store: Any) -> None:
    store["Thing"].put("x", {"a": "one"})
    client = browser(store, using=Thing)
    assert "Model invalid" in text_of(client.get("/c/Thing/document?id=x").text)
