"""Clients of a studio: of the command, with its link, and of another application."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cli.cli_process import COMMAND
from starlette.testclient import TestClient

from collections_store.studio.aio import Admission
from collections_store.studio.app import pages_over
from collections_store.studio.security import HostNames, Tokens

HOST = "127.0.0.1:8421"


def browser(store: Any, *, write: bool = False, using: Any = None, other: Any = None) -> TestClient:
    """Return a client that opened the link of the command, over a store of the tests."""
    store = getattr(store, "_target", store)
    tokens = Tokens()
    app = pages_over(
        store,
        Admission(tokens=tokens, hosts=HostNames("127.0.0.1", 8421)),
        write=write,
        using=using,
        other=getattr(other, "_target", other),
    )
    client = TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)
    assert client.get(f"/?token={tokens.token}", follow_redirects=False).status_code == 303
    return client


def form_token(client: TestClient, page: str) -> str:
    """Return the token of the forms of a page."""
    [token] = set(re.findall(r'name="form_token" value="(\w+)"', client.get(page).text))
    return str(token)


@contextmanager
def studio_at(url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command; yield the process and its link."""
    command = [*COMMAND, "studio", url, "--no-browser", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, (line, process.stderr.read() if process.poll() is not None else "")
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()
