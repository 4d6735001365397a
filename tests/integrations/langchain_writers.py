"""The program of `test_langchain.py`: processes that write at once, forked from one that has imported LangChain.

One of them is killed while it writes. The program prints how many calls that one had made before.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from collections_store.integrations.langchain import LangChainHistories

URL, OPTIONS = sys.argv[1], json.loads(sys.argv[2])


async def write(process: int) -> None:
    """Write from 16 tasks to sessions that all processes have."""
    async with LangChainHistories(URL, **OPTIONS) as histories:

        async def task(task: int) -> None:
            for n in range(0, 10, 2):
                pair = [HumanMessage(f"{process} {n}"), AIMessage(f"{process} {n + 1}")]
                await histories.history(f"session {task}").aadd_messages(pair)

        await asyncio.gather(*map(task, range(16)))


async def append(output: int) -> None:
    """Append questions with answers, and write a byte after each, until the process is killed."""
    async with LangChainHistories(URL, **OPTIONS) as histories:
        for n in itertools.count():
            pair = [HumanMessage(f"question {n}"), AIMessage(f"answer {n}")]
            await histories.history("killed").aadd_messages(pair)
            os.write(output, b".")


def fork(main: Coroutine[Any, Any, None]) -> int:
    if child := os.fork():
        main.close()
        return child
    asyncio.run(main)
    os._exit(0)


output, end = os.pipe()
killed = fork(append(end))
print(sum(len(os.read(output, 1)) for _ in range(7)), flush=True)
children = [fork(write(process)) for process in range(4)]
os.kill(killed, signal.SIGKILL)
os.waitpid(killed, 0)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
