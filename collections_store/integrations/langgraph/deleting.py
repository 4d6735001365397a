"""The methods of a checkpointer that copy and delete, as procedures (see `running`).

No checkpoint refers to a deleted value:

1. A checkpoint that refers to values of its parent is inserted beside the parent. A deletion of the parent waits
   for the insert.
2. A deletion takes two transactions. The first deletes checkpoints. The second deletes the values without a
   checkpoint: the second sees all earlier inserts, and later checkpoints find no parent and write their own values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

from ... import Document, InvalidOption
from .listing import BATCH
from .reading import CheckpointReader
from .records import (
    CHECKPOINTS,
    NO_WRITE,
    VALUES,
    at_checkpoint,
    join,
    space_of,
    under,
    value_ids,
)
from .running import InTransaction, Steps, call, steps_of

STRATEGIES: Final = ("keep_latest", "delete")
_COUNTERS: Final = "counters_since_delta_snapshot"
"""The metadata that names the delta channels whose values are spread over ancestors."""


@dataclass(slots=True)
class CheckpointDeleter(CheckpointReader):
    """The procedures that copy and delete."""

    def delete_thread(self, thread: str) -> Steps[None]:
        yield call("delete_many", {"$id": under(join(CHECKPOINTS, thread))})
        yield InTransaction(lambda: self._delete_unused_values(thread))

    def delete_for_runs(self, runs: Iterable[str]) -> Steps[None]:
        wanted = {
            "$id": under(CHECKPOINTS),
            **NO_WRITE,
            "metadata.run_id": {"$in": _names("run_ids", runs)},
        }
        yield from self._delete(lambda: steps_of(call("find", wanted)))

    def copy_thread(self, source: str, target: str) -> Steps[None]:
        yield InTransaction(lambda: self._copy(source, target))

    def _copy(self, source: str, target: str) -> Steps[None]:
        for kind in (VALUES, CHECKPOINTS):
            old, new = join(kind, source), join(kind, target)
            cursor, within = None, {"$id": under(old)}
            while True:
                page = yield call("page", within, sort=[("$id", 1)], limit=BATCH, after=cursor)
                bodies = {new + each.id.removeprefix(old): each.body for each in page}
                for body in bodies.values():
                    if "thread" in body:
                        body["thread"] = target
                if bodies:
                    yield call("put_many", bodies)
                if (cursor := page.cursor) is None:
                    break

    def prune(self, threads: Iterable[str], strategy: str) -> Steps[None]:
        if strategy not in STRATEGIES:
            raise InvalidOption("strategy", f"must be one of {STRATEGIES}, got {strategy!r}")
        for thread in _names("thread_ids", threads):
            if strategy == "delete":
                yield from self.delete_thread(thread)
            else:
                yield from self._delete(partial(self._superseded, thread))

    def _superseded(self, thread: str) -> Steps[list[Document]]:
        """Return the checkpoints of a thread that the latest checkpoints do not need."""
        within = {"$id": under(join(CHECKPOINTS, thread)), **NO_WRITE}
        stored = yield call("find", within, sort=[("$id", 1)])
        latest = {each.body["namespace"]: each for each in stored}
        kept: set[str] = set()
        for document in latest.values():
            spread = set(document.body["metadata"].get(_COUNTERS) or ())
            line = yield from self.ancestors(document, spread - document.body["channels"].keys())
            kept |= {each.id for each in (document, *line)}
        return [each for each in stored if each.id not in kept]

    def delete_idle(self, seconds: float) -> Steps[int]:
        since = datetime.now(UTC) - timedelta(seconds=seconds)
        recent = {**NO_WRITE, "$updated_at": {"$gte": since}}
        threads = yield call("distinct", "thread", {"$id": under(CHECKPOINTS), **NO_WRITE})
        active = yield call("distinct", "thread", {"$id": under(CHECKPOINTS), **recent})
        deleted = 0
        for thread in sorted(set(threads) - set(active)):
            deleted += yield InTransaction(partial(self._delete_idle_thread, thread, recent))
            yield InTransaction(partial(self._delete_unused_values, thread))
        return deleted

    def _delete_idle_thread(self, thread: str, recent: dict[str, Any]) -> Steps[bool]:
        """Delete the checkpoints of a thread without recent checkpoints; return whether the thread was deleted."""
        within = {"$id": under(join(CHECKPOINTS, thread))}
        if (yield call("count", within | recent)):
            return False
        yield call("delete_many", within)
        return True

    def _delete(self, choose: Callable[[], Steps[list[Document]]]) -> Steps[None]:
        """Delete the chosen checkpoints with their writes, and the values without another checkpoint."""

        def delete() -> Steps[set[tuple[str, str]]]:
            found = yield from choose()
            for start in range(0, len(found), BATCH):
                ids = [{"$id": at_checkpoint(each.id)} for each in found[start : start + BATCH]]
                yield call("delete_many", {"$or": ids})
            return set(map(space_of, found))

        for space in (yield InTransaction(delete)):
            yield InTransaction(partial(self._delete_unused_values, *space))

    def _delete_unused_values(self, *space: str) -> Steps[None]:
        """Delete the values of a thread, or of a namespace, without a checkpoint."""
        checkpoints = {"$id": under(join(CHECKPOINTS, *space)), **NO_WRITE}
        left = yield call("find", checkpoints, projection=["thread", "namespace", "channels"])
        used = set(chain.from_iterable(value_ids(each).values() for each in left))
        values = {"$id": under(join(VALUES, *space))}
        stored = yield call("find", values, projection=["type"])
        unused = [each.id for each in stored if each.id not in used]
        if unused:
            yield call("remove_many", unused)


def _names(option: str, given: Iterable[Any]) -> list[str]:
    if isinstance(given, str):
        raise InvalidOption(option, f"must be a list of strings, got {given!r}")
    return [str(each) for each in given]
