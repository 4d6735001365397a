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
class Said:
    """A step: what ada says to another, or the other to her."""

    other: str
    by_ada: bool
    performative: str
    message_id: int
    target: int

    @property
    def shown(self) -> tuple[Any, ...]:
        sides = ("ada", self.other) if self.by_ada else (self.other, "ada")
        return self.performative, self.message_id, self.target, *sides

    @property
    def ends(self) -> bool:
        return RULES.state_after(self.performative) is not None


SCRIPT = (
    Said("bob", True, "ask", 1, 0),
    Said("bob", False, "offer", -1, 1),
    Said("bob", True, "haggle", 2, -1),
    Said("carol", False, "ask", 1, 0),
    Said("bob", False, "offer", -2, 2),
    Said("carol", True, "offer", -1, 1),
    Said("carol", False, "bye", 2, -1),
    Said("bob", True, "haggle", 3, -2),
    Said("bob", False, "offer", -3, 3),
    Said("bob", True, "accept", 4, -3),
)
"""Ada asks Bob, Carol asks Ada; both dialogues go on in turns, and Carol's ends first."""


def shown(message: Message) -> tuple[Any, ...]:
    """Return of a message what a step tells of it."""
    ids = message.message_id, message.target
    return message.performative, *ids, message.sender, message.to


def from_other(said: Said, dialogue: Dialogue | None) -> Message:
    """Return a message of the other side: the references are bob's or carol's own, the rest is ada's."""
    own = f"{said.other}s-reference"
    first = dialogue.messages[0].dialogue_reference[0] if dialogue else own
    answered = dialogue.dialogue_label.dialogue_reference[1] if dialogue else ""
    pair = (first, own) if said.other == "bob" else (own, answered)
    numbers = said.message_id, said.target
    return Message(
        said.performative, {"step": SCRIPT.index(said)}, *numbers, pair, said.other, "ada"
    )


def talk(begin: int, accepted: Callable[[int], None]) -> Steps[None]:
    """Say all from a step on; yields verbs with their arguments, and takes their results."""
    for step, said in enumerate(SCRIPT[begin:], begin):
        found = yield "get_dialogues_with_counterparty", said.other
        dialogue = found[0] if found else None
        if not said.by_ada:
            yield "update", from_other(said, dialogue)
        elif dialogue is None:
            yield "create", said.other, said.performative, {"step": step}
        else:
            yield "reply", dialogue, said.performative, {"step": step}
        accepted(step + 1)


def calling(dialogues: Any) -> Callable[[Any], Any]:
    """Return what calls a verb that is yielded."""
    return lambda call: getattr(dialogues, call[0])(*call[1:])


class Planned(Exception):
    """What goes wrong in the program, as it was told."""


END_BY: dict[str, Callable[[], Any]] = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
}


def play(
    connection: Connection, url: str, options: dict[str, Any], variant: str, plan: dict[str, Any]
) -> None:
    """Talk, tell of each step that was accepted, and end after one of them as planned: `at`, `by`."""

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
