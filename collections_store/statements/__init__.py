"""Filters, orders and documents to statements, compiled once; builds, never executes."""

from __future__ import annotations

from .catalogue import CatalogueStatements
from .compiling import compiled
from .conditions import Query
from .documents import MAX_VALUE, Statements
from .feed import PRUNED, FeedStatements
from .ordered import Order

__all__ = [
    "MAX_VALUE",
    "PRUNED",
    "CatalogueStatements",
    "FeedStatements",
    "Order",
    "Query",
    "Statements",
    "compiled",
]
