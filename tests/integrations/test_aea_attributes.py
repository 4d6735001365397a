"""Attributes of subclasses of AEA's dialogues, and their statistics."""

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aea", reason="the extra `aea` is not installed")

from aea.exceptions import AEAEnforceError
from aea.protocols.dialogue.base import Dialogues
from aea.skills.base import Model
from integrations.aea_agents import (
    ADDRESS,
    ASK,
    BYE,
    PEER,
    TELL,
    BaseShopDialogues,
    ShopDialogue,
    ShopMessage,
    add_skill,
    agent,
    closed_loops,
    dialogues_of,
    peer,
    running,
    sent,
)

from collections_store import InvalidOption, Store, StoreClosed
from collections_store.integrations.aea import attach, dialogues_storage, register

__all__ = ["closed_loops"]

DONE = ShopDialogue.EndState.SUCCESSFUL


class Level(IntEnum):
    LOW = 1


class Deal(ShopDialogue):
    """A dialogue of a skill, with attributes."""

    __slots__ = ("unset", "wei")

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.terms: Any = None
        self._proposal: dict[str, Any] = {}
        self.friend: Any = "nobody"


class OwnDeal(ShopDialogue):
    """Chooses itself what is stored, as with AEA's own storage."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.paid: frozenset[int] = frozenset()
        self.note = "new"

    def json(self) -> dict[str, Any]:
        return {**super().json(), "paid": sorted(self.paid)}

    @classmethod
    def from_json(cls, message_class: Any, data: dict[str, Any]) -> Any:
        found: Any = super().from_json(message_class, data)
        found.paid = frozenset(data["paid"])
        return found


class OldDeal(ShopDialogue):
    """The dialogue of an older or newer version of a skill."""

    @property
    def terms(self) -> str:
        return "none"


class DealDialogues(Model, BaseShopDialogues):
    def __init__(self, dialogue_class: Any, **parts: Any) -> None:
        Model.__init__(self, **parts)
        BaseShopDialogues.__init__(self, self.context.agent_address)
        self._dialogue_class = dialogue_class


@pytest.fixture
def store(shared_backend: Any) -> Iterator[Store]:
    with Store(shared_backend.url, **shared_backend.options) as store:
        yield store


def dealing(folder: Path, made: type[ShopDialogue], uri: str | None = None) -> Any:
    """Build an agent with dialogues of a class."""
    aea = agent(folder, storage_uri=uri)
    add_skill(aea, "deals", "deals", DealDialogues, dialogue_class=made)
    return aea


def deals_of(aea: Any) -> Any:
    (found,) = [
        e for s in aea.resources.get_all_skills() for e in s.models.values() if e.name == "deals"
    ]
    return found


def started(store: Store, folder: Path, made: type[ShopDialogue]) -> Any:
    """Return the restored dialogues of an agent that is never torn down."""
    aea = dealing(folder, made)
    assert attach(aea, store) == 2
    dialogues = deals_of(aea)
    dialogues.setup()
    return dialogues


def active(dialogues: Dialogues) -> list[Any]:
    return list(dialogues._dialogues_storage.dialogues_in_active_state)


def begun(dialogues: Any) -> tuple[Any, Any]:
    """Let the counterparty create a dialogue; return both sides."""
    question, theirs = peer().create(ADDRESS, ASK, text="what?")
    return dialogues.update(sent(question)), theirs


def test_attributes_are_saved_with_the_next_message(store: Store, tmp_path: Path) -> None:
    deal, _ = begun(started(store, tmp_path, Deal))
    deal.terms = {"price": 10**30, "rate": float("inf"), "tags": ["a\0b", None, True]}
    deal._proposal["by"] = PEER
    deal.wei = 2**70
    deal.friend = deal
    deal.reply(TELL, text="this")
    (again,) = active(started(store, tmp_path, Deal))
    assert again == deal
    assert again.terms == deal.terms
    assert again._proposal == {"by": PEER}
    assert again.wei == 2**70
    assert again.friend == "nobody"  # as the class creates it
    assert not hasattr(again, "unset")
    again.terms["price"] = 5
    again.reply(BYE)
    ended = started(store, tmp_path, Deal).get_dialogue_from_label(deal.dialogue_label)
    assert ended.terms["price"] == 5


def test_attributes_are_saved_when_the_agent_stops(store: Store, tmp_path: Path) -> None:
    dialogues = started(store, tmp_path, Deal)
    deal, _ = begun(dialogues)
    deal.terms = "late"
    dialogues.teardown()
    again = started(store, tmp_path, Deal)
    assert [each.terms for each in active(again)] == ["late"]
    before = [each.version for info in store.collections() for each in store[info.name].list()]
    again.teardown()
    after = [each.version for info in store.collections() for each in store[info.name].list()]
    assert after == before


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, b"x", object(), Level.LOW, {1: 1}, [(1,)], "x" * 200_000, Deal],
    ids=lambda value: type(value).__name__,
)
def test_attributes_that_are_not_json_are_converted_by_the_class(
    tmp_path: Path, value: Any
) -> None:
    with Store("sqlite://") as store:
        deal, _ = begun(started(store, tmp_path, Deal))
        deal.terms, deal.friend = value, "Eve"
        assert deal.reply(TELL, text="it is said all the same") is deal.last_outgoing_message
        (again,) = active(started(store, tmp_path, Deal))
        assert again == deal
        assert (again.terms, again.friend) == (None, "Eve")


def test_recursive_attributes_are_harmless(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with Store("sqlite://") as store:
        deal, _ = begun(started(store, tmp_path, Deal))
        deal.terms = loop
        deal.reply(TELL, text="this")
        assert [each.terms for each in active(started(store, tmp_path, Deal))] == [None]


def test_dialogues_are_found_by_their_attributes(store: Store, tmp_path: Path) -> None:
    dialogues = started(store, tmp_path, Deal)
    deal, _ = begun(dialogues)
    begun(dialogues)
    deal.terms = {"price": 5}
    deal.reply(TELL, text="this")
    storage = dialogues_storage(dialogues)
    assert storage.find({"metadata.attributes.terms.price": 5}) == [deal]
    assert storage.find("messages.content.text", "this") == [deal]


def test_only_attached_dialogues_have_a_storage_here(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidOption, match=r"dialogues: must be AEA's Dialogues .*, got <.*DealDialogues"
    ):
        dialogues_storage(deals_of(dealing(tmp_path, Deal)))


def test_a_class_may_choose_what_is_stored(store: Store, tmp_path: Path) -> None:
    deal, _ = begun(started(store, tmp_path, OwnDeal))
    deal.paid, deal.note = frozenset({3, 10**20}), "old"
    deal.reply(TELL, text="this")
    (again,) = active(started(store, tmp_path, OwnDeal))
    assert (again.paid, again.note) == (deal.paid, "new")


def test_attributes_stored_by_aea_are_migrated(tmp_path: Path) -> None:
    register()
    uri = f"collections+sqlite:///{tmp_path / 'agent.db'}"
    aea = dealing(tmp_path, OwnDeal, uri)
    with running(aea, deals_of(aea)) as dialogues:
        deal, _ = begun(dialogues)
        deal.paid = frozenset({7})
    aea = dealing(tmp_path, OwnDeal, f"{uri}?attach=dialogues")
    with running(aea, deals_of(aea)) as dialogues:
        assert [each.paid for each in active(dialogues)] == [frozenset({7})]


def test_a_changed_class_restores_known_attributes(store: Store, tmp_path: Path) -> None:
    deal, _ = begun(started(store, tmp_path, Deal))
    deal.terms, deal.friend = {"a": 1}, "Eve"
    deal.reply(TELL, text="this")
    (old,) = active(started(store, tmp_path, OldDeal))
    assert (old.terms, old.friend) == ("none", "Eve")
    assert old.reply(TELL, text="and that") is old.last_outgoing_message


def test_no_record_replaces_attributes_of_aea(store: Store, tmp_path: Path) -> None:
    deal, _ = begun(started(store, tmp_path, Deal))
    (collection,) = [
        each.name for each in store.collections() if each.count and "active" in each.name
    ]
    (header,) = store[collection].list()
    forged = {"_role": "king", "_update": 1, "json": 2, "__dict__": {"a": 3}, "terms": 4}
    store[collection].update(header.id, {"$set": {"metadata": {"attributes": forged}}})
    (again,) = active(started(store, tmp_path, Deal))
    assert again.terms == 4
    assert again.role == deal.role
    assert isinstance(again.reply(TELL, text="this"), ShopMessage)


# -- statistics ------------------------------------------------------------------------------


def numbers(dialogues: Any) -> tuple[int, int]:
    stats = dialogues.dialogue_stats
    return stats.self_initiated[DONE], stats.other_initiated[DONE]


def test_statistics_continue_after_a_restart(store: Store, tmp_path: Path) -> None:
    for number in range(3):
        dialogues = started(store, tmp_path, Deal)
        assert numbers(dialogues) == (2 * number, number)
        for is_own in (True, True, False):
            dialogues.dialogue_stats.add_dialogue_endstate(DONE, is_self_initiated=is_own)
        dialogues.setup()  # as if its storage had restarted
        assert numbers(dialogues) == (2 * number + 2, number + 1)


def test_statistics_belong_to_agent_and_component(store: Store, tmp_path: Path) -> None:
    started(store, tmp_path, Deal).dialogue_stats.add_dialogue_endstate(DONE, True)
    aea = agent(tmp_path)
    attach(aea, store)
    dialogues_of(aea).setup()
    assert numbers(dialogues_of(aea)) == (0, 0)


def test_statistics_before_the_setup_are_included(store: Store, tmp_path: Path) -> None:
    started(store, tmp_path, Deal).dialogue_stats.add_dialogue_endstate(DONE, True)
    aea = dealing(tmp_path, Deal)
    attach(aea, store)
    dialogues = deals_of(aea)
    dialogues.dialogue_stats.add_dialogue_endstate(DONE, True)  # by a behaviour's setup
    dialogues.setup()
    assert numbers(dialogues) == (2, 0)


def test_rejected_messages_are_not_counted(store: Store, tmp_path: Path) -> None:
    dialogues = started(store, tmp_path, Deal)
    with pytest.raises(AEAEnforceError):
        dialogues.dialogue_stats.add_dialogue_endstate("nonsense", True)
    store.close()
    with pytest.raises(StoreClosed):
        dialogues.dialogue_stats.add_dialogue_endstate(DONE, True)
    assert numbers(dialogues) == (0, 0)


def test_an_invalid_statistics_record_is_ignored(store: Store, tmp_path: Path) -> None:
    started(store, tmp_path, Deal).dialogue_stats.add_dialogue_endstate(DONE, True)
    (record,) = store["dialogues__stats"].list()
    for bad in ([1], {"self_initiated": {"SUCCESSFUL": "x"}}, {"self_initiated": 5}):
        store["dialogues__stats"].put(record.id, bad)
        assert numbers(started(store, tmp_path, Deal)) == (0, 0)
