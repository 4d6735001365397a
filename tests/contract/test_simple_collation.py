"""The locale "simple" with a strength: case and accents without ICU."""

from typing import Any

import pytest

from collections_store import (
    BulkWriteError,
    DeleteMany,
    DeleteOne,
    InvalidCursor,
    InvalidOption,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
)

BY_CASE = {"locale": "simple", "strength": 2}
BY_LETTERS = {"locale": "simple", "strength": 1}


@pytest.fixture
def words(things: Any) -> Any:
    every = ["Zoo", "\u00e9t\u00e9", "ETE", "zoo", "E\u0301T\u00c9"]
    things.put_many({str(n): {"w": word, "many": [word, "x"]} for n, word in enumerate(every)})
    return things


def ids(documents: Any) -> list[str]:
    return [each.id for each in documents]


@pytest.mark.each_backend
def test_reads(words: Any) -> None:
    assert ids(words.find({"w": "ete"}, collation=BY_LETTERS)) == ["1", "2", "4"]
    assert ids(words.find({"w": "\u00c9T\u00c9"}, collation=BY_CASE)) == ["1", "4"]
    assert ids(words.find({"many": {"$in": ["ZOO"]}}, collation=BY_CASE)) == ["0", "3"]
    assert words.count({"w": {"$gt": "EU"}}, collation=BY_LETTERS) == 2
    assert words.distinct("w", collation=BY_LETTERS) == ["\u00e9t\u00e9", "Zoo"]
    assert ids(words.find(sort="w", collation=BY_CASE)) == ["2", "1", "4", "0", "3"]
    assert words.find({"w": "ete"}, collation={"locale": "simple"}) == []


@pytest.mark.each_backend
def test_writes_and_pipelines(words: Any) -> None:
    result = words.update_many({"w": "zoo"}, {"$pull": {"many": "ZOO"}}, collation=BY_CASE)
    assert result.modified_count == 2
    groups = words.aggregate([{"$sortByCount": "$w"}], collation=BY_LETTERS)
    assert groups == [{"_id": "\u00e9t\u00e9", "count": 3}, {"_id": "Zoo", "count": 2}]
    assert words.delete_many({"w": "ete"}, collation=BY_LETTERS).deleted_count == 3


def test_pages(words: Any) -> None:
    first = words.page(sort="w", limit=3, collation=BY_LETTERS)
    rest = words.page(sort="w", limit=3, after=first.cursor, collation=BY_LETTERS)
    assert ids(first) + ids(rest) == ["1", "2", "4", "0", "3"]
    with pytest.raises(InvalidCursor):
        words.page(sort="w", limit=3, after=first.cursor, collation=BY_CASE)


@pytest.mark.each_backend
@pytest.mark.parametrize("atomic", [False, True])
def test_each_request_of_a_bulk_write_has_its_collation(words: Any, atomic: bool) -> None:
    simple: Any = {"locale": "simple"}
    requests = [
        UpdateOne({"w": "ZOO"}, {"$set": {"n": 1}}, collation=BY_CASE),
        UpdateMany({"w": "ete"}, {"$inc": {"n": 2}}, collation=BY_LETTERS),
        UpdateMany({"many": "ZOO"}, {"$set": {"many.$": "Y"}}, collation=BY_CASE),
        ReplaceOne({"w": "ETE"}, {"w": "yes"}, sort={"w": 1}, collation=BY_LETTERS),
        DeleteOne({"w": "ZOO"}, collation=simple),
        DeleteOne({"w": "YES"}, collation=BY_CASE),
        DeleteMany({"w": "ete"}),
    ]
    result = words.bulk_write(requests, atomic=atomic, collation=BY_LETTERS)
    assert (result.modified_count, result.deleted_count) == (7, 3)
    bodies = [each.body for each in words.find(sort="$id")]
    assert bodies == [{"w": "Zoo", "many": ["Y", "x"], "n": 1}, {"w": "zoo", "many": ["Y", "x"]}]
    assert words.bulk_write([DeleteMany({"w": "ZOO"})], atomic=atomic).deleted_count == 0


@pytest.mark.each_backend
def test_a_wrong_collation_of_a_request_is_refused_alone(words: Any) -> None:
    requests = [
        DeleteOne({"w": "zoo"}, collation={"locale": "simple", "strength": 9}),
        DeleteOne({}),
    ]
    with pytest.raises(BulkWriteError) as refused:
        words.bulk_write(requests, ordered=False)
    [refusal] = refused.value.result.refused
    assert (refusal.position, type(refusal.error)) == (0, InvalidOption)
    assert words.count() == 4
    with pytest.raises(InvalidOption, match="option collation"):
        words.bulk_write(requests, atomic=True)


@pytest.mark.each_backend
def test_a_request_in_a_transaction_has_its_collation(store: Any) -> None:
    store["things"].put("1", {"w": "Zoo"})
    with store.transaction() as tx:
        request = DeleteMany({"w": "ZOO"}, collation=BY_CASE)
        assert tx["things"].bulk_write([request]).deleted_count == 1
