"""A search finds the documents that `search.matching` finds, on every database, whatever writes there were before."""

from typing import Any

import psycopg
import pytest
from backends import Backend
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql as sql_module
from selection import sampled

from collections_store import Store
from collections_store.operations.diagnosis import Diagnose
from collections_store.query.text_index import TextIndex
from collections_store.search.matching import is_found
from collections_store.search.words import words_of

pytestmark = pytest.mark.each_backend

FIELDS = {"t": 3, "a.b": 1, "in.t": 0.5, "$body": 1}
WORDS = [
    "tea",
    "Tea",
    "tee",
    "green",
    "milk",
    "C++",
    "x1",
    "1e5a",
    "É",
    "e\u0301",
    "\u0301",
    "ß",
    "don't",
    "漢字",
    "🥰",
]
JOINS = [" ", ", ", "-", "", "\n", "\ufdd0", " \u0301 ", "'", '"']
TEXTS = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(JOINS)), max_size=6).map(
    lambda pairs: "".join(word + join for word, join in pairs)
)
LONG = st.builds(
    lambda text, times: f"{'tea milk ' * times}{text}", TEXTS, st.sampled_from([300, 9000])
)
STRINGS = st.one_of(TEXTS, TEXTS, TEXTS, LONG)
VALUES = st.one_of(
    STRINGS,
    st.lists(st.one_of(TEXTS, st.just(5), st.lists(TEXTS, max_size=1)), max_size=3),
    st.none(),
)
INNER = st.dictionaries(st.sampled_from("btx"), VALUES, max_size=2)
BODIES = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "t": VALUES,
            "a": st.one_of(
                INNER, st.lists(st.one_of(INNER, st.lists(INNER, max_size=1)), max_size=2)
            ),
            "in": st.lists(INNER, max_size=2),
        },
    ),
    st.lists(st.one_of(INNER, TEXTS), max_size=2),
    TEXTS,
)
TERMS = st.builds(
    lambda field, text, quoted, star: (
        f'{field}"{text}"{star}' if quoted else f"{field}{text}{star}"
    ),
    st.sampled_from(["", "", "", "t:", "a.b:", "in.t:", "$body:", "no:"]),
    TEXTS,
    st.booleans(),
    st.sampled_from(["", "", "*"]),
)
QUERIES = st.builds(
    lambda parts: " ".join(f"{before}{term}" for before, term in parts),
    st.lists(st.tuples(st.sampled_from(["", "", "-", "OR "]), TERMS), max_size=4),
).map(lambda query: f"te* OR milk {query}" if len(query) % 2 else f"{query} e*")  # fmt: skip


@settings(max_examples=90 // sampled(3), deadline=None)
@given(
    bodies=st.lists(BODIES, min_size=1, max_size=6),
    changed=st.lists(BODIES, max_size=3),
    queries=st.lists(QUERIES, min_size=2, max_size=6),
    early=st.booleans(),
)
def test_a_search_finds_what_the_reference_finds(
    store: Any, bodies: list[Any], changed: list[Any], queries: list[str], early: bool
) -> None:
    store.drop("things")
    things, index = store["things"], TextIndex.parse(FIELDS)
    if early:
        things.create_text_index(FIELDS)
    things.put_many((str(number), body) for number, body in enumerate(bodies))
    if not early:
        things.create_text_index(FIELDS)
    for number, body in enumerate(changed):
        things.put(str(2 * number), body)
    things.remove("1")
    stored = dict(things.find())
    assert [each for each in store.run(Diagnose()) if each.check == "words"] == []
    for query in queries:
        words = index.parsed(query)
        expected = {id for id, body in stored.items() if is_found(words, index.texts(body))}
        found = list(things.search(query, limit=100))
        assert {each.id for each in found} == expected, query
        assert {each.id: each.body for each in found} == {id: stored[id] for id in expected}
        order = [(-each.score, each.id) for each in found]
        assert order == sorted(order)


def test_postgresql_finds_the_same_words_for_every_character(postgres_backend: Backend) -> None:
    schema = postgres_backend.options["schema"]
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        store["words"].create_text_index("t")
        with psycopg.connect(postgres_backend.url) as connection:
            sql = "SELECT proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = %s AND proname LIKE '%%words'"
            [(name,)] = connection.execute(sql, (schema,)).fetchall()
            chosen = [*range(1, 0x3100), *range(0x3100, 0x110000, 7)]
            every = [chr(code) for code in chosen if not 0xD800 <= code <= 0xDFFF]
            for n in range(0, len(every), 2048):
                text = " ".join(f"x{c}y {c}" for c in every[n : n + 2048])
                call = sql_module.SQL("SELECT {}(%s)").format(sql_module.Identifier(schema, name))
                [(words,)] = connection.execute(call, (f" {text} ",)).fetchall()
                assert words[1:-1] == words_of(text), text[:80]
