"""A graph of which each node adds its name to a list, and the configs of its threads."""

import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
"""Of processes that import this module."""


class Done(TypedDict):
    done: Annotated[list[str], operator.add]


def graph(nodes: dict[str, Callable[[Any], Any]]) -> Any:
    """Return the graph that runs nodes one after the other."""
    builder = StateGraph(Done)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in zip([START, *nodes], [*nodes, END], strict=True):
        builder.add_edge(before, after)
    return builder


def config(thread: str = "t", checkpoint: str | None = None, namespace: str = "") -> dict[str, Any]:
    found = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": found | ({"checkpoint_id": checkpoint} if checkpoint else {})}
