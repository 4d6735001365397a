"""Sixteen demonstrated weaknesses of AEA's own dialogues, and what this library does instead. (Killed processes are in
tests/faults.)
"""

import logging
from typing import Any

import pytest
from backends import Opener
from contract.test_dialogues import ADA, RULES, begun, ended, offer_to, on_disk, performatives

from collections_store import (
    DialogueNotFound,
    DialoguesNotSaved,
    InvalidDialogueMessage,
    RepeatedMessage,
)
from collections_store.dialogues import Message
from collections_store.dialogues.records import DialogueNamespace


@pytest.fixture
def agent(open_store: Opener, store: Any) -> Any:
    """A simulated process of an agent."""

    def make(address: str = "ada", **options: Any) -> Any:
        return open_store.dialogues(store, address, **{"rules": RULES, **options})

    return make


def first_of_bob(reference: str = "b7") -> Message:
    return Message("ask", {"item": "tea"}, 1, 0, (reference, ""), "bob", "ada")


def test_1_only_a_clean_stop_saves_anything(agent: Any, store: Any) -> None:
    ada = agent()
    for number in range(50):
        begun(ada, f"b{number}")
    assert len(on_disk(store, "active")) == len(on_disk(store, "messages")) == 50
    assert agent().setup().active == 50  # although the first was never stopped


def test_2_after_a_crash_the_old_snapshot_comes_back(agent: Any) -> None:
    ada = agent()
    message, dialogue = ada.create("bob", "ask")
    ada.teardown()
    ada.setup()
    ada.update(offer_to(message))
    ada.reply(ada.get_dialogue(message), "offer")
    after_the_crash = agent()
    peers_next = offer_to(message, message_id=-2, target=2)
    found = after_the_crash.update(peers_next)
    assert performatives(found) == ["ask", "offer", "offer", "offer"]
    assert found.dialogue_label == dialogue.dialogue_label.complete("b1")


def test_3_a_failed_dump_is_silent(agent: Any, store: Any) -> None:
    ada = agent(save="teardown")
    dialogues = [begun(ada, f"b{number}") for number in range(10)]
    dialogues[3].metadata["bad"] = object()
    with pytest.raises(DialoguesNotSaved) as caught:
        ada.teardown()
    assert list(caught.value.errors) == [dialogues[3].dialogue_label]
    assert len(on_disk(store, "active")) == 9
    assert len(ada.dialogues_in_active_state) == 10  # it can be corrected and saved
    dialogues[3].metadata.clear()
    ada.teardown()
    assert len(on_disk(store, "active")) == 10


def test_4_one_bad_record_stops_the_agent(
    agent: Any, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    begun(agent())
    store[ADA.active].put("foreign", {"of": "another program"})
    with caplog.at_level(logging.WARNING, "collections_store"):
        restored = agent().setup()
    assert restored.active == 1
    assert [each.id for each in restored.quarantined] == ["foreign"]
    assert restored.quarantined[0].body == {"of": "another program"}
    assert "foreign" in caplog.text


def test_5_restored_dialogues_of_the_counterparty_cannot_continue(agent: Any) -> None:
    ada = agent()
    ada.update(first_of_bob())
    second = agent()
    [found] = second.get_dialogues_with_counterparty("".join(["b", "ob"]))
    assert not found.is_self_initiated
    answer = second.reply(found, "offer")
    more = Message("accept", None, 2, -1, answer.dialogue_reference, "".join(["bo", "b"]), "ada")
    assert agent().update(more).state == "agreed"


def test_6_every_stop_writes_everything(agent: Any, store: Any) -> None:
    ada = agent()
    for number in range(20):
        begun(ada, f"b{number}")
        ended(ada, f"b{number}")
    parts = ("active", "terminal", "messages")
    before = [on_disk(store, part) for part in parts]
    for _ in range(3):
        ada.teardown()
        assert ada.setup().active == 20
    after = [on_disk(store, part) for part in parts]
    assert [[(e.id, e.version, e.updated_us) for e in some] for some in after] == [
        [(e.id, e.version, e.updated_us) for e in some] for some in before
    ]


def test_7_a_terminal_reply_blocks_and_rewrites(agent: Any, store: Any) -> None:
    ada = agent()  # tests of the store show that the event loop is never blocked
    message, dialogue = ada.create("bob", "ask")
    ada.update(offer_to(message))
    before = {each.id: each.version for each in on_disk(store, "messages")}
    ada.reply(dialogue, "accept")
    after = {each.id: each.version for each in on_disk(store, "messages")}
    assert len(after) == len(before) + 1
    assert set(after.values()) == {1}
    assert [each.version for each in on_disk(store, "terminal")] == [1]


def test_8_a_lookup_by_address_scans_everything(agent: Any, store: Any) -> None:
    ada = agent(cached=0)
    for number in range(200):
        ended(ada, f"b{number}")
    assert len(ada.get_dialogues_with_counterparty("b7")) == 1
    explained = store[ADA.terminal].explain("dialogue_label.dialogue_opponent_addr", "b7")
    assert not explained.scans


def test_9_a_late_message_to_a_loaded_terminal_dialogue_is_lost(agent: Any) -> None:
    ada = agent(cached=0)
    message, dialogue = ada.create("bob", "ask")
    ada.reply(dialogue, "decline", target=1)
    found = ada.get_dialogue(message)
    with pytest.raises(InvalidDialogueMessage, match="ended"):  # it is rejected, not lost
        ada.update(offer_to(message))
    found.metadata["late"] = offer_to(message).json
    ada.save(found)
    ada.teardown()
    assert agent().get_dialogue(message).metadata["late"]["performative"] == "offer"


def test_10_an_offloaded_dialogue_cannot_be_removed(agent: Any, store: Any) -> None:
    ada = agent(cached=0)
    label = ended(ada).dialogue_label
    another = agent(cached=0)
    assert another.remove(label) is True
    assert another.remove(label) is False
    assert not any(on_disk(store, part) for part in ("active", "terminal", "messages"))
    assert agent().get_dialogue_from_label(label) is None


def test_11_the_table_of_labels_grows_or_forgets(agent: Any, store: Any) -> None:
    ada = agent(cached=0)
    message, dialogue = ada.create("bob", "ask")
    incomplete = dialogue.dialogue_label
    ada.update(offer_to(message))
    ada.reply(dialogue, "accept")
    ada.reply(ada.update(first_of_bob()), "decline")
    names = {each.name for each in store.collections()}
    assert names <= set(ADA.all)  # there is no such table
    assert not on_disk(store, "finished")
    for each in (ada, agent(cached=0)):
        assert each.get_dialogue_from_label(incomplete).messages == dialogue.messages
        with pytest.raises(RepeatedMessage):
            each.update(first_of_bob())
    ada.purge(kept=0)
    with pytest.raises(InvalidDialogueMessage, match="ended"):
        agent().update(first_of_bob())
    assert len(on_disk(store, "finished")) == 1  # only of dialogues that the counterparty created


def test_12_dialogues_created_before_setup_lose_their_labels(agent: Any) -> None:
    begun(agent(), "eve")
    for _ in range(2):
        ada = agent()
        message, _ = ada.create("bob", "ask")
        ada.setup()
        second = agent()
        assert ada.update(offer_to(message)).dialogue_label.is_complete
        assert second.get_dialogue(offer_to(message)).message_count == 2
    assert agent().setup().active == 3


def test_13_names_lack_the_agent_and_are_ambiguous(agent: Any, store: Any) -> None:
    pairs = [("a", "b_c"), ("a_b", "c"), ("a", "X_terminal"), ("a", "X"), ("a", "my-dialogues")]
    names = [name for pair in pairs for name in DialogueNamespace(*pair).all]
    assert len(set(names)) == len(names)
    for address, component in pairs:
        begun(agent(address, component=component))
    for address, component in pairs:
        assert agent(address, component=component).setup().active == 1


def test_14_an_inactive_skill_overwrites_stored_dialogues(agent: Any, store: Any) -> None:
    begun(agent())
    before = on_disk(store, "active")
    for save in ("message", "teardown", 60.0):
        agent(save=save).teardown()  # it was never set up
    assert on_disk(store, "active") == before
    assert agent().setup().active == 1


def test_15_cleaned_up_dialogues_return_after_a_restart(agent: Any) -> None:
    ada = agent()
    some = [begun(ada), ended(ada)]
    for each in some:
        assert ada.remove(each.dialogue_label)
    for each in (ada, agent()):
        assert each.find() == []
        assert each.dialogues_in_active_state == ()
    with pytest.raises(DialogueNotFound):
        ada.reply(some[0], "offer")


def test_16_own_state_is_not_persisted_and_nothing_is_ever_purged(agent: Any, store: Any) -> None:
    ada = agent(terminal_kept=2)
    dialogue = begun(ada)
    dialogue.metadata["terms"] = {"price": 4, "is_agreed": False}
    ada.finish(dialogue, "successful")
    assert agent().find("state", "successful")[0].metadata["terms"]["price"] == 4
    for number in range(5):
        ended(ada, f"b{number}")
    ada.teardown()
    ada.setup()
    assert len(on_disk(store, "terminal")) == 2
    assert len(on_disk(store, "messages")) == 4
