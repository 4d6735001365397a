"""The change feed: change streams, which read recorded changes.

`operations.write` records changes in the transaction of the write. `ChangeReader` has the steps of sync and async
streams: like a procedure, a reader yields operations and receives their results, and yields a `Wait` as well.
`ChangeStream` is the synchronous form. `engine.notifier` wakes the streams of a store.

A stream adds a listener, then reads, then sleeps: a commit after the read wakes the stream, and no change is missed. A
signal handler may raise in a stream at any moment: streams wait for a `Flag`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from .aggregation.change_pipeline import ChangePipeline
from .codec import Codec
from .document import Body
from .engine.jobs import Flag
from .engine.notifier import EVERY, ChangeNotifier
from .errors import InvalidOption, shortened
from .expressions.classes import value_class
from .operations.changes import OLDEST, FindPosition, ReadChanges
from .operations.operation import Operation, Steps, follow
from .operations.store_changes import FindStorePosition, ReadStoreChanges
from .query.change import Change, ChangeFilter, read_store_token, read_token

Item = TypeVar("Item")

FIRST_BATCH: Final = 50
MAX_BATCH: Final = 1000
BATCH_CHARACTERS: Final = 2**20
"""The approximate size of a batch's JSON; a single change may be larger."""
MAX_TIMEOUT: Final = 10**9
"""Seconds; a longer timeout is no timeout."""
_DOCUMENT: Final = attrgetter("document")
"""What a stream returns of the result of a pipeline."""


@value_class(eq=True)
class Wait:
    """Wait for a notification, for at most `seconds`; None: without a timeout."""

    seconds: float | None


class ChangeReader:
    """Reads the changes of a collection from a position on; raises `InvalidToken` and `InvalidOption`.

    `wanted` returns the filter when the reader starts, or the pipeline. Streams apply `convert` to each returned change.
    """

    collection: str
    convert: Callable[[Any], Any] | None

    def __init__(
        self,
        collection: str,
        wanted: Callable[[], ChangeFilter | ChangePipeline],
        *,
        after: Any,
        timeout: Any,
        codec: Codec | None = None,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        self.collection, self._read_wanted = collection, wanted
        self._wanted = ChangeFilter()
        self._pipeline: ChangePipeline | None = None
        self._codec, self.convert = codec or Codec(), convert
        if after is not None and not (isinstance(after, str) and after == OLDEST):
            self._check_token(after)
        self._timeout = _check_timeout(timeout)
        self.token: str | None = after
        """The position after the last change returned or filtered out."""
        self.closed = False
        self._position: Any = None
        self._ready: deque[Any] = deque()
        self._limit = FIRST_BATCH

    def start(self) -> Steps[None]:
        """Find the position to begin at, once."""
        if self._position is None:
            wanted = self._read_wanted()
            if isinstance(wanted, ChangePipeline):
                self._pipeline, self.convert = wanted, _DOCUMENT
            else:
                self._wanted = wanted
            self._position = yield self._find()
            self.token = self._here()

    def next(self) -> Steps[Any]:
        """Wait for the next change; return None after the timeout, or if the stream is closed."""
        until = math.inf if self._timeout is None else time.monotonic() + self._timeout
        while True:
            change = yield from self.poll()
            left = until - time.monotonic()
            if change is not None or self.closed or left <= 0:
                return change
            yield Wait(None if self._timeout is None else left)

    def poll(self) -> Steps[Any]:
        """Return the next change, None if no further change is recorded."""
        yield from self.start()
        while not self._ready and not self.closed:
            changes = yield self._read()
            self._position = changes.position
            self._ready.extend(changes.changes)
            if not self._ready:
                self.token = self._here()
            wanted = BATCH_CHARACTERS * self._limit // max(1, changes.characters)
            self._limit = max(1, min(wanted, 2 * self._limit, MAX_BATCH))
            if not changes.more:
                break
        return self.take()

    def take(self) -> Any:
        """Return the next change already read, or None."""
        if self.closed or not self._ready:
            return None
        change = self._ready.popleft()
        self.token = change.token if self._ready else self._here()
        return change

    def _check_token(self, after: Any) -> None:
        read_token(after, "")

    def _find(self) -> Operation[Any]:
        return FindPosition(self.collection, self.token, self._wanted)

    def _read(self) -> Operation[Any]:
        read = self._position, self._limit, self._wanted, self._codec, self._pipeline
        return ReadChanges(self.collection, *read)

    def _here(self) -> str:
        """Return the token of the position."""
        token: str = self._position.to_token(self.collection)
        return token


class StoreChangeReader(ChangeReader):
    """Reads the changes of all collections of a store, through a pipeline. The position is its token."""

    def __init__(self, wanted: Callable[[], ChangePipeline], **options: Any) -> None:
        super().__init__(EVERY, wanted, **options)

    def _check_token(self, after: Any) -> None:
        read_store_token(after)

    def _find(self) -> Operation[Any]:
        return FindStorePosition(self.token)

    def _read(self) -> Operation[Any]:
        assert self._pipeline is not None
        return ReadStoreChanges(self._position, self._limit, self._pipeline, self._codec)

    def _here(self) -> str:
        token: str = self._position
        return token


def check_notifier(notifier: ChangeNotifier | None) -> ChangeNotifier:
    """Return a store's notifier; raise `InvalidOption` for None, in a transaction."""
    if notifier is None:
        raise InvalidOption(
            "watch", "a transaction sees one moment: watch the collection that the store gives"
        )
    return notifier


def _check_timeout(timeout: Any) -> float | None:
    """Return seconds, or None; raises `InvalidOption`."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise InvalidOption(
            "timeout", f"must be a number of seconds from 0 on, got {shortened(timeout)}"
        )
    return None if timeout > MAX_TIMEOUT else float(timeout)


class _Stream(Generic[Item]):
    """What the streams of changes and of change documents have in common."""

    def __init__(
        self, run: Callable[[Any], Any], notifier: ChangeNotifier, reader: ChangeReader
    ) -> None:
        self._run, self._notifier, self._reader = run, notifier, reader
        self._woken = Flag()
        follow(self._step, reader.start())

    @property
    def token(self) -> str:
        """The position of the stream: `watch(after=token)` returns the changes not yet returned by this stream. The
        position also advances past changes that are filtered out.
        """
        return self._reader.token or ""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        reader, wake = self._reader, self._woken.set
        change = reader.take()
        if change is None and not reader.closed:
            try:
                self._notifier.add(reader.collection, wake)
                change = follow(self._step, reader.next())
            finally:
                self._notifier.remove(reader.collection, wake)
        if change is None:
            raise StopIteration
        item: Item = change if reader.convert is None else reader.convert(change)
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def try_next(self) -> Item | None:
        """Return the next change, or None if no change is recorded yet.

        >>> with Store("sqlite://") as store:
        ...     cities = store.collection("cities", changes=True)
        ...     stream = cities.watch()
        ...     version = cities.put("berlin", {})
        ...     stream.try_next().id, stream.try_next()
        ('berlin', None)
        """
        found, convert = follow(self._step, self._reader.poll()), self._reader.convert
        change: Item | None = found if found is None or convert is None else convert(found)
        return change

    def close(self) -> None:
        """End the stream, also while another thread waits for a change. Closing again has no effect."""
        self._reader.closed = True
        self._woken.set()

    def _step(self, step: Any) -> Any:
        match step:
            case Wait(seconds):
                self._woken.wait(seconds)
                return self._woken.clear()
        return self._run(step)


class ChangeStream(_Stream[Change[Body]]):
    """The changes of a collection in the order of their commits: the result of `Collection.watch`.

    The stream is an iterator of `Change`, which waits, for a single thread at a time, and a context manager, which
    closes the stream. Between changes a stream holds no connection and no transaction.
    """


class ChangeDocumentStream(_Stream[dict[str, Any]]):
    """What a pipeline makes of the changes of a collection or a store: the result of `Collection.watch` with a
    `pipeline`, and of `Store.watch`. An iterator of dicts, otherwise as `ChangeStream`.
    """
