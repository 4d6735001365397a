"""Draws `tour.svg`, the moving picture of the README: `python docs/images/tour.py`, with playwright and a Chromium on PATH.

The statements run, and the picture shows what they print; the last scene is the studio over the same store.
"""

import base64
import io
import re
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from textwrap import wrap
from typing import Any

from pygments.lexers import PythonLexer
from pygments.token import Keyword, Number, String

PICTURE = Path(__file__).with_suffix(".svg")
WIDTH, HEIGHT, TOP, LINE, COLUMNS = 880, 440, 44, 24, 88
SECONDS = 4.0
"""Of a scene; the last one is the studio."""
SCENES = {
    "Put JSON into a file": [
        "from collections_store import Store",
        'store = Store("sqlite:///agent.db")',
        'people = store["people"]',
        'people.put("ada", {"name": "Ada", "address": {"city": "Berlin"}, "likes": ["tea"]})',
        'people.put("grace", {"name": "Grace", "address": {"city": "Paris"}, "likes": ["tea"]})',
        'people.update("ada", {"$push": {"likes": "chess"}})',
        'people.get("ada")',
    ],
    "Store a class": [
        "from dataclasses import dataclass",
        "@dataclass\nclass City:\n    country: str\n    people: int",
        'cities = store.collection("cities", model=City)',
        'cities.put("berlin", City("de", 3_900_000))',
        'cities.get("berlin")',
        'cities.put("oslo", City("no", "many"))',
    ],
    "Ask in MongoDB's language": [
        'people.find({"address.city": "Paris"})',
        'people.count({"likes": {"$in": ["chess", "go"]}})',
        'people.aggregate([{"$unwind": "$likes"}, {"$sortByCount": "$likes"}])',
        'people.put_many((f"n{n}", {"name": f"N{n}", "age": n % 90}) for n in range(3000))',
        'people.count({"age": {"$gte": 60}})',
    ],
    "See how a query runs": [
        'print(people.explain({"age": {"$gt": 60}}, sort="age"))',
        'people.create_index("age")',
        'print(people.explain({"age": {"$gt": 60}}, sort="age"))',
    ],
}
STUDIO = "Look inside: collections-store studio sqlite:///agent.db"
PAGE = "/c/people?filter=%7B%22age%22%3A+%7B%22%24gt%22%3A+60%7D%7D&sort=age&fields=name%2C+age"
THEMES = {
    "light": ("#ffffff", "#1b2130", "#5a6375", "#2456c9", "#7a2f8f", "#17663a", "#9a3412", "#dcdfe6"),
    "dark": ("#12151b", "#e6e9ef", "#9da7b9", "#8db1ff", "#d9a6ea", "#8fd6a8", "#f5ab84", "#333b4a"),
}  # fmt: skip
STYLE = (
    ".ground {{ fill: {0}; stroke: {7} }} text {{ fill: {1} }} .quiet {{ fill: {2} }} .head {{ fill: {3} }} "
    ".keyword {{ fill: {4} }} .string {{ fill: {5} }} .number {{ fill: {6} }} .step {{ fill: {7} }} .now {{ fill: {3} }}"
)


@dataclass(frozen=True)
class Shown:
    """A line of a scene: SVG within a text element, and the statement that shows it."""

    inside: str
    statement: int


def run(statement: str, names: dict[str, Any]) -> list[str]:
    """Run a statement as the interactive interpreter does; return what it prints, or the last line of its traceback."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            exec(compile(statement, "<tour>", "single"), names)
        except Exception as error:  # noqa: BLE001 - the picture shows the error
            print(*traceback.format_exception_only(error), sep="", end="")
    return [piece for line in printed.getvalue().splitlines() for piece in wrap(line, COLUMNS)]


def highlighted(line: str) -> str:
    """Return a line of Python with its syntax highlighted."""
    kinds = {Keyword: "keyword", String: "string", Number: "number"}
    parts = []
    for token, text in PythonLexer(ensurenl=False, stripnl=False).get_tokens(line):
        name = next((name for kind, name in kinds.items() if token in kind), None)
        parts.append(f'<tspan class="{name}">{escape(text)}</tspan>' if name else escape(text))
    return "".join(parts)


def scenes() -> Iterator[list[Shown]]:
    """Run the statements in the present folder; yield the lines of each scene."""
    names: dict[str, Any] = {"__name__": "tour"}
    for statements in SCENES.values():
        lines: list[Shown] = []
        for number, statement in enumerate(statements):
            for prompt, line in zip(">" + "." * 9, statement.splitlines(), strict=False):
                start = f'<tspan class="quiet">{escape(prompt * 3)} </tspan>'
                lines.append(Shown(start + highlighted(line), number))
            lines += [Shown(escape(line), number) for line in run(statement, names)]
        yield lines
    names["store"].close()


def appears(name: str, start: float, end: float) -> str:
    """Return the rule that shows the elements of a class from a second to another."""
    whole = SECONDS * (len(SCENES) + 1)
    first, last = 100 * start / whole, 100 * end / whole
    return (
        f"@keyframes {name} {{ 0%, {first:.2f}% {{ opacity: 0 }} {first + 0.01:.2f}%, {last - 0.01:.2f}% {{ opacity: 1 }} "
        f"{last:.2f}%, 100% {{ opacity: 0 }} }} .{name} {{ animation: {name} {whole:g}s step-end infinite }}"
    )


def draw(studio: Mapping[str, bytes]) -> str:
    """Return the picture; `studio` has the page as PNG for each theme."""
    rules, parts = [STYLE.format(*THEMES["light"])], []
    rules.append(
        f"@media (prefers-color-scheme: dark) {{ {STYLE.format(*THEMES['dark'])} .light {{ display: none }} }}"
    )
    rules.append("@media (prefers-color-scheme: light) { .dark { display: none } }")
    for scene, (title, lines) in enumerate(zip([*SCENES, STUDIO], [*scenes(), []], strict=True)):
        start, end = scene * SECONDS, (scene + 1) * SECONDS
        rules.append(appears(f"s{scene}", start, end))
        first = "" if scene else " first"
        parts.append(
            f'<g class="moving s{scene}{first}"><text class="head" x="20" y="29">{escape(title)}</text>'
        )
        parts.append(
            f'<rect class="now" x="{760 + 20 * scene}" y="20" width="14" height="6" rx="3"/>'
        )
        count = 1 + max((each.statement for each in lines), default=0)
        rules += [
            appears(f"s{scene}l{number}", start + 0.6 * number * SECONDS / count, end)
            for number in range(count if lines else 0)
        ]
        for row, each in enumerate(lines):
            place = f'x="20" y="{TOP + LINE * (row + 1)}" xml:space="preserve"'
            parts.append(
                f'<text class="code moving s{scene}l{each.statement}{first}" {place}>{each.inside}</text>'
            )
        if not lines:
            for scheme, picture in studio.items():
                data = base64.b64encode(picture).decode()
                place = f'x="1" y="{TOP}" width="{WIDTH - 2}" height="{HEIGHT - TOP - 1}"'
                parts.append(
                    f'<image class="{scheme}" {place} href="data:image/png;base64,{data}"/>'
                )
        parts.append("</g>")
    steps = (
        f'<rect class="step" x="{760 + 20 * n}" y="20" width="14" height="6" rx="3"/>'
        for n in range(len(SCENES) + 1)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" xmlns="http://www.w3.org/2000/svg" role="img">\n'
        "<title>Twenty seconds: put, a typed class, queries, explain, and the studio</title>\n<style>\n"
        ".code { font: 15px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace } .head { font: bold 17px sans-serif }\n"
        ".moving { opacity: 0 } .first { opacity: 1 }\n"
        + "\n".join(rules)
        + "\n@media (prefers-reduced-motion: reduce) { .moving { animation: none } }\n</style>\n"
        + f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>\n'
        + "\n".join([*steps, *parts, "</svg>\n"])
    )  # fmt: skip


def text_of(picture: str) -> list[str]:
    """Return what a reader sees in a picture, line by line."""
    found = re.findall(r"<text[^>]*>(.*?)</text>", picture)
    return [unescape(re.sub("<[^>]*>", "", line)) for line in found]


def photographs(folder: Path) -> dict[str, bytes]:
    """Return the page of the studio over the store in a folder, for each theme."""
    from studio import opened  # the script beside this one

    size = {"width": WIDTH - 2, "height": HEIGHT - TOP - 1}
    with opened(f"sqlite:///{folder}/agent.db", size, scale=1.5) as (browser_page, base):
        found = {}
        for theme in THEMES:
            browser_page.emulate_media(color_scheme=theme)
            browser_page.goto(base + PAGE)
            found[theme] = browser_page.screenshot()
        return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        draw({})  # fills the store
        pictures = photographs(Path(temporary))
    with tempfile.TemporaryDirectory() as temporary, chdir(temporary):
        PICTURE.write_text(draw(pictures), encoding="utf-8")
