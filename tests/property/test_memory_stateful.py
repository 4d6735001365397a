"""Every method of memories, in namespaces, sessions and transactions, while time passes: a memory behaves like a dict,
on each database, sync and async.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from backends import Opener
from conftest import Clock
from hypothesis import settings
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
"""Namespaces (:) and sessions (;), their ttl, and whether it slides."""
WHERE = st.sampled_from([*SCOPES, *[(";a",)] * 6])
KEYS = st.sampled_from(["a", "a", "a", "a", "", "ab", "b", "1:a/a", "\U0010ffff"])
PREFIXES = st.sampled_from(["", "a", "b", "/", "\U0010ffff"])
VALUES = st.sampled_from([0, 1, 2, 2.5, "a", None, False, {1, 2}, {"$date": 1}, (1,), 2**64])
TTLS = st.sampled_from([None, None, None, 1, 5, 20, math.inf])


@dataclass
class Value:
    """A value of the model; times are seconds."""

    value: Any
    version: int
    ttl: float
    until: float
    written: float

    def begin(self, now: float) -> None:
        self.until = now + self.ttl

    def slide(self, now: float, session: float) -> None:
        """Extend the expiry with the session, but not beyond the value's own ttl, which reads do not restart."""
        if self.ttl == session:
            self.begin(now)
        elif session < self.ttl < math.inf:
            self.until = min(max(self.written + self.ttl, self.until), now + session)


Outcome: TypeAlias = tuple[str, Any]


def outcome(call: Any) -> Outcome:
    try:
        found = call()
    except (VersionConflict, KeyError, InvalidOption) as error:
        return type(error).__name__, None
    return type(found).__name__, found


class RolledBack(Exception):
    """Raised to roll back a transaction."""


class Machine(RuleBasedStateMachine):
    """A memory and its model."""

    def __init__(self, opened: list[Any], opener: Opener, clock: Clock) -> None:
        """`opened` contains the store of the previous run, unless that failed."""
        super().__init__()
        self.opened, self.opener, self.clock = opened, opener, clock
        if not opened:
            opened.append(opener())
        self.root = opened[0].memory("bot")
        self.root.end()
        self.model: dict[tuple[Scope, str], Value] = {}
        self.blocks: list[tuple[Any, Any, dict[tuple[Scope, str], Value]]] = []

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

    def stored(self, scope: Scope, key: str) -> Value | None:
        found = self.model.get((scope, key))
        return found if found is not None and found.until > self.now else None

    def read(self, scope: Scope, key: str) -> Value | None:
        found = self.stored(scope, key)
        if found is not None and SCOPES[scope][1]:
            found.slide(self.now, SCOPES[scope][0])
        return found

    def write(self, scope: Scope, key: str, value: Any, ttl: float | None) -> int:
        found = self.stored(scope, key)
        life = SCOPES[scope][0] if ttl is None else ttl
        version = 1 if found is None else found.version + 1
        stored = Value(value, version, life, self.now + life, self.now)
        self.model[scope, key] = stored
        if SCOPES[scope][1]:
            stored.slide(self.now, SCOPES[scope][0])
        return version

    def there(self, scope: Scope, prefix: str = "") -> list[str]:
        keys = (key for where, key in self.model if where == scope and key.startswith(prefix))
        return sorted(key for key in keys if self.stored(scope, key))

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
        found = outcome(lambda: self.memory(scope).put(key, value, **how))
        stored = self.stored(scope, key)
        if (stored and stored.version) == version:
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
        stored = self.read(scope, key)
        expected = (False, None) if stored is None else (True, stored.value)
        assert self.memory(scope).fetch(key) == expected
        assert self.memory(scope).get(key, "x") == (expected[1] if stored else "x")

    @rule(scope=WHERE, keys=st.lists(KEYS, max_size=3))
    def get_many(self, scope: Scope, keys: list[str]) -> None:
        stored = {key: self.read(scope, key) for key in keys}
        expected = {key: each.value for key, each in stored.items() if each is not None}
        assert self.memory(scope).get_many(keys) == expected

    @rule(scope=WHERE, key=KEYS, raises=st.booleans())
    def delete(self, scope: Scope, key: str, raises: bool) -> None:
        stored = self.stored(scope, key)
        self.model.pop((scope, key), None)
        if not raises:
            assert self.memory(scope).delete(key, "x") == (stored.value if stored else "x")
        elif stored is not None:
            assert self.memory(scope).pop(key) == stored.value
        else:
            assert outcome(lambda: self.memory(scope).pop(key))[0] == "DocumentNotFound"

    @rule(scope=WHERE, keys=st.lists(KEYS, max_size=3))
    def delete_many(self, scope: Scope, keys: list[str]) -> None:
        there = {key for key in keys if self.stored(scope, key)}
        assert self.memory(scope).delete_many(keys) == len(there)
        for key in keys:
            self.model.pop((scope, key), None)

    @rule(scope=WHERE, key=KEYS, by=st.sampled_from([1, -2, 0.5]))
    def increment(self, scope: Scope, key: str, by: float) -> None:
        found = outcome(lambda: self.memory(scope).increment(key, by, 10))
        stored = self.stored(scope, key)
        if stored is not None and type(stored.value) not in {int, float}:
            assert found[0] == "InvalidOption"
            return
        value = (stored.value if stored else 10) + by
        assert found == (type(value).__name__, value)
        self.changed(scope, key, value)

    @rule(scope=WHERE, key=KEYS, default=st.sampled_from([..., None, {1}]))
    def change(self, scope: Scope, key: str, default: Any) -> None:
        found = outcome(lambda: self.memory(scope).change(key, lambda v: (v,), default=default))
        stored = self.stored(scope, key)
        if stored is None and default is ...:
            assert found[0] == "DocumentNotFound"
            return
        value = (stored.value if stored else default,)
        assert found == ("tuple", value)
        self.changed(scope, key, value)

    def changed(self, scope: Scope, key: str, value: Any) -> None:
        stored = self.stored(scope, key)
        if stored is None:
            self.write(scope, key, value, None)
        else:
            stored.value, stored.version, stored.written = value, stored.version + 1, self.now
            self.read(scope, key)

    @rule(scope=WHERE, key=KEYS, ttl=TTLS)
    def touch(self, scope: Scope, key: str, ttl: float | None) -> None:
        memory, stored = self.memory(scope), self.stored(scope, key)
        found = memory.touch(key) if ttl is None else memory.expire(key, ttl)
        assert found == (stored is not None)
        if stored is not None:
            stored.ttl = stored.ttl if ttl is None else ttl
            stored.begin(self.now)

    @rule(scope=WHERE, prefix=PREFIXES)
    def clear(self, scope: Scope, prefix: str) -> None:
        there = self.there(scope, prefix)
        assert self.memory(scope).clear(prefix) == len(there)
        for key in there:
            del self.model[scope, key]

    @rule(scope=WHERE)
    def end(self, scope: Scope) -> None:
        within = [each for each in self.model if each[0][: len(scope)] == scope]
        there = sum(self.stored(*each) is not None for each in within)
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
    def advance_clock(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: len(self.blocks) < 2)
    @rule()
    def open_block(self) -> None:
        context = self.memory(()).transaction()
        within = context.__enter__()
        copies = {each: Value(**vars(stored)) for each, stored in self.model.items()}
        self.blocks.append((context, within, copies))

    @precondition(lambda self: self.blocks)
    @rule(keep=st.booleans())
    def close_block(self, keep: bool) -> None:
        context, _, copies = self.blocks.pop()
        if keep:
            context.__exit__(None, None, None)
        else:
            with pytest.raises(RolledBack):
                if not context.__exit__(RolledBack, error := RolledBack(), None):
                    raise error
            self.model = copies

    @rule(scope=WHERE)
    def compare(self, scope: Scope) -> None:
        memory, there = self.memory(scope), self.there(scope)
        found = memory.items(limit=None)
        stored = [(key, self.stored(scope, key)) for key in there]
        assert found == [
            Entry(key, each.value, each.version, entry.expires_at)
            for (key, each), entry in zip(stored, found, strict=True)
            if each is not None
        ]
        lives = [each.until - self.now for _, each in stored if each is not None]
        assert [memory.ttl(key) for key in there] == pytest.approx(lives, abs=1e-3)

    def teardown(self) -> None:
        """Delete all values; after a failure close the store too."""
        succeeded = False
        try:
            while self.blocks:
                self.close_block(keep=True)
            for scope in SCOPES:
                self.compare(scope)
            succeeded = True
        finally:
            for context, _, _ in reversed(self.blocks):
                context.__exit__(RolledBack, RolledBack(), None)
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
        report_multiple_bugs=False,
    )
    opened: list[Any] = []
    new: Any = lambda: Machine(opened, open_store, clock)  # noqa: E731 - a class is needed
    run_state_machine_as_test(new, settings=profile)
