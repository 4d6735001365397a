"""AEA's own dialogues, saved message by message: each weakness of AEA's storage of dialogues, and its replacement."""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aea", reason="the extra `aea` is not installed")

from aea.protocols.dialogue.base import DialogueLabel
from faults.losing import Interrupted, Proxy, interrupted
from integrations.aea_agents import (
    ADDRESS,
    ASK,
    BYE,
    PEER,
    TELL,
    Greeter,
    ShopDialogue,
    ShopMessage,
    add_skill,
    agent,
    closed_loops,
    dialogues_of,
    of_sqlalchemy_here,
    peer,
    running,
    sent,
)

from collections_store import (
    DatabaseError,
    DatabaseUnavailable,
    DialoguesNotSaved,
    InvalidOption,
    Store,
)
from collections_store.dialogues import DialogueStore
from collections_store.integrations.aea import attach, register
from collections_store.integrations.aea.dialogues import terminal_performative

__all__ = ["closed_loops"]


@pytest.fixture
def store(shared_backend: Any) -> Iterator[Store]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        yield store


class Killed:
    """An agent that is set up and never torn down, as in a killed process."""

    def __init__(self, folder: Path, store: Store, **options: Any) -> None:
        kept = {name: options.pop(name) for name in list(options) if name.startswith("terminal")}
        self.aea = agent(folder, **options)
        assert attach(self.aea, store, **kept) == 1
        self.dialogues = dialogues_of(self.aea)
        self.storage = self.dialogues._dialogues_storage
        self.dialogues.setup()

    @property
    def active(self) -> Any:
        return self.storage.dialogues_in_active_state

    @property
    def ended(self) -> Any:
        return self.storage.dialogues_in_terminal_state


def talk(dialogues: Any, other: Any) -> tuple[Any, Any]:
    """Create a dialogue of this side, and one of the counterparty; each has two messages."""
    message, own = dialogues.create(other.self_address, ASK, text="hello")
    answer = other.update(sent(message)).reply(TELL, text="hi")
    assert dialogues.update(sent(answer)) is own
    question, _ = other.create(dialogues.self_address, ASK, text="what?")
    theirs = dialogues.update(sent(question))
    other.update(sent(theirs.reply(TELL, text="this", wei=10**30)))
    return own, theirs


def test_a_kill_after_each_message_loses_nothing(store: Store, tmp_path: Path) -> None:
    bob = peer()
    own, theirs = talk(Killed(tmp_path, store).dialogues, bob)
    for number in range(3):
        again = Killed(tmp_path, store)
        found = {each.dialogue_label: each for each in again.active}
        assert found == {own.dialogue_label: own, theirs.dialogue_label: theirs}
        assert found[own.dialogue_label].is_self_initiated
        assert not found[theirs.dialogue_label].is_self_initiated
        own, theirs = found[own.dialogue_label], found[theirs.dialogue_label]
        for mine in (own, theirs):
            other = bob.get_dialogue(sent(mine.last_outgoing_message))
            assert other is not None
            if number:
                assert other.last_incoming_message is not None
            reply = other.reply(TELL, text=str(number))
            assert again.dialogues.update(sent(reply)) is mine
            assert bob.update(sent(mine.reply(TELL, text=f"re {number}"))) is other


def test_sqlalchemy_does_not_run_in_the_main_thread(store: Store, tmp_path: Path) -> None:
    ada = Killed(tmp_path, store)
    with of_sqlalchemy_here() as seen:
        own, theirs = talk(ada.dialogues, peer())
        theirs.reply(BYE)
        ada.dialogues.dialogue_stats.add_dialogue_endstate(ShopDialogue.EndState.SUCCESSFUL, True)
        assert ada.storage.get_dialogues_with_counterparty(PEER) == [own, theirs]
        ada.storage.teardown()
    assert not seen


def test_a_real_runtime_restores_dialogues(store: Store, tmp_path: Path) -> None:
    aea = agent(tmp_path)
    attach(aea, store)
    with running(aea) as dialogues:
        own, theirs = talk(dialogues, peer())
        aea.runtime.storage.get_sync_collection("c").put("n", 5)
    aea = agent(tmp_path)
    attach(aea, store)
    with running(aea) as dialogues:
        assert dialogues.get_dialogue_from_label(own.dialogue_label) == own
        assert dialogues.get_dialogue_from_label(theirs.dialogue_label) == theirs
    assert store["c"].get("n") == 5


def test_an_incomplete_dialogue_is_completed_after_a_restart(store: Store, tmp_path: Path) -> None:
    bob = peer()
    message, _ = Killed(tmp_path, store).dialogues.create(PEER, ASK, text="hello")
    again = Killed(tmp_path, store)
    answer = bob.update(sent(message)).reply(TELL, text="hi")
    (mine,) = again.active
    assert again.dialogues.update(sent(answer)) is mine
    (once_more,) = Killed(tmp_path, store).active
    assert once_more == mine
    assert once_more.dialogue_label.dialogue_responder_reference != ""


def test_a_label_completed_by_a_refused_message_loses_nothing(store: Store, tmp_path: Path) -> None:
    bob, ada = peer(), Killed(tmp_path, store)
    message, mine = ada.dialogues.create(PEER, ASK, text="hello")
    good = bob.update(sent(message)).reply(TELL, text="hi")
    bad = sent(good)
    bad.set("message_id", -7)
    assert ada.dialogues.update(bad) is None
    assert [each == mine or each.message_class for each in Killed(tmp_path, store).active]
    ada.storage.teardown()
    (again,) = Killed(tmp_path, store).active
    assert again == mine


def test_a_failed_write_removes_the_message(store: Store, tmp_path: Path) -> None:
    bob, ada = peer(), Killed(tmp_path, store)
    own, theirs = talk(ada.dialogues, bob)
    before = theirs.json()
    original = ada.storage.store.accepted

    def full(dialogue: Any, count: int) -> None:
        raise OSError("disk is full")

    ada.storage.store.accepted = full
    with pytest.raises(OSError, match="disk is full"):
        theirs.reply(TELL, text="lost")
    with pytest.raises(OSError, match="disk is full"):
        ada.dialogues.create(PEER, ASK)
    assert theirs.json() == before
    assert len(ada.active) == 2
    ada.storage.store.accepted = original
    theirs.reply(TELL, text="kept")
    assert own in Killed(tmp_path, store).active
    assert theirs in Killed(tmp_path, store).active


def test_a_message_that_cannot_be_stored_is_rejected(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer("bob\0")
    question, _ = bob.create(ADDRESS, ASK, text="x")
    assert ada.dialogues.update(sent(question)) is None
    assert ada.active == []


def collections_of(store: Store) -> dict[str, int]:
    """Return the number of documents of each collection."""
    return {each.name.rpartition("__")[2]: each.count for each in store.collections()}


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("performative", [ASK, BYE])
def test_a_message_without_a_sender_does_not_stop_the_agent(
    store: Store, tmp_path: Path, keep: bool, performative: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShopDialogue._rules, "_initial_performatives", frozenset({ASK, BYE}))
    ada = Killed(tmp_path, store, keep=keep)
    question, _ = peer().create(ADDRESS, performative, text="x")
    anonymous = ShopMessage.decode(question.encode())
    anonymous.sender, anonymous.to = "", ADDRESS
    assert ada.dialogues.update(anonymous) is None
    assert ada.active == []
    with pytest.raises(DialoguesNotSaved):
        ada.dialogues.create("", ASK)
    assert ada.active == []
    assert not ada.storage.is_in_incomplete(DialogueLabel(question.dialogue_reference, "", ""))
    assert not any(collections_of(store).values())


def test_a_rejected_first_message_leaves_nothing(store: Store, tmp_path: Path) -> None:
    ada = Killed(tmp_path, store)
    question, _ = peer("bob\0").create(ADDRESS, ASK, text="x")
    assert ada.dialogues.update(sent(question)) is None
    assert not any(collections_of(store).values())


def test_a_reference_that_cannot_be_stored_does_not_affect_other_dialogues(
    store: Store, tmp_path: Path
) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    message, mine = ada.dialogues.create(PEER, ASK, text="hello")
    answer = bob.update(sent(message)).reply(TELL, text="hi")
    bad = sent(answer)
    bad.set("dialogue_reference", (message.dialogue_reference[0], "a\0b"))
    assert ada.dialogues.update(bad) is None
    assert ada.dialogues.update(sent(answer)) is mine
    assert Killed(tmp_path, store).active == [mine]


def test_a_failed_purge_removes_no_message(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ada, bob = Killed(tmp_path, store, terminal_kept=0), peer()
    _, theirs = talk(ada.dialogues, bob)

    def full(*_: Any) -> Any:
        raise DatabaseError("disk is full")

    ada.storage.store._repository.purge = full
    theirs.reply(BYE, text="bye")
    assert theirs.last_outgoing_message.performative == BYE
    assert "disk is full" in caplog.text
    assert Killed(tmp_path, store).ended == [theirs]


def test_the_first_terminal_performative_counts(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    own, _ = talk(ada.dialogues, bob)
    original = ada.storage.store.accepted

    def full(dialogue: Any, count: int) -> None:
        assert terminal_performative(own) == "bye"
        raise OSError("disk is full")

    ada.storage.store.accepted = full
    with pytest.raises(OSError, match="disk is full"):
        own.reply(BYE)
    assert terminal_performative(own) is None
    ada.storage.store.accepted = original
    own.reply(TELL, text="so it goes on")
    assert terminal_performative(own) is None
    own.reply(BYE)
    own.reply(TELL, text="a last word", target=-1)
    assert terminal_performative(own) == "bye"


def test_each_dialogues_has_one_name(store: Store, tmp_path: Path) -> None:
    aea = agent(tmp_path)
    dialogues = dialogues_of(aea)
    (skill,) = aea.resources.get_all_skills()
    skill.handlers["shop_dialogues"] = skill.behaviours["greeter"]  # names may be repeated
    skill.behaviours["greeter"].own = peer(ADDRESS)
    assert attach(aea, store) == 2
    dialogues.setup()
    talk(dialogues, peer())
    before = {each.name for each in store.collections()}
    skill.behaviours["greeter"].alias = dialogues  # as skills do in their setup
    skill.models["last"] = Greeter(name="last", skill_context=skill.skill_context)
    skill.models["last"].alias = dialogues
    skill.models["last"].own = skill.behaviours["greeter"].own
    assert attach(aea, store) == 2  # as after a restart of the storage
    talk(dialogues, peer())
    assert {each.name for each in store.collections()} == before
    assert len(Killed(tmp_path, store).active) == 4


def test_two_skills_have_dialogues_of_the_same_class(store: Store, tmp_path: Path) -> None:
    aea = agent(tmp_path)
    add_skill(aea, "other")
    assert attach(aea, store) == 2
    shop, other = (each.models["shop_dialogues"] for each in aea.resources.get_all_skills())
    for each in (shop, other):
        each.setup()
        each.create(PEER, ASK, text=each.skill_id.name)
    again = agent(tmp_path)
    add_skill(again, "other")
    attach(again, store)
    for skill in again.resources.get_all_skills():
        dialogues = skill.models["shop_dialogues"]
        dialogues.setup()
        (found,) = dialogues._dialogues_storage.dialogues_in_active_state
        assert found.last_outgoing_message.get("text") == skill.public_id.name


def test_a_bad_record_is_quarantined(store: Store, tmp_path: Path) -> None:
    ada = Killed(tmp_path, store)
    own, theirs = talk(ada.dialogues, peer())
    (collection,) = [each.name for each in store.collections() if each.name.endswith("__active")]
    (first, *_) = store[collection].find({"dialogue_label.dialogue_starter_addr": ADDRESS})
    store[collection].put(first.id, {"an": "older program's"})
    again = Killed(tmp_path, store)
    assert again.active == [theirs]
    quarantined, *_ = again.storage.store.quarantined()
    assert quarantined.id == first.id
    assert own not in again.active


def test_stopping_writes_nothing(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    for _ in range(3):
        _, theirs = talk(ada.dialogues, bob)
        theirs.reply(BYE)
    before = [
        (each.id, each.version) for info in store.collections() for each in store[info.name].list()
    ]
    ada.dialogues.teardown()
    after = [
        (each.id, each.version) for info in store.collections() for each in store[info.name].list()
    ]
    assert after == before


def test_ended_dialogues_are_offloaded_and_found(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    own, theirs = talk(ada.dialogues, bob)
    for each in (own, theirs):
        each.reply(BYE, text="bye")
    assert ada.active == []
    again = Killed(tmp_path, store)
    assert again.active == []
    assert sorted(str(each.dialogue_label) for each in again.ended) == sorted(
        str(each.dialogue_label) for each in (own, theirs)
    )
    for each in (own, theirs):
        label = each.dialogue_label
        assert again.dialogues.get_dialogue_from_label(label) == each
        assert again.dialogues.get_dialogue_from_label(label.get_incomplete_version()) == each
    assert again.dialogues.get_dialogues_with_counterparty(PEER) == [own, theirs]
    assert again.dialogues.get_dialogues_with_counterparty("nobody") == []


def test_a_late_message_to_a_terminal_dialogue_is_saved(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    own, _ = talk(ada.dialogues, bob)
    bob.update(sent(own.reply(BYE)))
    again = Killed(tmp_path, store)
    other = bob.get_dialogue(sent(own.last_outgoing_message))
    last = other.reply(TELL, text="one more")
    assert again.dialogues.update(sent(last)) is not None
    found = Killed(tmp_path, store).dialogues.get_dialogue_from_label(own.dialogue_label)
    assert found.last_incoming_message.get("text") == "one more"


@pytest.mark.parametrize("keep", [True, False])
def test_a_finished_dialogue_is_not_replayed(store: Store, tmp_path: Path, keep: bool) -> None:
    ada, bob = Killed(tmp_path, store, keep=keep), peer()
    question, _ = bob.create(ADDRESS, ASK, text="pay me")
    ada.dialogues.update(sent(question)).reply(BYE)
    for each in (ada, Killed(tmp_path, store, keep=keep)):
        assert each.dialogues.update(sent(question)) is None
        assert each.active == []
        assert len(each.ended) == keep


def test_no_message_of_a_counterparty_stops_an_agent(store: Store, tmp_path: Path) -> None:
    """AEA's `update` raises for a repeated first message, and without the starter's part of a reference."""
    ada, bob = Killed(tmp_path, store), peer()
    question, _ = bob.create(ADDRESS, ASK, text="what?")
    theirs = ada.dialogues.update(sent(question))
    for reference in (question.dialogue_reference, ("", "b"), ("", ""), ("x", "y"), ("\0", "b")):
        for number in (1, 2, -1):
            odd = sent(question)
            odd.set("dialogue_reference", reference)
            odd.set("message_id", number)
            assert ada.dialogues.update(odd) is None
    assert ada.active == [theirs]
    assert len(theirs._incoming_messages) == 1


LOST = (DatabaseUnavailable, DialoguesNotSaved, Interrupted)


@pytest.fixture(params=["sqlite", "postgresql"])
def lossy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Any]]:
    """A store, and a context that loses the confirmation of the next write."""
    if request.param == "sqlite":
        with Store(f"sqlite:///{tmp_path / 'agent.db'}") as store:
            yield store, interrupted
        return
    backend = request.getfixturevalue("postgres_backend")
    proxy = Proxy(backend.url)
    with Store(proxy.url, **backend.options) as store:
        yield store, proxy.dropping
    proxy.close()


@pytest.mark.parametrize("keep", [True, False])
def test_a_dialogue_continues_after_a_write_in_doubt(
    lossy: Any, tmp_path: Path, keep: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (store, losing), bob = lossy, peer()
    ada = Killed(tmp_path, store, keep=keep)
    own, theirs = talk(ada.dialogues, bob)
    for each, word in ((own, TELL), (theirs, TELL), (own, BYE)):
        with pytest.raises(LOST), losing():
            each.reply(word, text="lost")
        performative = each.reply(TELL, text="other words")
        assert bob.update(sent(performative)) is not None
    last = bob.get_dialogue(sent(own.last_outgoing_message)).reply(TELL, text="one more")
    with pytest.raises(LOST), losing():
        ada.dialogues.update(sent(last))
    assert ada.dialogues.update(sent(last)) is own
    first, _ = bob.create(ADDRESS, ASK, text="first")
    with pytest.raises(LOST), losing():
        ada.dialogues.update(sent(first))
    assert ada.dialogues.update(sent(first)) is not None
    second, _ = bob.create(ADDRESS, ASK, text="second")
    with pytest.raises(LOST), losing():
        ada.dialogues.create(PEER, ASK, text="never said")
    assert ada.dialogues.update(sent(second)) is not None
    ada.storage.teardown()
    assert "Conflict" not in caplog.text
    again = Killed(tmp_path, store, keep=keep)
    assert len(again.active) == 4
    assert all(each in again.active for each in (own, theirs))


def test_stopping_after_a_write_in_doubt_is_no_conflict(lossy: Any, tmp_path: Path) -> None:
    store, losing = lossy
    ada = Killed(tmp_path, store)
    own, theirs = talk(ada.dialogues, peer())
    for each in (own, theirs):
        with pytest.raises(LOST), losing():
            each.reply(TELL, text="lost")
    ada.storage.teardown()
    again = Killed(tmp_path, store).active
    assert own in again
    assert theirs in again


def test_removing_an_ended_dialogue_removes_it(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    own, theirs = talk(ada.dialogues, bob)
    own.reply(BYE)
    again = Killed(tmp_path, store)
    again.storage.remove(own.dialogue_label)
    again.storage.remove(theirs.dialogue_label)
    again.storage.remove(theirs.dialogue_label)
    assert again.active == again.ended == []
    assert Killed(tmp_path, store).ended == Killed(tmp_path, store).active == []


def test_a_dialogue_created_before_the_restore_is_kept(store: Store, tmp_path: Path) -> None:
    bob = peer()
    for _ in range(2):
        aea = agent(tmp_path)
        attach(aea, store)
        (skill,) = aea.resources.get_all_skills()
        skill.behaviours["greeter"].greets = True
        with running(aea) as dialogues:
            mine = dialogues._dialogues_storage.dialogues_in_active_state
            for each in mine:
                if each.last_incoming_message is None:
                    answer = bob.update(sent(each.last_outgoing_message))
                    assert dialogues.update(sent(answer.reply(TELL))) is each
    assert len(Killed(tmp_path, store).active) == 2


def test_agents_and_components_have_separate_dialogues(store: Store, tmp_path: Path) -> None:
    talk(Killed(tmp_path, store).dialogues, peer())
    assert Killed(tmp_path, store, address="eve_address").active == []
    assert Killed(tmp_path, store, name="my-dialogues").active == []
    assert len(Killed(tmp_path, store).active) == 2


def test_an_inactive_skill_overwrites_nothing(store: Store, tmp_path: Path) -> None:
    talk(Killed(tmp_path, store).dialogues, peer())
    aea = agent(tmp_path)
    attach(aea, store)
    dialogues_of(aea).teardown()  # and no setup
    assert len(Killed(tmp_path, store).active) == 2


def test_cleanup_deletes_stored_dialogues(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    own, theirs = talk(ada.dialogues, bob)
    own.reply(BYE)
    ada.storage.cleanup()
    assert ada.active == ada.ended == []
    again = Killed(tmp_path, store)
    assert again.active == again.ended == []
    assert again.dialogues.update(sent(theirs._incoming_messages[0])) is None


def test_terminal_dialogues_are_kept_within_the_limits(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store), peer()
    for _ in range(4):
        own, _ = talk(ada.dialogues, bob)
        own.reply(BYE)
    assert len(Killed(tmp_path, store, terminal_kept=2).ended) == 2
    assert len(Killed(tmp_path, store, terminal_ttl=3600).ended) == 2


def test_terminal_dialogues_are_purged_while_the_agent_runs(store: Store, tmp_path: Path) -> None:
    ada, bob = Killed(tmp_path, store, terminal_kept=2), peer()
    most = 0
    for _ in range(9):
        own, _ = talk(ada.dialogues, bob)
        own.reply(BYE)
        most = max(most, len(ada.ended))
    assert most <= 4
    hasty = Killed(tmp_path, store, terminal_ttl=timedelta(microseconds=1))
    assert hasty.ended == []
    for _ in range(3):
        own, _ = talk(hasty.dialogues, bob)
        own.reply(BYE)
        assert len(hasty.ended) <= 1


@pytest.mark.parametrize(
    "options",
    [{"terminal_ttl": each} for each in (0, -1, "1", True, float("nan"), timedelta(0))]
    + [{"terminal_kept": each} for each in (-1, 1.5, True, "1")],
    ids=repr,
)
def test_bad_retention_is_rejected_by_attach(store: Store, tmp_path: Path, options: Any) -> None:
    aea = agent(tmp_path)
    before = aea.runtime.storage, dialogues_of(aea)._dialogues_storage
    with pytest.raises(InvalidOption, match=next(iter(options))):
        attach(aea, store, **options)
    assert (aea.runtime.storage, dialogues_of(aea)._dialogues_storage) == before


def test_messages_are_found_by_their_content(store: Store, tmp_path: Path) -> None:
    ada = Killed(tmp_path, store)
    _, theirs = talk(ada.dialogues, peer())
    kept: DialogueStore[Any] = ada.storage.store
    assert kept.find({"messages.content.text": "what?"}) == [theirs]
    assert kept.find({"messages.performative": "bye"}) == []


def test_two_processes_of_one_agent_conflict(store: Store, tmp_path: Path) -> None:
    ada = Killed(tmp_path, store)
    own, _ = talk(ada.dialogues, peer())
    duplicate = Killed(tmp_path, store)
    (same,) = [each for each in duplicate.active if each == own]
    own.reply(TELL, text="one")
    with pytest.raises(RuntimeError, match="somebody else wrote"):
        same.reply(TELL, text="two")
    assert same.last_outgoing_message.get("text") == "hello"


def test_records_of_aea_are_migrated(shared_backend: Any, tmp_path: Path) -> None:
    register()
    file = tmp_path / "agent.db"
    aea = agent(tmp_path, storage_uri=f"collections+sqlite:///{file}")
    bob = peer()
    with running(aea) as dialogues:
        own, theirs = talk(dialogues, bob)
        ended, _ = talk(dialogues, bob)
        ended.reply(BYE)
    aea = agent(tmp_path, storage_uri=f"collections+sqlite:///{file}?attach=dialogues")
    with running(aea) as dialogues:
        storage = dialogues._dialogues_storage
        assert own in storage.dialogues_in_active_state
        assert theirs in storage.dialogues_in_active_state
        assert storage.dialogues_in_terminal_state == [ended]
    with Store(f"sqlite:///{file}") as store:
        (left,) = [each for each in store.collections() if each.name.endswith("ShopDialogues")]
        assert left.count == 0


def test_dialogues_that_ended_in_aea_are_not_replayed(store: Store, tmp_path: Path) -> None:
    """Fetch.ai's package keeps the labels of deleted dialogues, so that they do not start again."""
    bob = peer()
    deleted, _ = bob.create(ADDRESS, ASK, text="pay me")
    kept, _ = bob.create(ADDRESS, ASK, text="pay me, too")
    other = Killed(tmp_path, Store("sqlite://"))
    ended = other.dialogues.update(sent(kept))
    ended.reply(BYE)
    reference = deleted.dialogue_reference[0]
    label = {
        "dialogue_starter_reference": reference,
        "dialogue_responder_reference": "",
        "dialogue_opponent_addr": PEER,
        "dialogue_starter_addr": PEER,
    }
    pairs = [[label, {**label, "dialogue_responder_reference": "b"}], None, 5]
    pairs += [[ended.incomplete_dialogue_label.json, ended.dialogue_label.json]]
    name = "tests_shop_shop_dialogues_ShopDialogues_ShopDialogues"
    store[name].put("incomplete_dialogues", pairs)
    store[f"{name}_terminal"].put("damaged", {"no": "dialogue"})
    store[f"{name}_terminal"].put(str(ended.dialogue_label), ended.json())
    assert Killed(tmp_path, store).ended == [ended]
    assert store[name].count() == 1  # the content of the damaged record is unknown
    store[f"{name}_terminal"].remove("damaged")
    ada = Killed(tmp_path, store)
    assert ada.ended == [ended]
    for message in (deleted, kept):
        assert ada.dialogues.update(sent(message)) is None
    assert store[name].count() == 0


def test_aeas_own_persistence_works_unchanged(tmp_path: Path) -> None:
    register()
    uri = f"collections+sqlite:///{tmp_path / 'agent.db'}"
    bob = peer()
    with running(agent(tmp_path, storage_uri=uri)) as dialogues:
        own, theirs = talk(dialogues, bob)
    with running(agent(tmp_path, storage_uri=uri)) as dialogues:
        restored = dialogues.get_dialogue_from_label(theirs.dialogue_label)
        assert restored == theirs
        assert not restored.is_self_initiated
        other = bob.get_dialogue(sent(theirs.last_outgoing_message))
        assert dialogues.update(sent(other.reply(TELL))) is restored
    name = "tests_shop_shop_dialogues_ShopDialogues_ShopDialogues"
    with Store(f"sqlite:///{tmp_path / 'agent.db'}") as store:
        found = store[name].find("dialogue_label.dialogue_opponent_addr", PEER)
        assert {each.id for each in found} >= {str(own.dialogue_label), str(theirs.dialogue_label)}


def test_attach_rejects_objects_that_are_not_stores(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="store"):
        attach(agent(tmp_path))
    with pytest.raises(InvalidOption, match="store"):
        attach(agent(tmp_path), "sqlite://")  # type: ignore[arg-type]


def test_a_restored_message_equals_the_original(tmp_path: Path) -> None:
    with Store("sqlite://") as store:
        ada = Killed(tmp_path, store)
        message, _ = ada.dialogues.create(PEER, ASK, text="a\0b", wei=10**40)
        (again,) = Killed(tmp_path, store).active
        assert again.last_outgoing_message == message
        assert isinstance(again.last_outgoing_message, ShopMessage)
        assert json.loads(again.last_outgoing_message.encode())["wei"] == 10**40


def test_a_restarted_agent_continues(tmp_path: Path) -> None:
    register()
    aea = agent(tmp_path, storage_uri=f"collections+sqlite:///{tmp_path / 'a.db'}?attach=dialogues")
    bob, storage, dialogues = peer(), aea.runtime.storage, dialogues_of(aea)
    for number in range(1, 4):  # as its runtime does
        storage.start()
        asyncio.run(storage.wait_connected())
        dialogues.setup()
        _, theirs = talk(dialogues, bob)
        theirs.reply(TELL, text="more")
        assert len(dialogues._dialogues_storage.dialogues_in_active_state) == 2 * number
        dialogues.teardown()
        storage.stop()
        storage.wait_completed(sync=True, timeout=30)
    with Store(f"sqlite:///{tmp_path / 'a.db'}") as store:
        assert len(Killed(tmp_path, store).active) == 6
