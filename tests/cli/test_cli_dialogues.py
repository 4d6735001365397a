"""Real data: the dialogues are imported as in the README, and counted independently."""

import gzip
import json
from typing import Any

import pytest
from cli.cli_process import cli_for
from conftest import SHARED, Backend

FILE = SHARED / "data" / "sgd_dialogues.jsonl.gz"


def intents(dialogue: dict[str, Any]) -> set[str]:
    frames = (frame for turn in dialogue["turns"] for frame in turn["frames"])
    return {frame["state"]["active_intent"] for frame in frames if "state" in frame}


@pytest.fixture(scope="module")
def expected() -> dict[str, int]:
    if not FILE.exists():
        pytest.skip(f"{FILE.name} is not beside the project, in {SHARED.name}/{FILE.parent.name}")
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        dialogues = [json.loads(line) for line in lines]
    filters = {"services": "Restaurants_2"}, {"services": "Restaurants_1"}
    counts = {
        json.dumps(a): sum(a["services"] in d["services"] for d in dialogues) for a in filters
    }
    intent = json.dumps({"turns.frames.state.active_intent": "ReserveRestaurant"})
    reserved = sum("ReserveRestaurant" in intents(dialogue) for dialogue in dialogues)
    return counts | {intent: reserved, "{}": len(dialogues)}


def test_dialogues(shared_backend: Backend, expected: dict[str, int]) -> None:
    cli = cli_for(shared_backend)
    result = cli("import", str(FILE), "--collection", "dialogues", "--id", "dialogue_id")
    assert result.stderr == f"imported {expected['{}']:,} documents into dialogues\n"
    for filter, count in expected.items():
        assert cli.done("find", "dialogues", filter, "--count") == f"{count}\n"
    intent = next(filter for filter in expected if "active_intent" in filter)
    assert expected[intent] > 100
    found = map(json.loads, cli.done("find", "dialogues", intent).splitlines())
    assert all("ReserveRestaurant" in intents(line["body"]) for line in found)
