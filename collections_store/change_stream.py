"""The changes of a collection as they come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .bell import Bell
from .change import Change
from .operations import follow
from .watching import Wait, Watching


class ChangeStream:
    """The changes of a collection in the order of their commits: what `watch` returns.

    It is an iterator that waits, for one thread at a time, and a context manager that closes it. Between
    changes it holds no connection and no transaction. What a change is, `Change` tells.
    """

    def __init__(self, run: Callable[[Any], Any], bell: Bell, watching: Watching) -> None:
        self._run, self._bell, self._watching = run, bell, watching
        self._woken = threading.Event()
        follow(self._step, watching.start())

    @property
    def token(self) -> str:
        """Where to go on: `watch(after=token)` gives all that this stream has not given yet. It
        also moves past changes that are not wanted.
        """
        return self._watching.token or ""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        change = self._watching.take()
        if change is None and not self._watching.closed:
            with self._bell.listening(self._watching.collection, self._woken.set):
                change = follow(self._step, self._watching.next())
        if change is None:
            raise StopIteration
        return change

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def try_next(self) -> Change | None:
        """Return the next change if there is one already, else None, without waiting.

        >>> with Store("sqlite://") as store:
        ...     cities = store.get_sync_collection("cities", changes=True)
        ...     stream = cities.watch()
        ...     version = cities.put("berlin", {})
        ...     stream.try_next().id, stream.try_next()
        ('berlin', None)
        """
        return follow(self._step, self._watching.look())

    def close(self) -> None:
        """End the stream, also where somebody waits for it. Closing again does nothing."""
        self._watching.closed = True
        self._woken.set()

    def _step(self, step: Any) -> Any:
        match step:
            case Wait(seconds):
                self._woken.wait(seconds)
                return self._woken.clear()
        return self._run(step)
