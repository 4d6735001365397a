"""The targets of the cases: one function per operation and target.

A function does what an operation says and returns what it answers. What is in `LACKING` is not known
to the target yet: cases that need it are left out, and counted. When a verb comes into being, take it out.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from collections_store import (
    DeleteMany,
    DeleteOne,
    Document,
    Filter,
    InsertOne,
    Projection,
    ReplaceOne,
    Sort,
    Update,
    UpdateMany,
    UpdateOne,
)
from collections_store.codec import Codec
from collections_store.document import new_id
from collections_store.expressions.values import equal, identical
from collections_store.query.matcher import distinct_values, matches
from collections_store.update import read_replacement
from collections_store.update.apply import seed

Op = dict[str, Any]

LACKING: dict[str, frozenset[str]] = {
    # the pure packages: the features below need operations
    "matcher": frozenset({"aggregate"}),
    "sqlite": frozenset(),
    "postgresql": frozenset(),
}


# -- the matcher: a list of documents ----------------------------------------------------------


class InMemory:
    """The pure packages, without a database."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._inserted = 0

    def insert(self, op: Op) -> None:
        for body in op["docs"]:
            self._add(body)

    def find(self, op: Op) -> list[Any]:
        found = self._matching(op["filter"], op.get("sort"))
        stop = op["skip"] + op["limit"] if "skip" in op and "limit" in op else op.get("limit")
        return [self._shown(each, op) for each in found[op.get("skip", 0) : stop]]

    def count(self, op: Op) -> int:
        return len(self.find(op))

    def distinct(self, op: Op) -> list[Any]:
        values: list[Any] = []
        for document in self._matching(op["filter"]):
            for value in distinct_values(document.body, tuple(op["key"].split("."))):
                if not any(equal(value, each) for each in values):
                    values.append(value)
        return values

    def delete(self, op: Op) -> int:
        found = self._matching(op["filter"])[: None if op["many"] else 1]
        self.documents = [each for each in self.documents if each not in found]
        return len(found)

    def update(self, op: Op) -> Op:
        change = Update.parse(op["update"], array_filters=op.get("array_filters"))
        return self._write(op, _updating(change, op["filter"]), many=op["many"])

    def replace(self, op: Op) -> Op:
        return self._write(op, _replacing(op["doc"]), many=False)

    def find_one_and(self, op: Op) -> Any:
        options = op["options"]
        found = self._matching(op["filter"], options.get("sort"))[:1]
        if op["action"] == "delete":
            self.documents = [each for each in self.documents if each not in found]
            return self._shown(found[0], op | options) if found else None
        if op["action"] == "replace":
            change = _replacing(op["update"])
        else:
            filters = options.get("array_filters")
            change = _updating(Update.parse(op["update"], array_filters=filters), op["filter"])
        written = self._written(found, change, op["filter"], options["upsert"])
        shown = written if options["return_document"] else found
        return self._shown(shown[0], op | options) if shown else None

    def bulk(self, op: Op) -> None:
        for request in op["requests"]:
            given: Op = {"upsert": False, **request, "many": request["kind"].endswith("Many")}
            match request["kind"]:
                case "insertOne":
                    self._add(request["document"])
                case "deleteOne" | "deleteMany":
                    self.delete(given)
                case "replaceOne":
                    self.replace(given | {"doc": request["replacement"]})
                case _:
                    self.update(given | {"array_filters": request.get("arrayFilters")})

    def _matching(self, filter: Any, sort: Any = None) -> list[Document]:
        parsed = Filter.parse(filter)
        found = [each for each in self.documents if matches(parsed, each)]
        if sort is not None:
            found.sort(key=Sort.parse(_sort({"sort": sort})).key)
        return found

    def _shown(self, document: Document, op: Op) -> Any:
        if "projection" not in op:
            return document.body
        wanted = Projection.parse(op["projection"])
        return wanted.apply(document, Filter.parse(op["filter"])).body

    def _add(self, body: Any) -> Document:
        self._inserted += 1
        self.documents.append(Document(str(self._inserted), body))
        return self.documents[-1]

    def _write(self, op: Op, change: "Changing", *, many: bool) -> Op:
        found = self._matching(op["filter"])[: None if many else 1]
        written = self._written(found, change, op["filter"], op["upsert"])
        pairs = zip(found, written, strict=False)
        changed = [new for old, new in pairs if not identical(old.body, new.body)]
        return {"matched": len(found), "modified": len(changed)}

    def _written(
        self, found: list[Document], change: "Changing", filter: Any, upsert: bool
    ) -> list[Document]:
        """Change the found document, or insert one; return the new document."""
        if not found and upsert:
            start = Document("new", seed(Filter.parse(filter)))
            return [self._add(change(start, True))]
        new = {each.id: replace(each, body=change(each, False)) for each in found}
        self.documents = [new.get(each.id, each) for each in self.documents]
        return list(new.values())


Changing = Callable[[Document, bool], Any]
"""Returns the new body of a document; the second argument says whether it is inserted."""


def _updating(update: Update, filter: Any) -> Changing:
    parsed = Filter.parse(filter)
    return lambda old, inserting: update.apply(old, filter=parsed, now=0, inserting=inserting)


def _replacing(body: Any) -> Changing:
    new = read_replacement(body, Codec())
    return lambda *_: new


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
        method = self.things.delete_many if op["many"] else self.things.delete_one
        count: int = method(op["filter"]).deleted_count
        return count

    def aggregate(self, op: Op) -> list[Any]:
        return list(self.things.aggregate(op["pipeline"]))

    def update(self, op: Op) -> Op:
        method = self.things.update_many if op["many"] else self.things.update_one
        options = {"upsert": op["upsert"], "array_filters": op.get("array_filters")}
        return _counts(method(op["filter"], op["update"], **options))

    def replace(self, op: Op) -> Op:
        return _counts(self.things.replace_one(op["filter"], op["doc"], upsert=op["upsert"]))

    def find_one_and(self, op: Op) -> Any:
        options = {name: op["options"].get(name) for name in ("sort", "projection")}
        if op["action"] != "delete":
            options["upsert"] = op["options"]["upsert"]
            options["return_document"] = bool(op["options"]["return_document"])
        if op["action"] == "update":
            options["array_filters"] = op["options"].get("array_filters")
        given = [op["filter"]] if op["action"] == "delete" else [op["filter"], op["update"]]
        found = getattr(self.things, f"find_one_and_{op['action']}")(*given, **options)
        return None if found is None else found.body

    def bulk(self, op: Op) -> None:
        self.things.bulk_write([_request(each) for each in op["requests"]])


def _counts(result: Any) -> Op:
    return {"matched": result.matched_count, "modified": result.modified_count}


def _request(given: Op) -> Any:
    match given["kind"]:
        case "insertOne":
            return InsertOne(given["document"], id=new_id())
        case "deleteOne":
            return DeleteOne(given["filter"])
        case "deleteMany":
            return DeleteMany(given["filter"])
    upsert = given.get("upsert", False)
    if given["kind"] == "replaceOne":
        return ReplaceOne(given["filter"], given["replacement"], upsert=upsert)
    kind = UpdateMany if given["kind"] == "updateMany" else UpdateOne
    filters = given.get("arrayFilters")
    return kind(given["filter"], given["update"], upsert=upsert, array_filters=filters)


OPS: dict[str, Callable[[Any, Op], Any]] = {
    "insert": lambda target, op: target.insert(op),
    "find": lambda target, op: target.find(op),
    "count": lambda target, op: target.count(op),
    "distinct": lambda target, op: target.distinct(op),
    "delete": lambda target, op: target.delete(op),
    "aggregate": lambda target, op: target.aggregate(op),
    "update": lambda target, op: target.update(op),
    "replace": lambda target, op: target.replace(op),
    "find_one_and": lambda target, op: target.find_one_and(op),
    "bulk": lambda target, op: target.bulk(op),
}
"""The operations, except those in `LACKING` of every target."""


def _sort(op: Op) -> list[tuple[str, Any]]:
    return [(field, direction) for field, direction in op["sort"]]
