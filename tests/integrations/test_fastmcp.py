"""FastMCP servers that keep their state in our storage of py-key-value."""

import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from backends import Backend
from integrations.test_key_value import use
from selection import missing

if _reason := missing("fastmcp"):
    pytest.skip(_reason, allow_module_level=True)

from cryptography.fernet import Fernet
from fastmcp import Client, FastMCP
from fastmcp.server.auth import OAuthProxy
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.event_store import EventStore
from fastmcp.server.middleware.caching import ResponseCachingMiddleware
from key_value.aio.wrappers.encryption import FernetEncryptionWrapper
from mcp.types import JSONRPCNotification

from collections_store.integrations.key_value import KeyValueStore


def test_a_fastmcp_server_keeps_cached_responses_over_a_restart(shared_backend: Backend) -> None:
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
