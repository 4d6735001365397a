"""Streams take constant memory: the peak does not grow with the collection."""

import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from backends import Backend

from collections_store import Store, changes
from collections_store.dialogues import (
    Dialogue,
    DialogueLabel,
    DialogueStore,
    Message,
    PlainCodec,
    reader,
)
from collections_store.operations import find, read, store_changes

pytestmark = pytest.mark.each_backend
SMALL, GROWN = 300, 3_000
CALLS: dict[str, Callable[[Any], Iterable[object]]] = {
    "natural order": lambda things: things.stream(),
    "order of an index": lambda things: things.stream(sort="n"),
    "order without an index": lambda things: things.stream(sort="text"),
    "pipeline": lambda things: things.stream_aggregate([{"$set": {"more": 1}}]),
    "changes": lambda things: things.watch(after="oldest", timeout=0),
}


def peak(call: Callable[[Any], Iterable[object]], things: Any, count: int) -> int:
    assert sum(1 for _ in call(things)) == count  # what is made once is made here
    tracemalloc.start()
    try:
        for _ in call(things):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_peak_of_a_stream_does_not_grow(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (read, changes):
        monkeypatch.setattr(module, "BATCH_CHARACTERS", 2**16)
    monkeypatch.setattr(find, "BATCH_SIZE", 2**17)
    peaks: dict[str, list[int]] = {name: [] for name in CALLS}
    for count in (SMALL, GROWN):
        things = store.collection(f"of_{count}", changes="after")
        things.create_index("n")
        things.put_many({f"{n:05}": {"n": n, "text": f"{n:01000}"} for n in range(count)})
        for name, call in CALLS.items():
            peaks[name].append(peak(call, things, count))
    assert {name: found for name, found in peaks.items() if found[1] > 2 * found[0]} == {}


def test_the_peak_of_a_store_stream_does_not_grow_with_the_collections(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change of each collection is known without its body."""
    monkeypatch.setattr(store_changes, "BATCH_CHARACTERS", 2**16)
    peaks: list[int] = []
    for count in (3, 30):
        for number in range(count):
            store.collection(f"c{number}", changes="both").put("a", f"{count}{'x' * 100_000}")
        recorded = 3 if count == 3 else 3 + 30
        peaks.append(peak(lambda store: store.watch(after="oldest", timeout=0), store, recorded))
    assert peaks[1] < 2 * peaks[0]


def test_the_peak_of_a_restore_does_not_grow_with_the_dialogues(
    shared_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of long dialogues has fewer dialogues."""
    monkeypatch.setattr(reader, "PAGE_SIZE", 2**16)
    peaks: list[int] = []
    with Store(shared_backend.url, **shared_backend.options) as store:
        for count in (10, 100):
            dialogues = DialogueStore(store, f"of {count}", codec=PlainCodec())
            for number in range(count):
                dialogues.save(ended(number))
            assert [each.message_count for each in dialogues.restore(terminal=True)] == [9] * count
            peaks.append(peak(partial(DialogueStore.restore, terminal=True), dialogues, count))
    assert peaks[1] < 2 * peaks[0]


def ended(number: int) -> Dialogue:
    label = DialogueLabel((f"{number:05}", "r"), "bob", "ada")
    parties = label.dialogue_reference, "ada", "bob"
    said = [Message("say", f"{turn:01000}", turn, turn - 1, *parties) for turn in range(1, 10)]
    return Dialogue(label, "ada", "starter", messages=said, is_terminal=True)
