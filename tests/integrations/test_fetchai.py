"""The tests of the AEA integration with Fetch.ai's package, in its own environment, as it has the name of open-aea."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from postgres_server import URL_VARIABLE
from selection import only_all_of_hosts

ROOT = Path(__file__).parents[2]
AEA = "aea==1.2.5"
BESIDE = [
    "base58<3",
    "click<8.2",
    "ecdsa<0.17",
    "importlib-metadata<5",
    "jsonschema<4.18",
    "packaging",
    "protobuf<4",
    "pymultihash==0.8.2",
    "python-dotenv<0.18",
    "pyyaml>=6",
    "requests<3",
    "semver<3",
    "setuptools<81",
]
"""Its requirements, without its upper bounds, which are too old for Python 3.11."""
QUIET = ("-q", "--disable-pip-version-check", "--no-compile")
PARTS = ("storage", "dialogues", "attributes", "run", "importing")
TESTS = [f"test_aea_{part}.py" for part in PARTS]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with Fetch.ai's AEA and the packages of this one."""
    folder = tmp_path_factory.mktemp("fetchai")
    venv.create(folder, symlinks=os.name != "nt")
    program = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    _pip(program, "--no-deps", "--ignore-requires-python", AEA)
    _pip(program, *BESIDE)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    outer = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (Path(packages) / "outer.pth").write_text(outer)
    return program


def _pip(program: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", program, "install", *QUIET, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    unreachable = (
        "No matching distribution",
        "Max retries",
        "Failed to establish",
        "Name or service",
    )
    if done.returncode and any(each in done.stderr for each in unreachable):
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr


@only_all_of_hosts
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="aea 1.2.5 goes as far as Python 3.11")
@pytest.mark.timeout(900)
def test_fetchais_aea(python: str, postgres_url: str, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    shutil.copytree(ROOT / "tests", tests, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("collections_store", "migrations", "docs", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = tests\ntimeout = 120\n")
    files = [f"tests/integrations/{name}" for name in TESTS]
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        check=False,
        cwd=tmp_path,
        env=os.environ | {URL_VARIABLE: postgres_url, "PYTHONPATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout[-2000:]
