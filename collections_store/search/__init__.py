"""Search by words: which words a text has, the query language, the rules of a match, and snippets.

Pure: knows strings only. Must not know filters, indexes or a database. Begin with `words`, then `query`. `matching` is the
reference for which texts match; the databases find the same texts by their indexes.
"""
