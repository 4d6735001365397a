"""Filters, sorts and documents as SQLAlchemy statements, and the tables that they are for.

Builds statements and compiles each once per shape. Must not see a connection, and asks `dialects` how a database
spells an element. Begin with `schema` (the tables), then `select` and `conditions`.
"""

from __future__ import annotations
