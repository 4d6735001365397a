"""A newer SQLite than Python's own, for processes that tests start.

`pysqlite3` has its SQLite within, and shows its functions: loaded before Python's own `sqlite3`, it is the SQLite that
one finds. `python tests/newer_sqlite.py -m pytest …` is Python with it.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PROBE = "import sqlite3; print(sqlite3.sqlite_version)"


def environment(**others: str) -> dict[str, str] | None:
    """Return an environment in which Python's `sqlite3` is 3.45 or newer, or None."""
    found = importlib.util.find_spec("pysqlite3")
    folders = found.submodule_search_locations if found is not None else None
    libraries = [
        str(each) for folder in folders or () for each in Path(folder).glob("_sqlite3*.so")
    ]
    variables = os.environ | {"LD_PRELOAD": libraries[0]} if libraries else dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=variables,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    version = tuple(map(int, done.stdout.split("."))) if done.returncode == 0 else (0,)
    return variables | others if version >= (3, 45) else None


if __name__ == "__main__":
    with_it = environment()
    if with_it is None:
        raise SystemExit("there is no SQLite of 3.45 or newer: pip install pysqlite3-binary")
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], with_it)
