"""The tests of the LlamaIndex integration, in a process of their own: to import LlamaIndex takes seconds, in each that collects."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from postgres_server import URL_VARIABLE

ROOT = Path(__file__).parents[2]
TESTS = "tests/integrations/llama_index_storage.py"
ALL_TESTS = "COLLECTIONS_STORE_TEST_HOSTS"


@pytest.mark.skipif(
    not (find_spec("llama_index") and find_spec("llama_index.core")) and not os.environ.get("CI"),
    reason="LlamaIndex is not installed: see the dev extra",
)
@pytest.mark.timeout(600)
def test_llama_index(postgres_url: str) -> None:
    matrix = ["--whole-matrix"] if os.environ.get(ALL_TESTS) else []
    program = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*program, *matrix, TESTS],
        check=False,
        cwd=ROOT,
        env=os.environ | {URL_VARIABLE: postgres_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout[-5000:]
