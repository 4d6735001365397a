"""The first pages, and a sixth of the tests that need no database but one in memory, on each other supported Python of
this machine: a different sixth on each. `nox -s tests` runs all tests. Each Python gets an environment, with a user's extras and
what the tests import.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, README, ROOT
from pythons import OTHERS, interpreter_of
from selection import SEED, SEED_VARIABLE, sampled

RUNNER = Path(__file__).with_name("pages.py")
PAGES = (README, DOCS / "tutorial.md")
EXTRAS = ("postgresql", "pydantic", "msgspec", "cli", "schema", "vector")
BESIDE = ("attrs", "fastapi", "greenlet", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", OTHERS)
def test_another_python(version: str, tmp_path: Path, empty_postgres_url: str) -> None:
    python = interpreter_of(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    own = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    pip = (sys.executable, "-m", "pip", "--python", own, "install", "-q", "--no-compile")
    run(*pip, "-e", f"{ROOT}[{','.join(EXTRAS)}]", *BESIDE)
    (folder := tmp_path / "pages").mkdir()
    for page in PAGES:
        run(own, "-W", "error", str(RUNNER), str(page), empty_postgres_url, folder=folder)
    tests = ("-m", "in_memory", f"--one-in={sampled(6)}", "tests/unit", "tests/contract")
    seed = str(SEED + OTHERS.index(version))
    run(own, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests, seed=seed)


def run(*command: str, folder: Path = ROOT, seed: str = str(SEED)) -> None:
    """Run a program, which must succeed."""
    result = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": "",
            SEED_VARIABLE: seed,
            "CI": "",
        },  # some packages of this environment are absent there
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout
