"""How operations run: connections, transactions, the write queue, worker threads, retries.

Knows threads, locks and time. Must not know what an operation does, nor a collection's methods. Begin with `core`,
which stores share, then `open_database`, which connects the parts, and `executor`: how one operation reaches its result.
"""

from __future__ import annotations
