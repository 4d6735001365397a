"""An agent that sends scripted messages, in a process that may be killed at any moment.

It takes orders from a connection, and acknowledges each when all that it meant is on the disk. An order comes
again if it was not acknowledged. What is acknowledged: the number of the order, and the message, as JSON, that
goes to the other side.
"""

import asyncio
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from collections_store import AsyncStore, RepeatedMessage, Store
from collections_store.aio.bridge import follow as follow_async
from collections_store.dialogues import AsyncDialogues, Dialogue, Dialogues, Message, Rules
from collections_store.operations.operation import Steps, follow

RULES = Rules(
    initial_performatives={"say"},
    terminal_performatives={"end"},
    valid_replies={"say": {"say", "end"}},
)
Answer: TypeAlias = Steps[Message | None]


@dataclass(frozen=True)
class Line:
    """An order to send a message."""

    performative: str
    body: Any


@dataclass(frozen=True)
class Order:
    """A message has come, which `line` answers; or a dialogue with `other` shall begin with the line."""

    number: int
    line: Line | None
    message: Any = None
    other: str = ""


def done(order: Order, dialogues: Any) -> Answer:
    """Execute an order, unless it was executed before: yields method calls, returns the message to send."""
    if order.message is None:
        return (yield from begun(order, dialogues.dialogues_in_active_state))
    try:
        dialogue: Dialogue = yield "update", Message.from_json(order.message)
    except RepeatedMessage as error:
        dialogue = error.dialogue
    last = dialogue.last_message
    assert last is not None
    if last.sender == dialogue.self_address:
        return last  # it was sent, and may not have been delivered
    if last.json != order.message or order.line is None:
        return None
    answer: Message = yield "reply", dialogue, order.line.performative, order.line.body
    return answer


def begun(order: Order, there: tuple[Dialogue, ...]) -> Answer:
    """Create a dialogue, unless it exists."""
    line = order.line
    assert line is not None
    for each in there:
        if each.messages[0].body["dialogue_id"] == line.body["dialogue_id"]:
            return each.messages[0]
    message: Message
    message, _ = yield "create", order.other, line.performative, line.body
    return message


def agent(connection: Connection, url: str, options: dict[str, Any], address: str) -> None:
    """Execute orders until None. First send the number of restored dialogues."""
    with Store(url, **options) as store:
        dialogues = Dialogues(store, address, rules=RULES)
        connection.send(dialogues.setup().active)
        while (order := connection.recv()) is not None:
            message = follow(
                lambda call: getattr(dialogues, call[0])(*call[1:]), done(order, dialogues)
            )
            connection.send((order.number, message and message.json))


def agent_async(connection: Connection, url: str, options: dict[str, Any], address: str) -> None:
    """Execute orders concurrently."""

    async def main() -> None:
        async with AsyncStore(url, **options) as store, asyncio.TaskGroup() as tasks:
            dialogues = AsyncDialogues(store, address, rules=RULES)
            connection.send((await dialogues.setup()).active)
            while (order := await asyncio.to_thread(connection.recv)) is not None:
                tasks.create_task(execute(dialogues, order))

    async def execute(dialogues: AsyncDialogues, order: Order) -> None:
        steps = done(order, dialogues)
        message = await follow_async(lambda call: getattr(dialogues, call[0])(*call[1:]), steps)
        connection.send((order.number, message and message.json))

    asyncio.run(main())
