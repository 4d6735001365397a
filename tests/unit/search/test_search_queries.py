"""The query language of searches: every string is read, or refused by an error of ours."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store import InvalidSearch
from collections_store.search.matching import is_found, snippets
from collections_store.search.query import SearchQuery, Term, any_word, check_query, parsed
from collections_store.search.words import BOUNDARY, words_of

FIELDS = frozenset({"title", "a.b"})


def t(*words: str, prefix: bool = False, field: str | None = None) -> Term:
    return Term(words, prefix, field)


@pytest.mark.parametrize(
    ("query", "required", "excluded"),
    [
        ("tea", [[t("tea")]], []),
        ("Green TEA", [[t("green")], [t("tea")]], []),
        ('"green tea" -cake', [[t("green", "tea")]], [t("cake")]),
        ('tea -"carrot cake"', [[t("tea")]], [t("carrot", "cake")]),
        ("chin*", [[t("chin", prefix=True)]], []),
        ('"green te"*', [[t("green", "te", prefix=True)]], []),
        ("tea OR coffee milk", [[t("tea"), t("coffee")], [t("milk")]], []),
        ("a OR b OR c", [[t("a"), t("b"), t("c")]], []),
        ("OR tea", [[t("or")], [t("tea")]], []),
        ("tea OR", [[t("tea")], [t("or")]], []),
        ("tea OR -cake", [[t("tea")], [t("or")]], [t("cake")]),
        ("tea or coffee", [[t("tea")], [t("or")], [t("coffee")]], []),
        ("a OR OR b", [[t("a"), t("or")], [t("b")]], []),
        ("title:tea", [[t("tea", field="title")]], []),
        ('a.b:"green tea" -title:x*', [[t("green", "tea", field="a.b")]], [t("x", prefix=True, field="title")]),
        ("at 12:30 http://x", [[t("at")], [t("12", "30")], [t("http", "x")]], []),
        ("re: tea", [[t("re")], [t("tea")]], []),
        ("well-known don't", [[t("well", "known")], [t("don", "t")]], []),
        ('"open phrase', [[t("open", "phrase")]], []),
        ("--tea x", [[t("x")]], [t("tea")]),
        ("tea !!! 🥰 - * (x)", [[t("tea")], [t("x")]], []),
        ("title: x", [[t("title")], [t("x")]], []),
        ('x NEAR(a b) {a} ^b + \'; DROP "', [[t("x")], [t("near", "a")], [t("b")], [t("a")], [t("b")], [t("drop")]], []),
    ],
)  # fmt: skip
def test_queries(query: str, required: list[list[Term]], excluded: list[Term]) -> None:
    found = parsed(query, FIELDS)
    assert found == SearchQuery(tuple(map(tuple, required)), tuple(excluded))


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (None, "must be a string, got None"),
        ("", "must have a word: letters or digits"),
        ('"" * - 🥰', "must have a word: letters or digits"),
        ("\ufdd0", "must have a word: letters or digits"),
        ("-cake -tea", "must have a word that documents have, beside the excluded words"),
        ("a " * 101, "must have at most 100 words"),
        ("a" * 101, "a word must have at most 100 characters"),
        ("a" * 10_001, "must have at most 10,000 characters, got 10,001"),
    ],
)
def test_invalid_queries(query: Any, problem: str) -> None:
    with pytest.raises(InvalidSearch) as caught:
        check_query(query)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("search ")
    assert caught.value.query == query


@given(st.text(st.sampled_from('ab"*-: OR\u0301\ufdd0ßé,.'), max_size=30) | st.text(max_size=300))
def test_any_word_of_a_text(text: str) -> None:
    words = [word for word in words_of(text.replace(BOUNDARY, " ")) if word]
    if not words:
        with pytest.raises(InvalidSearch):
            any_word(text)
    else:
        found = parsed(any_word(text), frozenset({"a", "b"}))
        assert found.excluded == ()
        [terms] = found.required
        assert [each.words for each in terms] == [(word,) for word in dict.fromkeys(words)][:100]
        assert not any(each.prefix or each.field for each in terms)


@given(st.text(st.sampled_from('ab"*-: OR\u0301\ufdd0,.'), max_size=30) | st.text(max_size=30))
def test_every_string_is_read_or_refused(query: str) -> None:
    try:
        found = parsed(query, FIELDS)
    except InvalidSearch:
        return
    assert all(term.words for term in (*found.terms, *found.excluded))


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("tea", True),
        ("green cake", True),
        ('"green tea"', True),
        ('"tea with"', True),
        ('"milk cake"', False),
        ("gre*", True),
        ('"tea wi"*', True),
        ("tea -coffee", True),
        ("tea -cake", False),
        ("coffee OR milk", True),
        ("title:cake", False),
        ("title:green", True),
        ("a.b:cake", True),
    ],
)
def test_matches(query: str, matches: bool) -> None:
    texts = {"title": ["Green tea with milk"], "a.b": ["milk", "cake"]}
    assert is_found(parsed(query, FIELDS), texts) is matches


def test_snippets() -> None:
    text = "Nothing here. " * 20 + "I like green tea, and Green-Tea cake." + " Nothing there." * 20
    query = parsed('"green tea" OR title:nothing')
    found = snippets(query, {"body": ["no", text], "title": ["x"]}, ("<", ">"))
    assert list(found) == ["body"]
    assert "I like <green> <tea>, and <Green>-<Tea> cake." in found["body"]
    assert found["body"].startswith("…")
    assert found["body"].endswith("…")
    assert len(found["body"]) <= 180
    assert snippets(parsed("tea"), {"b": ["tea"]}, ("[", "]")) == {"b": "[tea]"}
    assert snippets(parsed("te*"), {"b": ["x " * 500, "(team!)"]}, ("[", "]")) == {"b": "([team]!)"}
