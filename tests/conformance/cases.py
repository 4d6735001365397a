"""Reads the replayable cases of `../shared/conformance` (its README tells the format)."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collections_store import Path as FieldPath

FOLDER = Path(__file__).parents[3] / "shared" / "conformance"
FILES = [FOLDER / "montydb.jsonl", FOLDER / "crudspec.jsonl"]
REPLACED = "replaces the id"
"""A key of operations whose replacement names the id."""
IS_THERE = all(file.is_file() for file in FILES)


@dataclass(frozen=True)
class Case:
    """A list of operations with their expected results."""

    id: str
    ops: tuple[dict[str, Any], ...]

    @property
    def needs(self) -> frozenset[str]:
        """The features that a case needs: methods, and unusual arguments of `find`."""
        return frozenset(need for op in self.ops for need in _needs(op))


def read() -> list[Case]:
    """Return the cases over JSON values whose results in MongoDB are certain."""
    cases = []
    for file in FILES if IS_THERE else []:
        for line in file.read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            if case["profile"] == "json" and "disputed" not in case["tags"]:
                ops = list(map(of_bodies, _decoded(case["ops"])))
                if any(REPLACED in op for op in ops):  # a replacement has no _id: compare the rest
                    ops = [{**op, "expect": _without_ids(op.get("expect", {}))} for op in ops]
                cases.append(Case(case["id"], tuple(ops)))
    return cases


def of_bodies(op: dict[str, Any]) -> dict[str, Any]:
    """Return an operation that names the cases' `_id` as what it is here: a field of the body, beside the id."""
    changed = dict(op)
    if "filter" in op:
        changed["filter"] = _filter(op["filter"])
    if "sort" in op:
        changed["sort"] = [[_name(field), direction] for field, direction in op["sort"]]
    if isinstance(op.get("update"), dict) and op.get("action") != "replace":
        changed["update"] = {
            operator: {
                FieldPath("_id") if key == "_id" else key: each for key, each in fields.items()
            }
            if isinstance(fields, dict)
            else fields
            for operator, fields in op["update"].items()
        }
    if "options" in op:
        changed["options"] = of_bodies(op["options"])
    if "requests" in op:
        changed["requests"] = list(map(of_bodies, op["requests"]))
    replacement = {"replace": "doc", "find_one_and": "update"}.get(op.get("op", ""), "replacement")
    if isinstance(op.get(replacement), dict) and "_id" in op[replacement]:
        changed[replacement] = _without_id(op[replacement])
        changed[REPLACED] = True
    if any(REPLACED in each for each in changed.get("requests", ())):
        changed[REPLACED] = True
    if "pipeline" in op:
        changed["pipeline"] = list(map(_stage, op["pipeline"]))
    return changed


def _without_ids(expected: dict[str, Any]) -> dict[str, Any]:
    documents = {"docs": [_without_id(each) for each in expected.get("docs") or ()]}
    found = {**expected, **documents} if expected.get("docs") else dict(expected)
    return {**found, "doc": _without_id(found["doc"])} if "doc" in found else found


def _without_id(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    return {key: value for key, value in document.items() if key != "_id"}


def _filter(filter: Any) -> Any:
    if not isinstance(filter, dict):
        return filter
    return {
        _name(key): list(map(_filter, each))
        if key in {"$and", "$or", "$nor"} and isinstance(each, list)
        else each
        for key, each in filter.items()
    }


def _stage(stage: Any) -> Any:
    match stage:
        case {"$match": filter}:
            return {"$match": _filter(filter)}
        case {"$sort": dict(fields)}:
            return {"$sort": {_name(key): direction for key, direction in fields.items()}}
    return stage


def _name(key: Any) -> Any:
    return f"$body.{key}" if key == "_id" or str(key).startswith("_id.") else key


def _needs(op: dict[str, Any]) -> Iterator[str]:
    yield op["op"]
    if op["op"] == "find":
        yield from (f"find.{name}" for name in ("sort", "projection") if name in op)


def _decoded(value: Any) -> Any:
    """Replace extended JSON's regular expressions; the other types of BSON are not among the cases."""
    match value:
        case {"$regularExpression": {"pattern": pattern, "options": options}}:
            return re.compile(f"(?{options}){pattern}" if options else pattern)
        case dict():
            return {key: _decoded(each) for key, each in value.items()}
        case list():
            return [_decoded(each) for each in value]
    return value
