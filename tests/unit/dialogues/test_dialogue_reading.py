"""The next messages that a dialogue accepts, problem by problem."""

from dataclasses import replace
from typing import Any

import pytest

from collections_store import InvalidDialogueMessage, RepeatedMessage
from collections_store.dialogues import Dialogue, DialogueLabel, Message, Rules

RULES = Rules({"ask"}, {"end": "agreed"}, {"ask": {"offer", "end"}, "offer": {"offer", "end"}})
FIRST = Message("ask", {"a": 1}, 1, 0, ("r", ""), "ada", "bob")
OFFER = Message("offer", 4, -1, 1, ("r", "b1"), "bob", "ada")


def begun(address: str = "ada", *messages: Message, **parts: Any) -> Dialogue:
    """Return one side's copy of a dialogue that ada created."""
    other = {"ada": "bob", "bob": "ada"}[address]
    reference = ("r", "" if address == "ada" else "b1")
    label = DialogueLabel(reference, other, "ada")
    dialogue = Dialogue(label, address, "r", rules=RULES, **parts)
    for each in messages:
        dialogue.apply(dialogue.read(each))
    return dialogue


def test_both_sides_have_the_same_dialogue() -> None:
    messages = [FIRST, OFFER, replace(OFFER, message_id=-2, target=-1)]
    messages.append(Message("end", None, 2, -2, ("r", "b1"), "ada", "bob"))
    ada, bob = begun("ada", *messages), begun("bob", *messages)
    assert ada.messages == bob.messages == tuple(messages)
    assert (ada.state, ada.is_terminal, bob.state, bob.is_terminal) == ("agreed", True) * 2
    assert ada.dialogue_label == DialogueLabel(("r", "b1"), "bob", "ada")
    assert bob.dialogue_label == DialogueLabel(("r", "b1"), "ada", "ada")
    assert (ada.is_self_initiated, bob.is_self_initiated) == (True, False)
    for each in (ada, bob):
        assert [each.get_message_by_id(one.message_id) for one in messages] == messages
        assert each.get_message_by_id(7) is None
        assert (each.message_count, each.last_message) == (4, messages[-1])
        assert each.messages_after(3) == [messages[-1]]


@pytest.mark.parametrize(
    ("address", "messages", "own", "others"),
    [
        ("ada", [], 1, -1),
        ("ada", [FIRST], 2, -1),
        ("ada", [FIRST, OFFER], 2, -2),
        ("bob", [FIRST], -1, 2),
        ("bob", [FIRST, OFFER], -2, 2),
    ],
)
def test_ids_increase_for_the_starter_and_decrease_for_the_responder(
    address: str, messages: list[Message], own: int, others: int
) -> None:
    dialogue = begun(address, *messages)
    assert dialogue.next_message_id(outgoing=True) == own
    assert dialogue.next_message_id(outgoing=False) == others
    assert dialogue.reply("offer", None, None).message_id == own


@pytest.mark.parametrize(
    ("messages", "message", "problem"),
    [
        ([], replace(FIRST, performative="offer"), "a dialogue cannot begin with 'offer'"),
        ([], replace(FIRST, target=1), "the target of the first message must be 0, got 1"),
        ([], replace(FIRST, message_id=2), "its message_id must be 1, got 2"),
        ([], replace(FIRST, to="eve"), "it is from 'ada' to 'eve'"),
        ([], replace(FIRST, dialogue_reference=("q", "")), "its dialogue_reference is not that"),
        ([], replace(FIRST, dialogue_reference=("r", "b1")), "its dialogue_reference is not that"),
        ([FIRST], replace(FIRST, body=2), "its message_id must be 2, got 1"),
        ([FIRST], replace(OFFER, message_id=1), "its message_id must be -1, got 1"),
        ([FIRST], replace(OFFER, message_id=0), "its message_id must be -1, got 0"),
        ([FIRST], replace(OFFER, message_id=-2), "its message_id must be -1, got -2"),
        ([FIRST], replace(OFFER, target=2), "its target, message 2, is not in the dialogue"),
        ([FIRST], replace(OFFER, target=0), "its target, message 0, is not in the dialogue"),
        ([FIRST], replace(OFFER, performative="ask"), "'ask' cannot answer 'ask'"),
        ([FIRST], replace(OFFER, sender="eve"), "it is from 'eve' to 'ada'"),
        ([FIRST], replace(OFFER, to="eve"), "it is from 'bob' to 'eve'"),
        (
            [FIRST],
            replace(OFFER, dialogue_reference=("r", "")),
            "its dialogue_reference is not that",
        ),
        (
            [FIRST],
            replace(OFFER, dialogue_reference=("q", "b1")),
            "its dialogue_reference is not that",
        ),
        (
            [FIRST, OFFER],
            replace(OFFER, message_id=-2, dialogue_reference=("r", "b2")),
            "its dialogue_reference is not that of the dialogue, ('r', 'b1')",
        ),
        (
            [FIRST, replace(OFFER, performative="end")],
            replace(OFFER, message_id=-2),
            "the dialogue has ended: its state is 'agreed'",
        ),
    ],
)
def test_a_message_out_of_order_is_rejected_with_the_reason(
    messages: list[Message], message: Message, problem: str
) -> None:
    dialogue = begun("ada", *messages)
    before = dialogue.dialogue_label, dialogue.state, dialogue.messages
    with pytest.raises(InvalidDialogueMessage) as caught:
        dialogue.read(message)
    assert problem in caught.value.problem
    assert caught.value.message is message
    assert not isinstance(caught.value, RepeatedMessage)
    assert (dialogue.dialogue_label, dialogue.state, dialogue.messages) == before


def test_an_accepted_message_is_repeated_even_after_the_end() -> None:
    dialogue = begun("ada", FIRST, replace(OFFER, performative="end"))
    for each in dialogue.messages:
        with pytest.raises(RepeatedMessage) as caught:
            dialogue.read(each)
        assert caught.value.dialogue is dialogue


def test_the_starter_may_lack_the_responder_reference() -> None:
    bob = begun("bob", FIRST)
    more = Message("offer", 1, 2, 1, ("r", ""), "ada", "bob")
    assert bob.read(more).label == bob.dialogue_label
    assert bob.read(replace(more, dialogue_reference=("r", "b1"))).label == bob.dialogue_label
    with pytest.raises(InvalidDialogueMessage, match="reference"):
        bob.read(replace(more, dialogue_reference=("r", "b2")))


def test_read_changes_nothing_and_apply_does() -> None:
    dialogue = begun("ada", FIRST)
    step = dialogue.read(replace(OFFER, performative="end"))
    assert (dialogue.state, dialogue.message_count) == ("active", 1)
    assert not dialogue.dialogue_label.is_complete
    dialogue.apply(step)
    assert (dialogue.state, dialogue.message_count) == ("agreed", 2)
    assert dialogue.dialogue_label.is_complete


def test_a_reply_answers_the_last_message_by_default() -> None:
    dialogue = begun("ada", FIRST, OFFER)
    assert dialogue.reply("offer", None, None).target == -1
    assert dialogue.reply("offer", None, 1).target == 1
    assert begun("ada").reply("ask", None, None).target == 0


def test_reading_metadata_marks_a_dialogue_dirty() -> None:
    dialogue = begun("ada", metadata={"a": 1})
    assert dialogue.header()["metadata"] == {"a": 1}
    dirty = [dialogue.dirty]
    assert dialogue.metadata == {"a": 1}
    assert [*dirty, dialogue.dirty] == [False, True]
    assert "terminal" not in repr(dialogue)
