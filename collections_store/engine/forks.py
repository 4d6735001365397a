"""The library's callbacks at a fork of the process. No other module registers a callback with `os`.

Rules:

1. `ORDER` is the order in the parent and in the child, whatever module was imported first; before the fork, the
   reverse.
2. An exception in a callback keeps no other callback from running.
3. A thread that the child does not have may hold a lock at the fork: the child replaces the lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, NamedTuple

ORDER: Final = (
    "ids",  # the child generates other ids than the parent
    "files",  # first of all that may open a file: files still open at the fork are refused in the child
    "engines",  # connections of callers' engines are neither used nor closed in the child
    "threads",  # before the fork, connections to files are closed and background work has ended
    "notifiers",
    "stores",  # a store that was opened belongs to the parent
    "workers",  # of async stores, unless the store belongs to the parent
)


class _Callbacks(NamedTuple):
    before: Callable[[], None] | None
    in_parent: Callable[[], None] | None
    in_child: Callable[[], None] | None


_registered: Final[dict[str, _Callbacks]] = {}


def at_fork(
    name: str,
    *,
    before: Callable[[], None] | None = None,
    in_parent: Callable[[], None] | None = None,
    in_child: Callable[[], None] | None = None,
) -> None:
    """Register the callbacks of a name in `ORDER`."""
    assert name in ORDER
    _registered[name] = _Callbacks(before, in_parent, in_child)


def _run(moment: str) -> None:
    names = reversed(ORDER) if moment == "before" else ORDER
    errors: list[BaseException] = []
    for name in names:
        callback = getattr(_registered.get(name), moment, None)
        if callback is not None:
            try:
                callback()
            except BaseException as error:  # noqa: BLE001 - raised after the other callbacks
                errors.append(error)
    if errors:
        raise errors[0]  # Python prints the error, and forks


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _run("before"),
        after_in_parent=lambda: _run("in_parent"),
        after_in_child=lambda: _run("in_child"),
    )
