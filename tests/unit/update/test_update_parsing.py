"""Parsing of updates: errors name the path; parsed updates can be printed and compared."""

import enum
import math
import pickle
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from collections_store import Document, InvalidBody, InvalidUpdate, Path, Update
from collections_store.codec import Codec
from collections_store.update import read_replacement

INVALID: list[tuple[Any, str, str]] = [
    (None, "", "must be a document of operators or a list of stages, got None"),
    ("$set", "", "a document of operators"),
    (5, "", "a document of operators"),
    ({}, "", "use replace_one to replace the body"),
    ({"a": 1}, "", "use replace_one to replace the body"),
    ({"a": 1, "$set": {"b": 1}}, "", "use replace_one to replace the body"),
    ({"$set": {"b": 1}, "a": 1}, "a", "no such operator"),
    ({"$foo": {"a": 1}}, "$foo", "no such operator; there are $set, "),
    ({"$pushAll": {"a": [1]}}, "$pushAll", "no such operator"),
    ({5: {"a": 1}}, "", "replace_one"),
    ({"$set": 5}, "$set", "must be a document of fields, as in {'$set': {'field': …}}, got 5"),
    ({"$set": [{"a": 1}]}, "$set", "must be a document of fields"),
    ({"$set": {"a": float("nan")}}, "$set.a", "nan is not JSON"),
    (
        {"$set": {"a": {"b": [datetime(2026, 11, 21)]}}},
        "$set.a.b.0",
        "datetime is not JSON",
    ),
    ({"$set": {"a": 2**63}}, "$set.a", "beyond 64 bit"),
    ({"$set": {"a": re.compile("x")}}, "$set.a", "not JSON"),
    ({"$push": {"a": {1, 2}}}, "$push.a", "set is not JSON"),
    ({"$inc": {"a": "1"}}, "$inc.a", "must be a number, got '1'"),
    ({"$inc": {"a": True}}, "$inc.a", "must be a number"),
    ({"$mul": {"a": None}}, "$mul.a", "must be a number"),
    ({"$rename": {"a": 5}}, "$rename.a", "must be the field's new name, got 5"),
    ({"$rename": {"a": "a"}}, "$rename.a", "must be another one"),
    ({"$rename": {"a": ""}}, "$rename.a.", "is empty"),
    ({"$rename": {"a": "$id"}}, "$rename.a.$id", "$id is metadata"),
    ({"$rename": {"a.$": "b"}}, "$rename.a.$", "$rename does not take"),
    ({"$rename": {"a": "b.$[]"}}, "$rename.a", "$rename does not take"),
    ({"$currentDate": {"a": 1}}, "$currentDate.a", "must be true"),
    ({"$currentDate": {"a": {"$type": "time"}}}, "$currentDate.a", "must be true"),
    ({"$currentDate": {"a": {"$type": "timestamp", "b": 1}}}, "$currentDate.a", "must be true"),
    ({"$currentDate": {"a": {"$type": "date", "b": 1}}}, "$currentDate.a", "must be true"),
    ({"$push": {"a": {"$each": 5}}}, "$push.a.$each", "must be a list, got 5"),
    ({"$push": {"a": {"$each": [], "x": 1}}}, "$push.a.x", "must be one of $each, $position"),
    ({"$push": {"a": {"$slice": 1}}}, "$push.a", "$slice goes with $each"),
    ({"$push": {"a": {"$each": [], "$slice": 1.5}}}, "$push.a.$slice", "must be an integer"),
    ({"$push": {"a": {"$each": [], "$slice": None}}}, "$push.a.$slice", "must be an integer"),
    ({"$push": {"a": {"$each": [], "$position": True}}}, "$push.a.$position", "must be an integer"),
    (
        {"$push": {"a": {"$each": [], "$sort": 2}}},
        "$push.a.$sort",
        "the direction must be 1 or -1, got 2",
    ),
    ({"$push": {"a": {"$each": [], "$sort": True}}}, "$push.a.$sort", "must be 1 or -1"),
    ({"$push": {"a": {"$each": [], "$sort": {}}}}, "$push.a.$sort", "1 to 32 fields"),
    ({"$push": {"a": {"$each": [], "$sort": {"x": "1"}}}}, "$push.a.$sort.x", "1 or -1, got '1'"),
    ({"$push": {"a": {"$each": [], "$sort": {"x..y": 1}}}}, "$push.a.$sort.x..y", "is empty"),
    ({"$addToSet": {"a": {"$each": 5}}}, "$addToSet.a.$each", "must be a list"),
    ({"$addToSet": {"a": {"$each": [], "$slice": 1}}}, "$addToSet.a.$slice", "does not go with"),
    ({"$pop": {"a": 2}}, "$pop.a", "must be 1 (the last) or -1 (the first), got 2"),
    ({"$pop": {"a": True}}, "$pop.a", "must be 1"),
    ({"$pop": {"a": "1"}}, "$pop.a", "must be 1"),
    ({"$pullAll": {"a": 1}}, "$pullAll.a", "must be a list, got 1"),
    ({"$pull": {"a": {"$foo": 1}}}, "$pull.a.$foo", "no such operator"),
    ({"$pull": {"a": {"x": {"$foo": 1}}}}, "$pull.a.x.$foo", "no such operator"),
    ({"$pull": {"a": {"$gt": 1, "x": 1}}}, "$pull.a.x", "do not mix"),
    ({"$pull": {"a": {"$id": 1}}}, "$pull.a.$id", "no such operator"),
    ({"$pull": {"a": {"x": 1, "$id": 1}}}, "$pull.a.$id", "an element of an array has no $id"),
    ({"$pull": {"a": {"$expr": True}}}, "$pull.a.$expr", "not in $elemMatch"),
    ({"$bit": {"a": 5}}, "$bit.a", "must be a document such as {'and': 10}"),
    ({"$bit": {"a": {}}}, "$bit.a", "must be a document"),
    ({"$bit": {"a": {"not": 1}}}, "$bit.a.not", "must be one of and, or, xor"),
    ({"$bit": {"a": {"and": 1.0}}}, "$bit.a.and", "must be an integer, got 1.0"),
    ({"$bit": {"a": {"and": True}}}, "$bit.a.and", "must be an integer"),
    # pipelines
    ([5], "0", "a stage must be a document of one key"),
    ([{}], "0", "a stage must be a document of one key"),
    ([{"$set": {"a": 1}, "$unset": "b"}], "0", "a stage must be a document of one key"),
    (
        [{"$set": {"a": 1}}, {"$match": {}}],
        "1.$match",
        "a stage of an update must be one of $addFields, ",
    ),
    ([{"$inc": {"a": 1}}], "0.$inc", "a stage of an update must be one of"),
    ([{"$set": {"a": {"$foo": 1}}}], "0.$set.a.$foo", "no such operator"),
    ([{"$set": {"a": "$$NEVER"}}], "0.$set.a", "there is no variable 'NEVER'"),
    ([{"$set": {"a": float("inf")}}], "0.$set.a", "inf is not JSON"),
    ([{"$project": {}}], "0.$project", "at least one field"),
]


@pytest.mark.parametrize(("update", "place", "problem"), INVALID, ids=repr)
def test_invalid_updates_name_the_path(update: Any, place: str, problem: str) -> None:
    with pytest.raises(InvalidUpdate) as caught:
        Update.parse(update)
    assert caught.value.place == place
    assert problem in caught.value.problem
    assert str(caught.value).startswith("update")


def test_array_filters_need_operators() -> None:
    for update in ([{"$set": {"a": 1}}], Update.parse({"$set": {"a": 1}})):
        with pytest.raises(InvalidUpdate, match="goes with a document of operators"):
            Update.parse(update, array_filters=[])
    assert Update.parse({"$set": {"a": 1}}, array_filters=[]) == Update.parse({"$set": {"a": 1}})


SPELLED: list[tuple[Any, Any]] = [
    ({"$set": {"a": 1, "b.c": [{"x": None}]}, "$inc": {"n": 1.5}}, None),
    ({"$unset": {"a": ""}, "$rename": {"b": "c"}, "$currentDate": {"d": True}}, None),
    ({"$push": {"a": {"$each": [1], "$sort": {"x": 1}, "$slice": -5, "$position": 0}}}, None),
    ({"$addToSet": {"a": {"$each": [1]}}, "$pop": {"b": 1}, "$pullAll": {"c": [1]}}, None),
    ({"$pull": {"a": {"$gte": 3}, "b": {"x": 1}, "c": 1}, "$bit": {"d": {"and": 1}}}, None),
    ({"$min": {"a": "x"}, "$max": {"b": 1}, "$mul": {"c": 2}, "$setOnInsert": {"d": {}}}, None),
    ({"$set": {"a.$[e].b": 1, "c.$": 2, "d.$[]": 3}}, [{"e.x": {"$gt": 1}}]),
    ({"$set": {}}, None),
    ({"$set": {Path("a.b"): 1, "a.b": 2, Path("$x"): 3, Path("c", "$"): 4, "c.x": 5}}, None),
    ({"$set": {Path("a", ""): 1}, "$pull": {"b": {Path("x.y"): 1, "x.y": 2}}}, None),
    ({"$set": {"a.$[e]": 1}}, [{"e.x": 1, Path("e", "y.z"): 2}]),
    ([{"$set": {"a": {"$add": ["$a", 1]}, "t": "$$NOW"}}, {"$unset": ["b"]}], None),
    ([], None),
]


@pytest.mark.parametrize(("written", "filters"), SPELLED, ids=repr)
def test_an_update_prints_compares_hashes_and_pickles(written: Any, filters: Any) -> None:
    update = Update.parse(written, array_filters=filters)
    assert update.to_json() == written
    assert str(update) == str(written) + (f" with array_filters {filters}" if filters else "")
    again = Update.parse(update.to_json(), array_filters=filters)
    assert (again, hash(again), str(again)) == (update, hash(update), str(update))
    pickled = pickle.loads(pickle.dumps(update))
    assert (pickled, hash(pickled), str(pickled)) == (update, hash(update), str(update))
    assert Update.parse(update) is update


def test_simple_paths_are_printed_as_strings() -> None:
    update = Update.parse({"$set": {Path("a", "b"): 1}, "$inc": {Path("n"): 1}})
    assert update.to_json() == {"$set": {"a.b": 1}, "$inc": {"n": 1}}
    assert str(Update.parse({"$set": {Path("a.b"): 1}})) == "{'$set': {Path('a.b'): 1}}"


def test_a_pickled_update_does_the_same() -> None:
    update = Update.parse({"$set": {"a.$[e].b": 1}}, array_filters=[{"e.x": 1}])
    body = {"a": [{"x": 1}, {"x": 2}]}
    again = pickle.loads(pickle.dumps(update))
    assert again.apply(Document("1", body), now=0) == {"a": [{"x": 1, "b": 1}, {"x": 2}]}


def test_updates_that_differ() -> None:
    every: list[Any] = [
        {"$set": {"a": 1}},
        {"$set": {"a": 1.0}},
        {"$set": {"a": True}},
        {"$set": {"a": "1"}},
        {"$setOnInsert": {"a": 1}},
        {"$set": {"a": {"x": 1, "y": 2}}},
        {"$set": {"a": {"y": 2, "x": 1}}},
        {"$set": {"a.$": 1}},
        {"$set": {"a.$[]": 1}},
        {"$pull": {"a": 1}},
        {"$pullAll": {"a": [1]}},
        {"$pull": {"a": {"$gt": 1}}},
        [{"$set": {"a": 1}}],
        [{"$set": {"a": 1.0}}],
    ]
    assert len({Update.parse(each) for each in every}) == len(every)


def test_values_are_printed_as_stored() -> None:
    rules = Codec(nul="replace", default=str)
    when = datetime(2026, 1, 1, tzinfo=UTC)
    update = Update.parse({"$set": {"a": "\0", "b": when}, "$push": {"c": (1, 2)}}, codec=rules)
    assert update.to_json() == {
        "$set": {"a": "\ufffd", "b": "2026-01-01 00:00:00+00:00"},
        "$push": {"c": "(1, 2)"},
    }


def test_operands_have_the_size_limit_of_bodies() -> None:
    with pytest.raises(InvalidUpdate, match="more than the limit of 10"):
        Update.parse({"$set": {"a": "x" * 20}}, codec=Codec(max_bytes=10))
    huge = "x" * (17 * 2**20)
    update = Update.parse({"$set": {"a": huge}}, codec=Codec(max_bytes=20 * 2**20))
    assert update.apply(Document("1", {}), now=0) == {"a": huge}


def test_deeply_nested_updates_are_rejected() -> None:
    fields: dict[str, Any] = {}
    array: list[Any] = []
    for _ in range(3000):
        fields, array = {"a": fields}, [array]
    circle: dict[str, Any] = {}
    circle["$not"] = circle
    wrong: list[Any] = [
        {"$set": {"a": fields}},
        {"$set": fields},
        {"$push": {"a": {"$each": array}}},
        {"$pull": {"a": fields}},
        {"$pull": {"a": circle}},
        [{"$set": {"a": fields}}],
        array,
        fields,
    ]
    for each in wrong:
        with pytest.raises(InvalidUpdate):
            Update.parse(each)
    for filters in (array, [{"e": circle}], [{"e": fields}]):
        with pytest.raises(InvalidUpdate):
            Update.parse({"$set": {"a.$[e]": 1}}, array_filters=filters)


def test_any_mapping_is_a_document() -> None:
    what: Mapping[str, Any] = MappingProxyType({"$set": MappingProxyType({"a": 1})})
    assert Update.parse(what) == Update.parse({"$set": {"a": 1}})


# -- replacements ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [{}, {"a": {"$b": 1}}, {"a.b": 1}, [{"$set": 1}], None, 5, "$x"])
def test_a_replacement_is_any_body(body: Any) -> None:
    assert read_replacement(body, Codec()) == body


def test_a_replacement_has_no_dollar_at_the_top() -> None:
    with pytest.raises(
        InvalidUpdate, match=r"at '\$b': a field at the top of a replacement must not begin with \$"
    ):
        read_replacement({"a": 1, "$b": 2}, Codec())


def test_a_replacement_is_a_copy() -> None:
    body = {"a": [1]}
    read_replacement(body, Codec())["a"].append(2)
    assert body == {"a": [1]}


@pytest.mark.parametrize(
    "body", [{"$set": {"a": 1}}, {"$foo": 1}, Update.parse({"$set": {"a": 1}})]
)
def test_a_replacement_has_no_operators(body: Any) -> None:
    with pytest.raises(InvalidUpdate, match="use update_one"):
        read_replacement(body, Codec())


def test_a_replacement_is_json() -> None:
    with pytest.raises(InvalidBody, match="'a.0'"):
        read_replacement({"a": [float("nan")]}, Codec())


class Colour(enum.StrEnum):
    RED = "red"


class Text(str):
    __slots__ = ()


UPDATES: list[Any] = [
    {}, {"$inc": {"n": 1}}, {"$inc": {"n": True}}, {"$inc": {"n": 1.0}}, {"$inc": {"n": 2**63}}, {"$inc": {"n": math.nan}},
    {"$set": {"a.b": {"c": [1, None, "x"]}, "d": -0.0}}, {"$set": {"d": 0.0}}, {"$set": {"a": 1, "a.b": 2}}, {"$set": {"a": 1e16}},
    {"$set": {"a": Colour.RED}}, {"$set": {"a": "red"}}, {"$set": {"a": (1, 2)}}, {"$set": {"a": [1, 2]}}, {"$set": {Text("a"): 1}},
    {Text("$set"): {"a": Text("b")}}, {"$set": {Path("a.b"): 1}}, {"$set": {1: 1}}, {"$set": {"a": "\0"}}, {"$set": {"\0": 1}},
    {"$set": {"a": "\ud800"}}, {"$set": {"a": "x" * 2000}}, {"$set": {"": 1}}, {"$sat": {"a": 1}}, {"$set": 1}, {"a": 1},
    {"$push": {"a": {"$each": [1, 2], "$slice": -1}}}, {"$pull": {"a": {"$gt": 1}}}, {"$pull": {"a": re.compile("a")}}, {"$rename": {"a": "b"}},
    {"$set": {"a.$[x]": 1}}, {"$set": {"a": datetime(2026, 1, 1)}}, {"$currentDate": {"at": True}}, {"$unset": {"a": ""}},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(UPDATES)))
@pytest.mark.parametrize("codec", [Codec(), Codec(40), Codec(nul="replace"), Codec(default=str)])
def test_an_update_from_the_cache_is_the_parsed_update(number: int, codec: Codec) -> None:
    def parsed() -> tuple[Any, ...]:
        try:
            update = Update.parse(UPDATES[number], codec=codec)
        except InvalidUpdate as error:
            return type(error), str(error)
        return repr(update), str(update), update.to_json(), update._limit, repr(update._tree)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collections_store.update.CACHED_BYTES", -1)
        plain = parsed()
    assert repr(parsed()) == repr(parsed()) == repr(plain)
