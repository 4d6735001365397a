"""Edge cases of dialogues, on every backend, sync and async."""

from typing import Any

import pytest
from backends import Opener
from contract.test_dialogues import RULES, begun, ended, on_disk, performatives

from collections_store import (
    DialogueConflict,
    DialoguesNotSaved,
    InvalidBody,
    InvalidDialogueMessage,
    InvalidOption,
    RepeatedMessage,
    Store,
)
from collections_store.dialogues import Dialogue, DialogueLabel, Dialogues, Message, PlainCodec


@pytest.fixture
def again(open_store: Opener, store: Any) -> Any:
    return lambda **options: open_store.dialogues(store, **options)


def test_a_sender_cannot_change_an_accepted_message(again: Any, store: Any) -> None:
    for number, save in enumerate(("message", "teardown")):
        ada = again(save=save, component=f"c{number}")
        body = {"price": 1}
        message, dialogue = ada.create("bob", "ask", body)
        body["price"] = 99
        first = Message("ask", {"n": [1]}, 1, 0, ("r", ""), "eve", "ada")
        theirs = ada.update(first)
        first.body["n"].append(2)
        ada.teardown()
        found = {each.role: each for each in again(component=f"c{number}").find()}
        assert message.body == dialogue.messages[0].body == {"price": 1}
        assert found["starter"].messages == dialogue.messages
        assert found["responder"].messages[0].body == theirs.messages[0].body == {"n": [1]}


def test_a_repeated_message_is_compared_as_it_is_stored(again: Any) -> None:
    ada = again()
    first = Message("ask", {"n": [1, 2]}, 1, 0, ("r", ""), "eve", "ada")
    ada.update(first)
    with pytest.raises(RepeatedMessage):
        ada.update(first)
    with pytest.raises(InvalidBody):
        ada.update(Message("ask", {"n": (1, 2)}, 1, 0, ("r", ""), "eve", "ada"))
    assert len(ada.dialogues_in_active_state) == 1


def test_ends_and_removals_delete_no_unseen_message(again: Any) -> None:
    one, two = again(keep_terminal_state_dialogues=False), again()
    dialogue = begun(two)
    label = dialogue.dialogue_label
    one.setup()
    [theirs] = one.dialogues_in_active_state
    two.reply(dialogue, "offer")
    with pytest.raises(DialogueConflict):
        one.finish(theirs)
    with pytest.raises(DialogueConflict):
        one.remove(label)
    assert performatives(one.reload(label)) == performatives(dialogue)
    assert one.remove(label)


def test_hostile_numbers_and_strings_are_rejected(again: Any, store: Any) -> None:
    for number in (10**5000, -(10**10)):
        with pytest.raises(InvalidOption, match="message_id"):
            Message("ask", message_id=number)
    ada = again()
    with pytest.raises(InvalidOption):
        ada.create("bob\0", "ask")
    for bad in (
        Message("ask", 1, 1, 0, ("r\0", ""), "bob", "ada"),
        Message("ask", 1, 1, 0, ("r", ""), "b\0b", "ada"),
    ):
        with pytest.raises(InvalidDialogueMessage, match="holds NUL"):
            ada.update(bad)
    assert ada.find() == []


def test_a_dialogue_active_elsewhere_is_a_conflict(again: Any) -> None:
    one, two = again(), again()
    two.setup()
    first = Message("ask", 1, 1, 0, ("r", ""), "bob", "ada")
    label = one.update(first).dialogue_label
    with pytest.raises(DialogueConflict):
        two.update(first)
    assert two.reload(label) is not None
    with pytest.raises(RepeatedMessage):
        two.update(first)


def test_terminal_dialogues_are_purged_as_they_end(again: Any, store: Any) -> None:
    ada = again(terminal_kept=2)
    for number in range(9):
        ended(ada, f"b{number}")
    assert len(on_disk(store, "terminal")) <= 2 + 3


class Odd(PlainCodec):
    def is_terminal(self, dialogue: Dialogue) -> Any:
        return "done" if dialogue.is_terminal else None


class Spoiling(PlainCodec):
    def restore(self, label: Any, header: Any, messages: Any) -> Any:
        header.clear()
        messages.clear()
        raise LookupError("later")


class Nameless(PlainCodec):
    def label(self, dialogue: Dialogue) -> Any:
        return None if dialogue.role == "nameless" else dialogue.dialogue_label


def made(role: str, reference: str) -> Dialogue:
    return Dialogue(DialogueLabel((reference, ""), "bob", "ada"), "ada", role)


def test_any_truth_value_of_is_terminal_counts(open_store: Opener, store: Any) -> None:
    dialogues = open_store.dialogue_store(store, "ada", codec=Odd())
    dialogues.save(made("a", "1"))
    assert [each.role for each in dialogues.restore()] == ["a"]
    assert dialogues.quarantined() == []


def test_a_quarantined_record_is_unchanged(open_store: Opener, store: Any) -> None:
    dialogues = open_store.dialogue_store(store, "ada", codec=PlainCodec())
    dialogues.save(made("a", "1"))
    spoiling = open_store.dialogue_store(store, "ada", codec=Spoiling())
    assert list(spoiling.restore()) == []
    [aside] = spoiling.quarantined()
    assert (aside.body["role"], aside.body["self_address"]) == ("a", "ada")


def test_a_dialogue_without_a_label_does_not_stop_the_others_from_being_saved(
    open_store: Opener, store: Any
) -> None:
    dialogues = open_store.dialogue_store(store, "ada", codec=Nameless())
    given = [made("nameless", "1"), made("a", "2"), made("nameless", "3")]
    with pytest.raises(DialoguesNotSaved) as caught:
        dialogues.save(*given)
    assert len(caught.value.errors) == 2
    assert [each.role for each in dialogues.restore()] == ["a"]


def test_a_reloaded_dialogue_is_saved_again(open_store: Opener, store: Any) -> None:
    one = open_store.dialogue_store(store, "ada", codec=PlainCodec())
    two = open_store.dialogue_store(store, "ada", codec=PlainCodec())
    dialogue = made("a", "1")
    one.save(dialogue)
    [theirs] = two.restore()
    theirs.metadata["n"] = 1
    two.save(theirs)
    dialogue.metadata["n"] = 2
    with pytest.raises(DialoguesNotSaved):
        one.save(dialogue)
    fresh = one.get(dialogue.dialogue_label)
    fresh.metadata["n"] = 3
    assert one.save(fresh) == 1


@pytest.mark.parametrize("method", ["find", "quarantined", "setup", "teardown"])
def test_a_nested_call_is_rejected_instead_of_deadlocking(store: Any, method: str) -> None:
    if not isinstance(store, Store):
        pytest.skip("a function that is called cannot await")

    def role(message: Message, self_address: str) -> str:
        if message.to == "bob":
            getattr(ada, method)()
        return "starter"

    ada = Dialogues(store, "ada", role_from_first_message=role, save="teardown")
    ada.create("eve", "ask")  # there is something to save
    with pytest.raises(RuntimeError, match="within another"):
        ada.create("bob", "ask")
    assert len(ada.find()) == 1


def test_a_failed_save_is_logged_once(open_store: Opener, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store()
    ada = open_store.dialogues(store, rules=RULES, cached=0)
    dialogue = ended(ada)
    dialogue.metadata["bad"] = object()
    for number in range(5):
        begun(ada, f"b{number}")
        assert ada.get_dialogue_from_label(dialogue.dialogue_label) is dialogue
    assert len([each for each in caplog.records if "stays in memory" in each.message]) == 1
    with pytest.raises((DialoguesNotSaved, ExceptionGroup)):
        store.close()
