"""Run each page of the documentation in an environment with only the packages that the page installs.

`nox -s pages` calls it, with a part of the names of pages if only some are wanted. An environment is made for each set of
extras, of a wheel of this checkout.
"""

import re
import subprocess
import sys
import tempfile
import venv
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa
from pages import ROOT, RUNNING_PAGES, name_of, needs_postgres
from postgres_server import postgres_server

RUNNER = Path(__file__).with_name("pages.py")
BESIDE = {
    "README": ("fastapi",),
    "fastapi": ("fastapi", "httpx2"),
    "fastmcp": ("fastmcp",),
    "migrate-from-tinydb": ("tinydb",),
    "notebooks": ("pandas", "polars", "pyarrow"),
    "opentelemetry": ("opentelemetry-sdk",),
    "pydantic-ai": ("pydantic-ai-slim",),
    "search-by-words-and-meaning": ("wordllama",),
    "sqlalchemy": ("sqlalchemy[asyncio]", "aiosqlite"),
    "studio": ("fastapi", "httpx2"),
}
"""Other packages that a page installs."""
PINNED = {"soul-machines": ("pydantic<2",)}
"""Pinned packages: such a page runs with and without them."""
_EXTRAS = re.compile(r"collections-store\[([\w,-]+)\]")

Needs = tuple[tuple[str, ...], tuple[str, ...]]


def needs_of(page: Path) -> Iterator[Needs]:
    """Yield the extras and the other packages that a page installs."""
    source = page.read_text(encoding="utf-8")
    named = {extra for found in _EXTRAS.findall(source) for extra in found.split(",")}
    extras, beside = tuple(sorted(named)), BESIDE.get(page.stem, ())
    assert all(f" {name}" in source.replace("'", "") for name in beside), name_of(page)
    yield extras, beside
    if page.stem in PINNED:
        yield extras, (*beside, *PINNED[page.stem])


def run(*command: str, cwd: str | Path | None = None) -> str | None:
    """Run a command; return its output if it fails."""
    done = subprocess.run(
        command,
        check=False,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=900,
    )
    return done.stdout if done.returncode else None


def environment(folder: Path, wheel: Path, needs: Needs) -> str:
    """Create an environment, and return its interpreter."""
    venv.create(folder, with_pip=True, symlinks=sys.platform != "win32")
    python = str(folder / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    extras, pinned = needs
    what = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    failed = run(python, "-m", "pip", "install", "-q", what, *pinned)
    if failed is not None:
        raise SystemExit(f"pip install {what} {' '.join(pinned)}\n{failed}")
    return python


@contextmanager
def database(server: str, number: int) -> Iterator[str]:
    """Yield the URL of an empty database."""
    url, name = sa.make_url(server).set(drivername="postgresql+psycopg"), f"page_{number}"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
        engine.dispose()
    yield sa.make_url(server).set(database=name).render_as_string(hide_password=False)


def main(wanted: str) -> int:
    pages = [page for page in RUNNING_PAGES if wanted in name_of(page)]
    groups: dict[Needs, list[Path]] = defaultdict(list)
    for page in pages:
        for needs in needs_of(page):
            groups[needs].append(page)
    failed = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if (problem := run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))):  # fmt: skip
            raise SystemExit(problem)
        [wheel] = folder.glob("*.whl")
        server = ""
        if any(map(needs_postgres, pages)):
            server = stack.enter_context(postgres_server()).url
        number = 0
        for needs, some in groups.items():
            python = environment(folder / f"venv{number}", wheel, needs)
            for page in some:
                number += 1
                (cwd := folder / f"page{number}").mkdir()
                urls = (
                    [stack.enter_context(database(server, number))] if needs_postgres(page) else []
                )
                problem = run(python, "-P", str(RUNNER), str(page), *urls, cwd=cwd)
                print(
                    "FAILED" if problem else "passed",
                    name_of(page),
                    *map(",".join, needs),
                    flush=True,
                )
                failed += problem is not None
                if problem:
                    print(problem, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "") and 1)
