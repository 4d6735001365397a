"""MongoDB's aggregation expressions: parsed once, evaluated for each document.

Pure: knows JSON values only. Must not know filters, pipelines or a database. Begin with `operators` (the table of
operators) and `nodes` (the parts of an expression, and their evaluation), then `parser`. `numbers`, `strings`,
`arrays` and `times` are the functions of the operators, `syntax` parses those with a syntax of their own; `evaluation` has
common checks, and the limits. `language`
names all operators of MongoDB, also those of filters, updates and pipelines.

`values`, `collation`, `folding`, `path`, `patterns` and `budget` know no expression: documents, filters and updates use them
too. `classes` has the decorator of value classes.
"""

from __future__ import annotations
