"""Clients of a studio: of the command, with its link, and of another application."""

import re
from typing import Any

from starlette.testclient import TestClient

from collections_store.studio.aio import Admission
from collections_store.studio.app import pages_over
from collections_store.studio.security import HostNames, Tokens

HOST = "127.0.0.1:8421"


def browser(store: Any, *, write: bool = False, using: Any = None) -> TestClient:
    """Return a client that opened the link of the command, over a store of the tests."""
    store = getattr(store, "_target", store)
    tokens = Tokens()
    app = pages_over(
        store,
        Admission(tokens=tokens, hosts=HostNames("127.0.0.1", 8421)),
        write=write,
        using=using,
    )
    client = TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)
    assert client.get(f"/?token={tokens.token}", follow_redirects=False).status_code == 303
    return client


def form_token(client: TestClient, page: str) -> str:
    """Return the token of the forms of a page."""
    [token] = set(re.findall(r'name="form_token" value="(\w+)"', client.get(page).text))
    return str(token)
