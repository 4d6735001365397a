"""Two agents in processes, and the transport of their messages: it delivers at least once, and sometimes kills an
agent.
"""

import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

from dialogues.scripts import SPEAKERS, Script
from dialogues.two_agents import Line, Order
from forked import Forked


@dataclass
class Side:
    """An agent, and the orders that it has not acknowledged."""

    start: Callable[[], Forked]
    process: Forked | None = None
    waiting: dict[int, Order] = field(default_factory=dict)
    restored: list[int] = field(default_factory=list)

    def order(self, order: Order) -> None:
        self.waiting[order.number] = order
        self._send(order)

    def revive(self) -> None:
        """Start the process, or restart it with the orders that were not acknowledged."""
        self.process = self.start()
        self.restored.append(self.process.connection.recv())
        for each in self.waiting.values():
            self._send(each)

    def _send(self, order: Order) -> None:
        assert self.process is not None
        with suppress(OSError):  # the process is dead, and gets all orders when it is restarted
            self.process.connection.send(order)


class Conversation:
    """Plays several scripts at a time. `kill_every` is the mean number of messages between two kills."""

    def __init__(
        self,
        scripts: list[Script],
        start: Callable[[str], Forked],
        *,
        seed: int,
        at_once: int = 16,
        kill_every: int = 110,
    ) -> None:
        self.scripts = {script.id: script for script in scripts}
        self.sides = {name: Side(lambda name=name: start(name)) for name in SPEAKERS}  # type: ignore[misc]
        self.kills = 0
        self.delivered = 0
        self._begin = deque(scripts)
        self._draw, self._at_once, self._kill_every = random.Random(seed), at_once, kill_every
        self._numbers = iter(range(10**9))
        self._carried: deque[Any] = deque(maxlen=200)

    def run(self) -> None:
        """Play all scripts to the end."""
        try:
            for side in self.sides.values():
                side.revive()
            self._play()
        finally:
            self._end()

    def _play(self) -> None:
        next_death = self._until_a_death()
        while self._fill():
            for name, (number, message) in self._acknowledged():
                self._took(name, number, message)
            if self.delivered >= next_death:
                self._kill()
                next_death = self.delivered + self._until_a_death()

    def _fill(self) -> bool:
        """Start dialogues until enough are active. Return False if all have ended."""
        starter, other = SPEAKERS
        while (
            self._begin and sum(len(each.waiting) for each in self.sides.values()) < self._at_once
        ):
            script = self._begin.popleft()
            line = Line(script.performative(0), script.bodies[0])
            self.sides[starter].order(Order(next(self._numbers), line, other=other))
        return any(each.waiting for each in self.sides.values())

    def _acknowledged(self) -> Iterator[tuple[str, tuple[int, Any]]]:
        """Yield the next acknowledgments of running processes."""
        living = {
            each.process.connection: name for name, each in self.sides.items() if each.process
        }
        ready = connection.wait(living, timeout=60)
        for each, name in living.items():
            if each in ready:
                yield name, each.recv()

    def _took(self, name: str, number: int, message: Any) -> None:
        """Record an acknowledgment, and deliver the reply; sometimes deliver an earlier message again."""
        self.sides[name].waiting.pop(number)
        if message is not None:
            self._deliver(message)
            self._carried.append(message)
            if self._draw.random() < 0.1:
                self._deliver(self._draw.choice(self._carried))

    def _deliver(self, message: Any) -> None:
        side = self.sides[message["to"]]
        self.delivered += 1
        if all(each.message != message for each in side.waiting.values()):
            side.order(Order(next(self._numbers), self._answer(message), message))

    def _answer(self, message: Any) -> Line | None:
        """Return the reply of the script."""
        script, turn = self.scripts[message["body"]["dialogue_id"]], message["body"]["turn"] + 1
        if turn == len(script.bodies):
            return None
        return Line(script.performative(turn), script.bodies[turn])

    def _until_a_death(self) -> int:
        return 1 + round(self._draw.expovariate(1 / self._kill_every))

    def _kill(self) -> None:
        """Kill an agent at any moment, and restart it."""
        name = self._draw.choice(SPEAKERS)
        side = self.sides[name]
        time.sleep(self._draw.uniform(0, 0.003))
        assert side.process is not None
        side.process.kill(self._draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        self.kills += 1
        for number, message in side.process.rest():
            self._took(name, number, message)
        side.revive()

    def _end(self) -> None:
        for side in self.sides.values():
            if side.process is not None:
                side.process.end()
