"""Dialogues under concurrency, two agents with the same dialogues, full disks, and closing of the store."""

import asyncio
import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend, Opener
from conftest import NewThreads
from contract.test_dialogues import ADA, RULES, begun, ended, offer_to, on_disk, performatives

from collections_store import (
    AsyncStore,
    DatabaseError,
    DialogueConflict,
    DialogueNotFound,
    DialoguesNotSaved,
    InvalidBody,
    RepeatedMessage,
    Store,
    StoreClosed,
    was_committed,
)
from collections_store.dialogues import AsyncDialogues, Dialogues, Message, Rules

MANY = 64


@pytest.fixture
def again(open_store: Opener, store: Any) -> Any:
    return lambda **options: open_store.dialogues(store, **options)


@pytest.fixture
def strife(open_store: Opener) -> Iterator[Any]:
    """A store whose dialogues cannot all be saved at teardown."""
    store = open_store()
    yield lambda **options: open_store.dialogues(store, **options)
    with pytest.raises((DialoguesNotSaved, ExceptionGroup)):
        store.close()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def results(outcomes: list[Any], *allowed: type[Exception]) -> list[Any]:
    for each in outcomes:
        assert not isinstance(each, BaseException) or isinstance(each, allowed), repr(each)
    return [each for each in outcomes if not isinstance(each, BaseException)]


def as_restored(again: Any, **options: Any) -> dict[str, tuple[Any, ...]]:
    found = again(**options).find()
    return {each.dialogue_label.key: (each.messages, each.state, each.role) for each in found}


def in_memory(dialogues: list[Any]) -> dict[str, tuple[Any, ...]]:
    return {e.dialogue_label.key: (e.messages, e.state, e.role) for e in dialogues}


# -- concurrent calls -----------------------------------------------------------------------------


def test_concurrent_writes_to_separate_dialogues(
    open_store: Opener, again: Any, hasty: None
) -> None:
    ada = again(rules=RULES, cached=5)
    made = results(
        open_store.call_concurrently((ada, "create", f"b{n % 7}", "ask", n) for n in range(MANY))
    )
    dialogues = [dialogue for _, dialogue in made]
    taken = results(open_store.call_concurrently((ada, "update", offer_to(m)) for m, _ in made))
    assert {id(each) for each in taken} == {id(each) for each in dialogues}
    some: list[tuple[Any, ...]] = [(ada, "reply", each, "accept") for each in dialogues[::2]]
    some += [(ada, "get_dialogues_with_counterparty", f"b{n % 7}") for n in range(MANY // 4)]
    some += [(ada, "find", {"messages.body": n}) for n in range(MANY // 4)]
    results(open_store.call_concurrently(some))
    assert len(ada.dialogues_in_active_state) == MANY // 2
    for number in range(7):
        assert len(ada.get_dialogues_with_counterparty(f"b{number}")) == len(range(number, MANY, 7))
    assert as_restored(again, rules=RULES) == in_memory(dialogues)


def test_concurrent_writes_to_the_same_dialogue(
    open_store: Opener, again: Any, hasty: None
) -> None:
    for save in ("message", "teardown", 0.001):
        ada = again(save=save, component=f"c {save}")
        _, dialogue = ada.create("bob", "ask")
        sent = results(
            open_store.call_concurrently((ada, "reply", dialogue, "x", n) for n in range(MANY))
        )
        assert sorted(each.message_id for each in sent) == list(range(2, MANY + 2))
        assert [each.message_id for each in dialogue.messages] == list(range(1, MANY + 2))
        ada.teardown()
        [found] = again(component=f"c {save}").find()
        assert found.messages == dialogue.messages


def test_the_same_message_many_times_is_accepted_once(open_store: Opener, again: Any) -> None:
    ada = again()
    first = Message("ask", 1, 1, 0, ("b7", ""), "bob", "ada")
    outcomes = open_store.call_concurrently([(ada, "update", first)] * MANY)
    [dialogue] = results(outcomes, RepeatedMessage)
    assert {getattr(each, "dialogue", dialogue) for each in outcomes} == {dialogue}
    assert ada.find() == [dialogue]
    assert dialogue.messages == (first,)


def test_dialogues_end_once_under_concurrent_saves_removals_and_reads(
    open_store: Opener, again: Any, hasty: None
) -> None:
    ada = again(rules=RULES, cached=3)
    dialogues = [begun(ada, f"b{n}") for n in range(8)]
    calls: list[tuple[Any, ...]] = []
    for each in dialogues:
        each.metadata["n"] = 1
        label = each.dialogue_label
        calls += [(ada, "finish", each), (ada, "finish", each, "again"), (ada, "save", each)]
        calls += [(ada, "get_dialogue_from_label", label), (ada, "find"), (ada, "purge")]
    calls += [(ada, "remove", dialogues[0].dialogue_label)]
    random.shuffle(calls)
    results(open_store.call_concurrently(calls), DialogueNotFound)
    assert ada.dialogues_in_active_state == ()
    found = again(rules=RULES).find()
    assert sorted(each.dialogue_label.key for each in found) == sorted(
        each.dialogue_label.key for each in dialogues[1:]
    )
    assert all(each.metadata == {"n": 1} for each in found)


# -- two agents with the same dialogues -----------------------------------------------------------


def test_two_agents_of_one_namespace_conflict_and_lose_nothing(strife: Any) -> None:
    one, two = strife(), strife()
    message, dialogue = one.create("bob", "ask")
    two.setup()
    one.reply(dialogue, "x", "one")
    [theirs] = two.dialogues_in_active_state
    with pytest.raises(DialogueConflict) as caught:
        two.reply(theirs, "x", "two")
    assert caught.value.label == dialogue.dialogue_label
    assert performatives(theirs) == ["ask"]
    with pytest.raises(DialogueConflict):
        two.update(offer_to(message))
    assert not theirs.dialogue_label.is_complete
    theirs.metadata["a"] = 1
    two.save(theirs)  # the header is unchanged, so both may save it
    dialogue.metadata["a"] = 2
    with pytest.raises(DialoguesNotSaved) as not_saved:
        one.save(dialogue)
    assert isinstance(not_saved.value.errors[dialogue.dialogue_label], DialogueConflict)
    found = two.reload(theirs.dialogue_label)
    assert [found] == two.find()
    assert (performatives(found), found.metadata) == (["ask", "x"], {"a": 1})
    two.reply(found, "x", "two")


def test_a_reloaded_dialogue_equals_the_stored_one(again: Any) -> None:
    one, two = again(), again()
    dialogue = begun(one)
    two.setup()
    [theirs] = two.dialogues_in_active_state
    theirs.metadata["not saved"] = 1
    one.finish(dialogue)
    found = two.reload(theirs.dialogue_label.get_incomplete_version())
    assert (found.is_terminal, found.metadata, two.dialogues_in_active_state) == (True, {}, ())
    assert two.get_dialogue_from_label(dialogue.dialogue_label) is found
    with pytest.raises(DialogueNotFound):
        two.reply(theirs, "x")
    one.remove(dialogue.dialogue_label)
    assert two.reload(dialogue.dialogue_label) is None
    assert two.get_dialogue_from_label(dialogue.dialogue_label) is None


def test_a_dialogue_is_never_in_both_collections(strife: Any) -> None:
    one, two = strife(), strife()
    dialogue = begun(one)
    two.setup()
    [theirs] = two.dialogues_in_active_state
    one.finish(dialogue)
    theirs.metadata["a"] = 1
    for failing in (two.finish, two.save):
        with pytest.raises((DialogueConflict, DialoguesNotSaved)):
            failing(theirs)
    assert not theirs.is_terminal
    third = strife()
    assert (len(third.find(terminal=False)), len(third.find(terminal=True))) == (0, 1)


def test_a_conflict_does_not_stop_the_others_from_being_saved(strife: Any) -> None:
    one, two = strife(), strife(save="teardown")
    dialogue = begun(one)
    two.setup()
    [theirs] = two.dialogues_in_active_state
    one.reply(dialogue, "x", "one")
    two.reply(theirs, "x", "two")
    fine = begun(two, "eve")
    with pytest.raises(DialoguesNotSaved) as caught:
        two.teardown()
    assert list(caught.value.errors) == [dialogue.dialogue_label]
    third = strife()
    assert third.get_dialogues_with_counterparty("eve")[0].messages == fine.messages
    assert third.get_dialogues_with_counterparty("bob")[0].messages == dialogue.messages


# -- errors ----------------------------------------------------------------------------------------


def test_a_rejected_body_leaves_memory_and_disk_unchanged(open_store: Opener) -> None:
    with open_store(max_body=2000) as store:
        ada = open_store.dialogues(store, rules=RULES)
        _, dialogue = ada.create("bob", "ask")
        before = [on_disk(store, part) for part in ("active", "messages", "terminal")]
        for method, *arguments in (
            ("create", "bob", "ask", "x" * 3000),
            ("reply", dialogue, "decline", "x" * 3000),
            ("update", offer_to(dialogue.messages[0], body="x" * 3000)),
            ("update", Message("ask", "x" * 3000, 1, 0, ("b7", ""), "bob", "ada")),
        ):
            with pytest.raises(InvalidBody):
                getattr(ada, method)(*arguments)
        assert ada.dialogues_in_active_state == (dialogue,)
        assert (performatives(dialogue), dialogue.state) == (["ask"], "active")
        assert not dialogue.dialogue_label.is_complete
        assert [on_disk(store, part) for part in ("active", "messages", "terminal")] == before
        assert ada.reply(dialogue, "decline", 1, target=1).message_id == 2


def test_a_full_disk_leaves_memory_unchanged(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'store.db'}", poolclass=sa.StaticPool)
    with Store(engine=engine) as store:
        ada = Dialogues(store, "ada", rules=RULES)
        _, dialogue = ada.create("bob", "ask")
        limit(engine, 0)
        with pytest.raises(DatabaseError):
            for _ in range(1000):
                count = dialogue.message_count
                ada.reply(dialogue, "offer", "x" * 2000, target=1)
        assert dialogue.message_count == count
        with pytest.raises(DatabaseError):
            ada.reply(dialogue, "decline", "x" * 20_000, target=1)
        assert not dialogue.is_terminal
        assert ada.dialogues_in_active_state == (dialogue,)
        with pytest.raises(DatabaseError):
            ada.create("eve", "ask", "x" * 20_000)
        assert ada.dialogues_in_active_state == (dialogue,)
        dialogue.metadata["much"] = "x" * 20_000
        with pytest.raises(DatabaseError):
            ada.teardown()
        limit(engine, 10_000)
        ada.reply(dialogue, "decline", target=1)
        [found] = Dialogues(store, "ada", rules=RULES).find()
        assert found.messages == dialogue.messages
        assert found.message_count == count + 1
        assert len(found.metadata["much"]) == 20_000
    engine.dispose()


def limit(engine: sa.Engine, more: int) -> None:
    """Limit the growth of an SQLite database to a number of pages."""
    with engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + more}")


def test_metadata_that_is_not_json_does_not_stop_the_others_from_being_saved(
    again: Any,
) -> None:
    for save in ("message", "teardown", 3600):
        ada = again(save=save, component=f"c {save}")
        bad, good, gone = begun(ada), begun(ada, "eve"), ended(ada, "joe")
        for each in (bad, good, gone):
            each.metadata["a"] = 1
        bad.metadata["b"] = {1, 2}
        with pytest.raises(DialoguesNotSaved) as caught:
            ada.teardown()
        assert list(caught.value.errors) == [bad.dialogue_label]
        assert isinstance(caught.value.errors[bad.dialogue_label], InvalidBody)
        found = again(component=f"c {save}").find("metadata.a", 1)
        assert [each.messages for each in found] == [good.messages, gone.messages]
        del bad.metadata["b"]
        ada.teardown()
        assert len(again(component=f"c {save}").find("metadata.a", 1)) == 3


# -- delayed saving and teardown -------------------------------------------------------------------


def test_delayed_saving_saves_within_its_delay(open_store: Opener, store: Any, again: Any) -> None:
    ada = again(save=0.05)
    dialogue = begun(ada)
    dialogue.metadata["a"] = 1
    open_store.wait_for(lambda: len(on_disk(store, "messages")) == 1)
    ada.reply(dialogue, "x")
    open_store.wait_for(lambda: len(on_disk(store, "messages")) == 2)
    dialogue.metadata["bad"] = object()
    ada.reply(dialogue, "x")
    good = begun(ada, "eve")
    open_store.wait_for(lambda: len(on_disk(store, "active")) == 2)
    del dialogue.metadata["bad"]
    open_store.wait_for(lambda: len(on_disk(store, "messages")) == 4)
    assert as_restored(again) == in_memory([dialogue, good])


def test_saving_thread_stops_at_teardown(
    open_store: Opener, store: Any, new_threads: NewThreads
) -> None:
    ada = open_store.dialogues(store, save=0.01)
    begun(ada)
    savers = [each for each in new_threads() if each.name.endswith("-dialogues")]
    assert len(savers) == 1
    target = getattr(ada, "_target", ada)
    assert target._saver is not None
    ada.teardown()
    assert target._saver is None
    ada.setup()
    begun(ada)
    store.close()
    assert not [each for each in new_threads() if each.name.endswith("-dialogues")]


def test_save_at_teardown_saves_an_end_at_once(again: Any, store: Any) -> None:
    ada = again(save="teardown", rules=RULES)
    going_on, other = begun(ada), begun(ada, "eve")
    assert not on_disk(store, "messages")
    ada.reply(other, "decline", target=1)
    assert len(on_disk(store, "messages")) == 2
    assert len(on_disk(store, "terminal")) == 1
    ada.save(going_on)
    assert len(on_disk(store, "messages")) == 3
    ada.reply(going_on, "decline", target=1)
    third = begun(ada, "joe")
    ada.teardown()
    assert as_restored(again) == in_memory([going_on, other, third])


# -- cancellation ------------------------------------------------------------------------------------


def test_a_cancelled_method_leaves_memory_and_disk_equal(backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            ada = AsyncDialogues(store, "ada", rules=Rules(terminal_performatives={"end"}))
            _, dialogue = await ada.create("bob", "ask")
            outcomes = set()
            for number in range(150):
                if dialogue.is_terminal:
                    _, dialogue = await ada.create("bob", "ask")
                before = dialogue.message_count
                words = "end" if number % 10 == 9 else "x"
                if number % 2:
                    call: Any = ada.reply(dialogue, words, number)
                else:
                    message = dialogue.messages[0]
                    next_id = dialogue.next_message_id(outgoing=False)
                    call = ada.update(
                        offer_to(message, performative=words, message_id=next_id, target=1)
                    )
                task = asyncio.create_task(call)
                others = [asyncio.create_task(ada.create("eve", "x", n)) for n in range(2)]
                await asyncio.sleep(random.choice([0, 0, 0.0001, 0.0005, 0.002]))
                task.cancel()
                try:
                    await task
                    said_it: bool | None = True
                except asyncio.CancelledError as error:
                    said_it = was_committed(error)
                outcomes.add(said_it)
                assert dialogue.message_count - before == bool(said_it)
                await asyncio.gather(*others)
            assert outcomes <= {True, False}
            active = list(ada.dialogues_in_active_state)
            second = AsyncDialogues(store, "ada")
            found = await second.find(terminal=False)
            assert in_memory(found) == in_memory(active)

    asyncio.run(main())


def test_a_cancelled_method_that_still_waits_wrote_nothing(backend: Backend) -> None:
    async def cancelled(task: asyncio.Task[Any]) -> bool | None:
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return was_committed(caught.value)

    async def main() -> None:
        async with AsyncStore(backend.url, **backend.options) as store:
            ada = AsyncDialogues(store, "ada")
            begin = asyncio.create_task(ada.create("bob", "ask"))
            assert await cancelled(begin) is False  # the setup comes first
            assert ada.dialogues_in_active_state == ()
            _, dialogue = await ada.create("bob", "ask")
            first = asyncio.create_task(ada.reply(dialogue, "x", 1))
            assert await cancelled(asyncio.create_task(ada.reply(dialogue, "x", 2))) is False
            await first
            assert [each.body for each in dialogue.messages] == [None, 1]

    asyncio.run(main())


# -- components of a store -------------------------------------------------------------------------


class Part:
    def __init__(self, name: str, log: list[str], *failing: str) -> None:
        self._name, self._log, self._failing = name, log, failing

    def setup(self) -> None:
        self._do("setup")

    def teardown(self) -> None:
        self._do("teardown")

    def _do(self, what: str) -> None:
        self._log.append(f"{what} {self._name}")
        if what in self._failing:
            raise LookupError(f"{what} {self._name}")


def test_components_are_set_up_in_order_and_torn_down_in_reverse(open_store: Opener) -> None:
    log: list[str] = []
    store = open_store()
    for name in "abc":
        open_store.attach(store, Part(name, log))
    with store:
        assert log == ["setup a", "setup b", "setup c"]
        open_store.attach(store, Part("late", log))
        log.clear()
    assert log == ["teardown late", "teardown c", "teardown b", "teardown a"]
    store.close()
    assert len(log) == 4


def test_an_error_of_a_component_is_raised_after_the_others_are_torn_down(
    open_store: Opener,
) -> None:
    for failing, expected in (("b", LookupError), ("ab", ExceptionGroup)):
        log: list[str] = []
        store = open_store()
        store["things"].put("a", 1)
        for name in "abc":
            failures = ["teardown"] if name in failing else []
            open_store.attach(store, Part(name, log, *failures))
        with pytest.raises(expected) as caught:
            store.close()
        assert log == ["teardown c", "teardown b", "teardown a"]
        if isinstance(caught.value, ExceptionGroup):
            assert [str(e) for e in caught.value.exceptions] == ["teardown b", "teardown a"]
        with pytest.raises(StoreClosed):
            store["things"].get("a")


def test_a_failed_setup_closes_the_store_and_its_components(
    open_store: Opener,
) -> None:
    log: list[str] = []
    store = open_store()
    for name in "abc":
        open_store.attach(store, Part(name, log, *(["setup"] if name == "b" else [])))
    with pytest.raises(LookupError, match="setup b"), store:
        raise AssertionError("the context was entered")
    assert log == ["setup a", "setup b", "teardown c", "teardown b", "teardown a"]
    with pytest.raises(StoreClosed):
        store["things"].get("a")


def test_a_cancelled_close_tears_down_every_component(backend: Backend) -> None:
    log: list[str] = []

    class Slow(Part):
        async def setup(self) -> None:  # type: ignore[override]
            pass

        async def teardown(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0.02)
            self._do("teardown")

    async def main() -> None:
        store = AsyncStore(backend.url, **backend.options)
        await store["things"].put("a", 1)
        for name in "abc":
            store.attach(Slow(name, log))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await store.aclose()

    asyncio.run(main())
    assert log == ["teardown c", "teardown b", "teardown a"]


def test_close_reports_dialogues_that_cannot_be_saved(open_store: Opener) -> None:
    store = open_store()
    dialogues = [open_store.dialogues(store, name) for name in ("ada", "bob", "eve")]
    for each in dialogues:
        begun(each, "joe").metadata["a"] = 1
    for each in dialogues[:2]:
        each.dialogues_in_active_state[0].metadata["bad"] = {1}
    with pytest.raises(ExceptionGroup) as caught:
        store.close()
    assert [type(each) for each in caught.value.exceptions] == [DialoguesNotSaved] * 2
    if not open_store.backend.is_private:
        assert on_disk(open_store(), "active", type(ADA)("eve", "dialogues"))[0].version == 2


def test_closing_during_a_teardown_waits_for_its_end() -> None:
    entered, go_on = threading.Event(), threading.Event()
    store = Store("sqlite://")

    class Slow:
        def setup(self) -> None: ...

        def teardown(self) -> None:
            entered.set()
            assert go_on.wait(60)
            store["things"].put("a", 1)
            store.close()  # by a component in its own teardown: not a second call

    store["things"].put("a", 0)
    store.attach(Slow())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(store.close)
        assert entered.wait(60)
        second = pool.submit(store.close)
        with pytest.raises(TimeoutError):
            second.result(0.1)
        go_on.set()
        first.result()
        second.result()
    with pytest.raises(StoreClosed):
        store["things"].get("a")


def test_aclose_during_a_teardown_waits_for_its_end() -> None:
    async def main() -> None:
        entered, go_on = asyncio.Event(), asyncio.Event()
        store = AsyncStore("sqlite://")

        class Slow:
            async def setup(self) -> None: ...

            async def teardown(self) -> None:
                entered.set()
                await go_on.wait()
                await store["things"].put("a", 1)
                await store.aclose()

        store.attach(Slow())
        first = asyncio.create_task(store.aclose())
        await entered.wait()
        second = asyncio.create_task(store.aclose())
        await asyncio.sleep(0.1)
        assert not second.done()
        go_on.set()
        await asyncio.gather(first, second)
        await store.aclose()
        with pytest.raises(StoreClosed):
            await store["things"].get("a")

    asyncio.run(main())
