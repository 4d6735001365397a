"""asyncio: `AsyncStore`, `AsyncTransaction`, `AsyncCollection` and their change streams.

Knows event loops and tasks. Must not know how an operation works: worker threads run the operations of the synchronous
API, and tasks await the results. Begin with `bridge`: how a task waits for a worker thread.
"""

from __future__ import annotations
