"""Flows of CrewAI in our stores: test_crewai.py runs this file in an environment that has CrewAI."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from crewai.flow import Flow, persist, start
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.flow import FlowState
from pages import DOCS, run_page
from pydantic import BaseModel

from collections_store import AsyncStore, InvalidBody, InvalidId, InvalidOption, Store
from collections_store.integrations.crewai import CollectionsFlowPersistence

COUNT = """
import json, sys
from integrations.crewai_flows import count
print(count(sys.argv[1], json.loads(sys.argv[2])))
"""


class Counted(FlowState):
    count: int = 0


def count(url: str, options: dict[str, Any]) -> int:
    """Run a flow that counts how often it ran, also in earlier processes."""
    with CollectionsFlowPersistence(url, **options) as persistence:

        @persist(persistence)
        class Counter(Flow[Counted]):
            @start()
            def step(self) -> int:
                self.state.count += 1
                return self.state.count

        counted: int = Counter(persistence=persistence).kickoff(inputs={"id": "counter"})
        return counted


@pytest.fixture
def flows(backend: Backend) -> Iterator[CollectionsFlowPersistence]:
    with CollectionsFlowPersistence(backend.url, **backend.options) as flows:
        yield flows


def test_a_flow_goes_on_in_another_process(shared_backend: Backend) -> None:
    options = json.dumps(shared_backend.options)
    for expected in (1, 3):
        command = [sys.executable, "-c", COUNT, shared_backend.url, options]
        root = Path(__file__).parents[1]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
        assert done.stdout.split()[-1] == str(expected)
        assert count(shared_backend.url, shared_backend.options) == expected + 1


def test_the_last_state_of_each_flow_is_kept(flows: CollectionsFlowPersistence) -> None:
    class Model(BaseModel):
        at: datetime
        tags: set[str]

    assert flows.load_state("1") is None
    flows.save_state("1", "ask", {"id": "1", "$set": {"a.b": [1, {"c": None}]}})
    flows.save_state("1", "answer", {"id": "1", "n": 2**53 + 1, "inner": Model(at=NOW, tags={"x"})})
    flows.save_state("2", "ask", Model(at=NOW, tags={"y"}))
    inner = {"at": "2026-11-24T10:00:00Z", "tags": ["x"]}
    assert flows.load_state("1") == {"id": "1", "n": 2**53 + 1, "inner": inner}
    assert flows.load_state("2") == {**inner, "tags": ["y"]}


NOW = datetime(2026, 11, 24, 10, tzinfo=UTC)


def test_a_flow_waits_for_feedback(flows: CollectionsFlowPersistence) -> None:
    context = PendingFeedbackContext(
        flow_id="1", flow_class="Review", method_name="review", method_output={"draft": {1, 2}},
        message="Good?", emit=["yes", "no"], requested_at=NOW,
    )  # fmt: skip
    assert flows.load_pending_feedback("1") is None
    flows.clear_pending_feedback("1")
    flows.save_state("1", "draft", {"id": "1", "n": 1})
    flows.save_pending_feedback("1", context, {"id": "1", "n": 2})
    assert flows.load_state("1") == {"id": "1", "n": 2}
    flows.save_state("1", "other", {"id": "1", "n": 3})
    found = flows.load_pending_feedback("1")
    assert found is not None
    assert found[0] == {"id": "1", "n": 2}
    assert (found[1].message, found[1].emit, found[1].requested_at) == ("Good?", ["yes", "no"], NOW)
    flows.clear_pending_feedback("1")
    assert flows.load_pending_feedback("1") is None
    assert flows.load_state("1") == {"id": "1", "n": 3}


@pytest.mark.parametrize("bad", [{"n": float("nan")}, {("a",): 1}, {"n": 2**70}, {"t": "\ud800"}])
def test_a_state_without_a_json_form_is_refused(bad: Any) -> None:
    with CollectionsFlowPersistence("sqlite://") as flows:
        flows.save_state("1", "ask", {"n": 1})
        with pytest.raises(InvalidBody):
            flows.save_state("1", "ask", bad)
        assert flows.load_state("1") == {"n": 1}
        with pytest.raises(InvalidId):
            flows.save_state("a" * 3000, "ask", {})


def test_a_store_of_the_program_stays_open(backend: Backend) -> None:
    wrong: Any = Store("sqlite://")
    with wrong, pytest.raises(InvalidOption, match="must be an AsyncStore or a URL, got Store"):
        CollectionsFlowPersistence(wrong)
    store = AsyncStore(backend.url, **backend.options)
    with CollectionsFlowPersistence(store, collection="mine") as flows:
        flows.save_state("1", "ask", {"n": 1})
    mine = store.get_sync_collection("mine")
    assert mine.get("1") == {"method": "ask", "state": {"n": 1}}
    asyncio.run(store.aclose())


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(DOCS / "how-to" / "crewai.md", {})
