"""The tests of the LangGraph integration, in an environment of its own: LangGraph asks for another anyio than opsdroid."""

import os
import subprocess
from pathlib import Path

import pytest
from own_environment import own_environment, pip, run_tests, sdist
from postgres_server import URL_VARIABLE
from selection import only_all_of_hosts

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "langgraph>=1.2,<2",
    "langgraph-checkpoint-conformance==0.0.2",
    "langgraph-checkpoint-sqlite==3.1.2",
    "pybase64>=1.4",
    "pycryptodome",
)
TESTS = [
    *(f"tests/integrations/langgraph_{each}.py" for each in ("importing", "saver", "store")),
    "tests/integrations/test_reads.py",
]
SDISTS = {
    "langgraph-checkpoint-sqlite==3.1.2": (
        "store",
        "test_store.py test_async_store.py test_ttl.py",
    ),
    "langgraph-checkpoint==4.3.2": ("store", "test_store.py"),
    "langgraph==1.2.22": ("engine", ""),
}
"""LangGraph's own tests: packages, what is replaced, and the files with the tests; none: all."""
THEIR_PACKAGES = (
    "aiosqlite",
    "langgraph==1.2.22",
    "langgraph-checkpoint==4.3.2",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite==3.1.2",
    "psycopg-pool",
    "pytest-asyncio",
    "pytest-mock",
    "pytest-retry",
    "redis",
    "syrupy",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with LangGraph and the packages of this one."""
    return own_environment(tmp_path_factory.mktemp("langgraph"), *PACKAGES)


@only_all_of_hosts
@pytest.mark.timeout(1800)
def test_langgraph(python: str, postgres_url: str) -> None:
    environment = {
        URL_VARIABLE: postgres_url,
        "PYTHONPATH": str(ROOT),
        "COLLECTIONS_STORE_TEST_HOSTS": "",  # the other frameworks may be absent
    }
    matrix = ("-p", "no:asyncio", "--whole-matrix")
    run_tests(python, *matrix, *TESTS, cwd=ROOT, environment=environment)


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_speed(python: str, postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Measure ours against LangGraph's own."""
    pip("--python", python, "install", "--no-compile", *THEIR_PACKAGES)
    with capsys.disabled():
        subprocess.run(
            [
                *(python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"),
                *(
                    "-p",
                    "no:asyncio",
                    "-m",
                    "bench",
                    "tests/benchmarks/test_speed_hosts_langgraph.py",
                ),
            ],
            check=True,
            cwd=ROOT,
            env=os.environ | {URL_VARIABLE: postgres_url, "PYTHONPATH": str(ROOT)},
        )


@only_all_of_hosts
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("package", SDISTS)
def test_langgraphs_own_tests(python: str, package: str, tmp_path: Path) -> None:
    pip("--python", python, "install", "--no-compile", *THEIR_PACKAGES)
    replaced, files = SDISTS[package]
    plugins = ("-o", "asyncio_mode=auto") if replaced == "store" else ("-p", "no:asyncio")
    run_tests(
        python,
        *("-o", "addopts=", "-p", "integrations.langgraph_upstream", *plugins),
        *(f"tests/{name}" for name in files.split() or [""]),
        cwd=sdist(package, tmp_path),
        environment={
            "LANGGRAPH_TESTS": replaced,
            "NO_DOCKER": "true",
            "PYTHONPATH": str(ROOT / "tests"),
        },
    )
