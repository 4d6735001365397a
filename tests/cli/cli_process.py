"""Runs commands: in this process, or in a new process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends import Backend
from click.testing import CliRunner, Result

from collections_store.cli.app import program

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "collections_store")


@dataclass
class Cli:
    """Commands on one database."""

    options: tuple[str, ...] = ()

    def __call__(self, *arguments: str, input: str | bytes | None = None) -> Result:
        runner = CliRunner(env={"COLLECTIONS_STORE_URL": None, "COLUMNS": "100"})
        line = [*self.options, *arguments]
        return runner.invoke(program, line, input=input, catch_exceptions=False)

    def done(self, *arguments: str, input: str | bytes | None = None) -> str:
        """Run a command that must succeed; returns its standard output."""
        result = self(*arguments, input=input)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    def documents(self, collection: str) -> dict[str, Any]:
        """Return the bodies of a collection by id, as `list` prints them."""
        lines = map(json.loads, self.done("list", collection).splitlines())
        return {line["id"]: line["body"] for line in lines}

    def fails(self, code: int, *arguments: str, input: str | bytes | None = None) -> str:
        """Run a command that must fail with one line on standard error; returns its message."""
        result = self(*arguments, input=input)
        assert result.exit_code == code, (result.exit_code, result.stderr)
        return error_line(result.stderr)

    def command(self, *arguments: str) -> list[str]:
        """Return the arguments that run a command in a new process."""
        return [*COMMAND, *self.options, *arguments]


def error_line(stderr: str) -> str:
    """Return the message of an error, without its prefix."""
    assert stderr.startswith("Error: "), stderr
    assert stderr.count("\n") == 1, stderr
    return stderr.removeprefix("Error: ").rstrip("\n")


def cli_for(backend: Backend) -> Cli:
    """Return the command line for a backend."""
    options = [f"--{name}={value}" for name, value in backend.options.items()]
    return Cli((f"--url={backend.url}", *options))


def spawn(
    arguments: Sequence[str],
    *,
    cwd: Path,
    input: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a new process until it exits."""
    return subprocess.run(
        arguments,
        cwd=cwd,
        input=input,
        env=process_environment(**(environment or {})),
        capture_output=True,
        timeout=60,
        check=False,
    )


def process_environment(**more: str) -> dict[str, str]:
    """Return an environment in which this checkout is importable and no database is set."""
    ours = {"COLLECTIONS_STORE_URL", "PYTHONUNBUFFERED"}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    return inherited | {"PYTHONPATH": str(ROOT)} | more
