"""The cost of storing dialogues: 10,000 of 20 messages, against the bare driver doing the same work.

`nox -s bench -- tests/benchmarks/test_dialogue_costs.py`. The floor inserts a row for each message, in a transaction of
its own, on a table like that of the messages. `DIALOGUES=1000` in the environment is quicker.
"""

import asyncio
import itertools
import os
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeAlias

import orjson
import pytest
from benchmarks.rounds import Bench, Floor, bench

from collections_store import AsyncStore, Store
from collections_store.dialogues import AsyncDialogues, Dialogues, Message, Rules

__all__ = ["bench"]
pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
DIALOGUES, MESSAGES = int(os.environ.get("DIALOGUES", "10000")), 20
TASKS = 64
RULES = Rules(terminal_performatives={"end"})
BODY = {
    "utterance": "I would like to find a place to eat.",
    "intent": "FindRestaurants",
    "slots": [{"slot": "city", "value": "San Jose"}],
}
Row: TypeAlias = Callable[..., None]


@pytest.fixture
def row(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Row:
    """Print a line of the table."""
    backend = request.node.callspec.id

    def row(what: str, value: float, unit: str = "µs") -> None:
        with capsys.disabled():
            print(f"\n  {backend + ', ' + what:<58} {value:10.1f} {unit}", end="")

    return row


def opponent(number: int) -> str:
    """Return the counterparty of a dialogue; each has five dialogues."""
    return f"agent{number // 5}"


def body(number: int) -> Any:
    return {**BODY, "intent": f"intent{number // 10}"}


def timed(function: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def other_side(message: Message, number: int, turn: int) -> Message:
    """Return the reply of the opponent."""
    reference = (message.dialogue_reference[0], f"ref{number}")
    parties = message.to, message.sender
    return Message("say", BODY, -turn, message.message_id, reference, *parties)


def talk(dialogues: Dialogues, number: int, messages: int, last: str = "say") -> Any:
    """Create a dialogue of `count` messages, half of them the opponent's, and return it."""
    message, dialogue = dialogues.create(opponent(number), "say", body(number))
    for turn in range(1, messages // 2 + 1):
        dialogues.update(other_side(message, number, turn))
        if turn < messages // 2:
            word = last if turn == messages // 2 - 1 and last == "end" else "say"
            message = dialogues.reply(dialogue, word, BODY)
            if word == "end":
                break
    return dialogue


async def talk_async(dialogues: AsyncDialogues, number: int, messages: int) -> None:
    message, dialogue = await dialogues.create(opponent(number), "say", body(number))
    for turn in range(1, messages // 2 + 1):
        await dialogues.update(other_side(message, number, turn))
        if turn < messages // 2:
            message = await dialogues.reply(dialogue, "say", BODY)


class FloorOfMessages(Floor):
    """The bare driver, inserting messages."""

    def insert(self, count: int) -> None:
        insert = self._upsert.partition(" ON CONFLICT")[0]
        text = orjson.dumps(Message("say", BODY, 1, 0, ("a" * 32, "b"), "ada", "bob").json).decode()
        for number in range(count):
            now = (time.time_ns() // 1000,) * self._times
            self.connection.execute(insert, (f"{number:042d}", text, *now))


@pytest.mark.parametrize("indexed", [True, False], ids=["body index", "no body index"])
def test_saving(bench: Bench, row: Row, indexed: bool) -> None:
    backend, options = bench
    if not (indexed or backend.is_postgresql):
        pytest.skip("SQLite has no index over bodies")
    count = DIALOGUES // 20
    with Store(backend.url, **backend.options, **options) as store:
        store.create_collection("floor", body_index=indexed)
        store.run_transaction(lambda tx: tx["floor"].put("x", 1))
        floor = FloorOfMessages(backend, options, "cs_1_floor")
        dialogues = Dialogues(store, "ada", rules=RULES)
        for name in dialogues._manager.repository.names.all:
            store.create_collection(name, body_index=indexed)
        dialogues.setup()
        total = count * MESSAGES
        low = timed(lambda: floor.insert(total)) / total * 1e6
        ours = timed(lambda: [talk(dialogues, n, MESSAGES) for n in range(count)]) / total * 1e6
        floor.connection.close()
    row("insert by the driver, each", low)
    row("save, each message", ours)
    row("   in proportion to the driver", ours / low, "times")


def test_saving_async(bench: Bench, row: Row) -> None:
    backend, options = bench
    count = DIALOGUES // 20

    async def main() -> float:
        async with AsyncStore(backend.url, **backend.options, **options) as store:
            dialogues = AsyncDialogues(store, "ada", rules=RULES)
            await dialogues.setup()
            numbers = iter(range(count))

            async def work() -> None:
                for number in numbers:
                    await talk_async(dialogues, number, MESSAGES)

            begun = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(TASKS)))
            return time.perf_counter() - begun

    row(f"save, {TASKS} tasks, each message", asyncio.run(main()) / count / MESSAGES * 1e6)


@pytest.fixture
def full(bench: Bench) -> Bench:
    """A backend with 10,000 active dialogues."""
    backend, options = bench
    with Store(backend.url, **backend.options, **options) as store:
        for _ in range(10):
            dialogues = Dialogues(store, "ada", rules=RULES, save="teardown")
            write_some(dialogues)
            dialogues.teardown()
    return bench


def write_some(dialogues: Dialogues) -> None:
    begin = dialogues.setup().active
    for number in range(begin, begin + DIALOGUES // 10):
        talk(dialogues, number, MESSAGES)


@pytest.mark.parametrize("bench", ["sqlite normal", "postgresql"], indirect=True)
def test_restore_and_teardown(full: Bench, row: Row) -> None:
    backend, options = full
    with Store(backend.url, **backend.options, **options) as store:
        dialogues = Dialogues(store, "ada", rules=RULES)
        row(f"restore {DIALOGUES} active, each", timed(dialogues.setup) / DIALOGUES * 1e6)
        assert len(dialogues.dialogues_in_active_state) == DIALOGUES
        row("teardown, nothing changed", timed(dialogues.teardown) * 1e3, "ms")
        dialogues.setup()
        for each in dialogues.dialogues_in_active_state[::100]:
            each.metadata["changed"] = True
        row("teardown, 1 % changed", timed(dialogues.teardown) * 1e3, "ms")
        tracemalloc.start()
        dialogues.setup()
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        row("memory of each dialogue restored", now / DIALOGUES / 1000, "KB")
        row("   and beyond that while it is restored, in all", (peak - now) / 1e6, "MB")


@pytest.mark.parametrize("bench", ["sqlite normal", "postgresql"], indirect=True)
def test_lookups(bench: Bench, row: Row) -> None:
    backend, options = bench
    with Store(backend.url, **backend.options, **options) as store:
        dialogues = Dialogues(store, "ada", rules=RULES, cached=0)
        dialogues.setup()
        store[dialogues._manager.repository.names.messages].create_index("body.intent")
        labels: list[Any] = []
        for count in (DIALOGUES // 10, DIALOGUES):
            for number in range(len(labels), count):
                labels += [talk(dialogues, number, 6, last="end").dialogue_label]
            ways: dict[str, Callable[..., Any]] = {
                "by label": lambda n, labels=tuple(labels): dialogues.get_dialogue_from_label(
                    labels[n]
                ),
                "by counterparty (5 dialogues)": lambda n: (
                    dialogues.get_dialogues_with_counterparty(opponent(n))
                ),
                "by intent of a message (10 dialogues)": lambda n: dialogues.find(
                    "messages.body.intent", f"intent{n // 10}"
                ),
            }
            for name, way in ways.items():
                numbers = list(itertools.islice(range(0, count, max(1, count // 200)), 200))
                took = timed(lambda: [way(n) for n in numbers])  # noqa: B023
                row(f"{name}, of {count} terminal", took / len(numbers) * 1e6)
