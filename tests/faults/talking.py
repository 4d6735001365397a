"""A conversation of an agent with two others, step by step, in a process that may be killed at any of them."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from collections_store import AsyncStore, Store
from collections_store.aio.bridge import follow as follow_async
from collections_store.dialogues import AsyncDialogues, Dialogue, Dialogues, Message, Rules
from collections_store.operations.operation import Steps, follow

RULES = Rules(
    initial_performatives={"ask"},
    terminal_performatives={"accept": "agreed", "bye": "left"},
    valid_replies={
        "ask": {"offer", "bye"},
        "offer": {"haggle", "accept", "bye"},
        "haggle": {"offer"},
    },
)


@dataclass(frozen=True)
class ScriptLine:
    """A message of the script: from ada to another, or from the other to ada."""

    other: str
    by_ada: bool
    performative: str
    message_id: int
    target: int

    @property
    def summary(self) -> tuple[Any, ...]:
        sides = ("ada", self.other) if self.by_ada else (self.other, "ada")
        return self.performative, self.message_id, self.target, *sides

    @property
    def ends(self) -> bool:
        return RULES.state_after(self.performative) is not None


SCRIPT = (
    ScriptLine("bob", True, "ask", 1, 0),
    ScriptLine("bob", False, "offer", -1, 1),
    ScriptLine("bob", True, "haggle", 2, -1),
    ScriptLine("carol", False, "ask", 1, 0),
    ScriptLine("bob", False, "offer", -2, 2),
    ScriptLine("carol", True, "offer", -1, 1),
    ScriptLine("carol", False, "bye", 2, -1),
    ScriptLine("bob", True, "haggle", 3, -2),
    ScriptLine("bob", False, "offer", -3, 3),
    ScriptLine("bob", True, "accept", 4, -3),
)
"""Ada asks Bob, Carol asks Ada. The dialogues alternate, and Carol's ends first."""


def summary(message: Message) -> tuple[Any, ...]:
    """Return the fields of a message that a line of the script has."""
    ids = message.message_id, message.target
    return message.performative, *ids, message.sender, message.to


def message_of_counterparty(line: ScriptLine, dialogue: Dialogue | None) -> Message:
    """Return a message of the counterparty."""
    own = f"{line.other}s-reference"
    first = dialogue.messages[0].dialogue_reference[0] if dialogue else own
    answered = dialogue.dialogue_label.dialogue_reference[1] if dialogue else ""
    pair = (first, own) if line.other == "bob" else (own, answered)
    numbers = line.message_id, line.target
    return Message(
        line.performative, {"step": SCRIPT.index(line)}, *numbers, pair, line.other, "ada"
    )


def talk(begin: int, accepted: Callable[[int], None]) -> Steps[None]:
    """Play the script from a step on; yields method calls, and receives their results."""
    for step, line in enumerate(SCRIPT[begin:], begin):
        found = yield "get_dialogues_with_counterparty", line.other
        dialogue = found[0] if found else None
        if not line.by_ada:
            yield "update", message_of_counterparty(line, dialogue)
        elif dialogue is None:
            yield "create", line.other, line.performative, {"step": step}
        else:
            yield "reply", dialogue, line.performative, {"step": step}
        accepted(step + 1)


def calling(dialogues: Any) -> Callable[[Any], Any]:
    """Return a function that makes a yielded method call."""
    return lambda call: getattr(dialogues, call[0])(*call[1:])


class Planned(Exception):
    """The planned exception of the program."""


END_BY: dict[str, Callable[[], Any]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
}


def play(
    connection: Connection, url: str, options: dict[str, Any], variant: str, plan: dict[str, Any]
) -> None:
    """Play the script, send each accepted step, and end after the step `at` of the plan by its means `by`."""

    def accepted(steps: int) -> None:
        connection.send(steps)
        if steps == plan.get("at"):
            END_BY.get(plan["by"], _fail)()

    calls = talk(0, accepted)
    try:
        if variant == "sync":
            _play(url, options, plan["dialogues"], calls, connection)
        else:
            asyncio.run(_play_async(url, options, plan["dialogues"], calls, connection))
    except Planned:
        os._exit(3)


def _fail() -> None:
    raise Planned


def _play(
    url: str,
    options: dict[str, Any],
    how: dict[str, Any],
    calls: Steps[None],
    connection: Connection,
) -> None:
    with Store(url, **options) as store:
        dialogues = Dialogues(store, "ada", rules=RULES, **how)
        connection.send(dialogues.setup().active)
        follow(calling(dialogues), calls)


async def _play_async(
    url: str,
    options: dict[str, Any],
    how: dict[str, Any],
    calls: Steps[None],
    connection: Connection,
) -> None:
    async with AsyncStore(url, **options) as store:
        dialogues = AsyncDialogues(store, "ada", rules=RULES, **how)
        connection.send((await dialogues.setup()).active)
        await follow_async(calling(dialogues), calls)
