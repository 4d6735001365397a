"""Pipelines: MongoDB's aggregation language, parsed into stages and run over rows.

Pure: a `$lookup` reads other collections through a `Source` that it is given. Must not know a database. Begin with
`pipeline`, then `stages` and `run`; `expressions` is the language inside the stages.
"""

from __future__ import annotations
