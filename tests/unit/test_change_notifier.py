"""The change notifier."""

import threading

import pytest

from collections_store import StoreClosed
from collections_store.engine import notifier as module
from collections_store.engine.notifier import ChangeNotifier, notify_all

LONG = 60.0


def test_every_listener_of_a_changed_collection_is_called() -> None:
    woken: list[str] = []
    one, other = ChangeNotifier(None), ChangeNotifier(None)

    def other_a() -> None:
        woken.append("other a")

    one.add("a", lambda: woken.append("one a"))
    one.add("b", lambda: woken.append("one b"))
    other.add("a", other_a)
    notify_all(["a", "unknown"])
    assert sorted(woken) == ["one a", "other a"]
    other.remove("a", other_a)
    notify_all(["a", "b"])
    assert sorted(woken) == ["one a", "one a", "one b", "other a"]


def test_a_removed_listener_is_not_called() -> None:
    woken: list[str] = []

    def wake() -> None:
        woken.append("a")

    notifier = ChangeNotifier(None)
    notifier.add("a", wake)
    notifier.remove("a", wake)
    notifier.remove("a", wake)
    notify_all(["a"])
    assert not woken
    assert notifier not in module._notifiers


def test_a_closed_notifier_notifies_all_and_rejects_listeners() -> None:
    woken = threading.Event()
    notifier = ChangeNotifier(None)
    notifier.add("a", woken.set)
    notifier.close()
    assert woken.is_set()
    with pytest.raises(StoreClosed):
        notifier.add("a", woken.set)


@pytest.mark.parametrize("positions", [[1, 1, 2], [None, ValueError(), None]])
def test_a_poll_that_differs_or_fails_notifies(
    monkeypatch: pytest.MonkeyPatch, positions: list[object]
) -> None:
    monkeypatch.setattr(module, "POLL_INTERVAL", 0.001)
    left, woken, polls = list(positions), threading.Semaphore(0), threading.Semaphore(0)

    def read(collection: str) -> object:
        assert collection == "a"
        polls.release()
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    notifier = ChangeNotifier(lambda: read)
    notifier.add("a", woken.release)
    for _ in range(2):
        assert woken.acquire(timeout=LONG)
    for _ in range(10):
        assert polls.acquire(timeout=LONG)
    assert not woken.acquire(blocking=False)
    notifier.remove("a", woken.release)
    notifier.close()
    notifier.join(LONG)
