"""Simple folding: a folded string stays as it is, and Latin letters are the same as for ICU."""

import unicodedata
from string import ascii_lowercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store.expressions.folding import folded_case, folded_marks

FOLDINGS = {1: folded_marks, 2: folded_case}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LATIN = [
    letter
    for letter in map(chr, [*range(0x250), *range(0x1E00, 0x1F00)])
    if unicodedata.normalize("NFD", letter)[0].lower() in ascii_lowercase
]
"""The ASCII letters, and all letters that are one of them with marks."""
WORDS = st.text(
    st.sampled_from(LATIN) | st.sampled_from("aAbB\u0301\u0308\u00e4\u00c4"), max_size=4
)


@given(TEXTS)
def test_a_folded_string_stays_as_it_is(text: str) -> None:
    for fold in FOLDINGS.values():
        assert fold(fold(text)) == fold(text)


@given(TEXTS)
def test_normal_forms_are_the_same(text: str) -> None:
    for fold in FOLDINGS.values():
        for form in ("NFC", "NFD"):
            assert fold(unicodedata.normalize(form, text)) == fold(text)


def test_a_folded_character_stays_as_it_is() -> None:
    every = [chr(n) for n in range(0x20000) if not 0xD800 <= n < 0xE000]
    for fold in FOLDINGS.values():
        assert [each for each in every if fold(fold(each)) != fold(each)] == []


@pytest.mark.parametrize("strength", FOLDINGS)
@given(WORDS, WORDS)
def test_latin_letters_are_the_same_as_for_icu(strength: int, left: str, right: str) -> None:
    icu: Any = pytest.importorskip("icu")
    level = {1: "primary", 2: "secondary"}[strength]
    collator = icu.Collator.createInstance(icu.Locale(f"@colStrength={level}"))
    fold = FOLDINGS[strength]
    for one, other in ((left, right), (left, right.swapcase())):
        assert (fold(one) == fold(other)) is (collator.compare(one, other) == 0)


@pytest.mark.parametrize("strength", FOLDINGS)
def test_each_latin_letter_is_the_same_as_for_icu(strength: int) -> None:
    icu: Any = pytest.importorskip("icu")
    level = {1: "primary", 2: "secondary"}[strength]
    key = icu.Collator.createInstance(icu.Locale(f"@colStrength={level}")).getSortKey
    fold = FOLDINGS[strength]
    same, wanted = dict[str, set[str]](), dict[bytes, set[str]]()
    for letter in LATIN:
        same.setdefault(fold(letter), set()).add(letter)
        wanted.setdefault(key(letter), set()).add(letter)
    assert sorted(map(sorted, same.values())) == sorted(map(sorted, wanted.values()))
