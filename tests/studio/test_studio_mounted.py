"""The studio within another application, behind a prefix, over a `Store` and an `AsyncStore`."""

import asyncio
import html
import re
from typing import Any

import pytest
from anyio import to_thread
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from collections_store import AsyncStore
from collections_store.studio import live, studio

HOST = "https://intranet.example"


def application(store: Any, prefix: str) -> TestClient:
    """Return a client of an application that has the studio at a prefix."""
    pages = studio(getattr(store, "_target", store), authorize=lambda _: True, write=True)
    outer, _, inner = prefix.strip("/").partition("/")
    mounted = Starlette(routes=[Mount(f"/{inner}", pages)]) if inner else pages
    return TestClient(Starlette(routes=[Mount(f"/{outer}", mounted)]), base_url=HOST)


def links_of(page: str) -> set[str]:
    """Return the URLs of a page."""
    return {html.unescape(url) for url in re.findall(r'(?:href|src|action)="([^"]+)"', page)}


@pytest.mark.each_backend
@pytest.mark.parametrize("prefix", ["/studio", "/admin/store"])
def test_every_link_is_below_the_prefix(store: Any, prefix: str) -> None:
    store.collection("things", changes="both").put_many({f"{n:03}": {"n": n} for n in range(60)})
    client = application(store, prefix)
    seen: set[str] = set()
    new = {f"{prefix}/"}
    while new:
        seen |= new
        pages = {url: client.get(url) for url in new}
        assert {
            url: each.status_code for url, each in pages.items() if each.status_code != 200
        } == {}
        found = {
            url
            for each in pages.values()
            if "html" in each.headers["content-type"]
            for url in links_of(each.text)
        }
        assert [url for url in found if not url.startswith(f"{prefix}/") and url != "#main"] == []
        actions = ("/delete?", "/undo?")
        new = {
            url for url in found if url != "#main" and not any(each in url for each in actions)
        } - seen
        new = set(sorted(new)[: max(0, 60 - len(seen))])
    assert len(seen) >= 50


@pytest.mark.each_backend
def test_a_form_changes_the_store_behind_a_prefix(store: Any) -> None:
    store["things"].put("x", {"a": 1})
    client = application(store, "/studio")
    page = client.get("/studio/c/things/document?id=x&view=edit")
    assert "Path=/studio; SameSite=strict; Secure" in page.headers["set-cookie"]
    [token] = set(re.findall(r'name="form_token" value="(\w+)"', page.text))
    fields = {"form_token": token, "version": "1", "body": '{"a": 2}'}
    origin = {"Origin": HOST, "Sec-Fetch-Site": "same-origin"}
    answer = client.post("/studio/c/things/document?id=x", data=fields, headers=origin)
    assert answer.status_code == 200
    assert store["things"].get("x") == {"a": 2}
    fields = {**fields, "version": "2", "body": "3"}
    for headers in (
        {"Origin": "https://other.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert (
            client.post("/studio/c/things/document?id=x", data=fields, headers=headers).status_code
            == 403
        )
    assert store["things"].get("x") == {"a": 2}


@pytest.mark.each_backend
def test_the_head_shows_the_database_and_the_danger(store: Any) -> None:
    is_shared = not store.core.database.single_writer
    for write in (False, True):
        pages = studio(getattr(store, "_target", store), authorize=lambda _: True, write=write)
        page = TestClient(pages).get("/").text
        assert ("top danger" in page) is (is_shared and write)
        assert ("Read and write" in page) is write
        assert store.core.shown in html.unescape(page)
        password = store.core.url.password
        assert password is None or f":{password}@" not in page


async def request(pages: Any, path: str, sent: list[Any], is_begun: asyncio.Event) -> None:
    """Get a page, as a browser that stays connected; append the messages of the response."""

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body"):
            is_begun.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": [],
    }  # fmt: skip
    await pages(scope, receive, send)


def test_streams_of_changes_leave_the_pages_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "QUIET", 60.0)

    async def main() -> None:
        async with AsyncStore("sqlite://") as store:
            await store.create_collection("things", changes=True)
            pages = studio(store, authorize=lambda _: True)
            to_thread.current_default_thread_limiter().total_tokens = 1
            tasks = []
            for _ in range(3):
                is_begun = asyncio.Event()
                events = request(pages, "/c/things/live/events", [], is_begun)
                tasks.append(asyncio.ensure_future(events))
                await asyncio.wait_for(is_begun.wait(), 30)
            sent: list[Any] = []
            await asyncio.wait_for(request(pages, "/c/things", sent, asyncio.Event()), 30)
            assert sent[0]["status"] == 200
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_an_asynchronous_program_goes_on_during_a_page() -> None:
    """A page runs in a thread: the event loop runs other tasks, and the store's own methods, meanwhile."""

    async def main() -> None:
        async with AsyncStore("sqlite://") as store:
            await store["things"].put("x", {"a": 1})
            pages = studio(store, authorize=lambda _: True)
            sent: list[Any] = []
            page = asyncio.ensure_future(request(pages, "/c/things", sent, asyncio.Event()))
            while not page.done():
                await store["things"].get("x")
            await page
            assert sent[0]["status"] == 200
            assert b"things" in sent[1]["body"]

    asyncio.run(main())
