"""A parsed `$group` that later pipelines share is the stage that each would parse."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store.aggregation.group_parser import parse_group
from collections_store.aggregation.parser import PipelineParser
from collections_store.aggregation.pipeline import Pipeline
from collections_store.aggregation.table import STAGES
from collections_store.codec import Codec
from collections_store.document import Anonymous
from collections_store.errors import InvalidPipeline

OPERANDS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, "", "a", "$a", "$a.b", "$$ROOT", "$$NOW", [], [1], {}]),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"$literal": inner}),
        st.fixed_dictionaries({"$add": st.lists(inner, max_size=2)}),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    ),
    max_leaves=3,
)
ACCUMULATORS = st.one_of(
    st.builds(
        lambda name, value: {name: value},
        st.sampled_from(["$sum", "$avg", "$min", "$push", "$addToSet"]),
        OPERANDS,
    ),
    st.just({"$count": {}}),
    st.builds(lambda n: {"$firstN": {"input": "$a", "n": n}}, st.sampled_from([1, 2, "$a"])),
    st.just({"$top": {"output": "$a", "sortBy": {"b": 1}}}),
    st.just({"$percentile": {"input": "$a", "p": [0.5], "method": "approximate"}}),
)
GROUPS = st.fixed_dictionaries(
    {"_id": OPERANDS}, optional={"first": ACCUMULATORS, "second": ACCUMULATORS}
)


def outcome(parse: Any) -> str:
    """Return the printed stage, in which 1, 1.0 and true differ, or the error."""
    try:
        return repr(parse())
    except InvalidPipeline as error:
        return str(error)


def stage_of(operand: Any) -> Any:
    return Pipeline.parse([{"$group": operand}]).steps[0].stage


@given(GROUPS)
def test_a_shared_stage_is_the_parsed_one(operand: Any) -> None:
    parser = PipelineParser(STAGES, Codec())
    alone = outcome(lambda: parse_group(parser, operand, "0.$group"))
    assert outcome(lambda: stage_of(operand)) == alone
    assert outcome(lambda: stage_of(operand)) == alone


@pytest.mark.parametrize("key", ["$a", None, 1, 1.0, True, {"a": "$b"}, {"$literal": [1]}])
def test_a_stage_is_shared(key: Any) -> None:
    first = stage_of({"_id": key, "n": {"$sum": "$n"}})
    assert stage_of({"_id": key, "n": {"$sum": "$n"}}) is first
    alone: Any = parse_group(PipelineParser(STAGES, Codec()), {"_id": key}, "")
    assert first.key == alone.key


def test_a_changed_result_changes_no_later_result() -> None:
    group = {"$group": {"_id": {"$literal": {"a": [1]}}, "all": {"$push": {"$literal": [2]}}}}
    for _ in range(3):
        [found] = Pipeline.parse([group]).run([Anonymous({})])
        assert found == {"_id": {"a": [1]}, "all": [[2]]}
        found["_id"]["a"].append(3)
        found["all"][0].append(3)


def test_a_long_stage_is_not_shared() -> None:
    group = {"_id": "$a", "x" * 2000: {"$sum": 1}}
    assert stage_of(group) is not stage_of(group)
    assert stage_of(group) == stage_of(group)


def test_a_score_belongs_to_its_pipeline() -> None:
    group = {"$group": {"_id": None, "best": {"$max": {"$meta": "textScore"}}}}
    words = {"$match": {"$text": {"$search": "a"}}}
    for _ in range(2):
        assert Pipeline.parse([words, group]).scored
        with pytest.raises(InvalidPipeline, match="needs a .text"):
            Pipeline.parse([group])
