"""asyncio: `AsyncStore`, `AsyncTransaction`, `AsyncCollection` and their change streams.

Knows event loops and tasks. Must not know how an operation works: it hands the operations of the synchronous API to
worker threads and awaits them. Begin with `bridge`, which is how a task waits for a worker thread.
"""

from __future__ import annotations
