"""The protocol of approximate vector indexes: the column and the index by which a database finds near vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from ...query.vector_index import VectorIndex
from .text_search import Extension


class ApproximateIndexes(Extension, Protocol):
    """Approximate vector indexes, of an extension of the database."""

    prepare: str
    """The query that sets how thoroughly `nearest` searches in this transaction: it considers `:candidates` first."""

    def problem(self, index: VectorIndex) -> str | None:
        """Return why the extension has no such index; None: it has."""

    def column_type(self, index: VectorIndex) -> sa.types.TypeEngine[Any]:
        """Return the type of the column with the vectors of an index."""

    def value(self, index: VectorIndex, name: str) -> sa.ColumnElement[Any]:
        """Return the parameter of a name as a vector of an index."""

    def parameter(self, numbers: Sequence[float]) -> str:
        """Return the parameter of `value` for a vector."""

    def index_of(
        self, name: str, column: sa.Column[Any], where: sa.ColumnElement[bool], index: VectorIndex
    ) -> sa.Index:
        """Return the index over the column."""

    def distance(
        self, column: sa.Column[Any], value: sa.ColumnElement[Any], index: VectorIndex
    ) -> sa.ColumnElement[Any]:
        """Return the expression whose order the index knows."""
