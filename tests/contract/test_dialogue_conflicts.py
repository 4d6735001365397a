"""Two managers of the same dialogues: neither writes to a dialogue that the other ended, removed or purged."""

from typing import Any

import pytest
from backends import Opener
from contract.test_dialogue_store import CallCodec, call_to
from contract.test_dialogues import ADA, RULES, begun, ended, offer_to, on_disk, performatives

from collections_store import DialogueConflict, DialoguesNotSaved
from collections_store.codec import Codec
from collections_store.dialogues import Dialogue, Message, PlainCodec
from collections_store.dialogues.repository import DialogueRepository


@pytest.fixture
def again(open_store: Opener, store: Any) -> Any:
    return lambda **options: open_store.dialogues(store, **options)


def two_of(again: Any, **options: Any) -> tuple[Any, Dialogue, Any, Dialogue]:
    """Return two managers and their copies of one dialogue."""
    one, two = again(**options), again()
    dialogue = begun(one)
    two.setup()
    [theirs] = two.dialogues_in_active_state
    return one, dialogue, two, theirs


def change_elsewhere(one: Any, dialogue: Dialogue, change: str) -> None:
    """Change a dialogue that another manager has."""
    if change == "messages":
        for number in range(3):
            one.reply(dialogue, "x", number)
    if change == "removed":
        one.remove(dialogue.dialogue_label)
    else:
        one.finish(dialogue)
    if change == "purged":
        one.purge(kept=0)


CHANGES = ["finished", "messages", "removed", "purged"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
def test_a_dialogue_ended_elsewhere_takes_no_message(
    again: Any, store: Any, change: str, kept: bool
) -> None:
    one, dialogue, two, theirs = two_of(again, keep_terminal_state_dialogues=kept)
    before = theirs.messages
    change_elsewhere(one, dialogue, change)
    there = on_disk(store, "messages")
    with pytest.raises(DialogueConflict):
        two.reply(theirs, "x", "late")
    with pytest.raises(DialogueConflict):
        two.update(offer_to(theirs.messages[0]))
    assert theirs.messages == before
    assert on_disk(store, "messages") == there
    found = two.reload(theirs.dialogue_label)
    assert (found is None) == (not kept or change in {"removed", "purged"})
    assert two.dialogues_in_active_state == ()


@pytest.mark.parametrize("change", CHANGES)
def test_a_dialogue_ended_elsewhere_is_not_saved(open_store: Opener, change: str) -> None:
    with open_store() as store:

        def again(**options: Any) -> Any:
            return open_store.dialogues(store, **options)

        one, dialogue, _, _ = two_of(again)
        late = again(save="teardown")
        late.setup()
        [theirs] = late.dialogues_in_active_state
        late.reply(theirs, "x", "late")
        change_elsewhere(one, dialogue, change)
        there = on_disk(store, "messages")
        with pytest.raises(DialoguesNotSaved) as caught:
            late.teardown()
        assert isinstance(caught.value.errors[dialogue.dialogue_label], DialogueConflict)
        late.reload(dialogue.dialogue_label)
        late.teardown()
        assert on_disk(store, "messages") == there


def test_a_dialogue_purged_elsewhere_is_not_written_again(open_store: Opener) -> None:
    with open_store() as store:
        one, two = open_store.dialogues(store, rules=RULES), open_store.dialogues(store)
        dialogue = ended(one)
        assert dialogue.metadata == {}  # reading metadata marks it as dirty
        assert two.purge(kept=0) == 1
        with pytest.raises(DialoguesNotSaved) as caught:
            one.save(dialogue)
        assert isinstance(caught.value.errors[dialogue.dialogue_label], DialogueConflict)
        one.teardown()  # its dialogue was not saved
        assert on_disk(store, "terminal") == []
        assert on_disk(store, "messages") == []


def test_finish_conflicts_with_messages_added_elsewhere(again: Any) -> None:
    one, dialogue, two, theirs = two_of(again)
    two.reply(theirs, "x", "unseen")
    with pytest.raises(DialogueConflict):
        one.finish(dialogue)
    assert not dialogue.is_terminal
    assert performatives(one.reload(dialogue.dialogue_label)) == performatives(theirs)


def test_a_dialogue_store_adds_nothing_to_a_deleted_dialogue(
    open_store: Opener, store: Any
) -> None:
    one = open_store.dialogue_store(store, "ada", codec=PlainCodec())
    two = open_store.dialogue_store(store, "ada", codec=PlainCodec())
    dialogue = begun(open_store.dialogues(store))
    [mine], [theirs] = list(one.restore()), list(two.restore())
    assert mine.dialogue_label == dialogue.dialogue_label
    assert one.remove(mine.dialogue_label)
    theirs.apply(theirs.read(theirs.reply("x", 1, None)))
    with pytest.raises(DialoguesNotSaved):
        two.save(theirs)
    assert on_disk(store, "messages") == []


def test_concurrent_messages_and_ends_leave_no_orphaned_message(
    open_store: Opener, store: Any
) -> None:
    one, two = (
        open_store.dialogues(store, keep_terminal_state_dialogues=False),
        open_store.dialogues(store),
    )
    for round in range(25):
        dialogue = begun(one, f"b{round}")
        theirs = two.reload(dialogue.dialogue_label)
        outcomes = open_store.call_concurrently(
            [(two, "reply", theirs, "x", round), (one, "finish", dialogue)]
        )
        errors = [each for each in outcomes if isinstance(each, BaseException)]
        assert len(errors) == 1, outcomes
        assert isinstance(errors[0], DialogueConflict), errors
    headers, messages = on_disk(store, "active"), on_disk(store, "messages")
    assert {id[:32] for id, _ in messages} == {id for id, _ in headers}


@pytest.mark.parametrize("problem", [True, False], ids=["answered", "unanswered"])
def test_a_dialogue_created_twice_is_not_overwritten(again: Any, store: Any, problem: bool) -> None:
    one, two = again(save="teardown"), again(save="teardown")
    for each in (one, two):
        each.setup()
    for each in (one, two):
        dialogue = each.update(Message("ask", {"n": 1}, 1, 0, ("r", ""), "eve", "ada"))
        if problem:
            each.reply(dialogue, "x", repr(each))
    one.teardown()
    there = on_disk(store, "active"), on_disk(store, "messages")
    with pytest.raises(DialoguesNotSaved) as caught:
        two.teardown()
    assert isinstance(caught.value.errors[dialogue.dialogue_label], DialogueConflict)
    assert (on_disk(store, "active"), on_disk(store, "messages")) == there
    two.reload(dialogue.dialogue_label)
    two.teardown()


def test_a_dialogue_store_does_not_mix_dialogues_created_twice(
    open_store: Opener, store: Any
) -> None:
    one, two = (open_store.dialogue_store(store, "ada", codec=CallCodec()) for _ in range(2))
    one.save(call_to("bob", "hello", "one"))
    with pytest.raises(DialoguesNotSaved):
        two.save(call_to("bob", "hello", "two", "more"))
    assert two.save(call_to("bob", "hello", "one", "more")) == 1
    assert [each.lines for each in one.find()] == [["hello", "one", "more"]]


def test_concurrent_purges_leave_the_number_to_keep(again: Any, store: Any) -> None:
    one = again(rules=RULES)
    for _ in range(6):
        ended(one)
    meanwhile = [lambda: one.purge(kept=4)]

    def run(operation: Any) -> Any:
        found = store.run(operation)
        while meanwhile:
            meanwhile.pop()()
        return found

    repository = DialogueRepository(ADA, PlainCodec(), Codec(), ordered=True)
    repository.purge_batch(run, None, 4)
    assert len(on_disk(store, "terminal")) == 4


def test_remove_returns_false_after_another_removed(again: Any) -> None:
    one, dialogue, two, theirs = two_of(again)
    assert one.remove(dialogue.dialogue_label)
    assert not two.remove(theirs.dialogue_label)
    assert two.dialogues_in_active_state == ()
    late = again(save="teardown")
    assert late.remove(begun(late, "eve").dialogue_label)  # it was only in memory


class Purging:
    """Purges all terminal dialogues."""

    def __init__(self, dialogues: Any) -> None:
        self._dialogues = getattr(dialogues, "_target", dialogues)

    def purge(self) -> Any:
        return self._dialogues.purge(kept=0)


def test_concurrent_purges_count_each_dialogue_once(open_store: Opener, store: Any) -> None:
    ada = open_store.dialogues(store, rules=RULES)
    for number in range(40):
        ended(ada, f"b{number}")
    others = [open_store.dialogue_store(store, "ada", codec=PlainCodec()) for _ in range(4)]
    counts = open_store.call_concurrently([(Purging(each), "purge") for each in others])
    assert sum(counts) == 40, counts
    assert on_disk(store, "terminal") == on_disk(store, "messages") == []
