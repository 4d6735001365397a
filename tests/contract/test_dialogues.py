"""Dialogues are saved message by message, restored, and searched."""

from dataclasses import replace
from typing import Any

import pytest
from backends import Opener
from conftest import Clock

from collections_store import (
    DialogueNotFound,
    InvalidBody,
    InvalidDialogueMessage,
    InvalidFilter,
    InvalidOption,
    RepeatedMessage,
    StoreClosed,
)
from collections_store.dialogues import DialogueLabel, Message, Rules
from collections_store.dialogues.records import DialogueNamespace

RULES = Rules(
    initial_performatives={"ask"},
    terminal_performatives={"accept": "agreed", "decline": "refused"},
    valid_replies={"ask": {"offer", "decline"}, "offer": {"offer", "accept", "decline"}},
)
ADA = DialogueNamespace("ada", "dialogues")


def offer_to(message: Message, reference: str = "b1", **changed: Any) -> Message:
    """Return the counterparty's first reply."""
    answer = Message(
        "offer",
        {"price": 4, "intent": "sell"},
        -1,
        message.message_id,
        (message.dialogue_reference[0], reference),
        message.to,
        message.sender,
    )
    return replace(answer, **changed)


def begun(dialogues: Any, other: str = "bob", **body: Any) -> Any:
    return dialogues.create(other, "ask", {"item": "tea", **body})[1]


def ended(dialogues: Any, other: str = "bob", **body: Any) -> Any:
    dialogue = begun(dialogues, other, **body)
    dialogues.reply(dialogue, "decline", target=1)
    return dialogue


def performatives(dialogue: Any) -> list[str]:
    return [each.performative for each in dialogue.messages]


def on_disk(store: Any, part: str, names: DialogueNamespace = ADA) -> list[Any]:
    return list(store[getattr(names, part)].list())


@pytest.fixture
def ada(open_store: Opener, store: Any) -> Any:
    return open_store.dialogues(store, rules=RULES)


@pytest.fixture
def again(open_store: Opener, store: Any) -> Any:
    """A simulated second process of the same agent: the first is not torn down."""

    def make(address: str = "ada", **options: Any) -> Any:
        return open_store.dialogues(store, address, **{"rules": RULES, **options})

    return make


# -- saving --------------------------------------------------------------------------------------


def test_every_message_is_committed_before_the_method_returns(
    ada: Any, again: Any, store: Any
) -> None:
    message, dialogue = ada.create("bob", "ask", {"item": "tea"})
    assert [each.body for each in on_disk(store, "messages")] == [message.json]
    ada.update(offer_to(message))
    assert len(on_disk(store, "messages")) == 2
    said_last = ada.reply(dialogue, "offer", {"price": 3})
    assert on_disk(store, "messages")[-1].body == said_last.json
    [restored] = again().get_dialogues_with_counterparty("bob")
    assert restored.messages == dialogue.messages


def test_a_restored_dialogue_continues(ada: Any, again: Any) -> None:
    message, dialogue = ada.create("bob", "ask", {"item": "tea"})
    assert not dialogue.dialogue_label.is_complete
    second = again()
    assert second.setup().active == 1
    found = second.update(offer_to(message))
    assert found.dialogue_label == dialogue.dialogue_label.complete("b1")
    third = again()
    [found] = third.get_dialogues_with_counterparty("bob")
    assert found.dialogue_label.is_complete
    assert found.role == "starter"
    assert found.is_self_initiated
    answer = third.reply(found, "accept")
    assert (answer.message_id, answer.target, answer.dialogue_reference[1]) == (2, -1, "b1")
    fourth = again()
    [found] = fourth.get_dialogues_with_counterparty("bob")
    assert performatives(found) == ["ask", "offer", "accept"]
    assert (found.state, found.is_terminal) == ("agreed", True)


def test_a_restored_dialogue_of_the_counterparty_continues(ada: Any, again: Any) -> None:
    first = Message("ask", {"item": "tea"}, 1, 0, ("b7", ""), "bob", "ada")
    dialogue = ada.update(first)
    assert (dialogue.role, dialogue.is_self_initiated) == ("responder", False)
    assert dialogue.dialogue_label.is_complete
    second = again()
    [found] = second.get_dialogues_with_counterparty("bob")
    assert (found.role, found.is_self_initiated) == ("responder", False)
    offer = second.reply(found, "offer", {"price": 4})
    assert (offer.message_id, offer.target) == (-1, 1)
    assert offer.dialogue_reference == dialogue.dialogue_label.dialogue_reference
    third = again()
    more = Message("offer", {"price": 2}, 2, -1, offer.dialogue_reference, "bob", "ada")
    assert performatives(third.update(more)) == ["ask", "offer", "offer"]
    with pytest.raises(RepeatedMessage) as caught:
        third.update(first)
    assert caught.value.dialogue.message_count == 3


def test_metadata_is_saved_with_the_next_message_or_by_save_or_at_teardown(
    ada: Any, again: Any, open_store: Opener
) -> None:
    dialogues = [begun(ada, each) for each in ("bob", "eve", "joe")]
    for each in dialogues:
        each.metadata["terms"] = {"budget": 5}
    assert not any(each.metadata for each in again().dialogues_in_active_state)
    ada.reply(dialogues[0], "offer")
    ada.save(dialogues[1])
    other = again()
    other.setup()
    stored = {
        each.dialogue_label.dialogue_opponent_addr: each.metadata
        for each in other.dialogues_in_active_state
    }
    assert stored == {"bob": {"terms": {"budget": 5}}, "eve": {"terms": {"budget": 5}}, "joe": {}}
    ada.teardown()
    ada.setup()
    assert all(each.metadata["terms"] == {"budget": 5} for each in ada.dialogues_in_active_state)


def test_borrowed_metadata_is_saved_at_teardown(ada: Any, again: Any) -> None:
    dialogue = begun(ada)
    held = dialogue.metadata
    held["a"] = 1
    ada.save(dialogue)
    held["b"] = {"deep": []}
    ada.reply(dialogue, "offer")
    held["b"]["deep"].append(2)
    ada.teardown()
    [found] = again().get_dialogues_with_counterparty("bob")
    assert found.metadata == {"a": 1, "b": {"deep": [2]}}


def test_values_that_are_not_json_are_rejected_at_once(ada: Any, again: Any, store: Any) -> None:
    for save in ("message", "teardown", 3600):
        dialogues = again(component=f"c {save}", save=save)
        with pytest.raises(InvalidBody, match="body"):
            dialogues.create("bob", "ask", {"item": object()})
        assert not dialogues.dialogues_in_active_state
        dialogue = begun(dialogues)
        with pytest.raises(InvalidBody):
            dialogues.reply(dialogue, "offer", {1, 2})
        assert performatives(dialogue) == ["ask"]
        dialogues.reply(dialogue, "offer", 1)
        dialogues.teardown()
        assert len(on_disk(store, "messages", DialogueNamespace("ada", f"c {save}"))) == 2


def test_the_error_of_metadata_names_its_path(ada: Any, store: Any) -> None:
    dialogue = begun(ada)
    dialogue.metadata["x"] = {"bad": object()}
    with pytest.raises(InvalidBody, match=r"metadata\.x\.bad"):
        ada.reply(dialogue, "offer")
    assert performatives(dialogue) == ["ask"]
    assert len(on_disk(store, "messages")) == 1
    dialogue.metadata["x"] = "good"
    ada.reply(dialogue, "offer")
    assert [each.body["metadata"] for each in on_disk(store, "active")] == [{"x": "good"}]


# -- terminal dialogues ----------------------------------------------------------------------------


def test_a_terminal_dialogue_leaves_memory_and_is_still_found(
    ada: Any, again: Any, store: Any
) -> None:
    dialogues = again(cached=0)
    message, dialogue = dialogues.create("bob", "ask", {"item": "tea"})
    incomplete = dialogue.dialogue_label
    dialogues.update(offer_to(message))
    dialogues.reply(dialogue, "accept", {"intent": "buy"})
    assert dialogues.dialogues_in_active_state == ()
    assert not on_disk(store, "active")
    assert len(on_disk(store, "terminal")) == 1
    for each in (dialogues, again(cached=0)):
        by_label = [
            each.get_dialogue_from_label(label) for label in (incomplete, dialogue.dialogue_label)
        ]
        by_address = each.get_dialogues_with_counterparty("bob")
        by_field = each.find(
            {"messages.body.intent": "buy", "dialogue_label.dialogue_opponent_addr": "bob"}
        )
        by_message = [each.get_dialogue(one) for one in dialogue.messages]
        for found in [*by_label, *by_address, *by_field, *by_message]:
            assert found.messages == dialogue.messages
            assert (found.state, found.is_terminal, found.role) == ("agreed", True, "starter")
        assert (len(by_address), len(by_field)) == (1, 1)
        wrong = incomplete.complete("another")
        assert each.get_dialogue_from_label(wrong) is None


def test_the_cache_is_bounded_even_if_all_metadata_was_read(ada: Any, again: Any) -> None:
    dialogues = again(cached=3)
    labels = [ended(dialogues, f"b{n}").dialogue_label for n in range(12)]
    for label in labels:
        dialogues.get_dialogue_from_label(label).metadata["seen"] = True
    target = getattr(dialogues, "_target", dialogues)
    assert len(target._manager.cache._terminal) <= 3 + 1  # the last was used after it was added
    dialogues.teardown()
    found = again(cached=3).find(terminal=True)
    assert [each.metadata for each in found] == [{"seen": True}] * 12


def test_a_dirty_terminal_dialogue_that_is_evicted_is_saved(ada: Any, again: Any) -> None:
    dialogues = again(cached=1)
    one = ended(dialogues)
    one.metadata["note"] = 1
    for number in range(5):
        ended(dialogues, f"b{number}")
    assert dialogues.get_dialogue_from_label(one.dialogue_label).metadata == {"note": 1}
    dialogues.teardown()
    found = again().get_dialogue_from_label(one.dialogue_label)
    assert found.metadata == {"note": 1}


def test_without_keep_a_dialogue_is_deleted_at_its_end(again: Any, store: Any) -> None:
    dialogues = again(keep_terminal_state_dialogues=False)
    first = Message("ask", None, 1, 0, ("b7", ""), "bob", "ada")
    dialogue = dialogues.update(first)
    last = dialogues.reply(dialogue, "decline")
    assert last.message_id == -1
    assert dialogue.is_terminal
    own = ended(dialogues)
    for each in (dialogues, again(keep_terminal_state_dialogues=False)):
        assert each.dialogues_in_active_state == ()
        assert each.get_dialogues_with_counterparty("bob") == each.find() == []
        assert each.get_dialogue_from_label(own.dialogue_label) is None
        with pytest.raises(InvalidDialogueMessage, match="ended"):
            each.update(first)
    assert not any(on_disk(store, part) for part in ("active", "terminal", "messages"))
    assert len(on_disk(store, "finished")) == 1


def test_dialogues_that_are_not_offloaded_stay_in_memory(again: Any, store: Any) -> None:
    dialogues = again(offload=False, cached=0)
    one = ended(dialogues)
    assert dialogues.get_dialogue_from_label(one.dialogue_label) is one
    other = again(offload=False, cached=0)
    other.setup()
    found = other.get_dialogue_from_label(one.dialogue_label)
    assert found.messages == one.messages
    assert other.get_dialogue_from_label(one.dialogue_label) is found
    assert other.dialogues_in_active_state == ()


def test_a_dialogue_can_end_by_its_first_message(again: Any, store: Any) -> None:
    rules = Rules(terminal_performatives={"tell"})
    dialogues = again(rules=rules)
    _message, dialogue = dialogues.create("bob", "tell", 1)
    assert (dialogue.is_terminal, dialogue.state) == (True, "ended")
    assert dialogues.update(Message("tell", 2, 1, 0, ("x", ""), "eve", "ada")).is_terminal
    assert dialogues.dialogues_in_active_state == ()
    assert len(dialogues.find(terminal=True)) == len(on_disk(store, "messages")) == 2


def test_finish_ends_without_a_message(ada: Any, again: Any) -> None:
    dialogue = begun(ada)
    dialogue.metadata["why"] = "no answer"
    ada.finish(dialogue, "timeout")
    ada.finish(dialogue, "ignored: it has ended")
    [found] = again().find("state", "timeout")
    assert (found.is_terminal, found.metadata, performatives(found)) == (
        True,
        {"why": "no answer"},
        ["ask"],
    )
    with pytest.raises(InvalidDialogueMessage, match="ended"):
        ada.reply(dialogue, "offer")
    with pytest.raises(InvalidOption):
        ada.finish(begun(ada), 7)


def test_retention_by_age_and_count(again: Any, store: Any, clock: Clock) -> None:
    dialogues = again(cached=2)
    for number in range(6):
        ended(dialogues, f"b{number}")
        clock.advance(60)
    going_on = begun(dialogues, "eve")
    assert dialogues.purge() == 0
    assert dialogues.purge(ttl=270) == 2
    assert dialogues.purge(kept=3) == 1
    left = [each.dialogue_label.dialogue_opponent_addr for each in dialogues.find(terminal=True)]
    assert left == ["b3", "b4", "b5"]
    assert len(on_disk(store, "messages")) == 3 * 2 + 1
    assert again(terminal_kept=2).setup().active == 1
    assert len(on_disk(store, "terminal")) == 2
    again(terminal_ttl=100).setup()
    assert len(on_disk(store, "terminal")) == 1
    assert dialogues.get_dialogue_from_label(going_on.dialogue_label) is going_on
    assert dialogues.purge(kept=0) == 1
    for wrong in ({"ttl": 0}, {"ttl": "a"}, {"kept": -1}, {"kept": True}):
        with pytest.raises(InvalidOption):
            dialogues.purge(**wrong)


def test_a_purge_leaves_the_other_dialogues(again: Any) -> None:
    dialogues = again(offload=False)
    one, two = ended(dialogues, "b1"), ended(dialogues, "b2")
    two.metadata["note"] = 1
    assert dialogues.purge(kept=1) == 1
    assert dialogues.get_dialogue_from_label(one.dialogue_label) is None
    assert dialogues.get_dialogue_from_label(two.dialogue_label) is two
    dialogues.teardown()
    [found] = again().find(terminal=True)
    assert found.metadata == {"note": 1}


def test_removed_and_purged_dialogues_stay_deleted(ada: Any, again: Any, store: Any) -> None:
    one, two, three = ended(ada, "b1"), ended(ada, "b2"), begun(ada, "b3")
    assert ada.remove(one.dialogue_label)
    assert ada.remove(three.dialogue_label)
    assert not ada.remove(one.dialogue_label)
    ada.purge(kept=0)
    for each in (one, two, three):
        each.metadata["late"] = True
        with pytest.raises(DialogueNotFound):
            ada.save(each)
    with pytest.raises(DialogueNotFound):
        ada.reply(three, "offer")
    ada.teardown()
    assert not any(on_disk(store, part) for part in ("active", "terminal", "messages"))
    assert again().find() == []


def test_dialogues_of_another_agent_are_rejected(ada: Any, again: Any, store: Any) -> None:
    bob = again("bob")
    of_bob = ended(bob, "ada")
    for given in (of_bob, begun(bob, "ada")):
        with pytest.raises(DialogueNotFound):
            ada.save(given)
        with pytest.raises(DialogueNotFound):
            ada.finish(given)
    for wrong in (None, "x", of_bob.dialogue_label):
        with pytest.raises(InvalidOption):
            ada.save(wrong)
    assert not any(on_disk(store, part) for part in ("active", "terminal", "messages"))


# -- queries -------------------------------------------------------------------------------------


def test_get_dialogue_returns_the_dialogue_of_a_message_or_none(ada: Any) -> None:
    message, dialogue = ada.create("bob", "ask")
    assert ada.get_dialogue(message) is dialogue
    assert ada.get_dialogue(offer_to(message)) is dialogue
    ada.update(offer_to(message))
    others = [
        Message("offer"),
        Message("offer", sender="bob", to="ada"),
        Message("offer", dialogue_reference=("x", ""), sender="bob", to="ada"),
        Message("offer", dialogue_reference=("x", ""), to="ada"),
        offer_to(message, sender="eve"),
        offer_to(message, reference="another"),
    ]
    assert [ada.get_dialogue(each) for each in others] == [None] * len(others)


def test_invalid_addresses_labels_and_messages_are_rejected(ada: Any) -> None:
    begun(ada)
    for wrong in (None, 1, {"$gt": ""}, ["bob"]):
        with pytest.raises(InvalidOption, match="counterparty"):
            ada.get_dialogues_with_counterparty(wrong)
        with pytest.raises(InvalidOption, match="counterparty"):
            ada.create(wrong, "ask")
        for method in ("get_dialogue_from_label", "remove", "messages"):
            with pytest.raises(InvalidOption, match="dialogue_label"):
                getattr(ada, method)(wrong)
        with pytest.raises(InvalidOption, match="message"):
            ada.get_dialogue(wrong)
        with pytest.raises(InvalidDialogueMessage, match="it must be a Message"):
            ada.update(wrong)
    with pytest.raises(InvalidOption, match="counterparty"):
        ada.create("ada", "ask")
    assert len(ada.find()) == 1


def test_find_and_messages(ada: Any) -> None:
    active, gone = begun(ada, "bob", intent="buy"), ended(ada, "eve", intent="sell")
    active.metadata["terms"] = [{"budget": 5}]
    assert ada.find() == [active, gone]
    assert ada.find({"messages.body.intent": "sell"}) == [gone]
    assert ada.find("metadata.terms.budget", 5) == [active]
    assert ada.find({"state": {"$ne": "active"}}) == ada.find(terminal=True) == [gone]
    assert ada.find({"messages.1.performative": "decline"}) == [gone]
    assert ada.find({"messages": {"$size": 1}}) == ada.find(terminal=False) == [active]
    assert ada.find({"messages.body.intent": {"$in": ["buy", "sell"]}}, limit=1) == [active]
    assert ada.find(limit=0) == []
    with pytest.raises(InvalidFilter):
        ada.find({"state": {"$like": 1}})
    with pytest.raises(InvalidOption):
        ada.find(limit=-1)
    for number in range(9):
        ada.reply(active, "offer", number, target=1)
    ada.teardown()
    with pytest.raises(StoreClosed, match="torn down"):
        ada.messages(active.dialogue_label)
    ada.setup()
    for _ in range(2):  # from the database, then from memory
        read = [
            [each.body for each in ada.messages(active.dialogue_label, after=n, limit=4)][-1:]
            for n in (1, 5, 9, 10, 50)
        ]
        assert read == [[3], [7], [8], [], []]
        ada.setup()
    assert ada.messages(DialogueLabel(("no", ""), "bob", "ada")) == []


def test_a_search_includes_unsaved_metadata(again: Any) -> None:
    for save in ("teardown", 3600.0):
        dialogues = again(component=f"c {save}", save=save)
        dialogue = begun(dialogues, intent="buy")
        dialogue.metadata["a"] = 1
        assert dialogues.find({"messages.body.intent": "buy", "metadata.a": 1}) == [dialogue]
        dialogues.reply(dialogue, "offer", {"intent": "more"})
        assert dialogues.find("messages.body.intent", "more") == [dialogue]


# -- errors --------------------------------------------------------------------------------------


def test_a_message_out_of_order_is_rejected_and_changes_nothing(ada: Any, store: Any) -> None:
    message, dialogue = ada.create("bob", "ask")
    offer = offer_to(message)
    ada.update(offer)
    before = [on_disk(store, part) for part in ("active", "terminal", "messages")]
    wrong = [
        replace(offer, body="another"),
        replace(offer, message_id=-3),
        replace(offer, message_id=-2, target=7),
        replace(offer, message_id=-2, performative="ask"),
        replace(offer, message_id=-2, dialogue_reference=(message.dialogue_reference[0], "b2")),
        replace(offer, to="eve"),
        replace(offer, sender="ada"),
        replace(offer, dialogue_reference=("", "")),
        Message("offer", 1, 1, 0, ("new", ""), "bob", "ada"),
        Message("ask", 1, 1, 1, ("new", ""), "bob", "ada"),
    ]
    for each in wrong:
        with pytest.raises(InvalidDialogueMessage):
            ada.update(each)
    strangers = [
        Message("ask", 1, 2, 0, ("new", ""), "bob", "ada"),
        Message("ask", 1, 1, 0, ("new", "known"), "bob", "ada"),
        replace(offer, sender="eve"),
    ]
    for each in strangers:
        with pytest.raises(DialogueNotFound):
            ada.update(each)
    with pytest.raises(RepeatedMessage) as caught:
        ada.update(offer)
    assert caught.value.dialogue is dialogue
    for performative, target in (("ask", None), ("offer", 9)):
        with pytest.raises(InvalidDialogueMessage):
            ada.reply(dialogue, performative, target=target)
    assert performatives(dialogue) == ["ask", "offer"]
    assert [on_disk(store, part) for part in ("active", "terminal", "messages")] == before


def test_invalid_options_are_rejected(again: Any) -> None:
    wrong: list[dict[str, Any]] = [
        {"save": "never"},
        {"save": 0},
        {"save": True},
        {"save": None},
        {"save": 10**9},
        {"cached": -1},
        {"cached": None},
        {"offload": 1},
        {"keep_terminal_state_dialogues": None},
        {"terminal_ttl": 0},
        {"terminal_kept": -1},
        {"role_from_first_message": "starter"},
        {"rules": None},
        {"rules": {"ask"}},
        {"component": ""},
        {"component": 7},
        {"address": ""},
    ]
    for each in wrong:
        with pytest.raises(InvalidOption):
            again(**each)


def test_a_role_is_a_string(again: Any, store: Any) -> None:
    dialogues = again(role_from_first_message=lambda *_: 7)
    with pytest.raises(InvalidOption, match="role_from_first_message"):
        begun(dialogues)
    assert not on_disk(store, "active")
    assert not dialogues.dialogues_in_active_state
    other = again(role_from_first_message=lambda *given: f"{given[1]} asks")
    assert begun(other).role == "ada asks"
    [found] = again().find()
    assert found.role == "ada asks"


# -- namespaces ----------------------------------------------------------------------------------


def test_agents_and_components_are_isolated(again: Any, store: Any) -> None:
    pairs = [("a", "b_c"), ("a_b", "c"), ("a", "b__c"), ("A", "b_c"), ("a", "b"), ("a", "b-c")]
    pairs += [("a", "b_terminal"), ("a__b", "c"), ("a" * 300, "b"), ("a" * 299, "b"), ("ä", "☃")]
    for number, (agent, component) in enumerate(pairs):
        dialogues = again(agent, component=component)
        begun(dialogues, "bob", number=number)
        ended(dialogues, "bob", number=number)
    for number, (agent, component) in enumerate(pairs):
        found = again(agent, component=component).find()
        assert [each.messages[0].body["number"] for each in found] == [number, number]


# -- store ---------------------------------------------------------------------------------------


def test_the_store_sets_up_and_tears_down_dialogues(open_store: Opener) -> None:
    if open_store.backend.is_private:
        pytest.skip("nothing outlives the store")
    with open_store() as store:
        dialogues = open_store.dialogues(store, save="teardown")
        dialogue = begun(dialogues)
        assert not on_disk(store, "messages")
    with pytest.raises(StoreClosed):
        begun(dialogues)
    with pytest.raises(StoreClosed):
        dialogues.get_dialogue_from_label(dialogue.dialogue_label)
    store = open_store()
    dialogues = open_store.dialogues(store)
    with store:
        [found] = dialogues.dialogues_in_active_state
        assert found.messages == dialogue.messages
