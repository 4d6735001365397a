"""Attaching a store to an agent: its storage, its dialogues, and AEA's registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from aea.aea import AEA
from aea.helpers.storage import generic_storage
from aea.protocols.dialogue.base import DialogueLabel, Dialogues, PersistDialoguesStorage
from aea.runtime import BaseRuntime
from aea.skills.base import SkillComponent

from ... import Collection, Document, InvalidOption, Store
from ...dialogues import DialogueLabel as Label
from ...dialogues import DialogueOptions
from .dialogues import LOG, PersistentDialogues, label_of
from .formats import decoded, is_name, name_of
from .storage import SCHEMES, CollectionsBackend, Storage, is_ours, read_uri

_LABELS: Final = PersistDialoguesStorage.INCOMPLETE_DIALOGUES_OBJECT_NAME
_TERMINAL: Final = PersistDialoguesStorage.TERMINAL_STATE_DIALOGUES_COLLECTTION_SUFFIX


def attach(
    aea: AEA,
    store: Store | None = None,
    *,
    terminal_ttl: float | timedelta | None = None,
    terminal_kept: int | None = None,
) -> int:
    """Persist an agent's dialogues message by message, and use the same store for the agent's storage; return the
    number of `Dialogues` found until now.

    Call `attach` after the agent is built, before the start. The function finds `Dialogues` as components of skills and as
    attributes of components, and looks again at the start. Each message is committed before `create`, `update` or
    `reply` returns. Without `store`, the agent's `storage_uri` must be for this package. A given store stays open
    when the agent stops.

    `terminal_ttl`, `terminal_kept`: how long, in seconds or as a timedelta, and how many terminal dialogues are kept.
    Raises `InvalidOption`.
    """
    options = DialogueOptions(terminal_ttl=terminal_ttl, terminal_kept=terminal_kept)
    storage = _storage_of(aea, store)
    storage.before_connected(lambda: _attach_all(aea, storage, options))
    return _attach_all(aea, storage, options)


def register() -> None:
    """Let AEA understand `storage_uri: collections+sqlite:///file.db`, and `collections+postgresql://…`.

    AEA's command line (`aea`) does this for every installed package. Other programs call `register` before building an agent;
    a second call does nothing.
    """
    backends: Any = generic_storage.BACKENDS
    backends.update(dict.fromkeys(SCHEMES, CollectionsBackend))
    runtime: Any = BaseRuntime
    runtime._get_storage = staticmethod(_new_storage_of)


_original_get_storage = BaseRuntime._get_storage


def _new_storage_of(agent: Any) -> generic_storage.Storage | None:
    """Return the storage for a new agent."""
    if not is_ours(agent.storage_uri):
        return _original_get_storage(agent)
    storage = Storage(agent.storage_uri, threaded=True)
    if read_uri(agent.storage_uri).attached:
        storage.before_connected(lambda: _attach_all(agent, storage, DialogueOptions()))
    return storage


def _storage_of(aea: AEA, store: Store | None) -> Storage:
    runtime: Any = aea.runtime
    storage, given = runtime.storage, store
    if store is None:
        if isinstance(storage, Storage):
            return storage
        problem = "pass one, or give the agent a storage_uri: collections+sqlite:///…"
        raise InvalidOption("store", problem)
    if not isinstance(given, Store):
        raise InvalidOption("store", f"must be Store, got {given!r}")
    if isinstance(storage, Storage) and storage._backend.is_over(store):
        return storage
    if storage is not None and storage.is_connected:
        raise InvalidOption("aea", "must not be running: attach before the start")
    runtime._storage = Storage(store, threaded=True)
    return runtime._storage  # type: ignore[no-any-return]


# -- the dialogues of an agent --------------------------------------------------------------------


def _attach_all(aea: AEA, storage: Storage, options: DialogueOptions) -> int:
    found = _dialogues_of(aea)
    for component, dialogues in found:
        _attach(dialogues, storage.open(), aea.identity.address, component, options)
    return len(found)


def _attach(
    dialogues: Dialogues, store: Store, agent: str, component: str, options: DialogueOptions
) -> None:
    before = dialogues._dialogues_storage
    if isinstance(before, PersistentDialogues):  # AEA's storage was started again
        before.move_to(store)
        return
    kept = dialogues.is_keep_dialogues_in_terminal_state
    options = replace(options, keep_terminal_state_dialogues=kept)
    after = PersistentDialogues(dialogues, store, agent, component, options)
    after.before_setup = partial(_take_over, _collections_of(before, store), after)
    patched: Any = dialogues
    patched._dialogues_storage = after
    for each in before.dialogues_in_active_state:
        each._terminal_state_callbacks.discard(before.dialogue_terminal_state_callback)
        after.add(each)
        after.store.save(each)


def _dialogues_of(aea: AEA) -> list[tuple[str, Dialogues]]:
    """Return each `Dialogues` once, with the name of its component, or else of the component with the attribute."""
    components: list[SkillComponent] = [
        each
        for skill in aea.resources.get_all_skills()
        for some in (skill.handlers, skill.behaviours, skill.models)
        for each in some.values()
    ]
    found: dict[int, tuple[str, Dialogues]] = {}
    for each in components:
        if isinstance(each, Dialogues):
            found[id(each)] = _name_of(each), each
    for each in components:
        for attribute, value in vars(each).items():
            if isinstance(value, Dialogues):
                name = _name_of(each, attribute, type(value).__name__)
                found.setdefault(id(value), (name, value))
    return list(found.values())


def _name_of(component: SkillComponent, *more: str) -> str:
    skill, kind = component.skill_id, type(component).__name__
    return "/".join([skill.author, skill.name, component.name, kind, *more])


# -- what AEA's own storage wrote -----------------------------------------------------------------


def _collections_of(before: Any, store: Store) -> list[Collection]:
    """Return the collections of AEA's own storage of dialogues: of active and of terminal dialogues."""
    name = before._get_collection_name() if isinstance(before, PersistDialoguesStorage) else None
    names = [] if name is None else [name, f"{name}{_TERMINAL}"]
    return [store[name_of(each)] for each in names if is_name(each)]


def _take_over(collections: list[Collection], storage: PersistentDialogues) -> None:
    """Move AEA's records, dialogue by dialogue. Bad records stay, with AEA's list of labels."""
    left = [
        (collection, each)
        for collection in collections
        for each in collection.list()
        if not _is_moved(storage, collection, each)
    ]
    if [each.id for _, each in left] == [_LABELS]:
        ((collection, labels),) = left
        for label in _labels_in(labels.body):
            if label.is_by_counterparty and not storage.store.is_known(label):
                storage.store.remove(label, remember=True)  # it must not begin again
        collection.remove(_LABELS)


def _is_moved(storage: PersistentDialogues, collection: Collection, found: Document) -> bool:
    if found.id == _LABELS:
        return False
    dialogues = storage._dialogues
    try:
        dialogue = dialogues.dialogue_class.from_json(dialogues.message_class, decoded(found.body))
        if not storage.store.is_known(label_of(dialogue.dialogue_label)):
            storage.store.save(dialogue)
    except Exception as error:  # noqa: BLE001 - of AEA's classes, and of any data
        LOG.warning("AEA's dialogue %r cannot be taken over: %r", found.id, error)
        return False
    collection.remove(found.id)
    return True


def _labels_in(body: Any) -> Iterator[Label]:
    """Yield the labels in AEA's list; other content is ignored."""
    for pair in decoded(body) if isinstance(body, list) else ():
        try:
            label = label_of(DialogueLabel.from_json(pair[0]))
        except Exception:  # noqa: BLE001 - of AEA's classes, and of any data
            continue
        yield label
