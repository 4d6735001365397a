"""`has` and `starts_with` find the same strings in SQL as in the matcher, and as Python without `ignore_case`."""

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


@settings(max_examples=90 // sampled(3), deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=8),
    wanted=st.lists(TEXTS, min_size=1, max_size=4),
    indexed=st.booleans(),
)
def test_sql_finds_the_substrings_that_the_matcher_finds(
    store: Any, texts: list[str], wanted: list[str], indexed: bool
) -> None:
    store.drop("things")
    things = store["things"]
    if indexed:
        things.create_index("t")
    things.put_many((str(n), {"t": text, "in": [{"t": [text, 5]}]}) for n, text in enumerate(texts))
    documents = [Document(str(n), {"t": text}) for n, text in enumerate(texts)]
    for part in [*wanted, texts[0][1:4], texts[0][:2]]:
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
