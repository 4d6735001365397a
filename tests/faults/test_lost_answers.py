"""Dialogues after a write in doubt continue, and each message is stored once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from backends import Backend, Opener
from faults.losing import Interrupted, Proxy, interrupted

from collections_store import DatabaseUnavailable, DialogueConflict, DialoguesNotSaved, Store
from collections_store.dialogues import Dialogues, Message, PlainCodec, Rules

RULES = Rules(terminal_performatives={"bye": "over"})
Losing = Callable[[], AbstractContextManager[None]]
LOST = (DatabaseUnavailable, DialoguesNotSaved, Interrupted)


@pytest.fixture(params=["sqlite-sync", "postgresql-sync", "postgresql-async"])
def case(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[tuple[Opener, Losing]]:
    """Opens stores, and loses the confirmation of the next write."""
    database, how = request.param.split("-")
    if database == "postgresql":
        backend = request.getfixturevalue("postgres_backend")
        proxy = Proxy(backend.url)
        opener = Opener(Backend(backend.name, proxy.url, backend.options), how)
        yield opener, proxy.dropping
        opener.close()
        proxy.close()
        return
    opener = Opener(Backend("sqlite-file", f"sqlite:///{tmp_path / 'a.db'}"), how)
    yield opener, interrupted
    opener.close()


@contextmanager
def lost(losing: Losing) -> Iterator[None]:
    with pytest.raises(LOST), losing():
        yield


def answer(dialogue: Any, performative: str = "tell", number: int = -1) -> Message:
    """Return the counterparty's next message."""
    own = dialogue.messages[0]
    reference = (own.dialogue_reference[0], "b1")
    return Message(performative, number, number, 1, reference, own.to, own.sender)


def performatives(dialogues: Any) -> list[Any]:
    return [[each.performative for each in one.messages] for one in dialogues.find()]


def check(opener: Opener, *expected: list[str]) -> None:
    """Check what another process finds, and that nothing else is stored."""
    with Store(opener.backend.url, **opener.backend.options) as store:
        dialogues = Dialogues(store, "ada", rules=RULES)
        assert performatives(dialogues) == list(expected)
        assert store["dialogues__ada__dialogues__messages"].count() == sum(map(len, expected))
        assert dialogues.quarantined() == []


def test_a_reply_is_repeated(case: tuple[Opener, Losing]) -> None:
    opener, losing = case
    with opener() as store:
        ada = opener.dialogues(store, rules=RULES)
        dialogue = ada.create("bob", "ask")[1]
        for word in ("tell", "other", "bye"):
            with lost(losing):
                ada.reply(dialogue, "tell", 1)
            assert ada.reply(dialogue, word, 2).message_id == len(dialogue.messages)
        assert dialogue.is_terminal
    check(opener, ["ask", "tell", "other", "bye"])


def test_a_repeated_message_of_the_counterparty_is_accepted(
    case: tuple[Opener, Losing],
) -> None:
    opener, losing = case
    with opener() as store:
        ada = opener.dialogues(store, rules=RULES)
        dialogue = ada.create("bob", "ask")[1]
        first = Message("hello", 0, 1, 0, ("c1", ""), "carol", "ada")
        for message in (answer(dialogue), answer(dialogue, "bye", -2), first):
            with lost(losing):
                ada.update(message)
            assert ada.update(message).last_message == message
    check(opener, ["hello"], ["ask", "tell", "bye"])


def test_dialogues_created_or_ended_in_doubt(case: tuple[Opener, Losing]) -> None:
    opener, losing = case
    with opener() as store:
        ada = opener.dialogues(store, rules=RULES)
        dialogue = ada.create("bob", "ask")[1]
        with lost(losing):
            ada.create("bob", "never told")
        with lost(losing):
            ada.finish(dialogue)
        ada.reply(dialogue, "it goes on")
    check(opener, ["ask", "it goes on"])


def test_ends_in_doubt_of_dialogues_that_are_not_kept(case: tuple[Opener, Losing]) -> None:
    opener, losing = case
    with opener() as store:
        ada = opener.dialogues(store, rules=RULES, keep_terminal_state_dialogues=False)
        dialogue = ada.create("bob", "ask")[1]
        with lost(losing):
            ada.reply(dialogue, "bye")
        ada.reply(dialogue, "it goes on")
        dialogue.metadata["seen"] = True
        ada.save(dialogue)
    check(opener, ["ask", "it goes on"])


def test_reload_returns_the_stored_dialogue(case: tuple[Opener, Losing]) -> None:
    opener, losing = case
    with opener() as store:
        ada = opener.dialogues(store, rules=RULES)
        dialogue = ada.create("bob", "ask")[1]
        with lost(losing):
            ada.reply(dialogue, "tell")
        dialogue = ada.reload(dialogue.dialogue_label)
        ada.reply(dialogue, "more")
    check(opener, ["ask", "tell", "more"])


def test_writes_of_another_process_are_kept(case: tuple[Opener, Losing]) -> None:
    opener, losing = case
    with opener() as store, Store(opener.backend.url, **opener.backend.options) as elsewhere:
        ada = opener.dialogues(store, rules=RULES)
        label = ada.create("bob", "ask")[1].dialogue_label
        other = Dialogues(elsewhere, "ada", rules=RULES)
        theirs = other.get_dialogue_from_label(label)
        assert theirs is not None
        dialogue = ada.get_dialogue_from_label(label)
        with lost(losing):
            ada.reply(dialogue, "tell")
        theirs = other.reload(label)
        assert theirs is not None
        other.reply(theirs, "theirs")
        for _ in range(2):
            with pytest.raises(DialogueConflict):
                ada.reply(dialogue, "tell")
    check(opener, ["ask", "tell", "theirs"])


def test_dialogue_store(case: tuple[Opener, Losing]) -> None:
    opener, losing = case
    with opener() as store:
        calls = opener.dialogue_store(store, codec=PlainCodec(RULES, "ada"))
        ada = Dialogues(Store("sqlite://"), "ada", rules=RULES)
        dialogue = ada.create("bob", "ask")[1]
        calls.save(ada.create("bob", "first")[1])  # creating collections is retried automatically
        with lost(losing):
            calls.save(dialogue)
        assert not calls.is_known(dialogue.dialogue_label)
        calls.save(dialogue)
        ada.reply(dialogue, "tell")
        with lost(losing):
            calls.save(dialogue)
        assert calls.save(dialogue) == 1
        ada.reply(dialogue, "bye")
        with lost(losing):
            calls.save(dialogue)
        assert calls.save(dialogue) == 1
        ada._store.close()
    check(opener, ["first"], ["ask", "tell", "bye"])
