"""Every verb of memories, in namespaces, sessions and transactions, while time passes: a memory does what a dict
would, on each database and sync and async.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from conftest import Clock, Opener
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from collections_store import InvalidOption, VersionConflict
from collections_store.memory import Entry

Scope: TypeAlias = tuple[str, ...]
SCOPES: dict[Scope, tuple[float, bool]] = {
    (): (math.inf, False),
    (":a",): (math.inf, False),
    (":a", ":b"): (math.inf, False),
    (";a",): (10, True),
    (";a", ":b"): (10, True),
    (";a", ";b"): (10, True),
    (";b",): (4, False),
    (":a name that is long",): (math.inf, False),
}
"""Namespaces (:) and sessions (;), for how long what is written in them lives, and whether that slides."""
WHERE = st.sampled_from([*SCOPES, *[(";a",)] * 6])
KEYS = st.sampled_from(["a", "a", "a", "a", "", "ab", "b", "1:a/a", "\U0010ffff"])
PREFIXES = st.sampled_from(["", "a", "b", "/", "\U0010ffff"])
VALUES = st.sampled_from([0, 1, 2, 2.5, "a", None, False, {1, 2}, {"$date": 1}, (1,), 2**64])
TTLS = st.sampled_from([None, None, None, 1, 5, 20, math.inf])


@dataclass
class Kept:
    """A value as the model has it; times are seconds."""

    value: Any
    version: int
    ttl: float
    until: float
    written: float

    def begin(self, now: float) -> None:
        self.until = now + self.ttl

    def slide(self, now: float, session: float) -> None:
        """Live on with the session, but no longer than a time of its own, which a read does not begin anew."""
        if self.ttl == session:
            self.begin(now)
        elif session < self.ttl < math.inf:
            self.until = min(max(self.written + self.ttl, self.until), now + session)


Told: TypeAlias = tuple[str, Any]


def told(call: Any) -> Told:
    try:
        found = call()
    except (VersionConflict, KeyError, InvalidOption) as error:
        return type(error).__name__, None
    return type(found).__name__, found


class Undone(Exception):
    """What ends a transaction that is to leave nothing."""


class Machine(RuleBasedStateMachine):
    """A memory, and what a dict says of it."""

    def __init__(self, opened: list[Any], opener: Opener, clock: Clock) -> None:
        """`opened` has the store of the previous run, unless that one failed."""
        super().__init__()
        self.opened, self.opener, self.clock = opened, opener, clock
        if not opened:
            opened.append(opener())
        self.root = opened[0].memory("bot")
        self.root.end()
        self.model: dict[tuple[Scope, str], Kept] = {}
        self.blocks: list[tuple[Any, Any, dict[tuple[Scope, str], Kept]]] = []

    @property
    def now(self) -> float:
        return self.clock.now / 1_000_000

    def memory(self, scope: Scope) -> Any:
        memory = self.blocks[-1][1] if self.blocks else self.root
        for name in scope:
            if name == ";b" and len(scope) == 1:
                memory = memory.session("b", ttl=4)
            elif name == ";a":
                memory = memory.session("a", ttl=10, sliding=True)
            else:
                memory = memory.session(name[1:]) if name[0] == ";" else memory.namespace(name[1:])
        return memory

    def kept(self, scope: Scope, key: str) -> Kept | None:
        found = self.model.get((scope, key))
        return found if found is not None and found.until > self.now else None

    def read(self, scope: Scope, key: str) -> Kept | None:
        found = self.kept(scope, key)
        if found is not None and SCOPES[scope][1]:
            found.slide(self.now, SCOPES[scope][0])
        return found

    def write(self, scope: Scope, key: str, value: Any, ttl: float | None) -> int:
        found = self.kept(scope, key)
        life = SCOPES[scope][0] if ttl is None else ttl
        version = 1 if found is None else found.version + 1
        kept = Kept(value, version, life, self.now + life, self.now)
        self.model[scope, key] = kept
        if SCOPES[scope][1]:
            kept.slide(self.now, SCOPES[scope][0])
        return version

    def there(self, scope: Scope, prefix: str = "") -> list[str]:
        keys = (key for where, key in self.model if where == scope and key.startswith(prefix))
        return sorted(key for key in keys if self.kept(scope, key))

    @initialize()
    def begin(self) -> None:
        assert self.root.count() == 0

    @rule(scope=WHERE, key=KEYS, value=VALUES, ttl=TTLS)
    def put(self, scope: Scope, key: str, value: Any, ttl: float | None) -> None:
        found = self.memory(scope).put(key, value, ttl=ttl)
        assert found == self.write(scope, key, value, ttl)

    @rule(scope=WHERE, key=KEYS, value=VALUES, version=st.sampled_from([None, 1, 2]))
    def put_if(self, scope: Scope, key: str, value: Any, version: int | None) -> None:
        how = {"if_absent": True} if version is None else {"if_version": version}
        found = told(lambda: self.memory(scope).put(key, value, **how))
        kept = self.kept(scope, key)
        if (kept and kept.version) == version:
            assert found == ("int", self.write(scope, key, value, None))
        else:
            assert found[0] == "VersionConflict"

    @rule(scope=WHERE, keys=st.lists(KEYS, max_size=3, unique=True), value=VALUES, ttl=TTLS)
    def put_many(self, scope: Scope, keys: list[str], value: Any, ttl: float | None) -> None:
        assert self.memory(scope).put_many(dict.fromkeys(keys, value), ttl=ttl) == len(keys)
        for key in keys:
            self.write(scope, key, value, ttl)

    @rule(scope=WHERE, key=KEYS)
    def get(self, scope: Scope, key: str) -> None:
        kept = self.read(scope, key)
        expected = (False, None) if kept is None else (True, kept.value)
        assert self.memory(scope).fetch(key) == expected
        assert self.memory(scope).get(key, "x") == (expected[1] if kept else "x")

    @rule(scope=WHERE, keys=st.lists(KEYS, max_size=3))
    def get_many(self, scope: Scope, keys: list[str]) -> None:
        kept = {key: self.read(scope, key) for key in keys}
        expected = {key: each.value for key, each in kept.items() if each is not None}
        assert self.memory(scope).get_many(keys) == expected

    @rule(scope=WHERE, key=KEYS, raises=st.booleans())
    def delete(self, scope: Scope, key: str, raises: bool) -> None:
        kept = self.kept(scope, key)
        self.model.pop((scope, key), None)
        if not raises:
            assert self.memory(scope).delete(key, "x") == (kept.value if kept else "x")
        elif kept is not None:
            assert self.memory(scope).pop(key) == kept.value
        else:
            assert told(lambda: self.memory(scope).pop(key))[0] == "DocumentNotFound"

    @rule(scope=WHERE, keys=st.lists(KEYS, max_size=3))
    def delete_many(self, scope: Scope, keys: list[str]) -> None:
        there = {key for key in keys if self.kept(scope, key)}
        assert self.memory(scope).delete_many(keys) == len(there)
        for key in keys:
            self.model.pop((scope, key), None)

    @rule(scope=WHERE, key=KEYS, by=st.sampled_from([1, -2, 0.5]))
    def increment(self, scope: Scope, key: str, by: float) -> None:
        found = told(lambda: self.memory(scope).increment(key, by, 10))
        kept = self.kept(scope, key)
        if kept is not None and type(kept.value) not in {int, float}:
            assert found[0] == "InvalidOption"
            return
        value = (kept.value if kept else 10) + by
        assert found == (type(value).__name__, value)
        self.changed(scope, key, value)

    @rule(scope=WHERE, key=KEYS, default=st.sampled_from([..., None, {1}]))
    def change(self, scope: Scope, key: str, default: Any) -> None:
        found = told(lambda: self.memory(scope).change(key, lambda v: (v,), default=default))
        kept = self.kept(scope, key)
        if kept is None and default is ...:
            assert found[0] == "DocumentNotFound"
            return
        value = (kept.value if kept else default,)
        assert found == ("tuple", value)
        self.changed(scope, key, value)

    def changed(self, scope: Scope, key: str, value: Any) -> None:
        kept = self.kept(scope, key)
        if kept is None:
            self.write(scope, key, value, None)
        else:
            kept.value, kept.version, kept.written = value, kept.version + 1, self.now
            self.read(scope, key)

    @rule(scope=WHERE, key=KEYS, ttl=TTLS)
    def touch(self, scope: Scope, key: str, ttl: float | None) -> None:
        memory, kept = self.memory(scope), self.kept(scope, key)
        found = memory.touch(key) if ttl is None else memory.expire(key, ttl)
        assert found == (kept is not None)
        if kept is not None:
            kept.ttl = kept.ttl if ttl is None else ttl
            kept.begin(self.now)

    @rule(scope=WHERE, prefix=PREFIXES)
    def clear(self, scope: Scope, prefix: str) -> None:
        there = self.there(scope, prefix)
        assert self.memory(scope).clear(prefix) == len(there)
        for key in there:
            del self.model[scope, key]

    @rule(scope=WHERE)
    def end(self, scope: Scope) -> None:
        within = [each for each in self.model if each[0][: len(scope)] == scope]
        there = sum(self.kept(*each) is not None for each in within)
        assert self.memory(scope).end() == there
        for each in within:
            del self.model[each]

    @rule(scope=WHERE, prefix=PREFIXES, after=st.none() | KEYS, limit=st.integers(1, 3))
    def page(self, scope: Scope, prefix: str, after: str | None, limit: int) -> None:
        there = [key for key in self.there(scope, prefix) if after is None or key > after]
        memory = self.memory(scope)
        assert memory.keys(prefix, after=after, limit=limit) == there[:limit]
        assert memory.count(prefix) == len(self.there(scope, prefix))

    @rule(seconds=st.sampled_from([1, 3, 6]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: len(self.blocks) < 2)
    @rule()
    def open_block(self) -> None:
        context = self.memory(()).transaction()
        within = context.__enter__()
        copies = {each: Kept(**vars(kept)) for each, kept in self.model.items()}
        self.blocks.append((context, within, copies))

    @precondition(lambda self: self.blocks)
    @rule(keep=st.booleans())
    def close_block(self, keep: bool) -> None:
        context, _, copies = self.blocks.pop()
        if keep:
            context.__exit__(None, None, None)
        else:
            with pytest.raises(Undone):
                if not context.__exit__(Undone, error := Undone(), None):
                    raise error
            self.model = copies

    @rule(scope=WHERE)
    def compare(self, scope: Scope) -> None:
        memory, there = self.memory(scope), self.there(scope)
        found = memory.items(limit=None)
        kept = [(key, self.kept(scope, key)) for key in there]
        assert found == [
            Entry(key, each.value, each.version, entry.expires_at)
            for (key, each), entry in zip(kept, found, strict=True)
            if each is not None
        ]
        lives = [each.until - self.now for _, each in kept if each is not None]
        assert [memory.ttl(key) for key in there] == pytest.approx(lives, abs=1e-3)

    def teardown(self) -> None:
        """Leave no value to the next run; after a failure no connection either."""
        succeeded = False
        try:
            while self.blocks:
                self.close_block(keep=True)
            for scope in SCOPES:
                self.compare(scope)
            succeeded = True
        finally:
            for context, _, _ in reversed(self.blocks):
                context.__exit__(Undone, Undone(), None)
            self.root.end()
            if not succeeded:
                self.opened.clear()
                self.opener.close_stores()


@pytest.mark.timeout(600)
def test_a_memory_behaves_like_a_dict(open_store: Opener, clock: Clock) -> None:
    quick = open_store.backend.is_private and open_store.variant == "sync"
    profile = settings(
        max_examples=150 if quick else 15,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    opened: list[Any] = []
    new: Any = lambda: Machine(opened, open_store, clock)  # noqa: E731 - it asks for a class
    run_state_machine_as_test(new, settings=profile)
