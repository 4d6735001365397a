"""The options that a call takes besides the arguments of its method."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from backends import Backend

from collections_store import (
    AsyncStore,
    DeleteOne,
    InsertOne,
    InvalidOperand,
    InvalidOption,
    Store,
    UpdateMany,
    UpdateOne,
)

SET = {"$set": {"seen": True}}
METHODS: dict[str, Callable[..., Any]] = {
    "find": lambda c, **o: c.find({"n": 1}, **o),
    "find_one": lambda c, **o: c.find_one({"n": 1}, **o),
    "find by a range of ids": lambda c, **o: c.find({"$id": {"$gte": "a", "$lt": "c"}}, **o),
    "find by ids": lambda c, **o: c.find({"$id": {"$in": ["a", "b"]}}, **o),
    "page": lambda c, **o: c.page({"n": 1}, sort="n", **o),
    "stream": lambda c, **o: list(c.stream({"n": 1}, **o)),
    "stream sorted": lambda c, **o: list(c.stream({"n": 1}, sort="n", **o)),
    "count": lambda c, **o: c.count({"n": 1}, **o),
    "distinct": lambda c, **o: c.distinct("n", {"n": 1}, **o),
    "explain": lambda c, **o: c.explain({"n": 1}, **o),
    "update_one": lambda c, **o: c.update_one({"n": 1}, SET, **o),
    "update_many": lambda c, **o: c.update_many({"n": 1}, SET, **o),
    "replace_one": lambda c, **o: c.replace_one({"n": 1}, {"n": 1}, **o),
    "find_one_and_update": lambda c, **o: c.find_one_and_update({"n": 1}, SET, **o),
    "find_one_and_replace": lambda c, **o: c.find_one_and_replace({"n": 1}, {"n": 1}, **o),
    "find_one_and_delete": lambda c, **o: c.find_one_and_delete({"n": 1}, **o),
    "delete_one": lambda c, **o: c.delete_one({"n": 1}, **o),
    "delete_many": lambda c, **o: c.delete_many({"n": 1}, **o),
    "aggregate": lambda c, **o: c.aggregate([{"$match": {"n": 1}}], **o),
    "aggregate and write": lambda c, **o: c.aggregate([{"$out": "others"}], **o),
    "stream_aggregate": lambda c, **o: list(c.stream_aggregate([{"$match": {"n": 1}}], **o)),
    "bulk_write": lambda c, **o: c.bulk_write([UpdateMany({"n": 1}, SET), InsertOne({})], **o),
    "bulk_write atomic": lambda c, **o: c.bulk_write([DeleteOne({"n": 1})], atomic=True, **o),
}
HOSTILE = "a */ b /* c */ -- 'd' \"e\" %s %(f)s %% :g ? $1 {h} \\ ** //*/"


class Statements(logging.Handler):
    """The executed statements."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def taken(self) -> list[str]:
        """Return the statements since the last call, without those that have no comment by design."""
        taken, self.texts = self.texts, []
        words = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "[parameters")
        return [text for text in taken if not text.startswith(words)]


@pytest.fixture
def statements() -> Iterator[Statements]:
    """The log of the statements of stores with `echo`."""
    log, handler = logging.getLogger("collections_store.statements"), Statements()
    level = log.level
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


def fill(store: Any) -> Any:
    things = store["things"]
    things.put_many({"a": {"n": 1}, "b": {"n": [1, 2]}, "c": {"n": 3}})
    return things


@pytest.mark.each_backend
def test_each_statement_of_a_call_has_the_comment(open_store: Any, statements: Statements) -> None:
    store = open_store(echo=True)
    store["others"].put("a", {})
    for name, call in METHODS.items():
        things = fill(store)
        statements.taken()
        call(things)
        before = statements.taken()
        fill(store)
        statements.taken()
        call(things, comment="why")
        after = statements.taken()
        assert after, name
        assert [text.replace("/* why */ ", "") for text in after] == before, name
        assert all(text.count("/* why */") == 1 for text in after), name
        things.get("a")
        assert "why" not in "".join(statements.taken()), name


@pytest.mark.each_backend
def test_a_comment_ends_with_the_call(open_store: Any, statements: Statements) -> None:
    store = open_store(echo=True)
    fill(store)
    with store.transaction() as tx:
        statements.taken()
        assert tx["things"].count({"n": 1}, comment="first") == 2
        with pytest.raises(InvalidOperand, match="cannot read"):
            tx["things"].aggregate([{"$match": {"$expr": {"$toInt": "x"}}}], comment="second")
        assert tx["things"].count({"n": 1}) == 2
        texts = statements.taken()
    assert "first" in texts[0]
    assert "/*" not in texts[-1]


@pytest.mark.each_backend
def test_no_text_ends_a_comment(things: Any) -> None:
    fill({"things": things})
    for name, call in METHODS.items():
        call(things, comment=HOSTILE)
        assert things.count() >= 1, name
    assert [each.id for each in things.find({"n": 3}, comment=HOSTILE)] == ["c"]


@pytest.mark.parametrize("comment", ["a\nb", "\x00", "\ud800", "x" * 257, 5, b"x", ["x"]])
def test_odd_comments_are_refused(things: Any, comment: Any) -> None:
    with pytest.raises(InvalidOption, match="option comment: must be a string of up to 256 print"):
        things.find({}, comment=comment)
    assert things.find({}, comment=None) == []
    assert things.find({}, comment="x" * 256) == []


def test_unknown_options_are_refused(things: Any) -> None:
    for name, call in METHODS.items():
        with pytest.raises(TypeError, match=r"the call has no option 'coment': did you mean 'comm"):
            call(things, coment="x")
        assert name


def test_the_record_has_the_comment() -> None:
    records: list[Any] = []
    with Store("sqlite://", on_operation=records.append) as store:
        things = fill(store)
        things.find({"n": 1}, comment="why")
        things.update_one({"n": 1}, SET, comment="so")
        things.find({"n": 1})
    found, updated, plain = records[-3:]
    assert (found.name, found.comment, found.shape, found.rows) == ("find", "why", "{'n': ?}", 2)
    assert str(found).endswith(", {'n': ?}, comment 'why'")
    assert (updated.name, updated.comment, updated.rows) == ("update_one", "so", 1)
    assert plain.comment is None


def test_a_slow_call_with_a_comment_has_advice(caplog: pytest.LogCaptureFixture) -> None:
    with Store("sqlite://", slow_operation=0) as store:
        store["things"].put("a", {"n": 1})
        caplog.clear()
        store["things"].find({"n": 1}, comment="why")
    assert "comment 'why'; advice: create_index" in caplog.text


def test_documents_of_versions_take_comments(open_store: Any, statements: Statements) -> None:
    store = open_store(echo=True)
    old = store["things"]
    old.put("a", {"n": 1})
    things = store.collection("things", schema_version=2, upgrades={1: lambda body: body})
    things.upgrade_documents()
    for call in METHODS.values():
        things.put("a", {"n": 1})
        call(things, comment="why")
    assert "/* why */" in "".join(statements.taken())


def test_pg_stat_activity_shows_the_comment(postgres_backend: Backend) -> None:
    query = "SELECT query FROM pg_stat_activity WHERE query LIKE '%%/* job 42: 100% done */%%'"
    with (
        Store(postgres_backend.url, **postgres_backend.options) as store,
        store.transaction() as tx,
        psycopg.connect(postgres_backend.url.replace("+psycopg", "")) as other,
    ):
        tx["things"].put("a", {"n": 1})
        assert len(tx["things"].find({"n": 1}, comment="job 42: 100% done")) == 1
        assert any("cs_" in text for (text,) in other.execute(query))


def test_bulk_writes_of_versions_have_the_comment() -> None:
    with Store("sqlite://") as store:
        things = store.collection("things", schema_version=1)
        things.put("a", {"n": 1})
        result = things.bulk_write([UpdateOne({"n": 1}, SET)], comment="why")
        assert result.modified_count == 1


def test_the_async_store_takes_the_same_options() -> None:
    async def main() -> int:
        async with AsyncStore("sqlite://") as store:
            await store["things"].put("a", {"n": 1})
            return await store["things"].count({"n": 1}, comment="why")

    assert asyncio.run(main()) == 1
