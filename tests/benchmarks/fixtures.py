"""Fixtures of the measurements."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from benchmarks.measuring import REPORT, Table

from collections_store import AsyncStore, Store


@dataclass(frozen=True)
class Setup:
    """A database to measure, and the options of its stores."""

    name: str
    backend: Backend
    options: dict[str, Any]

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is PostgreSQL."""
        return self.backend.is_postgresql

    def store(self, **more: Any) -> Store:
        """Open a store."""
        return Store(self.backend.url, **self.backend.options, **self.options, **more)

    def async_store(self, **more: Any) -> AsyncStore:
        """Open an async store."""
        return AsyncStore(self.backend.url, **self.backend.options, **self.options, **more)


@pytest.fixture(autouse=True)
def one_core(request: pytest.FixtureRequest) -> Iterator[None]:
    """Stay on one core: two threads on different cores take 70 µs for a hop instead of 20, at random."""
    if not hasattr(os, "sched_setaffinity") or request.node.get_closest_marker("all_cores"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="session")
def all_results() -> Iterator[list[Any]]:
    """The results of all tests; they are written to the folder that `BENCH_REPORT` names."""
    results: list[Any] = []
    yield results
    folder = os.environ.get(REPORT)
    if folder and results:
        table = Table(lambda _: None)
        table.results = results
        table.keep(Path(folder))


@pytest.fixture
def table(capsys: pytest.CaptureFixture[str], all_results: list[Any]) -> Iterator[Table]:
    """The table of what is measured."""

    def print_results(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", end="")

    print_line: Callable[[str], None] = print_results
    table = Table(print_line)
    yield table
    all_results += table.results


@pytest.fixture(params=["SQLite, full", "SQLite, normal", "PostgreSQL"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Setup:
    """Each database, SQLite with each durability."""
    return bed_of(request, tmp_path, request.param)


def bed_of(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Setup:
    """Return the database of a name."""
    if name == "PostgreSQL":
        return Setup(name, request.getfixturevalue("postgres_backend"), {})
    backend = Backend("sqlite-file", f"sqlite:///{tmp_path / 'store.db'}")
    return Setup(name, backend, {"durability": name.split()[1]})
