"""The studio: pages in the browser over any store. Requires the extra `studio`.

Begin with `app`: `studio` returns the ASGI application, and `PAGES` is the table of the pages. A module has a group of pages: functions
from a `Call` to a response, in threads. `aio` has the asynchronous parts, `security` the rules for requests, `server` the server of the
command. Must not hold logic of the library, and must not build HTML outside `templates`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app import studio

__all__ = ["studio"]

if not TYPE_CHECKING:  # `collections_store.studio.pages` needs neither Starlette nor Jinja

    def __getattr__(name: str) -> object:
        if name != "studio":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from .app import studio
        except ImportError as error:
            from ..errors import MissingExtra

            package = (error.name or "starlette").partition(".")[0]
            raise MissingExtra(package, "studio") from error
        return studio
