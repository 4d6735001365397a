"""The tests of the OpenAI Agents integration, in a process of their own: to import the SDK takes seconds, in each that collects."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from backends import Backend
from postgres_server import URL_VARIABLE
from selection import HOSTS, missing, only_all_of_hosts

if _reason := missing("agents"):
    pytest.skip(_reason, allow_module_level=True)

ROOT = Path(__file__).parents[2]
TESTS = [
    "tests/integrations/openai_agents_sessions.py",
    "tests/integrations/openai_agents_files.py",
]
SDIST = "openai-agents==0.24.0"
THEIR_TESTS = (
    "tests/memory/test_session.py",
    "tests/memory/test_session_limit.py",
    "tests/extensions/memory/test_sqlalchemy_session.py",
    "tests/extensions/memory/test_async_sqlite_session.py",
)
UNREACHABLE = ("No matching distribution", "Max retries", "Failed to establish", "Name or service")


def run_tests(*arguments: str, environment: dict[str, str], cwd: Path = ROOT) -> str:
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
    return done.stdout


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode and any(each in done.stderr for each in UNREACHABLE):
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr


@pytest.mark.timeout(600)
def test_openai_agents(postgres_url: str) -> None:
    matrix = ["--whole-matrix"] if HOSTS == "all" else []
    run_tests(*matrix, *TESTS, environment={URL_VARIABLE: postgres_url})


@only_all_of_hosts
@pytest.mark.timeout(900)
def test_the_sdks_own_tests(shared_backend: Backend, tmp_path: Path) -> None:
    packages = tmp_path / "packages"  # our own tests run without pytest-asyncio
    pip("install", "--target", str(packages), "--no-deps", "pytest-asyncio")
    pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(tmp_path), SDIST)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    url = shared_backend.url if shared_backend.name == "postgresql" else ""
    output = run_tests(
        *("-o", "addopts=", "-o", "filterwarnings=", "-p", "integrations.openai_agents_upstream"),
        *THEIR_TESTS,
        cwd=archive.with_name(archive.name.removesuffix(".tar.gz")),
        environment={
            "OPENAI_AGENTS_URL": url,
            "PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{packages}",
        },
    )
    assert "87 passed" in output
