"""Quarantined records can be restored, only invalid records are quarantined, and a label names one dialogue."""

from typing import Any

import pytest
from backends import Opener
from contract.test_dialogue_store import CALLS, Call, CallCodec, call_to
from contract.test_dialogues import ADA, RULES, begun, ended, on_disk

from collections_store import InvalidDialogueMessage, RepeatedMessage
from collections_store.dialogues import DialogueLabel, Message
from collections_store.dialogues.records import message_id


class Newer(CallCodec):
    """A codec of a version that reads records which another could not."""

    def restore(self, label: DialogueLabel, header: Any, messages: Any) -> Call:
        return Call(label, list(messages), header["is_terminal"], header["notes"])


class Broken(CallCodec):
    """A codec that fails for a reason outside of the record."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def restore(self, label: DialogueLabel, header: Any, messages: Any) -> Call:
        raise self.error("not the record's fault")


def calls_of(open_store: Opener, store: Any, codec: Any) -> Any:
    return open_store.dialogue_store(store, "ada", "calls", codec=codec)


def test_quarantined_records_move_back(open_store: Opener, store: Any) -> None:
    old = calls_of(open_store, store, CallCodec())
    old.save(
        call_to("bob", "hello", "bye", notes="unreadable"),
        call_to("eve", "over", notes="unreadable", is_over=True),
        call_to("joe", "fine"),
    )
    before = on_disk(store, "active", CALLS), on_disk(store, "messages", CALLS)
    assert [each.label.dialogue_opponent_addr for each in old.restore()] == ["joe"]
    assert list(old.restore(terminal=True)) == []
    assert len(old.quarantined()) == 5
    assert old.restore_quarantined() == []  # it still cannot be read
    assert len(old.quarantined()) == 5
    new = calls_of(open_store, store, Newer())
    found = {each.label.dialogue_opponent_addr: each for each in new.restore_quarantined()}
    assert (found["bob"].lines, found["eve"].is_over) == (["hello", "bye"], True)
    assert new.quarantined() == []
    after = on_disk(store, "active", CALLS), on_disk(store, "messages", CALLS)
    assert [sorted(map(repr, each)) for each in after] == [
        sorted(map(repr, each)) for each in before
    ]
    found["bob"].lines.append("again")
    assert new.save(found["bob"]) == 1
    assert new.restore_quarantined() == []


def test_a_dialogue_that_began_again_is_not_overwritten(open_store: Opener, store: Any) -> None:
    old = calls_of(open_store, store, CallCodec())
    old.save(call_to("bob", "hello", notes="unreadable"))
    assert list(old.restore()) == []
    again = calls_of(open_store, store, Newer())
    again.save(call_to("bob", "anew"))
    assert again.restore_quarantined() == []
    assert [each.lines for each in again.restore()] == [["anew"]]
    assert len(again.quarantined()) == 2


@pytest.mark.parametrize("how", ["ended", "removed"])
def test_a_dialogue_that_began_again_and_ended_is_not_restored(
    open_store: Opener, store: Any, how: str
) -> None:
    old = calls_of(open_store, store, CallCodec())
    old.save(call_to("bob", notes="unreadable"))
    assert list(old.restore()) == []
    again = calls_of(open_store, store, Newer())
    reopened = call_to("bob", is_over=True)
    again.save(reopened)
    if how == "removed":
        again.remove(reopened.label, remember=True)
    assert again.restore_quarantined() == []
    assert list(again.restore()) == []
    assert len(again.quarantined()) == 1


def test_concurrent_quarantine_and_restore_lose_and_duplicate_nothing(
    open_store: Opener, store: Any
) -> None:
    stores = [calls_of(open_store, store, CallCodec()) for _ in range(4)]
    stores[0].save(*(call_to(f"bob{n}", "hello", "bye", notes="unreadable") for n in range(10)))
    before = on_disk(store, "active", CALLS), on_disk(store, "messages", CALLS)
    open_store.call_concurrently((each, "find") for each in stores)
    assert len(stores[0].quarantined()) == 30
    newer = [calls_of(open_store, store, Newer()) for _ in stores]
    found = open_store.call_concurrently((each, "restore_quarantined") for each in newer)
    assert sorted(call.label.dialogue_opponent_addr for some in found for call in some) == sorted(
        f"bob{n}" for n in range(10)
    )
    after = on_disk(store, "active", CALLS), on_disk(store, "messages", CALLS)
    assert [{each.id: each.body for each in some} for some in after] == [
        {each.id: each.body for each in some} for some in before
    ]


def test_external_records_stay_in_the_quarantine(open_store: Opener, store: Any) -> None:
    old = calls_of(open_store, store, CallCodec())
    old.save(call_to("bob", "hello", notes="unreadable"))
    assert list(old.restore()) == []
    external = [
        5,
        {},
        {"collection": [], "id": "k", "reason": "", "body": 1},
        {"collection": CALLS.messages, "id": 5, "reason": "", "body": 1},
        {"collection": CALLS.messages, "id": "k0000000001", "reason": "", "body": 1},
        {"collection": CALLS.finished, "id": "k", "reason": "", "body": 1},
        {"collection": CALLS.active, "id": "k", "reason": "", "text": "{"},
        {"collection": CALLS.active, "id": "k", "reason": ""},
    ]
    for number, body in enumerate(external):
        store[CALLS.quarantine].put(f"foreign{number}", body)
    new = calls_of(open_store, store, Newer())
    assert [each.lines for each in new.restore_quarantined()] == [["hello"]]
    assert len(new.quarantined()) == len(external)
    assert len(on_disk(store, "messages", CALLS)) == 1


def test_setup_restores_records_that_have_become_readable(open_store: Opener, store: Any) -> None:
    ada = open_store.dialogues(store, rules=RULES)
    going, over = begun(ada), ended(ada, "eve")
    ada.teardown()
    for collection, each in ((ADA.active, going), (ADA.terminal, over)):
        body = store[collection].get(each.dialogue_label.key)
        store[collection].put(each.dialogue_label.key, {**body, "role": 5})
    second = open_store.dialogues(store, rules=RULES)
    assert second.setup().active == 0
    assert second.get_dialogue_from_label(over.dialogue_label) is None
    quarantined = store[ADA.quarantine]
    for id, body in list(quarantined.list()):
        if isinstance(body["body"], dict) and body["body"].get("role") == 5:
            quarantined.put(id, {**body, "body": {**body["body"], "role": "starter"}})
    found = {each.dialogue_label: each for each in second.restore_quarantined()}
    assert set(found) == {going.dialogue_label, over.dialogue_label}
    assert second.dialogues_in_active_state == (found[going.dialogue_label],)
    second.reply(found[going.dialogue_label], "offer", target=1)
    assert second.get_dialogue_from_label(over.dialogue_label) is found[over.dialogue_label]
    assert second.quarantined() == []


@pytest.mark.parametrize("error", [MemoryError, OSError, ImportError])
def test_errors_of_the_process_quarantine_nothing(
    open_store: Opener, store: Any, error: type[Exception]
) -> None:
    calls_of(open_store, store, CallCodec()).save(call_to("bob", "hello"))
    broken = calls_of(open_store, store, Broken(error))
    with pytest.raises(error, match="not the record's fault"):
        list(broken.restore())
    assert broken.quarantined() == []
    assert len(list(calls_of(open_store, store, CallCodec()).restore())) == 1


def test_a_wrong_complete_label_matches_no_dialogue(open_store: Opener, store: Any) -> None:
    calls = calls_of(open_store, store, CallCodec())
    incomplete = call_to("bob", "hello").label
    calls.save(Call(incomplete.complete("c4"), ["hello"]))
    wrong = incomplete.complete("another")
    assert not calls.remove(wrong)
    assert not calls.is_known(wrong)
    assert calls.messages(wrong) == []
    assert calls.messages(incomplete) == calls.messages(incomplete.complete("c4")) == ["hello"]
    assert calls.is_known(incomplete)
    assert calls.is_known(incomplete.complete("c4"))
    assert calls.remove(incomplete)


def test_messages_of_a_wrong_complete_label_are_not_found(open_store: Opener, store: Any) -> None:
    ada = open_store.dialogues(store, rules=RULES, cached=0)
    for dialogue in (begun(ada), ended(ada, "eve")):
        wrong = dialogue.dialogue_label.complete("another")
        assert ada.messages(wrong) == []
        assert ada.messages(dialogue.dialogue_label) == list(dialogue.messages)


@pytest.mark.parametrize(
    "changed",
    [
        {"message_id": 2},
        {"sender": "eve"},
        {"dialogue_reference": ["other", ""]},
        {"target": 7},
    ],
    ids=repr,
)
def test_messages_of_another_dialogue_are_quarantined(
    open_store: Opener, store: Any, changed: dict[str, Any]
) -> None:
    ada = open_store.dialogues(store)
    dialogue = begun(ada)
    ada.teardown()
    id = message_id(dialogue.dialogue_label.key, 1)
    store[ADA.messages].put(id, {**store[ADA.messages].get(id), **changed})
    second = open_store.dialogues(store)
    assert second.setup().active == 0
    [header] = [each for each in second.quarantined() if each.collection == ADA.active]
    assert "message 1" in header.reason


@pytest.mark.parametrize("body", [5, None, "x", [1]])
def test_a_header_that_is_no_object_does_not_stop_a_search(
    open_store: Opener, store: Any, body: Any
) -> None:
    ada = open_store.dialogues(store, rules=RULES)
    bad, good = (ended(ada, each).dialogue_label.key for each in ("bob", "eve"))
    ada.teardown()
    store[ADA.terminal].put(bad, body)
    second = open_store.dialogues(store, rules=RULES)
    [found] = second.find({"$nor": [{"messages.performative": "none"}]})
    assert found.dialogue_label.key == good
    assert [each.id for each in second.quarantined() if each.collection == ADA.terminal] == [bad]


def test_true_is_not_the_number_one(open_store: Opener, store: Any) -> None:
    ada = open_store.dialogues(store)
    first = Message("ask", {"n": [1]}, 1, 0, ("r", ""), "eve", "ada")
    ada.update(first)
    with pytest.raises(InvalidDialogueMessage) as caught:
        ada.update(Message("ask", {"n": [True]}, 1, 0, ("r", ""), "eve", "ada"))
    assert not isinstance(caught.value, RepeatedMessage)
    with pytest.raises(RepeatedMessage):
        ada.update(Message("ask", {"n": [1.0]}, 1, 0, ("r", ""), "eve", "ada"))
