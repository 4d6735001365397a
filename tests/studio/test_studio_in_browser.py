"""The ways of a person through the studio in a real Chromium: wide and narrow, light and dark, by keyboard alone.

`nox -s browser` installs the packages and runs the tests; the browser is that of COLLECTIONS_STORE_TEST_BROWSER, or the one on PATH.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from studio.browsing import studio_at

from collections_store import Path as Keys
from collections_store import Store
from collections_store.dialogues import Dialogues

pytest.importorskip("playwright", reason="playwright is not installed: nox -s browser")
pytest.importorskip("axe_playwright_python", reason="axe is not installed: nox -s browser")

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from collections_store.studio.app import PAGES

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = os.environ.get("COLLECTIONS_STORE_TEST_BROWSER") or next(
    filter(None, map(shutil.which, NAMES)), None
)
SCREENS = [(1280, "light"), (390, "dark")]
OTHER_SCREENS = [(1280, "dark"), (390, "light")]
HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>"
ID = urlencode({"id": HOSTILE})
FILTER = urlencode({"filter": json.dumps({HOSTILE: HOSTILE})})
PIPELINE = urlencode({"pipeline": json.dumps([{"$sortByCount": f"${HOSTILE}"}])})
VIEWS: dict[str, tuple[str, ...]] = {
    "/": ("",),
    "/c/{name}": ("", FILTER),
    "/c/{name}/document": (ID, f"{ID}&view=json", f"{ID}&view=edit"),
    "/c/{name}/history": (ID,),
    "/c/{name}/new": ("",),
    "/c/{name}/plan": ("", FILTER),
    "/c/{name}/aggregation": ("", PIPELINE, *(f"{PIPELINE}&view={v}" for v in ("json", "bar", "line", "histogram"))),
    "/c/{name}/schema": ("",),
    "/c/{name}/upgrades": ("",),
    "/c/{name}/live": ("",),
    "/dialogues": ("",),
    "/dialogues/{name}": ("", "part=terminal", "part=quarantine"),
    "/dialogues/{name}/conversation": (ID,),
    "/memories": ("",),
    "/memories/{name}": ("",),
    "/compare": ("",),
    "/compare/{name}": ("",),
}  # fmt: skip
"""The queries with which each page is looked at."""
GROUPS = {"": "", "c": "things", "compare": "things", "dialogues": "ada__dialogues", "memories": "memory__bot"}  # fmt: skip
NO_PAGES = {"/positions", "/c/{name}/fields", "/c/{name}/live/events"}
MODELS = """
VERSIONS = {"things": {"schema_version": 2, "upgrades": {1: lambda body: {**body, "upgraded": True}}}}
"""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        BROWSER is None, reason="there is no Chromium on PATH: set COLLECTIONS_STORE_TEST_BROWSER"
    ),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=SCREENS, ids=lambda each: f"{each[0]}-{each[1]}")
def screen(request: pytest.FixtureRequest, chromium: Any) -> Iterator["Screen"]:
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(20_000)
    yield Screen(context.new_page(), width)
    context.close()


class Screen:
    """A page, with everything that went wrong on it: dialogs, errors of scripts and of the policy, requests elsewhere."""

    def __init__(self, page: Any, width: int) -> None:
        self.page, self.width = page, width
        self.problems: list[str] = []
        page.on("dialog", self._dismiss)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._read)
        page.on(
            "request",
            lambda request: (
                self.problems.append(request.url) if "//127.0.0.1:" not in request.url else None
            ),
        )

    def _dismiss(self, dialog: Any) -> None:
        self.problems.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _read(self, message: Any) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.problems.append(message.text)

    def check(self) -> None:
        """Raise `AssertionError` if something went wrong, if axe finds a serious problem, if the page scrolls sideways, or if the
        present tab is not seen.
        """
        found = Axe().run(self.page, options={"resultTypes": ["violations"]}).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"])
            for each in found
            if each["impact"] in {"serious", "critical"}
        ]
        assert serious == []
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width
        for tab in self.page.locator(".tabs [aria-current]").all():
            box = tab.bounding_box()
            assert box["x"] >= 0, tab.inner_text()
            assert box["x"] + box["width"] <= self.width, tab.inner_text()
        assert self.problems == []

    def tab_to(self, text: str) -> None:
        """Press Tab until an element with this text has the focus, which must be visible."""
        focus = "(() => { const e = document.activeElement; return [(e.innerText || e.id).trim(), getComputedStyle(e).outlineStyle] })()"
        for _ in range(60):
            self.page.keyboard.press("Tab")
            found, outline = self.page.evaluate(focus)
            if found == text:
                assert outline != "none"
                return
        raise AssertionError(f"Tab does not lead to {text!r}")

    def press(self, key: str) -> None:
        """Press a key that leads to another page."""
        with self.page.expect_navigation():
            self.page.keyboard.press(key)


def test_a_person_finds_and_edits_by_keyboard_alone(screen: Screen, tmp_path: Path) -> None:
    url, page = f"sqlite:///{tmp_path / 'people.db'}", screen.page
    with Store(url) as store:
        people = store.collection("people", changes="both")
        people.put_many(
            {f"p{n}": {"name": f"N{n}", "address": {"city": f"C{n}"}} for n in range(60)}
        )
        with studio_at(url, "--write") as (_, link):
            page.goto(link)
            screen.check()
            screen.tab_to("people")
            screen.press("Enter")
            with page.expect_response("**/fields"):
                page.keyboard.press("/")
            page.keyboard.type('{"cit')
            page.wait_for_selector("#completions li")
            page.keyboard.press("ArrowDown")
            screen.check()
            page.keyboard.press("Enter")
            page.keyboard.type('"C7"}')
            assert page.input_value("#filter") == '{"address.city": "C7"}'
            screen.press("Enter")
            screen.tab_to("p7")
            screen.press("Enter")
            screen.check()
            screen.tab_to("Edit")
            screen.press("Enter")
            people.put("p7", {"name": "theirs"})
            screen.tab_to("body")
            page.keyboard.press("Control+A")
            page.keyboard.type('{"name": "mine"}')
            screen.tab_to("Save")
            screen.press("Enter")
            assert "version 1 was edited, and version 2 is stored" in page.inner_text("main")
            screen.check()
            screen.tab_to("Save over version 2")
            screen.press("Enter")
            assert people.get("p7") == {"name": "mine"}
            screen.tab_to("History")
            screen.press("Enter")
            assert page.locator("main section").count() == 3
            screen.check()


def test_a_person_adds_deletes_and_undoes_by_keyboard_alone(screen: Screen, tmp_path: Path) -> None:
    url, page = f"sqlite:///{tmp_path / 'people.db'}", screen.page
    with Store(url) as store:
        people = store.create_collection("people")
        with studio_at(url, "--write") as (_, link):
            page.goto(link)
            screen.tab_to("people")
            screen.press("Enter")
            screen.tab_to("Add a document")
            screen.press("Enter")
            screen.check()
            screen.tab_to("id")
            page.keyboard.type("typed")
            screen.tab_to("body")
            page.keyboard.press("Control+A")
            page.keyboard.type('{"by": "keyboard"}')
            screen.tab_to("Add")
            screen.press("Enter")
            assert people.get("typed") == {"by": "keyboard"}
            screen.tab_to("Delete")
            screen.press("Enter")
            assert not people.exists("typed")
            screen.check()
            screen.tab_to("Undo")
            screen.press("Enter")
            assert people.get("typed") == {"by": "keyboard"}


def test_a_person_explains_a_query_and_creates_the_index(screen: Screen, tmp_path: Path) -> None:
    url, page = f"sqlite:///{tmp_path / 'people.db'}", screen.page
    with Store(url) as store:
        people = store["people"]
        people.put_many({f"p{n}": {"age": n} for n in range(60)})
        with studio_at(url, "--write") as (_, link):
            page.goto(link)
            page.goto(f"{link.partition('?')[0]}c/people/plan")
            page.fill("#filter", '{"age": {"$gt": 30}}')
            with page.expect_navigation():
                page.get_by_role("button", name="Explain").click()
            assert "Scan of the collection" in page.inner_text(".plan")
            screen.check()
            with page.expect_navigation():
                page.get_by_role("button", name="Create the index").click()
            assert "Index age" in page.inner_text(".plan")
            assert "Scan" not in page.inner_text(".plan")
            assert len(people.indexes()) == 1
            screen.check()


@pytest.mark.parametrize("screen", SCREENS + OTHER_SCREENS, ids=str, indirect=True)
def test_every_page_is_free_of_barriers(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over hostile keys and values, on each screen."""
    assert {each.path for each in PAGES if each.method == "GET"} == {*VIEWS} | NO_PAGES
    url, copy = f"sqlite:///{tmp_path / 'hostile.db'}", f"sqlite:///{tmp_path / 'copy.db'}"
    fill(url, copy)
    (tmp_path / "hostile.py").write_text(MODELS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with studio_at(url, "--write", f"--compare={copy}", "--using=hostile:VERSIONS") as (_, link):
        screen.page.goto(link)
        for path, queries in VIEWS.items():
            page = path.replace("{name}", GROUPS[path.split("/")[1]])
            for query in queries:
                answer = screen.page.goto(f"{link.partition('/?')[0]}{page}?{query}")
                assert answer.status == 200, (page, query)
                screen.check()


def fill(url: str, copy: str) -> None:
    """Fill a store with hostile keys and values, and another with some that differ."""
    with Store(url) as store, Store(copy) as other:
        things = store.collection("things", changes="both")
        things.put(HOSTILE, {HOSTILE: HOSTILE, "": [{HOSTILE: ["\u202e"]}], "__proto__": 1})
        things.put(HOSTILE, {HOSTILE: [HOSTILE], "n": 1}, ttl=3600)
        things.put("plain", {"schema_version": 2, "n": 2})
        things.create_index([(Keys(HOSTILE.replace('"', "")), 1)])
        things.create_text_index("text")
        other["things"].put(HOSTILE, {HOSTILE: 1})
        other["things"].put("w" * 400, 1)
        other["things"].create_index("n")
        other["theirs"].put("1", 1)
        store.memory("bot").session(HOSTILE).put(HOSTILE, HOSTILE, ttl=3600)
        own = Dialogues(store, "ada")
        _, dialogue = own.create("bob", "ask", {"text": HOSTILE})
        own.finish(dialogue, "cancelled")
        store["dialogues__ada__dialogues__active"].put("bad", {"dialogue_label": HOSTILE})
        Dialogues(store, "ada").setup()
        own.create("bob", "ask", {"text": HOSTILE})
        store["dialogues__ada__dialogues__active"].put(HOSTILE, {"dialogue_label": HOSTILE})


def test_a_hostile_document_is_text(screen: Screen, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'hostile.db'}"
    with Store(url) as store:
        things = store.collection("things", changes="both")
        things.put(
            HOSTILE, {HOSTILE: HOSTILE, "": [{HOSTILE: [HOSTILE, "\u202e"]}], "__proto__": 1}
        )
        things.put(HOSTILE, {HOSTILE: [HOSTILE]})
        things.create_text_index("text")
    with studio_at(url, "--write") as (_, link):
        screen.page.goto(link)
        base = f"{link.partition('?')[0]}c/things"
        for entry in ("filter", "sort", "fields", "words"):
            screen.page.goto(base)
            screen.page.fill(f"#{entry}", HOSTILE)
            with screen.page.expect_navigation():
                screen.page.click("text=Find")
            assert screen.page.input_value(f"#{entry}") == HOSTILE
            screen.check()
        screen.page.goto(f"{base}/live")
        screen.page.get_by_text("Waiting for changes.").wait_for()
        with Store(url) as store:
            store["things"].put(HOSTILE, {HOSTILE: HOSTILE})
        screen.page.get_by_role("link", name=HOSTILE).wait_for()
        screen.check()


def test_live_changes_go_on_after_a_restart_of_the_server(screen: Screen, tmp_path: Path) -> None:
    url, page = f"sqlite:///{tmp_path / 'people.db'}", screen.page
    with Store(url) as store:
        people = store.create_collection("people", changes="both")
        with studio_at(url, "--token=reusable") as (_, link):
            page.goto(link)
            page.goto(f"{link.partition('?')[0]}c/people/live")
            page.get_by_text("Waiting for changes.").wait_for()
            people.put("first", {"n": 1})
            page.get_by_role("link", name="first").wait_for()
        people.put("meanwhile", {"n": 2})
        with studio_at(url, "--token=reusable", f"--port={urlsplit(link).port}"):
            page.context.new_page().goto(link)
            page.get_by_role("link", name="meanwhile").wait_for(timeout=60_000)
            people.put("later", {"n": 3})
            page.get_by_role("link", name="later").wait_for()
        shown = page.locator("#changes tbody a").all_inner_texts()
        assert shown == ["later", "meanwhile", "first"]


def test_a_person_reads_a_dialogue(screen: Screen, tmp_path: Path) -> None:
    url, page = f"sqlite:///{tmp_path / 'agent.db'}", screen.page
    with Store(url) as store, Store("sqlite://") as other:
        ada, bob = Dialogues(store, "ada"), Dialogues(other, "bob")
        ask, _ = ada.create("bob", "ask", {"text": HOSTILE})
        ada.update(bob.reply(bob.update(ask), "tell", {"text": "Four."}))
    with studio_at(url) as (_, link):
        page.goto(link)
        screen.tab_to("Dialogues")
        screen.press("Enter")
        screen.check()
        screen.tab_to("ada / dialogues")
        screen.press("Enter")
        screen.check()
        with page.expect_navigation():
            page.click("tbody a")
        own, others = page.locator(".own").bounding_box(), page.locator(".other").bounding_box()
        assert own["x"] > others["x"]
        assert HOSTILE in page.inner_text(".own")
        screen.check()


def test_the_expiry_of_a_memory_runs_down(screen: Screen, tmp_path: Path) -> None:
    url, page = f"sqlite:///{tmp_path / 'agent.db'}", screen.page
    with Store(url) as store:
        store.memory("bot").session("ada").put(HOSTILE, HOSTILE, ttl=3600)
    with studio_at(url) as (_, link):
        page.goto(link)
        screen.tab_to("Memories")
        screen.press("Enter")
        screen.check()
        screen.tab_to("bot")
        screen.press("Enter")
        screen.tab_to("ada")
        screen.press("Enter")
        screen.check()
        shown = page.inner_text("[data-left]")
        page.wait_for_function(
            "shown => document.querySelector('[data-left]').innerText !== shown", arg=shown
        )
        assert page.inner_text("[data-left]").startswith("59 min ")
