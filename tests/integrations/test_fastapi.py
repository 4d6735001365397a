"""The services of the README and of the page, with a client that sends what they do not expect."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, README, blocks

from collections_store import AsyncStore

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install -e '.[dev]'")

from fastapi import Request
from fastapi.testclient import TestClient

NUL, HUGE = "a\0b", 10**30
Service = dict[str, Any]
"""The names of the program of a page."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def service(page: Path, wanted: Callable[[Any], bool]) -> Service:
    names: Service = {}
    code = "\n".join(block.text for block in blocks(page) if wanted(block))
    exec(code, names)
    return names


def client_of(names: Service) -> TestClient:
    """Return a client that gets 500 where a server would answer so."""
    return TestClient(names["app"], raise_server_exceptions=False)


@pytest.mark.usefixtures("folder")
def test_the_service_of_the_readme_refuses_what_cannot_be_stored() -> None:
    with client_of(service(README, lambda block: block.title == "service.py")) as client:
        assert client.put("/people/ada", json={"address": {"city": "Ulm"}}).status_code == 200
        assert client.get("/people", params={"city": "Ulm"}).json().keys() == {"ada"}
        for refused in (
            client.put("/people/ada", json={"name": NUL}),
            client.put("/people/ada", json={"n": HUGE}),
            client.put("/people/a%00b", json={}),
            client.get("/people/a%00b"),
            client.get(f"/people/{'a' * 5000}"),
            client.get("/people", params={"city": NUL}),
        ):
            assert (refused.status_code, [*refused.json()]) == (422, ["detail"])
        assert client.get("/people/bob").status_code == 404


@pytest.fixture
def names(folder: Path) -> Service:
    """The service of the page, with routes that meet other errors."""
    assert folder.is_dir()
    found = service(DOCS / "how-to" / "fastapi.md", lambda block: block.language == "python")

    @found["app"].patch("/notes/{id}")
    async def change(id: str, request: Request) -> None:
        await found["get_store"](request)["notes"].change(id, dict)

    @found["app"].post("/notes/{id}")
    async def insert(id: str, request: Request) -> None:
        await found["get_store"](request)["notes"].insert_one({}, id=id)

    return found


def test_the_service_of_the_page_maps_errors_to_statuses(names: Service, folder: Path) -> None:
    with client_of(names) as client:
        statuses = {
            404: [client.get("/notes/none"), client.patch("/notes/none")],
            409: [client.post("/notes/1")],
            412: [client.put("/notes/1", json={}, headers={"If-Match": '"9"'})],
            422: [
                client.put("/notes/1", json={"text": NUL}),
                client.put("/notes/1", json={"n": HUGE}),
                client.put("/notes/1", json={}, headers={"If-Match": f'"{HUGE}"'}),
                client.put("/notes/a%00b", json={}),
                client.get("/notes/a%00b"),
                client.get("/notes", params={"after": NUL}),
            ],
        }
        for status, answers in statuses.items():
            assert [each.status_code for each in answers] == [status] * len(answers)
        with closing(sqlite3.connect(folder / "service.db", isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            store = AsyncStore("sqlite:///service.db", busy_timeout=0.2)
            before, names["app"].state.store = names["app"].state.store, store
            busy = client.put("/notes/1", json={})
            names["app"].state.store = before
            asyncio.run(store.aclose())
        assert (busy.status_code, busy.json()) == (503, {"detail": "try again later"})
