"""Regular expressions: MongoDB's syntax, and searches that end."""

import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from collections_store import PatternLimitExceeded
from collections_store.expressions.budget import checked_by
from collections_store.expressions.patterns import Pattern, compiled, matchers
from collections_store.expressions.patterns.parser import InvalidPattern

FOUND: list[tuple[str, str, str, str | None]] = [
    ("a.c", "", "xabcx", "abc"),
    ("a.c", "", "a\nc", None),
    ("a.c", "s", "a\nc", "a\nc"),
    (r"a\Nc", "s", "a\nc", None),
    ("^b", "", "a\nb", None),
    ("^b", "m", "a\nb", "b"),
    ("^", "m", "\n", ""),
    ("a$", "", "a\n", "a"),
    (r"a\Z", "", "a\n", "a"),
    (r"a\z", "", "a\n", None),
    ("a$", "m", "a\nb", "a"),
    ("a b # c", "x", "ab", "ab"),
    ("a [ #]b", "x", "a#b", "a#b"),
    ("a +", "x", "aa", "aa"),
    (r"\w+", "", "éab_1é", "ab_1"),
    (r"\W", "", "aé", "é"),
    (r"\d", "", "٣", None),
    (r"\s", "", "\u00a0", None),
    (r"\h", "", "\u00a0", "\u00a0"),
    (r"\bc", "", "éc", "c"),
    ("[[:alpha:]]+", "", "éab1", "ab"),
    ("[[:^alpha:]]+", "", "abé1", "é1"),
    ("[^[:space:][:digit:]]+", "", "1 ab", "ab"),
    ("[[:upper:]]+", "", "abCD", "CD"),
    ("[[:upper:]]+", "i", "abCD", "abCD"),
    ("[[:punct:]]+", "", "a$+<b", "$+<"),
    ("straße", "i", "STRAẞE", "STRAẞE"),
    ("k", "i", "\u212a", "\u212a"),
    ("[a-z]", "i", "\u017f", "\u017f"),
    (r"\w", "i", "\u017f", None),
    ("\u03c3", "i", "\u03c2", "\u03c2"),
    ("i", "i", "ıİ", None),
    ("(?i)A(?-i)B", "", "aB", "aB"),
    ("(?i)A(?-i)B", "", "ab", None),
    ("a(?i:b)c", "", "aBc", "aBc"),
    ("(a(?i)b)c", "", "aBC", None),
    ("a(?i)b|c", "", "C", "C"),
    ("(?#no)a", "", "a", "a"),
    (r"\Qa.b\E+", "", "a.bbb", "a.bbb"),
    (r"\x41\x{e9}\0\101\cA\e\o{102}", "", "Aé\0A\x01\x1bB", "Aé\0A\x01\x1bB"),
    (r"[\101-C\b]+", "", "ABC\b", "ABC\b"),
    (r"\R", "", "\r\n", "\r\n"),
    (r"\p{L}+", "", "1éa", "éa"),
    (r"\p{Lu}\P{Lu}", "", "éÉé", "Éé"),
    (r"[\p{N}_]+", "", "a٣_1", "٣_1"),
    ("[]a]+", "", "a]", "a]"),
    ("[^]a]", "", "]a-", "-"),
    ("[a-]+", "", "a-b", "a-"),
    ("[a&&b]+", "", "a&b", "a&b"),
    ("a{,x", "", "a{,x", "a{,x"),
    ("a{2}", "", "aaa", "aa"),
    ("a{1,2}+a", "", "aa", None),
    ("(?>a+)a", "", "aaa", None),
    ("a++b", "", "aab", "aab"),
    ("a+?", "", "aa", "a"),
    (r"(?<n>a)(?'m'b)(?P<o>c)\k<n>\k'm'\k{o}(?P=n)\g{m}\g3\g{-3}", "", "abcabcabca", "abcabcabca"),
    (r"(a)\1", "i", "aA", "aA"),
    ("(\u017f)\\1", "i", "\u017fK", None),
    ("(?<=a|bc)d", "", "bcd", "d"),
    ("(?<!a|bc)d", "", "bcdxd", "d"),
    ("(a)?(?(1)b|c)", "", "ab", "ab"),
    ("(?<x>a)?(?(<x>)b|c)", "", "xc", "c"),
    ("(*UTF8)é", "", "é", "é"),
    ("", "", "a", ""),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "options", "text", "expected"), FOUND)
def test_patterns(pattern: str, options: str, text: str, expected: str | None) -> None:
    found = compiled(pattern, options)
    for spans in (found.find(text), found._search(text, 0)):
        assert (None if spans is None else text[slice(*spans[0])]) == expected
    assert found.is_found(text) is (expected is not None)
    assert found._automaton is None or found._automaton.finds(text) is (expected is not None)


REFUSED = [
    ("(", 0, r"missing \)"),
    ("a)", 1, r"unbalanced \)"),
    ("a|*", 2, "nothing to repeat"),
    ("a**", 1, "multiple repeat"),
    ("^*", 1, "nothing to repeat"),
    ("{2}", 0, "nothing to repeat"),
    ("a{,2}", 1, r"write \{0,2?n?\}"),
    ("a{3,2}", 6, "at least 3 and at most 2"),
    ("a{99999}", 2, "more than 65535 times"),
    ("(a{1000}){1000}", 0, "repetitions multiply"),
    ("[a", 0, "missing ]"),
    ("[b-a]", 2, "ends before it begins"),
    (r"[\w-.]", 3, r"write \\-"),
    ("[[:nope:]]", 1, "no such POSIX class"),
    ("[:alpha:]", 0, r"\[\[:alpha:\]\]"),
    ("[[.a.]]", 0, "collating"),
    (r"\y", 0, "no escape"),
    ("a\\", 2, "backslash at the end"),
    (r"\Ka", 0, "not supported"),
    (r"\X", 0, "not supported"),
    (r"\p{Greek}", 0, "general categories"),
    (r"\x{110000}", 0, "no such character"),
    (r"\x{d800}", 0, "no such character"),
    ("a\ud800", 1, "lone surrogate"),
    (r"(a\1)", 2, "behind its end"),
    (r"\2(a)(b)", 0, "behind its end"),
    (r"(a)\g{-2}", 3, "behind its end"),
    (r"\k<n>", 0, "no group of that name"),
    ("(?<n>a)(?<n>b)", 7, "twice"),
    ("(?<1>a)", 0, "letters, digits"),
    ("(?R)", 0, "not supported"),
    ("(a)(?1)", 3, "not supported"),
    (r"(a)\g<1>", 3, "recursion"),
    ("(?|a|b)", 0, "not supported"),
    ("(*FAIL)", 0, "not supported"),
    ("(*UCP)a", 0, "not supported"),
    ("(?<=a+)b", 0, "fixed length"),
    ("(?(2)a|b)", 0, "a condition"),
    ("(a)(?(1)a|b|c)", 3, "two alternatives"),
    ("(" * 51 + ")" * 51, 50, "within each other"),
]


@pytest.mark.parametrize(("pattern", "position", "problem"), REFUSED)
def test_invalid_and_unsupported_patterns_are_rejected(
    pattern: str, position: int, problem: str
) -> None:
    with pytest.raises(InvalidPattern, match=rf"at position {position}: .*{problem}"):
        Pattern(pattern)


CATASTROPHES = [
    "(a+)+$",
    "(a|aa)+$",
    "(.*)*x",
    "(a?){30}a{30}$",
    "(a*)*b",
    ".*.*.*x",
    "(a+a+)+y",
    r"^(\w+\s?)+$",
]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_catastrophic_patterns_finish(pattern: str) -> None:
    text = "a" * 5000 + "!"
    assert not compiled(pattern).is_found(text)
    assert compiled(pattern).find(text) is None
    assert compiled(pattern)._search(text[-200:], 0) is None


def test_groups_of_a_long_string() -> None:
    text = "ab" * 50_000 + "-" + "cd" * 50_000
    spans = compiled("((?:ab|cd)*)-(..)").find(text)
    assert spans == ((0, 100_003), (0, 100_000), (100_001, 100_003))


@pytest.mark.parametrize(
    "pattern", ["(?=(a+)+$)", r"(\w+)+\1$", r"(?:(a|aa)+\1)+$", "(?>(a|aa)+b)+$"]
)
def test_patterns_without_an_automaton_have_a_step_limit(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matchers, "LIMIT", 50_000)
    with pytest.raises(PatternLimitExceeded, match="more than 50,000 steps"):
        compiled(pattern).is_found("a" * 40 + "!" * 300)


class Stop(Exception):
    pass


@pytest.mark.parametrize("pattern", ["(a|aa)+$", r"(\w+)+\1$"])
def test_a_search_can_be_stopped(pattern: str) -> None:
    def checks() -> Iterator[None]:
        yield
        raise Stop

    left = checks()
    with checked_by(lambda: next(left)), pytest.raises(Stop):
        compiled(pattern).is_found("a" * 2000_000 + "!")


def test_simple_patterns_use_re() -> None:
    """Up to the lengths of usual fields."""
    for pattern, length in {
        "error": 10**6,
        "^user:[0-9]+$": 10**6,
        "cat|dog": 10**6,
        "error.*timeout": 800,
        r"^[\w.+-]+@([\w-]+\.)+[\w-]{2,}$": 4000,
        r"(\w+)\s+\1": 2000,
        r"^(?=.*[A-Z])(?=.*\d).{8,}$": 10**6,
        r"https?://[^\s/]+/\S*": 1000,
    }.items():
        assert compiled(pattern)._longest >= length, pattern


def test_a_pattern_is_pickled_and_parsed_once() -> None:
    pattern = compiled("a", "i")
    assert pickle.loads(pickle.dumps(pattern)) is pattern
    assert repr(pattern) == "/a/i"
    assert pattern.flags == re.IGNORECASE | re.UNICODE


def test_the_cache_of_an_automaton_is_bounded() -> None:
    """Ten thousand different characters, and the maximum number of states."""
    many = "".join(map(chr, range(0x4E00, 0x7500)))
    pattern: Any = compiled("[ab]*a[ab]{11}x$|\u7500")
    assert not pattern._automaton.finds(many + "abbabaab" * 3000)
    assert pattern._automaton.finds(many + "\u7500")
    assert pattern._automaton._transitions <= 4000


def test_large_sets_are_not_compiled_by_re(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = Pattern(r"\p{L}" * 2000)
    monkeypatch.setattr(re, "compile", None)  # it would take 10 seconds, in one piece
    assert pattern.is_found("é" * 2000)
    assert not pattern.is_found("é" * 1999 + "1" + "é" * 1999)
    with checked_by(_stop), pytest.raises(Stop):
        Pattern(r"\p{L}" * 2000 + "1").is_found("é" * 3000 + "1" * 2)


def _stop() -> None:
    raise Stop


LITERALS: list[tuple[str, str, str, bool]] = [
    ("a" * 4000, "", "a" * 4000, True),
    ("a" * 4000, "", "a" * 3999 + "b" + "a" * 3999, False),
    ("aB" * 2000, "i", "x" + "Ab" * 2000, True),
    ("aB" * 2000, "i", "ab" * 1999 + "x" + "ab" * 1999, False),
    ("(?i)K" * 100, "", "\u212ak" * 50, True),
    ("[ab]c" * 100, "i", "Bc" * 100, True),
]
NOT_LITERALS: list[tuple[str, str, str, bool]] = [
    ("(?i)a(?-i)A" * 100, "", "aA" * 100, True),
    ("(?i)a(?-i)A" * 100, "", "aa" * 100, False),
    ("(?-i)A(?i)a" * 100, "", "aa" * 100, False),
    ("[ab]a" * 100, "i", "ba" * 99 + "bc", False),
]


@pytest.mark.parametrize(("pattern", "options", "text", "expected"), LITERALS)
def test_str_searches_for_literals(pattern: str, options: str, text: str, expected: bool) -> None:
    with checked_by(_stop):  # every step of an automaton is counted
        assert Pattern(pattern, options).is_found(text) is expected


@pytest.mark.parametrize(("pattern", "options", "text", "expected"), NOT_LITERALS)
def test_sets_that_are_not_one_letter(
    pattern: str, options: str, text: str, expected: bool
) -> None:
    assert Pattern(pattern, options).is_found(text) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(a|b?){65}c", "(a?){130}a{30}$", "(a?){65}a{30}$", "(a?){65,70}a{30}$", "(a?){0,130}a{30}$"],
)
def test_re_gets_no_counted_repetition_of_a_part_that_may_be_empty(pattern: str) -> None:
    """`re` may choose each of the rounds to be the empty one, which takes exponential time."""
    assert compiled(pattern)._longest == 0


def test_counted_repetitions_of_other_parts_run_in_re() -> None:
    assert compiled("(ab){65}c")._longest > 0
