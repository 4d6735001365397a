"""Labels, messages, rules and names of dialogues, without a database."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collections_store import InvalidOption
from collections_store.dialogues import DialogueLabel, Message, Rules
from collections_store.dialogues.model import MAX_MESSAGE_ID
from collections_store.dialogues.records import DialogueNamespace, key_of, message_id
from collections_store.document import check_id, check_name

TEXTS = st.text(st.characters(codec=None, categories=None), min_size=1, max_size=8)
ODD = st.text(st.sampled_from("ab_-/ä☃X5f\ud800"), min_size=1, max_size=6)
LONG = st.builds(lambda text, times: text * times, ODD, st.integers(1, 60))
NAMES = st.one_of(ODD, ODD, LONG, TEXTS, st.sampled_from(["active", "a_active", "__", "messages"]))
LABELS = st.builds(DialogueLabel, st.tuples(TEXTS, st.text(max_size=3)), TEXTS, TEXTS)


# -- names ----------------------------------------------------------------------------------------


@given(one=st.tuples(NAMES, NAMES), other=st.tuples(NAMES, NAMES))
def test_no_two_namespaces_share_a_collection(one: tuple[str, str], other: tuple[str, str]) -> None:
    mine, theirs = DialogueNamespace(*one).all, DialogueNamespace(*other).all
    assert len(set(mine)) == 5
    assert [check_name(each) for each in mine] == list(mine)
    assert (set(mine) == set(theirs)) is (one == other)
    assert one == other or not set(mine) & set(theirs)


@given(names=NAMES)
def test_ambiguous_pairs_have_different_names(names: str) -> None:
    keys = {(names[:cut], names[cut:]) for cut in range(1, len(names))}
    keys |= {(names[:cut], names[cut + 1 :]) for cut in range(1, len(names) - 1)}
    assert len({DialogueNamespace(*key).active for key in keys}) == len(keys)


def test_long_names_of_odd_characters_differ() -> None:
    pairs = [("a" * 200, "\ud83d\ude00"), ("a" * 200, "\U0001f600"), ("a" * 201, "")]
    assert (
        len({DialogueNamespace(agent, f"b{component}").active for agent, component in pairs}) == 3
    )


@pytest.mark.parametrize("wrong", [("", "b"), ("a", ""), (None, "b"), ("a", 7), (b"a", "b")])
def test_names_are_strings(wrong: Any) -> None:
    with pytest.raises(InvalidOption):
        DialogueNamespace(*wrong)


@given(label=LABELS, positions=st.lists(st.integers(1, 10**9), min_size=2, max_size=2))
def test_keys_of_messages_sort_in_their_order(label: DialogueLabel, positions: list[int]) -> None:
    first, second = sorted(positions)
    ids = [message_id(label.key, each) for each in (first, second)]
    assert ids == sorted(ids)
    assert [key_of(each) for each in ids] == [label.key] * 2
    assert [check_id(each) for each in ids] == ids


# -- labels ---------------------------------------------------------------------------------------


@given(label=LABELS)
def test_labels_round_trip_as_json(label: DialogueLabel) -> None:
    assert DialogueLabel.from_json(json.loads(json.dumps(label.json))) == label
    assert label.get_incomplete_version().complete(label.dialogue_responder_reference) == label
    assert not label.get_incomplete_version().is_complete
    assert label.key == label.get_incomplete_version().key
    assert label.names(label)
    assert label.get_incomplete_version().names(label)
    assert not label.complete("x" + label.dialogue_responder_reference).names(label)


@given(one=LABELS, other=LABELS)
def test_labels_have_unique_keys(one: DialogueLabel, other: DialogueLabel) -> None:
    same = one.get_incomplete_version() == other.get_incomplete_version()
    assert (one.key == other.key) is same


def test_keys_are_not_ambiguous() -> None:
    labels = [DialogueLabel(("a", ""), "b", "cd"), DialogueLabel(("a", ""), "bc", "d")]
    labels += [DialogueLabel(("ab", ""), "c", "d"), DialogueLabel(('a", "b', ""), "c", "d")]
    assert len({each.key for each in labels}) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        (("", ""), "b", "a"),
        (("1", None), "b", "a"),
        ((1, ""), "b", "a"),
        (("1",), "b", "a"),
        ("12", "b", "a"),
        (["1", ""], "b", "a"),
        (("1", ""), "", "a"),
        (("1", ""), "b", ""),
        (("1", ""), None, "a"),
    ],
)
def test_labels_contain_strings(wrong: Any) -> None:
    with pytest.raises(InvalidOption):
        DialogueLabel(*wrong)


GOOD = DialogueLabel(("1", ""), "b", "a").json


@pytest.mark.parametrize(
    "wrong",
    [None, 1, [], {}, [*GOOD], {**GOOD, "dialogue_opponent_addr": 1}, "label"],
)
def test_invalid_json_of_a_label_is_rejected(wrong: Any) -> None:
    with pytest.raises(InvalidOption):
        DialogueLabel.from_json(wrong)


def test_unknown_keys_of_a_label_are_ignored() -> None:
    label = DialogueLabel.from_json({**GOOD, "more": 1})
    assert label.json == GOOD
    assert label.is_in({**GOOD, "more": 1})


# -- messages -------------------------------------------------------------------------------------


@given(
    message=st.builds(
        Message,
        st.text(),
        st.none() | st.text() | st.lists(st.integers()),
        st.integers(-MAX_MESSAGE_ID, MAX_MESSAGE_ID),
        st.integers(-MAX_MESSAGE_ID, MAX_MESSAGE_ID),
        st.tuples(st.text(), st.text()),
        st.text(),
        st.text(),
    )
)
def test_messages_round_trip_as_json(message: Message) -> None:
    assert Message.from_json(json.loads(json.dumps(message.json))) == message


@pytest.mark.parametrize(
    "wrong",
    [
        {"performative": None},
        {"message_id": True},
        {"message_id": "1"},
        {"target": 1.0},
        {"dialogue_reference": ("1",)},
        {"dialogue_reference": "12"},
        {"dialogue_reference": ("1", None)},
        {"sender": None},
        {"to": b"b"},
    ],
)
def test_a_message_validates_its_fields(wrong: Any) -> None:
    with pytest.raises(InvalidOption):
        Message(**{"performative": "ask", **wrong})
    with pytest.raises(InvalidOption):
        Message.from_json({**Message("ask").json, **wrong})


@pytest.mark.parametrize("wrong", [None, [], "ask", {}, [*Message("ask").json]])
def test_invalid_json_of_a_message_is_rejected(wrong: Any) -> None:
    with pytest.raises(InvalidOption):
        Message.from_json(wrong)


def test_unknown_keys_of_a_message_are_kept() -> None:
    message = Message.from_json({**Message("ask").json, "more": 1})
    assert message == Message("ask")
    assert (message.unknown, message.json) == ({"more": 1}, {**Message("ask").json, "more": 1})


# -- rules ----------------------------------------------------------------------------------------


def test_default_rules_allow_everything() -> None:
    rules = Rules()
    assert rules.begins("x")
    assert rules.answers("x", "y")
    assert rules.state_after("x") is None


def test_rules_allow_only_named_replies() -> None:
    rules = Rules({"ask"}, {"end": "agreed"}, {"ask": ["tell"], "tell": []})
    assert [rules.begins(each) for each in ("ask", "as", "tell")] == [True, False, False]
    replies = [("tell", "ask"), ("ask", "tell"), ("tell", "nothing")]
    assert [rules.answers(*each) for each in replies] == [True, False, False]
    assert rules.state_after("end") == "agreed"
    assert Rules(terminal_performatives=["end"]).state_after("end") == "ended"
    assert not Rules(initial_performatives=()).begins("ask")


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial_performatives": "ask"},
        {"initial_performatives": 7},
        {"initial_performatives": ""},
        {"initial_performatives": [1]},
        {"terminal_performatives": "end"},
        {"terminal_performatives": None},
        {"terminal_performatives": {"end": 1}},
        {"terminal_performatives": {1: "end"}},
        {"valid_replies": ["ask"]},
        {"valid_replies": {"ask": "tell"}},
        {"valid_replies": {"ask": None}},
        {"valid_replies": {1: ["tell"]}},
    ],
)
def test_rules_are_collections_of_strings(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=next(iter(wrong))):
        Rules(**wrong)
