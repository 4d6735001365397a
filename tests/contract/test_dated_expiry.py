"""Documents that expire by a time in a field: the purge deletes them; other values never expire."""

import time
from typing import Any

import pytest
from backends import Backend
from conftest import Clock

from collections_store import IndexExists, InvalidIndex, Store
from collections_store.operations.write import PURGE_BATCH

pytestmark = pytest.mark.each_backend

EXPIRED: dict[str, Any] = {
    "six digits": "2023-11-14T22:13:19.999999Z",
    "three digits": "2023-11-14T22:13:19.999Z",
    "none": "2023-11-14T22:13:20Z",
    "now": "2023-11-14T22:13:20.000000Z",
    "old": "0001-01-01T00:00:00.000000Z",
    "earliest": ["2023-11-14T22:13:21.000000Z", "2023-11-14T22:13:19.000000Z"],
    "among others": [5, "text", None, "2020-01-01T00:00:00.000000Z"],
}
LASTING: dict[str, Any] = {
    "next microsecond": "2023-11-14T22:13:20.000001Z",
    "next millisecond": "2023-11-14T22:13:20.001Z",
    "later": ["2023-11-14T22:13:21.000000Z"],
    "null": None,
    "number": 1,
    "date": "2020-01-01",
    "local": "2020-01-01T00:00:00.000000",
    "offset": "2020-01-01T00:00:00.000000+01:00",
    "no such month": "2020-13-01T00:00:00.000000Z",
    "text": "1 o'clock",
    "nested": [["2020-01-01T00:00:00.000000Z"]],
    "object": {"at": "2020-01-01T00:00:00.000000Z"},
    "empty": [],
}
NOW = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z


def bodies(things: Any) -> set[str]:
    return {document.id for document in things.find()}


@pytest.mark.parametrize("seconds", [0, 3600])
def test_documents_expire_by_a_time_in_a_field(things: Any, clock: Clock, seconds: int) -> None:
    clock.now = NOW + seconds * 10**6
    name = things.create_index("at", expire_after_seconds=seconds)
    things.put_many({id: {"at": value} for id, value in {**EXPIRED, **LASTING}.items()})
    things.put_many({"missing": {}, "scalar": "2020-01-01T00:00:00.000000Z"})
    assert str(things.indexes()[0]) == f"{name}: {{'at': 1}}, expires after {seconds} s"
    assert things.count() == len(EXPIRED) + len(LASTING) + 2  # until the purge
    assert things.purge_expired() == len(EXPIRED)
    assert bodies(things) == {*LASTING, "missing", "scalar"}
    assert things.purge_expired() == 0


def test_a_purge_deletes_more_than_a_batch(things: Any, clock: Clock) -> None:
    clock.now = NOW
    things.create_index("a.at", expire_after_seconds=0)
    things.put_many((str(n), {"a": {"at": EXPIRED["old"]}}) for n in range(1500))
    things.put("in array", {"a": [{"at": LASTING["later"]}, {"at": EXPIRED["now"]}]})
    things.put("later", {"a": [{"at": LASTING["later"]}, {"b": EXPIRED["now"]}]})
    assert things.purge_expired() == 1501
    assert bodies(things) == {"later"}


@pytest.mark.parametrize("lasting", [10, PURGE_BATCH - 1, PURGE_BATCH, PURGE_BATCH + 1])
def test_other_strings_are_before_the_expired_times(
    things: Any, clock: Clock, lasting: int
) -> None:
    """A full batch of them comes first in the index: the purge reads on, in natural order."""
    clock.now = NOW
    things.create_index("at", expire_after_seconds=0)
    things.put_many((str(n), {"at": LASTING["text"]}) for n in range(lasting))
    assert things.purge_expired() == 0
    things.put_many({f"old {n}": {"at": EXPIRED["now"]} for n in range(10)})
    assert things.purge_expired() == 10
    assert things.count() == lasting


@pytest.mark.parametrize("options", [{"unique": True}, {"sparse": True}, {"where": {"on": True}}])
def test_other_options_go_with_it(things: Any, clock: Clock, options: dict[str, Any]) -> None:
    clock.now = NOW
    things.create_index("at", expire_after_seconds=0, **options)
    things.put_many({"1": {"at": EXPIRED["now"], "on": True}, "2": {"at": EXPIRED["old"]}, "3": {}})
    assert things.purge_expired() == (1 if "where" in options else 2)
    assert bodies(things) == ({"2", "3"} if "where" in options else {"3"})


def test_the_changes_record_the_expiry(store: Any, clock: Clock) -> None:
    clock.now = NOW
    things = store.collection("things", changes="both")
    things.create_index("at", expire_after_seconds=0)
    things.put("1", {"at": EXPIRED["now"]})
    with things.watch(after="oldest", timeout=0) as changes:
        assert [each.kind for each in changes] == ["insert"]
    assert things.purge_expired() == 1
    with things.watch(after="oldest", timeout=0) as changes:
        [_, expired] = changes
    assert (expired.kind, expired.id, expired.before) == ("expire", "1", {"at": EXPIRED["now"]})


def test_the_sweeper_deletes_them(shared_backend: Backend) -> None:
    with Store(shared_backend.url, **shared_backend.options, sweep_interval=0.01) as store:
        things = store["things"]
        things.create_index("at", expire_after_seconds=10)
        things.put_many({"1": {"at": EXPIRED["now"]}, "2": {"at": LASTING["null"]}})
        while things.count() > 1:
            time.sleep(0.01)
        assert bodies(things) == {"2"}


def test_a_dropped_index_deletes_nothing(things: Any, clock: Clock) -> None:
    clock.now = NOW
    things.drop_index(things.create_index("at", expire_after_seconds=0))
    things.put("1", {"at": EXPIRED["now"]})
    assert things.purge_expired() == 0
    assert things.create_index("at") == "at_1"
    with pytest.raises(IndexExists):
        things.create_index("at", expire_after_seconds=0)


def test_a_copy_expires(shared_backend: Backend) -> None:
    with (
        Store(shared_backend.url, **shared_backend.options) as store,
        Store("sqlite://") as target,
    ):
        store["things"].create_index("at", expire_after_seconds=5)
        store.copy_to(target)
        [index] = target["things"].indexes()
        assert getattr(index, "expire_after_seconds", None) == 5


@pytest.mark.parametrize("value", [-1, 2**31, 1.0, True, "5"])
def test_seconds_are_an_integer(things: Any, value: Any) -> None:
    with pytest.raises(InvalidIndex, match="must be an integer from 0 to 2,147,483,647, got"):
        things.create_index("at", expire_after_seconds=value)


def test_the_index_is_on_one_field(things: Any) -> None:
    for keys in (["at", "by"], "$updated_at"):
        with pytest.raises(InvalidIndex, match="requires an index on one field of the body"):
            things.create_index(keys, expire_after_seconds=5)
    with pytest.raises(InvalidIndex, match="create the index without it"):
        things.create_index("at", expire_after_seconds=5, arrays=True)
