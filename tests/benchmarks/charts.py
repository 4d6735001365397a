"""The pictures of what was measured, as SVG: bars of ratios to the floor, and the table."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from benchmarks.measuring import Result

WIDTH, LEFT, RIGHT, BAR, GAP = 760, 300, 90, 16, 6
COLOURS = {"floor": "#9e9e9e", "ours": "#00897b"}
OTHERS = "#c58a3a"
FONT = 'font-family="sans-serif" font-size="12"'
_LINES = ("#00897b", "#c58a3a", "#5c6bc0", "#d81b60", "#616161")
_SIZE = re.compile(r"(?P<verb>.+): (?P<size>[\d,]+) \(floor: (?P<floor>[\d,]+)\)")
BEGIN, END = "<!-- measured -->", "<!-- end -->"


def write(folder: Path, results: Sequence[Result]) -> None:
    """Write a picture for each group, and the table into the page beside the folder."""
    groups = dict.fromkeys(each.group for each in results)
    for group in groups:
        some = [each for each in results if each.group == group and each.floor]
        if some:
            picture = curves(group, some) if sizes_of(some) else bars(group, some)
            (folder / f"{file_name(group)}.svg").write_text(picture, encoding="utf-8")
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
    """Return a table for each group, with its picture, in Markdown."""
    parts = []
    for group in dict.fromkeys(each.group for each in results):
        shown = any(each.floor for each in results if each.group == group)
        picture = f"![{group}: times of the floor]({folder}/{file_name(group)}.svg)\n"
        lines = [
            f"### {group}\n",
            *([picture] if shown else []),
            "| What | Who | Floor | Took | Times the floor | To reach |",
            "| --- | --- | ---: | ---: | ---: | --- |",
        ]
        lines += [_line(each) for each in results if each.group == group]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(each: Result) -> str:
    floor = f"{each.floor:,.1f} {each.unit}" if each.floor else ""
    who = f"**{each.who}**" if each.who == "ours" else each.who
    took, ratio = f"{each.took:,.1f} {each.unit}", f"{each.ratio:.2f}" if each.floor else ""
    return f"| {each.what} | {who} | {floor} | {took} | {ratio} | {each.reach} |"


def bars(title: str, results: Sequence[Result]) -> str:
    """Return bars of the ratios, on a logarithmic scale that begins at a tenth of the floor."""
    top = max([each.ratio for each in results] + [2.0])
    room = WIDTH - LEFT - RIGHT

    def width(ratio: float) -> float:
        low = math.log10(0.1)
        return room * (math.log10(max(ratio, 0.1)) - low) / (math.log10(top) - low)

    height, one = 60 + len(results) * (BAR + GAP), LEFT + width(1.0)
    heading = f"{title}: times the bare driver (shorter is faster)"
    lines = [
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(10, 20, heading, 'font-size="14" fill="#212121"'),
    ]
    for place, each in enumerate(results):
        y, right = 36 + place * (BAR + GAP), LEFT + width(each.ratio)
        size = f'width="{width(each.ratio):.1f}" height="{BAR}"'
        label = f"{each.what}, {each.who}"
        lines += [
            _text(LEFT - 8, y + 12, label, 'text-anchor="end" fill="#424242"'),
            f'<rect x="{LEFT}" y="{y}" {size} fill="{COLOURS.get(each.who, OTHERS)}"/>',
            _text(right + 5, y + 12, f"{each.ratio:.2f}", 'fill="#212121"'),
        ]
    dashes = 'stroke="#616161" stroke-dasharray="3 3"'
    lines += [
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="30" y2="{height - 18}" {dashes}/>',
        _text(one, height - 5, "the floor", 'text-anchor="middle" fill="#616161"'),
    ]
    return _svg(height, lines)


def sizes_of(results: Sequence[Result]) -> dict[str, dict[int, float]]:
    """Return the ratios by verb and size, of results that name a size and that of the floor."""
    found: dict[str, dict[int, float]] = {}
    for each in results:
        if (read := _SIZE.fullmatch(each.what)) is not None:
            size, low = (int(read[name].replace(",", "")) for name in ("size", "floor"))
            found.setdefault(read["verb"], {low: 1.0})[size] = each.ratio
    return found


def curves(title: str, results: Sequence[Result]) -> str:
    """Return a curve for each verb: how many times as long it takes as on the floor's size, by size."""
    sizes = sizes_of(results)
    every = sorted({size for ratios in sizes.values() for size in ratios})
    top = max(2.0, *(ratio for ratios in sizes.values() for ratio in ratios.values()))
    height, left, bottom = 300, 60, 250
    room = (WIDTH - left - 250) / max(math.log10(every[-1] / every[0]), 1)

    def at(size: int, ratio: float) -> tuple[float, float]:
        x = left + room * math.log10(size / every[0])
        return x, bottom - (bottom - 40) * ratio / top

    heading = f"{title}: times what it takes on another size (flat is best)"
    lines = [
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(10, 20, heading, 'font-size="14" fill="#212121"'),
    ]
    for ratio in (0.0, 0.5, 1.0, 1.5, 2.0, *range(3, int(top) + 1)):
        (x, y), (end, _) = at(every[0], ratio), at(every[-1], ratio)
        lines.append(
            f'<line x1="{x:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e0e0e0"/>'
        )
        lines.append(_text(x - 8, y + 4, f"{ratio:g}", 'text-anchor="end" fill="#616161"'))
    for size in every:
        x, _ = at(size, 0)
        lines.append(_text(x, bottom + 18, f"{size:,}", 'text-anchor="middle" fill="#616161"'))
    for number, (verb, ratios) in enumerate(sizes.items()):
        colour = _LINES[number % len(_LINES)]
        points = [at(size, ratio) for size, ratio in sorted(ratios.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        y = 50 + 18 * number
        lines.append(_text(WIDTH - 235, y, verb, f'fill="{colour}"'))
    return _svg(height, lines)


def _svg(height: float, lines: Sequence[str]) -> str:
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {FONT}>'
    return "\n".join([begin, *lines, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
