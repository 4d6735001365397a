"""Database of opsdroid: the memory of a bot, in a store.

opsdroid finds this module by the entry point `collections_store`, or by `module:` in the configuration. With
`module:`, opsdroid executes a private copy, and instantiates each `Database` subclass in the copy, imported
subclasses too: the module must have exactly one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from numbers import Real
from pathlib import Path
from typing import Any, Final

from .. import AsyncStore, InvalidOption, MissingExtra, StoreClosed
from ..memory import AsyncMemory
from ..options import option_types

try:
    from opsdroid import const
    from opsdroid import database as databases
except ImportError as error:
    raise MissingExtra("opsdroid", "opsdroid") from error

_FILE: Final = "collections_store.db"
_STORE_SCHEMA: Final[dict[str, Any]] = {
    option: Real if kind is float else kind for option, kind in option_types().items()
}
CONFIG_SCHEMA: Final[dict[str, Any]] = {"url": str, "namespace": str, **_STORE_SCHEMA}
"""The types of the options; opsdroid checks them before it makes the database."""
_LOADER: Final = frozenset({
    "name", "module", "type", "enabled", "entrypoint", "is_builtin", "module_path", "install_path",
    "branch", "no-cache", "no-dep",
})  # fmt: skip
"""Options that opsdroid itself adds to a configuration."""
_scopes: ContextVar[tuple[_Bound, ...]] = ContextVar("collections_store.opsdroid", default=())
"""The bindings of a task; the last one of a database counts. A new task inherits them."""


class DatabaseCollectionsStore(databases.Database):  # type: ignore[misc]
    """A database of opsdroid, on a store.

    Configuration: `url` is the URL of the store, by default a file `collections_store.db` in opsdroid's folder;
    `namespace` is the namespace of the memory, by default "opsdroid"; all options of `Store` except `engine` and
    `default`. The database has the name of its configuration. Values keep their types: see `Memory`.
    """

    client: AsyncStore | None
    database: AsyncMemory | None

    def __init__(self, config: dict[str, Any], opsdroid: Any = None) -> None:
        super().__init__(config, opsdroid=opsdroid)
        self.name = config.get("name", "collections_store")
        for option in sorted(config.keys() - CONFIG_SCHEMA.keys() - _LOADER, key=str):
            known = ", ".join(CONFIG_SCHEMA)
            raise InvalidOption(option, f"the database {self.name!r} takes {known}")

    async def connect(self) -> None:
        """Open the store and read from the database. Raise the errors of `Store`; then opsdroid does not start."""
        if self.client is not None:
            return
        options = {name: self.config[name] for name in _STORE_SCHEMA if name in self.config}
        try:
            url = self.config["url"] if "url" in self.config else _own_file()
            self.client = AsyncStore(url, **options)
            self.database = self.client.memory(self.config.get("namespace", "opsdroid"))
            await self.database.fetch("")
        except BaseException as error:
            error.add_note(f"in opsdroid's database {self.name!r}")
            await self.disconnect()
            raise

    async def disconnect(self) -> None:
        """Close the store, if open."""
        client, self.client, self.database = self.client, None, None
        if client is not None:
            await client.aclose()

    async def put(self, key: str, data: Any) -> bool:
        """Write a value under a key; return True."""
        await self.memory.put(key, data)
        return True

    async def get(self, key: str) -> Any:
        """Return the value under a key, or None."""
        return await self.memory.get(key)

    async def delete(self, key: str) -> Any:
        """Delete the value under a key and return it, or None."""
        return await self.memory.delete(key)

    @property
    def memory(self) -> AsyncMemory:
        """The `AsyncMemory` bound to the current task; raises `StoreClosed`."""
        root = self._root()
        bound = (each.memory for each in reversed(_scopes.get()) if each.database is self)
        return next(bound, root)

    def memory_in(self, *names: str) -> AbstractContextManager[AsyncMemory]:
        """Bind the current task to a namespace, such as `memory_in("room", "42", "user", "ada")`. In the `with`
        block `opsdroid.memory` uses the namespace, in this task and in tasks created in the block. `with` returns
        the memory. Raise `InvalidOption` and `StoreClosed`.
        """
        return _Bound(self, self._root().namespace(*names))

    def memory_in_room(self, room: Any) -> AbstractContextManager[AsyncMemory]:
        """Bind the current task to the memory of a room, a message's `target`: see `memory_in`.

        A room is a string or a number, a dict whose `id` is the room (Webex Teams), a reference whose
        `conversation.id` is the room (Teams), or None for connectors without rooms.
        """
        if room is None:
            return self.memory_in("room")
        name = _room_name(room)
        is_number = isinstance(name, int) and not isinstance(name, bool)
        return self.memory_in("room", str(name) if is_number else name)

    def _root(self) -> AsyncMemory:
        if self.database is None:
            raise StoreClosed(
                f"the database {self.name!r} is not connected: opsdroid does so when it starts, or "
                "call connect()"
            )
        return self.database


class _Bound(AbstractContextManager[AsyncMemory]):
    """Binds a task. A context manager made by `contextmanager` could also decorate a coroutine function, and would
    end before the coroutine runs.
    """

    def __init__(self, database: DatabaseCollectionsStore, memory: AsyncMemory) -> None:
        self.database, self.memory = database, memory

    def __enter__(self) -> AsyncMemory:
        _scopes.set((*_scopes.get(), self))
        return self.memory

    def __exit__(self, *error: object) -> None:
        _scopes.set(_scopes.get()[:-1])  # the blocks of a task are nested


def _room_name(target: Any) -> Any:
    """Return the stable part of a room's target, which differs between messages."""
    if isinstance(target, Mapping):
        return target.get("id", target)
    return getattr(getattr(target, "conversation", None), "id", target)


def _own_file() -> str:
    """Return the URL of the default file, in opsdroid's folder."""
    folder = Path(const.DEFAULT_ROOT_PATH)
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / _FILE}"
