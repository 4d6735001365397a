"""The tests of the LangGraph integration, in an environment of its own: LangGraph asks for another anyio than opsdroid."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from postgres_server import URL_VARIABLE

ROOT = Path(__file__).parents[2]
PACKAGES = ("langgraph>=1.2,<2", "langgraph-checkpoint-conformance==0.0.2", "pycryptodome")
FEW = "conformance and not memory or page or (sqlite-file and not processes and not killed)"
"""The tests that run by default; `nox -s hosts-langgraph` runs all, which takes minutes."""
ALL_TESTS = "COLLECTIONS_STORE_TEST_HOSTS"
TESTS = ["tests/integrations/langgraph_saver.py"]
UNREACHABLE = ("No matching distribution", "Max retries", "Failed to establish", "Name or service")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with LangGraph and the packages of this one."""
    folder = tmp_path_factory.mktemp("langgraph")
    venv.create(folder, symlinks=os.name != "nt")
    program = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    install = ["install", "-q", "--disable-pip-version-check", "--no-compile", *PACKAGES]
    command = [sys.executable, "-m", "pip", "--python", program, *install]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode and any(each in done.stderr for each in UNREACHABLE):
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    outer = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (Path(packages) / "outer.pth").write_text(outer)
    return program


@pytest.mark.timeout(1800)
def test_langgraph(python: str, postgres_url: str, tmp_path: Path) -> None:
    some = ["--whole-matrix"] if os.environ.get(ALL_TESTS) else ["-k", FEW]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *some, *TESTS],
        check=False,
        cwd=ROOT,
        env=os.environ | {URL_VARIABLE: postgres_url, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
