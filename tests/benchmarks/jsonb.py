"""A program: what collections whose bodies are JSONB take, against the same as text, on the SQLite that Python has here.

It prints one JSON array: SQLite's version, and for each verb the microseconds of both, and the ratio.
"""

import json
import sqlite3
import sys
from collections.abc import Callable

from benchmarks.floors import numbered
from benchmarks.measuring import again, compare, documents

from collections_store import Collection, Store

SCANNED, READ, WRITTEN = 100_000, 300, 10_000


def main(url: str) -> None:
    """Measure."""
    with Store(url, durability="normal") as store:
        text, binary = (store.create_collection(name, jsonb=name == "b") for name in ("t", "b"))
        for each in (text, binary):
            each.put_many(numbered(documents(SCANNED)))
        bodies = list(numbered(documents(WRITTEN)))
        methods: dict[str, tuple[Callable[[Collection], object], int]] = {
            "scan for a number": (lambda things: things.find("n", 777), 1),
            "scan for a field that is in no document": (lambda things: things.find("x", 777), 1),
            "scan for an element of an array": (lambda things: things.find("services", "-"), 1),
            "get": (lambda things: again(lambda: things.get("00000007"), READ)(), READ),
            "put_many of 10,000, each": (lambda things: things.put_many(bodies), WRITTEN),
        }
        found = [
            (
                what,
                *compare(lambda: method(text), {"ours": lambda: method(binary)}, per=per)["ours"],  # noqa: B023
            )
            for what, (method, per) in methods.items()
        ]
    print(json.dumps([sqlite3.sqlite_version, found]))


if __name__ == "__main__":
    main(sys.argv[1])
