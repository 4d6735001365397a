"""The real SDK of Soul Machines: its objects can be stored, and its functions have the same results here."""

import copy
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest
from selection import sampled
from smskillsdk.models.common import Memory, MemoryScope
from smskillsdk.utils import memory as theirs
from smskillsdk.utils import memory_values as their_values

from collections_store import InvalidOption, MissingExtra, NotTheCreator
from collections_store.integrations import smskillsdk as ours

CALLS = 30_000 // sampled(10)
S = "session 1"

pytestmark = pytest.mark.filterwarnings(
    "ignore:The `dict` method is deprecated"
)  # which the SDK calls


# -- the functions -------------------------------------------------------------------------------

NAMES = ["a", "b", "", "userIdentity", "userLocation"]
SESSIONS = [None, None, "", "s1", "s2"]
SCOPES = [None, MemoryScope.PRIVATE, MemoryScope.PUBLIC]
TEXTS = [None, "", "Ada", "Lovelace"]
FIELDS = ["firstName", "lastName", "preferredName", "id", "city", "country", "other"]


class Draw:
    """Draws arguments of functions."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.one_of = self._random.choice

    def value(self) -> Any:
        plain: list[Any] = [None, 0, 1, "", "x", [], [1], {}, {"a": 1}, False, 1.5]
        kinds = {
            field: self.one_of([*TEXTS, *TEXTS, 5]) for field in self._random.sample(FIELDS, 3)
        }
        return self.one_of([*plain, kinds, kinds, kinds, kinds])

    def memories(self) -> list[Memory]:
        count = self.one_of([0, 1, 2, 3, 5, 8])
        return [
            Memory(name=self.one_of(NAMES), value=self.value(), **self.location())
            for _ in range(count)
        ]

    def location(self) -> dict[str, Any]:
        return {"session_id": self.one_of(SESSIONS), "scope": self.one_of(SCOPES)}

    def arguments(self) -> dict[str, Any]:
        """Return a session and scope, or a part: the function has defaults for the rest."""
        return {
            key: value for key, value in self.location().items() if self.one_of([True, True, False])
        }

    def call(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return a function's name and its arguments after the list."""
        name = self.one_of(sorted(FUNCTIONS))
        if name == "get_memory_value":
            return name, (self.one_of(NAMES),), self.arguments()
        if name == "set_memory_value":
            return name, (self.one_of(NAMES), self.value()), self.arguments()
        if name == "deserialize_memory":
            return name, (), self.arguments()
        parameters = {
            "set_user_identity": ["first_name", "last_name", "preferred_name", "id"],
            "set_user_location": ["city", "country"],
        }.get(name, [])
        some = [each for each in parameters if self.one_of([True, False])]
        return name, (), {each: self.one_of(TEXTS) for each in some}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "get_memory_value": theirs.get_memory_value,
    "set_memory_value": theirs.set_memory_value,
    "deserialize_memory": theirs.deserialize_memory,
    "set_user_identity": their_values.set_user_identity,
    "get_user_identity": their_values.get_user_identity,
    "set_user_location": their_values.set_user_location,
    "get_user_location": their_values.get_user_location,
}


def as_dicts(memories: list[Memory]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "value": copy.deepcopy(each.value),
            "session_id": each.session_id,
            "scope": each.scope and each.scope.value,
        }
        for each in memories
    ]


def plain(answer: Any) -> Any:
    """Return a result without the SDK's classes."""
    return vars(answer) if isinstance(answer, their_values.BaseModel) else answer


def test_the_functions_agree_with_the_sdk() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    draw = Draw(seed)
    for number in range(CALLS):
        memories = draw.memories()
        mine, dicts = copy.deepcopy(memories), as_dicts(memories)
        name, arguments, options = draw.call()
        expected = FUNCTIONS[name](memories, *copy.deepcopy(arguments), **options)
        function = getattr(ours, name)
        where = f"seed {seed}, call {number}: {name}{arguments}{options} of {dicts}"
        found = function(mine, *copy.deepcopy(arguments), **options)
        assert repr(found) == repr(expected), where
        assert type(found) is type(expected), where
        assert repr(mine) == repr(memories), where
        kind = {"model": dict} if name.startswith("set_") else {}
        options = {key: getattr(value, "value", value) for key, value in options.items()}
        assert repr(function(dicts, *arguments, **options, **kind)) == repr(plain(expected)), where
        assert repr(dicts) == repr(as_dicts(memories)), where


def test_serializing_agrees_with_the_sdk() -> None:
    draw = Draw(1)
    for _ in range(CALLS // 10):
        data = {draw.one_of(NAMES): draw.value() for _ in range(3)}
        options = draw.arguments()
        expected = theirs.serialize_memory(data, **options)
        assert ours.serialize_memory(data, **options) == expected
        assert ours.serialize_memory(data, **options, model=dict) == as_dicts(expected)


def test_values_are_set_unchanged() -> None:
    value: list[int] = []
    for model in (None, dict):
        memories: list[Any] = []
        ours.set_memory_value(memories, "a", value, model=model)
        value.append(1)
        assert ours.get_memory_value(memories, "a")[1] is value
        ours.set_memory_value(memories, "b", value)  # of an existing type
        assert type(memories[0]) is type(memories[1])


def test_scopes_may_be_strings() -> None:
    memories: list[Any] = []
    ours.set_memory_value(memories, "a", 1, scope="PUBLIC")
    ours.set_memory_value(memories, "a", 2, scope="PRIVATE")
    assert [each.scope for each in memories] == [MemoryScope.PUBLIC, MemoryScope.PRIVATE]
    assert ours.get_memory_value(memories, "a", scope="PRIVATE") == (True, 2)
    with pytest.raises(InvalidOption, match="scope: must be 'PRIVATE' or 'PUBLIC', got 'public'"):
        ours.get_memory_value(memories, "a", scope="public")


def test_invalid_user_values_change_nothing() -> None:
    memories: list[Any] = []
    for call in (ours.set_user_identity, ours.set_user_location):
        option = "id" if call is ours.set_user_identity else "city"
        bad: Any = {option: 5}
        with pytest.raises(InvalidOption, match=f"{option}: must be a string, got 5"):
            call(memories, **bad)
    assert memories == []


def test_without_the_sdk_dicts_work_and_objects_are_an_error(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "smskillsdk.utils", None)
    memories = ours.serialize_memory({"a": 1}, model=dict)
    ours.set_user_location(memories, city="Bonn")
    assert ours.get_user_location(memories) == {"city": "Bonn", "country": None}
    for call in (
        lambda: ours.skill_memory(store),
        lambda: ours.set_memory_value([], "a", 1),
        lambda: ours.serialize_memory({"a": 1}),
    ):
        with pytest.raises(MissingExtra, match=r"pip install 'collections-store\[smskillsdk\]'"):
            call()


# -- the store -----------------------------------------------------------------------------------


@pytest.fixture
def skills(store: Any) -> Any:
    """Memories as the SDK's objects; `SyncAdapter` hides an `AsyncStore` from `skill_memory`."""
    return store.skill_memory(model=Memory)


def test_the_integration_returns_memories_of_the_sdk(store: Any) -> None:
    bare = getattr(store, "_target", store)
    assert repr(ours.skill_memory(bare, policy="raise")).endswith(
        "SkillMemory('skill_memory', policy='raise')"
    )
    assert ours.skill_memory(bare)._model is Memory
    assert ours.skill_memory(bare, model=None)._model is None


def test_objects_of_the_sdk_are_stored(skills: Any) -> None:
    given = [
        Memory(name="x", value={"n": [1, None]}),
        Memory(name="y", value=False, session_id="s", scope=MemoryScope.PUBLIC),
    ]
    assert skills.save(S, "a", given) == 2
    given[0].scope = MemoryScope.PRIVATE
    assert skills.load(S, "a") == given
    assert skills.load(S, "b") == given[1:]
    assert skills.save(S, "b", skills.load(S, "b")) == 0


def test_a_conversation_of_two_skills(skills: Any) -> None:
    """As on the platform: loaded memories go to a skill as JSON, and return as JSON."""
    conversation: list[tuple[str, Callable[[list[Memory]], None]]] = [
        ("greeter", lambda memory: ours.set_user_identity(memory, first_name="Ada")),
        ("weather", lambda memory: ours.set_user_location(memory, city="Bonn")),
        ("greeter", lambda memory: ours.set_memory_value(memory, "greeted", True)),
        ("weather", lambda memory: ours.set_user_identity(memory, first_name="Eve")),
        ("greeter", lambda memory: memory.clear()),
    ]
    for skill, act in conversation:
        memories = [Memory(**each) for each in json.loads(_as_json(skills.load(S, skill)))]
        act(memories)
        skills.save(S, skill, [Memory(**each) for each in json.loads(_as_json(memories))])
    found = skills.load(S, "weather")
    assert ours.get_user_identity(found) == their_values.UserIdentity(firstName="Ada")
    assert ours.get_user_location(found) == their_values.UserLocation(city="Bonn")
    assert ours.get_memory_value(found, "greeted") == (False, None)
    assert ours.get_memory_value(skills.load(S, "greeter"), "greeted") == (False, None)
    assert skills.end_session(S) == 2


def _as_json(memories: list[Memory]) -> str:
    return json.dumps(as_dicts(memories))


def test_changing_memories_of_another_skill_may_be_an_error(store: Any) -> None:
    skills = store.skill_memory(model=Memory, policy="raise")
    skills.save(S, "a", [Memory(name="x", value=1, scope=MemoryScope.PUBLIC)])
    memories = skills.load(S, "b")
    ours.set_memory_value(memories, "x", 2, scope=MemoryScope.PUBLIC)
    with pytest.raises(NotTheCreator):
        skills.save(S, "b", memories)
