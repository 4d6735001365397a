"""The change feed: how a change stream reads recorded changes, and how it is notified of new ones.

`operations.write` records changes in the transaction of the write. This package must not know a store. Begin with
`watch`, then `notify`.
"""
