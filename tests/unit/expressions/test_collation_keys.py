"""Collations: keys compare as ICU compares the strings, and every part of the language takes the keys."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store import (
    Document,
    Filter,
    Index,
    InvalidFilter,
    InvalidOption,
    Projection,
    Sort,
)
from collections_store.aggregation.pipeline import Pipeline
from collections_store.expressions.collation import Collation, Collator, _icu_locale, under
from collections_store.expressions.evaluation import key_of, sort_key
from collections_store.expressions.values import compare, equal
from collections_store.query.matcher import matches
from collections_store.update import Update

icu: Any = pytest.importorskip("icu")
LOCALES = ("en", "de", "de@collation=phonebook", "sv", "fr_CA", "tr", "zh", "ja", "th", "ar", "da")
SCRIPTS = "aAbBzZ\u00e4\u00c4o\u0308\u00f6\u00df\u00e9\u00c9e\u0301iI\u0131\u0130\u0431\u0411\u4e2d\u65e5\u3042\u30a2\u0e01\u0e44\u0627\u0628\ud55c\u1112\uff21\u00aa 0129_-'\0\u200d\U0001f600"  # fmt: skip
STRINGS = st.text(st.one_of(st.sampled_from(SCRIPTS), st.characters(exclude_categories=["Cs"])), max_size=6)  # fmt: skip
OPTIONS = st.fixed_dictionaries(
    {"locale": st.sampled_from(LOCALES)},
    optional={
        "strength": st.integers(1, 5),
        "caseLevel": st.booleans(),
        "numericOrdering": st.booleans(),
        "alternate": st.sampled_from(["shifted", "non-ignorable"]),
        "maxVariable": st.sampled_from(["punct", "space"]),
        "normalization": st.booleans(),
    },
)


def collation(**options: Any) -> Collation:
    parsed = Collation.parse({"locale": "en", **options})
    assert parsed is not None
    return parsed


PRIMARY, SECONDARY = collation(strength=1), collation(strength=2)


@given(OPTIONS, STRINGS, STRINGS)
def test_keys_compare_as_icu_compares_the_strings(
    options: dict[str, Any], left: str, right: str
) -> None:
    parsed = collation(**options)
    locale = icu.Locale(_icu_locale(parsed.locale, parsed.spelled))
    wanted = icu.Collator.createInstance(locale).compare(left, right)
    keys = parsed.key(left), parsed.key(right)
    assert (keys[0] > keys[1]) - (keys[0] < keys[1]) == wanted
    collator = Collator(parsed, True)
    assert compare(left, right, ordered=collator) == wanted
    assert equal(left, right, ordered=collator) is (wanted == 0)
    assert (key_of(left, ordered=collator) == key_of(right, ordered=collator)) is (wanted == 0)
    assert sorted([left, right], key=sort_key(collator)) == ([left, right] if wanted <= 0 else [right, left])  # fmt: skip


@pytest.mark.parametrize("rules", [{"locale": "de"}, {"locale": "simple", "strength": 1}])
def test_an_index_under_a_collation_can_be_pickled(rules: dict[str, Any]) -> None:
    index = Index.parse("name", collation=rules)
    for read in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
        assert read == index
        assert read.collation is not None
        assert index.collation is not None
        assert read.collation.key("\u00c9a") == index.collation.key("\u00c9a")


@pytest.mark.parametrize(
    ("locale", "options", "needed"),
    [
        ("de", {"strength": 3, "caseLevel": False, "caseFirst": "off", "alternate": "non-ignorable"}, {}),
        ("de", {"strength": 2, "numericOrdering": False, "normalization": False}, {"strength": 2}),
        ("de", {"maxVariable": "punct", "backwards": False}, {}),
        ("de@collation=phonebook", {"strength": 3}, {}),
        ("da", {"caseFirst": "upper"}, {}),
        ("da", {"caseFirst": "off"}, {"caseFirst": "off"}),
        ("fr_CA", {"backwards": True}, {}),
        ("fr_CA", {"backwards": False}, {"backwards": False}),
        ("th", {"alternate": "shifted", "normalization": True}, {}),
        ("th", {"alternate": "non-ignorable"}, {"alternate": "non-ignorable"}),
    ],
)  # fmt: skip
def test_a_collation_has_no_option_with_the_value_of_its_locale(
    locale: str, options: dict[str, Any], needed: dict[str, Any]
) -> None:
    spelled, short = collation(locale=locale, **options), collation(locale=locale, **needed)
    assert (spelled, hash(spelled), spelled.key_name) == (short, hash(short), short.key_name)
    assert spelled.to_json() == {"locale": locale, **needed}
    assert Collation.from_json({"locale": locale, **options}) == short


def test_python_alone_does_not_know_which_strings_are_equal() -> None:
    """Why insensitivity to case requires ICU: lower case is not the rule."""
    assert SECONDARY.key("\u00aa") == SECONDARY.key("a")
    assert "\u00aa".casefold() != "a"
    assert SECONDARY.key("ss") == SECONDARY.key("S\u00adS")
    assert "S\u00adS".casefold() != "ss"


def test_mongodbs_attributes_are_icus() -> None:
    """Each option reaches ICU."""
    attribute, value = icu.UCollAttribute, icu.UCollAttributeValue
    options = {
        "strength": 2, "caseLevel": True, "caseFirst": "upper", "numericOrdering": True,
        "alternate": "shifted", "maxVariable": "space", "normalization": True, "backwards": True,
    }  # fmt: skip
    made = icu.Collator.createInstance(icu.Locale(collation(**options).icu_locale))
    wanted = {
        attribute.STRENGTH: value.SECONDARY,
        attribute.CASE_LEVEL: value.ON,
        attribute.CASE_FIRST: value.UPPER_FIRST,
        attribute.NUMERIC_COLLATION: value.ON,
        attribute.ALTERNATE_HANDLING: value.SHIFTED,
        attribute.NORMALIZATION_MODE: value.ON,
        attribute.FRENCH_COLLATION: value.ON,
    }
    assert {name: made.getAttribute(name) for name in wanted} == wanted
    shifted = {"alternate": "shifted", "strength": 3}
    assert collation(**shifted).key("a-b") == collation(**shifted).key("ab")
    space = collation(**shifted, maxVariable="space")
    assert space.key("a-b") != space.key("ab") == space.key("a b")


@pytest.mark.parametrize(
    ("given", "place", "problem"),
    [
        ("de", "collation", 'must be a mapping such as {"locale": "en"}'),
        ({"strength": 1}, "collation", 'must be a mapping such as {"locale": "en"}'),
        ({"locale": 1}, "collation", 'must be a mapping such as {"locale": "en"}'),
        ({"locale": "en", "level": 1}, "collation", "must have keys of locale, strength"),
        ({"locale": "en", 1: 1}, "collation", "must have keys of locale, strength"),
        ({"locale": "en", "strength": 6}, "collation.strength", "must be 1 or 2 or 3 or 4 or 5, got 6"),
        ({"locale": "en", "strength": True}, "collation.strength", "got True"),
        ({"locale": "en", "strength": []}, "collation.strength", "got []"),
        ({"locale": "en", "caseLevel": 1}, "collation.caseLevel", "must be False or True, got 1"),
        ({"locale": "en", "caseFirst": "up"}, "collation.caseFirst", "got 'up'"),
        ({"locale": "xx"}, "collation.locale", "got 'xx'"),
        ({"locale": "de;x"}, "collation.locale", "must be a locale with a collation in ICU"),
        ({"locale": "de@colStrength=primary"}, "collation.locale", "must be a locale"),
        ({"locale": "de@collation=x"}, "collation.locale", "must have a collation of emoji, eor"),
        ({"locale": "simple", "strength": 3}, "collation", "must be alone or with a strength of 1 or 2"),
        ({"locale": "simple", "strength": 1, "caseLevel": True}, "collation", "must be alone or"),
        ({"locale": "simple", "caseLevel": True}, "collation", "got {'caseLevel': True}"),
        ({"locale": "en", "strength": 1, "backwards": True}, "collation.backwards", "strength 1"),
        ({"locale": "en", "strength": 2, "caseFirst": "upper"}, "collation.caseFirst", "caseLevel"),
    ],
)  # fmt: skip
def test_refusals_name_the_place(given: Any, place: str, problem: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Collation.parse(given)
    assert refused.value.option == place
    assert problem in str(refused.value)


def test_simple_is_no_collation() -> None:
    assert Collation.parse({"locale": "simple"}) is Collation.parse(None) is None


CAFES: list[Any] = [
    {"category": "caf\u00e9", "status": "A"},
    {"category": "cafe", "status": "a"},
    {"category": "cafE", "status": "a"},
]


def matching(filter: Any, what: Collation, bodies: list[Any]) -> list[Any]:
    parsed = Filter.parse(filter).collated(what)
    return [each for each in bodies if matches(parsed, Document("x", each))]


def test_mongodbs_documented_example_of_strength() -> None:
    filter = {"category": "cafe", "status": "a"}
    assert matching(filter, collation(locale="fr", strength=1), CAFES) == CAFES
    assert matching(filter, collation(locale="fr", strength=2), CAFES) == CAFES[1:]
    assert matching(filter, collation(locale="fr"), CAFES) == [CAFES[1]]


@pytest.mark.parametrize(
    "filter",
    [
        {"a": "x"},
        {"a": {"$in": ["w", "x", 1]}},
        {"a": {"$in": [["q"], "x"]}},
        {"a": {"$gte": "x", "$lte": "x"}},
        {"a": {"$not": {"$ne": "x"}}},
        {"a": {"$not": {"$nin": ["x"]}}},
        {"$or": [{"a": "x"}, {"a": 7}]},
        {"$nor": [{"a": {"$gt": "x"}}, {"a": {"$lt": "x"}}]},
        {"$expr": {"$eq": ["$a", "x"]}},
        {"$expr": {"$in": ["$a", ["x", "w"]]}},
        {"$or": [{"a": str(each)} for each in range(20)] + [{"a": "x"}]},
        {"a": {"$in": [*map(str, range(100)), "x"]}},
    ],
)
def test_operators_that_compare_strings(filter: Any) -> None:
    assert matching(filter, SECONDARY, [{"a": "X"}]) == [{"a": "X"}]
    assert not matching(filter, SECONDARY, [{"a": "y"}])
    assert not matching(filter, collation(), [{"a": "X"}])


@pytest.mark.parametrize(
    ("filter", "body"),
    [
        ({"a": "x"}, {"a": ["y", "X"]}),
        ({"a": ["x", 1]}, {"a": ["X", 1]}),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "X"}}}),
        ({"a": {"$elemMatch": {"b": "x", "c": {"$gt": 1}}}}, {"a": [{"b": "X", "c": 2}]}),
        ({"a": {"$elemMatch": {"$gte": "x", "$lte": "x"}}}, {"a": ["X"]}),
        ({"a": {"$all": ["x", "y"]}}, {"a": ["Y", "X"]}),
        ({"a.b": {"$lte": ["x"]}}, {"a": [{"b": ["X"]}]}),
        ({"$id": "X"}, {}),
        ({"$id": {"$in": ["X", "Y"]}}, {}),
    ],
)
def test_strings_within_values(filter: Any, body: Any) -> None:
    assert matching(filter, SECONDARY, [body])
    assert not matching(filter, collation(), [body])


@pytest.mark.parametrize(
    ("filter", "body"),
    [
        ({"a": {"$regex": "^x"}}, {"a": "X"}),
        ({"a": {"B": 1}}, {"a": {"b": 1}}),
        ({"A": "x"}, {"a": "x"}),
        ({"$expr": {"$eq": [{"$toLower": "$a"}, "Y"]}}, {"a": "X"}),
        ({"$jsonSchema": {"properties": {"a": {"enum": ["x"]}}}}, {"a": "X"}),
    ],
)
def test_what_no_collation_changes(filter: Any, body: Any) -> None:
    assert not matching(filter, SECONDARY, [body])


def test_a_text_index_has_its_own_rules() -> None:
    with pytest.raises(InvalidFilter, match="does not go with a collation"):
        Filter.parse({"$text": {"$search": "x"}}).collated(SECONDARY)


def test_a_filter_under_a_collation_prints_as_without() -> None:
    document = {"a": {"$in": ["x", ["y"]]}, "$or": [{"b": "x"}, {"c": 1}], "d": 1}
    plain = Filter.parse(document)
    assert plain.collated(SECONDARY).to_json() == plain.to_json() == document
    assert plain.collated(SECONDARY) != plain.collated(PRIMARY) != plain
    assert plain.collated(None) is plain
    number = Filter.parse({"a": 1, "b": {"$gt": 2}})
    assert number.collated(SECONDARY) == number


def ordered(sort: Any, what: Collation, bodies: list[Any]) -> list[Any]:
    by = Sort.parse(sort).collated(what)
    return sorted(bodies, key=lambda body: by.key(Document("x", body)))


def test_sorts() -> None:
    words = [{"a": each} for each in ("Z", "b", "a", "B", "\u00e4", 10, None)]
    found = [each["a"] for each in ordered("a", collation(locale="de"), words)]
    assert found == [None, 10, "a", "\u00e4", "b", "B", "Z"]
    found = [each["a"] for each in ordered({"a": -1}, collation(locale="sv"), words)]
    assert found == ["\u00e4", "Z", "B", "b", "a", 10, None]
    numbers = [{"a": each} for each in ("10", "9", "2a", "1")]
    found = [each["a"] for each in ordered("a", collation(numericOrdering=True), numbers)]
    assert found == ["1", "2a", "9", "10"]


def test_sorts_through_arrays_and_objects() -> None:
    arrays: list[Any] = [{"a": ["z", "B"]}, {"a": ["b", "C"]}, {"a": "a"}, {"a": ["Y"]}]
    found = ordered({"a": 1}, SECONDARY, arrays)
    assert found == [arrays[2], arrays[0], arrays[1], arrays[3]]  # B equals b
    found = ordered({"a": -1}, SECONDARY, arrays)
    assert found == [arrays[0], arrays[3], arrays[1], arrays[2]]
    objects: list[Any] = [{"a": {"b": "y"}}, {"a": {"b": "X"}}]
    assert ordered("a", SECONDARY, objects) == objects[::-1]


def run(pipeline: list[Any], what: Collation, bodies: list[Any]) -> list[Any]:
    parsed = Pipeline.parse(pipeline).collated(what)
    documents = (Document(str(number), body) for number, body in enumerate(bodies))
    return list(parsed.run(documents, ordered=under(what, True)))


@pytest.mark.parametrize(
    ("pipeline", "wanted"),
    [
        ([{"$group": {"_id": "$a", "n": {"$sum": 1}}}], [{"_id": "x", "n": 2}, {"_id": "y", "n": 1}]),
        ([{"$sortByCount": "$a"}], [{"_id": "x", "count": 2}, {"_id": "y", "count": 1}]),
        ([{"$match": {"a": "X"}}, {"$count": "n"}], [{"n": 2}]),
        ([{"$set": {"b": "$a"}}, {"$match": {"b": "X"}}, {"$count": "n"}], [{"n": 2}]),
        ([{"$group": {"_id": None, "s": {"$addToSet": "$a"}}}], [{"_id": None, "s": ["x", "y"]}]),
        ([{"$group": {"_id": None, "m": {"$max": "$a"}}}], [{"_id": None, "m": "y"}]),
        ([{"$project": {"_id": 0, "e": {"$eq": ["$a", "X"]}}}], [{"e": True}, {"e": True}, {"e": False}]),
        ([{"$project": {"_id": 0, "e": {"$cmp": ["$a", "X"]}}}], [{"e": 0}, {"e": 0}, {"e": 1}]),
        ([{"$project": {"_id": 0, "e": {"$indexOfArray": [["Y", "X"], "$a"]}}}], [{"e": 1}, {"e": 1}, {"e": 0}]),
        ([{"$project": {"_id": 0, "e": {"$setUnion": [["$a"], ["X"]]}}}, {"$limit": 1}], [{"e": ["x"]}]),
        ([{"$project": {"_id": 0, "e": {"$strcasecmp": ["$a", "X"]}}}, {"$limit": 1}], [{"e": 0}]),
        ([{"$bucket": {"groupBy": "$a", "boundaries": ["X", "Y", "Z"]}}], [{"_id": "X", "count": 2}, {"_id": "Y", "count": 1}]),
        ([{"$facet": {"f": [{"$match": {"a": "X"}}, {"$count": "n"}]}}], [{"f": [{"n": 2}]}]),
        ([{"$setWindowFields": {"partitionBy": "$a", "sortBy": {"a": 1}, "output": {"r": {"$rank": {}}}}}, {"$group": {"_id": "$r", "n": {"$count": {}}}}], [{"_id": 1, "n": 3}]),
    ],
)  # fmt: skip
def test_stages_and_expressions(pipeline: list[Any], wanted: list[Any]) -> None:
    assert run(pipeline, SECONDARY, [{"a": "x"}, {"a": "X"}, {"a": "y"}]) == wanted


@pytest.mark.parametrize(
    ("update", "wanted"),
    [
        ({"$pull": {"a": "B"}}, ["a", "c"]),
        ({"$pull": {"a": {"$gte": "B"}}}, ["a"]),
        ({"$pullAll": {"a": ["A", "B"]}}, ["c"]),
        ({"$addToSet": {"a": "C"}}, ["b", "a", "c"]),
        ({"$push": {"a": {"$each": ["B"], "$sort": -1}}}, ["c", "b", "B", "a"]),
        ({"$set": {"a.$": "x"}}, ["x", "a", "c"]),
        ([{"$set": {"a": {"$filter": {"input": "$a", "cond": {"$ne": ["$$this", "B"]}}}}}], ["a", "c"]),
    ],
)  # fmt: skip
def test_updates(update: Any, wanted: list[str]) -> None:
    filter, document = Filter.parse({"a": "B"}), Document("x", {"a": ["b", "a", "c"]})
    by = under(SECONDARY, True)
    options: Any = {"filter": filter.collated(SECONDARY), "now": 0, "ordered": by}
    assert Update.parse(update).apply(document, **options) == {"a": wanted}


def test_array_filters_and_bounds() -> None:
    document, by = Document("x", {"a": ["b", "C"], "m": "B"}), under(SECONDARY, True)
    update = Update.parse({"$set": {"a.$[e]": 1}}, array_filters=[{"e": "c"}])
    assert update.apply(document, now=0, ordered=by)["a"] == ["b", 1]
    assert Update.parse({"$min": {"m": "a"}}).apply(document, now=0, ordered=by)["m"] == "a"
    assert Update.parse({"$min": {"m": "b"}}).apply(document, now=0, ordered=by)["m"] == "B"


def test_projections() -> None:
    document = Document("x", {"a": ["b", "C"], "s": "X"})
    filter = Filter.parse({"a": "c"}).collated(SECONDARY)
    for what, wanted in [
        ({"a.$": 1}, {"a": ["C"]}),
        ({"a": {"$elemMatch": {"$eq": "c"}}}, {"a": ["C"]}),
        ({"e": {"$eq": ["$s", "x"]}}, {"e": True}),
    ]:
        projection = Projection.parse(what).collated(SECONDARY)
        assert projection.apply(document, filter).body == wanted
