"""A part of the real dialogues is imported, and counted independently."""

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from cli.cli_process import cli_for
from conftest import SHARED
from selection import sampled

FILE = SHARED / "data" / "sgd_dialogues.jsonl.gz"


def intents(dialogue: dict[str, Any]) -> set[str]:
    frames = (frame for turn in dialogue["turns"] for frame in turn["frames"])
    return {frame["state"]["active_intent"] for frame in frames if "state" in frame}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of one dialogue in eight, of all with `--whole-matrix`."""
    if not FILE.exists():
        pytest.skip(f"{FILE.name} is not beside the project, in {SHARED.name}/{FILE.parent.name}")
    part = tmp_path_factory.mktemp("dialogues") / FILE.name
    with gzip.open(FILE) as lines, gzip.open(part, "wb") as written:
        written.writelines(islice(lines, 0, None, sampled(8)))
    return part


@pytest.fixture(scope="module")
def expected(file: Path) -> dict[str, int]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        dialogues = [json.loads(line) for line in lines]
    filters = {"services": "Restaurants_2"}, {"services": "Restaurants_1"}
    counts = {
        json.dumps(a): sum(a["services"] in d["services"] for d in dialogues) for a in filters
    }
    intent = json.dumps({"turns.frames.state.active_intent": "ReserveRestaurant"})
    reserved = sum("ReserveRestaurant" in intents(dialogue) for dialogue in dialogues)
    return counts | {intent: reserved, "{}": len(dialogues)}


def test_dialogues(shared_backend: Backend, file: Path, expected: dict[str, int]) -> None:
    cli = cli_for(shared_backend)
    result = cli("import", str(file), "--collection", "dialogues", "--id", "dialogue_id")
    assert result.stderr == f"imported {expected['{}']:,} documents into dialogues\n"
    for filter, count in expected.items():
        assert cli.done("find", "dialogues", filter, "--count") == f"{count}\n"
    intent = next(filter for filter in expected if "active_intent" in filter)
    assert expected[intent] > 10
    found = map(json.loads, cli.done("find", "dialogues", intent).splitlines())
    assert all("ReserveRestaurant" in intents(line["body"]) for line in found)
