"""Filters, sorts and documents as SQLAlchemy statements, and the tables that they are for.

Builds statements and compiles each once per shape. Must not see a connection; what differs between databases is in
`dialects`. Begin with `schema` (the tables), then `select` and `clauses`.
"""

from __future__ import annotations
