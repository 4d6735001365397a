"""Queries for the words of a text that somebody wrote."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collections_store import Collection, Store
from collections_store.integrations.vectors import has_words
from collections_store.integrations.words import any_word


@pytest.fixture(scope="module")
def notes() -> Iterator[Collection]:
    with Store("sqlite://") as store:
        store["notes"].create_text_index("text")
        store["notes"].put_many({"tea": {"text": "Tea हिन्दी"}, "milk": {"text": "milk"}})
        yield store["notes"]


@given(st.text())
@example('-tea title:x "OR" chin* ' + "w" * 200)
@example(" ".join(map(str, range(1000))))
@example("\u0301 \u093f")
@example("\U0001fbf0 \U0001f100")  # digits that separate words
@example(" ".join(f"{n}\ufe0f\u20e3{n}" for n in range(100)))
def test_every_text_is_a_query(notes: Collection, text: str) -> None:
    for written in (text, f"{text} {text}"):
        query = any_word(written)
        if query:
            notes.search(query)
        if has_words(written):
            notes.search(written, match="any")
    assert "tea" in [each.id for each in notes.search(any_word(f"TEA {text}"))]


def test_a_document_needs_one_of_the_words(notes: Collection) -> None:
    def find(text: str) -> list[str]:
        return sorted(each.id for each in notes.search(any_word(text)))

    assert find("-milk, NOT cake") == ["milk"]
    assert find("tea OR milk?") == ["milk", "tea"]
    assert find("हिन्दी") == ["tea"]
    assert find("something else") == []
    assert any_word("?! -") == any_word("") == ""
