"""Words: SQLite's tokenizer finds the words that Python finds, for every character."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store.search.words import BOUNDARY, folded, marks, separators, spans_of, words_of
from collections_store.sql.dialects.sqlite.text_index import TOKENIZER

EVERY = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code <= 0xDFFF]
SAMPLE = "aé\u0301Ǆß\u0130 -'\ufe0f🥰½\u0663\u0e33\u093f\u3042漢\ufdd0\u200d"


def test_sqlite_finds_the_same_words_for_every_character() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(f'CREATE VIRTUAL TABLE t USING fts5(words, tokenize="{TOKENIZER}")')
    connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, instance)")
    texts = [" ".join(f"x{c}y {c}" for c in EVERY[n : n + 512]) for n in range(0, len(EVERY), 512)]
    connection.executemany("INSERT INTO t VALUES (?)", [(text,) for text in texts])
    found: dict[int, list[str]] = {}
    for row, word in connection.execute("SELECT doc, term FROM v ORDER BY doc, offset"):
        found.setdefault(row, []).append(word or "")
    for row, text in enumerate(texts, 1):
        assert found[row] == words_of(text), text
    connection.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Crème BRÛLÉE", ["creme", "brulee"]),
        (
            "don't foo_bar well-known C++ 3.5",
            ["don", "t", "foo", "bar", "well", "known", "c", "3", "5"],
        ),
        ("cafe\u0301 \u0301 x", ["cafe", "", "x"]),
        ("tea🥰☕\ufe0f time", ["tea", "time"]),
        ("Straße STRASSE", ["straße", "strasse"]),
        ("ΣΊΣΥΦΟΣ Ёлка", ["σίσυφοσ", "ёлка"]),
        ("हिन्दी", ["हिन्दी"]),
        ("我喜欢绿茶", ["我喜欢绿茶"]),
        ("", []),
        (" \t\n\u00a0\u3000…—", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_folding_is_idempotent_and_leaves_words() -> None:
    outside = {code for low, high in separators() for code in range(low, high + 1)}
    for character, other in folded().items():
        assert other not in folded()
        assert not {ord(character), ord(other)} & outside
    assert not {ord(BOUNDARY), *map(ord, marks())} & outside


@given(text=st.text(st.sampled_from(SAMPLE), max_size=20) | st.text(max_size=20))
def test_spans_are_the_words_in_the_text(text: str) -> None:
    spans = list(spans_of(text))
    assert [word for word, _, _ in spans] == words_of(text)
    for word, begin, end in spans:
        assert words_of(text[begin:end]) == [word]
