"""The options of a container of dialogues, checked at the door."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar

from ..errors import InvalidOption, shortened
from ..expiry import read_ttl
from ..options import check_count, check_flag
from .container import Options
from .rules import Rules

Save: TypeAlias = Literal["message", "teardown"] | float | timedelta
S = TypeVar("S")
LONGEST: Final = 86_400.0


def check_store(store: Any, kind: type[S]) -> S:
    """Return a store of the right colour; raises `InvalidOption`."""
    if not isinstance(store, kind):
        raise InvalidOption("store", f"{shortened(store)} is no {kind.__name__}")
    return store


def read_save(save: Any) -> float | None:
    """Return after how many seconds what changed is saved by a thread; None: there is none. Raises
    `InvalidOption`.
    """
    if isinstance(save, str) and save in {"message", "teardown"}:
        return None
    seconds = save.total_seconds() if isinstance(save, timedelta) else save
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidOption("save", f"{shortened(save)} is not 'message', 'teardown' or seconds")
    if not 0 < seconds <= LONGEST:
        raise InvalidOption("save", f"{shortened(save)} is not between 0 seconds and a day")
    return float(seconds)


def options_of(
    *, terminal_ttl: Any, terminal_kept: Any, cached: Any, rules: Any, **others: Any
) -> Options:
    """Return the options if they make sense; raises `InvalidOption`."""
    for name in ("keep_terminal_state_dialogues", "offload"):
        check_flag(name, others[name])
    if not isinstance(rules, Rules):
        raise InvalidOption("rules", f"{shortened(rules)} is no Rules")
    if not callable(others["role_from_first_message"]):
        raise InvalidOption("role_from_first_message", "it is no function")
    return Options(
        terminal_ttl=read_ttl(terminal_ttl, "terminal_ttl") or None,
        terminal_kept=None
        if terminal_kept is None
        else check_count("terminal_kept", terminal_kept),
        cached=check_count("cached", cached),
        rules=rules,
        **others,
    )
