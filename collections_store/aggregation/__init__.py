"""Pipelines: MongoDB's aggregation language, parsed into stages and run over rows.

Pure: `$lookup` reads other collections through a `Source`. Must not know a database. Begin with `table`,
which declares the stages, `stages` and `pipeline`; `expressions` is the language inside the stages.
"""

from __future__ import annotations
