"""Copies between stores, and backups: as text, whatever the database, or as a database file.

Knows files, and operations as values to run. Must not know a connection pool's insides, nor how an operation executes.
Begin with `copying`, the algorithm; the other modules provide the sources and the targets.
"""

from __future__ import annotations
