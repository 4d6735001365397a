"""How operations run: connections, transactions, the write queue, worker threads, retries.

Knows threads, locks and time. Must not know the insides of an operation, nor a collection's methods. Begin with `core`,
shared by both stores, then `open_database` (connects the parts) and `executor` (runs an operation to the result).
"""

from __future__ import annotations
