"""Collections that come and go while a stream of the store reads: each change comes, and little stays in memory."""

import gc
import tracemalloc
from collections.abc import Iterable

import pytest
from backends import Backend

from collections_store import Store

WARM, MORE = 30, 100
LITTLE = 15_000
"""Bytes for each collection: the statements of its feed are cached. Compiled for each feed, they take three times as much."""


@pytest.mark.parametrize("ends", ["drop", "rename"])
def test_a_stream_of_the_store_holds_little_of_collections(
    shared_backend: Backend, ends: str
) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        stream = store.watch(timeout=0)
        assert stream.try_next() is None
        lengths = set[int]()

        def come_and_go(numbers: Iterable[int]) -> None:
            for number in numbers:
                name = f"things_{number}"
                store.collection(name, changes="after").put("a", number)
                inserted = stream.try_next()
                assert inserted is not None
                assert (inserted["ns"]["coll"], inserted["fullDocument"]) == (name, number)
                if ends == "rename":
                    store.rename(name, "other")
                store.drop("other" if ends == "rename" else name)
                gone = stream.try_next()
                assert gone is not None
                assert (gone["operationType"], gone["ns"]["coll"]) == ("drop", name)
                assert stream.try_next() is None
                lengths.add(len(stream.token))

        come_and_go(range(WARM))
        gc.collect()
        tracemalloc.start()
        try:
            come_and_go(range(WARM, WARM + MORE))
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < MORE * LITTLE
        finally:
            tracemalloc.stop()
        assert max(lengths) < 2 * min(lengths)
