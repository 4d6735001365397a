"""An operator is declared in one place: its row of the table."""

from typing import Any

import pytest

from collections_store import Filter
from collections_store.aggregation.accumulators import ACCUMULATORS
from collections_store.aggregation.pipeline import Pipeline
from collections_store.document import Document
from collections_store.errors import CollectionsStoreError
from collections_store.expressions.declared import Operator
from collections_store.expressions.nodes import Constant, OperatorCall
from collections_store.expressions.operators import OPERATORS
from collections_store.query.matcher import matches

DOUBLE: Any = {"$expr": {"$eq": [{"$double": "$a"}, 4]}}


def test_a_row_adds_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CollectionsStoreError, match="no such operator"):
        Filter.parse(DOUBLE)
    monkeypatch.setitem(OPERATORS, "$double", Operator("$double", lambda n: 2 * n, "number"))
    assert matches(Filter.parse(DOUBLE), Document("1", {"a": 2}))
    with pytest.raises(CollectionsStoreError, match="takes 1 operand, got 2"):
        Filter.parse({"$expr": {"$double": ["$a", 1]}})


def test_a_row_has_the_syntax_of_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def syntax(_parser: Any, operator: Operator, operand: Any, _place: str) -> OperatorCall:
        return OperatorCall.of(operator, (Constant.of(len(operand)),))

    row = Operator("$double", lambda n: 2 * n, "number", syntax=syntax)
    monkeypatch.setitem(OPERATORS, "$double", row)
    assert matches(Filter.parse(DOUBLE), Document("1", {}))  # the length of "$a"


def test_a_row_adds_an_accumulator(monkeypatch: pytest.MonkeyPatch) -> None:
    field = {"a": {"$final": "$n"}}
    group: list[Any] = [{"$group": {"_id": None, **field}}]
    window: list[Any] = [{"$setWindowFields": {"output": field}}]
    bucket: list[Any] = [{"$bucketAuto": {"groupBy": "$n", "buckets": 1, "output": field}}]
    with pytest.raises(CollectionsStoreError, match="no such accumulator"):
        Pipeline.parse(group)
    monkeypatch.setitem(ACCUMULATORS, "$final", ACCUMULATORS["$last"])
    rows = [Document(str(n), {"n": n}) for n in range(3)]
    for pipeline in (group, window, bucket):
        found = list(Pipeline.parse(pipeline).run(rows))
        assert {body["a"] for body in found} == {2}
