"""A transaction pooler for PostgreSQL, as strict as one can be: no two transactions of a client in a row have the same
server connection.

It keeps nothing of a client between two transactions, neither settings nor prepared statements, as PgBouncer before 1.21
does. It refuses a Flush that follows a Sync: such a message may arrive after the transaction, and PgBouncer then reserves a
connection of the server until the client's next transaction. libpq logs in; then the pooler speaks the protocol on libpq's
sockets.
"""

import asyncio
import math
import os
import socket
import struct
import threading
import time
from collections import deque
from typing import Any, Self

import psycopg
import sqlalchemy as sa

POOLER_VARIABLE = "COLLECTIONS_STORE_TEST_POOLER_URL"
"""Names the URL of another pooler, of the same server, through which the tests then run."""
TLS, GSS, CANCEL = 80877103, 80877104, 80877102
ALLOWED = {"user", "database", "client_encoding", "application_name"}
"""The startup parameters that PgBouncer accepts, of those that psycopg sends."""
STATUS = ("server_version", "server_encoding", "client_encoding", "standard_conforming_strings", "integer_datetimes",
          "TimeZone", "DateStyle")  # fmt: skip
READY, IDLE = b"Z", b"I"
ENDS = {b"Q", b"S", b"F"}
"""The messages after each of which the server reports that it is ready: a query, Sync and a function call."""


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message of the protocol."""
    return kind + struct.pack("!I", len(body) + 4) + body


def fatal(text: str) -> bytes:
    """Return a fatal error, with PgBouncer's state."""
    return message(b"E", b"SFATAL\0VFATAL\0C08P01\0M" + text.encode() + b"\0\0")


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the kind and the body of a message; raises `IncompleteReadError` at the end."""
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


class PoolerError(Exception):
    """Ends a client; its message is an error of the protocol."""


class Server:
    """A connection to the server."""

    def __init__(self, url: sa.URL) -> None:
        options = {**url.translate_connect_args(username="user", database="dbname"), **url.query}
        self._login = psycopg.connect(sslmode="disable", gssencmode="disable", **options)
        connection = self._login.pgconn
        self.status = b"".join(
            message(b"S", name.encode() + b"\0" + (connection.parameter_status(name.encode()) or b"") + b"\0")
            for name in STATUS
        )  # fmt: skip
        self.used_by: Client | None = None

    async def open(self) -> Self:
        """Take the socket over from libpq."""
        own = socket.socket(fileno=os.dup(self._login.pgconn.socket))
        self.reader, self.writer = await asyncio.open_connection(sock=own)
        return self

    def cancel(self) -> None:
        """Cancel what the connection executes."""
        self._login.cancel_safe(timeout=5)

    def close(self) -> None:
        """End the connection."""
        self.writer.close()
        self._login.close()


class TransactionPooler:
    """A pooler in a thread of its own, as a context manager; `url` leads to it."""

    def __init__(self, url: str) -> None:
        self._target = sa.make_url(url)
        self._idle: deque[Server] = deque()
        self.clients: dict[bytes, Client] = {}
        self.is_full = False
        """Whether no client gets a connection of the server."""
        self.query_wait_timeout = math.inf
        """Seconds after which a client that waits for a connection of the server is disconnected."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pooler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def fill(self) -> None:
        """Give no client a connection of the server from now on, after the clients have returned theirs."""
        while any(each.server is not None for each in list(self.clients.values())):
            time.sleep(0.001)
        self.is_full = True

    def __exit__(self, *_: object) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _start(self) -> None:
        for _ in range(2):
            self._idle.append(await self._connect())
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._listener.sockets[0].getsockname()
        self.url = self._target.set(host=host, port=port).render_as_string(hide_password=False)

    async def _stop(self) -> None:
        self._listener.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._idle:
            server.close()

    async def _connect(self) -> Server:
        login = self._loop.run_in_executor(None, Server, self._target)
        try:
            return await (await asyncio.shield(login)).open()
        except asyncio.CancelledError:  # the thread logs in nevertheless
            (await (await login).open()).close()
            raise

    async def acquire(self, client: "Client") -> Server:
        """Return a server connection that the client did not use last."""
        waited = 0.0
        while self.is_full:
            if waited > self.query_wait_timeout:
                raise PoolerError("query_wait_timeout")
            await asyncio.sleep(0.01)
            waited += 0.01
        for server in tuple(self._idle):
            if server.reader.at_eof():
                self._idle.remove(server)
                server.close()
            elif server.used_by is not client:
                self._idle.remove(server)
                break
        else:
            server = await self._connect()
        server.used_by = client
        return server

    def release(self, server: Server) -> None:
        """Return a server connection that is in no transaction."""
        for other in self._idle:  # the client used it before this one
            if other.used_by is server.used_by:
                other.used_by = None
        self._idle.append(server)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(self, reader, writer)
        try:
            await client.serve()
        except PoolerError as failure:
            writer.write(fatal(str(failure)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.clients.pop(client.key, None)
            client.close()

    def status(self) -> bytes:
        """Return what a server reports at login."""
        return self._idle[0].status if self._idle else b""


class Client:
    """A connection of a client."""

    def __init__(
        self, pooler: TransactionPooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._pooler, self._reader, self._writer = pooler, reader, writer
        self.key = os.urandom(8)
        self.server: Server | None = None
        self._pending = 0
        """How often the server will still report that it is ready."""
        self._answers: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Serve the client until it ends."""
        if not await self._start():
            return
        previous = b""
        while True:
            kind, body = await read_message(self._reader)
            if kind == b"X":
                return
            if kind == b"H" and previous in ENDS:
                raise PoolerError("nothing to flush")
            previous = kind
            if self.server is None:
                self.server = await self._pooler.acquire(self)
                self._answers = asyncio.create_task(self._relay_answers(self.server))
            self._pending += kind in ENDS
            self.server.writer.write(message(kind, body))
            await self.server.writer.drain()

    async def _start(self) -> bool:
        while True:
            length, code = struct.unpack("!II", await self._reader.readexactly(8))
            body = await self._reader.readexactly(length - 8)
            if code not in {TLS, GSS}:
                break
            self._writer.write(b"N")
        if code == CANCEL:
            found = self._pooler.clients.get(body)
            if found is not None and found.server is not None:
                await asyncio.to_thread(found.server.cancel)
            return False
        words = body.decode().rstrip("\0").split("\0")
        refused = set(words[::2]) - ALLOWED
        if refused:
            raise PoolerError(f"unsupported startup parameter: {refused.pop()}")
        self._pooler.clients[self.key] = self
        welcome = message(b"R", bytes(4)), self._pooler.status(), message(b"K", self.key)
        self._writer.write(b"".join(welcome) + message(READY, IDLE))
        return True

    async def _relay_answers(self, server: Server) -> None:
        """Pass the server's messages on until it is ready, in no transaction, and has answered everything."""
        try:
            while True:
                kind, body = await read_message(server.reader)
                self._pending -= kind == READY
                is_last = kind == READY and body == IDLE and not self._pending
                if is_last:
                    self.server = None
                    self._pooler.release(server)
                self._writer.write(message(kind, body))
                await self._writer.drain()
                if is_last:  # not: no server, for the client can meanwhile have another
                    return
        except (asyncio.IncompleteReadError, ConnectionError):  # the server ended, or the client
            self._writer.close()

    def close(self) -> None:
        """End the client, and its transaction with the server's connection."""
        self._writer.close()
        if self._answers is not None:
            self._answers.cancel()
        if self.server is not None:
            self.server.close()
