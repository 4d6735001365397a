"""A search of dialogues finds the same as the matcher on headers with their messages, for random dialogues and filters."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_sql_is_the_matcher import is_literal, merged, operators_of
from selection import sampled

from collections_store import Document, Filter, Store
from collections_store.dialogues import DialogueLabel, DialogueStore
from collections_store.query.matcher import matches

WORDS = st.sampled_from(["buy", "sell", "", "1", "é", "null"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.sampled_from([0, 1, 2, -1, 1.0, 0.5]), WORDS, WORDS
)
KEYS = st.sampled_from(["intent", "a", "0", "1", "body", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)
MESSAGES = st.one_of(
    st.fixed_dictionaries(
        {"performative": st.sampled_from(["ask", "offer", "end"]), "body": VALUES},
        optional={"target": st.integers(0, 2), "tags": st.lists(SCALARS, max_size=3)},
    ),
    VALUES,
)
HEADERS = st.fixed_dictionaries(
    {"role": WORDS, "state": st.sampled_from(["active", "ended"])},
    optional={"metadata": VALUES, "a": VALUES},
)
OWN = ["messages", "messages.body", "messages.body.intent", "messages.performative"]
OWN += ["messages.tags", "messages.target", "messages.body.a", "messages.0", "messages.1.body"]
OWN += ["messages.0.body.intent", "messages.body.0", "messages.body.0.intent", "messages.a.0"]
OWN += ["messages.missing", "messages.intent", "messages.01"]
PATHS = st.one_of(
    st.sampled_from(OWN),
    st.sampled_from(OWN),
    st.sampled_from(["role", "state", "is_terminal", "metadata", "metadata.a", "a.0", "a"]),
    st.sampled_from(["dialogue_label.dialogue_opponent_addr", "$id", "$version"]),
    st.lists(KEYS, min_size=1, max_size=3).map(lambda keys: ".".join(["messages", *keys])),
)
INNER = st.sampled_from(["performative", "body", "body.intent", "tags", "target", "a", "0", "a.0"])


@dataclass
class Talk:
    """A dialogue of a minimal class."""

    label: DialogueLabel
    header: dict[str, Any]
    lines: list[Any] = field(default_factory=list)
    is_over: bool = False


class TalkCodec:
    def label(self, talk: Talk) -> DialogueLabel:
        return talk.label

    def is_terminal(self, talk: Talk) -> bool:
        return talk.is_over

    def header(self, talk: Talk) -> dict[str, Any]:
        return talk.header

    def message_count(self, talk: Talk) -> int:
        return len(talk.lines)

    def messages(self, talk: Talk, after: int) -> list[Any]:
        return talk.lines[after:]

    def restore(self, label: DialogueLabel, header: Any, messages: Any) -> Talk:
        own = {"dialogue_label", "is_terminal"}
        dialogues = {key: value for key, value in header.items() if key not in own}
        return Talk(label, dialogues, list(messages), header["is_terminal"])


def values_in(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from values_in(each)


def questions(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw filters of headers and messages."""
    literal = values.filter(is_literal)
    operators = st.one_of(operators_of(values), operators_of(values, deep=False))
    of_element = st.builds(
        lambda some: {key: operand for each in some for key, operand in each.items()},
        st.lists(
            st.builds(lambda key, operand: {key: operand}, INNER, literal | operators),
            min_size=1,
            max_size=2,
        ),
    )
    branches = st.lists(of_element, min_size=1, max_size=2)
    both = st.builds(lambda name, some: {name: some}, st.sampled_from(["$or", "$nor"]), branches)
    element = st.builds(
        lambda inner, kind: {"$elemMatch": inner} if kind else {"$not": {"$elemMatch": inner}},
        st.one_of(of_element, both, operators_of(values, deep=False)),
        st.booleans(),
    )
    messages = st.builds(lambda one: {"messages": one}, element)
    tags = st.builds(
        lambda inner: {"messages.tags": {"$elemMatch": inner}}, operators_of(values, deep=False)
    )
    plain = st.builds(
        lambda path, operand: {path: operand},
        PATHS.filter(lambda path: not path.startswith("$")),
        st.one_of(literal, operators),
    )
    metadata = st.sampled_from([{"$version": 1}, {"$version": {"$gt": 1}}, {"$body": 1}])
    formula = st.sampled_from(
        [
            {"$expr": {"$gt": [{"$size": "$messages"}, 1]}},
            {"$expr": {"$eq": ["$role", "buy"]}},
            {"$expr": {"$in": ["ask", "$messages.performative"]}},
            {"$jsonSchema": {"properties": {"messages": {"minItems": 2}}}},
        ]
    )
    one = st.one_of(plain, plain, plain, messages, messages, tags, metadata, formula)
    logical = st.builds(
        lambda name, some: {name: some},
        st.sampled_from(["$and", "$or", "$nor"]),
        st.lists(one, min_size=1, max_size=3),
    )
    return st.one_of(
        one, logical, st.tuples(one, logical).map(merged), st.tuples(one, one).map(merged)
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Talk], list[dict[str, Any]]]:
    talks = [
        Talk(DialogueLabel((str(n), ""), "bob" if n % 2 else "eve", "ada"), *parts)
        for n, parts in enumerate(
            draw(
                st.lists(
                    st.tuples(HEADERS, st.lists(MESSAGES, max_size=4), st.booleans()),
                    min_size=3,
                    max_size=8,
                )
            )
        )
    ]
    there = [value for each in talks for line in each.lines for value in values_in(line)]
    values = st.one_of(VALUES, st.sampled_from(there)) if there else VALUES
    return talks, draw(st.lists(questions(values), min_size=5, max_size=10))


def disagreements(
    store: Store, talks: list[Talk], filters: list[dict[str, Any]], ordered: bool
) -> list[str]:
    dialogues = DialogueStore(store, "ada", codec=TalkCodec())
    for is_over in (False, True):
        for each in [*dialogues.find(terminal=is_over)]:
            dialogues.remove(each.label)
    dialogues.save(*talks)
    wrong = []
    for values in filters:
        for is_over in (False, True):
            found = {each.label for each in dialogues.find(values, terminal=is_over)}
            mine = [each for each in talks if each.is_over is is_over]
            expected = {
                e.label for e in mine if matches(Filter.parse(values), whole(e), ordered=ordered)
            }
            if found != expected:
                wrong.append(f"{values}: found {found}, expected {expected} of {mine}")
    return wrong


def whole(talk: Talk) -> Document:
    """Return a dialogue as filters see it."""
    own = {"dialogue_label": talk.label.json, "is_terminal": talk.is_over}
    return Document(talk.label.key, {**own, **talk.header, "messages": talk.lines})


@pytest.mark.timeout(600)
@settings(max_examples=40 // sampled(3))
@given(batch=batches())
def test_on_sqlite(sqlite_store: Store, batch: tuple[list[Talk], list[dict[str, Any]]]) -> None:
    assert not disagreements(sqlite_store, *batch, ordered=True)


@pytest.mark.timeout(600)
@settings(max_examples=20 // sampled(3))
@given(batch=batches())
def test_on_postgresql(
    postgres_store: Store, batch: tuple[list[Talk], list[dict[str, Any]]]
) -> None:
    assert not disagreements(postgres_store, *batch, ordered=False)


@pytest.mark.parametrize("filter", [{"0": {"$size": 0}}, {"$or": [{"0.0": {"$exists": False}}]}])
def test_a_position_in_a_message_that_is_an_array(
    sqlite_store: Store, postgres_store: Store, filter: dict[str, Any]
) -> None:
    label = DialogueLabel(("1", "2"), "bob", "ada")
    talk = Talk(label, {"role": "buy", "state": "active"}, [[[]]], is_over=False)
    for store, ordered in ((sqlite_store, True), (postgres_store, False)):
        asked = [{"messages": {"$elemMatch": filter}}]
        assert not disagreements(store, [talk], asked, ordered=ordered)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("part")
@settings(max_examples=1000)
@given(batch=batches())
def test_on_both_for_longer(
    sqlite_store: Store, postgres_store: Store, batch: tuple[list[Talk], list[dict[str, Any]]]
) -> None:
    assert not disagreements(sqlite_store, *batch, ordered=True)
    assert not disagreements(postgres_store, *batch, ordered=False)


@pytest.fixture(scope="module")
def sqlite_store() -> Iterator[Store]:
    with Store("sqlite://") as store:
        yield store


@pytest.fixture
def postgres_store(postgres_backend: Any) -> Iterator[Store]:
    with Store(postgres_backend.url, durability="normal", **postgres_backend.options) as store:
        yield store
