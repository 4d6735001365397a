"""An agent that ends in the middle of its dialogues, at every step: nothing that was accepted is lost, and
the next process goes on with the next word."""

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from conftest import Backend
from faults.talking import RULES, SCRIPT, Said, calling, from_other, play, shown, talk
from forked import Forked

from collections_store import InvalidDialogueMessage, RepeatedMessage, Store
from collections_store.dialogues import Dialogue, Dialogues
from collections_store.operations.operation import follow

STEPS = range(1, len(SCRIPT) + 1)
WAYS = {"SIGKILL": -signal.SIGKILL, "SIGTERM": -signal.SIGTERM, "exception": 3}
KEPT: dict[str, dict[str, Any]] = {
    "kept": {},
    "in memory": {"offload": False},
    "not kept": {"keep_terminal_state_dialogues": False},
}


@pytest.fixture(params=["sync", "async"])
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(shared_backend: Backend) -> Iterator[Store]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        yield store


def run(backend: Backend, variant: str, **plan: Any) -> Forked:
    """Have a process talk as planned, when it has restored nothing."""
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
    """Return what there must be after so many steps: with whom, what was said."""
    found: dict[str, list[Any]] = defaultdict(list)
    for said in SCRIPT[:steps]:
        found[said.other].append(said.shown)
        if said.ends and not keeps:
            del found[said.other]
    return dict(found)


def found_in(dialogues: Dialogues) -> dict[str, list[Any]]:
    """Return what there is, and see that it hangs together."""
    found = {}
    for other in ("bob", "carol"):
        for each in dialogues.get_dialogues_with_counterparty(other):
            assert other not in found
            found[other] = [shown(message) for message in each.messages]
            check(each)
    return found


def check(dialogue: Dialogue) -> None:
    other = dialogue.dialogue_label.dialogue_opponent_addr
    said = [each for each in SCRIPT if each.other == other][: dialogue.message_count]
    assert [each.body for each in dialogue.messages] == [{"step": SCRIPT.index(e)} for e in said]
    assert dialogue.role == ("starter" if said[0].by_ada else "responder")
    assert dialogue.is_terminal == said[-1].ends
    assert dialogue.state == (RULES.state_after(said[-1].performative) or "active")
    assert dialogue.dialogue_label.is_complete == (other == "carol" or len(said) > 1)


def go_on(store: Store, steps: int, **how: Any) -> None:
    """Play the rest in this process, and see that it ends as it would have; the first words of both
    dialogues, said again, begin nothing.
    """
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
    """Give the first message of each dialogue that the others began again."""
    for said in first_words(steps):
        before = found_in(dialogues)
        with pytest.raises(InvalidDialogueMessage) as caught:
            dialogues.update(from_other(said, None))
        assert isinstance(caught.value, RepeatedMessage) == (said.other in before)
        assert found_in(dialogues) == before


def first_words(steps: int) -> list[Said]:
    return [each for each in SCRIPT[:steps] if each.message_id == 1 and not each.by_ada]


@pytest.mark.parametrize(
    ("way", "kept"),
    [*((way, "kept") for way in WAYS), ("SIGKILL", "in memory"), ("SIGKILL", "not kept")],
)
def test_crash_after_each_step(
    shared_backend: Backend, store: Store, variant: str, way: str, kept: str
) -> None:
    how = KEPT[kept]
    for at in STEPS:
        process = run(shared_backend, variant, at=at, by=way, dialogues=how)
        assert process.rest() == list(STEPS)[:at]
        assert process.join() == WAYS[way]
        wait_for_sessions(shared_backend)
        dialogues = Dialogues(store, "ada", rules=RULES, **how)
        assert dialogues.setup().quarantined == ()
        found = found_in(dialogues)
        assert found == expected(at, keeps="keep_terminal_state_dialogues" not in how)
        go_on(store, at, **how)
        forget_all(store)


def forget_all(store: Store) -> None:
    for each in store.collections():
        store[each.name].delete_many({})


@pytest.mark.parametrize("times", [8, pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
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
        go_on(store, sum(map(len, found.values())))
        forget_all(store)
