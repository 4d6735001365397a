"""Draws the diagrams of the pages as SVG when mkdocs builds them, so that no reader's browser has to run a script.

Read the subset of Mermaid that the pages use: `sequenceDiagram`, and `flowchart` with boxes and labelled arrows. Anything
else is an error, which ends the build.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

CHARACTER, LINE, MARGIN = 7, 16, 10
"""Pixels of a character, of a line of text, and around text."""
WRAP, WRAPPED_MESSAGE = 22, 34
"""Characters of a line."""
_STYLE = 'font-family="sans-serif" font-size="13" fill="none" stroke="currentColor"'
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 8 4 0 8z" fill="currentColor" stroke="none"/></marker></defs>'
)
_NAME = r"(\w+)(?:\[\(?\"([^\"]+)\"\)?\])?"
_ARROW = r"(-->|---?|-\.)(?:\|\"([^\"]+)\"\||\s*\"?([^\"|>]+?)\"?\s*(?:-->|\.->))?"
_EDGE = re.compile(rf"{_NAME} {_ARROW} {_NAME}")
_MESSAGE = re.compile(r"(\w+)(--?)>>(\w+): (.+)")
_NOTE = re.compile(r"Note over (\w+)(?:,(\w+))?: (.+)")
_PARTICIPANT = re.compile(r"participant (\w+) as (.+)")


def on_config(config: Any) -> None:
    """Let `draw` convert the blocks of Mermaid; mkdocs calls this."""
    fence = {"name": "mermaid", "class": "diagram", "format": draw}
    config["mdx_configs"]["pymdownx.superfences"] = {"custom_fences": [fence]}


def draw(source: str, *_: Any, **__: Any) -> str:
    """Return the SVG of a diagram; raise `ValueError` if a line is not understood."""
    kind, *lines = (line.strip() for line in source.strip().splitlines())
    if kind == "sequenceDiagram":
        return _sequence(lines)
    if kind not in {"flowchart LR", "flowchart TD"}:
        raise ValueError(f"a diagram cannot begin with {kind!r}")
    return _flowchart(lines, is_wide=kind.endswith("LR"))


def _svg(width: float, height: float, parts: Iterator[str]) -> str:
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    return f'<div class="diagram"><svg xmlns="http://www.w3.org/2000/svg" {size} style="max-width: 100%; height: auto" {_STYLE}>{_HEAD}{"".join(parts)}</svg></div>'


def _text(x: float, y: float, lines: list[str]) -> str:
    """Return lines of text around a point, over the lines that they cross."""
    first = y - (len(lines) - 1) * LINE / 2 + 4
    style = 'text-anchor="middle" fill="currentColor" stroke="var(--md-default-bg-color, #fff)" stroke-width="4" paint-order="stroke"'
    spans = (
        f'<tspan x="{x:g}" y="{first + number * LINE:g}">{escape(line)}</tspan>'
        for number, line in enumerate(lines)
    )
    return f"<text {style}>{''.join(spans)}</text>"


def _line(points: list[tuple[float, float]], *, dashed: bool, head: bool = True) -> str:
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    dashes = ' stroke-dasharray="4 4"' if dashed else ""
    end = ' marker-end="url(#head)"' if head else ""
    return f'<polyline points="{path}"{dashes}{end}/>'


def _box(x: float, y: float, width: float, height: float, lines: list[str]) -> str:
    """Return a box with text, around a point."""
    corner = f'x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {corner} rx="4"/>{_text(x, y, lines)}'


# -- sequences ---------------------------------------------------------------------------------


def _sequence(lines: list[str]) -> str:
    names: dict[str, str] = {}
    steps: list[tuple[str, str, list[str], bool, bool]] = []
    for line in lines:
        if found := _PARTICIPANT.fullmatch(line):
            names[found[1]] = found[2]
        elif found := _MESSAGE.fullmatch(line):
            steps.append((found[1], found[3], _wrap(found[4]), found[2] == "--", False))
        elif found := _NOTE.fullmatch(line):
            steps.append((found[1], found[2] or found[1], _wrap(f"({found[3]})"), False, True))
        else:
            raise ValueError(f"a sequence diagram cannot have the line {line!r}")
    places = {name: number for number, name in enumerate(names)}
    gap = max(
        (max(map(len, text)) * CHARACTER + 2 * MARGIN) / max(1, abs(places[a] - places[b]))
        for a, b, text, _, _ in steps
    )
    at = {name: gap / 2 + number * gap for name, number in places.items()}
    row, top = 3 * LINE, LINE + 2 * MARGIN
    height = top + row * (len(steps) + 1)

    def parts() -> Iterator[str]:
        for name, title in names.items():
            yield _line([(at[name], top), (at[name], height)], dashed=True, head=False)
            yield _box(at[name], top / 2 + 1, len(title) * CHARACTER + 2 * MARGIN, top - 2, [title])
        for number, (start, end, text, dashed, is_note) in enumerate(steps, 1):
            y, middle = top + number * row, (at[start] + at[end]) / 2
            if is_note:
                yield _text(middle, y - LINE / 2, text)
            else:
                yield _line([(at[start], y), (at[end], y)], dashed=dashed)
                yield _text(middle, y - 2 - len(text) * LINE / 2, text)

    return _svg(gap * len(names), height, parts())


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WRAPPED_MESSAGE)


# -- flowcharts --------------------------------------------------------------------------------


@dataclass
class _Node:
    lines: list[str]
    rank: int = 0
    x: float = 0
    y: float = 0

    @property
    def width(self) -> float:
        return max(map(len, self.lines), default=0) * CHARACTER + 2 * MARGIN

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 2 * MARGIN


@dataclass
class _Edge:
    start: str
    end: str
    lines: list[str]
    dashed: bool
    rank: int = 0
    through: list[str] = field(default_factory=list)


def _flowchart(lines: list[str], *, is_wide: bool) -> str:
    nodes: dict[str, _Node] = {}
    edges = [edge for line in lines for edge in _read(line, nodes)]
    for _ in nodes:
        for edge in edges:
            nodes[edge.end].rank = max(nodes[edge.end].rank, nodes[edge.start].rank + 1)
    for name, node in nodes.items():  # a start stands beside what it leads to
        nexts = [nodes[edge.end].rank for edge in edges if edge.start == name]
        if nexts and not any(edge.end == name for edge in edges):
            node.rank = min(nexts) - 1
    drawn = dict(nodes)
    for number, edge in enumerate(edges):  # a long arrow takes a place in each rank between
        edge.rank = nodes[edge.start].rank
        for rank in range(edge.rank + 1, nodes[edge.end].rank):
            edge.through.append(f"{number} {rank}")
            drawn[edge.through[-1]] = _Node([], rank)
    width, height = _place(list(drawn.values()), edges, is_wide=is_wide)

    def parts() -> Iterator[str]:
        for edge in edges:
            path = [drawn[name] for name in (edge.start, *edge.through, edge.end)]
            points = _ends(path, is_wide=is_wide)
            yield _line(points, dashed=edge.dashed)
            (x1, y1), (x2, y2) = list(pairwise(points))[len(points) // 2 - 1]
            if edge.lines:
                yield _text((x1 + x2) / 2, (y1 + y2) / 2, edge.lines)
        for node in nodes.values():
            yield _box(node.x, node.y, node.width, node.height, node.lines)

    return _svg(width, height, parts())


def _read(line: str, nodes: dict[str, _Node]) -> Iterator[_Edge]:
    """Add the nodes of a line, and yield its edge if it has one."""
    found, single = _EDGE.fullmatch(line), re.fullmatch(_NAME, line)
    if found is None and single is None:
        raise ValueError(f"a flowchart cannot have the line {line!r}")
    for name, title in [(found[1], found[2]), (found[6], found[7])] if found else [single.groups()]:  # type: ignore[union-attr]
        if title or name not in nodes:
            rank = nodes[name].rank if name in nodes else 0
            nodes[name] = _Node(textwrap.wrap(title or name, WRAP), rank)
    if found:
        label = textwrap.wrap(found[4] or found[5] or "", WRAP)
        yield _Edge(found[1], found[6], label, dashed=found[3] == "-.")


def _place(nodes: list[_Node], edges: list[_Edge], *, is_wide: bool) -> tuple[float, float]:
    """Give each node its place, rank by rank; return the size of all."""
    between = (2 + max(len(edge.lines) for edge in edges)) * LINE
    ranks = [[n for n in nodes if n.rank == rank] for rank in sorted({n.rank for n in nodes})]

    def along(node: _Node) -> float:
        return node.width if is_wide else node.height

    def across(node: _Node) -> float:
        return node.height if is_wide else node.width

    breadth = max(sum(map(across, some)) + between * (len(some) - 1) for some in ranks)
    start, gap = 1.0, 0.0
    for rank, some in enumerate(ranks):
        depth = max(map(along, some))
        side = 1 + (breadth - sum(map(across, some)) - between * (len(some) - 1)) / 2
        for node in some:
            middle = start + depth / 2, side + across(node) / 2
            node.x, node.y = middle if is_wide else middle[::-1]
            side += across(node) + between
        labels = [line for e in edges if e.rank == rank for line in e.lines]
        gap = 3 * LINE + max(map(len, labels), default=0) * CHARACTER * is_wide
        start += depth + gap
    size = start - gap + 1, breadth + 2
    return size if is_wide else size[::-1]


def _ends(path: list[_Node], *, is_wide: bool) -> list[tuple[float, float]]:
    """Return the points of an arrow, from the side of a box to the side of another."""
    first, last = path[0], path[-1]
    inner = [(node.x, node.y) for node in path[1:-1]]
    if is_wide:
        return [(first.x + first.width / 2, first.y), *inner, (last.x - last.width / 2, last.y)]
    return [(first.x, first.y + first.height / 2), *inner, (last.x, last.y - last.height / 2)]
