"""MongoDB's results: the cases of `../shared/conformance`, replayed against the matcher, SQLite and PostgreSQL. What
differs by intent is in `EXPLAINED`, and in docs/reference/conformance.md.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance.cases import IS_THERE, Case, read
from conformance.targets import LACKING, OPS, InMemory, Op, Stored

from collections_store import CollectionsStoreError, Store
from collections_store.expressions.values import equal

pytestmark = pytest.mark.each_backend

NAMES = list(LACKING)

EXPLAINED: dict[str, str] = {
    "test_projection_positional.py::test_projection_positional_5#0": "MongoDB since 4.4: an array without an element at the matched position is an error",
    "test_projection_positional.py::test_projection_positional_10#0": "MongoDB since 4.4: the element that `.$` keeps is projected by the rest of the path",
    "test_projection_positional.py::test_projection_positional_11#2": "MongoDB since 4.4: `$` stands at the end of a path only",
    "test_projection_positional.py::test_projection_positional_11#3": "MongoDB since 4.4: a path in a projection does not begin with `$`",
    "test_projection_positional.py::test_projection_positional_11#4": "MongoDB since 4.4: a path in a projection does not begin with `$`",
    "test_projection_positional.py::test_projection_positional_11#7": "MongoDB since 4.4: the element that `.$` keeps is projected by the rest of the path",
    "test_projection_positional.py::test_projection_positional_11#8": "MongoDB since 4.4: the element that `.$` keeps is projected by the rest of the path",
    "test_projection_positional.py::test_projection_positional_11#9": "MongoDB since 4.4: the element that `.$` keeps is projected by the rest of the path",
    "test_projection_positional.py::test_projection_positional_12#5": "an empty part of a path names the empty key, here as in filters; MongoDB since 4.4 refuses it",
    "test_projection_positional.py::test_projection_positional_12#12": "an empty part of a path names the empty key, here as in filters; MongoDB since 4.4 refuses it",
    "test_projection_positional.py::test_projection_positional_13#1": "MongoDB since 4.4: `$` stands at the end of a path only",
    "test_projection_positional.py::test_projection_positional_15#0": "MongoDB since 4.4: a projection does not name a field and its parent",
    "test_projection_positional.py::test_projection_positional_16#0": "MongoDB since 4.4: without an array on its path `.$` keeps the field",
    "test_projection_positional.py::test_projection_positional_16#1": "MongoDB since 4.4: an array without an element at the matched position is an error",
    "test_projection_positional.py::test_projection_positional_17#0": "MongoDB since 4.4: a condition on a position in the filter determines no element, which is an error",
    "test_projection_positional.py::test_projection_positional_18#0": "MongoDB since 4.4: a condition on a position in the filter determines no element, which is an error",
    "test_projection_positional.py::test_projection_positional_19#0": "MongoDB since 4.4: a condition on a position in the filter determines no element, which is an error",
    "insertOne-dots_and_dollars::Inserting document with dollar-prefixed key in _id yields server-side error": "the `_id` of a case is replayed as a field of the body: a key in it may begin with `$`",
    "test_update.py::test_update_with_dollar_prefixed_field_1#0": "MongoDB since 5.0: below the top a key may begin with `$`",
    "test_update.py::test_update_with_dollar_prefixed_field_2#0": "MongoDB since 5.0: below the top a key may begin with `$`",
    "test_update.py::test_update_with_dollar_prefixed_field_3#0": "MongoDB since 5.0: below the top a key may begin with `$`",
    "test_update_max.py::test_update_max_2#0": "true is greater than all numbers in MongoDB's order, so `$max` sets it; the case's comparison in Python treats true as 1",
    "test_update_unset.py::test_update_unset_4#0": "an unchanged document does not count as modified, as in MongoDB; montydb compares the documents only",
    "bulkWrite::BulkWrite with replaceOne operations": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "bulkWrite::BulkWrite continue-on-error behavior with unordered (preexisting duplicate key)": "the `_id` of a case is replayed as a field of the body: two documents may have the same value, unless a unique index forbids it",
    "bulkWrite::BulkWrite continue-on-error behavior with unordered (duplicate key in requests)": "the `_id` of a case is replayed as a field of the body: two documents may have the same value, unless a unique index forbids it",
    "findOneAndReplace-upsert::FindOneAndReplace when no documents match without id specified with upsert returning the document before modification": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "findOneAndReplace-upsert::FindOneAndReplace when no documents match without id specified with upsert returning the document after modification": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "findOneAndReplace::FindOneAndReplace when many documents match returning the document before modification": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "findOneAndReplace::FindOneAndReplace when many documents match returning the document after modification": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "findOneAndReplace::FindOneAndReplace when one document matches returning the document before modification": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "findOneAndReplace::FindOneAndReplace when one document matches returning the document after modification": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "replaceOne::ReplaceOne with upsert when no documents match without an id specified": "the `_id` of a case is replayed as a field of the body: a replacement without this field removes the field",
    "test_find.py::test_find_2#0": "PostgreSQL does not keep the order of an object's keys",
    "test_find.py::test_find_3#0": "PostgreSQL does not keep the order of an object's keys",
    "test_update_pull.py::test_update_pull_7#0": "PostgreSQL does not keep the order of an object's keys",
    "test_update_pull.py::test_update_pull_6#0": "PostgreSQL does not keep the order of an object's keys",
}
"""Cases that differ by intent, on every target that replays them but for `ONLY_ON`."""
ONLY_ON = {
    "test_find.py::test_find_2#0": {"postgresql"},
    "test_find.py::test_find_3#0": {"postgresql"},
    "test_update_pull.py::test_update_pull_6#0": {"postgresql"},
    "test_update_pull.py::test_update_pull_7#0": {"postgresql"},
}

REPLAYED = {"matcher": 571, "sqlite": 574, "postgresql": 574}
LEFT_OUT = {"matcher": 3, "sqlite": 0, "postgresql": 0}

CASES = read()


def runnable(name: str) -> list[Case]:
    return [case for case in CASES if not case.needs & LACKING[name]]


# -- replaying ---------------------------------------------------------------------------------

NewTarget = Callable[[], Any]


@pytest.fixture(scope="module")
def matcher() -> NewTarget:
    return InMemory


@pytest.fixture(scope="module")
def sqlite() -> Iterator[NewTarget]:
    with Store("sqlite://") as store:
        yield lambda: Stored(store["things"])


@pytest.fixture(scope="module")
def postgresql(module_postgres_backend: Any) -> Iterator[NewTarget]:
    backend = module_postgres_backend
    with Store(backend.url, durability="normal", **backend.options) as store:
        yield lambda: Stored(store["things"])


@pytest.mark.skipif(not IS_THERE, reason="../shared/conformance is not there: nothing to replay")
@pytest.mark.parametrize(
    ("name", "case"),
    [pytest.param(name, case, id=f"{name}-{case.id}") for name in NAMES for case in runnable(name)],
)
def test_cases(name: str, case: Case, request: pytest.FixtureRequest) -> None:
    new_target: NewTarget = request.getfixturevalue(name)
    problem = replay(new_target(), case)
    if case.id in EXPLAINED and name in ONLY_ON.get(case.id, NAMES):
        assert problem is not None, "it is as MongoDB's now: take it out of EXPLAINED"
    else:
        assert problem is None, problem


def replay(target: Any, case: Case) -> str | None:
    """Return the first result that differs from the expected one."""
    for op in case.ops:
        expected = op.get("expect", {})
        try:
            answer = OPS[op["op"]](target, op)
        except CollectionsStoreError as error:
            if "error" not in expected:
                return f"{op}: {error!r}"
        else:
            if "error" in expected:
                return f"{op}: no error, but {answer}"
            if not is_expected(answer, expected, op):
                return f"{op}: {answer}"
    return None


def is_expected(answer: Any, expected: Any, op: Op) -> bool:
    match expected:
        case {"docs": None}:
            return True
        case {"docs": documents, "ordered": ordered}:
            in_order = ordered and bool({"sort", "skip", "limit", "pipeline"} & op.keys())
            return same(answer, documents, in_order)
        case {"values": values}:
            return same(answer, values, in_order=False)
        case {"value": value} | {"deleted": value}:
            return equal(answer, value)
        case {"doc": document}:
            return same_document(answer, document)
        case {"matched": _, "modified": _}:
            return all(equal(answer[each], expected[each]) for each in ("matched", "modified"))
    return True


def same(found: list[Any], expected: list[Any], in_order: bool) -> bool:
    if len(found) != len(expected):
        return False
    if in_order:
        return all(map(same_document, found, expected))
    left = list(found)
    for each in expected:
        match = next((n for n, other in enumerate(left) if same_document(other, each)), None)
        if match is None:
            return False
        del left[match]
    return True


def same_document(found: Any, expected: Any) -> bool:
    if isinstance(found, dict) and isinstance(expected, dict) and "_id" not in expected:
        found = {key: value for key, value in found.items() if key != "_id"}
    return equal(found, expected, ordered=False)


# -- completeness ------------------------------------------------------------------------------


@pytest.mark.skipif(not IS_THERE, reason="../shared/conformance is not there: nothing to count")
@pytest.mark.parametrize("name", NAMES)
def test_every_case_is_counted(name: str) -> None:
    left_out = [case for case in CASES if case.needs & LACKING[name]]
    needs = Counter(need for case in left_out for need in case.needs & LACKING[name])
    print(f"{name}: left out are {len(left_out)} of {len(CASES)} cases, for {dict(needs)}")
    for case in left_out:
        print(f"  {case.id}: {', '.join(sorted(case.needs & LACKING[name]))}")
    assert len({case.id for case in CASES}) == len(CASES)
    assert (len(runnable(name)), len(left_out)) == (REPLAYED[name], LEFT_OUT[name])


@pytest.mark.skipif(not IS_THERE, reason="../shared/conformance is not there")
def test_every_operation_has_a_function() -> None:
    lacking_everywhere = frozenset.intersection(*LACKING.values())
    used = {op["op"] for case in CASES for op in case.ops}
    assert used - lacking_everywhere <= OPS.keys()
    assert EXPLAINED.keys() <= {case.id for name in NAMES for case in runnable(name)}
