"""The tests of the Google ADK integration, in a process of their own: to import ADK takes seconds, in each that collects."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from postgres_server import URL_VARIABLE
from selection import HOSTS, missing, only_all_of_hosts

if _reason := missing("google.adk"):
    pytest.skip(_reason, allow_module_level=True)

ROOT = Path(__file__).parents[2]
TESTS = ["tests/integrations/google_adk_sessions.py", "tests/integrations/google_adk_memory.py"]
REPOSITORY = "https://github.com/google/adk-python"
UNREACHABLE = ("Could not resolve host", "Failed to connect", "unable to access")


def run_tests(*arguments: str, environment: dict[str, str], cwd: Path = ROOT) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments],
        check=False,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.timeout(600)
def test_google_adk(postgres_url: str) -> None:
    matrix = ["--whole-matrix"] if HOSTS == "all" else []
    run_tests(*matrix, *TESTS, environment={URL_VARIABLE: postgres_url})


@only_all_of_hosts
@pytest.mark.timeout(900)
def test_adks_own_contract_tests(tmp_path: Path) -> None:
    """Run the tests that ADK runs for each of its services, of the tag of the installed version."""
    tag = f"v{importlib.metadata.version('google-adk')}"
    clone = ["git", "clone", "-q", "--depth", "1", "--branch", tag, REPOSITORY, "adk"]
    done = subprocess.run(clone, check=False, cwd=tmp_path, capture_output=True, text=True)
    if done.returncode and any(each in done.stderr for each in UNREACHABLE):
        pytest.skip(f"git does not reach {REPOSITORY}: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr
    packages = tmp_path / "packages"  # our own tests run without pytest-asyncio
    pip = (sys.executable, "-m", "pip", "install", "-q", "--target", packages, "--no-deps")
    subprocess.run([*pip, "pytest-asyncio", "pytest-mock"], check=True)
    run_tests(
        *("-o", "addopts=", "-o", "asyncio_mode=auto", "-p", "integrations.google_adk_upstream"),
        "tests/unittests/sessions/test_session_service.py",
        cwd=tmp_path / "adk",
        environment={"PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{packages}"},
    )
