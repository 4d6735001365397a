"""The codec of bodies."""

import subprocess
import sys

_ENCODE_NESTED = """
from collections_store.codec import Codec
for depth in (80, 100, 150, 200):
    for width in (1, 50):
        body = 1
        for _ in range(depth):
            body = [body] + [1] * width
        for _ in range(20):
            Codec().encode(body)
            smaller = [bytes(size) for size in range(100, 3000, 7)]
"""


def test_deeply_nested_arrays_are_an_error() -> None:
    """Whether a version of orjson is installed that writes past the end of its buffer (3.12.0, 3.13.0)."""
    done = subprocess.run(
        [sys.executable, "-c", _ENCODE_NESTED], check=False, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
