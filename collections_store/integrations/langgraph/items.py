"""The operations of a LangGraph store on a collection of items, as procedures (see `running`).

The id of an item is `i/<namespace>//<key>`; `/` separates the labels of the namespace. A prefix of labels is a
range of ids. The body has the value, and the vectors of the texts as 32-bit floats in base64, over which the collection
has a vector index: an item and its vectors are written at once.

The reads of a batch precede the writes of the batch. The times to live of read items start again after both. The
database applies a filter of LangGraph as far as LangGraph's and our filter language agree; this module decides the
rest: numbers are compared with numbers, strings with strings, and arrays as a whole.
"""

from __future__ import annotations

import logging
import math
import re
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeAlias

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
    ensure_embeddings,
    get_text_at_path,
    validate_op_namespace,
)

from ... import DatabaseError, Document, InvalidOption, Path, Sort
from .records import escaped, join, split, under
from .running import InTransaction, Steps, call

LOG: Final = logging.getLogger("collections_store")
Namespace: TypeAlias = tuple[str, ...]
Vector: TypeAlias = Sequence[float]
BATCH: Final = 100
"""Documents that are read at once."""
_END: Final = "//"
"""Stands between a namespace and a key."""
VECTORS: Final = "vectors"
"""The field of the body with the vectors, and the name of its index."""
_METRICS: Final = {"cosine": "cosine", "l2": "l2", "inner_product": "dot"}
"""The metrics of LangGraph's distances."""
WHOLE: Final = "$"
"""The path of a whole value."""
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": eq, "$ne": ne, "$gt": gt, "$gte": ge, "$lt": lt, "$lte": le,
}  # fmt: skip
_REFUSED: Final = re.compile(r"[\"'\\\x00-\x1f]")
_MAX_NUMBER: Final = 2**53
"""Beyond it, what the database compares may not be exact."""
_MISSING: Final = object()
_LATEST_FIRST: Final = Sort.parse([("$updated_at", -1)])


@dataclass(frozen=True, slots=True)
class EmbeddingIndex:
    """The texts of a value to embed, and the embedding model: LangGraph's `IndexConfig`."""

    dims: int
    embeddings: Any
    fields: tuple[str, ...]
    metric: str = "cosine"

    @classmethod
    def parse(cls, config: Mapping[str, Any] | None) -> EmbeddingIndex | None:
        """Read a configuration; raise `InvalidOption` without `dims` and `embed`, and for another distance."""
        if config is None:
            return None
        if not isinstance(config.get("dims"), int) or config.get("embed") is None:
            raise InvalidOption("index", "must have dims, an integer, and embed")
        fields = tuple(config.get("fields") or [WHOLE])
        distance = config.get("distance_type") or "cosine"
        if distance not in _METRICS:
            known = ", ".join(map(repr, _METRICS))
            raise InvalidOption("index", f"distance_type must be one of {known}, got {distance!r}")
        return cls(config["dims"], ensure_embeddings(config["embed"]), fields, _METRICS[distance])

    @property
    def definition(self) -> dict[str, Any]:
        """The arguments of `create_vector_index`."""
        return {"fields": VECTORS, "dimensions": self.dims, "metric": self.metric, "name": VECTORS}

    def texts(self, op: PutOp) -> list[str]:
        """Return the texts of a value to put."""
        if op.value is None or op.index is False:
            return []
        fields = self.fields if op.index is None else op.index
        return [text for field in fields for text in get_text_at_path(op.value, field)]

    def check(self, vectors: Sequence[Vector]) -> None:
        """Raise `InvalidOption` if vectors have the wrong dimensions, or numbers that are not finite as 32-bit
        floats.
        """
        for vector in vectors:
            if len(vector) != self.dims:
                raise InvalidOption(
                    "index", f"dims is {self.dims}, and embed returned {len(vector)} numbers"
                )
            for number in array("f", vector):
                if not math.isfinite(number):
                    problem = f"embed must return finite numbers of 32 bits, got {number}"
                    raise InvalidOption("index", problem)


class ItemBatch:
    """Operations, and their texts to embed. Of several puts to an item, the last counts. `times` are the times of
    imported items, by id.
    """

    def __init__(
        self,
        ops: Iterable[Any],
        index: EmbeddingIndex | None,
        times: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.ops, self._times = list(ops), times or {}
        for op in self.ops:
            validate_op_namespace(op)
        self.gets = [op for op in self.ops if isinstance(op, GetOp)]
        puts = [op for op in self.ops if isinstance(op, PutOp)]
        for op in puts:
            if not isinstance(op.value, Mapping | None):
                raise InvalidOption("value", f"must be a dict, got {type(op.value).__name__}")
        self.puts = {item_id(op.namespace, op.key): op for op in puts}
        self.index = index
        self.texts = {} if index is None else {id: index.texts(op) for id, op in self.puts.items()}
        searches = (op for op in self.ops if isinstance(op, SearchOp) and op.query)
        self.queries = [] if index is None else list({op.query for op in searches})

    @property
    def creates(self) -> bool:
        """Whether the batch writes an item, which needs the collection, or searches by meaning, which needs the index."""
        return bool(self.queries) or any(op.value is not None for op in self.puts.values())

    def to_embed(self) -> list[str]:
        """Return the distinct texts to put."""
        return list({text: None for texts in self.texts.values() for text in texts})

    def steps(
        self, vectors: Mapping[str, Vector], queries: Mapping[str, Vector]
    ) -> Steps[list[Any]]:
        """Return the results of the operations, given the vectors of the texts to put, and the vectors of the
        queries.
        """
        if self.index is not None:
            self.index.check([*vectors.values(), *queries.values()])
        if len(self.gets) == len(self.ops) or len(self.ops) == 1 or self._count() <= 1:
            results, used = yield from self._steps(vectors, queries)
        else:
            if queries:  # the search in the transaction stores nothing
                yield call("store_vectors", VECTORS)
            batch = partial(self._steps, vectors, queries)
            results, used = yield InTransaction(batch, read_only=not self.puts)
        if used:
            yield from _refresh(used)
        return results

    def _count(self) -> int:
        """Return the number of reads and writes. All gets count as a single read, puts with the same time to live
        as a single write.
        """
        values = [op.value is not None for op in self.puts.values()]
        lifetimes = {op.ttl for op in self.puts.values() if op.value is not None}
        others = sum(not isinstance(op, GetOp | PutOp) for op in self.ops)
        return bool(self.gets) + others + len(lifetimes) + (not all(values))

    def _steps(
        self, vectors: Mapping[str, Vector], queries: Mapping[str, Vector]
    ) -> Steps[tuple[list[Any], list[str]]]:
        """Return the results, and the ids of the items whose time to live starts again."""
        results: list[Any] = []
        used: list[str] = []
        items = iter((yield from _get(self.gets, used)) if self.gets else ())
        for op in self.ops:
            match op:
                case GetOp():
                    results.append(next(items))
                case SearchOp():
                    query = queries.get(op.query or "")
                    results.append((yield from _search(op, query, self.index, used)))
                case ListNamespacesOp():
                    results.append((yield from _list_namespaces(op)))
                case PutOp():
                    results.append(None)
                case _:
                    raise InvalidOption("ops", f"must be operations, got {type(op).__name__}")
        yield from self._write(vectors)
        return results, used

    def _write(self, vectors: Mapping[str, Vector]) -> Steps[None]:
        groups: dict[float | None, dict[str, Any]] = {}
        for id, op in self.puts.items():
            if op.value is not None:
                body = {"namespace": _path(op.namespace), "key": op.key, "value": dict(op.value)}
                if id in self._times:
                    body["times"] = self._times[id]
                if texts := self.texts.get(id):
                    body[VECTORS] = [_pack(vectors[text]) for text in texts]
                groups.setdefault(op.ttl, {})[id] = body
        for minutes, bodies in groups.items():
            ttl = math.inf if minutes is None else minutes * 60
            if len(bodies) == 1:  # several are a transaction
                [(id, body)] = bodies.items()
                yield call("put", id, body, ttl=ttl)
            else:
                yield call("put_many", bodies, ttl=ttl, atomic=True)
        removed = [id for id, op in self.puts.items() if op.value is None]
        if removed:
            yield call("remove_many", removed)


def item_id(namespace: Namespace, key: str) -> str:
    """Return the id of an item.

    >>> item_id(("users", "a/b"), "name")
    'i/users/a%2Fb//name'
    """
    return _beginning(tuple(namespace)) + escaped(str(key))


@lru_cache(maxsize=4096)
def _beginning(namespace: Namespace) -> str:
    """Return the common beginning of the ids of a namespace's items."""
    return join("i", *namespace, "", "")


def _path(namespace: Namespace) -> str:
    return join(*namespace)


@lru_cache(maxsize=4096)
def _namespace(path: str) -> Namespace:
    return split(path) if path else ()


def _get(ops: Sequence[GetOp], used: list[str]) -> Steps[list[Item | None]]:
    """Return the items, with None for a missing item."""
    ids = [item_id(op.namespace, op.key) for op in ops]
    if len(ids) == 1:
        found = {ids[0]: (yield call("document", ids[0]))}
    else:
        found = {each.id: each for each in (yield call("find", {"$id": {"$in": ids}}))}
    items: list[Item | None] = []
    for op, id in zip(ops, ids, strict=True):
        document = found.get(id)
        if document is not None and op.refresh_ttl and document.expires_us is not None:
            used.append(id)
        items.append(None if document is None else Item(**_fields(document)))
    return list(map(deepcopy, items)) if len(set(ids)) < len(ids) else items  # no two share a value


def _fields(document: Document) -> dict[str, Any]:
    body, created = document.body, document.created_at
    is_new = document.updated_us == document.created_us
    fields = {
        "value": body["value"],
        "key": body["key"],
        "namespace": _namespace(body["namespace"]),
        "created_at": created,
        "updated_at": created if is_new else document.updated_at,
    }
    if "times" in body:
        for name, text in body["times"].items():
            fields[name] = datetime.fromisoformat(text)
    return fields


def _search(
    op: SearchOp, query: Vector | None, index: EmbeddingIndex | None, used: list[str]
) -> Steps[list[SearchItem]]:
    _check_window(op)
    wanted = op.offset + op.limit
    scored: list[tuple[float | None, Document]] = []
    if query is not None and index is not None and (any(query) or index.metric != "cosine"):
        scored = yield from _nearest(op, query, wanted)
    if len(scored) < wanted:  # the other items
        seen = {each.id for _, each in scored}
        latest = yield from _matching(op, wanted)
        scored += [(None, each) for each in latest if each.id not in seen]
    scored = scored[op.offset : wanted]
    if op.refresh_ttl:
        used += [each.id for _, each in scored if each.expires_us is not None]
    return [SearchItem(**_fields(document), score=score) for score, document in scored]


def _nearest(
    op: SearchOp, query: Vector, wanted: int
) -> Steps[list[tuple[float | None, Document]]]:
    """Return the scores and documents of the `wanted` matching items with the nearest vectors."""
    filter, conditions = _filter(op)
    k = max(1, wanted)
    while True:
        found = yield call("nearest", list(query), k, filter=filter, index=VECTORS)
        kept: list[tuple[float | None, Document]] = [
            (each.score, each.document)
            for each in found
            if _matches(each.body["value"], conditions)
        ]
        if len(kept) >= wanted or len(found) < k:
            return kept[:wanted]
        k *= 4  # the database does not decide every condition


def _refresh(used: list[str]) -> Steps[None]:
    """Restart the time to live of items. A locked or read-only database is logged: the results of the read are
    returned all the same.
    """
    try:
        if len(used) == 1:
            yield call("touch", used[0])
        else:
            yield InTransaction(lambda: _touch(used))
    except DatabaseError as error:
        LOG.warning("the time to live of items that were read did not start again: %s", error)


def _touch(used: list[str]) -> Steps[None]:
    for id in used:
        yield call("touch", id)


def _check_window(op: SearchOp | ListNamespacesOp) -> None:
    if op.limit < 0 or op.offset < 0:
        raise InvalidOption("limit", "limit and offset must not be negative")


def _matching(op: SearchOp, wanted: int | None) -> Steps[list[Document]]:
    """Return the first `wanted` matching documents, the latest update first."""
    filter, conditions = _filter(op)
    if not conditions:
        documents: list[Document] = yield call("find", filter, sort=_LATEST_FIRST, limit=wanted)
        return documents
    found: list[Document] = []
    cursor = None
    while wanted is None or len(found) < wanted:
        page = yield call(
            "page",
            filter,
            sort=_LATEST_FIRST,
            limit=BATCH if wanted is None else min(wanted, BATCH),
            after=cursor,
        )
        found += [each for each in page if _matches(each.body["value"], conditions)]
        if (cursor := page.cursor) is None:
            break
    return found


def _filter(op: SearchOp) -> tuple[dict[Any, Any], list[Condition]]:
    """Return the filter of the database, which passes each match, and the conditions of a match."""
    conditions = _conditions(op.filter or {})
    filter: dict[Any, Any] = {"$id": under(join("i", *op.namespace_prefix))}
    narrowed = [each for each in map(_narrowed, conditions) if each]
    if narrowed:
        filter["$and"] = narrowed
    return filter, conditions


Condition: TypeAlias = tuple[str, str | None, Any]
"""A key, an operator (None: equal, or an object that contains another), and an operand."""


def _conditions(filter: Mapping[Any, Any]) -> list[Condition]:
    found: list[Condition] = []
    for key, value in filter.items():
        if not isinstance(key, str) or _REFUSED.search(key):
            raise ValueError(
                f"Invalid filter key {key!r}: must be a string without quotes, \\ and control characters"
            )
        if isinstance(value, Mapping) and any(str(each).startswith("$") for each in value):
            for operator, operand in value.items():
                if operator not in _OPERATORS:
                    raise ValueError(
                        f"Invalid filter operator {operator!r}: must be one of {', '.join(_OPERATORS)}"
                    )
                found.append((key, operator, operand))
        else:
            found.append((key, None, value))
    return found


def _narrowed(condition: Condition) -> dict[Any, Any] | None:
    """Return a filter of the database that passes each match, or None if no filter helps."""
    key, operator, operand = condition
    is_text = isinstance(operand, str) and "\0" not in operand
    if not (is_text or _is_exact(operand)) or operator == "$ne":
        return None
    test = {operator or "$eq": operand}
    literal = {Path("value", key): test}
    if "." not in key:
        return literal
    return {"$or": [literal, {Path("value", *key.split(".")): test}]}


def _is_exact(operand: Any) -> bool:
    """Return whether the database compares a number as Python does."""
    is_number = isinstance(operand, int | float) and not isinstance(operand, bool)
    return is_number and abs(operand) <= _MAX_NUMBER


def _matches(value: Any, conditions: Iterable[Condition]) -> bool:
    return all(_passes(_at(value, key), operator, operand) for key, operator, operand in conditions)


def _at(value: Any, key: str) -> Any:
    """Return the value under a key, or else at a dotted path."""
    if key in value:
        return value[key]
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _passes(found: Any, operator: str | None, operand: Any) -> bool:
    if operand is None and operator in {None, "$eq"}:
        return found is None or found is _MISSING
    if found is _MISSING:
        return False
    if operator is None and isinstance(operand, Mapping):
        inside = isinstance(found, Mapping)
        return inside and all(
            _passes(found.get(key, _MISSING), None, below) for key, below in operand.items()
        )
    if operator == "$ne":
        return not _equal(found, operand)
    if operator in {None, "$eq"}:
        return _equal(found, operand)
    return _kind(found) == _kind(operand) != "other" and _OPERATORS[operator](found, operand)


def _equal(found: Any, operand: Any) -> bool:
    return isinstance(found, bool) == isinstance(operand, bool) and bool(found == operand)


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else "other"


def _list_namespaces(op: ListNamespacesOp) -> Steps[list[Namespace]]:
    _check_window(op)
    conditions = op.match_conditions or ()
    prefixes = [condition.path for condition in conditions if condition.match_type == "prefix"]
    prefix = f"{join('i', *(_literal(prefixes[0]) if prefixes else ()))}/"
    found: list[Namespace] = []
    wanted, after = op.offset + op.limit, None
    size = wanted
    while len(found) < wanted:
        page = yield call("id_prefixes", _END, prefix=prefix, after=after, limit=size)
        for beginning in page:
            namespace = _namespace(beginning.removeprefix("i/").removesuffix(_END))
            if all(_fits(namespace, each.match_type, each.path) for each in conditions):
                shown = namespace[: op.max_depth]
                if found[-1:] != [shown]:  # all that begin with it come one after the other
                    found.append(shown)
        if len(page) < size:
            break
        after, size = page[-1], 2 * size
    return found[op.offset : wanted]


def _literal(path: Namespace) -> Namespace:
    """Return the labels before a wildcard."""
    return path[: path.index("*")] if "*" in path else tuple(path)


def _fits(namespace: Namespace, kind: str, path: Namespace) -> bool:
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in {"*", label} for wanted, label in zip(path, part, strict=True))


def _pack(vector: Vector) -> str:
    return b64encode(array("f", vector).tobytes()).decode("ascii")
