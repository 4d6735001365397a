"""Charts of the measurements, as SVG, and tables: `python tests/benchmarks/charts.py` draws the charts again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from benchmarks.measuring import Result

WIDTH, LEFT, RIGHT, BAR, GAP = 760, 300, 90, 16, 6
FONT = 'font-family="sans-serif" font-size="12"'
_LINES = ("#00897b", "#c58a3a", "#5c6bc0", "#d81b60", "#8d6e63")
# Charts follow the reader's color scheme; the default is light.
_STYLE = """<style>
.ground { fill: #fff } .text { fill: #212121 } .quiet { fill: #616161 } .grid { stroke: #e0e0e0 } .floor { stroke: #616161 }
.ours { fill: #00897b } .bare { fill: #90a4ae } .other { fill: #c58a3a }
@media (prefers-color-scheme: dark) {
.ground { fill: #1e2129 } .text { fill: #eceff1 } .quiet { fill: #b0bec5 } .grid { stroke: #3a3f4b } .floor { stroke: #b0bec5 }
}
</style>"""
_SIZE = re.compile(r"(?P<verb>.+): (?P<size>[\d,]+) \(floor: (?P<floor>[\d,]+)\)")
BEGIN, END = "<!-- measured -->", "<!-- end -->"
GLANCES = {
    "one-document": ("One document on SQLite", "SQLite, normal, operations", ("put", "get")),
    "queries": (
        "Queries on SQLite",
        "SQLite, normal, operations",
        (
            "find of 20",
            "page of 20, filtered and sorted",
            "count by an index",
            "update_one by an index",
        ),
    ),
    "postgresql": (
        "PostgreSQL",
        "PostgreSQL, operations",
        ("put", "get", "find of 20", "count by an index", "update_one by an index"),
    ),
}
"""The pictures at the top of the page: a file, a title, a group and its methods."""
LONGEST = 4
"""Times the longest bar of this library and of the driver, at which other bars are cut."""


def write(folder: Path, results: Sequence[Result]) -> None:
    """Write the pictures, and the tables into the page beside the folder."""
    for group in dict.fromkeys(each.group for each in results):
        some = [each for each in results if each.group == group]
        if sizes_of(some):
            (folder / f"{file_name(group)}.svg").write_text(curves(group, some), encoding="utf-8")
    for name, (title, group, methods) in GLANCES.items():
        picture = glance(title, [each for each in results if each.group == group], methods)
        (folder / f"glance-{name}.svg").write_text(picture, encoding="utf-8")
    page = folder.with_suffix(".md")
    if page.exists():
        text = page.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n\n{tables(folder.name, results)}\n{END}{after}", "utf-8")


def file_name(group: str) -> str:
    """Return a group's name as that of a file."""
    return "-".join("".join(c if c.isalnum() else " " for c in group.lower()).split())


def tables(folder: str, results: Sequence[Result]) -> str:
    """Return a table for each group, in Markdown; groups of sizes have a picture."""
    parts = []
    for group in dict.fromkeys(each.group for each in results):
        shown = sizes_of([each for each in results if each.group == group])
        picture = f"![{group}: times of the floor]({folder}/{file_name(group)}.svg)\n"
        lines = [
            f"### {group}\n",
            *([picture] if shown else []),
            "| What | Who | Floor | Took | Times the floor | CPU | To reach |",
            "| --- | --- | ---: | ---: | ---: | ---: | --- |",
        ]
        lines += [_line(each) for each in results if each.group == group]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(each: Result) -> str:
    floor = f"{each.floor:,.1f} {each.unit}" if each.floor else ""
    who = f"**{each.who}**" if each.who == "ours" else each.who
    took = f"{each.took:,.1f} {each.unit}" if each.unit else f"{each.took:.2f}"
    ratio = f"{each.ratio:.2f}" if each.floor else ""
    cpu = f"{each.cpu:.2f}" if each.cpu else ""
    return f"| {each.what} | {who} | {floor} | {took} | {ratio} | {cpu} | {each.reach} |"


def glance(title: str, results: Sequence[Result], methods: Sequence[str]) -> str:
    """Return bars of the times of a call, on a linear axis: the bare driver, this library and others."""
    rows: list[tuple[str, str, float]] = []
    for method in methods:
        found = [each for each in results if each.what == f"{method} (harsh floor)"]
        own = [each for each in found if each.who == "ours"]
        rows += [(method, "the bare driver", each.floor) for each in own]
        rows += [
            (method, each.who, each.took) for each in sorted(found, key=lambda each: each.took)
        ]
    top = max((took for _, who, took in rows if who in {"ours", "the bare driver"}), default=1.0)
    top = min(top * LONGEST, max((took for _, _, took in rows), default=1.0))
    lines: list[str] = []
    y, before = 40, ""
    for method, who, took in rows:
        if method != before:
            y += 10 if before else 0
            lines.append(_text(10, y + 12, method, "text"))
        before = method
        wide = (WIDTH - LEFT - RIGHT) * min(took / top, 1.0)
        kind = {"ours": "ours", "the bare driver": "bare"}.get(who, "other")
        cut = " (cut)" if took > top else ""
        lines += [
            _text(LEFT - 8, y + 12, "collections_store" if who == "ours" else who, "text", "end"),
            f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR}" class="{kind}"/>',
            _text(LEFT + wide + 5, y + 12, f"{took:,.0f} µs{cut}", "text"),
        ]
        y += BAR + GAP
    height = y + 10
    return _svg(height, _frame(height, f"{title}: time of a call (shorter is faster)") + lines)


def shares(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """Return bars of shares from 0 to 1 on a linear axis: for each row one a column, the first in the color of this library."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines: list[str] = []
    y, wide = 40, WIDTH - LEFT - RIGHT
    for row, bars in rows.items():
        lines.append(_text(10, y + 12, row, "text"))
        for name, share in bars.items():
            kind = "ours" if name == columns[0] else "other"
            size = f'width="{wide * share:.1f}" height="{BAR}"'
            lines += [
                _text(LEFT - 8, y + 12, name, "text", "end"),
                f'<rect x="{LEFT}" y="{y}" {size} class="{kind}"/>',
                _text(LEFT + wide * share + 5, y + 12, f"{share:.0%}", "text"),
            ]
            y += BAR + GAP
        y += 10
    return _svg(y, _frame(y, title) + lines)


def sizes_of(results: Sequence[Result]) -> dict[str, dict[int, float]]:
    """Return the ratios by method and size, of the results that name a size."""
    found: dict[str, dict[int, float]] = {}
    for each in results:
        if (read := _SIZE.fullmatch(each.what)) is not None:
            size, low = (int(read[name].replace(",", "")) for name in ("size", "floor"))
            found.setdefault(read["verb"], {low: 1.0})[size] = each.ratio
    return found


def curves(title: str, results: Sequence[Result]) -> str:
    """Return a curve for each method: the ratio of its time to that on the floor's size, by size."""
    sizes = sizes_of(results)
    every = sorted({size for ratios in sizes.values() for size in ratios})
    top = max(2.0, *(ratio for ratios in sizes.values() for ratio in ratios.values()))
    height, left, bottom = 300, 60, 250
    room = (WIDTH - left - 250) / max(math.log10(every[-1] / every[0]), 1)

    def at(size: int, ratio: float) -> tuple[float, float]:
        x = left + room * math.log10(size / every[0])
        return x, bottom - (bottom - 40) * ratio / top

    lines = _frame(height, f"{title}: times what it takes on another size (flat is best)")
    for ratio in (0.0, 0.5, 1.0, 1.5, 2.0, *range(3, int(top) + 1)):
        (x, y), (end, _) = at(every[0], ratio), at(every[-1], ratio)
        ends = f'x1="{x:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
        lines.append(f'<line {ends} class="grid"/>')
        lines.append(_text(x - 8, y + 4, f"{ratio:g}", "quiet", "end"))
    for size in every:
        x, _ = at(size, 0)
        lines.append(_text(x, bottom + 18, f"{size:,}", "quiet", "middle"))
    middle = (at(every[0], 0)[0] + at(every[-1], 0)[0]) / 2
    lines.append(_text(middle, bottom + 38, "documents, logarithmic", "quiet", "middle"))
    for number, (method, ratios) in enumerate(sizes.items()):
        color = _LINES[number % len(_LINES)]
        points = [at(size, ratio) for size, ratio in sorted(ratios.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
        y = 50 + 18 * number
        lines.append(f'<circle cx="{WIDTH - 245}" cy="{y - 4}" r="5" fill="{color}"/>')
        lines.append(_text(WIDTH - 235, y, method, "text"))
    return _svg(height, lines)


def _frame(height: float, heading: str) -> list[str]:
    return [
        _STYLE,
        f'<rect width="{WIDTH}" height="{height}" class="ground"/>',
        _text(10, 20, heading, "text", size=14),
    ]


def _svg(height: float, lines: Sequence[str]) -> str:
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {FONT}>'
    return "\n".join([begin, *lines, "</svg>"]) + "\n"


def _text(
    x: float, y: float, words: str, kind: str, anchor: str = "start", *, size: int = 12
) -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {attributes} class="{kind}">{escape(words)}</text>'


def main() -> None:
    """Draw the charts and the tables of the page about speed again, from its results."""
    folder = Path(__file__).parents[2] / "docs" / "explanation" / "speed"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    write(folder, [SimpleNamespace(**each) for each in results])  # type: ignore[misc]


if __name__ == "__main__":
    main()
