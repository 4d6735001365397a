"""The asynchronous parts of the studio: the checks of a request, and the thread that runs the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from .pages import FOLDER, Call, PageRoute, StudioContext, answer
from .security import COOKIE, HEADERS, MAX_FORM, HostNames, Tokens, is_own_form, new_session

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Authorize: TypeAlias = Callable[[Request], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may see the pages: `authorize` decides in another application, `tokens` and `hosts` in the command."""

    authorize: Authorize | None = None
    tokens: Tokens | None = None
    hosts: HostNames | None = None
    cookie: str = COOKIE
    """Browsers send a cookie to every port of a host: two studios need two names."""

    async def admits(self, request: Request, session: str) -> bool:
        """Return whether a request may see a page."""
        if self.authorize is not None:
            admitted = self.authorize(request)
            return (await admitted if isawaitable(admitted) else admitted) is True
        return self.tokens is not None and self.tokens.has_session(session)


class EventStream(StreamingResponse):
    """Events as they come. Each stream waits in a thread of its own: any number of streams leaves the pages their threads."""

    def __init__(self, events: Iterator[str]) -> None:
        super().__init__(_in_own_thread(events), media_type="text/event-stream")


async def _in_own_thread(events: Iterator[str]) -> AsyncIterator[str]:
    own = CapacityLimiter(1)
    while (event := await to_thread.run_sync(next, events, None, limiter=own)) is not None:
        yield event


def application(
    routes: Iterable[PageRoute], studio: StudioContext, admission: Admission
) -> Starlette:
    """Return the ASGI application of the pages."""
    return Starlette(
        routes=[
            *(
                Route(each.path, _endpoint(each, studio, admission), methods=[each.method])
                for each in routes
            ),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        middleware=[Middleware(_HeadersMiddleware, admission)],
    )


def _endpoint(
    route: PageRoute, studio: StudioContext, admission: Admission
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        session = request.cookies.get(admission.cookie, "")
        call = Call(studio, route, request, session)
        if not await admission.admits(request, session):
            return await _sign_in(call, admission)
        if route.writes and not studio.write:
            return call.fail(
                HTTPStatus.FORBIDDEN,
                "This studio only reads. Start it with --write to change documents.",
            )
        if route.method != "GET":
            form = await _form(request)
            if not _is_own(request, session, form.get("form_token", "")):
                problem = "The form does not come from a page of this studio. Load the page again, and repeat."
                return call.fail(HTTPStatus.FORBIDDEN, problem)
            call = Call(studio, route, request, session, form)
        if session:
            return await run_in_threadpool(answer, call)
        session = new_session()  # in another application, which has no link with a token
        response = await run_in_threadpool(answer, Call(studio, route, request, session))
        return _with_session(request, response, admission.cookie, session)

    return endpoint


async def _sign_in(call: Call, admission: Admission) -> Response:
    """Answer a request without a session: open a session for a valid token."""
    if admission.tokens is None:
        problem = "The application does not admit you to this page."
        return PlainTextResponse(problem, HTTPStatus.FORBIDDEN)
    request = call.request
    token = request.query_params.get("token")
    if token is None:
        return call.render("sign_in.html", HTTPStatus.UNAUTHORIZED, problem=None)
    session = admission.tokens.open_session(token)
    if session is None:
        problem = "The token is wrong or was used. Start the studio again for another link."
        return call.render("sign_in.html", HTTPStatus.UNAUTHORIZED, problem=problem)
    rest = request.url.remove_query_params("token")
    where = f"{rest.path}?{rest.query}" if rest.query else rest.path
    response = RedirectResponse(where, HTTPStatus.SEE_OTHER)
    return _with_session(request, response, admission.cookie, session)


def _with_session(request: Request, response: Response, name: str, session: str) -> Response:
    path = request.scope.get("root_path") or "/"
    is_secure = request.url.scheme == "https"
    response.set_cookie(
        name, session, path=path, httponly=True, samesite="strict", secure=is_secure
    )
    return response


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raise `HTTPException` for a form that is too large or not of our pages."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > MAX_FORM:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    try:
        return dict(
            parse_qsl(read.decode(), keep_blank_values=True, errors="strict", max_num_fields=1000)
        )
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST) from error


def _is_own(request: Request, session: str, token: str) -> bool:
    headers = request.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    return is_own_form(session, token, headers.get("host", ""), origin, site)


class _HeadersMiddleware:
    """Refuses a foreign Host, and adds the headers of security to each response."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app, self._admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_static = Request(scope).url.path.startswith(f"{scope.get('root_path', '')}/static/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-cache" if is_static else "no-store")
            await send(message)

        hosts = self._admission.hosts
        if hosts is not None and not hosts.accept(Request(scope).headers.get("host", "")):
            problem = (
                "The studio is not served under this host name: open the link that it printed."
            )
            refusal = PlainTextResponse(problem, HTTPStatus.MISDIRECTED_REQUEST)
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)
