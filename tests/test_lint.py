"""The linter, the formatter and the type checker find nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", ["ruff check .", "ruff format --check .", "mypy"])
def test_ruff_and_mypy(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
