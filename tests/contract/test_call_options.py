"""The options that a call takes besides the arguments of its method."""

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from backends import Backend

from collections_store import (
    AsyncStore,
    BulkWriteError,
    DeleteOne,
    InsertOne,
    InvalidCursor,
    InvalidFilter,
    InvalidOperand,
    InvalidOption,
    MissingExtra,
    Store,
    UpdateMany,
    UpdateOne,
)
from collections_store.expressions import collation

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
        of_pooler = "SELECT set_config('lock_timeout'"  # a transaction begins with it
        words = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "[parameters", of_pooler)
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
        call(fill(store))  # a first statement over arrays is executed again
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


@pytest.mark.parametrize("atomic", [False, True])
def test_hinted_requests_have_the_comment_of_the_call(
    open_store: Any, statements: Statements, *, atomic: bool
) -> None:
    store = open_store(echo=True)
    things = fill(store)
    things.create_index("n")
    requests = [UpdateOne({"n": 3}, SET, hint="n_1"), UpdateOne({"n": 3}, {"$set": {"n": 4}})]
    statements.taken()
    assert things.bulk_write(requests, atomic=atomic, comment="why").modified_count == 2
    assert all("/* why */" in text for text in statements.taken())


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


# -- let ---------------------------------------------------------------------------------------

ABOVE = {"$expr": {"$gt": ["$n", "$$least"]}}
MARK = [{"$set": {"mark": "$$mark"}}]
LET = {"least": 1, "mark": {"$concat": ["m", "!"]}}


def numbers(things: Any) -> Any:
    things.put_many({"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}})
    return things


def test_let_gives_values_to_filters(things: Any) -> None:
    numbers(things)
    options: dict[str, Any] = {"let": LET}
    assert [each.id for each in things.find(ABOVE, **options)] == ["b", "c"]
    assert [each.id for each in things.find(ABOVE, sort=[("n", -1)], limit=1, **options)] == ["c"]
    assert things.find_one(ABOVE, **options).id == "b"
    assert [each.id for each in things.stream(ABOVE, **options)] == ["b", "c"]
    assert [each.id for each in things.stream(ABOVE, sort="n", **options)] == ["b", "c"]
    assert things.count(ABOVE, **options) == 2
    assert things.distinct("n", ABOVE, **options) == [2, 3]
    assert things.find({"$or": [{"n": 1}, {"$nor": [ABOVE]}]}, **options)[0].id == "a"
    assert "$$least" in str(things.explain(ABOVE, **options).in_matcher)
    assert things.delete_one(ABOVE, **options).deleted_count == 1
    assert things.delete_many(ABOVE, **options).deleted_count == 1
    assert [each.id for each in things.find()] == ["a"]


def test_let_gives_values_to_updates(things: Any) -> None:
    numbers(things)
    options: dict[str, Any] = {"let": LET}
    assert things.update_one(ABOVE, MARK, **options).modified_count == 1
    assert things.update_many(ABOVE, MARK, **options).modified_count == 1
    assert things.get("c") == {"n": 3, "mark": "m!"}
    found = things.find_one_and_update(ABOVE, {"$set": {"mark": 0}}, sort="n", **options)
    assert found.body == {"n": 2, "mark": "m!"}
    assert things.find_one_and_replace(ABOVE, {"n": 9}, sort="n", **options).id == "b"
    assert things.replace_one(ABOVE, {"n": 8}, sort="n", **options).modified_count == 1
    assert things.find_one_and_delete(ABOVE, sort="n", **options).body == {"n": 8}
    assert things.update_one({"n": 0}, MARK, upsert=True, **options).upserted_id is not None
    assert [each.body for each in things.find({"mark": "m!"})] == [{"n": 0, "mark": "m!"}]


def test_let_gives_values_to_write_requests(things: Any) -> None:
    numbers(things)
    requests = [UpdateMany(ABOVE, MARK), DeleteOne({"$expr": {"$eq": ["$n", "$$least"]}})]
    for atomic in (False, True):
        numbers(things)
        result = things.bulk_write(requests, let=LET, atomic=atomic)
        assert (result.modified_count, result.deleted_count) == (2, 1)
        assert things.get("b") == {"n": 2, "mark": "m!"}
    with pytest.raises(BulkWriteError, match="no variable 'least'"):
        things.bulk_write(requests)


PIPELINES: list[tuple[Any, Any]] = [
    ([{"$match": ABOVE}, {"$count": "n"}], [{"n": 2}]),
    ([{"$project": {"_id": 0, "n": 1}}, {"$match": ABOVE}], [{"n": 2}, {"n": 3}]),
    ([{"$match": ABOVE}, {"$project": {"_id": 0, "m": "$$mark"}}], [{"m": "m!"}, {"m": "m!"}]),
    ([{"$group": {"_id": "$$mark", "n": {"$sum": "$$least"}}}], [{"_id": "m!", "n": 3}]),
    ([{"$facet": {"a": [{"$match": ABOVE}, {"$count": "n"}]}}], [{"a": [{"n": 2}]}]),
    (
        [{"$limit": 1}, {"$unionWith": {"coll": "things", "pipeline": [{"$match": ABOVE}]}}],
        [{"n": 1}, {"n": 2}, {"n": 3}],
    ),
    (
        [
            {"$match": ABOVE},
            {
                "$lookup": {
                    "from": "things",
                    "let": {"least": "$n"},
                    "pipeline": [
                        {"$match": ABOVE},
                        {"$project": {"_id": 0, "n": 1, "m": "$$mark"}},
                    ],
                    "as": "more",
                }
            },
            {"$project": {"_id": 0, "more": 1}},
        ],
        [{"more": [{"n": 3, "m": "m!"}]}, {"more": []}],
    ),
    (
        [{"$match": {"n": -1}}, {"$unionWith": {"pipeline": [{"$documents": "$$rows"}]}}],
        [{"x": 1}],
    ),
    (
        [
            {
                "$bucket": {
                    "groupBy": "$n",
                    "boundaries": [{"$add": ["$$least", 1]}, 100],
                    "default": "$$mark",
                }
            },
            {"$project": {"_id": 0, "id": "$_id", "count": 1}},
        ],
        [{"count": 2, "id": 2}, {"count": 1, "id": "m!"}],
    ),
]


@pytest.mark.each_backend
@pytest.mark.parametrize(("pipeline", "expected"), PIPELINES)
def test_let_gives_values_to_pipelines(things: Any, pipeline: Any, expected: Any) -> None:
    numbers(things)
    let = {**LET, "rows": [{"x": 1}]}
    assert things.aggregate(pipeline, let=let) == expected
    assert list(things.stream_aggregate(pipeline, let=let)) == expected
    assert things.aggregate([{"$merge": "others"}], let=let) == []


def test_a_missing_collection_knows_the_variables(store: Any) -> None:
    pipeline = [{"$unionWith": {"pipeline": [{"$documents": "$$rows"}]}}]
    assert store["nothing"].aggregate(pipeline, let={"rows": [{"x": 1}]}) == [{"x": 1}]


def test_let_gives_values_to_the_pipeline_of_a_merge(store: Any) -> None:
    numbers(store["things"])
    when = [{"$set": {"mark": "$$mark", "new": "$$new.n"}}]
    store["things"].aggregate([{"$merge": {"into": "things", "whenMatched": when}}], let=LET)
    assert store["things"].get("b") == {"n": 2, "mark": "m!", "new": 2}


def test_let_gives_values_to_projections(things: Any) -> None:
    numbers(things)
    projection = {"_id": 0, "more": {"$add": ["$n", "$$least"]}}
    found = things.find({"n": 2}, projection=projection, let=LET)
    assert [each.body for each in found] == [{"more": 3}]
    found = list(things.stream({"n": 2}, projection=projection, let=LET))
    assert [each.body for each in found] == [{"more": 3}]


def test_values_are_expressions_evaluated_once(things: Any) -> None:
    things.put_many({str(n): {} for n in range(50)})
    let = {"r": {"$rand": {}}, "twice": {"$multiply": ["$$r", 2]}, "at": "$$NOW", "no": "$$REMOVE"}
    parts = {"r": "$$r", "twice": "$$twice", "at": "$$at", "now": "$$NOW", "no": "$$no"}
    found = things.aggregate([{"$project": {"_id": 0, **parts}}], let=let)
    assert len(found) == 50
    assert all(each == found[0] for each in found)
    assert found[0]["twice"] == 2 * found[0]["r"]
    assert found[0]["at"] == found[0]["now"]
    assert "no" not in found[0]
    things.update_many({"$expr": {"$lt": ["$$r", 2]}}, [{"$set": parts}], let=let)
    bodies = [each.body for each in things.find()]
    assert bodies[0].keys() == {"r", "twice", "at", "now"}
    assert all(each == bodies[0] for each in bodies)


def test_a_text_with_a_dollar_is_literal_only_if_it_says_so(things: Any) -> None:
    things.put("a", {"price": "$5"})
    filter = {"$expr": {"$eq": ["$price", "$$price"]}}
    assert len(things.find(filter, let={"price": {"$literal": "$5"}})) == 1
    with pytest.raises(InvalidOption, match=r"option let.price: must be of constants"):
        things.find(filter, let={"price": "$5"})


def test_a_cursor_belongs_to_the_values(things: Any) -> None:
    numbers(things)
    page = things.page(ABOVE, limit=1, let={"least": 1})
    assert [each.id for each in things.page(ABOVE, after=page.cursor, let={"least": 1})] == ["c"]
    with pytest.raises(InvalidCursor):
        things.page(ABOVE, after=page.cursor, let={"least": 0})


@pytest.mark.parametrize(
    ("let", "problem"),
    [
        (5, "option let: must be a document of variables, got 5"),
        ([["a", 1]], "option let: must be a document"),
        ({"Least": 1}, "option let.Least: a variable must begin with a lower-case letter, got 'Le"),
        ({"": 1}, "must begin with a lower-case letter"),
        ({"a.b": 1}, "must begin with a lower-case letter"),
        ({"a": "$n"}, "option let.a: must be of constants: it is evaluated once, before any"),
        ({"a": {"$add": [1, "$$ROOT"]}}, "option let.a: must be of constants"),
        ({"a": "$$b", "b": 1}, "option let.a: there is no variable 'b'"),
        ({"a": {"$nope": 1}}, "option let.a.*: no such operator"),
        ({"a": {1, 2}}, "option let.a: "),
    ],
)
def test_odd_variables_are_refused(things: Any, let: Any, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        things.find({}, let=let)
    with pytest.raises(InvalidOption, match=problem):
        things.aggregate([], let=let)
    assert things.find({}, let=None) == []
    assert things.find({}, let={}) == []


def test_an_unknown_variable_is_refused(things: Any) -> None:
    with pytest.raises(InvalidFilter, match="there is no variable 'least'"):
        things.find(ABOVE, let={"most": 1})
    with pytest.raises(InvalidOperand, match="cannot read 'x' as a number"):
        things.find({}, let={"a": {"$toInt": "x"}})


# -- hint --------------------------------------------------------------------------------------


def indexed(things: Any) -> Any:
    things.put_many({str(n): {"a": n % 2, "b": -n, "c": n} for n in range(6)})
    things.create_index("a")
    things.create_index([("b", 1), ("c", -1)], name="both")
    return things


def ids(documents: Any) -> str:
    return "".join(each.id for each in documents)


HINTS: list[Any] = [
    "both",
    [("b", 1), ("c", -1)],
    {"b": 1, "c": -1},
    "a_1",
    {"a": 1},
    {"$natural": 1},
    "_id_",
    {"_id": 1},
]


@pytest.mark.each_backend
@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_a_hint_changes_no_result(things: Any, hint: Any) -> None:
    indexed(things)
    for _ in range(2):
        filter = {"a": 1, "b": {"$lt": 0}}
        assert sorted(ids(things.find(filter, hint=hint))) == ["1", "3", "5"]
        assert ids(things.find(filter, sort="c", hint=hint)) == "135"
        assert len(things.find(filter, limit=2, hint=hint)) == 2
        assert things.count(filter, hint=hint) == 3
        assert ids(things.page(filter, sort="c", limit=2, hint=hint)) == "13"
        assert ids(things.stream(filter, hint=hint)) == "135"
        assert ids(things.stream(filter, sort="c", hint=hint)) == "135"
        assert things.distinct("c", filter, hint=hint) == [1, 3, 5]
        assert things.aggregate([{"$match": filter}, {"$count": "n"}], hint=hint) == [{"n": 3}]
        assert things.update_many(filter, SET, hint=hint).matched_count == 3
        assert things.update_one(filter, SET, sort="c", hint=hint).matched_count == 1
        found = things.find_one_and_delete(filter, sort="c", hint=hint)
        assert found.id == "1"
        things.put("1", found.body)
        assert things.delete_many(filter, hint=hint).deleted_count == 3
        things.put_many({str(n): {"a": 1, "b": -n, "c": n} for n in (1, 3, 5)})
        requests = [UpdateOne({"b": -1}, SET, hint=hint), DeleteOne({"a": 7}, hint="a_1")]
        if hint not in ("a_1", {"a": 1}):
            assert things.bulk_write(requests).matched_count == 1
        things.put("6", {"a": 0, "b": [1], "c": [2]})  # arrays: the exact form


@pytest.mark.each_backend
def test_an_index_is_chosen_by_the_hint(things: Any) -> None:
    indexed(things)
    filter = {"a": 1, "b": {"$lt": 0}}
    assert "both" not in things.explain(filter, hint="a_1").indexes
    assert "a_1" not in things.explain(filter, hint="both").indexes
    plan = things.explain(filter, hint={"$natural": 1})
    assert not {"a_1", "both"} & set(plan.indexes)
    assert ids(things.find({"a": 1, "b": {"$lt": 0}}, hint="both")) == "531"
    assert ids(things.find({"b": {"$lt": -1}}, limit=2, hint="both")) == "54"
    assert ids(things.find({"b": {"$lt": -1}}, limit=2, hint={"$natural": 1})) == "23"


def test_sqlite_reads_by_the_hint() -> None:
    with Store("sqlite://") as store:
        things = indexed(store["things"])
        filter = {"a": 1, "b": {"$lt": 0}}
        assert things.explain(filter, hint="a_1").indexes == ("a_1",)
        assert things.explain(filter, hint="both").indexes == ("both",)
        assert things.explain(filter, hint={"$natural": 1}).scans
        assert things.explain({"$id": "1"}, hint={"$natural": 1}).scans
        plan = things.explain({"c": 1}, hint="a_1")
        assert (plan.indexes, plan.scans) == (("a_1",), True)
        for narrow in (filter, {"$id": "1"}, {}):
            assert things.explain(narrow, hint="_id_").indexes == ("$id",)


@pytest.mark.each_backend
def test_the_index_of_ids_is_a_hint(store: Any) -> None:
    things = store["things"]
    things.put_many({id: {"a": 1, "n": n} for n, id in enumerate("cabd")})
    things.create_index("a")
    for hint in ("_id_", {"_id": 1}):
        assert ids(things.find({"a": 1}, hint=hint)) == "abcd"
        assert ids(things.find({"n": {"$gt": 0}}, limit=2, hint=hint)) == "ab"
        assert ids(things.find({"n": {"$bitsAllClear": 4}}, hint=hint)) == "abcd"
        assert "a_1" not in things.explain({"a": 1}, hint=hint).indexes
    store.rename("things", "others")
    assert ids(store["others"].find({"a": 1}, hint="_id_")) == "abcd"
    store["others"].create_index("n", name="_id_")
    assert ids(store["others"].find({"n": {"$gte": 0}}, hint="_id_")) == "cabd"
    assert ids(store["others"].find({"n": {"$gte": 0}}, hint={"_id": 1})) == "abcd"


def test_a_hint_chooses_among_indexes_of_arrays() -> None:
    with Store("sqlite://") as store:
        things = store["things"]
        things.put_many((str(n), {"a": [n, -n], "b": [n], "c": n}) for n in range(300))
        things.create_index("a", arrays=True)
        things.create_index("$**")
        things.create_index(["a", "c"], arrays=True)
        things.create_index("c")
        filter = {"a": {"$gt": 297}, "b": {"$gt": 0}, "c": {"$gt": 0}}
        for name in ("a_arrays", "$**_1", "a_1_c_1_arrays", "c_1"):
            assert things.explain(filter, hint=name).indexes == (name,)
            assert ids(things.find(filter, sort="c", hint=name)) == "298299"
        plan = things.explain(filter, hint={"$natural": 1})
        assert (plan.indexes, plan.scans) == ((), True)
        assert ids(things.find(filter, hint={"$natural": 1})) == "298299"


@pytest.mark.each_backend
def test_a_partial_index_needs_its_condition(things: Any) -> None:
    indexed(things)
    things.create_index("c", where={"a": 1})
    assert ids(things.find({"a": 1, "c": {"$gt": 1}}, hint="c_1")) == "35"
    for filter in ({"c": {"$gt": 1}}, {"a": 0, "c": 1}):
        with pytest.raises(InvalidOption, match="hint: c_1 is a partial index: the filter must"):
            things.find(filter, hint="c_1")
        with pytest.raises(InvalidOption, match="hint: c_1 is a partial index: the filter must"):
            things.update_many(filter, SET, hint="c_1")


@pytest.mark.each_backend
def test_a_hint_is_for_the_first_reading_of_a_pipeline(things: Any) -> None:
    things.put_many((str(n), {"a": n % 3, "b": n % 2}) for n in range(8))
    things.create_index("a", where={"a": {"$gt": 0}}, name="some")
    first = {"$match": {"a": {"$gt": 0}}}
    fields = {"localField": "b", "foreignField": "b", "as": "same"}
    joined = [
        first,
        {"$lookup": {"from": things.name, **fields}},
        {"$unwind": "$same"},
        {"$count": "n"},
    ]
    union = [first, {"$unionWith": things.name}, {"$count": "n"}]
    for pipeline, number in ((joined, 20), (union, 13)):
        assert things.aggregate(pipeline, hint="some") == [{"n": number}]
    assert things.explain(first["$match"], hint="some").in_matcher is None


@pytest.mark.each_backend
def test_a_whole_index_is_chosen_before_a_partial_one_with_the_same_keys(things: Any) -> None:
    things.put_many((str(n), {"a": n}) for n in range(9))
    things.create_index("a", where={"a": {"$gt": 5}}, name="some")
    things.create_index("a", name="all")
    assert things.count({"a": {"$gte": 0}}, hint={"a": 1}) == 9


JOINS: list[Any] = [
    {"$lookup": {"from": "things", "localField": "a", "foreignField": "a", "as": "j"}},
    {"$unionWith": "things"},
    {"$graphLookup": {
        "from": "things", "startWith": "$a", "connectFromField": "a", "connectToField": "a", "as": "j",
    }},
]  # fmt: skip


@pytest.mark.each_backend
@pytest.mark.parametrize("join", JOINS, ids=lambda each: next(iter(each)))
def test_a_hint_is_not_for_the_joined_collection(things: Any, join: Any) -> None:
    """Even if a collection is joined with itself."""
    indexed(things)
    things.create_index("c", where={"a": 1})
    join = json.loads(json.dumps(join).replace('"things"', json.dumps(things.name)))
    pipeline = [{"$match": {"a": 1, "c": {"$gt": 1}}}, join]
    expected = things.aggregate(pipeline)
    assert things.aggregate(pipeline, hint="c_1", comment="why") == expected
    assert list(things.stream_aggregate(pipeline, hint="c_1")) == expected


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        ("c_1", r"must be an index of fields of 'things' \(a_1, both\), got 'c_1'"),
        ({"b": 1}, r"must be an index of fields of 'things' \(a_1, both\), got {'b': 1}"),
        ({"$natural": -1}, r"or be {'\$natural': 1}, got {'\$natural': -1}"),
        ([], r"must name an index or its keys, or be {'\$natural': 1}, got \[\]"),
        (5, "must name an index or its keys, or be .*, got 5"),
        ({"a": 2}, "option hint: "),
        ({"_id": -1}, r"must be an index of fields of 'things' \(a_1, both\), got {'\$id': -1}"),
    ],
)
def test_unknown_hints_are_refused(things: Any, hint: Any, problem: str) -> None:
    indexed(things)
    for name, call in METHODS.items():
        if name == "bulk_write":
            continue
        with pytest.raises(InvalidOption, match=problem if "bulk" not in name else "option hint"):
            call(things, hint=hint)
    with pytest.raises(BulkWriteError, match=problem):
        things.bulk_write([UpdateOne({}, SET, hint=hint)])
    with pytest.raises(InvalidOption, match="option hint: belongs to a write request"):
        things.bulk_write([], hint="a_1")


def test_a_hint_ends_with_the_call(things: Any) -> None:
    indexed(things)
    things.find({"a": 1}, hint={"$natural": 1})
    assert things.explain({"a": 1}).indexes == things.explain({"a": 1}, hint=None).indexes
    assert things.find({}, hint="both", limit=1)[0].id == "5"
    assert things.find({}, limit=1)[0].id == "0"


def test_hints_of_a_missing_collection(store: Any) -> None:
    assert store["nothing"].find({}, hint="a_1") == []


def test_icu_is_an_extra(things: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu", None)
    collation._key_function.cache_clear()
    with pytest.raises(MissingExtra, match=r"collections-store\[collation\]'; for simple folding"):
        things.find({}, collation={"locale": "en"})
    assert things.find({}, collation={"locale": "simple"}) == []
    things.put_many({"1": {"w": "\u00c9t\u00e9"}, "2": {"w": "ete"}})
    for strength, found in ((1, ["1", "2"]), (2, ["2"])):
        folding = {"locale": "simple", "strength": strength}
        assert [each.id for each in things.find({"w": "ETE"}, collation=folding)] == found
