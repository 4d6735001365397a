"""An MCP server with sessions in a store, which prints its port: `python mcp_server.py URL OPTIONS GATE`.

The tool `count` reports progress up to `n`, and waits after the first report until the file GATE exists.
"""

import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from collections_store.integrations.mcp_events import MCPEventStore


def wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.01)


def new_server(gate: Path | None = None, **options: Any) -> MCPServer:
    """Return the server; without a gate `count` does not wait."""
    server = MCPServer("counter", **options)

    @server.tool()
    async def count(n: int, context: Context) -> str:
        for number in range(n):
            await context.report_progress(number, n)
            if gate is not None:
                await asyncio.to_thread(wait_for, gate)
        return f"counted to {n}"

    @server.tool()
    async def announce(n: int, context: Context) -> str:
        """Send messages that belong to no request."""
        for number in range(n):
            await context.session.send_resource_updated(f"file:///{number}")
        return "announced"

    @server.tool()
    async def client(context: Context) -> str:
        """Return what the server knows of the client."""
        capabilities = context.client_capabilities
        return json.dumps(
            [
                context.protocol_version,
                capabilities is not None and capabilities.sampling is not None,
            ]
        )

    return server


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve an app on a free port; yield its URL."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve([listening]))
    try:
        while not server.started:
            assert not task.done()
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    finally:
        server.should_exit = server.force_exit = True
        await task


async def main(url: str, options: dict[str, Any], gate: str) -> None:
    async with MCPEventStore(url, **options) as events:
        app = new_server(Path(gate)).streamable_http_app(event_store=events)
        async with serving(events.resumable(app)) as address:
            sys.stdout.write(address + "\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]))
