"""Soul Machines' SDK: the SDK's objects as memories of skills, and the SDK's functions, also for lists of dicts.

`skill_memory` is `Store.skill_memory` with the SDK's class `Memory`. The further functions have the names,
parameters and results of the functions in `smskillsdk.utils.memory` and `smskillsdk.utils.memory_values`. With a
list of the SDK's objects they call the SDK; with a list of dicts they work without the SDK. To an empty list they
add `model`, by default the SDK's `Memory`.

The SDK is imported on first use: `pip install 'collections-store[smskillsdk]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from .. import InvalidOption, MissingExtra
from .soul_machines import PRIVATE, PUBLIC, scope_of

if TYPE_CHECKING:
    from .. import AsyncStore, AsyncTransaction, Store, Transaction
    from .soul_machines import AsyncSkillMemory, SkillMemory


Model: TypeAlias = Callable[..., Any]
_IDENTITY: Final = ("firstName", "lastName", "preferredName", "id")
_LOCATION: Final = ("city", "country")


@overload
def skill_memory(store: Store | Transaction, **options: Any) -> SkillMemory: ...
@overload
def skill_memory(store: AsyncStore | AsyncTransaction, **options: Any) -> AsyncSkillMemory: ...
def skill_memory(store: Any, **options: Any) -> Any:
    """Return a store's memories of skills, which `load` returns as the SDK's `Memory`; `options` are those of
    `Store.skill_memory`. Raises `MissingExtra` if the SDK is not installed.
    """
    return store.skill_memory(**{"model": _sdk()[0].Memory, **options})


def get_memory_value(
    memories: Iterable[Any], key: str, session_id: str | None = None, scope: Any = None
) -> tuple[bool, Any]:
    """Return whether a memory fits, and the value of the first fitting memory.

    `session_id` None: of any session; `scope` None: of any. A memory without a scope is PRIVATE.
    """
    listed = list(memories)
    if _are_objects(listed):
        found: tuple[bool, Any] = _sdk()[0].get_memory_value(listed, key, session_id, _enum(scope))
        return found
    fitting = (each for each in _fitting(listed, session_id, scope) if each.get("name") == key)
    return next(((True, each.get("value")) for each in fitting), (False, None))


def set_memory_value(
    memories: list[Any],
    key: str,
    value: Any,
    session_id: str | None = None,
    scope: Any = PRIVATE,
    *,
    model: Model | None = None,
) -> None:
    """Set the value of all memories that fit, or add a memory to the list.

    Unlike in `get_memory_value`, `session_id` None fits only memories without a session.
    """
    if _are_objects(memories) or (not memories and model is None):
        _sdk()[0].set_memory_value(memories, key, value, session_id, _enum(scope))
        return
    fitting = [
        each
        for each in _fitting(memories, session_id, scope)
        if each.get("name") == key and each.get("session_id") == session_id
    ]
    for each in fitting:
        each["value"] = value
    if not fitting:
        make = dict if memories or model is None else model
        memories.append(make(name=key, value=value, session_id=session_id, scope=scope_of(scope)))


def serialize_memory(
    data: Mapping[str, Any],
    session_id: str | None = None,
    scope: Any = PRIVATE,
    *,
    model: Model | None = None,
) -> list[Any]:
    """Return a list with a memory for each key and value."""
    if model is None:
        memories: list[Any] = _sdk()[0].serialize_memory(data, session_id, _enum(scope))
        return memories
    parts = {"session_id": session_id, "scope": scope_of(scope)}
    return [model(name=key, value=value, **parts) for key, value in data.items()]


def deserialize_memory(
    memories: Iterable[Any], session_id: str | None = None, scope: Any = None
) -> dict[str, Any]:
    """Return a dict of names and values; of several memories with the same name, the last counts."""
    listed = list(memories)
    if _are_objects(listed):
        values: dict[str, Any] = _sdk()[0].deserialize_memory(listed, session_id, _enum(scope))
        return values
    fitting = _fitting(listed, session_id, scope)
    return {each.get("name"): each.get("value") for each in fitting}


def set_user_identity(
    memories: list[Any],
    *,
    first_name: str | None = None,
    last_name: str | None = None,
    preferred_name: str | None = None,
    id: str | None = None,
    model: Model | None = None,
) -> None:
    """Set fields of the PUBLIC memory `userIdentity`. Omitted and empty fields do not change."""
    given = dict(zip(_IDENTITY, (first_name, last_name, preferred_name, id), strict=True))
    _merge(memories, "userIdentity", given, model)


def get_user_identity(memories: Iterable[Any]) -> Any:
    """Return the SDK's `UserIdentity`, or a dict if the memories are dicts; None without such a memory."""
    listed = list(memories)
    if _are_objects(listed):
        return _sdk()[1].get_user_identity(listed)
    return _texts(get_memory_value(listed, "userIdentity", scope=PUBLIC)[1], _IDENTITY)


def set_user_location(
    memories: list[Any],
    *,
    city: str | None = None,
    country: str | None = None,
    model: Model | None = None,
) -> None:
    """Set fields of the PUBLIC memory `userLocation`. Omitted and empty fields do not change."""
    given = dict(zip(_LOCATION, (city, country), strict=True))
    _merge(memories, "userLocation", given, model)


def get_user_location(memories: Iterable[Any]) -> Any:
    """Return the SDK's `UserLocation`, or a dict if the memories are dicts; None without such a memory."""
    listed = list(memories)
    if _are_objects(listed):
        return _sdk()[1].get_user_location(listed)
    return _texts(get_memory_value(listed, "userLocation", scope=PUBLIC)[1], _LOCATION)


def _sdk() -> tuple[Any, Any]:
    """Return the SDK's modules `memory` and `memory_values`; raise `MissingExtra`."""
    try:
        from smskillsdk.utils import memory, memory_values
    except ImportError as error:
        raise MissingExtra("smskillsdk", "smskillsdk") from error
    return memory, memory_values


def _are_objects(memories: list[Any]) -> bool:
    """Return whether memories are the SDK's objects, not dicts."""
    return bool(memories) and not isinstance(memories[0], Mapping)


def _enum(scope: Any) -> Any:
    """Return a scope, possibly a string, as the SDK's `MemoryScope` or None; raise `InvalidOption`."""
    name = scope_of(scope)
    return None if name is None else _sdk()[0].MemoryScope(name)


def _fitting(memories: list[Any], session_id: str | None, scope: Any) -> list[Any]:
    """Return the dicts of a session and a scope; None: of any."""
    wanted = scope_of(scope)
    return [
        each
        for each in memories
        if session_id in (None, each.get("session_id"))
        and wanted in (None, scope_of(each.get("scope")) or PRIVATE)
    ]


def _merge(
    memories: list[Any], name: str, given: dict[str, str | None], model: Model | None
) -> None:
    """Merge fields as the SDK's `set_user_identity` and `set_user_location` do. Both call a method deprecated by
    pydantic 2, with a warning each time.
    """
    for key, value in given.items():
        if not isinstance(value, str | None):
            raise InvalidOption(key, f"must be a string, got {value!r}")
    found, known = get_memory_value(memories, name, scope=PUBLIC)
    if found:
        some = {key: value for key, value in given.items() if value}
        given = {**dict.fromkeys(given), **(_texts(known, tuple(given)) or {}), **some}
    set_memory_value(memories, name, given, scope=PUBLIC, model=model)


def _texts(value: Any, fields: tuple[str, ...]) -> dict[str, str | None] | None:
    """Return the fields of a value, missing fields as None; None unless all are strings."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return None
    texts = {field: value.get(field) for field in fields}
    return texts if all(isinstance(text, str | None) for text in texts.values()) else None
