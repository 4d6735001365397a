"""A plugin of alembic: `alembic revision --autogenerate` and `alembic check` ignore the tables of stores.

alembic 1.18 and newer load the plugin by its entry point, whose name alembic enables by default. Older versions
have no plugins: use `collections_store.migrate.include_name` instead.

The plugin recognizes a store by the columns of its catalogue and by its revision table, whatever the prefix. Tables
of your models are compared as usual.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..options import Names

_CATALOGUE: Final = "collections"
_COLUMNS: Final = {"number", "name", "table_name", "created_at"}
"""Of the catalogue, in every version."""


class _Plugin(ModuleType):
    """The object of the entry point. alembic 1.20 requires a module; 1.18 and 1.19 require an iterable of modules."""

    def __iter__(self) -> Iterator[ModuleType]:
        yield self

    def setup(self, plugin: Any) -> None:
        """Register the comparator; called by alembic."""
        from alembic.util import DispatchPriority

        plugin.add_autogenerate_comparator(
            _keep_tables, "autogenerate", priority=DispatchPriority.LAST
        )


plugin: Final = _Plugin(__name__)


def _keep_tables(_: Any, upgrade: Any) -> Any:
    """Remove the deletion of a store's tables from a migration."""
    from alembic.operations.ops import DropTableOp
    from alembic.util import PriorityDispatchResult

    dropped = [each for each in upgrade.ops if isinstance(each, DropTableOp)]
    stores = list(_stores(dropped))
    ours = {
        (each.schema, each.table_name)
        for each in dropped
        for schema, names in stores
        if each.schema == schema and names.owns(each.table_name)
    }
    upgrade.ops[:] = [
        each
        for each in upgrade.ops
        if (getattr(each, "schema", None), getattr(each, "table_name", None)) not in ours
    ]
    return PriorityDispatchResult.CONTINUE


def _stores(dropped: list[Any]) -> Iterator[tuple[str | None, Names]]:
    """Yield the schema and the names of each store among the tables without a model."""
    from .. import InvalidOption  # here: every import of alembic loads this module
    from ..options import Names

    tables = {(each.schema, each.table_name): each for each in dropped}
    for (schema, name), catalogue in tables.items():
        prefix = name.removesuffix(_CATALOGUE)
        if prefix == name:
            continue
        with suppress(InvalidOption):
            names = Names(prefix)
            columns = set(catalogue.to_table().columns.keys())
            if (schema, names.revision) in tables and columns >= _COLUMNS:
                yield schema, names
