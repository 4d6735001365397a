"""Events and sessions of MCP servers, in a store: clients resume after a restart of the server.

`MCPEventStore` is an `EventStore` of the MCP Python SDK, for the streamable HTTP transport. The SDK passes the
events of all sessions to a single event store, under stream names that sessions share, and forgets sessions at its
end. `MCPEventStore.resumable` therefore wraps the app of the server: the wrapper separates the sessions, and
restores the sessions of an ended process.

>>> from mcp.server import MCPServer
>>> server = MCPServer("weather")
>>> events = MCPEventStore("sqlite://")
>>> app = events.resumable(server.streamable_http_app(event_store=events))

Run the app with a server for ASGI, such as uvicorn.

A client opens a session with the request `initialize`; the wrapper stores the request. A later request can name a
session unknown to the process. The wrapper then sends `initialize` to the app again, and the app opens a session
with a new id; the wrapper translates between both ids in requests and responses. Events are numbered in each
stream: a Last-Event-ID names a stream and a number.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPMethod
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from .. import (
    AsyncCollection,
    AsyncStore,
    DocumentNotFound,
    DuplicateKey,
    InvalidOption,
    MissingExtra,
)
from .ids import under
from .stores import StoreOwner

try:
    import mcp  # noqa: F401
except ImportError as error:
    raise MissingExtra("mcp", "mcp") from error

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SESSION_HEADER: Final = b"mcp-session-id"
MAX_INITIALIZE: Final = 1_000_000
"""Bytes of a request that opens a session. After a larger one the session is not restored."""
_PAGE: Final = 100
"""Events that are read at once."""
_NOT_COPIED: Final = {
    SESSION_HEADER, b"accept", b"content-encoding", b"content-length", b"content-type", b"last-event-id",
    b"mcp-protocol-version", b"transfer-encoding",
}  # fmt: skip
"""Headers of the present request that those sent to restore its session do not have."""
_JSON: Final = [
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
]
_INITIALIZED: Final = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
_EVENT_ID: Final = re.compile(r"[\w.~%-]+/[0-9]{10}", re.ASCII)


@dataclass(eq=False)
class _Session:
    """A session in this process: the key of its events, and the request that opened the session.

    `path` is the path of the session's requests; the app can serve further paths, outside of the session.
    `document` is the id of the session's document, once written: events are stored `beside` this document, and no
    event is stored after its deletion. `inner` is the session's id in the app; `counts` has the next number of each
    stream. While a session is restored, and after its end, the session is not ready and stores nothing. `prefix` is
    the app's prefix of the names of the session's streams: empty for the SDK, for FastMCP a random number, which
    differs after a restart. The first event, which answers the opening request, reveals the prefix.
    """

    key: str
    path: str = ""
    opening: bytes | bytearray = b""
    document: str | None = None
    prefix: str | None = None
    inner: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    is_ready: bool = True
    refreshed_at: float = field(default_factory=time.monotonic)

    def stream(self, stream_id: str) -> str:
        """Return the name of a stream without the prefix."""
        if self.prefix is None:
            self.prefix = ""
            if len(self.opening) <= MAX_INITIALIZE:
                request = str(json.loads(self.opening)["id"])
                self.prefix = stream_id.removesuffix(request) if stream_id.endswith(request) else ""
        return stream_id.removeprefix(self.prefix)

    def next_number(self, key: str, stored: int = 0) -> int:
        """Return the number of an event: above the numbers of this process, and at least `stored`."""
        number = max(self.counts.get(key, 0), stored)
        self.counts[key] = number + 1
        return number

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the session of the current task, and of tasks started by the current task."""
        token = _SESSION.set(self)
        try:
            yield
        finally:
            _SESSION.reset(token)


_SESSION: ContextVar[_Session | None] = ContextVar("session", default=None)


class MCPEventStore(StoreOwner, EventStore):
    """Events of an MCP server, in a store: a URL with the options of `AsyncStore`, or an `AsyncStore`, which stays
    open.

    Pass the event store to the server as `event_store`, and serve the app returned by `resumable`. Processes can
    share the collection: a session then works in each process. `session` is for a transport of your own with a
    single session: the name of the session.

    `ttl`: seconds until an event expires, and until a session expires after its last request or event; None: never.
    """

    def __init__(
        self,
        store: AsyncStore | str,
        *,
        session: str | None = None,
        ttl: float | None = 86_400.0,
        collection: str = "mcp_events",
        **options: Any,
    ) -> None:
        self._open(store, options)
        self._name, self._ttl = collection, _checked_ttl(ttl)
        self._own = None if session is None else _own_session(session)

    def resumable(self, app: ASGIApp) -> ASGIApp:
        """Return the app with separate sessions that survive a restart.

        `app` is the result of the server's `streamable_http_app(event_store=...)`, with authentication if the
        server has any: a session is restored only for the principal who opened the session. Requests without a
        session pass through.
        """
        return _ResumableApp(app, self)

    async def sessions(self) -> list[str]:
        """Return the ids of the stored sessions, sorted."""
        stored = await self._documents.find({"$id": under("s")}, projection=["key"])
        return sorted([unquote(each.id.removeprefix("s/")) for each in stored])

    async def delete_session(self, id: str) -> bool:
        """Delete a session with its events; return False if the session is unknown. A client's DELETE deletes its
        session, too.
        """
        documents = self._documents
        body = await documents.get(_session_id(id))
        if body is None:
            return False
        events = {"$id": under(f"e/{body['key']}")}
        await documents.delete_many({"$or": [{"$id": _session_id(id)}, events]})
        await documents.delete_many(events)  # those that were stored at the same time
        return True

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store a message, or None to begin a stream; return the id of the event."""
        session = self._session()
        stream = session.stream(stream_id)
        if not session.is_ready:
            return ""
        documents, key = await self._prepared(self._name), _stream_key(stream)
        text = (
            None if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        )
        body = {"stream": _quoted(stream), "message": text}
        number = session.next_number(key)
        while True:
            id = f"{key}/{number:010}"
            new: dict[str, Any] = {
                "id": f"e/{session.key}/{id}",
                "ttl": self._ttl,
                "beside": session.document,
            }
            try:
                await documents.insert_one(body, **new)
                break
            except DuplicateKey:  # of another process, or of before the restart
                stored = await self._stored_events(f"e/{session.key}/{key}")
                number = session.next_number(key, stored)
            except DocumentNotFound:  # another process ended the session
                session.is_ready = False
                return ""
        await self._refresh(session)
        if isinstance(message, JSONRPCResponse | JSONRPCError):  # the last one of the stream
            session.counts.pop(key, None)
        return id

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        """Send the messages of the stream after an event, in order; return the stream, or None for an unknown
        event.
        """
        session = self._session()
        if not _EVENT_ID.fullmatch(last_event_id):
            return None
        last = f"e/{session.key}/{last_event_id}"
        within = {"$id": {"$gte": last, "$lt": under(last.rpartition("/")[0])["$lt"]}}
        stream: str | None = None
        cursor: str | None = None
        while True:
            page = await self._documents.page(within, sort="$id", limit=_PAGE, after=cursor)
            for event in page:
                stream = unquote(event.body["stream"], errors="surrogatepass")
                if event.id != last and event.body["message"] is not None:
                    message = jsonrpc_message_adapter.validate_json(
                        event.body["message"], by_name=False
                    )
                    id = event.id.removeprefix(f"e/{session.key}/")
                    await send_callback(EventMessage(message, id))
            if (cursor := page.cursor) is None:
                return stream if stream is None else (session.prefix or "") + stream

    def _session(self) -> _Session:
        session = self._own or _SESSION.get()
        if session is None:
            problem = (
                "must be given to an event store whose server does not serve the app of resumable()"
            )
            raise InvalidOption("session", problem)
        return session

    async def _stored_events(self, prefix: str) -> int:
        """Return the number after the last stored event."""
        last = await self._documents.find_one(
            {"$id": under(prefix)}, sort=[("$id", -1)], projection=["stream"]
        )
        return 0 if last is None else int(last.id.rpartition("/")[2]) + 1

    async def _remember(self, id: str, session: _Session, owner: Any) -> None:
        """Store a session, without an opening request larger than `MAX_INITIALIZE`."""
        opening = session.opening.decode("utf-8", "replace")
        body = {
            "key": session.key,
            "path": session.path,
            "initialize": opening if len(session.opening) <= MAX_INITIALIZE else None,
            "owner": owner,
        }
        documents = await self._prepared(self._name)
        await documents.put(_session_id(id), body, ttl=self._ttl)
        session.document = _session_id(id)

    async def _recall(self, id: str) -> dict[str, Any] | None:
        body: dict[str, Any] | None = await self._documents.get(_session_id(id))
        return body

    async def _refresh(self, session: _Session) -> None:
        """Restart the time to live of a session, once a tenth has passed."""
        if session.document is None or self._ttl is None:
            return
        if time.monotonic() - session.refreshed_at > self._ttl / 10:
            session.refreshed_at = time.monotonic()
            await self._documents.touch(session.document, self._ttl)

    @property
    def _documents(self) -> AsyncCollection:
        return self._store[self._name]


class _ResumableApp:
    """The app of a server. Sessions outlive the process."""

    def __init__(self, app: ASGIApp, events: MCPEventStore) -> None:
        self._app, self._events = app, events
        # The tasks of a session hold it, by the context in which they were started: it leaves this mapping after them.
        self._live: WeakValueDictionary[str, _Session] = WeakValueDictionary()
        self._restoring = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = _session_of(scope["headers"])
        if id is None:
            await self._open(scope, receive, send)
            return
        request = _Request(receive)
        lost: _Session | None = None
        while (session := await self._find(id, scope, lost)) is not None:
            if await self._continue(id, session, scope, request.again(), send):
                return
            if lost is not None:
                break
            lost = session  # the app has ended it, after a time without requests
        await self._app(scope, request.again(), send)  # which knows how to refuse it

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request without a session. If the app opens a session, store the session before the client
        receives the id.
        """
        body = bytearray()
        session = _Session(uuid.uuid4().hex, _path(scope), body)

        async def reading() -> Message:
            message = await receive()
            if len(body) <= MAX_INITIALIZE:
                body.extend(message.get("body", b""))
            return message

        async def answering(message: Message) -> None:
            id = _session_of(message.get("headers", ()))
            if id is not None and message.get("status", 500) < 400:
                await self._events._remember(id, session, _owner(scope))
                session.inner, self._live[id] = id, session
            await send(message)

        with session.entered():
            await self._app(scope, reading, answering)

    async def _find(self, id: str, scope: Scope, lost: _Session | None) -> _Session | None:
        """Return the session; restore a session unknown to this process or lost by the app. Return None for an
        unknown session, or a request outside of the session's path.
        """
        live = self._live.get(id)
        if live is not None and live is not lost:
            return live if live.path == _path(scope) else None
        stored = await self._events._recall(id)
        if stored is None or stored.get("path", _path(scope)) != _path(scope):
            return None
        async with self._restoring:
            live = self._live.get(id)
            if live is None or live is lost:
                live = await self._restore(id, stored, scope)
                if live is not None:
                    self._live[id] = live
        return live

    async def _restore(self, id: str, stored: dict[str, Any], scope: Scope) -> _Session | None:
        """Open the session again in the app; return None if the app refuses, or if the session belongs to another
        principal.
        """
        if stored["initialize"] is None:
            return None
        session = _Session(
            stored["key"], _path(scope), stored["initialize"].encode(), is_ready=False
        )
        version = [each for each in scope["headers"] if each[0].lower() == b"mcp-protocol-version"]
        with session.entered():
            status, inner, owner = await self._call(
                scope, HTTPMethod.POST, _JSON, stored["initialize"].encode()
            )
            if status >= 400 or inner is None:
                return None
            headers = [*_JSON, *version, (SESSION_HEADER, inner.encode())]
            if owner != stored["owner"]:
                await self._call(scope, HTTPMethod.DELETE, headers)
                return None
            session.inner, session.document, session.is_ready = inner, _session_id(id), True
            await self._call(scope, HTTPMethod.POST, headers, _INITIALIZED)
        return session

    async def _continue(
        self, id: str, session: _Session, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Serve a request of a session; return False, without a response, if the app does not know the session."""
        is_known = True

        async def answering(message: Message) -> None:
            nonlocal is_known
            if message["type"] == "http.response.start":
                is_known = message["status"] != 404
                if scope["method"] == HTTPMethod.DELETE and message["status"] < 400:
                    self._live.pop(id, None)
                    await self._events.delete_session(id)
                message = {**message, "headers": _translated(message.get("headers", ()), id)}
            if is_known:
                await send(message)

        await self._events._refresh(session)
        translated = {**scope, "headers": _translated(scope["headers"], session.inner)}
        with session.entered():
            await self._app(translated, receive, answering)
        return is_known

    async def _call(
        self,
        scope: Scope,
        method: str,
        headers: list[tuple[bytes, bytes]],
        body: bytes | bytearray = b"",
    ) -> tuple[int, str | None, Any]:
        """Send a request to the app with the credentials of the present request; return status, session and
        principal.
        """
        kept = [
            (name, value) for name, value in scope["headers"] if name.lower() not in _NOT_COPIED
        ]
        length = (b"content-length", str(len(body)).encode())
        request = {**scope, "method": method, "headers": [*kept, *headers, length]}
        waiting = [{"type": "http.request", "body": body, "more_body": False}]
        start: Message = {}

        async def receive() -> Message:
            return waiting.pop() if waiting else await asyncio.get_running_loop().create_future()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)

        await self._app(request, receive, send)
        return start.get("status", 500), _session_of(start.get("headers", ())), _owner(request)


def _checked_ttl(ttl: Any) -> float | None:
    if ttl is None or (isinstance(ttl, int | float) and not isinstance(ttl, bool) and ttl > 0):
        return ttl
    raise InvalidOption("ttl", f"must be seconds above 0, or None: never, got {ttl!r}")


def _own_session(name: Any) -> _Session:
    if not isinstance(name, str):
        raise InvalidOption("session", f"must be a string, got {type(name).__name__}")
    return _Session(f"={_short(_quoted(name))}", prefix="")


class _Request:
    """A request whose body can be received again."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._received: list[Message] = []

    def again(self) -> Receive:
        """Return a function that receives the request from its beginning."""
        received = iter([*self._received])

        async def receive() -> Message:
            message = next(received, None)
            if message is None:
                message = await self._receive()
                self._received.append(message)
            return message

        return receive


def _owner(scope: Scope) -> Any:
    """Return the authenticated principal as JSON; None without authentication."""
    user = scope.get("user")
    return dict(authorization_context(user)) if isinstance(user, AuthenticatedUser) else None


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    return path.rstrip("/")


def _session_of(headers: Any) -> str | None:
    found = [value for name, value in headers if name.lower() == SESSION_HEADER]
    return found[0].decode("latin-1") if found else None


def _translated(headers: Any, id: str) -> list[tuple[bytes, bytes]]:
    """Return the headers with another session."""
    encoded = id.encode("latin-1")
    return [(name, encoded if name.lower() == SESSION_HEADER else value) for name, value in headers]


def _session_id(id: str) -> str:
    return f"s/{_short(_quoted(id))}"


def _stream_key(stream_id: str) -> str:
    return _short(_quoted(stream_id)) or "~"  # which no other has


def _short(quoted: str) -> str:
    """Return a part of an id. Clients choose the ids of requests: a request's id may be longer than an id of a
    document.
    """
    if len(quoted) <= 900:
        return quoted
    return f"~{hashlib.sha256(quoted.encode()).hexdigest()}"


def _quoted(name: str) -> str:
    """Return any string as part of an id, without `/` and `~`."""
    return quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
