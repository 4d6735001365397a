"""A part of the suite on each other supported Python of this machine; `nox -s tests` runs all.

The other Python borrows this environment's packages, but for those that are compiled: it gets its own.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.[0-9]+)", " ".join(PROJECT["classifiers"]))
COMPILED = ("orjson", "hypothesis")
PART = [
    "tests/unit/test_errors.py",
    "tests/unit/test_codec.py",
    "tests/contract/test_values.py",
]
OTHERS = [version for version in PYTHONS if version != ".".join(map(str, sys.version_info[:2]))]


def interpreters(version: str) -> Iterator[str]:
    """Yield the interpreters of a version, on the path and of pyenv."""
    found = shutil.which(f"python{version}")
    if found:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


def runs(interpreter: str, version: str) -> bool:
    """Return whether an interpreter has a version, and is not a stub of pyenv."""
    probe = [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(probe, check=False, capture_output=True, encoding="utf-8")
    return done.stdout.strip() == version


@pytest.mark.parametrize("version", OTHERS)
def test_supported_python_versions(version: str, tmp_path: Path) -> None:
    found = next((each for each in interpreters(version) if runs(each, version)), None)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    wheels = [f"{name}=={metadata.version(name)}" for name in COMPILED]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    where = ["--target", str(tmp_path), "--python-version", version, "--only-binary=:all:"]
    done(*pip, *where, "--no-deps", *wheels)
    borrowed = sysconfig.get_path("purelib")
    packages = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "tests", borrowed)))
    options = ("-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not postgresql")
    done(
        found, "-S", "-m", "pytest", *options, *PART, packages=packages
    )  # -S: none of its own packages
    names = "import test_docs; print(*test_docs.public_names())"
    assert done(found, "-c", names, packages=packages) == done(
        sys.executable, "-c", names, packages=packages.partition(os.pathsep)[2]
    )


def done(*command: str, packages: str = "") -> str:
    """Run a program, which must succeed; return its output."""
    result = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout
    return result.stdout
