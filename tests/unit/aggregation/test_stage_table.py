"""A stage is declared in one place: its row of the table."""

from typing import Any

import pytest

from collections_store.aggregation import stages
from collections_store.aggregation.parser import DeclaredStage, PipelineParser
from collections_store.aggregation.pipeline import Pipeline
from collections_store.aggregation.table import STAGES
from collections_store.codec import Codec
from collections_store.document import Document
from collections_store.errors import InvalidPipeline


def parsed(declared: DeclaredStage, pipeline: list[Any]) -> Pipeline:
    return Pipeline(PipelineParser({**STAGES, "$second": declared}, Codec()).steps(pipeline))


def second(_parser: PipelineParser, _operand: Any, _place: str) -> list[stages.Stage]:
    return [stages.Skip(1), stages.Limit(1)]


def test_a_row_adds_a_stage() -> None:
    pipeline = parsed(DeclaredStage(second), [{"$second": {}}])
    assert list(pipeline.run(Document(str(n), {"n": n}) for n in range(3))) == [{"n": 1}]
    with pytest.raises(InvalidPipeline, match="no such stage"):
        Pipeline.parse([{"$second": {}}])


def test_a_row_has_the_places_of_a_stage() -> None:
    last = DeclaredStage(lambda *_: stages.Limit(1), frozenset())
    parsed(last, [{"$limit": 2}, {"$second": {}}])
    with pytest.raises(InvalidPipeline, match="must be the last stage"):
        parsed(last, [{"$second": {}}, {"$limit": 2}])
    in_facet: list[Any] = [{"$facet": {"a": [{"$second": {}}]}}]
    parsed(DeclaredStage(second), in_facet)
    with pytest.raises(InvalidPipeline, match="within a \\$facet"):
        parsed(DeclaredStage(second, frozenset({"inner"})), in_facet)
    merge: list[Any] = [{"$merge": {"into": "a", "whenMatched": [{"$second": {}}]}}]
    parsed(DeclaredStage(second, frozenset({"inner", "update"})), merge)
    with pytest.raises(InvalidPipeline, match="within \\$merge"):
        parsed(DeclaredStage(second), merge)


def test_a_row_has_whether_a_stage_makes_ids() -> None:
    pipeline: list[Any] = [{"$second": {}}, {"$match": {"_id": 1}}]
    with pytest.raises(InvalidPipeline, match="string"):
        parsed(DeclaredStage(second), pipeline)
    parsed(DeclaredStage(second, makes_id=lambda _: True), pipeline)


def test_a_row_has_whether_an_operand_is_json() -> None:
    with pytest.raises(InvalidPipeline, match="JSON"):
        parsed(DeclaredStage(second), [{"$second": object()}])
    parsed(DeclaredStage(second, holds_filters=True), [{"$second": object()}])
