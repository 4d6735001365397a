"""What the cases are replayed against, and how: one function per operation, for each target.

A function does what an operation says and returns what it answers. What is in `LACKING` is not known
to the target yet: cases that need it are left out, and counted. When a verb comes into being, take it out.
"""

from collections.abc import Callable
from typing import Any

from collections_store import Document, Filter, Projection, Sort
from collections_store.matcher import matches

Op = dict[str, Any]

_UPDATES = frozenset({"update", "replace", "find_one_and", "bulk"})
LACKING: dict[str, frozenset[str]] = {
    # the matcher answers questions and knows no writing verbs: what stays here is "delete" and more
    "matcher": _UPDATES | {"delete", "distinct", "aggregate"},
    "sqlite": _UPDATES,
    "postgresql": _UPDATES,
}


# -- the matcher: a list of documents ----------------------------------------------------------


class InMemory:
    """The pure rooms, without any database."""

    def __init__(self) -> None:
        self.documents: list[Document] = []

    def insert(self, op: Op) -> None:
        for body in op["docs"]:
            self.documents.append(Document(str(len(self.documents)), body))

    def find(self, op: Op) -> list[Any]:
        asked = Filter.parse(op["filter"])
        found = [each for each in self.documents if matches(asked, each)]
        if "sort" in op:
            found.sort(key=Sort.parse(_sort(op)).key)
        stop = op["skip"] + op["limit"] if "skip" in op and "limit" in op else op.get("limit")
        found = found[op.get("skip", 0) : stop]
        if "projection" in op:
            wanted = Projection.parse(op["projection"])
            found = [wanted.apply(each, asked) for each in found]
        return [each.body for each in found]

    def count(self, op: Op) -> int:
        return len(self.find(op))


# -- a collection ------------------------------------------------------------------------------


class Stored:
    """A collection of a store, emptied before each case."""

    def __init__(self, things: Any) -> None:
        self.things = things
        things.remove_many([document.id for document in things.list()])

    def insert(self, op: Op) -> None:
        for body in op["docs"]:
            self.things.put(str(self.things.count()), body)

    def find(self, op: Op) -> list[Any]:
        options: Op = {name: op[name] for name in ("skip", "limit", "projection") if name in op}
        if "sort" in op:
            options["sort"] = _sort(op)
        return [each.body for each in self.things.find(op["filter"], **options)]

    def count(self, op: Op) -> int:
        if "skip" in op or "limit" in op:
            return len(self.find(op))
        count: int = self.things.count(op["filter"])
        return count

    def distinct(self, op: Op) -> list[Any]:
        return list(self.things.distinct(op["key"], op["filter"]))

    def delete(self, op: Op) -> int:
        verb = self.things.delete_many if op["many"] else self.things.delete_one
        count: int = verb(op["filter"]).deleted_count
        return count

    def aggregate(self, op: Op) -> list[Any]:
        return list(self.things.aggregate(op["pipeline"]))


OPS: dict[str, Callable[[Any, Op], Any]] = {
    "insert": lambda target, op: target.insert(op),
    "find": lambda target, op: target.find(op),
    "count": lambda target, op: target.count(op),
    "distinct": lambda target, op: target.distinct(op),
    "delete": lambda target, op: target.delete(op),
    "aggregate": lambda target, op: target.aggregate(op),
}
"""What does an operation; a key for each that is not in `LACKING` of every target."""


def _sort(op: Op) -> list[tuple[str, Any]]:
    return [(field, direction) for field, direction in op["sort"]]
