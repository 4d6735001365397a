"""Completion of collections and fields in a shell.

A completion writes nothing, prints nothing and waits at most `SECONDS`: a database that does not answer completes
nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .output import leaves

if TYPE_CHECKING:
    import click

    from .. import Store

SECONDS: Final = 2.0
_SAMPLE: Final = 50
"""Documents whose fields are completed."""
_SAFE: Final = re.compile(r"(?!-)[\w.-]+")
"""Words that no shell expands and that are no option."""


def complete_collection(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the names of collections that begin with a string."""
    return _matching(ctx, incomplete, lambda store: [each.name for each in store.collections()])


def complete_field(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the dotted paths in a sample of documents that begin with a string."""
    name = ctx.params.get("collection") or next(iter(ctx.args), "")  # before an option's value
    return _matching(ctx, incomplete, lambda store: _fields(store, name))


def complete_fields(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the lists of fields that continue a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{each}" for each in complete_field(ctx, parameter, last)]


def _matching(
    ctx: click.Context, incomplete: str, found: Callable[[Store], Iterable[str]]
) -> list[str]:
    words = {each for each in _read(ctx, found) if each.startswith(incomplete)}
    return sorted(each for each in words if _SAFE.fullmatch(each))


def _fields(store: Store, collection: str) -> Iterable[str]:
    for document in store.collection(collection).list(limit=_SAMPLE):
        for keys, _ in leaves(document.body):
            for depth in range(1, len(keys) + 1):
                if all("." not in key for key in keys[:depth]):
                    yield ".".join(keys[:depth])


def _read(ctx: click.Context, found: Callable[[Store], Iterable[str]]) -> list[str]:
    """Return what `found` returns in time, else nothing."""
    words: list[str] = []

    def read() -> None:
        options: dict[str, Any] = {"upgrade": "manual", "busy_timeout": SECONDS, "reconnect_for": 0}
        with suppress(Exception), ctx.obj.to_read(**options) as store:
            words.extend(found(store))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return [] if thread.is_alive() else words
