"""The first page: the collections of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .pages import Call, PageRoute

if TYPE_CHECKING:
    from starlette.responses import Response


def show_collections(call: Call) -> Response:
    """Show all collections."""
    return call.render("overview.html", collections=call.store.collections())


PAGES: Final = (PageRoute("/", show_collections, section="Collections"),)
