"""The guard of a statement in the indexed form: short until a collection has arrays, and right before and after."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.each_backend


class Statements(logging.Handler):
    """The executed statements that look for arrays."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "= 'array'" in record.getMessage():
            self.texts.append(record.getMessage())

    def of(self, call: Any) -> tuple[Any, list[str]]:
        """Return the result of a call, and its statements."""
        self.texts = []
        return call(), self.texts


@pytest.fixture
def statements() -> Iterator[Statements]:
    log, handler = logging.getLogger("collections_store.statements"), Statements()
    level = log.level
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


CALLS: Any = {
    "count": lambda things, a: things.count("a", a),
    "find": lambda things, a: [each.id for each in things.find("a", a)],
    "find_one": lambda things, a: things.find_one("a", a, sort="$id").id,
    "sorted": lambda things, a: [
        each.id for each in things.find("a", a, sort=[("a", -1)], limit=3)
    ],
    "group": lambda things, a: things.aggregate([{"$match": {"a": a}}, {"$group": {"_id": "$a"}}]),
}


@pytest.fixture
def things(open_store: Any) -> Any:
    things = open_store(echo=True)["things"]
    things.create_index("a")
    things.put_many({"x": {"a": 1}, "y": {"a": 2}})
    return things


def test_the_guard_is_short_until_a_document_has_an_array(
    things: Any, statements: Statements
) -> None:
    for call in CALLS.values():
        call(things, 1)
    short = {name: statements.of(lambda c=call: c(things, 1)) for name, call in CALLS.items()}
    things.put("z", {"a": [7]})
    for name, call in CALLS.items():
        (expected, [text]), both = short[name], statements.of(lambda c=call: c(things, 1))
        assert both[0] == expected, name
        assert both[1][0] == text, name
        assert len(both[1]) == 2, name
        again = statements.of(lambda c=call: c(things, 1))
        assert again == (expected, both[1][1:]), name
        assert len(text) < len(again[1][0]), name


def test_results_are_right_whatever_was_learned(things: Any) -> None:
    def results(a: int) -> list[Any]:
        return [call(things, a) for call in CALLS.values()]

    one = [1, ["x"], "x", ["x"], [{"_id": 1}]]
    assert results(1) == one
    things.put("z", {"a": [7]})
    assert results(1) == one
    things.put("z", {"a": [1]})
    both = [2, ["x", "z"], "x", ["x", "z"], [{"_id": 1}, {"_id": [1]}]]
    found = results(1)
    assert [*found[:-1], sorted(found[-1], key=str)] == both
    things.remove("z")
    assert results(1) == one
