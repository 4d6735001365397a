"""Draws `studio.png`, the picture of the studio in the README: `python docs/images/studio.py`, with playwright and a Chromium on PATH."""

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from collections_store import Store
from collections_store.dialogues import Dialogues

PICTURE = Path(__file__).with_suffix(".png")
SIZE = {"width": 1100, "height": 620}
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
        Dialogues(store, "ada").create("bob", "ask", {"text": "What time is it?"})


def main() -> None:
    """Draw the picture."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/agent.db"
        fill(url)
        command = [sys.executable, "-m", "collections_store", "studio", url, "--no-browser"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
            assert process.stdout is not None
            link = next(
                word for word in process.stdout.readline().split() if word.startswith("http")
            )
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                page = browser.new_page(viewport=SIZE)
                page.goto(link)
                page.goto(
                    f"{link.partition('/?')[0]}/c/people?filter=%7B%22address.city%22%3A+%22Berlin%22%7D&sort=-age"
                )
                page.evaluate(
                    "document.querySelector('.database').textContent = 'sqlite:///agent.db'"
                )
                page.screenshot(path=PICTURE)
                browser.close()
            process.terminate()


if __name__ == "__main__":
    main()
