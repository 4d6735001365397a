"""The pages that compare two stores, over each backend, sync and async."""

import asyncio
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from backends import Backend, SyncAdapter
from cli.cli_process import Cli
from studio.browsing import browser, studio_at

from collections_store import AsyncStore, InvalidOption, Store
from collections_store.studio import compare, studio
from collections_store.studio.pages import MAX_LINES

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def text_of(page: str) -> str:
    main = page[page.index("<main") :]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", main)).split())


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'other.db'}") as found:
        yield found


def copied(store: Any, other: Store, count: int = 20) -> Any:
    """Fill a collection with settings and indexes, and copy it."""
    things = store.collection("things", ttl=3600, changes="both")
    things.put_many({f"{n:03}": {"n": n, "x": [1.5, n / 7, None]} for n in range(count)})
    things.create_index("n")
    things.create_text_index("text")
    if hasattr(store, "_target"):
        with SyncAdapter(AsyncStore(other.core.shown), store._runner) as asynchronous:
            store.copy_to(asynchronous._target)
    else:
        store.copy_to(other)
    return things


@pytest.mark.each_backend
def test_a_copy_has_no_differences(store: Any, other: Store) -> None:
    copied(store, other)
    client = browser(store, other=other)
    assert ">Compare</a>" in client.get("/").text
    assert "things 20 20 equal" in text_of(client.get("/compare").text)
    page = text_of(client.get("/compare/things").text)
    assert "20 documents compared: no differences." in page
    assert "Go on" not in page


@pytest.mark.each_backend
def test_each_difference_is_shown(store: Any, other: Store) -> None:
    copied(store, other)
    there = other["things"]
    before = there.document("003")
    there.put("003", {"n": 3, "x": HOSTILE})
    there.put("004", there.get("004"))
    there.remove("005")
    there.put("only", {"there": HOSTILE})
    there.drop_index("n_1")
    there.create_index("x")
    store["mine"].put("a", 1)
    other["theirs"].put("a", 1)
    client = browser(store, other=other, write=True)
    page = text_of(client.get("/compare").text)
    assert "mine 1 none only here" in page
    assert "theirs none 1 only in the other store" in page
    assert "things 20 20 indexes" in page
    shown = client.get("/compare/things").text
    assert "<script>alert" not in shown
    page = text_of(shown)
    assert "21 documents compared: 4 differences." in page
    assert "n_1: {'n': 1} only here" in page
    assert "x_1: {'x': 1} only in the other store" in page
    assert "003 body version updated expires" in page
    assert f'+ "x": "{HOSTILE}"'.replace('"><', '\\"><') in page
    assert "004 version updated expires" in page
    assert "Both bodies are equal." in page
    assert '005 only here - { - "n": 5,' in page
    assert 'only only in the other store + { + "there"' in page
    assert before is not None
    assert f"Here: version {before.version}" in page
    missing = text_of(client.get("/compare/theirs").text)
    assert "The collection is only in the other store." in missing
    assert "1 document compared: 1 difference." in missing
    assert [each.name for each in store.collections()] == ["mine", "things"]


@pytest.mark.each_backend
def test_an_index_that_is_hidden_on_one_side_is_a_difference(store: Any, other: Store) -> None:
    copied(store, other)
    other["things"].hide_index("n_1")
    client = browser(store, other=other)
    assert "things 20 20 indexes" in text_of(client.get("/compare").text)
    page = text_of(client.get("/compare/things").text)
    assert "n_1: {'n': 1} only here" in page
    assert "n_1: {'n': 1}, hidden only in the other store" in page
    store["things"].hide_index("n_1")
    assert "things 20 20 equal" in text_of(client.get("/compare").text)


def test_long_differences_are_cut(store: Any, other: Store) -> None:
    count = 3 * MAX_LINES
    for each, value in ((store, 0), (other, 1)):
        each["things"].put("far", [*range(count), value])
        each["things"].put("wide", [value] * count)
    shown = browser(store, other=other).get("/compare/things").text
    page = text_of(shown)
    assert f"- 0 + 1 2 of {count + 4:,} lines are shown" in page
    assert f"{MAX_LINES:,} of {2 * count + 2:,} lines are shown" in page
    assert shown.count("<pre") == 2 + MAX_LINES


def test_the_settings_of_a_collection(store: Any, other: Store) -> None:
    copied(store, other)
    other.collection("things", ttl=60)
    page = text_of(browser(store, other=other).get("/compare/things").text)
    assert "ttl 3600000000 60000000" in page
    assert "things 20 20 ttl" in text_of(browser(store, other=other).get("/compare").text)


@pytest.mark.each_backend
def test_a_numbers_form_is_a_difference(store: Any, other: Store) -> None:
    for each, body in ((store, [1, 1.0, True, "é"]), (other, [1, 1, True, "é"])):
        each["things"].put("a", body)
    page = text_of(browser(store, other=other).get("/compare/things").text)
    assert "a body" in page


@pytest.mark.each_backend
def test_pages_go_on_where_the_last_ended(
    store: Any, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(store, other, 40)
    for n in range(0, 40, 3):
        other["things"].put(f"{n:03}", {"n": -n})
    other["things"].put("", {"id": "empty"})
    monkeypatch.setattr(compare, "MOST", 4)
    monkeypatch.setattr(compare, "READ", 3)
    client, url, seen, compared = browser(store, other=other), "/compare/things", [], 0
    while url:
        page = client.get(url).text
        seen += re.findall(r'<h2 class="mono">(?:<a [^>]*>)?([^<]*?)(?:</a>)? <span', page)
        compared += int(re.findall(r"(\d+) documents? compared", page)[0])
        found = re.findall(r'rel="next" href="([^"]+)"', page)
        url = html.unescape(found[0]) if found else ""
    assert [html.unescape(each) for each in seen] == ['""', *(f"{n:03}" for n in range(0, 40, 3))]
    assert compared == 41
    monkeypatch.setattr(compare, "PATIENCE", -1)
    assert "1 document compared" in text_of(client.get("/compare/things").text)


def test_pages_of_collections(store: Any, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        other[name].put("1", 1)
    monkeypatch.setattr(compare, "MOST", 2)
    client = browser(store, other=other)
    page = client.get("/compare").text
    assert re.findall(r"/compare/(\w)", page) == ["a", "b"]
    assert re.findall(r"/compare/(\w)", client.get("/compare?after=b").text) == ["c"]


def test_one_store_has_nothing_to_compare(store: Any) -> None:
    client = browser(store)
    assert ">Compare</a>" not in client.get("/").text
    assert client.get("/compare").status_code == 400
    assert client.get("/compare/things").status_code == 400


def test_an_unknown_collection(store: Any, other: Store) -> None:
    assert browser(store, other=other).get("/compare/none").status_code == 404


def test_an_application_compares_two_stores(tmp_path: Path) -> None:
    async def compared() -> str:
        url = f"sqlite:///{tmp_path / 'one.db'}"
        async with AsyncStore(url) as one, AsyncStore(url) as other:
            await one["things"].put("a", 1)
            app = studio(one, authorize=lambda _: True, compare=other)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
                return (await client.get("http://localhost/compare")).text

    assert "things 1 1 equal" in text_of(asyncio.run(compared()))
    with Store("sqlite://") as one, pytest.raises(InvalidOption, match="compare: must be a Store"):
        studio(one, authorize=lambda _: True, compare="sqlite://")  # type: ignore[arg-type]


def test_the_command_hides_the_passwords(postgres_backend: Backend, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'here.db'}"
    with Store(url) as here, Store(postgres_backend.url, **postgres_backend.options) as there:
        here["things"].put("a", 1)
        here.copy_to(there)
    options = [f"--compare={postgres_backend.url}", f"--compare-schema={postgres_backend.options['schema']}"]  # fmt: skip
    with studio_at(url, *options) as (_, link), httpx.Client(follow_redirects=True) as client:
        client.get(link)
        base = link.partition("?")[0]
        for path in ("compare", "compare/things", "compare/none"):
            page = client.get(base + path).text
            assert httpx.URL(postgres_backend.url).password not in page
        assert "1 document compared: no differences." in text_of(client.get(f"{base}compare/things").text)  # fmt: skip


def test_a_missing_file_is_not_created(tmp_path: Path) -> None:
    url, missing = f"sqlite:///{tmp_path / 'here.db'}", f"sqlite:///{tmp_path / 'none.db'}"
    with Store(url) as here:
        here["things"].put("a", 1)
    message = Cli().fails(4, "studio", url, "--compare", missing, "--no-browser")
    assert "there is no SQLite file" in message
    assert not (tmp_path / "none.db").exists()
