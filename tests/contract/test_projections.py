"""Computed fields in projections, the same in every method that takes a projection."""

from typing import Any

import pytest

from collections_store import InvalidOperand, InvalidProjection

pytestmark = pytest.mark.each_backend

WANTED = {"_id": 0, "n": 1, "twice": {"$multiply": ["$n", 2]}, "in": {"name": "$$ROOT.name"}}
BODIES = {f"{n:03}": {"n": n, "name": f"x{n}", "other": 1} for n in range(120)}
EXPECTED = [{"n": n, "twice": 2 * n, "in": {"name": f"x{n}"}} for n in range(120)]


@pytest.fixture
def filled(things: Any) -> Any:
    things.put_many(BODIES)
    return things


def bodies(found: Any) -> list[Any]:
    return [each.body for each in found]


def test_reads_compute_fields(filled: Any) -> None:
    assert bodies(filled.find(projection=WANTED)) == EXPECTED
    assert bodies(filled.find(sort="n", skip=3, limit=2, projection=WANTED)) == EXPECTED[3:5]
    assert filled.find_one({"n": 7}, projection=WANTED).body == EXPECTED[7]
    assert bodies(filled.stream(projection=WANTED)) == EXPECTED
    assert bodies(filled.stream(sort=[("n", -1)], projection=WANTED)) == EXPECTED[::-1]
    assert filled.aggregate([{"$project": WANTED}]) == EXPECTED


def test_pages_compute_fields(filled: Any) -> None:
    page = filled.page(sort=[("n", -1)], limit=70, projection=WANTED)
    rest = filled.page(sort=[("n", -1)], limit=70, after=page.cursor, projection=WANTED)
    assert bodies(page) + bodies(rest) == EXPECTED[::-1]


def test_writes_that_return_a_document_compute_fields(filled: Any) -> None:
    update = {"$set": {"n": 500}}
    before = filled.find_one_and_update({"n": 1}, update, projection=WANTED)
    assert before.body == EXPECTED[1]
    after = filled.find_one_and_update(
        {"n": 500}, {"$inc": {"n": 1}}, projection=WANTED, return_document=True
    )
    assert after.body["twice"] == 1002
    replaced = filled.find_one_and_replace({"n": 501}, {"n": 2}, projection=WANTED)
    assert replaced.body["twice"] == 1002
    assert filled.find_one_and_delete({"n": 3}, projection=WANTED).body == EXPECTED[3]


def test_versions_and_ids_are_those_of_the_document(filled: Any) -> None:
    filled.put("001", {"n": 1})
    wanted = {"v": {"$add": [{"$meta": "version"}, 0]}, "id": {"$concat": [{"$meta": "id"}]}}
    [found] = filled.find({"n": 1}, projection=wanted)
    assert (found.version, found.body) == (2, {"v": 2, "id": "001"})


def test_now_is_one_instant_for_a_call(filled: Any) -> None:
    for found in (
        filled.find(projection={"at": "$$NOW"}),
        filled.stream(projection={"at": "$$NOW"}),
        filled.stream(sort="name", projection={"at": "$$NOW"}),
    ):
        assert len({each.body["at"] for each in found}) == 1


def test_an_error_names_the_field_and_changes_nothing(filled: Any) -> None:
    wrong = {"a": {"b": {"$add": ["$name", 1]}}}
    names = r"^projection, at 'a\.b': \$add requires a number, got 'x1'$"
    with pytest.raises(InvalidOperand, match=names):
        filled.find({"n": 1}, projection=wrong)
    with pytest.raises(InvalidOperand, match=names):
        list(filled.stream({"n": 1}, projection=wrong))
    with pytest.raises(InvalidOperand, match=names):
        filled.find_one_and_update({"n": 1}, {"$set": {"other": 2}}, projection=wrong)
    with pytest.raises(InvalidOperand, match=names):
        filled.find_one_and_delete({"n": 1}, projection=wrong)
    assert filled.get("001") == BODIES["001"]
    with pytest.raises(InvalidProjection, match=r"'a\.b\.\$ad': no such operator"):
        filled.page(limit=1, projection={"a": {"b": {"$ad": 1}}})
