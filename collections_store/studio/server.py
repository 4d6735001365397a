"""The server of the command: a store's pages at an address of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from ..errors import InvalidOption
from .aio import Admission
from .app import pages_over
from .security import COOKIE, HostNames, Tokens, is_loopback

if TYPE_CHECKING:
    from ..store import Store


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where the server listens. Port 0: a free port. `token`: None for a token of one use."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None

    def listen(self) -> socket.socket:
        """Return the listening socket. Raise `InvalidOption` for an empty token, or an address beyond this machine without
        a token, and `OSError`.
        """
        if self.token == "":
            raise InvalidOption("--token", "must not be empty: omit it for a generated token")
        if self.token is None and not is_loopback(self.host):
            problem = (
                "must be a loopback address, or --token must be given: the page shows all documents"
            )
            raise InvalidOption("--host", problem)
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(
            family, kind, protocol
        )  # without a protocol, asyncio delays answers
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen()
        except BaseException:
            listener.close()
            raise
        return listener


def serve(
    store: Store,
    address: ListenAddress,
    ready: Callable[[str], object],
    *,
    write: bool,
    using: Any = None,
    other: Store | None = None,
) -> None:
    """Serve the pages until Ctrl-C, `KeyboardInterrupt`. Call `ready` with the link as soon as the server listens. The server has a
    thread of its own: no long page delays the signal.
    """
    with address.listen() as listener:
        port = listener.getsockname()[1]
        tokens = Tokens(address.token)
        admission = Admission(
            tokens=tokens, hosts=HostNames(address.host, port), cookie=f"{COOKIE}_{port}"
        )
        name = f"[{address.host}]" if ":" in address.host else address.host
        link = f"http://{name}:{port}/?token={tokens.token}"
        config = uvicorn.Config(
            pages_over(store, admission, write=write, using=using, other=other),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
        )
        run = partial(uvicorn.Server(config).run, sockets=[listener])
        thread = threading.Thread(target=run, name="studio", daemon=True)
        thread.start()
        ready(link)  # a browser of the terminal returns when the person ends it
        while thread.is_alive():
            thread.join(0.5)  # without a timeout, Windows handles no signal
