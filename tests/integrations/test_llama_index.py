"""The tests of the LlamaIndex integration, in a process of their own: to import LlamaIndex takes seconds, in each that collects."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from postgres_server import URL_VARIABLE
from selection import HOSTS, missing

if _reason := missing("llama_index.core"):
    pytest.skip(_reason, allow_module_level=True)

ROOT = Path(__file__).parents[2]
TESTS = [f"tests/integrations/llama_index_{each}.py" for each in ("storage", "vectors")]


@pytest.mark.timeout(600)
def test_llama_index(postgres_url: str) -> None:
    matrix = ["--whole-matrix"] if HOSTS == "all" else []
    program = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*program, *matrix, *TESTS],
        check=False,
        cwd=ROOT,
        env=os.environ | {URL_VARIABLE: postgres_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
