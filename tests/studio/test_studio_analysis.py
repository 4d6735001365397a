"""The pages of plans, pipelines, schemas and changes, over each backend, sync and async."""

import html
import json
import re
import threading
from typing import Any
from urllib.parse import urlencode

import pytest
from backends import Backend
from starlette.testclient import TestClient
from studio.browsing import browser, form_token

from collections_store import Store
from collections_store.studio import aggregation, explain, live

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7 * 7 }}"
PEOPLE = {
    f"{number:02}": {
        "name": f"person {number}",
        "age": number,
        "city": ["Rome", "Oslo"][number % 2],
    }
    for number in range(30)
}


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())


def at(path: str, **query: Any) -> str:
    values = {k: each if isinstance(each, str) else json.dumps(each) for k, each in query.items()}
    return f"{path}?{urlencode(values)}"


@pytest.fixture
def people(store: Any) -> Any:
    found = store["people"]
    found.put_many(PEOPLE)
    return found


@pytest.mark.each_backend
def test_a_plan_without_and_with_an_index(store: Any, people: Any) -> None:
    people.put_many((f"child {n}", {"age": n % 18}) for n in range(3000))  # PostgreSQL scans few
    client = browser(store, write=True)
    page = client.get(at("/c/people/plan", filter={"age": {"$gt": 20}}, sort="-age"))
    assert page.status_code == 200
    assert "Scan of the collection" in text_of(page.text)
    assert "create_index('age')" in text_of(page.text) or "create_index" in text_of(page.text)
    token = form_token(client, at("/c/people/plan", filter={"age": {"$gt": 20}}))
    form = {"form_token": token, "filter": '{"age": {"$gt": 20}}', "sort": "-age"}
    made = client.post("/c/people/indexes", data=form)
    assert [each.name for each in people.indexes()] != []
    after = text_of(made.text)
    assert "exists" in after
    assert "Scan of the collection" not in after
    assert "Index age" in after
    [name] = [each.name for each in people.indexes()]
    client.post("/c/people/indexes/drop", data={"form_token": token, "index": name})
    assert people.indexes() == []


def test_a_hidden_index_is_advised_and_used_again() -> None:
    with Store("sqlite://") as store:
        store["people"].put_many(PEOPLE)
        store["people"].create_index("age", hidden=True)
        client = browser(store, write=True)
        page = client.get(at("/c/people/plan", filter={"age": 3}))
        assert "unhide_index('age_1')" in text_of(page.text)
        assert "{'age': 1}, hidden" in text_of(page.text)
        form = {"form_token": form_token(client, at("/c/people/plan", filter={"age": 3}))}
        made = client.post("/c/people/indexes", data={**form, "filter": '{"age": 3}', "sort": ""})
        assert "Index age_1" in text_of(made.text)
        assert "hidden" not in str(store["people"].indexes()[0])


def test_a_scan_beside_an_index_says_so() -> None:
    with Store("sqlite://") as store:
        store["people"].put_many(PEOPLE)
        store["people"].create_index("age")
        client = browser(store)
        beside = text_of(client.get(at("/c/people/plan", filter={"age": 3}, sort="name")).text)
        walked = text_of(client.get(at("/c/people/plan", sort="age")).text)
    assert "All may be read, beside age_1." in beside  # to look for arrays in names
    assert "In the order of age_1." in walked


def test_a_reading_studio_makes_no_index(store: Any, people: Any) -> None:
    client = browser(store)
    page = client.get(at("/c/people/plan", filter={"age": 3}))
    assert "Create the index" not in page.text
    assert client.post("/c/people/indexes", data={"filter": '{"age": 3}'}).status_code == 403
    assert people.indexes() == []


@pytest.mark.each_backend
def test_the_measures_of_indexes(
    store: Any, people: Any, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.create_index("age")
    client = browser(store)
    page = text_of(client.get("/c/people/plan").text)
    assert re.search(r"age_1 age_1: {'age': 1} [\d.]+ KiB", page)
    counts = "The server counts the uses" if backend.is_postgresql else "does not count how often"
    assert counts in page
    monkeypatch.setattr(explain, "MANY", 10)
    page = text_of(client.get("/c/people/plan").text)
    assert ("Measure the indexes" in page) is not backend.is_postgresql
    page = text_of(client.get("/c/people/plan?measure=1").text)
    assert re.search(r"age_1 age_1: {'age': 1} [\d.]+ KiB", page)


def test_an_error_of_a_plan_is_shown_at_its_place(store: Any, people: Any) -> None:
    page = browser(store).get(at("/c/people/plan", filter={"age": {"$gtt": 1}}))
    assert page.status_code == 400
    assert "<mark>&#34;$gtt&#34;</mark>" in page.text


def test_a_pipeline_as_table_and_json(store: Any, people: Any) -> None:
    client = browser(store)
    pipeline = [{"$group": {"_id": "$city", "people": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
    page = text_of(client.get(at("/c/people/aggregation", pipeline=pipeline)).text)
    assert "Oslo 15" in page
    assert "2 results" in page
    as_json = client.get(at("/c/people/aggregation", pipeline=pipeline, view="json"))
    assert '{"_id": "Oslo", "people": 15}' in html.unescape(as_json.text)


@pytest.mark.parametrize("view", ["bar", "line", "histogram"])
def test_plots(store: Any, people: Any, view: str) -> None:
    pipeline = [{"$sortByCount": "$city"}]
    page = browser(store).get(at("/c/people/aggregation", pipeline=pipeline, view=view)).text
    assert "<svg viewBox" in page
    shapes = "circle" if view == "line" else "rect"
    assert len(re.findall(f'<{shapes} class="bar"', page)) == (20 if view == "histogram" else 2)
    none = browser(store).get(
        at("/c/people/aggregation", pipeline=[{"$project": {"name": 1}}], view=view)
    )
    assert "No field of the results has numbers." in none.text


def test_numbers_of_plots() -> None:
    results = [{"_id": "a", "n": -1}, {"_id": "b", "n": 3}, {"n": None}, 5]
    plot = aggregation.plot_of(results, "line")
    assert plot is not None
    assert (plot.pairs, plot.label, plot.value) == ([("a", -1), ("b", 3)], "_id", "n")
    assert (plot.limits, plot.points) == ((-1, 3), [(0, 240), (720, 0)])
    assert aggregation.binned([1, 1, 2, 5], 2) == [("1 to 3", 3), ("3 to 5", 1)]
    assert aggregation.binned([7], 2) == [("7 to 8", 1), ("8 to 9", 0)]


@pytest.mark.parametrize("view", ["bar", "line", "histogram"])
def test_the_widest_range_of_numbers_is_plotted(store: Any, view: str) -> None:
    store["wide"].put_many({f"{n}": {"n": n * 1.7e308} for n in (-1, 0, 1)})
    client = browser(store)
    plotted = client.get(at("/c/wide/aggregation", pipeline=[{"$sort": {"n": 1}}], view=view))
    assert plotted.status_code == 200
    assert not re.search(r"\b(nan|inf)\b", plotted.text)
    assert [count for _, count in aggregation.binned([-1.7e308, 0, 1.7e308], 3)] == [1, 1, 1]
    assert client.get("/c/wide/schema").status_code == 200


@pytest.mark.parametrize("stage", [{"$merge": "copy"}, {"$out": "copy"}])
def test_a_page_never_runs_a_pipeline_that_writes(store: Any, people: Any, stage: Any) -> None:
    page = browser(store, write=True).get(at("/c/people/aggregation", pipeline=[stage]))
    assert page.status_code == 400
    assert [each.name for each in store.collections()] == ["people"]


def test_errors_of_pipelines_are_shown_at_their_place(store: Any, people: Any) -> None:
    client = browser(store)
    page = client.get(at("/c/people/aggregation", pipeline=[{"$match": {}}, {"$gruop": {}}]))
    assert page.status_code == 400
    assert "no such stage" in page.text
    assert "<mark>&#34;$gruop&#34;</mark>" in page.text
    no_number = [{"$project": {"x": {"$add": ["$name", 1]}}}]
    found = client.get(at("/c/people/aggregation", pipeline=no_number))
    assert "$add requires a number" in text_of(found.text)
    assert client.get(at("/c/people/aggregation", pipeline="[")).status_code == 400


def test_a_pipeline_over_a_large_collection_asks_first(
    store: Any, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregation, "MANY", 10)
    client = browser(store)
    pipeline = [{"$sortByCount": "$city"}]
    assert "may read all" in client.get(at("/c/people/aggregation", pipeline=pipeline)).text
    assert "Oslo" in client.get(at("/c/people/aggregation", pipeline=pipeline, scan="1")).text
    limited = [{"$limit": 5}, {"$project": {"name": 1}}]
    assert "person 0" in client.get(at("/c/people/aggregation", pipeline=limited)).text


def test_results_are_bounded_in_rows_and_in_bytes(
    store: Any, people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = browser(store)
    streamed: list[Any] = [{"$project": {"name": 1}}]
    sorted_first: list[Any] = [{"$sort": {"age": 1}}]
    for pipeline in (streamed, sorted_first):
        url = at("/c/people/aggregation", pipeline=pipeline, view="json")
        assert "30 results" in (whole := text_of(client.get(url).text))
        assert "there are more" not in whole
        with monkeypatch.context() as patched:
            patched.setattr(aggregation, "MOST", 7)
            assert "7 results; there are more" in text_of(client.get(url).text)
        with monkeypatch.context() as patched:
            patched.setattr(aggregation, "MAX_PAGE", 200)
            page = text_of(client.get(url).text)
            [count] = re.findall(r"(\d+) results?; there are more", page)
            assert 1 < int(count) < 15
        with monkeypatch.context() as patched:
            patched.setattr(aggregation, "MAX_PAGE", 5)
            assert "1 result; there are more" in text_of(client.get(url).text)


GROUPED = {"$group": {"_id": None, "n": {"$sum": 1}}}
JOIN = {"from": "people", "as": "found"}
GRAPH = {"startWith": "$a", "connectFromField": "city", "connectToField": "age"}


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("people", [{"$match": {"age": -1}}, {"$limit": 3}]),
        ("people", [{"$limit": 20}, GROUPED]),
        ("people", [{"$skip": 20}, {"$limit": 3}]),
        ("people", [{"$sort": {"$id": 1}}, GROUPED]),
        ("few", [{"$unionWith": {"coll": "people", "pipeline": [GROUPED]}}]),
        ("few", [{"$facet": {"all": [{"$unionWith": "people"}]}}]),
        ("few", [{"$lookup": {**JOIN, "pipeline": [GROUPED]}}]),
        ("few", [{"$graphLookup": {**JOIN, **GRAPH}}]),
    ],
)
def test_every_way_to_read_a_large_collection_asks_first(
    store: Any, people: Any, monkeypatch: pytest.MonkeyPatch, name: str, pipeline: list[Any]
) -> None:
    monkeypatch.setattr(aggregation, "MANY", 10)
    store["few"].put("1", {"a": 1})
    client = browser(store)
    page = client.get(at(f"/c/{name}/aggregation", pipeline=pipeline))
    assert "may read all 30 documents of people" in page.text
    page = client.get(at(f"/c/{name}/aggregation", pipeline=pipeline, scan="1"))
    assert (page.status_code, "may read all" in page.text) == (200, False)


def test_a_schema(store: Any) -> None:
    store["things"].put_many(
        {
            "1": {"a": 1, "tags": ["x", 2]},
            "2": {"a": "1", "in": {"b": None}},
            "3": 5,
            "4": {"a": 2.5},
        }
    )
    page = text_of(browser(store).get("/c/things/schema").text)
    assert "From 4 documents" in page
    assert "(whole body) number 100 % 75 %" in page
    assert "a number 67 % string 33 % 25 %" in page
    assert "tags.[] string 50 % number 50 % 75 %" in page
    assert "in.b null 100 % 75 %" in page
    assert (
        "no documents" in browser(store).get("/c/none/schema").text
        or browser(store).get("/c/none/schema").status_code == 404
    )


def test_hostile_keys_and_values(store: Any) -> None:
    store["things"].put_many({"1": {HOSTILE: HOSTILE, "n": 1}})
    client = browser(store, write=True)
    group = [{"$group": {"_id": f"${HOSTILE.replace('.', '')}", "n": {"$sum": 1}}}]
    for path in (
        "/c/things/schema",
        at("/c/things/plan", filter={HOSTILE: 1}),
        at("/c/things/aggregation", pipeline=[{"$limit": 1}]),
        at("/c/things/aggregation", pipeline=[{"$limit": 1}], view="bar"),
        at("/c/things/aggregation", pipeline=group, view="json"),
    ):
        page = client.get(path).text
        assert "<script>alert" not in page, path
        assert "<img src=x" not in page, path
        assert "49" not in re.sub(r"[\d.]{3,}|form_token.*", "", page) or "7 * 7" in page, path


def events_of(client: TestClient, path: str, count: int, **headers: str) -> list[tuple[str, Any]]:
    """Return the first events of a stream, with their tokens."""
    found: list[tuple[str, Any]] = []
    with client.stream("GET", path, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        token = ""
        for line in response.iter_lines():
            if line.startswith("id: "):
                token = line[4:]
            elif line.startswith("data: "):
                found.append((token, json.loads(line[6:])))
                if len(found) == count:
                    return found
    return found


def test_changes_come_and_resume(shared_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "QUIET", 0.05)
    monkeypatch.setattr(live, "_events", bounded(live._events))
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store.create_collection("things", changes="after")
        client = browser(store)
        writer = threading.Timer(0.3, lambda: [things.put(f"{n}", {"n": n}) for n in range(3)])
        writer.start()
        path = at("/c/things/live/events", filter={"n": {"$ne": 1}}, kinds="written")
        seen = events_of(client, path, 2)
        writer.join()
        assert [(each["kind"], each["id"], each["body"]) for _, each in seen] == [
            ("insert", "0", '{"n": 0}'),
            ("insert", "2", '{"n": 2}'),
        ]
        things.put("4", {"n": 4})
        again = events_of(client, path, 2, **{"last-event-id": seen[0][0]})
        assert [each["id"] for _, each in again] == ["2", "4"]


def bounded(events: Any) -> Any:
    """The test client reads a response to its end: end the stream after a second of rounds."""

    def some(*arguments: Any) -> Any:
        for number, event in enumerate(events(*arguments)):
            yield event
            if number > 60:
                return

    return some


def test_a_collection_without_changes_says_how(store: Any, people: Any) -> None:
    client = browser(store)
    assert "does not record changes" in client.get("/c/people/live").text
    assert client.get(at("/c/people/live", filter="[")).status_code == 400
