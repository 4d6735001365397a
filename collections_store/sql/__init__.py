"""Filters, sorts and documents as SQLAlchemy statements, and the tables of the statements.

Builds statements and compiles each once per shape. Must not see a connection; the differences between databases are in
`dialects`. Begin with `schema` (the tables), then `query`, `select` and `clauses`.
"""

from __future__ import annotations
