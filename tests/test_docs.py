"""The documentation is correct and complete: its code runs, and its output is the one shown."""

import asyncio
import doctest
import importlib
import inspect
import json
import logging
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from code import InteractiveConsole
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any, is_typeddict

import pytest
from forked import Program, run_command
from pages import (
    DOCS,
    FENCE,
    FRAMEWORKS,
    OWN_ENVIRONMENTS,
    PAGES,
    PROGRAM,
    README,
    ROOT,
    RUNNING_PAGES,
    blocks,
    environment,
    name_of,
    needs_postgres,
    run_page,
)
from selection import HOSTS, missing

import collections_store
import collections_store.dialogues
import collections_store.integrations.kdeps
import collections_store.memory
from collections_store import MissingExtra, integrations

SECURITY = ROOT / "SECURITY.md"
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


# -- the pages -------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_names_the_extras_that_it_needs(page: Path) -> None:
    """`nox -s pages` runs a page with these extras alone, but not its commands of a shell."""
    source = page.read_text(encoding="utf-8")
    code = "\n".join(block.text for block in blocks(page))
    signs = {
        "cli": rf"^(\$ )?{PROGRAM} (?!studio)",  # this extra brings `cli`
        "msgspec": r"collection\(.*\bmodel=[A-Z]",
        "postgresql": r"postgresql://|postgres_url",
    }
    for extra, sign in signs.items():
        named = re.search(rf"({PROGRAM}|\.)\[[\w,-]*\b{extra}\b", source)
        assert named or not re.search(sign, code, re.MULTILINE), f"needs {extra}"


def forked_command(arguments: Sequence[str]) -> tuple[int | None, str]:
    """Run a command as `pages.in_new_process` does, in a process that has imported the library."""
    process = Program(run_command, list(arguments), environment())
    printed, _ = process.communicate()
    return process.returncode, printed


def skip_without_framework(page: str) -> None:
    if page in FRAMEWORKS and (reason := missing(FRAMEWORKS[page])):
        pytest.skip(reason)


@pytest.fixture
def _own_log_level() -> Iterator[None]:
    """Restore the level of the library's log, which a page may set."""
    log = logging.getLogger("collections_store")
    level = log.level
    yield
    log.setLevel(level)


PAGES_HERE = [page for page in RUNNING_PAGES if page.stem not in OWN_ENVIRONMENTS]


@pytest.mark.usefixtures("_own_log_level")
@pytest.mark.parametrize("page", PAGES_HERE, ids=name_of)
def test_a_page_runs_and_shows_what_is_printed(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    skip_without_framework(page.stem)
    monkeypatch.chdir(tmp_path)
    names = {}
    if needs_postgres(page):
        names["postgres_url"] = request.getfixturevalue("empty_postgres_url")
    run_page(page, names, command=forked_command)


def test_the_first_pages_run_one_after_the_other_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_postgres_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for again in (False, True):
        for page in (README, DOCS / "tutorial.md"):
            names = {"postgres_url": empty_postgres_url}
            run_page(page, names, again=again, command=forked_command)


@pytest.mark.parametrize(
    "page", [page for page in RUNNING_PAGES if needs_postgres(page)], ids=name_of
)
def test_a_page_defines_the_url_of_postgresql_before_it_uses_it(page: Path) -> None:
    code = "".join(block.text for block in blocks(page) if block.language == "python")
    lines = [line for line in code.splitlines() if "postgres_url" in line]
    assert lines[0].startswith('postgres_url = "postgresql://')


PASTED = [README, DOCS / "tutorial.md", *sorted((DOCS / "how-to").rglob("*.md"))]


class Prompt(InteractiveConsole):
    """Python's prompt, which compiles pasted code without running it."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    def runcode(self, code: Any) -> None:
        pass

    def showsyntaxerror(self, filename: Any = None, **options: Any) -> None:
        self.problems.append(str(sys.exc_info()[1]))


@pytest.mark.parametrize("page", PASTED, ids=name_of)
def test_examples_can_be_pasted_into_the_prompt(page: Path) -> None:
    """A blank line ends a block in the prompt, so blocks contain none."""
    for block in blocks(page):
        if block.language == "python" and "\n>>> " not in f"\n{block.text}":
            prompt = Prompt()
            for line in (*block.text.splitlines(), ""):
                prompt.push(line)
            assert not prompt.problems, f"line {block.line}: {prompt.problems}"


PUBLIC_PACKAGES: tuple[Any, ...] = (
    collections_store,
    collections_store.dialogues,
    collections_store.memory,
    collections_store.integrations.kdeps,
)
"""The packages whose names are public."""


COLUMNS = 80
"""Characters of a line of code: more hide their end on a screen of 1280 pixels."""
WRAPPED = {"text", "mermaid"}
"""Blocks with longer lines: what programs print, which `docs/code.css` wraps, and sources of pictures."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_of_code_are_not_too_wide(page: Path) -> None:
    for block in blocks(page):
        code = block.text.splitlines()
        if block.language == "console":  # without what the commands print
            entries = re.findall(r"^\$ (?:.*\\\n)*.*", block.text, re.MULTILINE)
            code = [line for entry in entries for line in entry.splitlines()]
        wide = [line for line in code if len(line) > COLUMNS]
        assert block.language in WRAPPED or not wide, f"line {block.line}"


def test_lines_of_code_wrap_on_a_narrow_screen(site: Path) -> None:
    style = (site / "code.css").read_text(encoding="utf-8")
    assert re.search(r"\.highlight code {[^}]+white-space: pre-wrap", style)
    page = (site / "tutorial" / "index.html").read_text(encoding="utf-8")
    assert 'href="../code.css"' in page
    assert len(re.findall(r'<div class="highlight"><pre>.*?<code>', page)) > 10


# -- the docstrings --------------------------------------------------------------------------


def docstrings(*modules: str) -> Iterator[doctest.DocTest]:
    """Yield the examples in modules; they may use the public names, asyncio, and a `store`."""
    public = {
        name: getattr(package, name) for package in PUBLIC_PACKAGES for name in package.__all__
    }
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in modules:
        globs = {**public, "asyncio": asyncio}
        for test in finder.find(importlib.import_module(name), name, extraglobs=globs):
            if test.examples:
                yield test


def modules_in(name: str) -> list[str]:
    """Return the name of a module, and the names of those within it but the integrations: their frameworks take seconds
    to import.
    """
    names = [name]
    path = getattr(importlib.import_module(name), "__path__", [])
    for module in pkgutil.iter_modules(path, f"{name}."):
        if module.name != integrations.__name__:
            names += modules_in(module.name)
    return names


def run_example(example: doctest.DocTest) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    with collections_store.Store("sqlite://") as store:
        example.globs["store"] = store
        runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize(
    "example", list(docstrings(*modules_in("collections_store"))), ids=lambda test: test.name
)
def test_the_example_of_a_docstring_runs(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_example(example)


@pytest.mark.parametrize(
    "name", [each.name for each in pkgutil.iter_modules(integrations.__path__)]
)
def test_the_examples_of_an_integration_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_framework(name.replace("_", "-"))
    monkeypatch.chdir(tmp_path)
    try:
        for example in docstrings(*modules_in(f"{integrations.__name__}.{name}")):
            run_example(example)
    except MissingExtra as error:
        if HOSTS and name not in OWN_ENVIRONMENTS:
            raise
        pytest.skip(str(error))


# -- completeness ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as it is published; a warning of mkdocs is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        check=False,
        cwd=ROOT,
        env=environment() | {"NO_MKDOCS_2_WARNING": "1", "DOCS_SEARCH": "false"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout
    return folder


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = (page.read_text(encoding="utf-8") for page in (site / "reference").rglob("*.html"))
    anchors = set(re.findall(r'id="(collections_store\.[^"]+)"', "".join(pages)))
    documented = {anchor.replace(".errors.", ".") for anchor in anchors}
    missing = set(public_names()) - documented
    assert not missing


def test_the_lists_of_errors_are_complete(site: Path) -> None:
    reference = (site / "reference" / "errors" / "index.html").read_text(encoding="utf-8")
    shown = re.findall(r'id="collections_store\.errors\.(\w+)"', reference)
    assert sorted(shown) == sorted(collections_store.errors.__all__)
    guide = (DOCS / "how-to" / "errors.md").read_text(encoding="utf-8")
    assert {each for each in shown if not re.search(rf"`{each}\b", guide)} == set()


LOADED = re.compile(
    r"""<(?:link|script|img|iframe|source|object|embed)\b[^>]*?\s(?:src|href|data)=["']?(https?:)?//"""
    r"""|url\(["']?(https?:)?//|@import\s+["'](https?:)?//"""
)


def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    files = [each for kind in ("html", "css") for each in site.rglob(f"*.{kind}")]
    assert len(files) > len(PAGES)
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not LOADED.search(text), file
        assert not re.search(r"class=.?mermaid", text), (
            file
        )  # the theme would load a script for these


def test_diagrams_are_pictures_within_the_pages(site: Path) -> None:
    count = 0
    for page in PAGES[1:]:
        sources = re.findall(
            r"^```mermaid\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
        folder = page.relative_to(DOCS).with_suffix("") if page.stem != "index" else ""
        built = (site / folder / "index.html").read_text(encoding="utf-8") if sources else ""
        drawn = re.findall(r'<div class="diagram"><svg.*?</svg>', built, re.DOTALL)
        assert len(drawn) == len(sources), page
        for source, picture in zip(sources, drawn, strict=True):
            shown = unescape(" ".join(re.findall(r"<tspan[^>]*>([^<]*)", picture)))
            for label in re.findall(r'"([^"]+)"|: (.+)$', source, re.MULTILINE):
                assert "".join(label) in shown, page
        count += len(sources)
    assert count >= 7


@pytest.mark.parametrize("source", ["pie", "flowchart LR\n a ==> b", "sequenceDiagram\n a-xb: x"])
def test_a_diagram_that_cannot_be_drawn_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match="a .* cannot "):
        runpy.run_path(str(DOCS / "diagrams.py"))["draw"](source)


def public_names() -> Iterator[str]:
    """Yield the public names, and the public methods and properties of those that are classes."""
    for package in PUBLIC_PACKAGES:
        for name in package.__all__:
            yield f"{package.__name__}.{name}"
            member = getattr(package, name)
            is_ours = inspect.isclass(member) and not is_typeddict(member)
            if is_ours and member.__module__ != "collections_store.errors":
                for attribute, value in inspect.getmembers_static(member):
                    method = inspect.isroutine(value) or isinstance(value, property)
                    if method and value.__doc__ and not attribute.startswith("_"):
                        yield f"{package.__name__}.{name}.{attribute}"


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
    assert set(paths(program, PROGRAM)) == documented


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"^ +- .*: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == [page.relative_to(DOCS).as_posix() for page in PAGES[1:]]


def test_every_package_is_in_the_architecture() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    packages = {package.name for package in pkgutil.iter_modules(collections_store.__path__)}
    assert not {package for package in packages if f"`{package}`" not in page} - {"__main__"}


def test_every_module_in_the_architecture_exists() -> None:
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    package = Path(collections_store.__file__).parent
    modules = {
        ".".join(each.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
        for each in package.rglob("*.py")
    }
    tops = {each.partition(".")[0] for each in modules}
    inside = page.partition("## Inside the packages")[2].partition("\n## ")[0]
    named = {
        (owner[1], name)
        for paragraph in inside.split("\n\n")
        if (owner := re.match(r"\s*`([a-z_.]+)`", paragraph))
        for name in re.findall(r"`([a-z_.]+)`", paragraph)
    }
    assert len(named) > 50
    known = modules | {"migrations", "bind"}
    assert not [(o, n) for o, n in named if n not in known and f"{o}.{n}" not in known]
    for name in re.findall(r"`([a-z_]+\.[a-z_.]+)`", page):
        if name.partition(".")[0] in tops and not name.endswith(".py"):
            module, _, attribute = name.rpartition(".")
            assert name in modules or hasattr(
                importlib.import_module(f"collections_store.{module}"), attribute
            ), name
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", page):
        assert (package / path).is_file() or (ROOT / path).is_file(), path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [link["target"].partition("#")[0] for link in _LINK.finditer(prose)]
    inside = [target for target in targets if target and "://" not in target]
    assert not [target for target in inside if not (page.parent / target).is_file()]


def test_the_terminal_image_shows_the_output_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(arguments: list[str], folder: str) -> str:
        monkeypatch.chdir(folder)
        code, printed = forked_command(arguments)
        assert code == 0, printed
        return printed

    terminal = runpy.run_path(str(DOCS / "images" / "terminal.py"))
    shown = terminal["PICTURE"].read_text(encoding="utf-8")
    assert list(terminal["text_of"](shown)) == list(terminal["text_of"](terminal["draw"](run)))


def test_the_moving_image_shows_the_output_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tour = runpy.run_path(str(DOCS / "images" / "tour.py"))
    shown = tour["PICTURE"].read_text(encoding="utf-8")
    assert len(shown) < 600_000
    assert tour["text_of"](shown) == tour["text_of"](tour["draw"]({}))


# -- other files -----------------------------------------------------------------------------


def test_ci_runs_the_command_of_the_readme() -> None:
    shell = [block.text.strip() for block in blocks(README) if block.language == "sh"]
    (command,) = [text for text in shell if text.endswith("pytest")]
    command = re.sub(r"\s*\\\n\s*", " ", command)
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == command


def test_links_of_the_package_s_readme_lead_to_the_project() -> None:
    """A package index shows the readme without the other files of the repository."""
    command = [sys.executable, "-m", "hatchling", "metadata"]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, encoding="utf-8")
    metadata = json.loads(done.stdout)
    targets = [link["target"] for link in _LINK.finditer(metadata["readme"]["text"])]
    assert targets
    assert not [each for each in targets if not each.startswith(metadata["urls"]["Homepage"])]


def test_the_supported_versions_of_python_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "reference" / "supported.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| Python \| ([^|]+) \|", page, re.MULTILINE)
    listed = re.findall(r"3\.\d+", row)
    known = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert (listed[: len(known)], listed[0]) == (known, project["requires-python"].strip(">="))
    minor = re.escape(".".join(project["version"].split(".")[:2]))
    assert re.search(rf"^\| {minor} \| yes \|$", SECURITY.read_text(encoding="utf-8"), re.MULTILINE)
    assert f"Tested for {project['version'].rpartition('.')[0]} |" in page


def test_the_guarantees_of_security_name_tests_that_exist() -> None:
    rows = re.findall(
        r"^\| .+ \| (`tests/.+`) \|$", SECURITY.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(rows) > 8
    for path in re.findall(r"`([^`]+)`", " ".join(rows)):
        assert (ROOT / path).is_file(), path


def test_changelog_fragments_are_named_by_number_and_kind() -> None:
    kinds = {"feature", "change", "fix", "deprecation", "removal"}
    readme = (ROOT / "changelog.d" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{kind}`" in readme for kind in kinds)
    for fragment in (ROOT / "changelog.d").iterdir():
        if fragment.name not in {"README.md", "template.jinja"}:
            number, kind, suffix = fragment.name.split(".")
            assert (len(number), number.isdigit(), suffix) == (4, True, "md")
            assert kind in kinds
            text = fragment.read_text(encoding="utf-8").strip()
            assert (
                0 < len(re.findall(r"[.!)](?=\s|$)", re.sub(r"`[^`]*`|\([^)]*\)", "", text))) <= 2
            )
