"""The matchers of regular expressions agree with Python's `re`, and searches respect the step limit."""

import contextlib
import re
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from collections_store import PatternLimitExceeded
from collections_store.expressions.patterns import Pattern, cost
from collections_store.expressions.patterns.matchers import LIMIT, Backtracker
from collections_store.expressions.patterns.parser import InvalidPattern

ATOMS = [
    "a",
    "b",
    "A",
    "1",
    " ",
    ".",
    r"\w",
    r"\W",
    r"\d",
    r"\s",
    "[ab]",
    "[^a1]",
    "[a-c_]",
    r"[\w-]",
    "é",
    r"\n",
]
ANCHORS = ["^", "$", r"\b", r"\B", r"\A"]
TIMES = ["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "+?", "??", "{1,2}?"]
TEXTS = st.text(st.sampled_from("aabbA1 _-é\n"), max_size=12)
OPTIONS = st.sampled_from(["", "", "i", "m", "s", "ims"])
FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
CLASSES = {
    r"\w": "[A-Za-z0-9_]",
    r"\W": "[^A-Za-z0-9_]",
    r"\d": "[0-9]",
}


def patterns(*, regular: bool) -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        kinds = [
            st.lists(inner, min_size=2, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
            inner.map("({})".format),
            st.tuples(inner, st.sampled_from(TIMES)).map(lambda both: f"(?:{both[0]}){both[1]}"),
            st.tuples(inner, st.sampled_from(TIMES)).map(lambda both: f"({both[0]}){both[1]}"),
        ]
        if not regular:
            kinds += [
                inner.map("(?={})".format),
                inner.map("(?!{})".format),
                inner.map("(?>{})".format),
                inner.map(r"({})\1".format),
                st.sampled_from(["(?<=a)", "(?<!ab)", "(?<=[^b])", "(a)?(?(1)b|1)"]),
            ]
        return st.one_of(kinds)

    atoms = st.tuples(st.sampled_from(ATOMS), st.sampled_from(["", "", "", *TIMES])).map("".join)
    return st.recursive(st.one_of(atoms, st.sampled_from(ANCHORS)), larger, max_leaves=6)


def of_python(pattern: str, options: str) -> re.Pattern[str]:
    """Return the pattern in the syntax of `re`, with the classes, `^` and case folding of PCRE."""
    flags = sum(FLAGS[each] for each in options)
    text = pattern.replace(r"[\w-]", "[A-Za-z0-9_-]")
    text = text.replace(r"\b", r"(?a:\b)").replace(r"\B", r"(?!(?a:\b))")
    for name, words in CLASSES.items():
        text = text.replace(name, words)
    if "m" in options:
        text = re.sub(r"(?<!\[)\^", r"(?:^(?!(?<=\\n)\\Z))", text)
    return re.compile(text, flags)


def spans_of(pattern: Pattern, text: str) -> Any:
    return pattern._search(text, 0)


@given(patterns(regular=True), OPTIONS, TEXTS)
def test_regular_patterns_match_like_re(pattern: str, options: str, text: str) -> None:
    ours, theirs = Pattern(pattern, options), of_python(pattern, options).search(text)
    assert ours.find(text) == spans_of(ours, text)
    found = ours.find(text)
    assert (None if found is None else found[0]) == (None if theirs is None else theirs.span())
    assert ours._automaton is not None
    assert ours._automaton.finds(text) == (theirs is not None)


@given(patterns(regular=False), OPTIONS, TEXTS)
def test_patterns_match_like_re(pattern: str, options: str, text: str) -> None:
    try:
        expected, ours = of_python(pattern, options).search(text), Pattern(pattern, options)
    except (re.error, InvalidPattern) as error:
        assume("group" not in str(error))  # with the number of another group
        raise
    found = spans_of(ours, text)
    assert (None if found is None else found[0]) == (None if expected is None else expected.span())


STEPS = 40
"""Steps in Python per counted step: the instructions of a short pattern."""


@given(patterns(regular=False), st.text(st.sampled_from("ab1"), max_size=4), st.integers(1, 40))
def test_searches_take_no_more_steps_than_counted(pattern: str, piece: str, times: int) -> None:
    """The steps of `re` are counted; a matcher without a cache takes the same steps."""
    try:
        ours = Pattern(pattern)
    except InvalidPattern:
        assume(False)
    text = piece * times + "!"
    compiler = ours._compiled
    runner = Backtracker(compiler.program, compiler.slots, text, regular=False)
    with contextlib.suppress(PatternLimitExceeded):
        runner.search(0, ours._groups, lambda position: position)
    assert LIMIT - runner._left <= STEPS * (1 + cost.bound(ours._node)(len(text)))
