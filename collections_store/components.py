"""What is set up and torn down with a store."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Component(Protocol):
    """Something that lives as long as a store is open."""

    def setup(self) -> Any:
        """Begin."""

    def teardown(self) -> Any:
        """End: the store is about to be closed."""


class AsyncComponent(Protocol):
    """The same, awaited."""

    def setup(self) -> Awaitable[Any]:
        """Begin."""

    def teardown(self) -> Awaitable[Any]:
        """End: the store is about to be closed."""


def tear_down(components: Iterable[Component]) -> None:
    """Tear down all, the last first; then raise what they raised."""
    errors: list[Exception] = []
    for each in reversed(list(components)):
        try:
            each.teardown()
        except Exception as error:  # noqa: BLE001 - it is raised when the others had their turn
            errors.append(error)
    raise_all(errors)


@contextmanager
def noting(error: BaseException) -> Iterator[None]:
    """Have what is raised here noted with an error that comes before it."""
    try:
        yield
    except Exception as another:  # noqa: BLE001 - the first one is raised
        error.add_note(f"and then it could not be closed either: {another!r}")


def raise_all(errors: list[Exception]) -> None:
    """Raise the only error as it is, several as a group."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("several components could not be torn down", errors)
