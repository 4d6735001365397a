"""`$$NOW` is one instant in all parts of a call."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collections_store import Store, UpdateMany, UpdateOne
from collections_store.codec.times import iso
from collections_store.document import moment
from collections_store.operations.aggregate import Aggregate
from collections_store.operations.update import Modification

FILTER: Any = {"$expr": {"$ne": ["$$NOW", "$n"]}}
PROJECTION: Any = {"n": "$$NOW", "m": {"$concat": ["$$NOW"]}}
PIPELINE: Any = [{"$set": {"n": "$$NOW"}}]
STAGES: Any = [{"$match": FILTER}, {"$set": {"n": "$$NOW"}}, {"$match": FILTER}]
OUTPUT: Any = {"$merge": {"into": "others", "whenMatched": PIPELINE}}
BUILDERS: dict[str, Callable[[Any, Any], Any]] = {
    "find": lambda c, o: c._find(FILTER, ..., None, 0, None, PROJECTION, o),
    "page": lambda c, o: c._page(FILTER, ..., None, 10, None, PROJECTION, o),
    "stream": lambda c, o: c._stream(FILTER, ..., None, PROJECTION, o),
    "sorted stream": lambda c, o: c._stream(FILTER, ..., "n", PROJECTION, o),
    "update": lambda c, o: c._modify(UpdateOne(FILTER, PIPELINE), call=c._call(o)),
    "update_many": lambda c, o: c._modify(UpdateMany(FILTER, PIPELINE), call=c._call(o)),
    "find_one_and_update": lambda c, o: c._find_and_modify(
        UpdateOne(FILTER, PIPELINE), PROJECTION, True, o
    ),
    "find_one_and_delete": lambda c, o: c._find_and_delete(FILTER, None, PROJECTION, o),
    "aggregate": lambda c, o: c._aggregate(STAGES, 10**6, False, o),
    "merge": lambda c, o: c._aggregate([*STAGES, OUTPUT], 10**6, False, o),
    "stream_aggregate": lambda c, o: c._stream_aggregate(STAGES, 10**6, False, o),
}


def instants(value: Any) -> Iterator[str]:
    """Yield the times in the parts of an operation."""
    if isinstance(value, str):
        yield from re.findall(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (*instants(key), *instants(each))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from instants(each)
    elif type(value).__module__.startswith("collections_store"):
        if isinstance(value, Aggregate | Modification):
            yield iso(moment(value.time))
        slots = (n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ()))
        for name in {*slots, *getattr(value, "__dict__", ())}:
            if hasattr(value, name):
                yield from instants(getattr(value, name))


@pytest.mark.parametrize("let", [False, True])
@pytest.mark.parametrize("name", BUILDERS)
def test_every_part_of_a_call_has_one_instant(name: str, let: bool) -> None:
    options = {"let": {"begin": "$$NOW"}} if let else {}
    with Store("sqlite://") as store:
        operation = BUILDERS[name](store["things"], options)
    found = list(instants(operation))
    assert len(found) > 1
    assert len(set(found)) == 1
