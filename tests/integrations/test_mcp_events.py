"""MCP's event store on our store, and servers whose clients resume after the server was restarted or killed."""

import asyncio
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from selection import missing, only_all_of_hosts

from collections_store import AsyncStore, InvalidOption, Store, StoreClosed

if _reason := missing("mcp"):
    pytest.skip(_reason, allow_module_level=True)

import httpx2
from integrations.mcp_server import new_server, serving
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.streamable_http import EventMessage
from mcp.shared.message import ClientMessageMetadata
from mcp.types import JSONRPCNotification, JSONRPCResponse
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import Response

from collections_store.integrations.mcp_events import MCPEventStore

SERVER = Path(__file__).with_name("mcp_server.py")
VERSION = "2025-11-25"
WRITER = """
import asyncio, json, multiprocessing, sys
from mcp.types import JSONRPCNotification
from collections_store.integrations.mcp_events import MCPEventStore

async def write(number, url, options):
    async with MCPEventStore(url, session="shared", **options) as events:
        async def task(task):
            for n in range(3):
                for stream in ("_GET_stream", f"{number}-{task}"):
                    message = JSONRPCNotification(jsonrpc="2.0", method=f"{number}-{task}-{n}")
                    await events.store_event(stream, message)
        await asyncio.gather(*map(task, range(16)))

def run(number):
    asyncio.run(write(number, sys.argv[1], json.loads(sys.argv[2])))

fork = multiprocessing.get_context("fork")
processes = [fork.Process(target=run, args=(number,)) for number in range(4)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(any(process.exitcode for process in processes))
"""


def use(
    backend: Backend, function: Callable[[MCPEventStore], Awaitable[Any]], **options: Any
) -> Any:
    """Return the result of a function with a new event store on the backend, on a new event loop."""

    async def main() -> Any:
        async with MCPEventStore(backend.url, **backend.options, **options) as events:
            return await function(events)

    return asyncio.run(main())


def note(method: str, **params: Any) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method=method, params=params or None)


async def replayed(events: MCPEventStore, last: str) -> tuple[str | None, list[EventMessage]]:
    found: list[EventMessage] = []

    async def send(message: EventMessage) -> None:
        found.append(message)

    return await events.replay_events_after(last, send), found


def methods(found: list[EventMessage]) -> list[str]:
    return [each.message.method for each in found if isinstance(each.message, JSONRPCNotification)]


# -- the interface ---------------------------------------------------------------------------


def test_the_events_of_a_stream_are_replayed_in_order(backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        ids = {
            "1": [await events.store_event("1", None)],
            "2": [await events.store_event("2", None)],
        }
        for number in range(230):
            for stream, stored in ids.items():
                stored.append(
                    await events.store_event(stream, note(f"{stream}-{number}", z=1, a=[None, 0.5]))
                )
        assert len({id for stored in ids.values() for id in stored}) == 462
        for stream, stored in ids.items():
            for start in (0, 1, 99, 100, 101, 229, 230):
                found_stream, found = await replayed(events, stored[start])
                assert found_stream == stream
                assert methods(found) == [f"{stream}-{number}" for number in range(start, 230)]
                assert [each.event_id for each in found] == stored[start + 1 :]
        await events.store_event("2", None)
        response = JSONRPCResponse(
            jsonrpc="2.0", id=2, result={"b": {"z": 1, "a": "\0"}, "a": 2**70}
        )
        last = await events.store_event("2", response)
        _, [end] = await replayed(events, ids["2"][-1])
        assert (end.event_id, end.message) == (last, response)
        assert await replayed(events, last) == ("2", [])

    use(backend, check, session="s")


def test_an_event_that_is_not_there_replays_nothing(backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        id = await events.store_event("1", note("x"))
        await events.store_event("1", note("y"))
        for bad in ("", "/", "1", "1/", f"{id}0", "1/0000000009", "2/0000000000", "../s/0000000000", f"{id}/", "\0",
                    "\ud800", "a" * 9000, f"{id}\n", id.replace("0", "\u0660"), "%/0000000000", f"e/{id}"):  # fmt: skip
            assert await replayed(events, bad) == (None, [])

    use(backend, check, session="s")


def test_streams_and_sessions_keep_their_events_apart(backend: Backend) -> None:
    names = [
        "a",
        "a/b",
        "a%2Fb",
        "A",
        "ä",
        "a/",
        "/",
        "a0",
        "",
        "~",
        "a\0b",
        "\ud800",
        "x" * 5000,
        "x" * 5001,
    ]

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            stores = {
                name: MCPEventStore(store, session=name) for name in ("s", "s/a", "", "t" * 1500)
            }
            ids = {
                (session, stream): await events.store_event(
                    stream, note("m", of=[session, ascii(stream)])
                )
                for session, events in stores.items()
                for stream in names
            }
            for (session, stream), id in ids.items():
                events = stores[session]
                await events.store_event(stream, note("end"))
                assert id.isascii()
                assert id.isprintable()
                assert await replayed(events, id) == (
                    stream,
                    [EventMessage(note("end"), f"{id[:-1]}1")],
                )
            for session in stores:
                assert len({id for (of, _), id in ids.items() if of == session}) == len(names)

    asyncio.run(main())


def test_a_stream_goes_on_after_a_restart(backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        again = MCPEventStore(events._store, session="s")
        first = await events.store_event("1", note("0"))
        for number, each in enumerate((again, events, again, again, events), start=1):
            await each.store_event("1", note(str(number)))
        for each in (again, events):
            assert methods((await replayed(each, first))[1]) == ["1", "2", "3", "4", "5"]

    use(backend, check, session="s")


def test_events_expire(backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        id = await events.store_event("1", note("x"))
        await asyncio.sleep(0.1)
        assert await replayed(events, id) == (None, [])

    use(backend, check, session="s", ttl=0.05)


def test_reads_scan_nothing(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            await MCPEventStore(store, session="s").store_event("1", note("x"))
            within = {"$id": {"$gte": "e/=s/1/0000000000", "$lt": "e/=s/10"}}
            for sort in ("$id", [("$id", -1)]):
                found = await store["mcp_events"].explain(within, sort=sort, limit=100)
                assert not found.scans, str(found)

    asyncio.run(main())


def test_without_a_session_nothing_is_stored_or_replayed(backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        with pytest.raises(InvalidOption, match=r"session.*resumable\(\)"):
            await events.store_event("1", note("x"))
        with pytest.raises(InvalidOption, match=r"session.*resumable\(\)"):
            await replayed(events, "1/0000000000")

    use(backend, check)


@pytest.mark.parametrize(
    "options",
    [{"ttl": 0}, {"ttl": "day"}, {"ttl": True}, {"ttl": float("nan")}, {"session": 5}],
    ids=repr,
)
def test_invalid_options_are_refused(options: Any) -> None:
    with pytest.raises(InvalidOption, match=f"{next(iter(options))}: must be"):
        MCPEventStore("sqlite://", **options)


def test_a_given_store_stays_open(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            async with MCPEventStore(store, session="s", collection="mine") as events:
                await events.store_event("1", None)
            assert await store["mine"].count() == 1
            with pytest.raises(InvalidOption, match="durability"):
                MCPEventStore(store, durability="full")
        own = MCPEventStore("sqlite://", session="s")
        await own.close()
        with pytest.raises(StoreClosed):
            await own.store_event("1", None)

    asyncio.run(main())


def test_four_processes_of_sixteen_tasks_lose_nothing(shared_backend: Backend) -> None:
    arguments = [shared_backend.url, json.dumps(shared_backend.options)]
    subprocess.run([sys.executable, "-c", WRITER, *arguments], check=True, timeout=120)

    async def check(events: MCPEventStore) -> None:
        _, found = await replayed(events, "_GET_stream/0000000000")
        shared = ["first", *methods(found)]
        assert len(shared) == 4 * 16 * 3
        for number in range(4):
            for task in range(16):
                own = [f"{number}-{task}-{n}" for n in range(3)]
                _, found = await replayed(events, f"{number}-{task}/0000000000")
                assert methods(found) == own[1:]
                in_shared = [name for name in shared if name in own]
                assert in_shared in (own, own[1:])

    use(shared_backend, check, session="shared")


# -- servers ---------------------------------------------------------------------------------


class Client:
    """A client that sees the protocol: requests as JSON, responses as events with ids."""

    def __init__(self, url: str, session: str | None = None, **headers: str) -> None:
        self.url, self.session, self._headers = url, session, headers
        self.http = httpx2.AsyncClient(timeout=60)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    def headers(self, **more: str) -> dict[str, str]:
        session = (
            {}
            if self.session is None
            else {"mcp-session-id": self.session, "mcp-protocol-version": VERSION}
        )
        accepted = {"accept": "application/json, text/event-stream"}
        return {**accepted, **session, **self._headers, **more}

    async def post(
        self, method: str, id: Any = None, **params: Any
    ) -> tuple[httpx2.Response, list[tuple[str, Any]]]:
        """Return the response, and the ids and messages of its events."""
        body = {
            "jsonrpc": "2.0",
            "method": method,
            "params": params,
            **({} if id is None else {"id": id}),
        }
        response = await self.http.post(self.url, json=body, headers=self.headers())
        return response, parsed(response.text)

    async def open(self, name: str = "test") -> None:
        """Open a session."""
        about: dict[str, Any] = {
            "clientInfo": {"name": name, "version": "1"},
            "capabilities": {"sampling": {}},
        }
        response, _ = await self.post("initialize", 0, protocolVersion=VERSION, **about)
        assert response.status_code == 200, response.text
        self.session = response.headers["mcp-session-id"]
        accepted, _ = await self.post("notifications/initialized")
        assert accepted.status_code == 202

    async def call(self, id: Any, tool: str, **arguments: Any) -> list[tuple[str, Any]]:
        response, events = await self.post(
            "tools/call", id, name=tool, arguments=arguments, _meta={"progressToken": f"of {id}"}
        )
        assert response.status_code == 200, response.text
        assert response.headers["mcp-session-id"] == self.session
        return events

    async def resume(self, last: str, until: int) -> list[tuple[str, Any]]:
        """Return `until` events after one: the stream stays open after them. Fewer if it ends."""
        text = ""
        headers = self.headers(**{"last-event-id": last})
        async with self.http.stream("GET", self.url, headers=headers) as response:
            assert response.status_code == 200
            async for chunk in response.aiter_text():
                text += chunk
                if len(parsed(text)) >= until:
                    break
        return parsed(text)


def parsed(text: str) -> list[tuple[str, Any]]:
    """Return ids and data of whole events; data is None of a priming event."""
    found = []
    *events, _ = text.replace("\r\n", "\n").split("\n\n")
    for event in events:
        lines = [line.partition(":") for line in event.split("\n")]
        fields = {name: value.removeprefix(" ") for name, _, value in lines}
        if "data" in fields:
            found.append(
                (fields.get("id", ""), json.loads(fields["data"]) if fields["data"] else None)
            )
    return found


def result_of(events: list[tuple[str, Any]]) -> str:
    """Return the text of a tool's result."""
    text: str = events[-1][1]["result"]["content"][0]["text"]
    return text


def served(events: MCPEventStore, **options: Any) -> Any:
    """Serve a new server with its sessions in the store."""
    keywords = {name: options.pop(name) for name in ("auth", "token_verifier") if name in options}
    app = new_server(**keywords).streamable_http_app(event_store=events, **options)
    return serving(events.resumable(app))


def test_a_session_goes_on_after_a_restart(shared_backend: Backend) -> None:
    async def begin(events: MCPEventStore) -> Any:
        async with served(events) as url, Client(url) as client:
            await client.open()
            called = await client.call(1, "count", n=3)
            assert await events.sessions() == [client.session]
            return client.session, called

    session, called = use(shared_backend, begin)
    assert [data and data.get("method") for _, data in called] == [
        None,
        *["notifications/progress"] * 3,
        None,
    ]

    async def resume(events: MCPEventStore) -> None:
        async with served(events) as url, Client(url, session) as client:
            for start in range(len(called) - 1):
                rest = called[start + 1 :]
                found = await client.resume(called[start][0], len(rest))
                assert found == rest
            assert result_of(await client.call(2, "count", n=1)) == "counted to 1"
            assert json.loads(result_of(await client.call(3, "client"))) == [VERSION, True]
            assert await events.sessions() == [session]

    use(shared_backend, resume)
    use(shared_backend, resume)


def test_messages_that_belong_to_no_request_are_resumed_after_a_restart(
    shared_backend: Backend,
) -> None:
    def uris(events: list[tuple[str, Any]]) -> list[str]:
        return [data["params"]["uri"][-1] for _, data in events if data is not None]

    async def begin(events: MCPEventStore) -> str | None:
        async with served(events) as url, Client(url) as client, Client(url) as other:
            for each in (client, other):
                await each.open()
                await each.call(1, "announce", n=3)
            return client.session

    session = use(shared_backend, begin)

    async def resume(events: MCPEventStore) -> None:
        async with served(events) as url, Client(url, session) as client:
            assert uris(await client.resume("_GET_stream/0000000000", 2)) == ["1", "2"]
            await client.call(2, "announce", n=2)
            found = await client.resume("_GET_stream/0000000000", 4)
            assert uris(found) == ["1", "2", "0", "1"]
            assert uris(await client.resume(found[1][0], 2)) == ["0", "1"]

    use(shared_backend, resume)


def test_sessions_do_not_see_each_other(shared_backend: Backend) -> None:
    """The SDK calls the streams of all sessions by the ids of requests: "1", "2"."""

    async def check(events: MCPEventStore) -> None:
        async with served(events) as url, Client(url) as ada, Client(url) as bob:
            await ada.open()
            await bob.open()
            of_ada = await ada.call(1, "count", n=2)
            of_bob = await bob.call(1, "count", n=5)
            assert await ada.resume(of_ada[0][0], len(of_ada) - 1) == of_ada[1:]
            assert await ada.resume(of_ada[1][0], len(of_ada) - 2) == of_ada[2:]
            found = await ada.resume(of_bob[-2][0], 1)
            assert all(data is None for _, data in found), (
                "the number of an event that only Bob has"
            )

    use(shared_backend, check)


def test_a_session_works_in_several_processes(shared_backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        other = MCPEventStore(events._store)
        async with served(events) as url, served(other) as second, Client(url) as client:
            await client.open()
            async with Client(second, client.session) as same:
                for number in (1, 3, 5):
                    first = await client.call(number, "count", n=2)
                    assert await same.resume(first[0][0], len(first) - 1) == first[1:]
                    again = await same.call(number + 1, "count", n=2)
                    assert await client.resume(again[0][0], len(again) - 1) == again[1:]
                calls = await asyncio.gather(*(same.call(10 + n, "count", n=1) for n in range(8)))
                assert {result_of(each) for each in calls} == {"counted to 1"}

    use(shared_backend, check)


def test_a_session_that_its_client_ends_is_forgotten(shared_backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        async with served(events) as url, Client(url) as client, Client(url) as other:
            await client.open()
            await other.open()
            await client.call(1, "count", n=1)
            ended = await client.http.delete(url, headers=client.headers())
            assert ended.status_code == 200
            assert await events.sessions() == [other.session]
            response, _ = await client.post("tools/list", 2)
            assert response.status_code == 404
        async with served(events) as url, Client(url, client.session) as client:
            response, _ = await client.post("tools/list", 2)
            assert response.status_code == 404
        assert other.session is not None
        assert await events.delete_session(other.session) is True
        assert await events.delete_session(other.session) is False
        assert await events._store["mcp_events"].count() == 0

    use(shared_backend, check)


@pytest.mark.parametrize(
    "session", ["none", "x" * 5000, "a/b", "%00", "s/../e", "~"], ids=lambda name: name[:9]
)
def test_a_session_that_does_not_exist_is_refused(backend: Backend, session: str) -> None:
    async def check(events: MCPEventStore) -> None:
        async with served(events) as url, Client(url, session) as client:
            response, _ = await client.post("tools/list", 1)
            assert response.status_code == 404

    use(backend, check)


def test_a_session_that_the_server_ended_while_it_was_idle_is_restored(
    shared_backend: Backend,
) -> None:
    async def check(events: MCPEventStore) -> None:
        async with served(events, session_idle_timeout=1) as url, Client(url) as client:
            await client.open()
            called = await client.call(1, "count", n=2)
            await asyncio.sleep(1.5)
            assert await client.resume(called[0][0], len(called) - 1) == called[1:]
            assert result_of(await client.call(2, "count", n=1)) == "counted to 1"

    use(shared_backend, check)


def test_a_very_large_request_opens_a_session_that_is_not_restored(backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        async with served(events) as url, Client(url) as client:
            await client.open(name="n" * 1_100_000)
            called = await client.call(1, "count", n=1)
            assert await client.resume(called[0][0], len(called) - 1) == called[1:]
            async with (
                served(MCPEventStore(events._store)) as second,
                Client(second, client.session) as same,
            ):
                response, _ = await same.post("tools/list", 2)
                assert response.status_code == 404
            assert await events.sessions() == [client.session]
            ended = await client.http.delete(url, headers=client.headers())
            assert ended.status_code == 200
            assert await events._store["mcp_events"].count() == 0

    use(backend, check)


@pytest.mark.parametrize("ttl", [None, 3600.0])
def test_nothing_is_stored_of_a_session_that_another_process_ended(
    shared_backend: Backend, ttl: float | None
) -> None:
    async def check(events: MCPEventStore) -> None:
        async with (
            AsyncStore(shared_backend.url, **shared_backend.options) as store,
            served(events) as url,
            Client(url) as client,
        ):
            await client.open()
            await client.call(1, "count", n=1)
            assert await MCPEventStore(store).delete_session(str(client.session)) is True
            assert result_of(await client.call(2, "count", n=3)) == "counted to 3"
            assert await store["mcp_events"].count() == 0

    use(shared_backend, check, ttl=ttl)


def test_a_session_lives_as_long_as_its_events_come(backend: Backend) -> None:
    async def check(events: MCPEventStore) -> None:
        app: Any = events.resumable(new_server().streamable_http_app(event_store=events))
        async with serving(app) as url, Client(url) as client:
            await client.open()
            [before] = await events._store["mcp_events"].find({"owner": {"$exists": True}})
            [session] = app._live.values()
            session.refreshed_at -= 86_400
            with session.entered():
                await events.store_event("_GET_stream", note("x"))
            after = await events._store["mcp_events"].document(before.id)
            assert after is not None
            assert before.expires_at is not None
            assert after.expires_at is not None
            assert after.expires_at > before.expires_at

    use(backend, check)


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "restored"])
def test_requests_at_other_paths_are_not_of_a_session(
    shared_backend: Backend, is_live: bool
) -> None:
    """A client may send the header of its session everywhere."""
    seen: list[tuple[str, str, bytes]] = []

    async def hook(request: Request) -> Response:
        seen.append((request.method, request.headers["mcp-session-id"], await request.body()))
        return Response("hooked", status_code=404 if request.method == "GET" else 200)

    def app(events: MCPEventStore) -> Any:
        inner = new_server().streamable_http_app(event_store=events)
        inner.add_route("/hook", hook, methods=["GET", "POST", "DELETE"])
        return serving(events.resumable(inner))

    async def check(events: MCPEventStore) -> None:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(app(events))
            client = await stack.enter_async_context(Client(url))
            await client.open()
            session = client.session
            if not is_live:
                url = await stack.enter_async_context(app(MCPEventStore(events._store)))
            at = url.replace("/mcp", "/hook")
            for method in ("GET", "POST", "DELETE"):
                answer = await client.http.request(
                    method, at, headers=client.headers(), content="x"
                )
                assert answer.text == "hooked"
            assert seen == [(method, session, b"x") for method in ("GET", "POST", "DELETE")]
            assert await events.sessions() == [session]
            client.url = f"{url}/" if is_live else url
            client.http.follow_redirects = True
            assert result_of(await client.call(1, "count", n=1)) == "counted to 1"

    use(shared_backend, check)


class Tokens:
    """Tokens that are the names of users."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if token == "wrong":
            return None
        return AccessToken(token=token, client_id="app", scopes=[], subject=token.partition("-")[0])


def test_a_session_is_restored_only_for_the_principal_who_opened_it(
    shared_backend: Backend,
) -> None:
    issuer = AnyHttpUrl("https://issuer.example")
    options = {
        "token_verifier": Tokens(),
        "auth": AuthSettings(
            issuer_url=issuer, resource_server_url=None, validate_token_resource=False
        ),
    }

    async def begin(events: MCPEventStore) -> str | None:
        async with (
            served(events, **options) as url,
            Client(url, authorization="Bearer ada-1") as client,
        ):
            await client.open()
            return client.session

    session = use(shared_backend, begin)

    async def resume(events: MCPEventStore) -> None:
        async with served(events, **options) as url:
            for token, status in (
                ("bob-1", 404),
                ("wrong", 401),
                ("ada-2", 200),
                ("bob-1", 404),
                ("ada-3", 200),
            ):
                async with Client(url, session, authorization=f"Bearer {token}") as client:
                    response, _ = await client.post("tools/list", 1)
                    assert (token, response.status_code) == (token, status)

    use(shared_backend, resume)


CALL = types.CallToolRequest(params=types.CallToolRequestParams(name="count", arguments={"n": 3}))


async def interrupted(url: str) -> tuple[str, str]:
    """Call a tool with a client of the SDK, and leave after the first event; return the event and the session."""
    tokens: asyncio.Queue[str] = asyncio.Queue()
    sessions: list[str] = []

    async def note_session(response: httpx2.Response) -> None:
        sessions.extend(response.headers.get_list("mcp-session-id"))

    async with (
        httpx2.AsyncClient(timeout=60, event_hooks={"response": [note_session]}) as http,
        streamable_http_client(url, http_client=http, terminate_on_close=False) as streams,
        ClientSession(*streams) as client,
    ):
        await client.initialize()
        metadata = ClientMessageMetadata(on_resumption_token_update=tokens.put)
        request = client.send_request(CALL, types.CallToolResult, metadata=metadata)
        task = asyncio.create_task(request)
        token = await tokens.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return token, sessions[0]


async def resumed(url: str, token: str, session: str) -> str:
    """Return the result of the call, with another client."""
    headers = {"mcp-session-id": session, "mcp-protocol-version": VERSION}
    async with (
        httpx2.AsyncClient(timeout=60, headers=headers) as http,
        streamable_http_client(url, http_client=http, terminate_on_close=False) as streams,
        ClientSession(*streams) as client,
    ):
        metadata = ClientMessageMetadata(resumption_token=token)
        result = await client.send_request(CALL, types.CallToolResult, metadata=metadata)
        [content] = result.content
        assert isinstance(content, types.TextContent)
        return content.text


@contextmanager
def killed_at_the_end(backend: Backend, gate: Path) -> Iterator[str]:
    """Run a server in a process of its own; yield its URL."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER), backend.url, json.dumps(backend.options), str(gate)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_a_client_of_the_sdk_resumes_its_call_after_the_server_was_killed(
    shared_backend: Backend, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with killed_at_the_end(shared_backend, gate) as url:
        token, session = asyncio.run(interrupted(url))
        gate.touch()
        with Store(shared_backend.url, **shared_backend.options) as store:  # the tool goes on
            while not store["mcp_events"].count({"message": {"$regex": "counted to 3|ancelled"}}):
                time.sleep(0.02)

    async def resume(events: MCPEventStore) -> str:
        async with served(events) as url:
            return await resumed(url, token, session)

    assert use(shared_backend, resume) == "counted to 3"


def test_servers_of_fastmcp_take_it(shared_backend: Backend) -> None:
    if reason := missing("fastmcp"):
        pytest.skip(reason)
    from fastmcp import FastMCP

    def app(events: MCPEventStore) -> Any:
        server = FastMCP("greeter")

        @server.tool
        def greet(name: str) -> str:
            return f"Hello, {name}"

        return serving(events.resumable(server.http_app(event_store=events)))

    async def begin(events: MCPEventStore) -> Any:
        async with app(events) as url, Client(url) as client:
            await client.open()
            return client.session, await client.call(1, "greet", name="Ada")

    session, called = use(shared_backend, begin)

    async def resume(events: MCPEventStore) -> None:
        async with app(events) as url, Client(url, session) as client:
            assert await client.resume(called[0][0], 1) == called[1:]
            assert result_of(await client.call(2, "greet", name="Bob")) == "Hello, Bob"

    use(shared_backend, resume)


# -- the SDK's own tests ---------------------------------------------------------------------


SDIST = f"mcp=={version('mcp')}"
THEIR_PACKAGES = ("blockbuster", "dirty-equals", "inline-snapshot", "logfire")
UNREACHABLE = ("No matching distribution", "Max retries", "Failed to establish", "Name or service")


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode and any(each in done.stderr for each in UNREACHABLE):
        pytest.skip(f"pip reaches no index that has it: {done.stderr.strip().splitlines()[-1]}")
    assert not done.returncode, done.stderr


@only_all_of_hosts
@pytest.mark.timeout(600)
def test_the_tests_of_the_sdk_pass_with_our_event_store(tmp_path: Path) -> None:
    outer, python = sysconfig.get_path("purelib"), tmp_path / "venv" / "bin" / "python"
    venv.create(tmp_path / "venv")
    pip("--python", str(python), "install", "--no-compile", SDIST, "pytest", *THEIR_PACKAGES)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))
    (packages / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})")
    pip("download", "--no-deps", "--no-binary", "mcp", "--dest", str(tmp_path), SDIST)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-n", "0", "-o", "addopts=", "-p", "anyio",
         "-p", "integrations.mcp_upstream", "tests/shared/test_streamable_http.py"],
        check=False,
        cwd=archive.with_name(archive.name.removesuffix(".tar.gz")),
        env=os.environ | {"PYTHONPATH": str(SERVER.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 11
