"""A process that is killed in the middle of its work: `python -m property.crashing`, see `Victim`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from collections_store import Store, document

TESTS = Path(__file__).parents[1]


class Victim:
    """A process that waits for work; one is started in advance, because the start takes time."""

    def __init__(self) -> None:
        paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-W", "error", "-m", "property.crashing"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def work(self, **task: Any) -> list[int]:
        """Let the process write `committed`, return its versions, then write `lost` in a transaction, and kill the
        process.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        versions: list[int] = json.loads(self._process.stdout.readline())
        return versions

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Execute the task on standard input, and wait to be killed."""
    task = json.loads(sys.stdin.readline())
    setattr(document, "time", SimpleNamespace(time_ns=lambda: 1000 * task["time"]))  # noqa: B010
    store = Store(task["url"], **task["options"])
    versions = [store[name].put(id, body) for name, id, body in task["committed"]]
    with store.transaction() as transaction:
        for name, id, body in task["lost"]:
            transaction[name].put(id, body)
            transaction[name].delete_many({"n": body})
            transaction[f"new_{name}"].put(id, body)
        print(json.dumps(versions), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
