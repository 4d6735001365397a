"""Every public call with every unusual value: it works, or raises an error of the library with one short line."""

import asyncio
import inspect
import math
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path as Path_
from typing import Any

import pytest
from backends import Backend

from collections_store import (
    AsyncChangeDocumentStream,
    AsyncChangeStream,
    AsyncCollection,
    AsyncStore,
    CallOptions,
    ChangeDocumentStream,
    ChangeSettings,
    ChangeStream,
    CollectionSettings,
    CollectionsStoreError,
    DeleteMany,
    DeleteOne,
    F,
    Filter,
    Index,
    InsertOne,
    ModelSettings,
    Path,
    Projection,
    ReplaceOne,
    Sort,
    Store,
    StoreOptions,
    Update,
    UpdateMany,
    UpdateOne,
    VersionSettings,
    was_committed,
)
from collections_store.dialogues import (
    AsyncDialogues,
    AsyncDialogueStore,
    DialogueLabel,
    Dialogues,
    DialogueStore,
    Message,
    PlainCodec,
    Rules,
)
from collections_store.query.filter import ComparableField

LONGEST = 1000
"""Maximum characters of a message."""
HUGE = 20_000
DEEP = 1500
"""Deeper than Python's recursion limit."""


class BadRepr:
    """A value whose `repr` fails."""

    def __repr__(self) -> str:
        raise ZeroDivisionError


class LongRepr:
    """A value whose `repr` has many lines."""

    def __repr__(self) -> str:
        return "x\n" * 1000


class Unequal:
    """A value whose comparisons have no truth value, like those of numpy's arrays."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def nested(depth: int, make: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


def recursive() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "5": 5,
    "-1": -1,
    "2**63": 2**63,
    "10**5000": 10**5000,
    "1e308": 1e308,
    "nan": math.nan,
    "inf": math.inf,
    "bytes": b"x",
    "surrogate": "\ud800",
    "nul": "a\x00b",
    "empty": "",
    "newline": "a\nb",
    "dollar": "$gt",
    "huge": "x" * HUGE,
    "many dots": "." * 500,
    "deep list": nested(DEEP, lambda value: [value]),
    "deep dict": nested(DEEP, lambda value: {"a": value}),
    "deep $and": nested(DEEP, lambda value: {"$and": [value]}),
    "deep $not": {"a": nested(DEEP, lambda value: {"$not": value})},
    "deep $expr": {"$expr": nested(DEEP, lambda value: {"$abs": value})},
    "deep tuple": nested(DEEP, lambda value: (value, 1)),
    "recursive": recursive(),
    "list": [],
    "dict": {},
    "set": {1},
    "pairs": [("a", 1)],
    "triple": (1, 2, 3),
    "number key": {1: 2},
    "unknown operator": {"$nosuch": 1},
    "wrong operand": {"a": {"$in": 5}},
    "object": object(),
    "class": Store,
    "lambda": lambda _: None,
    "generator": (each for each in (1, None)),
    "failing repr": BadRepr(),
    "long repr": LongRepr(),
    "no bool": Unequal(),
    "list of odd": [object(), Unequal(), None],
    "dict of odd": {"a": Unequal(), "b": BadRepr()},
    "datetime": datetime(2026, 11, 22),
    "timedelta": timedelta(-1),
    "timedelta.max": timedelta.max,
    "Filter": Filter(),
    "F": F("a"),
    "Path": Path(),
    "Ellipsis": ...,
}

SENT = ["None", "5", "2**63", "1e308", "surrogate", "nul", "huge", "list", "dict", "object"]
"""The unusual values that may reach a database."""
THINGS = {"1": {"a": 1}, "2": {"a": [1, {"b": 2}]}}
VALID: dict[str, Any] = {
    "self_address": "ada",
    "agent": "ada",
    "id": "1",
    "ids": ["1"],
    "body": {"a": 1},
    "bodies": {"1": {"a": 1}},
    "filter": {"a": 1},
    "update": {"$set": {"a": 2}},
    "replacement": {"a": 2},
    "requests": [],
    "path": "a",
    "function": lambda _: 1,
    "field": "a",
    "keys": "a",
    "name": "things",
    "old": "nowhere",
    "new": "elsewhere",
    "pipeline": [],
    "key": "k",
    "value": 1,
    "values": {"k": 1},
    "namespace": "bot",
    "ttl": 60,
    "session": "s",
    "skill": "weather",
    "memories": [],
    "counterparty": "bob",
    "performative": "ask",
    "address": "bob",
    "what": {"a": 1},
    "dotted": "a",
    "pattern": "a",
    "low": 1,
    "high": 2,
    "size": 1,
    "divisor": 2,
    "remainder": 1,
    "url": "sqlite://",
}
OPTIONS: dict[str, Any] = {
    f"Unpack[{each.__name__}]": each
    for each in (
        StoreOptions,
        CallOptions,
        CollectionSettings,
        ChangeSettings,
        VersionSettings,
        ModelSettings,
    )
}
SKIPPED = {
    "run",  # takes operations, which are not public
    "close",
    "aclose",
    "shape",
    "from_json",  # of what is stored
}
"""The names that are not called."""
CLASSES: list[Any] = [
    Store,
    AsyncStore,
    ComparableField,
    Filter,
    Path,
    Sort,
    Index,
    Projection,
    Update,
]
CLASSES += [InsertOne, UpdateOne, UpdateMany, ReplaceOne, DeleteOne, DeleteMany]
CLASSES += [DialogueLabel, Message, Rules]
PARSED = (Filter, Path, Sort, Index, Projection, Update)
"""Types that hold no value of the caller unchanged, and so can be printed."""


@dataclass
class Call:
    """A call with one unusual argument."""

    name: str
    function: Callable[..., Any]
    positional: list[Any]
    keywords: dict[str, Any]


def calls(name: str, function: Any, odd: Any) -> Iterator[Call]:
    """Yield a call for each parameter with the unusual value; the others have valid values or none."""
    parameters = [*parameters_of(function)]
    for chosen in parameters:
        call = Call(f"{name}({chosen.name}=…)", function, [], {})
        for each in parameters:
            is_needed = each.default is each.empty and each.kind not in {
                each.VAR_POSITIONAL,
                each.VAR_KEYWORD,
            }
            if not (is_needed or each is chosen):
                continue
            value = odd if each is chosen else VALID.get(each.name)
            if each.kind in {each.POSITIONAL_ONLY, each.VAR_POSITIONAL}:
                call.positional.append(value)
            else:
                call.keywords[each.name] = value
        if not chosen.name.startswith("_"):
            yield call


def parameters_of(function: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function; declared options count as parameters."""
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.VAR_KEYWORD and each.annotation in OPTIONS:
            for option in OPTIONS[each.annotation].__annotations__:
                yield inspect.Parameter(option, each.KEYWORD_ONLY, default=None)
        else:
            yield each


def methods(target: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public methods of an object, or the class methods of a class."""
    is_class = inspect.isclass(target)
    label = target.__name__ if is_class else type(target).__name__
    for name in sorted(set(dir(target)) - SKIPPED):
        if not name.startswith("_") and inspect.isroutine(inspect.getattr_static(target, name)):
            member = getattr(target, name)
            if inspect.ismethod(member):
                yield f"{label}.{name}", member


async def finished(result: Any) -> None:
    """Await the result of a call, enter it, or take its first element; of a change stream, a pending one."""
    if isinstance(result, AsyncCollection):
        await result.count()
    elif inspect.isawaitable(result):
        result = await result
    kind = type(result).__name__
    if isinstance(result, ChangeStream | ChangeDocumentStream):  # its iteration would block
        result.try_next()
        result.close()
    elif isinstance(result, AsyncChangeStream | AsyncChangeDocumentStream):
        await result.try_next()
        await result.aclose()
    elif inspect.isasyncgen(result):
        await anext(result, None)
        await result.aclose()
    elif hasattr(result, "__aenter__") and "Store" not in kind and "Memory" not in kind:
        async with result:
            pass
    elif inspect.isgenerator(result):
        next(result, None)
    elif kind in {"_TransactionContext", "_SavepointContext"}:
        with result:
            pass
    elif isinstance(result, PARSED):
        shown(result)


def shown(result: Any) -> None:
    if isinstance(result, PARSED):
        assert isinstance(repr(result) + str(result), str)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path_, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the values are names of files."""
    monkeypatch.chdir(tmp_path)


def problem_of(call: Call, run: Callable[[Any], Any]) -> str | None:
    """Make a call; return what is wrong with its error."""
    try:
        run(call.function(*call.positional, **call.keywords))
    except CollectionsStoreError as error:
        message = str(error)
        if len(message) > LONGEST or len(message.splitlines()) != 1:
            return f"{len(message)} characters: {message[:80]!r}"
        if re.search("SELECT |INSERT |UPDATE |DELETE FROM|CREATE ", message):
            return f"SQL: {message!r}"
        return None
    except Exception as error:  # noqa: BLE001 - the test looks for all others
        backend = traceback.extract_tb(error.__traceback__)[-1]
        if (
            call.name.endswith("(function=…)")
            and Path_(backend.filename).name == Path_(__file__).name
        ):
            return None  # of the caller's own function
        if call.name.endswith("(path=…)") and isinstance(error, OSError):
            return None  # documented: the operating system refuses the file
        return f"{type(error).__name__}: {str(error)[:80]} ({backend.filename}:{backend.lineno})"
    return None


def check(
    targets: Iterable[tuple[str, Any]], run: Callable[[Any], Any], odd: Iterable[str] = ODD
) -> None:
    """Call each target with each unusual value for each parameter."""
    found = [
        f"{call.name} of {value}: {problem}"
        for name, function in targets
        for value in odd
        for call in calls(name, function, ODD[value])
        if (problem := problem_of(call, run))
    ]
    assert not found, "\n".join(found)


def test_values() -> None:
    """Filters, paths, updates and other classes without a store, and the functions that open stores."""
    field, comparisons = F("a"), ("__eq__", "__ne__", "__lt__", "__ge__")
    targets = [(each.__name__, each) for each in CLASSES]
    targets += [pair for each in CLASSES for pair in methods(each)]
    targets += [*methods(field), *((f"F.{name}", getattr(field, name)) for name in comparisons)]
    targets.append(("was_committed", was_committed))
    check(targets, shown)


PARTS = ["store", "collection", "transaction", "memory", "dialogues"]


def parts(store: Any, dialogues: Any, dialogue_store: Any) -> dict[str, list[Any]]:
    return {
        "store": [store],
        "collection": [store["things"]],
        "memory": [store.memory("bot"), store.skill_memory()],
        "dialogues": [
            dialogues(store, "ada"),
            dialogue_store(store, "eve", codec=PlainCodec()),
        ],
    }


@pytest.mark.parametrize("part", PARTS)
def test_sync(part: str) -> None:
    sync(Backend("sqlite-memory", "sqlite://"), part, ODD)


@pytest.mark.parametrize("part", ["collection", "memory"])
def test_postgresql(postgres_backend: Backend, part: str) -> None:
    sync(postgres_backend, part, SENT)


def sync(backend: Backend, part: str, odd: Iterable[str]) -> None:
    with asyncio.Runner() as runner, Store(backend.url, **backend.options) as store:
        store.get_sync_collection("things", changes=True).put_many(THINGS)
        if part == "transaction":
            with store.transaction() as transaction:
                targets = [*methods(transaction), *methods(transaction["things"])]
                check(targets, lambda result: runner.run(finished(result)), SENT)
            return
        chosen = parts(store, Dialogues, DialogueStore)[part]
        targets = [pair for each in chosen for pair in methods(each)]
        check(targets, lambda result: runner.run(finished(result)), odd)


@pytest.mark.parametrize("part", PARTS)
def test_async(part: str) -> None:
    async def begun() -> AsyncStore:
        store = AsyncStore("sqlite://")
        await store.get_collection("things", changes=True).put_many(THINGS)
        return store

    with asyncio.Runner() as runner:
        store = runner.run(begun())
        if part == "transaction":
            context = store.transaction()
            transaction = runner.run(context.__aenter__())
            chosen = [transaction, transaction["things"]]
        else:
            chosen = parts(store, AsyncDialogues, AsyncDialogueStore)[part]
        targets = [pair for each in chosen for pair in methods(each)]
        check(targets, lambda result: runner.run(finished(result)), SENT)
        if part == "transaction":
            runner.run(context.__aexit__(None, None, None))
        runner.run(store.aclose())
