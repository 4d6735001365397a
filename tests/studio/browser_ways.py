"""Ways that people go through the studio, in a headless Chromium, against the command in a process of its own: `nox -s browser`.

Each page that a way meets is also checked by axe-core. `COLLECTIONS_STORE_TEST_BROWSER` names a Chromium; else one on PATH is used.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collections_store import Store

sync_api = pytest.importorskip("playwright.sync_api", reason="nox -s browser")
axe_api = pytest.importorskip("axe_playwright_python.sync_playwright", reason="nox -s browser")

BROWSER = os.environ.get("COLLECTIONS_STORE_TEST_BROWSER") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
pytestmark = [
    pytest.mark.skipif(
        BROWSER is None, reason="there is no Chromium: COLLECTIONS_STORE_TEST_BROWSER names one"
    ),
    pytest.mark.timeout(300),
]
TOKEN = "a token of the tests, for as many browsers as they open"
HOSTILE = "<script>document.title = 'broken'</script>'\"><img src=x onerror=\"document.title = 'broken'\">{{ 7 * 7 }}"
ACTIVE = "(document.activeElement.labels?.[0] ?? document.activeElement).textContent"
WIDTHS = [(1280, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def served(url: str, port: int = 0) -> Iterator[str]:
    """Yield the address of the command's server, and stop it by Ctrl-C."""
    command = [sys.executable, "-m", "collections_store", "studio", url, "--write", "--no-browser"]
    command += [f"--port={port}"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "COLLECTIONS_STORE_STUDIO_TOKEN": TOKEN},
    )
    try:
        assert process.stdout is not None
        [address] = [part for part in process.stdout.readline().split() if part.startswith("http")]
        yield address.partition("/?")[0]
    finally:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(20) in {0, 130}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        people = opened.create_collection("people", changes="both")
        people.put_many(
            {
                f"{n:02}": {"name": f"person {n}", "age": n, "city": ["Rome", "Oslo"][n % 2]}
                for n in range(40)
            }
        )
        opened["odd"].put("1", {HOSTILE: HOSTILE, "in": [HOSTILE]})
        yield opened


@pytest.fixture
def address(store: Store, tmp_path: Path) -> Iterator[str]:
    with served(f"sqlite:///{tmp_path / 'store.db'}") as found:
        yield found


@pytest.fixture(params=WIDTHS, ids=lambda each: f"{each[0]}-{each[1]}")
def page(request: pytest.FixtureRequest, chromium: Any, address: str) -> Iterator[Any]:
    """A page that opened the link; the test fails if its console has an error."""
    width, scheme = request.param
    context = chromium.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, base_url=address
    )
    found, errors = context.new_page(), []
    found.on("pageerror", lambda error: errors.append(str(error)))
    found.goto(f"/?token={TOKEN}")
    yield found
    context.close()
    assert errors == []


def check(page: Any) -> None:
    """Check that the page has no serious finding of axe-core, and does not scroll sideways."""
    found = axe_api.Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in {"serious", "critical"}]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in serious] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_find_and_edit_with_a_conflict(page: Any, store: Store) -> None:
    check(page)
    page.get_by_role("link", name="people").first.click()
    page.get_by_label("Filter").fill('{"age": 7}')
    page.get_by_role("button", name="Find").click()
    check(page)
    page.get_by_role("link", name="07").click()
    check(page)
    page.get_by_role("link", name="Edit").click()
    text = page.get_by_role("textbox", name="Body").input_value()
    store["people"].update("07", {"$set": {"age": 70}})
    page.get_by_role("textbox", name="Body").fill(text.replace("person 7", "Seven"))
    page.get_by_role("button", name="Save").click()
    assert "version 1 was edited, and version 2 is stored" in page.get_by_role("alert").inner_text()
    check(page)
    page.get_by_role("button", name="Save over version 2").click()
    assert page.get_by_role("status").inner_text() == "The document is saved."
    assert store["people"].get("07") == {"name": "Seven", "age": 7, "city": "Oslo"}


def test_explain_and_create_the_index(page: Any, store: Store) -> None:
    page.goto("/c/people/plan")
    page.get_by_label("Filter").fill('{"age": {"$gt": 30}}')
    page.get_by_role("button", name="Explain").click()
    assert "Scan of the collection" in page.locator(".plan").inner_text()
    check(page)
    page.get_by_role("button", name="Create the index").click()
    assert "Index age" in page.locator(".plan").inner_text()
    assert "Scan" not in page.locator(".plan").inner_text()
    assert len(store["people"].indexes()) == 1
    check(page)


def test_a_hostile_document(page: Any) -> None:
    for path in ("/c/odd", "/c/odd/document?id=1", "/c/odd/document?id=1&view=json", "/c/odd/schema",
                 "/c/odd/history?id=1", "/c/odd/aggregation?pipeline=%5B%7B%22%24limit%22%3A1%7D%5D"):  # fmt: skip
        page.goto(path)
        assert "broken" not in page.title()
        assert page.locator("main img, main script").count() == 0
        check(page)
    page.goto("/c/odd/document?id=1&view=json")
    assert json.loads(page.locator("#json").inner_text())["in"] == [HOSTILE]


def test_live_changes_across_a_restart(chromium: Any, store: Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    with served(url) as address:
        port = int(address.rpartition(":")[2])
        page.goto(f"{address}/?token={TOKEN}")
        page.goto(f"{address}/c/people/live")
        page.get_by_text("Waiting for changes.").wait_for()
        store["people"].put("first", {"n": 1})
        page.get_by_role("link", name="first").wait_for()
        check(page)
    store["people"].put("meanwhile", {"n": 2})
    with served(url, port) as again:
        context.new_page().goto(f"{again}/?token={TOKEN}")
        page.get_by_role("link", name="meanwhile").wait_for(timeout=60_000)
        store["people"].put("later", {"n": 3})
        page.get_by_role("link", name="later").wait_for()
        shown = page.locator("#changes tbody a").all_inner_texts()
        assert shown == ["later", "meanwhile", "first"]
    context.close()


def test_add_delete_and_undo_by_keyboard(page: Any, store: Store) -> None:
    def press_until(name: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            text = page.evaluate(ACTIVE)
            if text.strip() == name:
                return
        raise AssertionError(f"no Tab leads to {name}")

    page.goto("/c/people")
    press_until("Add a document")
    page.keyboard.press("Enter")
    page.wait_for_url("**/new")
    check(page)
    press_until("id")
    page.keyboard.type("typed")
    press_until("Body")
    page.keyboard.press("Control+A")
    page.keyboard.type('{"by": "keyboard"}')
    press_until("Add")
    page.keyboard.press("Enter")
    page.wait_for_url("**/document?id=typed*")
    assert store["people"].get("typed") == {"by": "keyboard"}
    press_until("Delete")
    page.keyboard.press("Enter")
    page.get_by_text("The document is deleted.").wait_for()
    assert store["people"].get("typed") is None
    check(page)
    press_until("Undo")
    page.keyboard.press("Enter")
    page.wait_for_url("**/document?id=typed*")
    assert store["people"].get("typed") == {"by": "keyboard"}
