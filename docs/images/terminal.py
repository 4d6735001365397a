"""Draws `terminal.svg`, the picture of a terminal session in the README: `python docs/images/terminal.py`."""

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from html import unescape
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

PICTURE = Path(__file__).with_suffix(".svg")
PROGRAM = "collections-store"
SESSION = (
    """put people ada '{"name": "Ada", "address": {"city": "Berlin"}, "likes": ["tea", "chess"]}'""",
    """put people grace '{"name": "Grace", "address": {"city": "Paris"}, "likes": ["tea"]}'""",
    """find people '{"address.city": "Berlin"}'""",
    """find people '{"likes": "tea"}' --sort name:-1 --fields name,likes""",
    "index create people address.city",
    "collections --output table",
)
# Rich's own frame loads a font from another host.
FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A terminal session of collections-store</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def run(arguments: list[str], folder: str) -> str:
    """Run a command of the session in a folder, and return its output."""
    command = [sys.executable, "-m", "collections_store", *arguments]
    done = subprocess.run(command, check=True, cwd=folder, capture_output=True, encoding="utf-8")
    return done.stdout


def draw(run: Callable[[list[str], str], str] = run) -> str:
    """Run the session in an empty folder, and return its picture as SVG."""
    console = Console(record=True, width=108, file=StringIO(), highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        for command in SESSION:
            console.print(Text.assemble(("$ ", "bold green"), (f"{PROGRAM} {command}", "bold")))
            if printed := run(shlex.split(command), folder):
                console.print(Text(printed.rstrip("\n")))
    return console.export_svg(
        title="A store in one SQLite file", theme=MONOKAI, code_format=FRAME, unique_id="terminal"
    )


def text_of(picture: str) -> Iterator[str]:
    """Yield what a reader sees in a picture, piece by piece."""
    for piece in re.findall(r"<text[^>]*>(.*?)</text>", picture):
        if words := unescape(piece).replace("\xa0", " ").strip():
            yield words


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
