"""Reads the replayable cases of `../shared/conformance` (its README tells the format)."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "shared" / "conformance"
FILES = [FOLDER / "montydb.jsonl", FOLDER / "crudspec.jsonl"]
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
                cases.append(Case(case["id"], tuple(_decoded(case["ops"]))))
    return cases


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
