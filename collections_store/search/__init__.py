"""Search by words: which words a text has, the query language, the rules of a match, and snippets. Search by meaning: chunks
of texts, embedders, which search embeds a text, the nearest vectors. And the fusion of rankings.

Pure: knows strings and vectors only. Must not know filters, indexes or a database. Begin with `words`, then `query`.
`matching` is the reference for which texts match; the databases find the same texts by their indexes. Of the vectors begin
with `vectors`.
"""
