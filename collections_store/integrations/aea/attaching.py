"""Attaching a store to an agent: its storage, its dialogues, and AEA's registry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from aea.aea import AEA
from aea.helpers.storage import generic_storage
from aea.protocols.dialogue.base import Dialogues
from aea.runtime import BaseRuntime
from aea.skills.base import Skill, SkillComponent

from ... import InvalidOption, Store
from .backend import SCHEMES, CollectionsBackend, is_ours, read_uri
from .dialogues import ComponentPlace, KeptDialogues, Retention, Written
from .storage import Storage


def attach(
    aea: AEA,
    store: Store | None = None,
    *,
    terminal_ttl: float | timedelta | None = None,
    terminal_kept: int | None = None,
) -> int:
    """Have an agent's dialogues kept as they go, and its storage in the same store; returns how many
    `Dialogues` there are by now.

    Call it when the agent is built and has not been started. The `Dialogues` are those that are components of
    its skills, or attributes of components; what comes before the start is found then. Each message is on the disk before
    `create`, `update` or `reply` returns. Without a `store` it is that of the agent's `storage_uri`, which then has to
    be one of ours. A store that is given stays open when the agent stops.

    `terminal_ttl`, `terminal_kept`: how long, in seconds or as a timedelta, and how many dialogues are
    kept that have ended. Raises `InvalidOption`.
    """
    retention = Retention(terminal_ttl, terminal_kept)
    storage = _storage_of(aea, store)
    storage.before_connected(lambda: take_all(aea, storage, retention))
    return take_all(aea, storage, retention)


def component_of(component: SkillComponent, dialogues: Dialogues, attribute: str = "") -> str:
    """Return the name under which a component's dialogues are kept."""
    skill, own = component.skill_id, type(component).__name__
    parts = [skill.author, skill.name, component.name, own]
    if attribute:
        parts += [attribute, type(dialogues).__name__]
    return "/".join(parts)


def _storage_of(aea: AEA, store: Store | None) -> Storage:
    runtime: Any = aea.runtime
    storage = runtime.storage
    if store is None:
        if isinstance(storage, Storage):
            return storage
        raise InvalidOption(
            "store", "give one, or the agent a storage_uri: collections+sqlite:///…"
        )
    given: Any = store
    if not isinstance(given, Store):
        raise InvalidOption("store", f"{given!r} is no Store")
    if isinstance(storage, Storage) and storage._backend.is_over(store):
        return storage
    if storage is not None and storage.is_connected:
        raise InvalidOption("aea", "it is running: attach before it is started")
    runtime._storage = Storage(store, threaded=True)
    return runtime._storage  # type: ignore[no-any-return]


def take_all(aea: AEA, storage: Storage, retention: Retention) -> int:
    """Have each `Dialogues` of the agent keep what is said in it."""
    found = _dialogues_of(aea)
    for name, dialogues in found:
        _take(dialogues, storage.open(), aea.identity.address, name, retention)
    return len(found)


def _take(
    dialogues: Dialogues, store: Store, agent: str, component: str, retention: Retention
) -> None:
    before = dialogues._dialogues_storage
    if isinstance(before, KeptDialogues):  # the storage was started again, over another store
        before.move_to(store)
        return
    changed: Any = dialogues
    written, place = Written.of(dialogues, before, store), ComponentPlace(store, agent, component)
    changed._dialogues_storage = after = KeptDialogues(dialogues, place, written, retention)
    for each in before.dialogues_in_active_state:
        each._terminal_state_callbacks.discard(before.dialogue_terminal_state_callback)
        after.add(each)
        after.store.save(each)


def _dialogues_of(aea: AEA) -> list[tuple[str, Dialogues]]:
    """Return each `Dialogues` once, with its name: as a component if it is one, whoever else has it as an attribute."""
    components = [each for skill in aea.resources.get_all_skills() for each in _components(skill)]
    found: dict[int, tuple[str, Dialogues]] = {}
    for each in components:
        if isinstance(each, Dialogues):
            found[id(each)] = component_of(each, each), each
    for each in components:
        for attribute, value in vars(each).items():
            if isinstance(value, Dialogues):
                named = component_of(each, value, attribute), value
                found.setdefault(id(value), named)
    return list(found.values())


def _components(skill: Skill) -> Iterator[SkillComponent]:
    for some in (skill.handlers, skill.behaviours, skill.models):
        yield from some.values()


_theirs = BaseRuntime._get_storage


def register() -> None:
    """Have AEA understand `storage_uri: collections+sqlite:///file.db`, and `collections+postgresql://…`.

    Whoever has an agent's command line (`aea`) needs not call it: installing this package is enough. Others call it
    before they build an agent. Doing so again does nothing.
    """
    backends: Any = generic_storage.BACKENDS
    backends.update(dict.fromkeys(SCHEMES, CollectionsBackend))
    runtime: Any = BaseRuntime
    runtime._get_storage = staticmethod(_new_storage_of)


def _new_storage_of(agent: Any) -> generic_storage.Storage | None:
    """Return the storage of an agent that is being built."""
    if not is_ours(agent.storage_uri):
        return _theirs(agent)
    storage = Storage(agent.storage_uri, threaded=True)
    if read_uri(agent.storage_uri).attached:
        storage.before_connected(lambda: take_all(agent, storage, Retention()))
    return storage
