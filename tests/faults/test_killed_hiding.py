"""Processes that hide and unhide an index are killed: the index is one of both, and refuses duplicates."""

import os
import random
import signal
import time
from itertools import cycle
from typing import Any

import pytest
from backends import Backend
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes
from selection import sampled

from collections_store import DuplicateKey, Index, Store


def hide(url: str, options: dict[str, Any]) -> None:
    """Hide and unhide the index until the process is killed; print a line after the first time."""
    with Store(url, **{**options, "busy_timeout": 60.0}) as store:
        things = store["things"]
        for number, change in enumerate(cycle((things.hide_index, things.unhide_index))):
            assert change("n_1")
            if number == 1:
                os.write(1, b"changed\n")


@pytest.mark.parametrize("seed", range(6)[:: sampled(2)])
def test_a_killed_hiding_leaves_the_index_whole(shared_backend: Backend, seed: int) -> None:
    chance = random.Random(seed)
    with Store(shared_backend.url, **shared_backend.options) as store:
        things = store["things"]
        things.put_many((str(n), {"n": n}) for n in range(300))
        things.create_index("n", unique=True)
        for _ in range(3):
            process = start(hide, shared_backend)
            assert process.stdout.readline()
            time.sleep(chance.random() / 20)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            with Store(shared_backend.url, **shared_backend.options) as other:
                left = other["things"]
                [index] = left.indexes()
                assert isinstance(index, Index)
                assert ("n_1" in left.explain({"n": 7}).indexes) is not index.hidden
                with pytest.raises(DuplicateKey):
                    left.put("x", {"n": 7})
                assert [each.id for each in left.find({"n": 7})] == ["7"]
                assert left.unhide_index("n_1")
                assert left.explain({"n": 7}).indexes == ("n_1",)
