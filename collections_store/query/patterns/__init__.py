"""Regular expressions: MongoDB's syntax, the same answers on every database, and searches that always end.

MongoDB's patterns are PCRE's, which neither Python's `re` nor SQLite nor PostgreSQL reads. `parser` reads a pattern into
the tree of `syntax`. `pattern` writes it in the syntax of `re`, and lets `re` search the texts for which `cost`
proves that it is fast; all others go to the `matchers` over `programs`. Nothing else in the library gives
patterns of users to `re`. Begin with `pattern`.
"""

from __future__ import annotations
