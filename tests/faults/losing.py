"""Writes in doubt: the commit succeeds, and the confirmation is lost."""

import re
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import sqlalchemy as sa

from collections_store import Store

_WROTE = re.compile(rb"(?:INSERT 0|UPDATE|DELETE) [1-9]\d*\0")
_IS_OVER = b"Z\0\0\0\x05I"
"""PostgreSQL's answer at the end of a transaction: ready, in no transaction."""


class Proxy:
    """A proxy for PostgreSQL. When armed, it drops the connection whose write was just committed."""

    def __init__(self, url: str) -> None:
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.url = sa.make_url(url).set(host=host, port=port).render_as_string(hide_password=False)
        self._armed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, *urls: str) -> None:
        """Lead new connections to another server, or to several in turns."""
        self._targets = cycle(map(sa.make_url, urls))

    @contextmanager
    def dropping(self) -> Iterator[None]:
        """Drop the connection of the next write, once it is committed."""
        self._armed.set()
        yield
        assert not self._armed.is_set(), "nothing was written"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            target = next(self._targets)
            try:
                server = socket.create_connection((target.host, target.port or 5432))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        wrote = False
        with client, server, selectors.DefaultSelector() as ready:
            for each in other:
                ready.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    source: Any = key.fileobj
                    try:
                        data = source.recv(1 << 16)
                        wrote = wrote or bool(source is server and _WROTE.search(data))
                        is_over = source is server and _IS_OVER in data
                        if not data or (wrote and is_over and self._disarm()):
                            return
                        wrote = wrote and not is_over
                        other[source].sendall(data)
                    except OSError:
                        return

    def _disarm(self) -> bool:
        was_armed = self._armed.is_set()
        self._armed.clear()
        return was_armed


class Interrupted(BaseException):
    """Raised in a thread by an alarm, a timeout or Ctrl-C."""


@contextmanager
def interrupted() -> Iterator[None]:
    """Interrupt the thread when the next write of a store is about to return."""
    over = []

    def profile(frame: Any, event: str, _: Any) -> None:
        returns = event == "return" and frame.f_code.co_name == "run"
        found = frame.f_locals if returns else {}
        if isinstance(found.get("self"), Store) and found["operation"].writes:
            sys.setprofile(None)
            over.append(frame)
            raise Interrupted

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        assert over, "nothing was written"
