"""Memories of skills, by the rules of their platform, on every backend, sync and async."""

import asyncio
import math
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
import sqlalchemy as sa
from backends import Backend, Opener
from conftest import Clock

from collections_store import (
    AsyncStore,
    InvalidBody,
    InvalidName,
    InvalidOption,
    InvalidSearch,
    NotTheCreator,
    Store,
    TransactionConflict,
)

S = "session 1"
FALSY: list[Any] = [None, 0, "", [], {}, False, 0.0]


def memory(name: str, value: Any, scope: str | None = None, session_id: str | None = None) -> Any:
    return {"name": name, "value": value, "session_id": session_id, "scope": scope}


def public(name: str, value: Any, session_id: str | None = None) -> Any:
    return memory(name, value, "PUBLIC", session_id)


def private(name: str, value: Any, session_id: str | None = None) -> Any:
    return memory(name, value, "PRIVATE", session_id)


@pytest.fixture
def store(emptied_store: Any) -> Any:
    return emptied_store


@pytest.fixture
def skills(store: Any) -> Any:
    return store.skill_memory()


# -- load ----------------------------------------------------------------------------------------


def test_a_skill_loads_its_private_and_all_public_memories(skills: Any) -> None:
    assert skills.load(S, "a") == []
    skills.save(S, "a", [private("x", 1), public("y", 2)])
    skills.save(S, "b", [private("x", 3), public("z", 4)])
    assert skills.load(S, "a") == [private("x", 1), public("y", 2), public("z", 4)]
    assert skills.load(S, "b") == [public("y", 2), private("x", 3), public("z", 4)]
    assert skills.load(S, "c") == [public("y", 2), public("z", 4)]


def test_default_of_the_store_returns_values_not_tags(open_store: Opener) -> None:
    skills = open_store(default=lambda value: {"$date": str(value)}).skill_memory()
    skills.save(S, "a", [private("x", 1j)])
    assert skills.load(S, "a") == [private("x", {"$date": "1j"})]


def test_memories_are_private_by_default(skills: Any) -> None:
    assert skills.save(S, "a", [memory("x", 1), {"name": "y", "value": 2}]) == 2
    assert skills.load(S, "a") == [private("x", 1), private("y", 2)]
    assert skills.load(S, "b") == []
    assert skills.save(S, "a", [private("x", 1), private("y", 2)]) == 0  # the same memories


def test_name_session_id_and_scope_identify_a_memory(skills: Any) -> None:
    several = [
        make(name, index, session_id)
        for index, (make, name, session_id) in enumerate(
            (make, name, session_id)
            for make in (private, public)
            for name in ("k", "", "k ", '["k"]')
            for session_id in (None, "", "s1", "None")
        )
    ]
    assert skills.save(S, "a", several) == len(several)
    assert skills.load(S, "a") == several
    assert skills.save(S, "a", several) == 0


def test_the_last_of_equal_memories_wins(skills: Any) -> None:
    given = [private("x", 1), public("y", 1), memory("x", 2), public("y", 2)]
    assert skills.save(S, "a", given) == 2
    assert skills.load(S, "a") == [private("x", 2), public("y", 2)]


# -- omitted memories ----------------------------------------------------------------------------


def test_omitted_private_memories_are_deleted(skills: Any) -> None:
    skills.save(S, "a", [private("x", 1), private("y", 2)])
    skills.save(S, "b", [private("x", 3)])
    assert skills.save(S, "a", [private("y", 2)]) == 1
    assert skills.load(S, "a") == [private("y", 2)]
    assert skills.save(S, "a", []) == 1
    assert skills.load(S, "a") == []
    assert skills.load(S, "b") == [private("x", 3)]


def test_omitted_public_memories_are_kept(skills: Any) -> None:
    skills.save(S, "a", [public("x", 1), public("y", 2)])
    for skill in ("a", "b"):
        assert skills.save(S, skill, []) == 0
    skills.save(S, "a", [public("x", 5)])
    assert skills.load(S, "c") == [public("x", 5), public("y", 2)]


@pytest.mark.parametrize("value", FALSY, ids=repr)
def test_a_falsy_value_is_a_value(skills: Any, value: Any) -> None:
    skills.save(S, "a", [public("x", "long"), private("y", "long")])
    assert skills.save(S, "a", [public("x", value), private("y", value)]) == 2
    [x, y] = skills.load(S, "a")
    assert (repr(x["value"]), repr(y["value"])) == (repr(value), repr(value))
    assert skills.load(S, "b") == [x]


def test_a_memory_may_change_its_scope(skills: Any) -> None:
    skills.save(S, "a", [private("x", 1)])
    skills.save(S, "a", [public("x", 1)])
    assert skills.load(S, "a") == [public("x", 1)]
    skills.save(S, "a", [private("x", 2)])  # public memories cannot be deleted
    assert skills.load(S, "a") == [public("x", 1), private("x", 2)]


def test_values_are_restored(skills: Any) -> None:
    value = {
        "when": datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
        "day": date(2026, 11, 21),
        "price": Decimal("1.50"),
        "tags": {"a", "b"},
        "pair": (1, [2.0, 10**30]),
        "$date": "mine",
        "raw": b"\x00\xff",
    }
    skills.save(S, "a", [public("x", value)])
    assert skills.load(S, "b") == [public("x", value)]
    assert skills.save(S, "b", skills.load(S, "b")) == 0


# -- only the creator changes ----------------------------------------------------------------------


def test_only_the_creator_changes_public_memories(skills: Any) -> None:
    skills.save(S, "a", [public("x", 1)])
    assert skills.save(S, "b", [public("x", 2), public("own", 1)]) == 1
    assert skills.load(S, "a") == [public("x", 1), public("own", 1)]
    assert skills.save(S, "a", [public("x", 3)]) == 1
    assert skills.load(S, "b") == [public("x", 3), public("own", 1)]


def test_saving_an_unchanged_memory_does_not_change_its_creator(skills: Any) -> None:
    skills.save(S, "a", [public("x", 1)])
    assert skills.save(S, "b", skills.load(S, "b")) == 0
    skills.save(S, "b", [public("x", 2)])
    assert skills.load(S, "b") == [public("x", 1)]
    skills.save(S, "a", [public("x", 2)])
    assert skills.load(S, "b") == [public("x", 2)]


def test_policy_lets_every_skill_change_public_memories(store: Any) -> None:
    skills = store.skill_memory(policy="anyone")
    skills.save(S, "a", [public("x", 1)])
    assert skills.save(S, "b", [public("x", None)]) == 1
    assert skills.load(S, "a") == [public("x", None)]
    strict = store.skill_memory()
    assert strict.save(S, "b", [public("x", 3)]) == 0  # the creator is unchanged
    assert strict.save(S, "a", [public("x", 4)]) == 1


def test_policy_raises_for_changes_by_others(store: Any) -> None:
    skills = store.skill_memory(policy="raise")
    skills.save(S, "a", [public("x", 1)])
    skills.save(S, "b", [private("mine", 1)])
    with pytest.raises(NotTheCreator, match="'x': skill 'a' created it, so 'b' cannot") as caught:
        skills.save(S, "b", [private("new", 1), public("x", 2), public("own", 1)])
    assert (caught.value.name, caught.value.creator, caught.value.skill) == ("x", "a", "b")
    assert isinstance(caught.value, PermissionError)
    assert skills.load(S, "b") == [public("x", 1), private("mine", 1)]
    assert skills.save(S, "b", [public("x", 2), *skills.load(S, "b")]) == 0  # the last wins


@pytest.mark.parametrize(
    "value", [*FALSY, 1.0, -0.0, 1e300, {"b": 1, "a": [1.0, {"d": 1, "c": 2}]}, {1, 2}], ids=repr
)
def test_saving_an_unchanged_memory_is_no_error(store: Any, value: Any) -> None:
    skills = store.skill_memory(policy="raise")
    skills.save(S, "a", [public("x", value)])
    assert skills.save(S, "b", skills.load(S, "b")) == 0
    assert skills.save(S, "b", [public("x", value)]) == 0


@pytest.mark.parametrize(("policy", "left"), [("creator", 2), ("anyone", 1), ("raise", 2)])
def test_saving_an_outdated_memory(store: Any, policy: Any, left: int) -> None:
    """Indistinguishable from a change, as a memory has no version. Omitting it is always safe."""
    skills = store.skill_memory(policy=policy)
    skills.save(S, "a", [public("x", 1)])
    seen = skills.load(S, "b")
    skills.save(S, "a", [public("x", 2)])
    assert skills.save(S, "b", [private("mine", 1)]) == 1
    assert skills.load(S, "b")[0] == public("x", 2)
    with pytest.raises(NotTheCreator) if policy == "raise" else nullcontext():
        skills.save(S, "b", seen)
    assert skills.load(S, "a") == [public("x", left)]


def test_numbers_that_javascript_changes_are_unchanged(store: Any) -> None:
    skills = store.skill_memory(policy="raise")
    skills.save(S, "a", [public("x", {"n": 1.0})])
    assert skills.save(S, "b", [public("x", {"n": 1})]) == 0
    with pytest.raises(NotTheCreator):
        skills.save(S, "b", [public("x", {"n": True})])


class Rules:
    """The platform's rules, implemented independently with dictionaries."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.private: dict[Any, dict[Any, Any]] = {}
        self.public: dict[str, dict[Any, tuple[str, Any]]] = {}

    def load(self, session: str, skill: str) -> list[Any]:
        mine = self.private.get((session, skill), {}).items()
        shared = self.public.get(session, {}).items()
        return [
            *(private(name, value, of) for (name, of), value in mine),
            *(public(name, value, of) for (name, of), (_, value) in shared),
        ]

    def save(self, session: str, skill: str, memories: list[Any]) -> None:
        shared = dict(self.public.get(session, {}))
        changed = {}
        for each in memories:
            if each["scope"] == "PUBLIC":
                changed[each["name"], each["session_id"]] = each["value"]
        for key, value in changed.items():
            creator, before = shared.get(key, (skill, object()))
            if creator == skill or self.policy == "anyone":
                shared[key] = creator, value
            elif self.policy == "raise" and value != before:
                raise NotTheCreator(key[0], creator, skill)
        self.public[session] = shared
        self.private[session, skill] = {
            (each["name"], each["session_id"]): each["value"]
            for each in memories
            if each["scope"] != "PUBLIC"
        }

    def end_session(self, session: str) -> None:
        self.public.pop(session, None)
        for key in [key for key in self.private if key[0] == session]:
            del self.private[key]


@pytest.mark.parametrize("policy", ["creator", "anyone", "raise"])
def test_random_saves_follow_the_rules(store: Any, policy: Any) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    skills, rules = store.skill_memory(policy=policy), Rules(policy)

    def outcome(call: Any, *arguments: Any) -> Any:
        try:
            call(*arguments)
        except NotTheCreator as error:
            return str(error)
        return None

    for _ in range(150):
        session, skill = draw.choice(["1", "2"]), draw.choice(["a", "b", "c"])
        if draw.random() < 0.05:
            skills.end_session(session)
            rules.end_session(session)
        memories = [each for each in rules.load(session, skill) if draw.random() < 0.8]
        for _ in range(draw.choice([0, 1, 1, 3])):
            scope = draw.choice([None, "PRIVATE", "PUBLIC", "PUBLIC"])
            of = draw.choice([None, "s"])
            memories.append(
                memory(draw.choice("xyz"), draw.choice(["v", 5, *FALSY[:5]]), scope, of)
            )
        draw.shuffle(memories)
        result = outcome(skills.save, session, skill, memories)
        assert result == outcome(rules.save, session, skill, memories), seed
        for each in ("a", "b", "c"):
            found, expected = skills.load(session, each), rules.load(session, each)
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), seed


# -- sessions ------------------------------------------------------------------------------------

SESSIONS = [
    "",
    " ",
    "a",
    "A",
    "a/b",
    "a/",
    "/",
    "a%",
    "_",
    "a\n",
    "\u00e9",
    "e\u0301",
    "😀",
    "s:1",
    "0" * 2000,
]


def test_sessions_are_isolated(skills: Any) -> None:
    for session in SESSIONS:
        skills.save(session, "a", [private("x", session), public("y", session)])
    for session in SESSIONS:
        assert skills.load(session, "a") == [private("x", session), public("y", session)]
        assert skills.load(session, "b") == [public("y", session)]


def test_ending_a_session_keeps_the_others(skills: Any) -> None:
    for session in SESSIONS:
        skills.save(session, "a", [private("x", session), public("y", session)])
        skills.save(session, "b", [private("x", session)])
    left = list(SESSIONS)
    while left:
        session = left.pop(0)
        assert skills.end_session(session) == 3
        assert skills.end_session(session) == 0
        assert skills.load(session, "a") == skills.load(session, "b") == []
        assert all(len(skills.load(other, "a")) == 2 for other in left)


def test_ended_sessions_leave_no_documents(store: Any) -> None:
    skills = store.skill_memory()
    skills.save(S, "a", [public("x", 1)])
    skills.end_session(S)
    assert store["skill_memory"].count() == 0
    skills.save(S, "b", [public("x", 2)])  # without a creator
    assert skills.load(S, "a") == [public("x", 2)]
    assert skills.save(S, "a", [public("x", 3)]) == 0


def test_skills_with_unusual_names_are_isolated(skills: Any) -> None:
    for skill in SESSIONS:
        skills.save(S, skill, [private("x", skill)])
    for skill in SESSIONS:
        assert skills.load(S, skill) == [private("x", skill)]


def test_collections_are_isolated(store: Any) -> None:
    one, other = store.skill_memory(), store.skill_memory(collection="others")
    one.save(S, "a", [public("x", 1)])
    assert other.load(S, "a") == []
    other.save(S, "b", [public("x", 2)])
    assert one.end_session(S) == 1
    assert other.load(S, "a") == [public("x", 2)]
    assert repr(other) == "SkillMemory('others', policy='creator')"


def test_saving_restarts_the_ttl_of_a_session(store: Any, clock: Clock) -> None:
    skills = store.skill_memory(ttl=timedelta(minutes=30))
    skills.save(S, "a", [private("x", 1), public("y", 1)])
    clock.advance(1500)
    skills.save(S, "b", [private("z", 1)])  # keeps the whole session
    clock.advance(1500)
    assert skills.load(S, "a") == [private("x", 1), public("y", 1)]
    assert skills.save(S, "a", skills.load(S, "a")) == 0  # also an unchanged save
    clock.advance(1500)
    assert len(skills.load(S, "b")) == 2
    clock.advance(301)
    assert skills.load(S, "a") == skills.load(S, "b") == []
    skills.save(S, "b", [public("y", 2)])  # without a creator
    assert skills.load(S, "a") == [public("y", 2)]


@pytest.mark.parametrize("ttl", [None, 60, math.inf])
def test_a_save_that_changes_nothing_is_one_write_at_most(
    ttl: Any, shared_backend: Backend
) -> None:
    engine = sa.create_engine(shared_backend.url.replace("postgresql:", "postgresql+psycopg:"))
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *a: statements.append(a[2].split()[0]))
    options = {**shared_backend.options, "upgrade": "auto"}
    with Store(engine=engine, **options) as store:
        skills = store.skill_memory(ttl=ttl)
        skills.save(S, "a", [private(f"x{n}", n) for n in range(50)])
        shown = skills.load(S, "a")
        statements.clear()
        assert skills.save(S, "a", shown) == 0
        assert [each for each in statements if each in {"INSERT", "UPDATE", "DELETE"}] == (
            [] if ttl is None else ["UPDATE"]
        )
    engine.dispose()


def test_stored_memories_can_be_queried(store: Any) -> None:
    skills = store.skill_memory()
    skills.save(S, "a", [public("x", 1), private("y", 2)])
    skills.save("session 2", "b", [public("x", 3)])
    found = store["skill_memory"].find({"session": S, "scope": {"$exists": True}})
    assert [(each.body["creator"], each.body["name"], each.body["value"]) for each in found] == [
        ("a", "x", 1),
        ("a", "y", 2),
    ]


# -- objects -------------------------------------------------------------------------------------


class Scope(Enum):
    PRIVATE = "PRIVATE"
    PUBLIC = "PUBLIC"


@dataclass
class Model:
    name: str
    value: Any
    session_id: str | None = None
    scope: Any = None


def test_objects_of_a_model_class(store: Any) -> None:
    skills = store.skill_memory(model=Model)
    skills.save(S, "a", [Model("x", 1), Model("y", 2, "s", Scope.PUBLIC), private("z", 3)])
    expected = [
        Model("x", 1, None, "PRIVATE"),
        Model("y", 2, "s", "PUBLIC"),
        Model("z", 3, None, "PRIVATE"),
    ]
    assert skills.load(S, "a") == expected
    assert skills.save(S, "a", tuple(skills.load(S, "a"))) == 0
    assert skills.save(S, "a", iter([])) == 2


# -- errors --------------------------------------------------------------------------------------


def test_save_takes_a_list(skills: Any) -> None:
    skills.save(S, "a", [private("x", 1)])
    with pytest.raises(InvalidOption, match="must be a list of all .* got None: .* deletes all"):
        skills.save(S, "a", None)
    for memories in ({"x": 1}, "x", b"x", 5):
        with pytest.raises(
            InvalidOption, match="memories: must be a list of all memories that stay, got "
        ):
            skills.save(S, "a", memories)
    assert skills.load(S, "a") == [private("x", 1)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"value": 1}, r"memories\[1\]: must have 'name', got "),
        ({"name": "x"}, r"memories\[1\]: must have 'value', got "),
        (5, r"memories\[1\]: must have 'name', got 5"),
        (("x", 1), r"memories\[1\]: must have 'name', got "),
        (
            memory("x", 1, "public"),
            r"memories\[1\]\.scope: must be 'PRIVATE' or 'PUBLIC', got 'public'",
        ),
        (memory("x", 1, scope=[]), r"memories\[1\]\.scope: must be .*, got \[\]"),  # type: ignore[arg-type]
        (memory(5, 1), r"memories\[1\]\.name: must be a string, got 5"),  # type: ignore[arg-type]
        (memory("x", 1, session_id=5), r"memories\[1\]\.session_id: must be a str.*, got 5"),  # type: ignore[arg-type]
        (memory("x", [object()]), r"memories\.1\.value\.0'?: object is not JSON"),
        (memory("x\0", 1), r"memories\.1\.name'?: holds a NUL"),
        (memory("x", "\ud800"), r"memories\.1\.value'?: a lone surrogate"),
    ],
)
def test_invalid_memories_change_nothing(skills: Any, bad: Any, message: str) -> None:
    skills.save(S, "a", [private("x", 1)])
    with pytest.raises((InvalidOption, InvalidBody), match=message):
        skills.save(S, "a", [private("new", 1), bad])
    assert skills.load(S, "a") == [private("x", 1)]


@pytest.mark.parametrize("id", [None, 5, b"a", "a\0", "\ud800", "x" * 2001], ids=repr)
def test_invalid_sessions_and_skills_are_rejected(skills: Any, id: Any) -> None:
    for call in (skills.load, lambda *who: skills.save(*who, [])):
        with pytest.raises(InvalidOption, match="session"):
            call(id, "a")
        with pytest.raises(InvalidOption, match="skill"):
            call(S, id)
    with pytest.raises(InvalidOption, match="session"):
        skills.end_session(id)


def test_names_are_returned_as_stored(open_store: Opener) -> None:
    skills = open_store(nul="replace").skill_memory()
    assert skills.save(S, "a", [private("x\0", "\0"), private("x\ufffd", "2")]) == 1
    assert skills.load(S, "a") == [private("x\ufffd", "2")]
    assert skills.save(S, "a", [private("x\0", "2")]) == 0


class Who(str, Enum):  # noqa: UP042 - its str() and format() differ from its value
    SESSION = "session 1"
    SKILL = "a"


def test_subclasses_of_str_are_strings(skills: Any) -> None:
    assert skills.save(Who.SESSION, Who.SKILL, [private("x", 1)]) == 1
    assert skills.load(S, "a") == skills.load(Who.SESSION, Who.SKILL) == [private("x", 1)]
    assert skills.end_session(Who.SESSION) == 1


def test_errors_of_unreadable_values_name_the_memory(store: Any) -> None:
    skills = store.skill_memory()
    skills.save(S, "a", [private("x", 1)])
    zone = {"$datetime": ["2026-01-01T00:00:00+00:00", "Mars/Olympus", 0]}
    store["skill_memory"].update_many({"name": "x"}, {"$set": {"value": {"at": 1}}})
    store["skill_memory"].update_many({"name": "x"}, [{"$set": {"value": {"$literal": zone}}}])
    with pytest.raises(InvalidBody, match="at 'x': cannot be read: .* Mars/Olympus"):
        skills.load(S, "a")
    assert skills.save(S, "a", []) == 1


def test_options_are_checked(store: Any) -> None:
    policies: list[Any] = ["everyone", None, 5, []]
    for policy in policies:
        with pytest.raises(
            InvalidOption, match="policy: must be 'creator' or 'anyone' or 'raise', got "
        ):
            store.skill_memory(policy=policy)
    with pytest.raises(InvalidOption, match="model"):
        store.skill_memory(model=5)
    with pytest.raises(InvalidOption, match="ttl"):
        store.skill_memory(ttl=-1)
    with pytest.raises(InvalidName):
        store.skill_memory(collection="a-b")


# -- concurrency ---------------------------------------------------------------------------------


def test_skill_memory_in_a_transaction(store: Any) -> None:
    store.skill_memory().save(S, "a", [public("x", 1)])
    with pytest.raises(LookupError), store.transaction() as tx:
        skills = tx.skill_memory(policy="raise")
        assert skills.save(S, "a", [public("x", 2), private("y", 1)]) == 2
        assert skills.load(S, "a") == [public("x", 2), private("y", 1)]
        with pytest.raises(NotTheCreator):
            skills.save(S, "b", [public("x", 3), private("y", 1)])
        assert skills.load(S, "b") == [public("x", 2)]
        raise LookupError
    assert store.skill_memory().load(S, "a") == [public("x", 1)]
    with store.transaction() as tx:
        assert tx.skill_memory().end_session(S) == 1
    assert store.skill_memory().load(S, "a") == []


def test_concurrent_saves_of_skills_lose_nothing(open_store: Opener, backend: Backend) -> None:
    """Each skill creates memories one after the other, and all compete to create the same public ones."""
    names, rounds = [f"skill {number}" for number in range(6)], 8

    def given(skill: str, round: int) -> list[Any]:
        shared = [public(f"shared {number}", skill) for number in range(round + 1)]
        return [
            private("turn", round),
            *[public(f"{skill}, {n}", n) for n in range(round)],
            *shared,
        ]

    store = _all_at_once(open_store, backend, names, rounds, given)
    found = {name: store.skill_memory().load(S, name) for name in names}
    shared = {each["name"]: each["value"] for each in found[names[0]] if "shared" in each["name"]}
    assert len(shared) == rounds
    for name in names:
        assert [each for each in found[name] if each["scope"] == "PRIVATE"] == [
            private("turn", rounds - 1)
        ]
        mine = {each["name"] for each in found[name] if each["name"].startswith(f"{name}, ")}
        assert mine == {f"{name}, {n}" for n in range(rounds - 1)}
    for each, creator in shared.items():  # the first creator stays the creator
        assert store.skill_memory().save(S, creator, [public(each, "mine")]) > 0


def _all_at_once(
    opener: Opener, backend: Backend, names: list[str], rounds: int, given: Any
) -> Any:
    """Let skills save in rounds, each in its own thread or task; return the store."""
    if opener.variant == "async":
        store = opener()
        skills = store._target.skill_memory()

        async def talk(name: str) -> None:
            for round in range(rounds):
                await skills.save(S, name, given(name, round))

        async def main() -> None:
            await asyncio.gather(*map(talk, names))

        opener._runner.run(main())
        return store
    stores = [opener() for _ in range(1 if backend.is_private else 2)]
    barrier = threading.Barrier(len(names))

    def speak(number: int) -> None:
        skills = stores[number % len(stores)].skill_memory()
        barrier.wait()
        for round in range(rounds):
            skills.save(S, names[number], given(names[number], round))

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(speak, range(len(names))))
    return stores[0]


def test_concurrent_saves_of_one_skill_have_one_winner(shared_backend: Backend) -> None:
    """Private memories come from one response, never from several."""
    with Store(shared_backend.url, **shared_backend.options) as store:
        skills = store.skill_memory()

        def respond(number: int) -> None:
            skills.save(S, "a", [private(f"{number}.{part}", part) for part in range(3)])

        for _ in range(10):
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(respond, range(4)))
            found = skills.load(S, "a")
            assert len(found) == 3
            assert len({each["name"].partition(".")[0] for each in found}) == 1
            skills.end_session(S)


def test_a_session_that_ends_during_a_save_is_complete_or_deleted(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options) as store:
        skills = store.skill_memory()
        for number in range(20):
            skills.save(S, "a", [private("x", 0)])
            with ThreadPoolExecutor(2) as pool:
                ending = pool.submit(skills.end_session, S)
                pool.submit(skills.save, S, "a", [private("x", 1), public("y", number)]).result()
                ended = ending.result()
            left = skills.load(S, "a")
            assert (ended, left) in [
                (1, [private("x", 1), public("y", number)]),
                (2, []),
            ]
            assert store["skill_memory"].count() == (3 if left else 0)
            skills.end_session(S)


def test_a_cancelled_save_is_atomic(shared_backend: Backend) -> None:
    async def main() -> None:
        async with AsyncStore(shared_backend.url, **shared_backend.options) as store:
            skills = store.skill_memory()
            for number in range(20):
                given = [private("x", number), public("y", number)]
                task = asyncio.ensure_future(skills.save(S, "a", given))
                await asyncio.sleep(0.0001 * number)
                task.cancel()
                await asyncio.wait([task])
                values = {each["value"] for each in await skills.load(S, "a")}
                assert len(values) <= 1

    asyncio.run(main())


def test_a_lost_race_in_a_transaction_of_the_caller_is_a_conflict(
    postgres_backend: Backend,
) -> None:
    """With "read committed" nothing else reports the race; the caller repeats the transaction."""
    with Store(postgres_backend.url, **postgres_backend.options) as store:
        skills = store.skill_memory()
        skills.save(S, "a", [private("x", 0)])
        engine = sa.create_engine(
            sa.make_url(postgres_backend.url).set(drivername="postgresql+psycopg"),
            isolation_level="READ COMMITTED",
        )
        saved = threading.Event()

        def save() -> None:
            with engine.begin() as connection:
                store.bind(connection).skill_memory().save(S, "a", [private("y", 1)])
                saved.set()
                time.sleep(0.2)  # the other thread reads before and writes after the COMMIT

        with engine.connect() as connection, ThreadPoolExecutor(1) as pool:
            store.bind(connection).skill_memory().load(S, "a")
            saving = pool.submit(save)
            saved.wait()
            with pytest.raises(TransactionConflict, match="'session 1'"):
                store.bind(connection).skill_memory().save(S, "a", [private("z", 1)])
            saving.result()
        engine.dispose()
        assert skills.load(S, "a") == [private("y", 1)]


# -- search --------------------------------------------------------------------------------------


def test_a_search_finds_what_the_skill_loads(skills: Any, store: Any) -> None:
    store["skill_memory"].create_text_index({"name": 1, "value": 2, "value.text": 2})
    skills.save(
        S,
        "bar",
        [private("secret", "green tea"), public("drink", {"text": "tea"}), public("at", "5 tea")],
    )
    skills.save(S, "shop", [private("cup", "a cup of tea"), public("other", "milk")])
    skills.save("session 2", "bar", [public("elsewhere", "tea")])

    def names(skill: str, query: str, **options: Any) -> list[str]:
        return [each["name"] for each in skills.search(S, skill, query, **options)]

    assert sorted(names("bar", "tea")) == ["at", "drink", "secret"]
    assert sorted(names("shop", "tea")) == ["at", "cup", "drink"]
    assert sorted(names("weather", "tea")) == ["at", "drink"]
    assert names("bar", "cup") == names("shop", "secret") == []
    assert len(names("bar", "tea", limit=2)) == 2
    assert sorted(names("bar", "milk OR -tea?", match="any")) == ["at", "drink", "other", "secret"]
    assert skills.search(S, "shop", "milk") == [public("other", "milk")]
    skills.end_session(S)
    assert names("bar", "tea") == []


def test_a_search_of_skills_needs_a_text_index(skills: Any) -> None:
    skills.save(S, "bar", [private("drink", "tea")])
    with pytest.raises(InvalidSearch, match="create_text_index"):
        skills.search(S, "bar", "tea")
