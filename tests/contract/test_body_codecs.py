"""Bodies pass the codec of their collection on every way in and out, and filters see what is stored."""

from dataclasses import dataclass
from typing import Any

import pytest
from backends import unwrap

from collections_store import (
    InsertOne,
    InvalidBody,
    ReplaceOne,
    ReturnDocument,
    UpdateOne,
)
from collections_store.codec import BodySkipped, Codec, decode
from collections_store.results import Invalid

pytestmark = pytest.mark.each_backend


@dataclass
class Point:
    """A body of the codec: stored as {"x": …, "y": …}."""

    x: int
    y: Any = None


@dataclass(frozen=True, slots=True)
class PointCodec(Codec):
    """Stores points with an `x` from 0 on."""

    is_plain = False
    skips: bool = False

    def encode_body(self, body: Any) -> str:
        return self.encode_updated({"x": body.x, "y": body.y} if isinstance(body, Point) else body)

    def encode_updated(self, body: Any) -> str:
        text = Codec.encode(self, body)
        _read(text)
        return text

    def decode_body(self, text: str | bytes) -> Any:
        try:
            return _read(text)
        except InvalidBody as error:
            if self.skips:
                raise BodySkipped(error.path, error.problem) from None
            raise


def _read(text: str | bytes) -> Point:
    found = decode(text)
    if found["x"] < 0:
        raise InvalidBody("x", "must be 0 or more")
    return Point(**found)


@pytest.fixture
def points(store: Any) -> Any:
    store.collection("points", changes="both")
    collection = store["points"]
    unwrap(collection)._codec = PointCodec()
    return collection


@pytest.fixture
def skipping(store: Any, points: Any) -> Any:
    collection = store["points"]
    unwrap(collection)._codec = PointCodec(skips=True)
    return collection


def test_bodies_of_single_documents(points: Any, store: Any) -> None:
    points.put("a", Point(1))
    assert points.get("a") == points.document("a").body == Point(1)
    assert store["points"].get("a") == {"x": 1, "y": None}
    points.insert_one(Point(2), id="b")
    points.put_many({"c": Point(3)})
    points.insert_many({"d": Point(4)})
    points.bulk_write([InsertOne(Point(5), id="e"), ReplaceOne({"x": 3}, Point(6))])
    expected = {"a": Point(1), "b": Point(2), "c": Point(6), "d": Point(4), "e": Point(5)}
    assert points.get_many([*"abcde"]) == expected
    assert points.change("a", lambda point: Point(point.x + 9)) == points.get("a") == Point(10)
    assert points.increment("a", "x") == 11


FILTERS: list[Any] = [{}, {"x": {"$gte": 0}}, {"$expr": {"$gte": ["$x", 0]}}]


@pytest.mark.parametrize("filter", FILTERS, ids=str)
@pytest.mark.parametrize("y", [1, [2, 1]], ids=str)
def test_bodies_of_found_documents(points: Any, filter: Any, y: Any) -> None:
    """`$expr` is the matcher's, and Python sorts by arrays: all ways of reading."""
    points.put_many({str(n): Point(n, y) for n in range(5)})
    for sort in (None, "x", "y", {"y": -1}):
        assert_all_found(points, filter, sort, [Point(n, y) for n in range(5)])


def assert_all_found(points: Any, filter: Any, sort: Any, expected: list[Point]) -> None:
    assert [each.body for each in points.find(filter, sort=sort)] == expected
    assert points.find_one(filter, sort=sort).body == expected[0]
    first = points.page(filter, sort=sort, limit=2)
    rest = points.page(filter, sort=sort, after=first.cursor)
    assert [each.body for page in (first, rest) for each in page] == expected
    assert [each.body for each in points.stream(filter, sort=sort)] == expected
    assert [each.body for each in points.find(filter, sort=sort, projection=["x"])] == [
        {"x": n} for n in range(5)
    ]


def test_find_and_modify(points: Any) -> None:
    points.put("a", Point(1))
    after = {"return_document": ReturnDocument.AFTER}
    assert points.find_one_and_update({}, {"$inc": {"x": 1}}).body == Point(1)
    assert points.find_one_and_update({}, {"$inc": {"x": 1}}, **after).body == Point(3)
    assert points.find_one_and_replace({"x": 3}, Point(4), **after).body == Point(4)
    assert points.find_one_and_delete({"x": 4}).body == Point(4)


def test_an_update_that_makes_an_invalid_body_changes_nothing(points: Any) -> None:
    points.put("a", Point(1))
    down = {"$set": {"x": -1}}
    calls: list[Any] = [
        lambda: points.update("a", down),
        lambda: points.update_one({}, down),
        lambda: points.update_many({}, down),
        lambda: points.update("b", down, upsert=True),
        lambda: points.find_one_and_update({}, down),
        lambda: points.increment("a", "x", -2),
        lambda: points.increment("b", "x", -2),
        lambda: points.bulk_write([UpdateOne({}, down)], atomic=True),
        lambda: points.replace_one({}, {"x": -1}),
        lambda: points.change("a", lambda _: Point(-1)),
        lambda: points.put("a", Point(-1)),
    ]
    for call in calls:
        with pytest.raises(InvalidBody, match=r"at 'x': must be 0 or more"):
            call()
    assert points.document("a").version == 1
    assert points.count() == 1


def test_a_stored_body_that_cannot_be_read_names_its_document(points: Any, store: Any) -> None:
    store["points"].put_many({"good": {"x": 1}, "bad": {"x": -1}})
    reads: list[Any] = [
        lambda: points.get("bad"),
        lambda: points.document("bad"),
        lambda: points.get_many(["bad"]),
        points.find,
        lambda: points.find({}, sort="x"),
        points.page,
        lambda: list(points.stream()),
        lambda: list(points.stream(sort="x")),
        lambda: points.change("bad", lambda _: Point(1)),
        lambda: points.find_one_and_update({"x": -1}, {"$set": {"x": 2}}),
        lambda: points.find_one_and_delete({"x": -1}),
    ]
    for read in reads:
        with pytest.raises(InvalidBody) as caught:
            read()
        error = caught.value
        assert (error.collection, error.id, error.path) == ("points", "bad", "x")
        assert "collection points: document 'bad': at 'x': must be 0 or more" in str(error)
    assert store["points"].document("bad").version == 1


def test_skipped_bodies_are_left_out_and_logged(
    skipping: Any, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store["points"].put_many({"good": {"x": 1}, "bad": {"x": -1}})
    assert skipping.get("bad", "none") == "none"
    assert skipping.document("bad") is None
    assert skipping.get_many(["bad", "good"]) == {"good": Point(1)}
    for found in (
        skipping.find(),
        skipping.find({}, sort="x"),
        skipping.page(),
        skipping.stream(),
        skipping.stream(sort="x"),
    ):
        assert [each.body for each in found] == [Point(1)]
    assert skipping.count() == 2
    assert {each.getMessage() for each in caplog.records} == {
        "left out: collection points: document 'bad': at 'x': must be 0 or more"
    }


def test_changes_have_the_bodies_or_show_invalid_ones(
    points: Any, skipping: Any, store: Any
) -> None:
    store["points"].put("a", {"x": -1})
    points.put("a", Point(2))
    for collection in (points, skipping):
        stream = collection.watch({"x": {"$lt": 9}}, after="oldest", timeout=0)
        insert, update = list(stream)
        assert isinstance(insert.body, Invalid)
        assert insert.body.body == {"x": -1}
        assert isinstance(update.before, Invalid)
        assert update.body == Point(2)
