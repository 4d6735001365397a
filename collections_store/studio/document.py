"""The pages of a document: values and history; edit, add, delete and undo."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from ..document import Document, now
from ..errors import (
    CollectionsStoreError,
    DocumentNotFound,
    InvalidBody,
    InvalidOption,
    VersionConflict,
)
from ..operations.changes import OLDEST, FindPosition, ReadChanges
from ..query.change import Change, ChangeFilter
from ..results import Invalid, UpgradeSample
from .cells import tree_of
from .collection import surveyed
from .entries import BadEntry, locate, read_json, read_number
from .pages import Call, PageRoute, as_json

if TYPE_CHECKING:
    from starlette.responses import Response

VIEWS: Final = {"": "Tree", "json": "JSON", "edit": "Edit"}
MOST_CHANGES: Final = 100
"""The last changes on the page of a history."""
READ: Final = 1000
"""Changes that one operation reads."""
PATIENCE: Final = 2.0
"""Seconds for which the feed is read."""


def show_document(call: Call) -> Response:
    """Show a document as a tree, as JSON, or to edit."""
    document = _document(call)
    view = call.query("view")
    if view == "edit" and not call.studio.write:
        return call.fail(
            HTTPStatus.FORBIDDEN,
            "This studio only reads. Start it with --write to change documents.",
        )
    text = as_json(document.body, 2) if view else ""
    return _render(call, document, view, text)


def _document(call: Call) -> Document:
    id = call.query("id")
    document = call.collection.document(id)
    if document is None:
        raise DocumentNotFound(call.name, id)
    return document


def _render(
    call: Call,
    document: Document,
    view: str,
    text: str,
    bad: Exception | None = None,
) -> Response:
    return call.render(
        "document.html",
        bad=bad,
        document=document,
        view=view,
        views={each: label for each, label in VIEWS.items() if each != "edit" or call.studio.write},
        text=text,
        tree=None if view else tree_of(document.body),
        invalid=_invalid(call, document),
        is_checked=call.name in call.studio.models,
        is_saved=call.query("saved") == "1",
    )


def _invalid(call: Call, document: Document) -> Invalid | None:
    """Return where a body does not fit the model of `--using`; None without a model."""
    codec = call.studio.models.get(call.name)
    if codec is None:
        return None
    found = codec.decode_body(call.store.core.codec.encode(document.body))
    return found if isinstance(found, Invalid) else None


# -- changes ---------------------------------------------------------------------------------------


def save_document(call: Call) -> Response:
    """Replace the body of the version in the form; the time of expiry stays. If the document has another version, show
    both bodies.
    """
    id, text, version = call.query("id"), call.form.get("body", ""), _version(call)
    try:
        body = _encodable(call, text)
        result = call.collection.replace_one({"$id": id, "$version": version}, body)
    except (BadEntry, CollectionsStoreError) as error:
        return _refused(call, id, version, text, error)
    if result.matched_count:
        return call.go("/c/{name}/document", id=id, saved=1)
    current = call.collection.document(id)
    theirs = None if current is None else as_json(current.body, 2)
    diff = None if current is None else UpgradeSample(id, current.body, body).diff()
    return call.render(
        "conflict.html",
        HTTPStatus.CONFLICT,
        id=id,
        version=version,
        current=current,
        theirs=theirs,
        text=text,
        diff=diff,
    )


def _refused(call: Call, id: str, version: int, text: str, bad: Exception) -> Response:
    """Show the form again, with the entry and the reason of the refusal."""
    current = call.collection.document(id)
    if current is None:
        raise VersionConflict(call.name, id, version, None)
    edited = Document(
        id, current.body, version, current.created_us, current.updated_us, current.expires_us
    )
    return _render(call, edited, "edit", text, bad)


def _encodable(call: Call, text: str) -> Any:
    """Return the body of an entry; raise `BadEntry` at a value that the store or the model refuses."""
    body = read_json("body", text)
    try:
        call.store.core.codec.encode_body(body)
        if (codec := call.studio.models.get(call.name)) is not None:
            codec.encode_body(body)
    except InvalidBody as error:
        raise BadEntry("body", text, error.problem, *locate(text, error.path)) from error
    return body


def _version(call: Call) -> int:
    version = read_number(call.form.get("version", ""))
    if version is None:
        raise InvalidOption("version", "must be a number: load the page again")
    return version


def show_new(call: Call) -> Response:
    """Show the form of a new document."""
    surveyed(call)
    return call.render("new.html", id="", ttl="", text="{}")


def add_document(call: Call) -> Response:
    """Add a document, by default under a new id."""
    text, id, ttl = (call.form.get(name, "") for name in ("body", "id", "ttl"))
    try:
        body = _encodable(call, text)
        seconds = _seconds(ttl) if ttl.strip() else None
        result = call.collection.insert_one(body, id=id or None, ttl=seconds)
    except (BadEntry, CollectionsStoreError) as error:
        return call.render("new.html", bad=error, id=id, ttl=ttl, text=text)
    return call.go("/c/{name}/document", id=result.inserted_id, saved=1)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadEntry("ttl", text, "must be a number of seconds", 0, len(text)) from None


def delete_document(call: Call) -> Response:
    """Delete the version in the form, and show a page with the button to undo the deletion."""
    id, version = call.query("id"), _version(call)
    document = call.collection.find_one_and_delete({"$id": id, "$version": version})
    if document is None:
        found = call.collection.document(id)
        raise VersionConflict(call.name, id, version, None if found is None else found.version)
    return call.render("deleted.html", document=document, text=as_json(document.body))


def undo_deletion(call: Call) -> Response:
    """Add a deleted document again, with the same time of expiry."""
    id, expires = call.query("id"), read_number(call.form.get("expires", ""))
    left = math.inf if expires is None else (expires - now()) / 1e6
    if left <= 0:
        raise DocumentNotFound(call.name, id)
    call.collection.insert_one(read_json("body", call.form.get("body", "")), id=id, ttl=left)
    return call.go("/c/{name}/document", id=id, saved=1)


# -- history ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A recorded change. The lines of `diff` begin with "+", "-" or a space; None without bodies."""

    change: Change
    diff: list[str] | None


def show_history(call: Call) -> Response:
    """Show the recorded changes of a document, the last first."""
    surveyed(call)
    id, is_complete, changes = call.query("id"), True, list[Change]()
    bad = None
    try:
        changes, is_complete = _changes(call, id)
    except InvalidOption as error:
        bad = error
    entries = [*_entries(id, changes)][::-1][:MOST_CHANGES]
    return call.render("history.html", 200, bad, id=id, entries=entries, is_complete=is_complete)


def _changes(call: Call, id: str) -> tuple[list[Change], bool]:
    """Return the recorded changes of a document, and whether the whole feed was read."""
    codec = call.store.core.codec
    wanted = ChangeFilter.parse({"$id": id}, None, codec)
    position = call.store.run(FindPosition(call.name, OLDEST, wanted))
    found: list[Change] = []
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        read = call.store.run(ReadChanges(call.name, position, READ, wanted, codec))
        found = [*found, *read.changes][-MOST_CHANGES - 1 :]
        position = read.position
        if not read.more:
            return found, True
    return found, False


def _entries(id: str, changes: list[Change]) -> Iterator[HistoryEntry]:
    """Yield the changes with differences to the body before, recorded or of the preceding change."""
    before, is_known = None, False
    for each in changes:
        if each.has_before:
            before, is_known = each.before, True
        if each.kind == "insert":
            before, is_known = None, False
            diff = [f"+ {line}" for line in as_json(each.body, 2).splitlines()]
        else:
            diff = UpgradeSample(id, before, each.body).diff().splitlines()
        is_shown = each.has_body and (is_known or each.kind == "insert")
        yield HistoryEntry(each, diff if is_shown else None)
        before, is_known = each.body, each.has_body


PAGES: Final = (
    PageRoute("/c/{name}/document", show_document),
    PageRoute("/c/{name}/document", save_document, "POST", writes=True),
    PageRoute("/c/{name}/history", show_history),
    PageRoute("/c/{name}/new", show_new, writes=True),
    PageRoute("/c/{name}/new", add_document, "POST", writes=True),
    PageRoute("/c/{name}/delete", delete_document, "POST", writes=True),
    PageRoute("/c/{name}/undo", undo_deletion, "POST", writes=True),
)
