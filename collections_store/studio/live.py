"""The page of changes as they come, by server-sent events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from ..errors import (
    ChangesLost,
    CollectionsStoreError,
    DatabaseUnavailable,
    InvalidOption,
    StoreClosed,
)
from ..query.change import ChangeKind
from .aio import EventStream
from .cells import cell
from .collection import surveyed
from .entries import BadEntry, read_filter
from .pages import Call, PageRoute

if TYPE_CHECKING:
    from starlette.responses import Response

QUIET: Final = 5.0
"""Seconds without a change after which the stream shows that it lives. A closed page ends its stream by then."""
KINDS: Final[dict[str, tuple[ChangeKind, ...]]] = {
    "written": ("insert", "update"),
    "removed": ("remove", "expire"),
}
AGAIN: Final = 1000
"""Milliseconds after which a browser reconnects, as to a studio that was started again."""


def show_changes(call: Call) -> Response:
    """Show the page; its script reads the events."""
    bad, text = None, call.query("filter")
    try:
        read_filter(text)
    except BadEntry as error:
        bad = error
    return call.render(
        "live.html", bad=bad, survey=surveyed(call), filter=text, kinds=call.query("kinds"), problem=_problem(call),
    )  # fmt: skip


def _problem(call: Call) -> str:
    """Return why there are no changes to show."""
    try:
        with call.collection.watch(timeout=0) as stream:
            next(stream, None)
    except InvalidOption:
        return (
            "The collection does not record changes. A program that opens it with changes=True, "
            'or "after" or "both" for bodies, begins to record.'
        )
    except CollectionsStoreError as error:
        return str(error)
    return ""


def stream_changes(call: Call) -> Response:
    """Return the changes as events, those after the last event that the browser has, if it reconnects."""
    try:
        filter = read_filter(call.query("filter"))
    except BadEntry as error:
        return call.fail(HTTPStatus.BAD_REQUEST, error.problem)
    surveyed(call)
    after = call.request.headers.get("last-event-id") or call.query("after") or None
    kinds = KINDS.get(call.query("kinds"))
    return EventStream(_events(call, filter, kinds, after))


def _events(
    call: Call, filter: dict[str, Any], kinds: tuple[ChangeKind, ...] | None, after: str | None
) -> Iterator[str]:
    yield f"retry: {AGAIN}\n\n"
    try:
        while True:
            with call.collection.watch(
                filter or None, kinds=kinds, after=after, timeout=QUIET
            ) as stream:
                yield ": the stream lives\n\n"
                for change in stream:
                    after = change.token
                    shown = {
                        "kind": change.kind,
                        "id": change.id,
                        "version": change.version,
                        "time": f"{change.time:%Y-%m-%d %H:%M:%S}",
                        "body": "" if change.body is None else cell(change.body).text,
                    }
                    yield _event("change", shown, after)
                after = stream.token or after
    except (StoreClosed, DatabaseUnavailable):
        return  # the browser connects again
    except ChangesLost:
        yield _event("lost", {"problem": "Changes were deleted before they were shown here."}, "")
    except CollectionsStoreError as error:
        yield _event("problem", {"problem": str(error)}, after)


def _event(name: str, value: dict[str, Any], token: str | None) -> str:
    """Return an event. JSON has no line break, which would end the data."""
    id = "" if token is None else f"id: {token}\n"
    return f"{id}event: {name}\ndata: {json.dumps(value)}\n\n"


PAGES: Final = (
    PageRoute("/c/{name}/live", show_changes, tab="Live"),
    PageRoute("/c/{name}/live/events", stream_changes),
)
