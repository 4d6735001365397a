"""Draws the pictures of the page about the studio: `python docs/images/studio.py`, with playwright and a Chromium on PATH."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from collections_store import Store
from collections_store.dialogues import Dialogues

FOLDER = Path(__file__).parent
BERLIN = "%7B%22address.city%22%3A+%22Berlin%22%7D"
PICTURES = {
    "studio.png": f"/c/people?filter={BERLIN}&sort=-age",
    "studio-plan.png": "/c/people/plan?filter=%7B%22age%22%3A+%7B%22%24gt%22%3A+60%7D%7D",
    "studio-dialogue.png": "/dialogues/ada__dialogues",
}
"""The pictures, and the pages that they show; that of the dialogue, the first of its list."""
SIZE: ViewportSize = {"width": 1100, "height": 620}
NAME = """addEventListener("DOMContentLoaded", () => {
  const name = document.querySelector(".database");
  if (name) name.textContent = "sqlite:///agent.db";
})"""
"""Shows another path than that of the temporary folder."""
CITIES = ("Berlin", "Oslo", "Paris", "Rome")
LIKES = ("chess", "go", "rain", "tea")
NAMES = ("Ada", "Alan", "Barbara", "Edsger", "Grace", "John", "Katherine", "Margaret", "Tim")


def fill(url: str) -> None:
    """Write the documents of the picture."""
    some = random.Random(1)
    with Store(url) as store:
        people = store.create_collection("people", changes="both")
        people.create_index("address.city")
        people.put_many(
            (f"{name.lower()}-{n:03}", {
                "name": name,
                "age": some.randint(20, 80),
                "address": {"city": some.choice(CITIES)},
                "likes": some.sample(LIKES, 2),
            })
            for n in range(120)
            for name in [some.choice(NAMES)]
        )  # fmt: skip
        store.memory("bot").put("topic", "tea")
        with Store("sqlite://") as elsewhere:
            ada, bob = Dialogues(store, "ada"), Dialogues(elsewhere, "bob")
            asked, _ = ada.create("bob", "ask", {"text": "What time is it?"})
            ada.update(bob.reply(bob.update(asked), "tell", {"text": "Four in the afternoon."}))


@contextmanager
def opened(url: str, size: ViewportSize, scale: float = 1) -> Iterator[tuple[Page, str]]:
    """Yield a page of a Chromium that opened the studio over a store, and the URL of the studio."""
    command = [sys.executable, "-m", "collections_store", "studio", url, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        link = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        with sync_playwright() as playwright:
            path = os.environ.get("COLLECTIONS_STORE_TEST_BROWSER") or shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            page = browser.new_page(viewport=size, device_scale_factor=scale)
            page.add_init_script(NAME)
            page.goto(link)
            yield page, link.partition("/?")[0]
            browser.close()
        process.terminate()


def main() -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/agent.db"
        fill(url)
        with opened(url, SIZE) as (page, base):
            for name, path in PICTURES.items():
                page.goto(base + path)
                if "dialogue" in name:
                    page.click("tbody a")
                page.screenshot(path=FOLDER / name)


if __name__ == "__main__":
    main()
