"""Dialogues are found by the words of their messages: active, terminal, offloaded, unsaved and bad ones as `find` does."""

from typing import Any

import pytest
from backends import Opener
from contract.test_dialogue_store import CallCodec, call_to
from contract.test_dialogues import RULES, begun, ended, offer_to

from collections_store import InvalidFilter, InvalidOption, InvalidSearch
from collections_store.dialogues import Message

pytestmark = pytest.mark.each_backend


def opponents(found: Any) -> list[str]:
    return [each.dialogue.dialogue_label.dialogue_opponent_addr for each in found]


@pytest.fixture
def ada(open_store: Opener, store: Any) -> Any:
    dialogues = open_store.dialogues(store, rules=RULES, cached=0)
    dialogues.message_collection.create_text_index({"body.text": 1, "body.item": 2})
    return dialogues


def test_a_dialogue_is_found_by_its_best_message(ada: Any) -> None:
    message, dialogue = ada.create("bob", "ask", {"text": "a cup of tea with milk and cake"})
    ada.update(offer_to(message, body={"text": "green tea"}))
    ended(ada, "eve", item="coffee", text="no green one")
    [found] = ada.search("tea", highlight=True)
    assert found.dialogue.dialogue_label == dialogue.dialogue_label
    assert isinstance(found.message, Message)
    assert found.message == dialogue.messages[1]
    assert found.snippets == {"body.text": "green **tea**"}
    assert found.score > 0
    assert sorted(opponents(ada.search("green"))) == ["bob", "eve"]
    assert ada.search("nothing") == []


def test_a_dialogue_is_found_by_any_word_of_a_question(ada: Any) -> None:
    ended(ada, "bob", item="tea", text="green, with milk")
    ended(ada, "eve", item="coffee", text="with milk")
    question = "Was it OR -tea: the milk?"
    assert opponents(ada.search(question, match="any")) == ["bob", "eve"]
    with pytest.raises(InvalidOption, match="match"):
        ada.search(question, match="some")


def test_active_and_terminal_dialogues_are_found(ada: Any, open_store: Opener, store: Any) -> None:
    for number in range(3):
        begun(ada, f"active{number}")
        ended(ada, f"ended{number}")
    every = ada.search("tea")
    assert sorted(opponents(every)) == sorted(
        f"{kind}{n}" for kind in ("active", "ended") for n in range(3)
    )
    assert {each.dialogue.is_terminal for each in ada.search("tea", terminal=True)} == {True}
    assert {each.dialogue.is_terminal for each in ada.search("tea", terminal=False)} == {False}
    assert len(ada.search("tea", terminal=True)) == len(ada.search("tea", terminal=False)) == 3
    assert len(ada.search("tea", limit=4)) == 4
    again = open_store.dialogues(store, rules=RULES)
    assert [each.message for each in again.search("tea")] == [each.message for each in every]


def test_a_dialogue_of_many_messages_takes_one_result(ada: Any) -> None:
    message, dialogue = ada.create("bob", "ask", {"item": "tea"})
    ada.update(offer_to(message))
    for number in range(210):  # more than a page of messages
        ada.reply(dialogue, "offer", {"item": "tea", "number": number})
    begun(ada, "eve", text="a long and long and long sentence with one tea")
    assert sorted(opponents(ada.search("tea", limit=5))) == ["bob", "eve"]


def test_unsaved_messages_are_found(open_store: Opener, store: Any) -> None:
    dialogues = open_store.dialogues(store, rules=RULES, save="teardown")
    dialogues.message_collection.create_text_index("body.item")
    begun(dialogues)
    assert opponents(dialogues.search("tea")) == ["bob"]


def test_removed_dialogues_are_not_found(ada: Any) -> None:
    dialogue = begun(ada)
    ada.remove(dialogue.dialogue_label)
    ended(ada)
    ada.purge(kept=0)
    assert ada.search("tea") == []


def test_bad_records_move_to_the_quarantine_and_leave_the_rest(
    open_store: Opener, store: Any
) -> None:
    calls = open_store.dialogue_store(store, "ada", "calls", codec=CallCodec())
    calls.message_collection.create_text_index("$body")
    calls.save(
        call_to("bob", "tea", notes="unreadable"),
        call_to("eve", "more tea"),
        call_to("joe", "tea, tea"),
    )
    found = calls.search("tea", limit=2)
    assert sorted(each.dialogue.label.dialogue_opponent_addr for each in found) == ["eve", "joe"]
    assert sorted(each.message for each in found) == ["more tea", "tea, tea"]
    assert [each.id for each in calls.quarantined()] != []
    assert len(calls.search("tea")) == 2


def test_a_search_needs_an_index_and_valid_arguments(open_store: Opener, store: Any) -> None:
    dialogues = open_store.dialogues(store, rules=RULES)
    assert dialogues.search("tea") == []
    begun(dialogues)
    with pytest.raises(InvalidSearch, match="create_text_index"):
        dialogues.search("tea")
    with pytest.raises(InvalidSearch, match="must have a word"):
        dialogues.search("-tea")
    with pytest.raises(InvalidFilter, match="limit"):
        dialogues.search("tea", limit=0)
    with pytest.raises(InvalidOption, match="terminal"):
        dialogues.search("tea", terminal=1)
    with pytest.raises(InvalidFilter, match="with search, not with find"):
        dialogues.find({"$text": {"$search": "tea"}})
