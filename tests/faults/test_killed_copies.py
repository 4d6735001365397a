"""A process that is killed while it copies a store: the next copy goes on where it ended."""

import json
import signal
from typing import Any

import pytest
from backends import Backend
from contract.test_copies import contents
from contract.test_copies import other_backend as other_backend
from faults.test_processes import start
from faults.test_processes import stop_processes as stop_processes

from collections_store import CollectionExists, Store
from collections_store.operations.copying import ReadStored


@pytest.mark.parametrize("last", [50, 1500, 2003])
def test_a_killed_copy_goes_on(shared_backend: Backend, other_backend: Backend, last: int) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        store["a"].put_many({str(n): {"n": n} for n in range(2000)})
        store["a"].create_index("n", unique=True)
        store["b"].put_many({str(n): n for n in range(10)})
        process = start("copy_until", shared_backend, address(other_backend), last)
        assert process.stdout is not None
        done = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        with Store(other_backend.url, **other_backend.options) as other:
            assert sum(each.count for each in other.collections()) == done < 2011
            positions = other.run(ReadStored("a")).positions
            store["b"].put("new", 1)
            store.copy_to(other)
            assert contents(other) == contents(store)
            assert other.run(ReadStored("a")).positions[: len(positions)] == positions
            with pytest.raises(CollectionExists):
                store.copy_to(other)


def address(backend: Backend) -> str:
    """Return the URL and the options of a store, as the program takes them."""
    parts: list[Any] = [backend.url, backend.options]
    return json.dumps(parts)
