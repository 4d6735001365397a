"""The program of `llama_index_storage.py`: processes that write at once, forked from one that has imported LlamaIndex.

One of them is killed while it writes. The program prints how many batches that one had written before.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from llama_index.core.base.llms.types import ChatMessage

from collections_store import AsyncStore
from collections_store.integrations.llama_index import (
    LlamaIndexChatStore,
    LlamaIndexKVStore,
    LlamaIndexMemoryStore,
)

URL, OPTIONS = sys.argv[1], json.loads(sys.argv[2])


def said(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


async def write(process: int) -> None:
    """Write from 16 tasks: values, and messages to conversations that all processes have."""
    async with AsyncStore(URL, **OPTIONS) as store:
        values, chats = LlamaIndexKVStore(store), LlamaIndexChatStore(store)

        async def task(task: int) -> None:
            for n in range(5):
                await values.aput(f"{process}-{n}", {"n": n}, collection=f"of {task}")
                await chats.async_add_message(f"key {task}", said(f"{process} {n}"))

        await asyncio.gather(*map(task, range(16)))


async def append_batches(output: int) -> None:
    """Append batches of 10 messages, and write a byte after each, until the process is killed."""
    async with LlamaIndexMemoryStore(URL, **OPTIONS) as messages:
        for n in itertools.count():
            await messages.add_messages("killed", [said(f"{n}.{i}") for i in range(10)])
            os.write(output, b".")


def fork(main: Coroutine[Any, Any, None]) -> int:
    if child := os.fork():
        main.close()
        return child
    asyncio.run(main)
    os._exit(0)


output, end = os.pipe()
killed = fork(append_batches(end))
print(sum(len(os.read(output, 1)) for _ in range(7)), flush=True)
children = [fork(write(process)) for process in range(4)]
os.kill(killed, signal.SIGKILL)
os.waitpid(killed, 0)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
