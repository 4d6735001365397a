"""Environments of tests whose packages cannot be installed beside those of others."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

UNREACHABLE = ("No matching distribution", "Max retries", "Failed to establish", "Name or service")


def own_environment(folder: Path, *packages: str) -> str:
    """Return the interpreter of a new environment with packages, and with the packages of this one."""
    venv.create(folder, symlinks=os.name != "nt")
    program = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    pip("--python", program, "install", "--no-compile", *packages)
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    outer = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
    (Path(own) / "outer.pth").write_text(outer)
    return program


def pip(*arguments: str) -> None:
    """Run pip; skip the test if pip reaches no index."""
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode and any(each in done.stderr for each in UNREACHABLE):
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr


def sdist(package: str, folder: Path) -> Path:
    """Return the folder of a package's sdist."""
    pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), package)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


def run_tests(python: str, *arguments: str, cwd: Path, environment: dict[str, str]) -> None:
    """Run pytest, in one process."""
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments],
        check=False,
        cwd=cwd,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
