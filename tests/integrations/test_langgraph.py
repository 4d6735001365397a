"""The tests of the LangGraph integration, in an environment of its own: LangGraph asks for another anyio than opsdroid."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest
from postgres_server import URL_VARIABLE
from selection import only_all_of_hosts

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "langgraph>=1.2,<2",
    "langgraph-checkpoint-conformance==0.0.2",
    "langgraph-checkpoint-sqlite==3.1.2",
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
UNREACHABLE = ("No matching distribution", "Max retries", "Failed to establish", "Name or service")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with LangGraph and the packages of this one."""
    folder = tmp_path_factory.mktemp("langgraph")
    venv.create(folder, symlinks=os.name != "nt")
    program = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    _pip("--python", program, "install", "--no-compile", *PACKAGES)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    outer = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (Path(packages) / "outer.pth").write_text(outer)
    return program


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode and any(each in done.stderr for each in UNREACHABLE):
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr


@only_all_of_hosts
@pytest.mark.timeout(1800)
def test_langgraph(python: str, postgres_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "--whole-matrix",
            *TESTS,
        ],
        check=False,
        cwd=ROOT,
        env=os.environ
        | {
            URL_VARIABLE: postgres_url,
            "PYTHONPATH": str(ROOT),
            "COLLECTIONS_STORE_TEST_HOSTS": "",  # the other frameworks may be absent
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_speed(python: str, postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Measure ours against LangGraph's own."""
    _pip("--python", python, "install", "--no-compile", *THEIR_PACKAGES)
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
    _pip("--python", python, "install", "--no-compile", *THEIR_PACKAGES)
    source = ("--no-deps", "--no-binary", ":all:", "--dest", str(tmp_path))
    _pip("download", *source, package)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    replaced, files = SDISTS[package]
    plugins = ("-o", "asyncio_mode=auto") if replaced == "store" else ("-p", "no:asyncio")
    done = subprocess.run(
        [
            *(python, "-m", "pytest", "-q", "-n", "0", "-o", "addopts="),
            *("-p", "integrations.langgraph_upstream", *plugins),
            *(f"tests/{name}" for name in files.split() or [""]),
        ],
        check=False,
        cwd=archive.with_name(archive.name.removesuffix(".tar.gz")),
        env=os.environ
        | {"LANGGRAPH_TESTS": replaced, "NO_DOCKER": "true", "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
