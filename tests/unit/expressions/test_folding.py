"""Simple folding: which strings are the same, in which order they come."""

import pytest

from collections_store.expressions.collation import Collation
from collections_store.expressions.folding import folded_case, folded_marks


def collation(strength: int) -> Collation:
    parsed = Collation.parse({"locale": "simple", "strength": strength})
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("left", "right", "by_case", "by_marks"),
    [
        ("cafe", "CAFE", True, True),
        ("caf\u00e9", "CAFE\u0301", True, True),
        ("caf\u00e9", "cafe", False, True),
        ("Stra\u00dfe", "STRASSE", True, True),
        ("\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2", "\u03a3\u038a\u03a3\u03a5\u03a6\u039f\u03a3", True, True),
        ("\u0419", "\u0438", False, True),
        ("\u0419", "\u0439", True, True),
        ("\ufb01", "FI", True, True),
        ("a", "b", False, False),
        ("\u00f8", "o", False, False),
        ("\u00e6", "ae", False, False),
        ("\uff21", "a", False, False),
        ("\u0130", "i", False, True),
        ("\u0131", "i", False, False),
        ("\ud55c", "\u1112\u1161\u11ab", True, True),
        ("\u4e2d", "\u65e5", False, False),
        ("", "\u0301", False, True),
    ],
)  # fmt: skip
def test_which_strings_are_the_same(left: str, right: str, by_case: bool, by_marks: bool) -> None:
    assert (folded_case(left) == folded_case(right)) is by_case
    assert (folded_marks(left) == folded_marks(right)) is by_marks
    assert (collation(2).key(left) == collation(2).key(right)) is by_case
    assert (collation(1).key(left) == collation(1).key(right)) is by_marks


def test_the_order_is_that_of_the_folded_strings() -> None:
    words = ["zoo", "\u00c9clair", "Zebra", "eb", "ed", "Apfel", "\u00e4pfel"]
    wanted = ["Apfel", "\u00e4pfel", "eb", "\u00c9clair", "ed", "Zebra", "zoo"]
    assert sorted(words, key=collation(1).key) == wanted
    accented = ["Apfel", "\u00e4pfel", "eb", "ed", "\u00c9clair", "Zebra", "zoo"]
    assert sorted(words, key=collation(2).key) == accented


def test_the_version_is_that_of_unicode() -> None:
    assert collation(1).version.startswith("unicode ")
    assert collation(1).to_json() == {"locale": "simple", "strength": 1}
