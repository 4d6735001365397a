"""The locale "simple" with a strength: case and accents without ICU."""

from typing import Any

import pytest

from collections_store import InvalidCursor

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
