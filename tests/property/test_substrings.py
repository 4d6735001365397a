"""`has` and `starts_with` find the same strings in SQL as in the matcher, and as Python without `ignore_case`."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import Document, F, Filter
from collections_store.query.matcher import matches

pytestmark = pytest.mark.each_backend

LETTERS = "aAkKsS\u212a\u017f\xdf\u1e9eéÉ\u03c3\u03c2\u03a3\u0130i\u0131I+*?.^$[]{}()|\\/-_%'\"# \n\t0é\U0001f375\ud7ff\U0010ffff"
TEXTS = st.text(st.sampled_from(LETTERS), max_size=6)


@settings(max_examples=90 // sampled(6), deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8),
    wanted=st.lists(TEXTS, min_size=1, max_size=4),
    indexed=st.booleans(),
    substring=st.booleans(),
)
def test_sql_finds_the_substrings_that_the_matcher_finds(
    store: Any, texts: list[str], wanted: list[str], indexed: bool, substring: bool
) -> None:
    store.drop("things")
    things = store["things"]
    if indexed:
        things.create_index("t")
    if substring:
        things.create_text_index(["t", "in.t"], substring=True)
    things.put_many((str(n), {"t": text, "in": [{"t": [text, 5]}]}) for n, text in enumerate(texts))
    documents = [Document(str(n), {"t": text}) for n, text in enumerate(texts)]
    for part in [*wanted, texts[0][1:4], texts[0][:2], texts[-1][-3:]]:
        for ignore_case in (False, True):
            for method in ("has", "starts_with"):
                filter: Filter = getattr(F("t"), method)(part, ignore_case=ignore_case)
                inside: Filter = getattr(F("in.t"), method)(part, ignore_case=ignore_case)
                expected = [each.id for each in documents if matches(filter, each)]
                assert [each.id for each in things.find(filter)] == expected, filter
                assert [each.id for each in things.find(inside)] == expected, filter
                assert things.count(~filter) == len(texts) - len(expected), filter
                if not ignore_case:
                    test = str.__contains__ if method == "has" else str.startswith
                    assert expected == [str(n) for n, text in enumerate(texts) if test(text, part)]


VALUES = st.one_of(TEXTS, st.lists(st.one_of(TEXTS, st.just(5), st.lists(TEXTS)), max_size=3))
INNER = st.dictionaries(st.sampled_from("bt"), VALUES, max_size=2)
BODIES = st.one_of(
    TEXTS,
    st.lists(st.one_of(TEXTS, INNER), max_size=2),
    st.dictionaries(
        st.sampled_from("ta"),
        st.one_of(VALUES, INNER, st.lists(st.one_of(INNER, st.lists(INNER)), max_size=2)),
    ),
)


@settings(max_examples=120 // sampled(8), deadline=None)
@given(data=st.data(), early=st.booleans(), words=st.booleans())
def test_an_index_of_substrings_changes_no_result(
    store: Any, data: st.DataObject, early: bool, words: bool
) -> None:
    bodies = data.draw(st.lists(BODIES, min_size=2, max_size=6))
    store.drop("things")
    things, fields = store["things"], ["t", "a.b", "$body"]
    if words:
        things.create_text_index(fields)
    if early:
        things.create_text_index(fields, substring=True)
    things.put_many((str(number), body) for number, body in enumerate(bodies))
    if not early:
        things.create_text_index(fields, substring=True)
    for number, body in enumerate(data.draw(st.lists(BODIES, max_size=3))):
        things.put(str(2 * number), body)
    things.remove("1")
    documents = list(things.find())
    strings = sorted(set(_strings([each.body for each in documents]))) or [""]
    parts = st.one_of(TEXTS, st.sampled_from(strings), st.sampled_from([t[1:5] for t in strings]))
    conditions = st.builds(
        lambda field, method, part, ignore_case: getattr(F(field), method)(
            part, ignore_case=ignore_case
        ),
        st.sampled_from(["t", "t", "a", "a.b", "a.0.b", "$body"]),
        st.sampled_from(["has", "has", "starts_with"]),
        parts,
        st.sampled_from([False, False, True]),
    )
    for one, two in data.draw(st.lists(st.tuples(conditions, conditions), min_size=3, max_size=6)):
        for filter in (one, one & two, one | two, one & ~two):
            expected = [each.id for each in documents if matches(filter, each)]
            assert [each.id for each in things.find(filter)] == expected, filter
            assert things.count(filter) == len(expected), filter


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


@pytest.mark.parametrize("ignore_case", [False, True])
def test_sql_evaluates_substrings(things: Any, ignore_case: bool) -> None:
    things.put("1", {})
    for text in ("C++", "k" * 1000, "é", "a.b\n'%"):
        for filter in (
            F("t").has(text, ignore_case=ignore_case),
            F("t").starts_with(text, ignore_case=ignore_case),
        ):
            assert things.explain(filter).in_matcher is None


def test_an_index_serves_a_prefix(things: Any) -> None:
    things.create_index("t")
    things.put_many((f"{n:04}", {"t": f"{n % 50}.{n}"}) for n in range(2000))
    filter = F("t").starts_with("7.")
    assert things.explain(filter).indexes == ("t_1",)
    assert things.count(filter) == 40


SERVED = [
    ("C++ and more", "C++ and"),
    ('a "quoted" word', '"quoted"'),
    ("a 100%_\\ off", "0%_\\ off"),
    ("ao'é :p0", "o'é :p0"),
]


@pytest.mark.parametrize(("text", "part"), SERVED)
def test_an_index_serves_substrings(store: Any, text: str, part: str) -> None:
    store.drop("many")
    things = store["many"]
    things.put_many((f"{n:05}", {"t": f"thing {n}", "u": [f"{n}"]}) for n in range(3000))
    things.put("found", {"t": text, "u": [text]})
    things.create_text_index("t")
    name = things.create_text_index(["t", "u"], substring=True)
    for filter in (
        F("t").has(part),
        F("u").has(part) & F("t").has("a"),
        {"t": {"$regex": f"^{re.escape(text)}"}},
    ):
        explanation = things.explain(filter)
        assert explanation.indexes == (name,)
        assert not explanation.scans
        assert [each.id for each in things.find(filter)] == ["found"]
    assert things.explain(F("t").has(part[:2])).scans
    assert things.explain(F("t").has(part, ignore_case=True)).scans
    assert things.explain(F("t").has(part) | F("t").has("thing 77")).scans
    assert things.delete_many(F("u").has(part)).deleted_count == 1
    assert things.count(F("t").has(part)) == 0
    assert things.drop_index(name)
    assert things.explain(F("t").has(part)).indexes == ()


@pytest.mark.parametrize("part", ["\0", "a\0"])
def test_text_that_no_database_stores_is_in_no_document(things: Any, part: str) -> None:
    things.put("1", {"t": "a"})
    assert things.count(F("t").has(part)) == 0
    assert things.count(F("t").starts_with(part, ignore_case=True)) == 0


@pytest.mark.parametrize("part", [None, 5, b"x", ["x"]])
def test_a_substring_is_a_string(part: Any) -> None:
    with pytest.raises(ValueError, match="at 't': must have a string, got"):
        F("t").has(part)
    with pytest.raises(ValueError, match="at 't': ignore_case must be True or False, got"):
        F("t").starts_with("x", ignore_case=part)
