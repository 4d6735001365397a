"""Approximate vector indexes of PostgreSQL: HNSW of the extension pgvector.

Vectors of the metric "cosine" have the length 1: the index compares them by their inner product, as 16-bit floats, which
takes half the memory. Other vectors may exceed 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from ....query.vector_index import VectorIndex
from ..approximate import ApproximateIndexes
from .compiler import quoted

_OPERATORS: Final = {"cosine": "<#>", "dot": "<#>", "l2": "<->"}
_CLASSES: Final = {"cosine": "halfvec_ip_ops", "dot": "vector_ip_ops", "l2": "vector_l2_ops"}
_MOST: Final = {"cosine": 4000, "dot": 2000, "l2": 2000}
"""The dimensions that pgvector indexes of 16-bit and 32-bit floats."""
_THOROUGH: Final = 128
"""Vectors that an insertion considers: with the default, 64, a search of a query that is far from all vectors misses twice as
many (measured).
"""


class _VectorType(sa.types.UserDefinedType[Any]):
    """A type of the extension, in its schema."""

    cache_ok = True

    def __init__(self, schema: str, name: str, dimensions: int) -> None:
        self.schema, self.name, self.dimensions = schema, name, dimensions

    def get_col_spec(self, **_: Any) -> str:
        return f"{quoted(self.schema)}.{self.name}({self.dimensions})"


class PgvectorIndexes(ApproximateIndexes):
    """HNSW indexes."""

    name = "vector"
    advice = "the extension pgvector 0.8 or newer"
    installer = "a superuser"
    probe = (
        "SELECT n.nspname, CAST(string_to_array(e.extversion, '.') AS INTEGER[]) >= ARRAY[0, 8], "
        "EXISTS (SELECT FROM pg_available_extensions AS a WHERE a.name = 'vector') "
        "FROM (SELECT 1) AS one LEFT JOIN pg_extension AS e ON e.extname = 'vector' "
        "LEFT JOIN pg_namespace AS n ON n.oid = e.extnamespace"
    )
    # the schema of a store may be dropped, with the extension and the indexes of all other stores
    install = "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public"
    prepare = (
        "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), "
        "set_config('hnsw.ef_search', CAST(CAST(%(candidates)s AS INTEGER) AS TEXT), true)"
    )

    def problem(self, index: VectorIndex) -> str | None:
        most = _MOST[index.metric]
        if index.dimensions <= most:
            return None
        return f"must be at most {most} for 'hnsw' with {index.metric!r}, got {index.dimensions}"

    def column_type(self, index: VectorIndex) -> sa.types.TypeEngine[Any]:
        name = "halfvec" if index.metric == "cosine" else "vector"
        return _VectorType(index.extension, name, index.dimensions)

    def value(self, index: VectorIndex, name: str) -> sa.ColumnElement[Any]:
        return sa.cast(sa.bindparam(name, type_=sa.Text), self.column_type(index))

    def parameter(self, numbers: Sequence[float]) -> str:
        return f"[{','.join(map(repr, numbers))}]"

    def index_of(
        self, name: str, column: sa.Column[Any], where: sa.ColumnElement[bool], index: VectorIndex
    ) -> sa.Index:
        classes = {column.name: f"{quoted(index.extension)}.{_CLASSES[index.metric]}"}
        options: dict[str, Any] = {"using": "hnsw", "ops": classes, "where": where}
        options["with"] = {"ef_construction": _THOROUGH}
        return sa.Index(
            name, column, **{f"postgresql_{key}": each for key, each in options.items()}
        )

    def distance(
        self, column: sa.Column[Any], value: sa.ColumnElement[Any], index: VectorIndex
    ) -> sa.ColumnElement[Any]:
        operator = f"OPERATOR({quoted(index.extension)}.{_OPERATORS[index.metric]})"
        return column.op(operator)(value)
