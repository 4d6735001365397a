"""HTML of documents and plans for notebooks: escaped, without script, and of a bounded size.

Translucent backgrounds and lines suit light and dark pages. MathJax, which typesets what is between two dollar
signs in an output, leaves the classes of `_frame` out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, Final

MAX_ROWS: Final = 20
MAX_COLUMNS: Final = 12
MAX_CELL: Final = 100
MAX_BODY: Final = 4000
"""Characters of a body."""
_WALK: Final = 10_000
"""Parts of a JSON text, such as a key or a comma, that are looked at."""
_GREY, _RED = "rgba(128,128,128,.15)", "rgba(220,40,40,.25)"
_BOX: Final = "border:1px solid;border-radius:4px;padding:4px 8px;display:inline-block;margin:2px"


def html_of_document(id: str, body: Any, facts: Mapping[str, Any]) -> str:
    """Return a document: the facts as a table, and the body as JSON."""
    rows = [("id", id), *((name, str(value)) for name, value in facts.items())]
    style = f"background:{_GREY};padding:6px;white-space:pre-wrap"
    return _frame(_pairs(rows), f'<pre style="{style}">{_escaped(_json(body, MAX_BODY, 2))}</pre>')


def html_of_bodies(
    rows: Sequence[tuple[Mapping[str, Any], Any]], noun: str = "document", note: str = ""
) -> str:
    """Return a table of rows: the first cells by column, and a body, whose fields are the other columns."""
    shown = [(first, _fields(body)) for first, body in rows[:MAX_ROWS]]
    before = dict.fromkeys(name for first, _ in shown for name in first)
    fields = dict.fromkeys(name for _, cells in shown for name in cells)
    chosen = list(fields)[:MAX_COLUMNS]
    lines = [
        [*(_cell(first.get(name)) for name in before), *(_cell(cells.get(name)) for name in chosen)]
        for first, cells in shown
    ]
    said = f"{len(rows):,} {noun}{'' if len(rows) == 1 else 's'}"
    said += f", the first {MAX_ROWS} shown" if len(rows) > MAX_ROWS else ""
    said += ", some fields left out" if len(fields) > len(chosen) else ""
    return _frame(_table([*before, *chosen], lines), f"<div>{_escaped(said + note)}</div>")


def html_of_plan(steps: Iterable[tuple[str, bool]], facts: Sequence[tuple[str, str]]) -> str:
    """Return a plan as a row of boxes, red where the boolean is true, above its facts."""
    boxes = " → ".join(
        f'<span style="{_BOX};background:{_RED if bad else _GREY}">{_cell(text)}</span>'
        for text, bad in steps
    )
    return _frame(f"<div>{boxes}</div>", _pairs(facts))


def _frame(*parts: str) -> str:
    classes = "tex2jax_ignore mathjax_ignore"
    return f'<div class="{classes}" style="overflow-x:auto">{"".join(parts)}</div>'


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    lines = (
        f"<tr><th>{_escaped(name)}</th><td>{_escaped(_cut(text, MAX_BODY))}</td></tr>"
        for name, text in rows
    )
    return f"<table>{''.join(lines)}</table>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{_cell(name)}</th>" for name in columns)
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _fields(body: Any) -> dict[str, Any]:
    """Return the first fields of an object; the only field of another body is "(body)"."""
    if not isinstance(body, dict):
        return {"(body)": body}
    return {str(key): value for key, value in islice(body.items(), MAX_COLUMNS + 1)}


def _cell(value: Any) -> str:
    text = (
        "" if value is None else value if isinstance(value, str) else _json(value, MAX_CELL, None)
    )
    return _escaped(_cut(text, MAX_CELL))


def _json(value: Any, most: int, indent: int | None) -> str:
    """Return the beginning of the JSON of a value; a model's instance is its `repr`."""
    parts = json.JSONEncoder(indent=indent, ensure_ascii=False, default=repr).iterencode(value)
    return _cut("".join(_until(parts, most)), most)


def _until(parts: Iterator[str], most: int) -> Iterator[str]:
    size = 0
    for part in islice(parts, _WALK):
        yield part
        size += len(part)
        if size > most:
            return


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _escaped(text: str) -> str:
    """Return a text as HTML; characters that are not printed or change the direction of writing are escapes."""
    if not text.isprintable():
        text = "".join(
            c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
        )
    return escape(text, quote=False)
