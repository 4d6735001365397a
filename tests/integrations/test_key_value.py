"""py-key-value's protocol on our storage, its wrappers, and FastMCP servers that keep their state in it."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from conftest import Backend

from collections_store import AsyncStore, InvalidOption, StoreClosed

if not os.environ.get("CI"):
    pytest.importorskip("key_value", reason="py-key-value-aio is not installed: see the dev extra")

from key_value.aio.errors import InvalidKeyError, InvalidTTLError, SerializationError
from key_value.aio.protocols.key_value import (
    AsyncCullProtocol,
    AsyncDestroyCollectionProtocol,
    AsyncDestroyStoreProtocol,
    AsyncEnumerateCollectionsProtocol,
    AsyncEnumerateKeysProtocol,
    AsyncKeyValue,
)
from key_value.aio.wrappers.prefix_collections import PrefixCollectionsWrapper

from collections_store.integrations.key_value import KeyValueStore

Use = Callable[[KeyValueStore], Awaitable[Any]]
PROCESS = """
import asyncio, json, sys
from collections_store.integrations.key_value import KeyValueStore

async def main():
    number, url, options = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    async with KeyValueStore(url, **options) as storage:
        async def task(task):
            for n in range(10):
                key = f"{number}-{task}-{n}"
                await storage.put(key, {"n": n}, collection=f"of {task}")
                assert await storage.get(key, collection=f"of {task}") == {"n": n}
        await asyncio.gather(*map(task, range(16)))

asyncio.run(main())
"""


def use(backend: Backend, function: Use) -> Any:
    """Return the result of a function with a storage, on a new event loop."""

    async def main() -> Any:
        async with KeyValueStore(backend.url, **backend.options) as storage:
            return await function(storage)

    return asyncio.run(main())


def test_it_has_every_method_of_the_protocols(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        for protocol in (
            AsyncKeyValue, AsyncCullProtocol, AsyncDestroyCollectionProtocol, AsyncDestroyStoreProtocol,
            AsyncEnumerateCollectionsProtocol, AsyncEnumerateKeysProtocol,
        ):  # fmt: skip
            assert isinstance(storage, protocol)

    use(backend, check)


def test_values_are_separate_by_collection_and_key(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        others = ["a", "1:a", "a/b", "ä!%_*?", "a" * 900]
        names = [None, *others]
        for name in names:
            for key in ("a", "a/b", "1:a/x", ""):
                await storage.put(key, {"of": [name, key]}, collection=name)
        for name in names:
            keys = await storage.keys(name)
            assert keys == sorted(["", "1:a/x", "a", "a/b"])
            found = await storage.get_many([*keys, "none", "a"], collection=name)
            assert found == [{"of": [name, key]} for key in keys] + [None, {"of": [name, "a"]}]
        wanted = sorted([storage.default_collection, *others])
        assert await storage.collections() == wanted
        assert set(await storage.collections(limit=2)) < set(wanted)
        assert await storage.keys("a", limit=2) == ["", "1:a/x"]
        assert await storage.destroy_collection("a") is True
        assert await storage.destroy_collection("a") is False
        assert await storage.keys("a") == []
        assert await storage.get("a", collection="1:a") == {"of": ["1:a", "a"]}
        assert await storage.destroy() is True
        assert await storage.collections() == []

    use(backend, check)


def test_deleting_returns_what_there_was(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        await storage.put_many(["a", "b", "c"], ({"n": 1}, {"n": 2}, {"n": 3}))
        assert await storage.delete("a") is True
        assert await storage.delete("a") is False
        assert await storage.delete_many(["a", "b", "c", "b"]) == 2
        assert await storage.get_many(["a", "b", "c"]) == [None, None, None]

    use(backend, check)


def test_values_expire(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        await storage.put("long", {"n": 1}, ttl=100)
        await storage.put("ever", {"n": 2}, ttl=100)
        await storage.put("ever", {"n": 3})
        await storage.put_many(["short", "short too"], [{}, {}], ttl=0.05)
        await asyncio.sleep(0.1)
        (long, left), ever, short = await storage.ttl_many(["long", "ever", "short"])
        assert left is not None
        assert (long, 0 < left <= 100) == ({"n": 1}, True)
        assert [ever, short] == [({"n": 3}, None), (None, None)]
        assert await storage.ttl("ever") == ever
        assert await storage.ttl("short too") == (None, None)
        assert await storage.keys() == ["ever", "long"]
        await storage.cull()
        assert await storage.delete_many(["short", "long"]) == 1

    use(backend, check)


@pytest.mark.parametrize("ttl", [0, -1, True, float("nan"), "soon", [1]], ids=repr)
def test_an_invalid_time_to_live_writes_nothing(backend: Backend, ttl: Any) -> None:
    async def check(storage: KeyValueStore) -> None:
        with pytest.raises(InvalidTTLError):
            await storage.put("a", {}, ttl=ttl)
        with pytest.raises(InvalidTTLError):
            await storage.put_many(["a"], [{}], ttl=ttl)
        assert await storage.get("a") is None

    use(backend, check)


@pytest.mark.parametrize(
    "value",
    [{"a": date(2026, 11, 22)}, {"a": datetime(2026, 11, 22, tzinfo=UTC)}, {"a": b"x"}, {"a": {1}},
     {"a": float("nan")}, {"a": 2**70}, {"a": "\ud800"}, {(1, 2): 3}, [1], None],
    ids=repr,
)  # fmt: skip
def test_what_is_not_json_is_refused(backend: Backend, value: Any) -> None:
    async def check(storage: KeyValueStore) -> None:
        with pytest.raises(SerializationError, match="is not JSON|must be a mapping"):
            await storage.put("a", value)
        with pytest.raises(SerializationError, match="is not JSON|must be a mapping"):
            await storage.put_many(["b", "a"], [{"fine": True}, value])
        assert await storage.get_many(["a", "b"]) == [None, None]

    use(backend, check)


def test_tuples_and_keys_that_are_numbers_are_stored_as_json_has_them(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        value = {"pair": (1, 2), "by number": {1: "one"}}
        await storage.put("a", value)
        assert await storage.get("a") == {"pair": [1, 2], "by number": {"1": "one"}}
        assert value["pair"] == (1, 2)

    use(backend, check)


def test_keys_that_no_id_can_hold_are_refused(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        for bad in ("a\0b", "a" * 2001, "\ud800", 5):
            for arguments in ((bad, None), ("a", bad)):
                key, collection = arguments
                with pytest.raises(InvalidKeyError):
                    await storage.put(key, {}, collection=collection)  # type: ignore[arg-type]
                with pytest.raises(InvalidKeyError):
                    await storage.get_many([key], collection=collection)  # type: ignore[list-item, arg-type]
        with pytest.raises(ValueError, match="2 keys, 1 values"):
            await storage.put_many(["a", "b"], [{}])

    use(backend, check)


def test_a_given_store_stays_open(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            async with KeyValueStore(
                store, collection="cache", default_collection="mine"
            ) as storage:
                await storage.put("a", {"n": 1})
                assert await storage.collections() == ["mine"]
            assert await store["cache"].count() == 1
            with pytest.raises(InvalidOption, match="durability"):
                KeyValueStore(store, durability="full")
        own = KeyValueStore("sqlite://")
        await own.close()
        with pytest.raises(StoreClosed):
            await own.get("a")

    asyncio.run(main())


def test_wrappers_of_py_key_value_stand_on_it(backend: Backend) -> None:
    async def check(storage: KeyValueStore) -> None:
        wrapped = PrefixCollectionsWrapper(key_value=storage, prefix="app")
        await wrapped.put("a", {"n": 1}, collection="users", ttl=60)
        assert await wrapped.get("a", collection="users") == {"n": 1}
        [name] = await storage.collections()
        assert name.startswith("app")

    use(backend, check)


def test_four_processes_of_sixteen_tasks_lose_nothing(shared_backend: Backend) -> None:
    arguments = [shared_backend.url, json.dumps(shared_backend.options)]
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(number), *arguments])
        for number in range(4)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4

    async def check(storage: KeyValueStore) -> None:
        names = await storage.collections()
        assert len(names) == 16
        assert [len(await storage.keys(name)) for name in names] == [40] * 16

    use(shared_backend, check)


# -- FastMCP ---------------------------------------------------------------------------------


def test_a_fastmcp_server_keeps_cached_responses_over_a_restart(shared_backend: Backend) -> None:
    pytest.importorskip(
        "fastmcp", reason="fastmcp is not installed: nox -s hosts-fastmcp runs this"
    )
    from fastmcp import Client, FastMCP
    from fastmcp.server.middleware.caching import ResponseCachingMiddleware

    calls: list[str] = []

    async def serve(storage: KeyValueStore) -> Any:
        server = FastMCP("weather")

        @server.tool
        def temperature(city: str) -> str:
            calls.append(city)
            return f"12 degrees in {city}"

        server.add_middleware(ResponseCachingMiddleware(cache_storage=storage))
        async with Client(server) as client:
            return (await client.call_tool("temperature", {"city": "Berlin"})).data

    assert use(shared_backend, serve) == "12 degrees in Berlin"
    assert use(shared_backend, serve) == "12 degrees in Berlin"
    assert calls == ["Berlin"]


def test_a_client_goes_on_after_a_restart_where_its_events_ended(shared_backend: Backend) -> None:
    pytest.importorskip(
        "fastmcp", reason="fastmcp is not installed: nox -s hosts-fastmcp runs this"
    )
    from fastmcp.server.event_store import EventStore
    from mcp.types import JSONRPCNotification

    def event(number: int) -> JSONRPCNotification:
        params = {"n": number}
        return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)

    async def emit(storage: KeyValueStore) -> Any:
        events = EventStore(storage=storage)
        return [await events.store_event("stream", event(n)) for n in range(4)]

    ids = use(shared_backend, emit)
    replayed: list[Any] = []

    async def replay(storage: KeyValueStore) -> Any:
        async def send(message: Any) -> None:
            replayed.append((message.event_id, message.message.params["n"]))

        return await EventStore(storage=storage).replay_events_after(ids[1], send)

    assert use(shared_backend, replay) == "stream"
    assert replayed == [(ids[2], 2), (ids[3], 3)]


class SignIn(BaseHTTPRequestHandler):
    """A sign-in service, which gives a token for each code."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        token = {"token_type": "Bearer", "expires_in": 3600, "refresh_token": "again"}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": "of ada", **token}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def sign_in() -> Iterator[str]:
    """The URL of a sign-in service."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_clients_of_an_oauth_proxy_stay_signed_in_over_restarts(
    shared_backend: Backend, sign_in: str
) -> None:
    """The server restarts before each request of the flow."""
    pytest.importorskip(
        "fastmcp", reason="fastmcp is not installed: nox -s hosts-fastmcp runs this"
    )
    from cryptography.fernet import Fernet
    from fastmcp import FastMCP
    from fastmcp.server.auth import OAuthProxy
    from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
    from key_value.aio.wrappers.encryption import FernetEncryptionWrapper

    key, back = Fernet.generate_key(), "http://localhost:9999/callback"

    def request(method: str, path: str, **content: Any) -> httpx2.Response:
        async def serve(storage: KeyValueStore) -> httpx2.Response:
            proxy = OAuthProxy(
                upstream_authorization_endpoint=f"{sign_in}/authorize",
                upstream_token_endpoint=f"{sign_in}/token",
                upstream_client_id="app",
                upstream_client_secret="a secret of this application",
                token_verifier=StaticTokenVerifier({"of ada": {"client_id": "ada", "scopes": []}}),
                base_url="http://localhost:8000",
                client_storage=FernetEncryptionWrapper(storage, fernet=Fernet(key)),
                require_authorization_consent=False,
            )
            app = FastMCP("weather", auth=proxy).http_app()
            transport = httpx2.ASGITransport(app)
            async with (
                app.router.lifespan_context(app),
                httpx2.AsyncClient(transport=transport, base_url="http://localhost:8000") as client,
            ):
                return await client.request(method, path, **content)

        found: httpx2.Response = use(shared_backend, serve)
        return found

    def sent_to(response: httpx2.Response) -> dict[str, str]:
        assert response.status_code == 302, response.text
        return dict(parse_qsl(urlsplit(response.headers["location"]).query))

    def initialize(token: str) -> int:
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
        return request("POST", "/mcp", json=body, headers=headers).status_code

    client = request("POST", "/register", json={"redirect_uris": [back]}).json()
    verifier = "v" * 64
    challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
    who = {"client_id": client["client_id"], "redirect_uri": back}
    asked = {
        **who,
        "response_type": "code",
        "state": "s",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    state = sent_to(request("GET", "/authorize", params=asked))["state"]
    returned = sent_to(request("GET", "/auth/callback", params={"code": "1", "state": state}))
    assert returned["state"] == "s"
    grant = {
        **who,
        "grant_type": "authorization_code",
        "code": returned["code"],
        "code_verifier": verifier,
    }
    tokens = request("POST", "/token", data=grant).json()
    assert initialize(tokens["access_token"]) == 200
    refresh = {**who, "grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    newer = request("POST", "/token", data=refresh).json()
    assert initialize(newer["access_token"]) == 200
    assert request("POST", "/token", data=grant).status_code == 401  # a code is valid once
    assert initialize("another") == 401
