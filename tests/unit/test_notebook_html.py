"""What a notebook shows: documents, lists, pages and explanations as HTML."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from collections_store import Document, Page, SearchPage, SearchResult, Store
from collections_store.codec.html import MAX_BODY, MAX_CELL, MAX_COLUMNS, MAX_ROWS

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><b>",
    "</pre></td></table>",
    "&lt;i&gt;",
    "$x$ \\(y\\)",
    "a\x00\x1b[31m\u202eb",
    "\ud800",
]


class Reader(HTMLParser):
    """Collects the elements, attributes and the text of HTML, and checks that each element is closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.opened: list[str] = []
        self.feed(source)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: Any) -> Reader:
    source = value._repr_html_()
    assert source.encode()
    reader = Reader(source)
    assert reader.elements <= {*("div", "table", "thead", "tbody", "tr", "th", "td", "pre", "span")}
    assert reader.attributes <= {"style", "class"}
    return reader


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_keys_and_bodies_are_text(text: str) -> None:
    printed = text.replace("\x00", "\\x00").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    printed = printed.replace("\ud800", "\\ud800")
    for body in (text, {text: text}, [text], {"a": {text: [text]}}):
        document = Document(text, body)
        result = SearchResult(document, 1.5)
        with Store("sqlite://") as store:
            store["things"].put("1", {"a": 1})
            found = store["things"].find()
        found[:] = [document]
        for value in (document, Page((document,)), SearchPage((result,)), found):
            assert printed in shown(value).text


def test_a_document_has_its_facts_and_its_body() -> None:
    text = shown(Document("ada", {"name": "Ada"}, 3, 0, 1_000_000, 2_000_000)).text
    assert re.search(r"id.*ada.*version.*3.*created.*1970.*expires.*00:00:02", text, re.DOTALL)
    assert '{\n  "name": "Ada"\n}' in text
    assert "expires" not in shown(Document("ada", None)).text


def test_a_list_and_a_page_are_tables() -> None:
    with Store("sqlite://") as store:
        people = store["people"]
        people.put("ada", {"name": "Ada", "tags": ["a"]})
        people.put("bob", 5)
        text = shown(people.find()).text
        assert text == 'idnametags(body)adaAda["a"]bob52 documents'
        assert shown(people.find({"name": 1})).text == "0 documents"
        assert shown(people.page(limit=1)).text.endswith(
            "1 document; the cursor fetches the next page"
        )


def test_results_of_pipelines_are_a_table() -> None:
    with Store("sqlite://") as store:
        people = store["people"]
        grouped = [{"$group": {"_id": "$city", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
        assert shown(people.aggregate(grouped)).text == "0 results"
        people.put_many({f"{n}": {"city": ["Oslo", "Rome"][n % 2]} for n in range(3)})
        found = people.aggregate(grouped)
        assert found == [{"_id": "Oslo", "n": 2}, {"_id": "Rome", "n": 1}]
        assert shown(found).text == "_idnOslo2Rome12 results"
        assert shown(people.aggregate([{"$limit": 1}])).text == "cityOslo1 result"
        assert shown(people.aggregate([{"$count": "n"}])).text == "n31 result"
        assert shown(people.aggregate([{"$sort": {"city": 1}}])).text.endswith("3 results")
        assert shown(people.aggregate([{"$merge": "copies"}])).text == "0 results"


def test_the_size_is_bounded() -> None:
    wide = {f"{'k' * 1000}{n}": "x" * 1000 for n in range(1000)}
    documents = tuple(Document(str(n) * 1000, wide) for n in range(1000))
    most = (MAX_ROWS + 1) * (MAX_COLUMNS + 1) * (MAX_CELL + 20) + 1000
    page = Page(documents)
    assert len(page._repr_html_()) < most
    assert "1,000 documents, the first 20 shown, some fields left out" in shown(page).text
    bodies: list[Any] = [wide, ["x"] * 10**6, [[]] * 10**6, "x" * 10**6]
    for body in bodies:
        assert len(Document("1", body)._repr_html_()) < 2 * MAX_BODY


def test_an_instance_of_a_model_is_its_repr() -> None:
    class Person:
        def __repr__(self) -> str:
            return "<Person>"

    assert "<Person>" in shown(Document("1", Person())).text
    assert "<Person>" in shown(Page((Document("1", Person()),))).text


def test_a_plan_is_a_picture_with_scans_in_red() -> None:
    with Store("sqlite://") as store:
        things = store["things"]
        things.put("1", {"<b>": 1})
        scan = things.explain({"<b>": 1}, sort="n")
        things.create_index(["<b>", "n"])
        indexed = things.explain({"<b>": 1}, sort="n")
    red = "rgba(220,40,40"
    assert (
        "the whole collection: about 1 → no index → sorted by the database → result"
        in shown(scan).text
    )
    assert scan._repr_html_().count(red) == 3
    assert (
        "a part of the collection → index <b>_1_n_1 → from an index → result" in shown(indexed).text
    )
    assert red not in indexed._repr_html_()


def test_the_plan_of_a_pipeline_is_a_picture() -> None:
    with Store("sqlite://") as store:
        things = store["things"]
        things.put("1", {"a": 1, "n": 1})
        sorted_by = things.explain_aggregate([{"$sort": {"a": 1}}, {"$limit": 1}])
        things.create_index("n")
        counted = shown(things.explain_aggregate([{"$sortByCount": "$n"}])).text
        read = shown(things.explain_aggregate([{"$redact": "$$KEEP"}])).text
    assert "no index → sorted by the database → result" in shown(sorted_by).text
    assert " → $sortByCount in Python → result" in counted
    assert "no index → $redact in Python → result" in read
