"""An agent that crashes at any step of its dialogues: no accepted message is lost, and the next process continues."""

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend
from faults.talking import (
    RULES,
    SCRIPT,
    ScriptLine,
    calling,
    message_of_counterparty,
    play,
    summary,
    talk,
)
from forked import Forked
from selection import sampled

from collections_store import InvalidDialogueMessage, RepeatedMessage, Store
from collections_store.dialogues import Dialogue, Dialogues
from collections_store.operations.operation import follow

STEPS = range(1, len(SCRIPT) + 1)
EXIT_CODES = {"SIGKILL": -signal.SIGKILL, "SIGTERM": -signal.SIGTERM, "exception": 3}
VARIANTS = ("sync", "async")
POLICIES: dict[str, dict[str, Any]] = {
    "kept": {},
    "in memory": {"offload": False},
    "not kept": {"keep_terminal_state_dialogues": False},
}


@pytest.fixture
def store(shared_backend: Backend) -> Iterator[Store]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        yield store


def run(backend: Backend, variant: str, **plan: Any) -> Forked:
    """Start a process that plays the script as planned; it restores nothing."""
    url = backend.url
    if backend.is_postgresql:
        name = {"application_name": backend.options["schema"]}
        url = sa.make_url(url).update_query_dict(name).render_as_string(hide_password=False)
    process = Forked(play, url, backend.options, variant, plan)
    assert process.connection.recv() == 0
    return process


def wait_for_sessions(backend: Backend) -> None:
    """Wait until the server has ended the sessions of a killed process: its last write may commit until then."""
    if not backend.is_postgresql:
        return
    engine = sa.create_engine(backend.url.replace("postgresql:", "postgresql+psycopg:"))
    query = sa.text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
    until = time.monotonic() + 60
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while connection.scalar(query, {"name": backend.options["schema"]}):
            assert time.monotonic() < until, "the sessions of the killed process do not end"
            time.sleep(0.01)
    engine.dispose()


def expected(steps: int, *, keeps: bool = True) -> dict[str, list[Any]]:
    """Return the expected messages after a number of steps, by counterparty."""
    found: dict[str, list[Any]] = defaultdict(list)
    for step in SCRIPT[:steps]:
        found[step.other].append(step.summary)
        if step.ends and not keeps:
            del found[step.other]
    return dict(found)


def found_in(dialogues: Dialogues) -> dict[str, list[Any]]:
    """Return the stored messages by counterparty, and check their dialogues."""
    found = {}
    for other in ("bob", "carol"):
        for each in dialogues.get_dialogues_with_counterparty(other):
            assert other not in found
            found[other] = [summary(message) for message in each.messages]
            check(each)
    return found


def check(dialogue: Dialogue) -> None:
    other = dialogue.dialogue_label.dialogue_opponent_addr
    lines = [each for each in SCRIPT if each.other == other][: dialogue.message_count]
    assert [each.body for each in dialogue.messages] == [{"step": SCRIPT.index(e)} for e in lines]
    assert dialogue.role == ("starter" if lines[0].by_ada else "responder")
    assert dialogue.is_terminal == lines[-1].ends
    assert dialogue.state == (RULES.state_after(lines[-1].performative) or "active")
    assert dialogue.dialogue_label.is_complete == (other == "carol" or len(lines) > 1)


def continue_and_check(store: Store, steps: int, **how: Any) -> None:
    """Play the rest of the script in this process, and check the result. Repeated first messages create no dialogue."""
    keeps = how.get("keep_terminal_state_dialogues", True)
    dialogues = Dialogues(store, "ada", rules=RULES, **how)
    replay(dialogues, steps)
    follow(calling(dialogues), talk(steps, lambda _: None))
    assert found_in(dialogues) == expected(len(SCRIPT), keeps=keeps)
    dialogues.teardown()
    assert dialogues.setup() == Dialogues(store, "ada", **how).setup()
    assert dialogues.dialogues_in_active_state == ()
    replay(dialogues, len(SCRIPT))
    assert found_in(dialogues) == expected(len(SCRIPT), keeps=keeps)
    left = sum(map(len, expected(len(SCRIPT), keeps=keeps).values()))
    assert store["dialogues__ada__dialogues__messages"].count() == left


def replay(dialogues: Dialogues, steps: int) -> None:
    """Repeat the first message of each dialogue that a counterparty began."""
    for step in first_words(steps):
        before = found_in(dialogues)
        with pytest.raises(InvalidDialogueMessage) as caught:
            dialogues.update(message_of_counterparty(step, None))
        assert isinstance(caught.value, RepeatedMessage) == (step.other in before)
        assert found_in(dialogues) == before


def first_words(steps: int) -> list[ScriptLine]:
    return [each for each in SCRIPT[:steps] if each.message_id == 1 and not each.by_ada]


ENDS = [
    *((end_by, "kept") for end_by in EXIT_CODES),
    ("SIGKILL", "in memory"),
    ("SIGKILL", "not kept"),
]


@pytest.mark.parametrize(("variant", "end"), list(product(VARIANTS, ENDS))[:: sampled(2)])
def test_crash_after_each_step(
    shared_backend: Backend, store: Store, variant: str, end: tuple[str, str]
) -> None:
    end_by, policy = end
    how = POLICIES[policy]
    for at in STEPS:
        process = run(shared_backend, variant, at=at, by=end_by, dialogues=how)
        assert process.rest() == list(STEPS)[:at]
        assert process.join() == EXIT_CODES[end_by]
        wait_for_sessions(shared_backend)
        dialogues = Dialogues(store, "ada", rules=RULES, **how)
        assert dialogues.setup().quarantined == ()
        found = found_in(dialogues)
        assert found == expected(at, keeps="keep_terminal_state_dialogues" not in how)
        continue_and_check(store, at, **how)
        forget_all(store)


def forget_all(store: Store) -> None:
    for each in store.collections():
        store[each.name].delete_many({})


@pytest.mark.parametrize(
    "times", [8, pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
@pytest.mark.parametrize(
    ("variant", "how"), list(product(VARIANTS, [signal.SIGKILL, signal.SIGTERM]))[:: sampled(3)]
)
def test_crash_at_any_moment(
    shared_backend: Backend, store: Store, variant: str, how: signal.Signals, times: int
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for _ in range(times):
        process = run(shared_backend, variant, dialogues={})
        told = [0, *(process.connection.recv() for _ in range(moments.randrange(len(SCRIPT))))]
        time.sleep(moments.expovariate(1 / 0.003))
        process.kill(how)
        steps = [*told, *process.rest()][-1]
        wait_for_sessions(shared_backend)
        dialogues = Dialogues(store, "ada", rules=RULES)
        assert dialogues.setup().quarantined == ()
        found = found_in(dialogues)
        assert found in (expected(steps), expected(steps + 1))
        continue_and_check(store, sum(map(len, found.values())))
        forget_all(store)
