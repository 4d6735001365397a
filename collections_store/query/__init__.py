"""Filters, sorts, projections, cursors, index definitions, and their exact meaning in Python.

Pure: knows JSON values, no database and no thread. Must not know SQLAlchemy, a driver or an operation. Begin with
`filter`, then `conditions` (the values of a filter) and `matcher` (their meaning).
"""

from __future__ import annotations
