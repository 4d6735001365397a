"""Errors of both services. The errors show no values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ... import InvalidBody

UNWRITABLE: Final = "holds a value that ADK cannot convert to JSON, or a key that is not a string"
UNREADABLE: Final = "cannot be read by the installed google-adk: a newer one may have written it"


@contextmanager
def refused(
    path: str, problem: str, collection: str | None = None, id: str | None = None
) -> Iterator[None]:
    """Raise `InvalidBody` instead of pydantic's errors, whose messages show values."""
    try:
        yield
    except ValueError:
        raise InvalidBody(path, problem, collection, id) from None
