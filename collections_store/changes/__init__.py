"""The change feed: how a change stream reads recorded changes, and how it learns that there are new ones.

Changes are recorded by `operations.write` in the transaction of the write. Must not know a store. Begin with `watch`,
then `notify`.
"""

from __future__ import annotations
