"""The overview, and the pages of a collection, over each backend, sync and async."""

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import Cli
from studio.browsing import browser, form_token

from collections_store import Store
from collections_store.studio import collection, overview

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def ids_of(page: str) -> list[str]:
    """Return the ids in the rows of a page."""
    return [html.unescape(id) for id in re.findall(r'<a class="mono id" [^>]*>([^<]*)</a>', page)]


def text_of(page: str) -> str:
    """Return the text of a page."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())


@pytest.fixture
def people(store: Any) -> Any:
    store["people"].put_many({f"p{n:03}": {"name": f"N{n}", "age": n} for n in range(120)})
    return store


@pytest.mark.each_backend
def test_the_overview_shows_every_collection(people: Any) -> None:
    people["people"].create_index("age")
    people["sessions"].put("a", {"schema_version": 2}, ttl=60)
    page = browser(people).get("/").text
    assert re.search(r"people 120 .* 1 age_1: \{'age': 1\} none 0", text_of(page))
    assert "2: 100 %" in text_of(page)
    assert "Expiring documents" in text_of(page)
    assert browser(people).get("/positions").json().keys() == {"people", "sessions"}


def test_many_collections_have_several_pages(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MOST", 2)
    for name in "abcde":
        store[name].put("x", 1)
    client, url, seen = browser(store), "/", []
    while url:
        page = client.get(url).text
        seen.append(re.findall(r'<a href="/c/(\w)">', page))
        [positions] = re.findall(r'data-positions="([^"]*)"', page)
        assert [*client.get(html.unescape(positions)).json()] == seen[-1]
        links = re.findall(r'rel="next" href="([^"]*)"', page)
        url = html.unescape(links[0]) if links else ""
    assert seen == [["a", "b"], ["c", "d"], ["e"]]


def test_an_empty_store_has_a_page(store: Any) -> None:
    assert "The store has no collections." in browser(store).get("/").text


@pytest.mark.each_backend
def test_pages_follow_each_other_by_cursor(people: Any) -> None:
    client, url = browser(people), "/c/people?limit=50"
    seen: list[list[str]] = []
    while url:
        page = client.get(url).text
        seen.append(ids_of(page))
        links = re.findall(r'rel="next" href="([^"]*)"', page)
        url = html.unescape(links[0]) if links else ""
    assert [len(ids) for ids in seen] == [50, 50, 20]
    assert [id for ids in seen for id in ids] == [f"p{n:03}" for n in range(120)]


@pytest.mark.each_backend
def test_a_page_filters_sorts_and_projects(people: Any) -> None:
    client = browser(people)
    asked = {"filter": '{"age": {"$gte": 100}}', "sort": "-age", "fields": "name", "limit": "25"}
    page = client.get("/c/people", params=asked).text
    assert ids_of(page) == [f"p{n}" for n in range(119, 99, -1)]
    assert re.findall(r'aria-sort="\w+"><a href="[^"]*">(\w+)</a>', page) == ["name"]
    assert 'value="-age"' in page


def test_a_column_sorts_up_then_down_then_not(people: Any) -> None:
    client, url = browser(people), "/c/people"
    seen = []
    for _ in range(3):
        page = client.get(url).text
        [(direction, link)] = re.findall(r'aria-sort="(\w+)"><a href="([^"]*)">age', page)
        seen.append((direction, ids_of(page)[0]))
        url = html.unescape(link)
    assert seen == [("none", "p000"), ("ascending", "p000"), ("descending", "p119")]


def test_a_column_with_an_odd_name_sorts_too(store: Any) -> None:
    store["things"].put_many({"a": {"x.y,z": 2}, "b": {"x.y,z": 1}})
    client = browser(store)
    [link] = re.findall(r'aria-sort="none"><a href="([^"]*)">x', client.get("/c/things").text)
    assert ids_of(client.get(html.unescape(link)).text) == ["b", "a"]


@pytest.mark.parametrize(
    ("entries", "problem", "marked"),
    [
        ({"filter": '{"age": {"$gtt": 1}}'}, "no such operator: did you mean '$gt'?", '"$gtt"'),
        ({"filter": '{"age": 1,, }'}, "must be JSON", ","),
        ({"filter": "[1]"}, "must be a JSON object", "[1]"),
        ({"filter": '{"a.b": {"$in": 5}}'}, "must be a list, got 5", '"$in"'),
        ({"sort": "age,-age"}, "sorts twice", "age"),
        ({"fields": '{"a": 1, "b": 0}'}, "all fields must be 1 or computed, or all 0", '"b"'),
    ],
)
def test_an_error_is_at_its_place(
    people: Any, entries: dict[str, str], problem: str, marked: str
) -> None:
    answer = browser(people).get("/c/people", params=entries)
    assert answer.status_code == 400
    [entry] = entries
    [(shown, mark)] = re.findall(
        rf'id="{entry}-problem".*?<strong>(.*?)</strong>.*?<mark>(.*?)</mark>', answer.text
    )
    assert html.unescape(shown).startswith(problem)
    assert html.unescape(mark) == marked
    assert f'aria-describedby="{entry}-problem"' in answer.text


def test_an_error_of_the_store_is_on_the_page(people: Any) -> None:
    answer = browser(people).get("/c/people", params={"after": "nonsense"})
    assert answer.status_code == 400
    assert "cursor: " in answer.text
    assert browser(people).get("/c/nobody").status_code == 404


@pytest.mark.each_backend
def test_a_scan_of_a_large_collection_needs_consent(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MANY", 100)
    store["people"].put_many({f"p{n:03}": {"age": n, "city": f"c{n % 7}"} for n in range(5000)})
    client, asked = browser(store), {"filter": '{"age": {"$gte": 7, "$lt": 8}}'}
    page = client.get("/c/people", params=asked).text
    assert ids_of(page) == []
    [link] = re.findall(r'<a class="button" href="([^"]*)">Read them', page)
    assert ids_of(client.get(html.unescape(link)).text) == ["p007"]
    store["people"].create_index("age")
    assert ids_of(client.get("/c/people", params=asked).text) == ["p007"]


@pytest.mark.each_backend
def test_documents_are_found_by_words(people: Any) -> None:
    people["people"].put_many({"tea": {"text": "green tea"}, "cake": {"text": "cake"}})
    client = browser(people)
    assert 'name="words"' not in client.get("/c/people").text
    people["people"].create_text_index("text")
    page = client.get("/c/people", params={"words": "tea"}).text
    assert ids_of(page) == ["tea"]
    answer = client.get("/c/people", params={"words": "-tea"})
    assert answer.status_code == 400
    assert 'role="alert">search' in answer.text


@pytest.mark.each_backend
@pytest.mark.parametrize("write", [False, True])
def test_documents_are_found_by_meaning(people: Any, write: bool) -> None:
    people["people"].create_vector_index("v", dimensions=2)
    people["people"].put_many({"a": {"v": [1, 0]}, "b": {"v": [0, 1]}})
    if not write:
        people["people"].store_vectors()
    page = browser(people, write=write).get("/c/people", params={"meaning": "[1, 0.1]"}).text
    assert ids_of(page)[:2] == ["a", "b"]


def test_a_search_of_a_reading_studio_stores_no_vectors(people: Any) -> None:
    people["people"].create_vector_index("v", dimensions=2)
    people["people"].put("a", {"v": [1, 0]})
    before = people["people"].search_backlog()
    assert before
    browser(people).get("/c/people", params={"meaning": "[1, 0]"})
    assert people["people"].search_backlog() == before


def test_copied_python_and_commands_find_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Store(url, prefix="my_") as store:
        odd = {"it's": 1, "a.b": 2, "x:y": 3, "-z": 4}
        store["things"].put_many({f"{n}": {"n": n, "text": f"tea {n}", **odd} for n in range(30)})
        store["things"].create_text_index("text")
        client = browser(store)
        for asked in (
            {"filter": '{"n": {"$gt": 3}, "it\'s": 1}', "sort": "-n"},
            {"sort": '[[["a.b"], -1], [["x:y"], 1], ["n", -1]]', "fields": "n", "limit": "25"},
            {"fields": '{"n": 1, "_id": 0}', "sort": "-n"},
            {"words": "tea -5", "filter": '{"n": {"$lt": 9}}'},
        ):
            page = client.get("/c/things", params=asked).text
            expected = ids_of(page)
            assert expected
            python, command = map(
                html.unescape, re.findall(r'<pre id="copy-\d">(.*?)</pre>', page, re.DOTALL)
            )
            names: dict[str, Any] = {}
            exec(python, names)
            assert [each.id for each in names["found"]] == expected
            lines = Cli().done(*shlex.split(command)[1:]).splitlines()
            assert [re.findall(r'"id": ?"(\w+)"', line)[0] for line in lines] == expected


@pytest.mark.each_backend
def test_fields_complete_a_filter(store: Any) -> None:
    store["people"].put_many({f"{n}": {"name": f"N{n}", "age": n} for n in range(9)})
    store["people"].put("odd", {"address": {"city": "Ulm"}, "tags": [{"t": 1}], "a.b": 1, "$c": 2})
    known = browser(store).get("/c/people/fields").json()
    fields = {each["path"]: each for each in known["fields"]}
    assert fields.keys() == {"name", "age", "address", "address.city", "tags", "tags.t"}
    assert fields["age"]["types"] == ["number"]
    assert fields["address.city"]["values"] == ['"Ulm"']
    assert "$gte" in known["operators"]


@pytest.mark.each_backend
def test_hostile_documents_are_text(store: Any) -> None:
    store["things"].put(HOSTILE, {HOSTILE: HOSTILE, "in": {HOSTILE: [HOSTILE, None]}})
    store["things"].put("direction", {"a": "x\u202ey\u200b", "list": ["\u2066"]})
    client = browser(store, write=True)
    where = {"id": HOSTILE}
    pages = [
        client.get("/c/things"),
        client.get("/c/things", params=dict.fromkeys(("filter", "sort", "fields", "words", "meaning", "after"), HOSTILE)),
        *(client.get("/c/things/document", params={**where, "view": view}) for view in ("", "json", "edit")),
        client.get("/c/things/history", params=where),
        client.get("/c/things/document", params={"id": f"{HOSTILE}!"}),
        client.get("/c/things/document", params={"id": "direction"}),
    ]  # fmt: skip
    for page in pages:
        assert "{{ 7 * 7 }}" in html.unescape(page.text) or "direction" in page.text
        assert "<script>" not in page.text
        assert "<img src=x" not in page.text
        assert not re.search("[\u202e\u200b\u2066]", page.text)
    assert "\\u202e" in pages[0].text


def test_no_page_has_an_invisible_character(store: Any) -> None:
    """Tag characters (U+E0041) and fillers (U+3164) hide text from a person, not from a language model."""
    odd = "x\u202e\u3164\U000e0041"
    things = store.create_collection("things", changes="both")
    things.create_index(odd, name="odd")
    things.put(odd, {odd: odd})
    client = browser(store, write=True)
    paths = ("/c/things/document", "/c/things/history")
    pages = [client.get(path, params={"id": odd}).text for path in paths]
    pages += [
        client.get(path).text for path in ("/", "/c/things", "/c/things/plan", "/c/things/schema")
    ]
    token = form_token(client, "/c/things/new")
    form = {"form_token": token, "version": "1"}
    pages.append(client.post("/c/things/delete", params={"id": odd}, data=form).text)
    assert [*filter(re.compile("[\u202e\u3164\U000e0041]").search, pages)] == []
    [body] = re.findall('name="body" value="([^"]*)"', pages[-1])
    assert json.loads(html.unescape(body)) == {odd: odd}


def test_large_documents_make_short_pages(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MAX_PAGE", 100_000)
    store["things"].put_many({f"{n:02}": {"text": "x" * 20_000} for n in range(40)})
    page = browser(store).get("/c/things").text
    assert len(ids_of(page)) == 4
    assert 'rel="next"' in page
    assert len(page) < 20_000


@pytest.mark.each_backend
def test_a_collection_without_objects_has_a_page(store: Any) -> None:
    store["things"].put_many({"a": 1, "b": [1, 2], "c": None, "d": "text"})
    page = browser(store).get("/c/things").text
    cells = re.findall(r'<td class="v (\w+)">([^<]*)</td>', page)
    assert cells == [("number", "1"), ("array", "[1, 2]"), ("null", "null"), ("string", "text")]
