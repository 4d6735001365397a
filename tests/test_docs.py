"""What the documentation says is so: its code runs, its output is what is shown, nothing is left out.

A page is one program. Its blocks run from top to bottom, in a folder of their own:

* ```python is executed; what it prints is the ```text block right below it.
* ```console is executed if all its commands are `$ collections-store …`; what a command prints is
  compared where it is shown. `...` stands for anything, as in doctest.
* A block with a title (```json title="people.json") is a file of that name.

A page that says `postgres_url` gets the URL of an empty PostgreSQL.
"""

import asyncio
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import collections_store
import collections_store.dialogues
import collections_store.integrations.kdeps
import collections_store.memory
from collections_store import MissingExtra

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_OUTPUT = re.compile(r"\n\s*```text\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([\w.-]+)"')
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_PROMPT = "$ "
_PROGRAM = "collections-store"


# -- the pages -------------------------------------------------------------------------------


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
    for fence in _FENCE.finditer(source):
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
        return all(line.startswith(_PROMPT + _PROGRAM) for line in lines)
    return block.language == "python"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUNNING_PAGES = [page for page in PAGES if any(map(runs, blocks(page)))]


@pytest.fixture
def empty_postgres_url(postgres_place: Any) -> str:
    """The URL of a PostgreSQL that begins empty: its search path is a schema of its own."""
    schema = postgres_place.options["schema"]
    engine = sa.create_engine(sa.make_url(postgres_place.url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    engine.dispose()
    url = sa.make_url(postgres_place.url)
    url = url.update_query_dict({"options": f"-csearch_path={schema}"})
    return url.render_as_string(hide_password=False)


@pytest.mark.parametrize("page", RUNNING_PAGES, ids=name_of)
def test_a_page_runs_and_shows_what_is_printed(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if "postgres_url" in page.read_text(encoding="utf-8"):
        namespace["postgres_url"] = request.getfixturevalue("empty_postgres_url")
    for block in blocks(page):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            run_python(block, namespace)
            expect(block, block.shown, capsys.readouterr().out)
        elif runs(block):
            run_console(block)


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    """Execute the block; a traceback tells its place on the page."""
    source = "\n" * block.line + block.text
    code = compile(source, str(block.page), "exec", dont_inherit=True)
    exec(code, namespace)


def run_console(block: Block) -> None:
    """Execute each command as a shell would, and compare what it shows below itself."""
    for command, shown in commands(block.text):
        arguments = shlex.split(command)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "collections_store", *arguments],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            env=environment(),
        )
        assert bool(done.returncode) == ("Error: " in shown), done.stdout
        if shown:
            expect(block, shown, done.stdout)


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a session and what is shown below it."""
    for entry in re.split(r"^\$ ", text.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, shown = entry.partition("\n")
        yield command, shown


def environment() -> dict[str, str]:
    """The environment of a command: this checkout's library, no settings of the machine's."""
    kept = {key: value for key, value in os.environ.items() if "COLLECTIONS_STORE" not in key}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"}


def expect(block: Block, shown: str, printed: str) -> None:
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS
    if not checker.check_output(shown, printed, flags):
        example = doctest.Example(block.text, shown)
        difference = checker.output_difference(example, printed, flags)
        pytest.fail(f"{name_of(block.page)}, line {block.line}\n{difference}", pytrace=False)


DOORS: tuple[Any, ...] = (
    collections_store,
    collections_store.dialogues,
    collections_store.memory,
    collections_store.integrations.kdeps,
)
"""The packages whose names are public."""


# -- the docstrings --------------------------------------------------------------------------


def docstrings() -> Iterator[doctest.DocTest]:
    """Yield the examples of each docstring; they may use the public names, and asyncio."""
    public = {name: getattr(door, name) for door in DOORS for name in door.__all__}
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = pkgutil.walk_packages(collections_store.__path__, "collections_store.")
    for name in ["collections_store", *(each.name for each in found)]:
        try:
            module = importlib.import_module(name)
        except MissingExtra:  # of a host that cannot be installed beside the others
            continue
        for test in finder.find(module, name, extraglobs={**public, "asyncio": asyncio}):
            if test.examples:
                yield test


@pytest.mark.parametrize("example", list(docstrings()), ids=lambda test: test.name)
def test_the_example_of_a_docstring_runs(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


# -- nothing is left out ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as it is published; a warning of mkdocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        check=False,
        cwd=ROOT,
        env=environment() | {"NO_MKDOCS_2_WARNING": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = (page.read_text(encoding="utf-8") for page in (site / "reference").rglob("*.html"))
    places = set(re.findall(r'id="(collections_store\.[^"]+)"', "".join(pages)))
    documented = {place.replace(".errors.", ".") for place in places}
    missing = set(public_names()) - documented
    assert not missing


def public_names() -> Iterator[str]:
    """Yield the public names, and the public methods and properties of those that are classes."""
    for door in DOORS:
        for name in door.__all__:
            yield f"{door.__name__}.{name}"
            member = getattr(door, name)
            if inspect.isclass(member) and member.__module__ != "collections_store.errors":
                for attribute, value in inspect.getmembers_static(member):
                    if not attribute.startswith("_") and getattr(value, "__doc__", None):
                        yield f"{door.__name__}.{name}.{attribute}"


def test_every_command_is_in_the_reference() -> None:
    click = pytest.importorskip("click")
    program = importlib.import_module("collections_store.cli.app").program
    reference = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")

    def paths(command: Any, path: str) -> Iterator[str]:
        yield path
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from paths(below, f"{path} {name}")

    documented = set(re.findall(r"^## (collections-store.*)$", reference, re.MULTILINE))
    assert set(paths(program, _PROGRAM)) == documented


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == [page.relative_to(DOCS).as_posix() for page in PAGES[1:]]


def test_every_room_is_in_the_architecture() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    rooms = {room.name for room in pkgutil.iter_modules(collections_store.__path__)}
    assert not {room for room in rooms if f"`{room}`" not in page} - {"__main__"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [link["target"].partition("#")[0] for link in _LINK.finditer(prose)]
    inside = [target for target in targets if target and "://" not in target]
    assert not [target for target in inside if not (page.parent / target).is_file()]


# -- what stands beside the pages ------------------------------------------------------------


def test_ci_runs_the_command_of_the_readme() -> None:
    shell = [block.text.strip() for block in blocks(README) if block.language == "sh"]
    (command,) = [text for text in shell if text.endswith("pytest")]
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == command


def test_changelog_fragments_are_named_by_number_and_kind() -> None:
    kinds = {"feature", "change", "fix", "deprecation", "removal"}
    readme = (ROOT / "changelog.d" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{kind}`" in readme for kind in kinds)
    for fragment in (ROOT / "changelog.d").iterdir():
        if fragment.name != "README.md":
            number, kind, suffix = fragment.name.split(".")
            assert (len(number), number.isdigit(), suffix) == (4, True, "md")
            assert kind in kinds
            assert fragment.read_text(encoding="utf-8").strip()
