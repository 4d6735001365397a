"""Reading the tables of other programs, which know nothing of this library."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ..frozen import frozen


@frozen
class HoldStill:
    """From here on, what a connection reads is as it was at one moment; `begin` is the database's word for that."""

    begin: str

    def __call__(self, connection: sa.Connection) -> None:
        """Begin."""
        connection.exec_driver_sql(self.begin)


@frozen
class ReadForeign:
    """All rows of these columns, in the order in which they lie there."""

    table: str
    columns: tuple[str, ...]

    def __call__(self, connection: sa.Connection) -> list[tuple[Any, ...]]:
        """Return the rows."""
        columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in self.columns]
        asked = sa.select(*columns).select_from(sa.table(self.table))
        return [tuple(row) for row in connection.execute(asked)]
