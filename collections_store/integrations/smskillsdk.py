"""Soul Machines' SDK: its objects as memories of skills, and its functions for lists of dicts too.

`skill_memory` is `Store.skill_memory` with the SDK's class `Memory`. The other functions are those of
`smskillsdk.utils.memory` and `smskillsdk.utils.memory_values`, with the same names, parameters and results. They work
on lists of the SDK's objects, and without the SDK on lists of dicts. A function adds to a list what is in it already,
and to an empty list `model`, by default the SDK's `Memory`.

The SDK is imported when it is used: `pip install 'collections-store[smskillsdk]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
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
    return store.skill_memory(**{"model": _sdk().Memory, **options})


def get_memory_value(
    memories: Iterable[Any], key: str, session_id: str | None = None, scope: Any = None
) -> tuple[bool, Any]:
    """Return whether there is a memory, and the value of the first one.

    `session_id` None: of any session; `scope` None: of any. A memory without a scope is PRIVATE.
    """
    wanted = scope_of(scope)
    for memory in memories:
        if _fits(memory, session_id, wanted) and _part(memory, "name") == key:
            return True, _part(memory, "value")
    return False, None


def set_memory_value(
    memories: list[Any],
    key: str,
    value: Any,
    session_id: str | None = None,
    scope: Any = PRIVATE,
    *,
    model: Model | None = None,
) -> None:
    """Set the value of all memories that fit, or add one to the list.

    Unlike in `get_memory_value`, `session_id` None fits only memories without one.
    """
    wanted, found = scope_of(scope), False
    for memory in memories:
        same = _part(memory, "session_id") == session_id and _fits(memory, session_id, wanted)
        if same and _part(memory, "name") == key:
            _set_value(memory, value)
            found = True
    if not found:
        make = _model_of(memories, model)
        memories.append(make(name=key, value=value, session_id=session_id, scope=wanted))


def serialize_memory(
    data: Mapping[str, Any],
    session_id: str | None = None,
    scope: Any = PRIVATE,
    *,
    model: Model | None = None,
) -> list[Any]:
    """Return a list with a memory for each key and value."""
    make, shown = _model_of((), model), scope_of(scope)
    return [
        make(name=key, value=value, session_id=session_id, scope=shown)
        for key, value in data.items()
    ]


def deserialize_memory(
    memories: Iterable[Any], session_id: str | None = None, scope: Any = None
) -> dict[str, Any]:
    """Return a dict of names and values; the last of several with one name counts."""
    wanted = scope_of(scope)
    fitting = (each for each in memories if _fits(each, session_id, wanted))
    return {_part(each, "name"): _part(each, "value") for each in fitting}


def set_user_identity(
    memories: list[Any],
    *,
    first_name: str | None = None,
    last_name: str | None = None,
    preferred_name: str | None = None,
    id: str | None = None,
    model: Model | None = None,
) -> None:
    """Set fields of the PUBLIC memory `userIdentity`; omitted and empty ones stay as they are."""
    given = dict(zip(_IDENTITY, (first_name, last_name, preferred_name, id), strict=True))
    _merge(memories, "userIdentity", given, model)


def get_user_identity(memories: Iterable[Any]) -> Any:
    """Return the SDK's `UserIdentity`, or a dict if the memory is one; None: there is none."""
    return _known(memories, "userIdentity", _IDENTITY, "UserIdentity")


def set_user_location(
    memories: list[Any],
    *,
    city: str | None = None,
    country: str | None = None,
    model: Model | None = None,
) -> None:
    """Set fields of the PUBLIC memory `userLocation`; omitted and empty ones stay as they are."""
    given = dict(zip(_LOCATION, (city, country), strict=True))
    _merge(memories, "userLocation", given, model)


def get_user_location(memories: Iterable[Any]) -> Any:
    """Return the SDK's `UserLocation`, or a dict if the memory is one; None: there is none."""
    return _known(memories, "userLocation", _LOCATION, "UserLocation")


def _fits(memory: Any, session_id: str | None, scope: str | None) -> bool:
    if session_id is not None and _part(memory, "session_id") != session_id:
        return False
    return scope is None or (scope_of(_part(memory, "scope")) or PRIVATE) == scope


def _part(memory: Any, name: str) -> Any:
    return memory.get(name) if isinstance(memory, Mapping) else getattr(memory, name)


def _set_value(memory: Any, value: Any) -> None:
    if isinstance(memory, MutableMapping):
        memory["value"] = value
    else:
        memory.value = value


def _model_of(memories: Any, model: Model | None) -> Model:
    """Return the class of the list's first memory, or `model`."""
    for first in memories:
        return dict if isinstance(first, Mapping) else type(first)
    made: Model = _sdk().Memory if model is None else model
    return made


def _merge(
    memories: list[Any], name: str, given: dict[str, str | None], model: Model | None
) -> None:
    for key, value in given.items():
        if not isinstance(value, str | None):
            raise InvalidOption(key, f"must be a string, got {value!r}")
    found, known = get_memory_value(memories, name, scope=PUBLIC)
    if found:
        some = {key: value for key, value in given.items() if value}
        given = {**dict.fromkeys(given), **(_texts(known, tuple(given)) or {}), **some}
    set_memory_value(memories, name, given, scope=PUBLIC, model=model)


def _known(memories: Iterable[Any], name: str, fields: tuple[str, ...], kind: str) -> Any:
    """Return the fields of a memory, as the SDK's class `kind` unless the memory is a dict."""
    for memory in memories:
        if _fits(memory, None, PUBLIC) and _part(memory, "name") == name:
            texts = _texts(_part(memory, "value"), fields)
            if texts is None or isinstance(memory, Mapping):
                return texts
            return getattr(_sdk(), kind)(**texts)
    return None


def _sdk() -> Any:
    """Return the module of the SDK with all names that are used; raises `MissingExtra`."""
    try:
        from smskillsdk.utils import memory_values
    except ImportError as error:
        raise MissingExtra("smskillsdk", "smskillsdk") from error
    return memory_values


def _texts(value: Any, fields: tuple[str, ...]) -> dict[str, str | None] | None:
    """Return the fields of a value, missing ones as None; None if one is no string."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return None
    texts = {field: value.get(field) for field in fields}
    return texts if all(isinstance(text, str | None) for text in texts.values()) else None
