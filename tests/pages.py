"""The pages of the documentation, and how they run.

A page is one program. Its blocks run from top to bottom, in a folder of their own:

* ```python is executed; what it prints is the ```text block right below it.
* ```console is executed if all its commands are `$ collections-store …`; what a command prints is
  compared where it is shown. `...` stands for anything, as in doctest.
* A block with a title (```json title="people.json") is a file of that name.

A page that says `postgres_url` gets the URL of an empty PostgreSQL.

Nothing but the library is needed here: `nox -s pages` runs each page, by this file, where nothing else is installed.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_OUTPUT = re.compile(r"\n\s*```text\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([\w.-]+)"')
_PROMPT = "$ "
PROGRAM = "collections-store"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `shown` is the output right below it."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str
    shown: str


def blocks(page: Path) -> Iterator[Block]:
    source = page.read_text(encoding="utf-8")
    for fence in FENCE.finditer(source):
        title = _TITLE.search(fence["options"])
        output = _OUTPUT.match(source, fence.end())
        yield Block(
            page,
            source.count("\n", 0, fence.start()) + 1,
            fence["language"],
            title[1] if title else None,
            textwrap.dedent(fence["text"]),
            textwrap.dedent(output["text"]) if output else "",
        )


def runs(block: Block) -> bool:
    if block.language == "console":
        lines = [line for line in block.text.splitlines() if line.startswith(_PROMPT)]
        return all(line.startswith(_PROMPT + PROGRAM) for line in lines)
    return block.language == "python"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUNNING_PAGES = [page for page in PAGES if any(map(runs, blocks(page)))]
OWN_ENVIRONMENTS = {"crewai", "langgraph"}
"""Pages whose packages cannot be installed beside those of others: the tests of their integrations run them."""

FRAMEWORKS = {
    "agent-framework": "agent_framework",
    "collation": "icu",
    "fastmcp": "fastmcp",
    "google-adk": "google.adk",
    "haystack": "haystack",
    "langchain": "langchain_core",
    "llama-index": "llama_index.core",
    "mcp": "mcp",
    "mem0": "mem0",
    "notebooks": "polars",
    "openai-agents": "agents",
    "opentelemetry": "opentelemetry.sdk",
    "pydantic-ai": "pydantic_ai",
    "search-by-words-and-meaning": "wordllama",
}
"""The packages of pages that tests/test_docs.py skips where they are not installed."""


def needs_postgres(page: Path) -> bool:
    return "postgres_url" in page.read_text(encoding="utf-8")


Command = Callable[[Sequence[str]], tuple[int | None, str]]
"""Runs a command with arguments; returns its exit code, and its output and errors as one text."""


def in_new_process(arguments: Sequence[str]) -> tuple[int | None, str]:
    done = subprocess.run(
        [sys.executable, "-m", "collections_store", *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env=environment(),
    )
    return done.returncode, done.stdout


def run_page(
    page: Path, names: dict[str, Any], *, again: bool = False, command: Command = in_new_process
) -> None:
    """Run a page in the current folder; raise `AssertionError` if its output differs. With `again`, output is not
    compared.
    """
    namespace: dict[str, Any] = {"__name__": "__main__", **names}
    for block in blocks(page):
        if block.title is not None:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                run_python(block, namespace)
            if not again:
                expect(block, block.shown, printed.getvalue())
        elif runs(block):
            run_console(block, command, again=again)


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    """Execute the block; a traceback shows its line on the page."""
    text = block.text
    if "postgres_url" in namespace:  # replaces the URL on the page
        given = f"postgres_url = {namespace['postgres_url']!r}"
        text = re.sub('^postgres_url = ".*"$', lambda _: given, text, flags=re.MULTILINE)
    source = "\n" * block.line + text
    code = compile(source, str(block.page), "exec", dont_inherit=True)
    exec(code, namespace)


def run_console(block: Block, command: Command, *, again: bool) -> None:
    """Execute each command as a shell would, and compare its output."""
    for line, shown in commands(block.text):
        code, printed = command(shlex.split(line)[1:])
        assert bool(code) == ("Error: " in shown), printed
        if shown and not again:
            expect(block, shown, printed)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a session and its output."""
    for entry in re.split(r"^\$ ", text.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, shown = entry.partition("\n")
        yield command, shown


def environment() -> dict[str, str]:
    """The environment of a command: the installed library, no settings of the machine."""
    inherited = {key: value for key, value in os.environ.items() if "COLLECTIONS_STORE" not in key}
    return inherited | {"PYTHONPATH": "", "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"}


def expect(block: Block, shown: str, printed: str) -> None:
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS
    if not checker.check_output(shown, printed, flags):
        example = doctest.Example(block.text, shown)
        difference = checker.output_difference(example, printed, flags)
        raise AssertionError(f"{name_of(block.page)}, line {block.line}\n{difference}")


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), dict(zip(["postgres_url"], sys.argv[2:], strict=False)))
