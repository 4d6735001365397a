"""A store for an agent's skills, which run in the main thread.

Signals are handled in the main thread, between any two steps of Python. Where these are in a callback of a weak reference,
of which SQLAlchemy makes many when it compiles a statement or connects, Python prints the KeyboardInterrupt and forgets
it: the agent does not end. So operations run in another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final

from ... import Store

LOOK_EVERY: Final = 0.25
"""Seconds after which the main thread looks whether its worker has ended."""


class Worker:
    """A thread that runs what the main thread asks for, one at a time. It is asked and answers by queues that C code
    locks: a signal that raises within an executor or a future of Python's leaves a lock held for good.
    """

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Callable[[Any], Any], Any, SimpleQueue[Any]] | None] = (
            SimpleQueue()
        )
        self._is_over = False
        threading.Thread(target=self._work, name="collections_store-aea", daemon=True).start()

    def run(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Return what the function returns; it runs here once the thread has ended."""
        answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._requests.put((function, argument, answer))
        while True:
            try:
                result, error = answer.get(timeout=LOOK_EVERY)
            except Empty:
                if self._is_over and answer.empty():
                    return function(argument)
            else:
                break
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        """Have the thread end when it has run what it was asked for."""
        self._requests.put(None)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            function, argument, answer = request
            try:
                answer.put((function(argument), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where the answer is waited for
                answer.put((None, error))
        self._is_over = True


class StoreOffMainThread(Store):
    """A store whose operations run in a worker's thread when the main thread asks for them."""

    __slots__ = ("_original", "_worker")

    def __init__(self, store: Store, worker: Worker) -> None:
        self.__dict__ = store.__dict__  # it is the same store, open or closed
        self._original, self._worker = store, worker

    def run(self, operation: Any) -> Any:
        """Return the operation's result."""
        is_main = threading.current_thread() is threading.main_thread()
        if (
            not is_main or self._permits.has_own_transaction()
        ):  # a transaction is known by its thread
            return self._original.run(operation)
        return self._worker.run(self._original.run, operation)

    def _open(self) -> Any:
        return self._original._open()  # which ends its connections when it is forgotten
