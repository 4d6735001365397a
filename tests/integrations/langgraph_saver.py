"""The checkpointers with LangGraph itself: test_langgraph.py runs this file in an environment that has LangGraph."""

import asyncio
import copy
import inspect
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from integrations.langgraph_graphs import ENVIRONMENT, config, graph
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt
from pages import DOCS, run_page

from collections_store import AsyncStore, InvalidFilter, InvalidOption, Store
from collections_store.integrations.langgraph import AsyncLangGraphSaver, LangGraphSaver
from collections_store.integrations.langgraph.caches import BoundedCache, Caches
from collections_store.integrations.langgraph.saver import Saver

CASES = {"copy_thread": 8, "delete_for_runs": 7, "delete_thread": 5, "get_tuple": 10, "list": 16, "prune": 8, "put": 17, "put_writes": 10}  # fmt: skip
"""The cases of the conformance suite, by capability."""


@pytest.fixture
def saver(backend: Backend) -> Iterator[Any]:
    with LangGraphSaver(backend.url, **backend.options) as saver:
        yield saver


@pytest.mark.parametrize("kind", [LangGraphSaver, AsyncLangGraphSaver])
def test_conformance(kind: Any, backend: Backend) -> None:
    @checkpointer_test(name=kind.__name__)  # type: ignore[untyped-decorator]
    async def checkpointer() -> Any:
        name = f"c{uuid.uuid4().hex}"
        if kind is LangGraphSaver:
            with kind(backend.url, collection=name, **backend.options) as saver:
                yield saver
        else:
            async with kind(backend.url, collection=name, **backend.options) as saver:
                yield saver

    report = asyncio.run(validate(checkpointer))
    assert [each for result in report.results.values() for each in result.failures] == []
    assert set(report.results) == {each.value for each in Capability}
    passed = {name: result.tests_passed for name, result in report.results.items()}
    assert all(passed[name] >= count for name, count in CASES.items()), passed


# -- what is stored ----------------------------------------------------------------------------


def put(
    saver: Any, parent: dict[str, Any], changed: dict[str, Any], kept: Any = None, **metadata: Any
) -> dict[str, Any]:
    """Put a checkpoint with changed values of channels, and those `kept` from another checkpoint."""
    checkpoint = empty_checkpoint()
    versions = dict(kept["channel_versions"] if kept else {})
    new = {name: saver.get_next_version(versions.get(name), None) for name in changed}
    checkpoint["channel_values"] = {**(kept["channel_values"] if kept else {}), **changed}
    checkpoint["channel_versions"] = versions | new
    found: dict[str, Any] = saver.put(parent, checkpoint, metadata, new)
    return found


def test_a_value_is_stored_once_for_all_checkpoints_that_have_it(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store:
        saver = LangGraphSaver(store)
        at = put(saver, config(), {"large": "x" * 10_000, "n": 0})
        for n in range(1, 20):
            at = put(saver, at, {"n": n}, saver.get(at))
        assert store["langgraph_checkpoints"].count({"$id": {"$gte": "b/t//", "$lt": "b/t/0"}}) == 1
        assert store["langgraph_checkpoints"].count() == 21
        listed = list(saver.list(config()))
        assert [each.checkpoint["channel_values"]["n"] for each in listed] == list(
            range(19, -1, -1)
        )
        assert {each.checkpoint["channel_values"]["large"] for each in listed} == {"x" * 10_000}


def test_a_value_that_changes_is_in_its_checkpoint(backend: Backend) -> None:
    def count(prefix: str) -> int:
        return store["langgraph_checkpoints"].count(
            {"$id": {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}}
        )

    with Store(backend.url, **backend.options) as store:
        saver, at, written = LangGraphSaver(store), config(), []
        for step in range(5):
            written.append({"messages": [str(step)] * 5_000, "n": step})
            at = put(saver, at, written[-1])
        assert (count("c"), count("b")) == (5, 0)
        for n in range(5, 8):
            written.append({**written[-1], "n": n})
            at = put(saver, at, {"n": n}, saver.get(at))
        assert (count("c"), count("b")) == (8, 1)
        written.append({"messages": ["x" * 70_000], "n": 8})
        put(saver, at, written[-1])
        assert (count("c"), count("b")) == (9, 2)
        listed = LangGraphSaver(store).list(config())
        assert [each.checkpoint["channel_values"] for each in listed] == written[::-1]
        saver.prune(["t"])
        assert (count("c"), count("b")) == (1, 1)
        assert LangGraphSaver(store).get(config())["channel_values"] == written[-1]


def test_tuples_share_no_values(saver: Any) -> None:
    at = put(saver, config(), {"list": [1]})
    put(saver, at, {"n": 1}, saver.get(at))
    first, second = saver.list(config())
    first.checkpoint["channel_values"]["list"].append(2)
    assert second.checkpoint["channel_values"]["list"] == [1]


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "a%b", "ä\n'\"", "$id", ".", "*"])
def test_names_are_literal(saver: Any, name: str) -> None:
    here, beside = config(name, namespace=name), config("a", namespace="b")
    at = put(saver, here, {name: 1})
    saver.put_writes(at, [(name, 2)], name)
    put(saver, beside, {"b": 3})
    found = saver.get_tuple(here)
    assert found.checkpoint["channel_values"] == {name: 1}
    assert found.pending_writes == [(name, name, 2)]
    saver.delete_thread(name)
    assert saver.get_tuple(here) is None
    assert [each.config["configurable"]["thread_id"] for each in saver.list(None)] == ["a"]


def test_a_thread_is_not_deleted_with_one_whose_name_begins_so(saver: Any) -> None:
    for thread in ("1", "10", "1/0"):
        put(saver, config(thread), {"n": thread})
    saver.delete_thread("1")
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {"10", "1/0"}


def test_a_value_that_cannot_be_stored_changes_nothing(backend: Backend) -> None:
    with LangGraphSaver(backend.url, max_body=5_000, **backend.options) as saver:
        with pytest.raises(Exception, match="5,000"):
            put(saver, config(), {"small": 1, "large": "x" * 70_000})
        assert saver.get_tuple(config()) is None
        assert saver._runner.store["langgraph_checkpoints"].count() == 0


def test_writes_stay_except_special_ones(saver: Any) -> None:
    at = put(saver, config(), {})
    saver.put_writes(at, [("a", 1), ("__interrupt__", "first")], "task")
    saver.put_writes(at, [("a", 2), ("__interrupt__", "second")], "task")
    assert saver.get_tuple(at).pending_writes == [
        ("task", "__interrupt__", "second"),
        ("task", "a", 1),
    ]


def test_a_task_that_runs_again_adds_what_it_did_not_write(saver: Any) -> None:
    at = put(saver, config(), {})
    saver.put_writes(at, [("a", 1)], "task", "path")
    saver.put_writes(at, [("a", 2), ("b", 3), ("__error__", "no")], "task", "path")
    saver.put_writes(at, [("a", 4)], "task", "path")
    assert saver.get_tuple(at).pending_writes == [
        ("task", "__error__", "no"),
        ("task", "a", 1),
        ("task", "b", 3),
    ]


@pytest.mark.parametrize("checkpoint", ["", "a"])
def test_writes_belong_to_their_checkpoint_whatever_the_ids(saver: Any, checkpoint: str) -> None:
    """Each id begins with the one before; the writes come after their checkpoint and before the next one."""
    ids = ["a", "a\tb", "a b", "a b/c", "a!", "a-1", "a/0", "ab"]
    for id in ids:
        versions = empty_checkpoint() | {"id": id}
        at = saver.put(config(checkpoint=checkpoint), versions, {}, {})
        saver.put_writes(at, [("n", id)], "a b/c")
    for id in ids:
        found = saver.get_tuple(config(checkpoint=id))
        assert found.checkpoint["id"] == id
        assert found.pending_writes == [("a b/c", "n", id)]
    assert saver.get_tuple(config()).checkpoint["id"] == "ab"
    listed = list(saver.list(config()))
    assert {each.checkpoint["id"]: each.pending_writes[0][2] for each in listed} == {
        id: id for id in ids
    }


def test_writes_without_a_checkpoint_are_no_checkpoint(saver: Any) -> None:
    saver.put_writes(config(checkpoint="9"), [("n", 1)], "early")
    assert saver.get_tuple(config()) is saver.get_tuple(config(checkpoint="9")) is None
    assert list(saver.list(config())) == []
    first = put(saver, config(), {"n": 1})
    saver.put_writes(config(checkpoint="z"), [("n", 1)], "early")
    assert saver.get_tuple(config()).config == first
    assert saver.delete_idle_threads(3600) == 0


def test_a_large_value_is_written_again_where_its_parent_is_gone(backend: Backend) -> None:
    large = ["x" * 70_000]
    with Store(backend.url, **backend.options) as store:
        saver = LangGraphSaver(store)
        at = put(saver, config(), {"large": large, "n": 0})
        before = saver.get(at)
        saver.delete_thread("t")
        put(saver, at, {"n": 1}, before)
        assert LangGraphSaver(store).get(config())["channel_values"] == {"large": large, "n": 1}


def test_the_cache_is_bounded() -> None:
    cache = BoundedCache[tuple[str, bytes]](100, lambda value: len(value[1]))
    for number in range(10):
        cache.add({str(number): ("msgpack", b"x" * 30), "first": ("msgpack", b"x" * 30)})
        assert "first" in cache.get(["first"])
    assert list(cache.get(map(str, range(10)))) == ["8", "9"]
    cache.add({"large": ("msgpack", b"x" * 101)})
    assert cache.get(["large", "first", "9"]) == {}


def test_metadata_is_compared_as_a_whole(saver: Any) -> None:
    put(saver, config(), {}, tags=["a", "b"], at={"x": 1, "y": 2}, dotted=1, **{"p.q": 1, "$id": 5})

    def count(**filter: Any) -> int:
        return len(list(saver.list(None, filter=filter)))

    assert count(tags=["a", "b"]) == count(at={"y": 2, "x": 1}) == count(dotted=1) == 1
    assert count(**{"p.q": 1}) == count(**{"$id": 5}) == count(missing=None) == 1
    assert count(tags="a") == count(at={"x": 1}) == count(at={"$ne": 5}) == count(dotted="1") == 0
    with pytest.raises(InvalidFilter):
        list(saver.list(None, filter={1: 1}))


def test_a_filter_and_a_limit_reach_across_batches(saver: Any) -> None:
    at = config()
    for step in range(250):
        some = {"tags": ["x"]} if step % 50 == 0 else {"tags": [], "even": step % 2 == 0}
        at = put(saver, at, {}, step=step, **some)
        if step % 40 == 0:
            saver.put_writes(at, [("n", step)], "task")
    counts = (
        {"step": 200, "tags": ["x"]},
        {"tags": ["x"]},
        {"even": True},
        {"even": 1},
        {"even": None},
    )
    for filter, expected in zip(counts, (1, 5, 120, 0, 5), strict=True):
        for limit in (None, 3):
            found = list(saver.list(config(), filter=filter, limit=limit))
            assert found == list(saver.list(None, filter=filter, limit=limit))
            assert len(found) == min(expected, limit or expected)
    assert len(list(saver.list(config()))) == 250
    assert len(list(saver.list(config(), filter={"tags": ["x"]}, limit=4))) == 4
    assert len(list(saver.list(config(), limit=130))) == 130
    assert list(saver.list(config(), limit=0)) == []


def test_checkpoints_are_listed_with_their_writes_and_no_others(saver: Any) -> None:
    at, expected = config(), []
    for step in range(6):
        at = put(saver, at, {"n": step})
        saver.put_writes(
            config(checkpoint=f"{at['configurable']['checkpoint_id']}0"), [("n", 0)], "no"
        )
        tasks = [f"{task:02}" for task in range(7 * step)]
        for task in tasks:
            saver.put_writes(at, [("n", step), ("__interrupt__", step)], task)
        expected.append((at, sorted([*tasks, *tasks])))
    for limit in (None, 1, 2, 6, 7):
        listed = list(saver.list(config(), limit=limit))
        found = [
            (each.config, sorted([task for task, *_ in each.pending_writes])) for each in listed
        ]
        assert found == expected[::-1][:limit]
        assert listed[0] == saver.get_tuple(config())
    before = list(saver.list(config(), before=expected[3][0], limit=2))
    assert [each.config for each in before] == [expected[2][0], expected[1][0]]


@pytest.mark.parametrize("wrong", [{}, {"configurable": {}}, {"configurable": {"thread_id": None}}])
def test_a_config_without_a_thread_is_refused(saver: Any, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="must have a thread"):
        saver.get_tuple(wrong)
    with pytest.raises(InvalidOption, match="must have a thread"):
        put(saver, wrong, {})


def test_an_unknown_strategy_deletes_nothing(saver: Any) -> None:
    put(saver, config(), {})
    with pytest.raises(InvalidOption, match="keep_latest"):
        saver.prune(["t"], strategy="keep_all")
    assert saver.get_tuple(config()) is not None


def test_one_name_is_no_list_of_names(saver: Any) -> None:
    put(saver, config(), {}, run_id="r")
    with pytest.raises(InvalidOption, match="thread_ids"):
        saver.prune("t", strategy="delete")
    with pytest.raises(InvalidOption, match="run_ids"):
        saver.delete_for_runs("r")
    assert saver.get_tuple(config()) is not None


def test_options_are_for_a_url(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store:
        with pytest.raises(InvalidOption, match="max_body"):
            LangGraphSaver(store, max_body=1)
        LangGraphSaver(store).close()
        assert store.collections() == []  # the store is still open


# -- deletion ----------------------------------------------------------------------------------


def test_pruning_keeps_what_delta_channels_need(saver: Any) -> None:
    """A delta channel `d` has its value at the second of five checkpoints, and writes since."""
    at = put(saver, config(), {"plain": 0})
    line = [at]
    for step in range(1, 5):
        before = saver.get(at)
        before["channel_values"].pop("d", None)
        changed = {"plain": step} | ({"d": "seed"} if step == 1 else {})
        saver.put_writes(at, [("d", f"write {step}")], f"task{step}")
        counters = {"d": (step - 1, step - 1)} if step > 1 else {}
        at = put(saver, at, changed, before, counters_since_delta_snapshot=counters)
        line.append(at)
    history = saver.get_delta_channel_history(config=at, channels=["d", "plain"])
    assert history["d"] == {
        "seed": "seed",
        "writes": [(f"task{step}", "d", f"write {step}") for step in (2, 3, 4)],
    }
    assert history["plain"] == {"seed": 3, "writes": []}
    saver.prune(["t"])
    assert [each.config for each in saver.list(config())] == line[:0:-1]
    after = saver.get_delta_channel_history(config=at, channels=["d"])
    assert after["d"] == history["d"]
    saver.prune(["t"], strategy="delete")
    assert saver._runner.store["langgraph_checkpoints"].count() == 0


def test_the_history_is_that_of_the_base_class(saver: Any) -> None:
    at = put(saver, config(), {"a": 1})
    for step in range(3):
        saver.put_writes(at, [("a", step), ("b", step)], f"task{step}", task_path=f"{-step}")
        saver.put_writes(at, [("b", step)], f"other{step}", task_path=f"{9 - step}")
        at = put(saver, at, {"c": step})
    ours = saver.get_delta_channel_history(config=at, channels=["a", "b", "c", "none"])
    theirs = super(Saver, saver).get_delta_channel_history(
        config=at, channels=["a", "b", "c", "none"]
    )
    assert ours == theirs
    assert saver.get_delta_channel_history(config=config("other"), channels=["a"]) == {
        "a": {"writes": []}
    }


def test_the_runs_values_go_and_shared_ones_stay(saver: Any) -> None:
    shared, own = "shared" * 20_000, "own" * 40_000
    first = put(saver, config(), {"shared": shared, "own": own}, run_id="one")
    second = put(saver, first, {"own": own * 2}, saver.get(first), run_id="two")
    saver.put_writes(second, [("own", 3)], "task")
    saver.delete_for_runs(["two"])
    stored = saver._runner.store["langgraph_checkpoints"]
    assert saver.get(config())["channel_values"] == {"shared": shared, "own": own}
    assert stored.count() == 3
    saver.delete_for_runs(["one"])
    assert stored.count() == 0


def test_a_deleted_value_is_an_error(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store:
        put(LangGraphSaver(store), config(), {"lost": "x" * 70_000})
        store["langgraph_checkpoints"].delete_many({"$id": {"$gte": "b/", "$lt": "b0"}})
        with pytest.raises(LookupError, match="the value of channel 'lost' was deleted"):
            LangGraphSaver(store).get_tuple(config())


def test_idle_threads_are_deleted_whole(saver: Any) -> None:
    put(saver, config("old"), {"n": 1})
    assert saver.delete_idle_threads(3600) == 0
    assert saver.delete_idle_threads(-1) == 1
    assert saver._runner.store["langgraph_checkpoints"].count() == 0
    at = put(saver, config("active"), {"n": 1})
    saver.put_writes(at, [("n", 2)], "task")
    assert saver.delete_idle_threads(3600) == 0
    assert saver.get_tuple(config("active")).pending_writes == [("task", "n", 2)]


# -- graphs ------------------------------------------------------------------------------------


def ask(state: Any) -> Any:
    return {"done": [interrupt("name?")]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_graph_continues_after_an_interrupt_in_another_saver(
    shared_backend: Backend, durability: Any
) -> None:
    nodes = {"first": lambda _: {"done": ["first"]}, "ask": ask}
    given: Any
    for given in ({"done": []}, Command(resume="Ada")):
        with LangGraphSaver(shared_backend.url, **shared_backend.options) as saver:
            compiled = graph(nodes).compile(checkpointer=saver)
            result = compiled.invoke(given, config(), durability=durability)
    assert result == {"done": ["first", "Ada"]}


def test_a_graph_runs_async_and_its_state_is_read_from_threads(backend: Backend) -> None:
    async def main() -> Any:
        async with AsyncStore(backend.url, **backend.options) as store:
            saver = AsyncLangGraphSaver(store)
            compiled = graph({"a": lambda _: {"done": ["a"]}}).compile(checkpointer=saver)
            await asyncio.gather(
                *(compiled.ainvoke({"done": []}, config(str(n))) for n in range(16))
            )
            with pytest.raises(asyncio.InvalidStateError, match="block the event loop"):
                compiled.get_state(config("1"))
            state = await asyncio.to_thread(compiled.get_state, config("1"))
            assert len([each async for each in saver.alist(None)]) == 48
            return state.values

    assert asyncio.run(main()) == {"done": ["a"]}


def test_the_serializer_is_the_one_that_is_given(backend: Backend) -> None:
    pytest.importorskip("Crypto")
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
    with LangGraphSaver(backend.url, serde=serde, **backend.options) as saver:
        put(saver, config(), {"secret": "Ada"})
        assert saver.get(config())["channel_values"] == {"secret": "Ada"}
        stored = saver._runner.store["langgraph_checkpoints"].list()
        assert {each.body["type"] for each in stored} == {"msgpack+aes"}


def test_a_clone_with_another_allowlist_uses_the_same_store(saver: Any) -> None:
    clone = saver.with_allowlist([("os", "stat_result")])
    put(clone, config(), {"n": 1})
    assert saver.get(config())["channel_values"] == {"n": 1}
    assert copy.copy(saver)._runner is saver._runner


# -- faults ------------------------------------------------------------------------------------

KILLED = """
import os, signal
from integrations.langgraph_graphs import config, graph
from collections_store.integrations.langgraph import LangGraphSaver

def node(name):
    def run(state):
        with open({log!r}, "a") as log:
            log.write(name + "\\n")
        if name == {last!r}:
            os.kill(os.getpid(), signal.SIGKILL)
        return {{"done": [name]}}
    return run

saver = LangGraphSaver({url!r}, **{options!r})
nodes = {{name: node(name) for name in "abcde"}}
compiled = graph(nodes).compile(checkpointer=saver)
given = {{"done": []}} if {fresh!r} else None
print(compiled.invoke(given, config(), durability="sync"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_graph_continues_after_its_process_was_killed(
    shared_backend: Backend, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def run(last: str, fresh: bool) -> Any:
        script = KILLED.format(
            log=str(log),
            last=last,
            url=shared_backend.url,
            options=shared_backend.options,
            fresh=fresh,
        )
        return subprocess.run(
            [sys.executable, "-c", script],
            check=False,
            capture_output=True,
            encoding="utf-8",
            env=ENVIRONMENT,
        )

    assert run("c", fresh=True).returncode == -9
    assert run("d", fresh=False).returncode == -9
    done = run("", fresh=False)
    assert done.stdout.strip() == str({"done": list("abcde")}), done.stderr
    assert log.read_text().split() == list("abccdde")


WRITERS = """
import asyncio, os, sys
from integrations.langgraph_graphs import config, graph
from collections_store.integrations.langgraph import AsyncLangGraphSaver

async def main(number):
    async with AsyncLangGraphSaver({url!r}, **{options!r}) as saver:
        compiled = graph({{name: lambda _, n=name: {{"done": [n]}} for name in "abc"}}).compile(checkpointer=saver)
        await asyncio.gather(*(compiled.ainvoke({{"done": []}}, config(f"{{number}}-{{n}}")) for n in range(16)))

for number in range(4):
    if not os.fork():
        asyncio.run(main(number))
        os._exit(0)
sys.exit(sum(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)))
"""


def test_16_tasks_in_4_processes_lose_nothing(shared_backend: Backend) -> None:
    options, url = shared_backend.options, shared_backend.url
    command = [sys.executable, "-c", WRITERS.format(url=url, options=options)]
    done = subprocess.run(command, check=False, capture_output=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, b"")
    with LangGraphSaver(url, **options) as saver:
        compiled = graph({name: lambda _: None for name in "abc"}).compile(checkpointer=saver)
        for number in range(4):
            for n in range(16):
                state = compiled.get_state(config(f"{number}-{n}"))
                assert state.values == {"done": list("abc")}
        assert len(list(saver.list(None))) == 4 * 16 * 5


class Interrupted(JsonPlusSerializer):  # type: ignore[misc]
    """Calls a function once between the reading of the parent and the writing of a checkpoint."""

    meanwhile: Any = None

    def dumps_typed(self, value: Any) -> Any:
        function, self.meanwhile = self.meanwhile, None
        if function is not None:
            function()
        return super().dumps_typed(value)


DELETIONS: dict[str, Any] = {
    "thread": lambda saver: saver.delete_thread("t"),
    "run": lambda saver: saver.delete_for_runs(["r"]),
    "prune": lambda saver: saver.prune(["t"]),
    "idle": lambda saver: saver.delete_idle_threads(-1),
}


@pytest.mark.parametrize("values", [{}, {"grown": ["y" * 20_000]}], ids=["all shared", "some"])
@pytest.mark.parametrize("how", DELETIONS)
def test_a_checkpoint_has_the_values_that_another_process_deletes_meanwhile(
    shared_backend: Backend, how: str, values: Any
) -> None:
    """`grown` gets a document of its own with the checkpoint that is put."""
    large = {"large": ["x" * 70_000]}
    with (
        LangGraphSaver(shared_backend.url, **shared_backend.options) as other,
        LangGraphSaver(shared_backend.url, serde=Interrupted(), **shared_backend.options) as saver,
    ):
        at = put(saver, config(), {**large, "n": 0}, run_id="r")
        at = put(saver, at, {**values, "n": 1}, saver.get(at), run_id="r")
        before = saver.get(at)

        def delete() -> None:
            if how == "prune":  # as the parent stays, a later one makes it a superseded one
                put(other, at, {"large": "gone"}, other.get(at))
            DELETIONS[how](other)

        saver.serde.meanwhile = delete
        at = put(saver, at, {"n": 2}, before)
        other._caches = Caches.empty()
        assert other.get(at)["channel_values"] == {**large, **values, "n": 2}


DELETER = """
import sys
from collections_store.integrations.langgraph import LangGraphSaver

with LangGraphSaver({url!r}, **{options!r}) as saver:
    print("ready", flush=True)
    while sys.stdin.readline():
        saver.prune(["t"])
        saver.delete_thread("t")
        print("deleted", flush=True)
"""


def test_each_checkpoint_is_whole_while_another_process_deletes(shared_backend: Backend) -> None:
    options, url = shared_backend.options, shared_backend.url
    script = DELETER.format(url=url, options=options)
    large = ["x" * 70_000]
    with (
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", env=ENVIRONMENT,
        ) as deleter,
        LangGraphSaver(url, **options) as saver,
        LangGraphSaver(url, **options) as reader,
    ):  # fmt: skip
        assert deleter.stdin is not None
        assert deleter.stdout is not None
        assert deleter.stdout.readline() == "ready\n"
        at = put(saver, config(), {"large": large, "n": 0})
        for n in range(1, 200):
            if n % 5 == 0:
                deleter.stdin.write("delete\n")
                deleter.stdin.flush()
            at = put(
                saver,
                at,
                {"n": n},
                {
                    "channel_values": {"large": large, "n": n - 1},
                    "channel_versions": versions_of(n),
                },
            )
            reader._caches = Caches.empty()
            found = reader.get(at)
            assert found is None or found["channel_values"] == {"large": large, "n": n}
        deleter.stdin.close()
        assert deleter.stdout.read().split() == ["deleted"] * 39
        at = put(
            saver,
            at,
            {"n": 200},
            {"channel_values": {"large": large}, "channel_versions": versions_of(200)},
        )
        assert reader.get(at)["channel_values"] == {"large": large, "n": 200}


def versions_of(step: int) -> dict[str, str]:
    return {"large": f"{1:032}.0", "n": f"{step:032}.0"}


def test_threads_share_a_saver(saver: Any) -> None:
    def write(thread: str) -> None:
        at = config(thread)
        for n in range(10):
            at = put(saver, at, {"n": n})

    threads = [threading.Thread(target=write, args=(str(n),)) for n in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [saver.get(config(str(n)))["channel_values"]["n"] for n in range(8)] == [9] * 8


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(DOCS / "how-to" / "langgraph.md", {})


# -- what users of LangGraph's checkpointers type ------------------------------------------------------


@pytest.mark.parametrize("theirs", [SqliteSaver, AsyncSqliteSaver])
def test_it_opens_as_langgraphs_savers_do(theirs: Any, tmp_path: Path) -> None:
    ours: Any = LangGraphSaver if theirs is SqliteSaver else AsyncLangGraphSaver
    wanted = set(inspect.signature(theirs.from_conn_string).parameters)
    assert wanted <= set(inspect.signature(ours.from_conn_string).parameters)
    url = f"sqlite+aiosqlite:///{tmp_path / 'graph.db'}"
    thread, checkpoint = config("1"), empty_checkpoint()

    async def use_async() -> None:
        async with ours.from_conn_string(url) as saver:
            await saver.setup()
            await saver.aput(thread, checkpoint, {}, {})

    if ours is AsyncLangGraphSaver:
        asyncio.run(use_async())
    else:
        with ours.from_conn_string(url) as saver:
            saver.setup()
            saver.put(thread, checkpoint, {}, {})
    with LangGraphSaver(tmp_path / "graph.db") as saver:
        found = saver.get_tuple(config("1"))
    assert found is not None
    assert found.checkpoint["id"] == checkpoint["id"]


def test_a_task_that_runs_again_writes_nothing(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store:
        saver = LangGraphSaver(store)
        at = saver.put(config("1"), empty_checkpoint(), {}, {})
        for _ in range(3):
            saver.put_writes(at, [("messages", "hi"), ("n", 1)], "task")
        [writes] = store["langgraph_checkpoints"].find({"task": "task"})
        assert writes.version == 1
        saver.put_writes(at, [("messages", "other"), ("n", 2), ("m", 3)], "task")
        found = saver.get_tuple(at)
        assert found is not None
        assert found.pending_writes == [
            ("task", "messages", "hi"),
            ("task", "n", 1),
            ("task", "m", 3),
        ]


def test_a_task_that_runs_again_takes_no_lock(tmp_path: Path) -> None:
    with LangGraphSaver(tmp_path / "graph.db", busy_timeout=0.3) as saver:
        at = saver.put(config("1"), empty_checkpoint(), {}, {})
        saver.put_writes(at, [("messages", "hi"), ("n", 1)], "task")
        with closing(sqlite3.connect(tmp_path / "graph.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            saver.put_writes(at, [("messages", "hi"), ("n", 1)], "task")


def test_the_writes_of_a_deleted_thread_are_written_again(backend: Backend) -> None:
    with Store(backend.url, **backend.options) as store:
        saver = LangGraphSaver(store)
        at = saver.put(config("1"), empty_checkpoint(), {}, {})
        for _ in range(2):
            saver.put_writes(at, [("n", 1)], "task")
            saver.delete_thread("1")
        saver.put_writes(at, [("n", 1)], "task")
        assert store["langgraph_checkpoints"].count({"task": "task"}) == 1
