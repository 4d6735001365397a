"""Two agents exchange messages while they are killed repeatedly: both store every message once, in order."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from dialogues.conversation import Conversation
from dialogues.scripts import DATA, SPEAKERS, Script, scripts
from dialogues.two_agents import RULES, agent, agent_async
from forked import Forked
from selection import sampled

from collections_store import Store
from collections_store.dialogues import Dialogue, Dialogues

AGENTS = {"sync": agent, "async": agent_async}
VARIANTS = [("sqlite-file", "sync"), ("sqlite-file", "async"), ("postgresql", "async")]
FEW = pytest.param(100, id="100")
ALL = pytest.param(4000, id="all", marks=[pytest.mark.soak, pytest.mark.timeout(3600)])


@pytest.mark.parametrize(
    ("shared_backend", "variant"), VARIANTS[:: sampled(2)], indirect=["shared_backend"]
)
@pytest.mark.parametrize("count", [FEW, ALL])
def test_two_agents_that_are_killed_repeatedly(
    shared_backend: Backend, tmp_path: Path, count: int, variant: str
) -> None:
    """On SQLite each has its own file, on PostgreSQL they share the database."""
    backends = {name: own_backend(shared_backend, tmp_path / f"{name}.db") for name in SPEAKERS}
    seed, all_scripts = random.randrange(2**32), scripts(count)

    def start(name: str) -> Forked:
        return Forked(AGENTS[variant], backends[name].url, backends[name].options, name)

    conversation = Conversation(all_scripts, start, seed=seed)
    conversation.run()
    print(
        f"seed {seed}: {len(all_scripts)} dialogues of {DATA if DATA.is_file() else 'our own'}, "
        f"{conversation.delivered} messages delivered, {conversation.kills} times killed"
    )
    assert conversation.kills > 2
    assert any(sum(side.restored) for side in conversation.sides.values())
    for name, backend in backends.items():
        check_all(backend, name, all_scripts)


def own_backend(backend: Backend, path: Path) -> Backend:
    return backend if backend.is_postgresql else Backend(backend.name, f"sqlite:///{path}")


def check_all(backend: Backend, name: str, all_scripts: list[Script]) -> None:
    """Check that an agent has all dialogues, in terminal state, and no others."""
    with Store(backend.url, **backend.options) as store:
        dialogues = Dialogues(store, name, rules=RULES)
        assert dialogues.setup().active == 0
        assert dialogues.quarantined() == []
        found = {each.messages[0].body["dialogue_id"]: each for each in dialogues.find()}
        assert found.keys() == {script.id for script in all_scripts}
        for script in all_scripts:
            check(found[script.id], name, script)
        there = Counter(
            {
                each.name.rpartition("__")[2]: each.count
                for each in store.collections()
                if f"__{name}__" in each.name
            }
        )
        assert there == {
            "terminal": len(all_scripts),
            "messages": sum(len(script.bodies) for script in all_scripts),
            "active": 0,
        }


def check(dialogue: Dialogue, name: str, script: Script) -> None:
    """Check that a dialogue has all messages of the script once, in order, with the right ids."""
    messages = dialogue.messages
    assert [each.body for each in messages] == list(script.bodies)
    assert [each.sender for each in messages] == [
        SPEAKERS[turn % 2] for turn in range(len(messages))
    ]
    assert [each.message_id for each in messages] == [ids(turn) for turn in range(len(messages))]
    assert [each.target for each in messages] == [
        0,
        *(ids(turn) for turn in range(len(messages) - 1)),
    ]
    assert (dialogue.state, dialogue.is_terminal) == ("ended", True)
    assert dialogue.role == ("starter" if name == SPEAKERS[0] else "responder")
    assert len({each.dialogue_reference for each in messages[1:]}) == 1


def ids(turn: int) -> Any:
    return -(turn // 2) - 1 if turn % 2 else turn // 2 + 1
