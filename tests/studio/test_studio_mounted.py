"""The studio within another application, behind a prefix, over a `Store` and an `AsyncStore`."""

import asyncio
import html
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from collections_store import AsyncStore
from collections_store.studio import studio

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


def test_an_asynchronous_program_goes_on_during_a_page() -> None:
    """A page runs in a thread: the event loop runs other tasks, and the store's own methods, meanwhile."""

    async def main() -> None:
        async with AsyncStore("sqlite://") as store:
            await store["things"].put("x", {"a": 1})
            pages = studio(store, authorize=lambda _: True)
            sent: list[Any] = []

            async def receive() -> Any:
                await asyncio.Event().wait()

            async def send(message: Any) -> None:
                sent.append(message)

            scope = {
                "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
                "path": "/c/things", "raw_path": b"/c/things", "root_path": "", "query_string": b"", "headers": [],
            }  # fmt: skip
            page = asyncio.ensure_future(pages(scope, receive, send))
            while not page.done():
                await store["things"].get("x")
            await page
            assert sent[0]["status"] == 200
            assert b"things" in sent[1]["body"]

    asyncio.run(main())
