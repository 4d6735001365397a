"""The parts of all pages: the rows of the table of pages, the request of a page, and the templates."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import jinja2
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from ..document import now
from ..errors import (
    CollectionNotFound,
    CollectionsStoreError,
    DatabaseBusy,
    DatabaseUnavailable,
    DocumentNotFound,
    StoreClosed,
    TransactionConflict,
    VersionConflict,
)
from .entries import BadEntry
from .security import form_token

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..collection import Collection
    from ..models.codec import ModelCodec
    from ..store import Store

FOLDER: Final = Path(__file__).parent
MAX_LINES: Final = 2_000
"""Lines of a difference on a page."""
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\u115f\u1160\u3164\uffa0\U000e0000-\U000e0fff]"
)
_LOG: Final = logging.getLogger(__name__)
_STATUS: Final[tuple[tuple[type[Exception], HTTPStatus], ...]] = (
    (CollectionNotFound, HTTPStatus.NOT_FOUND),
    (DocumentNotFound, HTTPStatus.NOT_FOUND),
    (VersionConflict, HTTPStatus.CONFLICT),
    (TransactionConflict, HTTPStatus.CONFLICT),
    (DatabaseBusy, HTTPStatus.SERVICE_UNAVAILABLE),
    (DatabaseUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreClosed, HTTPStatus.SERVICE_UNAVAILABLE),
    (Exception, HTTPStatus.BAD_REQUEST),
)


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A row of the table of pages.

    `path` begins with `/c/{name}` if the page belongs to a collection. `writes`: the page exists only with `--write`. `tab`
    is the page's label among the tabs of a collection, `section` its label in the head of every page; `is_shown` returns whether the store
    has something for the tab or the section, None: always.
    """

    path: str
    page: Callable[[Call], Response]
    method: str = "GET"
    writes: bool = False
    tab: str | None = None
    section: str | None = None
    is_shown: Callable[[Call], bool] | None = None


@dataclass(frozen=True, slots=True)
class StudioContext:
    """The store of a studio, and the permission to write. `declared` has the declarations of `--using` by collection: a model, or
    the settings of `VersionSettings`. `models` has the codecs of the models. `other`: a store to compare with.
    """

    store: Store
    write: bool
    declared: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, ModelCodec] = field(default_factory=dict)
    routes: tuple[PageRoute, ...] = field(default=(), repr=False)
    other: Store | None = None

    @property
    def is_dangerous(self) -> bool:
        """Whether the pages can change a database that other programs share."""
        return self.write and not self.store.core.database.single_writer


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a page, with the parameters of the path, of the query and of the form as strings."""

    studio: StudioContext
    route: PageRoute
    request: Request
    session: str
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """The store; also over an `AsyncStore`."""
        return self.studio.store

    @property
    def name(self) -> str:
        """The name of the page's collection."""
        return str(self.request.path_params["name"])

    @property
    def collection(self) -> Collection:
        """The page's collection."""
        return self.store[self.name]

    @property
    def tabs(self) -> list[PageRoute]:
        """The tabs of the page's collection."""
        return [each for each in self.studio.routes if each.tab and self._shows(each)]

    @property
    def sections(self) -> list[PageRoute]:
        """The sections in the head of the page."""
        return [each for each in self.studio.routes if each.section and self._shows(each)]

    def _shows(self, route: PageRoute) -> bool:
        return route.is_shown is None or route.is_shown(self)

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.request.query_params.get(name, default)

    def url(self, path: str, **query: object) -> str:
        """Return the URL of a page below the studio's own prefix, without the parameters that are None. `{name}` in the path is
        the present collection, or the argument `name`.
        """
        if "{name}" in path:
            path = path.replace("{name}", quote(str(query.pop("name", None) or self.name), safe=""))
        given = {key: value for key, value in query.items() if value is not None}
        root = self.request.scope.get("root_path", "")
        return f"{root}{path}" + (f"?{urlencode(given)}" if given else "")

    def render(
        self, template: str, status: int | None = None, bad: Exception | None = None, **values: Any
    ) -> HTMLResponse:
        """Return a page of a template, with all values escaped. `bad`: why the request is refused, with status 400."""
        page = templates().get_template(template)
        text = page.render(call=self, form_token=form_token(self.session), bad=bad, **values)
        return HTMLResponse(text, status or (400 if bad else 200))

    def json(self, value: Any, status: int = 200) -> JSONResponse:
        """Return JSON for the script of a page."""
        return JSONResponse(value, status)

    def go(self, path: str, **query: object) -> RedirectResponse:
        """Return the answer to a form: another page of the studio."""
        return RedirectResponse(self.url(path, **query), HTTPStatus.SEE_OTHER)

    def fail(self, status: HTTPStatus, message: str) -> Response:
        """Return an error: a page, or JSON for the script."""
        if "application/json" in self.request.headers.get("accept", ""):
            return self.json({"error": message}, status)
        return self.render("error.html", status, title=status.phrase, message=message)


def answer(call: Call) -> Response:
    """Return a page. The text of an error is shown if the library raised the error, and else only logged."""
    try:
        return call.route.page(call)
    except (BadEntry, CollectionsStoreError) as error:
        status = next(status for kind, status in _STATUS if isinstance(error, kind))
        return call.fail(status, str(error))
    except Exception:  # noqa: BLE001 - whatever it is, the server goes on
        _LOG.exception("the page %s failed", call.request.url.path)
        problem = "The page failed. The log of the studio has the error."
        return call.fail(HTTPStatus.INTERNAL_SERVER_ERROR, problem)


@cache
def templates() -> jinja2.Environment:
    """Return the templates. Every value is escaped, and an unknown name is an error."""
    found = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters |= {
        "when": when,
        "duration": duration,
        "seconds_left": seconds_left,
        "size": size,
        "visible": visible,
        "shown_lines": shown_lines,
        "number": "{:,}".format,
    }
    return found


def shown_lines(lines: list[str]) -> list[str]:
    """Return the lines of a difference for a page: of many lines those that differ, up to `MAX_LINES`."""
    if len(lines) <= MAX_LINES:
        return lines
    return [line for line in lines if not line.startswith(" ")][:MAX_LINES]


def when(moment: datetime | None) -> str:
    """Return a time as a person reads it, in UTC.

    >>> from datetime import UTC
    >>> when(datetime(2026, 11, 24, 9, 30, tzinfo=UTC))
    '2026-11-24 09:30:00'
    """
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def duration(seconds: int) -> str:
    """Return a duration with its two largest units; the script has the same.

    >>> duration(3 * 3600 + 120)
    '3 h 2 min'
    """
    rest, parts = seconds, []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def seconds_left(expires_us: int) -> int:
    """Return the seconds until a time, in microseconds since 1970."""
    return max(0, expires_us - now()) // 1_000_000


def size(count: float) -> str:
    """Return a number of bytes with its unit.

    >>> size(512), size(1_500_000)
    ('512 B', '1.4 MiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def as_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON text with its own characters, the invisible ones escaped."""
    return visible(json.dumps(value, indent=indent, ensure_ascii=False))


def visible(text: str) -> str:
    """Escape the invisible characters of a text, and the characters that change the direction of a text.

    >>> visible("a\\u202eb")
    'a\\\\u202eb'
    """
    return _INVISIBLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    """Return the escape of a character in JSON: two escapes beyond U+FFFF."""
    return re.sub("....", r"\\u\g<0>", found[0].encode("utf-16-be").hex())
