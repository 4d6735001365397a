"""MongoDB's aggregation expressions: parsed once, evaluated for each document.

Pure: knows JSON values only. Must not know filters, pipelines or a database. Begin with `nodes` (what an expression
consists of), then `parser` and `evaluate`; `operators` lists the operators, the other modules hold what they compute.
"""

from __future__ import annotations
