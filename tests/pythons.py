"""The other supported versions of Python, and their interpreters on this machine."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.[0-9]+)", " ".join(PROJECT["classifiers"]))
OTHERS = [version for version in PYTHONS if version != ".".join(map(str, sys.version_info[:2]))]


@cache
def interpreter_of(version: str) -> str | None:
    """Return an interpreter of a version, None if this machine has none."""
    return next((each for each in _interpreters(version) if _runs(each, version)), None)


def _interpreters(version: str) -> Iterator[str]:
    """Yield the interpreters of a version, on the path and of pyenv."""
    found = shutil.which(f"python{version}")
    if found:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python")))


def _runs(interpreter: str, version: str) -> bool:
    """Return whether an interpreter has a version, and is not a stub of pyenv."""
    probe = [interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(probe, check=False, capture_output=True, encoding="utf-8")
    return done.stdout.strip() == version
