"""MongoDB's aggregation expressions: `{"$gt": ["$spent", "$budget"]}`, parsed once into frozen
values, and evaluated on objects.
"""

from __future__ import annotations

from .arithmetic import Total
from .comparing import key_of, order, sort_key
from .evaluation import NO_VARIABLES, Scope, evaluate, follow
from .nodes import (
    METADATA,
    Call,
    Constant,
    Formula,
    Meta,
    ObjectOf,
    Reference,
    nodes_of,
)
from .operands import Unfit, is_null, truthy
from .parsing import Parser
from .weights import MEMORY_LIMIT, checked, weight_of

__all__ = [
    "MEMORY_LIMIT",
    "METADATA",
    "NO_VARIABLES",
    "Call",
    "Constant",
    "Formula",
    "Meta",
    "ObjectOf",
    "Parser",
    "Reference",
    "Scope",
    "Total",
    "Unfit",
    "checked",
    "evaluate",
    "follow",
    "is_null",
    "key_of",
    "nodes_of",
    "order",
    "sort_key",
    "truthy",
    "weight_of",
]
