"""A program on the newest other supported Python of this machine, on each with `--whole-matrix`; `nox -s tests` runs all tests.

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
from conftest import sampled

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.[0-9]+)", " ".join(PROJECT["classifiers"]))
COMPILED = ("orjson",)
PROGRAM = """
import asyncio
import importlib
import pkgutil

import collections_store
from collections_store import AsyncStore, F, InvalidBody, Store

for module in pkgutil.walk_packages(collections_store.__path__, "collections_store."):
    if "integrations" not in module.name and "cli" not in module.name and "__main__" not in module.name:
        importlib.import_module(module.name)
for name in collections_store.__all__:
    print(name, getattr(collections_store, name).__module__)


def use(things):
    yield things.put("ada", {"age": 36, "likes": ["tea"]})
    yield things.put_many({"bob": {"age": 40}, "eve": {"age": 30, "likes": ["cake", "tea"]}})
    yield things.create_index("age")
    yield things.update("ada", {"$inc": {"age": 1}, "$push": {"likes": "cake"}})
    yield things.find((F("age") > 30) & F("likes").contains("tea"), sort=[("age", -1)])
    yield things.aggregate([{"$unwind": "$likes"}, {"$group": {"_id": "$likes", "n": {"$sum": 1}}}])
    yield things.change("eve", lambda body: {**body, "age": 31})
    yield things.remove("bob")
    yield things.list()


with Store("sqlite://") as store, store.transaction() as tx:
    for result in use(tx["things"]):
        print(result)
    try:
        tx["things"].put("x", {"deep": [{1, 2}]})
    except InvalidBody as error:
        print(error)


async def main():
    async with AsyncStore("sqlite://") as store:
        for result in use(store["things"]):
            print(await result)


asyncio.run(main())
"""
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


@pytest.mark.parametrize("version", OTHERS[:: -sampled(2)])
def test_supported_python_versions(version: str, tmp_path: Path) -> None:
    found = next((each for each in interpreters(version) if runs(each, version)), None)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    wheels = [f"{name}=={metadata.version(name)}" for name in COMPILED]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    where = ["--target", str(tmp_path), "--python-version", version, "--only-binary=:all:"]
    done(*pip, *where, "--no-deps", *wheels)
    borrowed = sysconfig.get_path("purelib")
    packages = os.pathsep.join(map(str, (tmp_path, ROOT, borrowed)))
    printed = done(found, "-S", "-c", PROGRAM, packages=packages)  # -S: none of its own packages
    assert "at 'deep.0': set is not JSON" in printed
    assert printed == done(sys.executable, "-c", PROGRAM, packages=str(ROOT))


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
