"""Dialogues of a host's own classes, invalid records, and the statements of a message."""

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend, Opener
from contract.test_dialogues import RULES, begun, ended, offer_to, on_disk

from collections_store import DialogueConflict, DialoguesNotSaved, InvalidOption, Store
from collections_store.dialogues import (
    Dialogue,
    DialogueLabel,
    DialogueStore,
    Message,
    PlainCodec,
)
from collections_store.dialogues.records import DialogueNamespace, message_id

ADA = DialogueNamespace("ada", "dialogues")
CALLS = DialogueNamespace("ada", "calls")


@dataclass
class Call:
    """A host's own dialogue: lines of text."""

    label: DialogueLabel
    lines: list[Any] = field(default_factory=list)
    is_over: bool = False
    notes: Any = None
    header: dict[str, Any] = field(default_factory=dict)


class CallCodec:
    """The codec of calls."""

    def label(self, call: Call) -> DialogueLabel:
        return call.label

    def is_terminal(self, call: Call) -> bool:
        return call.is_over

    def header(self, call: Call) -> Any:
        return {**call.header, "notes": call.notes}

    def message_count(self, call: Call) -> int:
        return len(call.lines)

    def messages(self, call: Call, after: int) -> list[Any]:
        return call.lines[after:]

    def restore(self, label: DialogueLabel, header: Any, messages: Any) -> Call:
        if header["notes"] == "unreadable":
            raise LookupError("no such notes")
        return Call(label, list(messages), header["is_terminal"], header["notes"])


def call_to(other: str, *lines: Any, **parts: Any) -> Call:
    return Call(DialogueLabel(("1", ""), other, "ada"), list(lines), **parts)


@pytest.fixture
def calls(open_store: Opener, store: Any) -> Any:
    return open_store.dialogue_store(store, "ada", "calls", codec=CallCodec())


@pytest.fixture
def again(open_store: Opener, store: Any) -> Any:
    return lambda: open_store.dialogue_store(store, "ada", "calls", codec=CallCodec())


# -- a host's own classes -------------------------------------------------------------------------


def test_calls_are_saved_moved_found_and_removed(calls: Any, again: Any, store: Any) -> None:
    one, two = call_to("bob", "hello", {"deep": [1]}), call_to("eve", 1, None)
    assert calls.save(one, two) == 2
    assert calls.save(one, two) == 0
    one.lines.append("goodbye")
    two.is_over = True
    assert again().save(one, two) == 2  # another manager reads the stored ones first
    assert [list(each.restore()) for each in (calls, again())] == [[one], [one]]
    assert list(again().restore(terminal=True)) == [two]
    for label in (one.label, one.label.get_incomplete_version()):
        assert again().get(label) == one
    assert calls.get(one.label.complete("x")) is None
    assert calls.get_dialogues_with_counterparty("eve") == [two]
    assert calls.find({"messages.deep": 1}) == calls.find() == [one]
    assert calls.find("notes", None, terminal=True) == [two]
    assert calls.messages(one.label, after=1, limit=1) == [{"deep": [1]}]
    assert calls.messages(two.label) == [1, None]
    assert calls.is_known(two.label)
    assert calls.remove(two.label, remember=True)
    assert calls.is_known(two.label)
    assert not calls.remove(two.label)
    assert calls.remove(one.label)
    assert not calls.is_known(one.label)
    assert not any(on_disk(store, part, CALLS) for part in ("active", "terminal", "messages"))


def test_an_incomplete_label_becomes_complete_in_place(calls: Any, again: Any) -> None:
    call = call_to("bob", "hello")
    calls.save(call)
    call.label = call.label.complete("b1")
    call.lines.append("hi")
    assert again().save(call) == 1
    assert list(again().restore()) == [call]
    assert again().get(call.label.complete("")) == call


def test_a_dialogue_that_cannot_be_converted_does_not_stop_the_others(
    calls: Any, again: Any
) -> None:
    bad, worse = call_to("b1", object()), call_to("b2", "x", notes={1, 2})
    good = [call_to(f"g{n}", "hello") for n in range(5)]
    with pytest.raises(DialoguesNotSaved) as caught:
        calls.save(good[0], bad, "no call", *good[1:4], worse, good[4])
    assert {bad.label, worse.label} < caught.value.errors.keys()
    assert len(caught.value.errors) == 3
    assert sorted(again().restore(), key=str) == sorted(good, key=str)
    bad.lines, worse.notes = ["now"], "now"
    assert calls.save(*good, bad, worse) == 2


def test_a_header_cannot_overwrite_keys_of_the_library(calls: Any, again: Any) -> None:
    header: dict[str, Any] = {"is_terminal": False, "dialogue_label": None, "role": "r"}
    call = call_to("bob", "hello", is_over=True, header=header)
    calls.save(call)
    assert [each.lines for each in again().restore(terminal=True)] == [["hello"]]
    assert calls.quarantined() == []


def test_the_same_object_twice_is_saved_once(calls: Any, again: Any) -> None:
    call = call_to("bob", "hello")
    assert calls.save(call, call) == 1
    call.lines.append("goodbye")
    assert calls.save(call, call, call) == 1
    assert list(again().restore()) == [call]


def test_an_outdated_copy_is_a_conflict(calls: Any, again: Any) -> None:
    calls.save(call_to("bob", "hello", "goodbye"))
    other = call_to("eve", "hello")
    with pytest.raises(DialoguesNotSaved) as caught:
        again().save(call_to("bob", "hello", notes="late"), other)
    assert [type(each) for each in caught.value.errors.values()] == [DialogueConflict]
    assert [each.notes for each in again().restore()] == [None, None]
    assert again().get(other.label) == other


def test_concurrent_writers_never_overwrite_a_dialogue(calls: Any, again: Any) -> None:
    call = call_to("bob", "hello")
    calls.save(call)
    other = again()
    [theirs] = other.restore()
    theirs.notes = "theirs"
    other.save(theirs)
    call.notes, fine = "ours", call_to("eve", 1)
    with pytest.raises(DialoguesNotSaved) as caught:
        calls.save(call, fine)
    assert isinstance(caught.value.errors[call.label], DialogueConflict)
    assert again().get(call.label).notes == "theirs"
    assert again().get(fine.label) == fine
    theirs.is_over = True
    other.save(theirs)
    call.notes = None
    call.is_over = True
    with pytest.raises(DialoguesNotSaved):
        calls.save(call)
    assert list(again().restore()) == [fine]
    assert list(again().restore(terminal=True)) == [theirs]


READS: dict[str, Any] = {
    "restore": lambda calls: next(iter(calls.restore())),
    "get": lambda calls: calls.get(call_to("bob").label),
    "find": lambda calls: calls.find({"notes": None})[0],
    "search": lambda calls: calls.search("hello")[0].dialogue,
    "with": lambda calls: calls.get_dialogues_with_counterparty("bob")[0],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_dialogue_that_was_read_does_not_overwrite_a_later_header(
    calls: Any, again: Any, read: Any
) -> None:
    call, other = call_to("bob", "hello"), again()
    calls.message_collection.create_text_index("$body")
    calls.save(call)
    ours = read(other)
    call.notes, ours.notes = "theirs", "ours"
    calls.save(call)
    with pytest.raises(DialoguesNotSaved) as caught:
        other.save(ours)
    assert isinstance(caught.value.errors[call.label], DialogueConflict)
    assert again().get(call.label).notes == "theirs"


def test_the_end_of_an_outdated_dialogue_is_a_conflict_each_time(calls: Any, again: Any) -> None:
    call, other = call_to("bob", "hello"), again()
    calls.save(call)
    theirs = other.get(call.label)
    theirs.notes = "theirs"
    other.save(theirs)
    call.is_over = True
    for _ in range(2):
        with pytest.raises(DialoguesNotSaved):
            calls.save(call)
    assert again().get(call.label) == theirs
    ours = calls.get(call.label)
    ours.is_over = True
    assert calls.save(ours) == 1


@pytest.mark.parametrize("method", ["restore", "get", "find"])
def test_a_read_finds_out_that_another_process_has_ended_a_dialogue(
    calls: Any, again: Any, method: str
) -> None:
    call = call_to("bob", "hello")
    calls.save(call)
    again().save(call_to("bob", "hello", is_over=True))
    reads = {"get": lambda: [calls.get(call.label)]}
    reads["restore"] = lambda: list(calls.restore(terminal=True))
    reads["find"] = lambda: calls.find(terminal=True)
    [ended] = reads[method]()
    ended.notes = "ours"
    assert calls.save(ended) == 1


@pytest.mark.parametrize("method", ["restore", "get"])
def test_a_save_while_another_thread_reads_does_not_conflict_with_the_next(
    backend: Backend, method: str
) -> None:
    """The reader has read the dialogue from the database, and not yet noted its stored state."""
    has_read, has_saved = threading.Event(), threading.Event()

    class SlowCodec(CallCodec):
        def restore(self, label: DialogueLabel, header: Any, messages: Any) -> Call:
            has_read.set()
            assert has_saved.wait(60)
            return super().restore(label, header, messages)

    with Store(backend.url, **backend.options) as store:
        calls = DialogueStore(store, "ada", "calls", codec=SlowCodec())
        call = call_to("bob", "hello")
        calls.save(call)
        read = (lambda: calls.get(call.label)) if method == "get" else lambda: [*calls.restore()]
        reader = threading.Thread(target=read)
        reader.start()
        assert has_read.wait(60)
        call.notes = "first"
        calls.save(call)
        has_saved.set()
        reader.join()
        call.notes = "second"
        calls.save(call)
        found = calls.get(call.label)
        assert found is not None
        assert found.notes == "second"


@pytest.mark.parametrize("method", ["restore", "get"])
def test_a_read_does_not_wait_for_a_save(tmp_path: Path, method: str) -> None:
    """The save waits for the transaction of the reading thread."""
    is_waiting = threading.Event()

    class Codec(CallCodec):
        def header(self, call: Call) -> Any:
            if call.notes == "waiting":
                is_waiting.set()
            return super().header(call)

    with Store(f"sqlite:///{tmp_path / 'calls.db'}") as store:
        calls = DialogueStore(store, "ada", "calls", codec=Codec())
        call = call_to("bob", "hello")
        calls.save(call)
        call.notes = "waiting"
        writer = threading.Thread(target=calls.save, args=[call])
        with store.transaction() as tx:
            tx.collection("others").put("x", 1)
            writer.start()
            assert is_waiting.wait(60)
            found = calls.get(call.label) if method == "get" else next(calls.restore())
            assert found is not None
            assert found.notes is None
            assert writer.is_alive()
        writer.join()
        assert [each.notes for each in calls.restore()] == ["waiting"]


def test_a_codec_may_read_dialogues() -> None:
    class Codec(CallCodec):
        def restore(self, label: DialogueLabel, header: Any, messages: Any) -> Call:
            others.append(calls.get(DialogueLabel(("1", ""), "eve", "ada")))
            return super().restore(label, header, messages)

    others: list[Any] = []
    with Store("sqlite://") as store:
        calls = DialogueStore(store, "ada", "calls", codec=Codec())
        calls.save(call_to("bob", "hello"))
        found = calls.get(DialogueLabel(("1", ""), "bob", "ada"))
    assert found is not None
    assert others == [None]


def test_a_read_during_a_removal_does_not_prevent_a_new_dialogue() -> None:
    """The reader has read the dialogue from the database, and not yet noted its stored state."""

    class Codec(CallCodec):
        def restore(self, label: DialogueLabel, header: Any, messages: Any) -> Call:
            removed.append(stored.remove(label))
            return super().restore(label, header, messages)

    removed: list[bool] = []
    with Store("sqlite://") as store:
        stored = DialogueStore(store, "ada", "calls", codec=Codec())
        call = call_to("bob", "hello", "goodbye")
        stored.save(call)
        assert stored.get(call.label) == call
        assert removed == [True]
        assert stored.save(call_to("bob", "welcome")) == 1


def test_invalid_labels_and_addresses_are_rejected(calls: Any) -> None:
    for wrong in (None, "x", {"$gt": ""}):
        for method in ("get", "remove", "is_known", "messages"):
            with pytest.raises(InvalidOption, match="dialogue_label"):
                getattr(calls, method)(wrong)
    for address in (None, 1, {"$gt": ""}):
        with pytest.raises(InvalidOption, match="counterparty"):
            calls.get_dialogues_with_counterparty(address)


def test_many_dialogues_are_restored_in_batches(calls: Any, again: Any) -> None:
    many = [call_to(f"b{n}", n) for n in range(450)]
    calls.save(*many)
    assert sorted(each.lines[0] for each in again().restore()) == list(range(450))


# -- bad records ----------------------------------------------------------------------------------


def test_a_bad_record_is_quarantined_with_the_reason_and_the_rest_is_restored(
    calls: Any, again: Any, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [call_to("b1", "x", notes="unreadable"), call_to("b2", "x", "y"), call_to("b3", "x")]
    good = call_to("bob", "hello", "goodbye")
    calls.save(good, *bad)
    keys = [each.label.key for each in bad]
    store[CALLS.messages].remove(message_id(keys[1], 1))
    store[CALLS.active].update(keys[2], {"$set": {"dialogue_label.dialogue_opponent_addr": "b4"}})
    external = [good.label.key[0], good.label.key[:5], "x" * 500, "0" * 32, "ö"]
    bodies: list[Any] = [None, 7, {"dialogue_label": 1}, [[]], "text"]
    for number, id in enumerate(external):
        store[CALLS.active].put(id, bodies[number])
    with caplog.at_level(logging.WARNING, "collections_store"):
        assert list(again().restore()) == [good]
    assert len(caplog.records) == 8
    found = {each.id: each for each in calls.quarantined() if each.collection == CALLS.active}
    assert found.keys() == {*keys, *external}
    assert found[keys[0]].reason == "LookupError: no such notes"
    assert found[keys[1]].reason == "some of its messages are missing"
    assert found[keys[2]].reason == "its id is not that of its label"
    assert found[external[1]].body == 7
    assert found[keys[0]].body["notes"] == "unreadable"
    assert [each.id for each in on_disk(store, "active", CALLS)] == [good.label.key]
    assert len(on_disk(store, "messages", CALLS)) == 2  # its messages were removed with it
    assert len([each for each in calls.quarantined() if each.collection == CALLS.messages]) == 3


def test_an_agent_starts_with_any_records_in_its_collections(
    open_store: Opener, store: Any
) -> None:
    ada = open_store.dialogues(store, rules=RULES)
    fine, rows = begun(ada), store[ADA.active]

    def broken(other: str, **changes: Any) -> str:
        key: str = begun(ada, other).dialogue_label.key
        rows.update(key, {"$set": changes})
        return key

    bad = {
        broken("b1", state=7): "state",
        broken("b2", role=None): "role",
        broken("b3", metadata=[]): "metadata",
        broken("b4", self_address="eve"): "eve",
        broken("b5", is_terminal=True): "terminal",
        broken("b6", is_terminal=0): "terminal",
        broken("b7", dialogue_label={"dialogue_opponent_addr": "b7"}): "keys of a label",
    }
    key = begun(ada, "b8").dialogue_label.key
    store[ADA.messages].put(message_id(key, 1), {"performative": "ask"})
    key9 = begun(ada, "b9").dialogue_label.key
    store[ADA.messages].put(f"{key9}00000000xx", Message("ask").json)
    rows.put("foreign", {"dialogue_label": DialogueLabel(("1", ""), "b", "a").json})
    bad |= {key: "keys of a message", key9: "missing", "foreign": "id"}
    second = open_store.dialogues(store, rules=RULES)
    restored = second.setup()
    assert restored.active == 1
    assert second.dialogues_in_active_state[0].dialogue_label == fine.dialogue_label
    reasons = {
        each.id: each.reason for each in restored.quarantined if each.collection == ADA.active
    }
    assert reasons.keys() == bad.keys()
    for id, words in bad.items():
        assert words in reasons[id]
    quarantined = [each for each in second.quarantined() if each.collection == ADA.active]
    assert quarantined == list(restored.quarantined)  # and their messages
    third = open_store.dialogues(store, rules=RULES)
    assert (third.setup().active, third.setup().quarantined) == (1, ())


def test_a_bad_terminal_record_is_quarantined_when_it_is_read(
    open_store: Opener, store: Any
) -> None:
    ada = open_store.dialogues(store, rules=RULES, cached=0)
    bad, good = ended(ada, "bob"), ended(ada, "bob")
    store[ADA.terminal].update(bad.dialogue_label.key, {"$unset": {"role": ""}})
    second = open_store.dialogues(store, rules=RULES, cached=0)
    assert second.setup().quarantined == ()
    assert [each.messages for each in second.get_dialogues_with_counterparty("bob")] == [
        good.messages
    ]
    assert "role" in second.quarantined()[0].reason
    assert second.get_dialogue_from_label(bad.dialogue_label) is None


# -- statements -----------------------------------------------------------------------------------


def versions(store: Any, part: str) -> set[int]:
    return {each.version for each in on_disk(store, part)}


def test_a_message_inserts_one_record_and_no_header(open_store: Opener, store: Any) -> None:
    ada = open_store.dialogues(store, rules=RULES)
    message, dialogue = ada.create("bob", "ask")
    assert versions(store, "active") == {1}
    ada.update(offer_to(message))
    assert versions(store, "active") == {2}  # the label has become complete
    for number in range(20):
        ada.reply(dialogue, "offer", number, target=-1)
    assert (versions(store, "active"), versions(store, "messages")) == ({2}, {1})
    for _ in range(3):
        ada.teardown()
        ada.setup()
    assert (versions(store, "active"), versions(store, "messages")) == ({2}, {1})
    ada.update(offer_to(message, message_id=-2, performative="accept", target=2))
    for label in [dialogue.dialogue_label] * 3:
        ada.setup()
        ada.get_dialogue_from_label(label).metadata.get("looked at")
        ada.teardown()
    assert (versions(store, "terminal"), versions(store, "messages")) == ({1}, {1})
    assert not on_disk(store, "active")


def statements(engine: sa.Engine, function: Any) -> list[str]:
    seen: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        seen.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        function()
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    return seen


def writes(seen: list[str]) -> list[str]:
    return [each for each in seen if each.split()[0] in {"INSERT", "UPDATE", "DELETE", "WITH"}]


@pytest.mark.each_backend  # one of the two is async, and skipped
def test_statements_are_counted(backend: Any, open_store: Opener) -> None:
    if open_store.variant == "async" or backend.is_private:
        pytest.skip("the same statements")
    driver = "postgresql+psycopg" if backend.is_postgresql else "sqlite"
    engine = sa.create_engine(sa.make_url(backend.url).set(drivername=driver))
    with Store(engine=engine, **backend.options) as store:
        ada = open_store.dialogues(store, rules=RULES)
        message, dialogue = ada.create("bob", "ask")
        ada.update(offer_to(message))
        many = [begun(ada, f"b{n}") for n in range(20)]
        gone = [ended(ada, f"b{n}") for n in range(20)]
        assert len(many) == len(gone)
        performatives = statements(engine, lambda: ada.reply(dialogue, "offer", {"price": 1}))
        assert len(writes(performatives)) == 1
        assert writes(statements(engine, ada.teardown)) == []
        ada.setup()
        for each in ada.dialogues_in_active_state[:2]:
            each.metadata["a"] = 1
        assert len(writes(statements(engine, ada.teardown))) == 2
    engine.dispose()


def test_counterparties_are_found_by_an_index(open_store: Opener, store: Any) -> None:
    ada = open_store.dialogues(store, rules=RULES)
    for number in range(300):
        begun(ada, f"b{number}")
        ended(ada, f"b{number}")
    for part in (ADA.active, ADA.terminal):
        explained = store[part].explain("dialogue_label.dialogue_opponent_addr", "b7")
        assert not explained.scans
        assert "dialogue_label" in str(explained.indexes)


def test_plain_dialogues_work_in_a_dialogue_store(open_store: Opener, store: Any) -> None:
    dialogues = open_store.dialogue_store(store, "ada", codec=PlainCodec(RULES))
    label = DialogueLabel(("7f", ""), "bob", "ada")
    dialogue = Dialogue(label, "ada", "buyer", rules=RULES, metadata={"a": [1]})
    dialogue.apply(dialogue.read(dialogue.reply("ask", None, None)))
    assert (dialogues.save(dialogue), dialogues.save(dialogue)) == (1, 0)
    [found] = open_store.dialogues(store, rules=RULES).find()
    assert (found.messages, found.metadata, found.role) == (dialogue.messages, {"a": [1]}, "buyer")
