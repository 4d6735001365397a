"""Keys, values, names and cursors of an attacker, in every argument: results equal those of the matcher, or an error of
the library is raised, and nothing else changes.
"""

import hashlib
import hmac
import random
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, product
from typing import Any

import pytest
from backends import Backend
from contract.test_hostile_text import HOSTILE, UNSTORABLE
from selection import in_turns, sampled

from collections_store import (
    CollectionsStoreError,
    Document,
    DuplicateKey,
    Filter,
    InvalidCursor,
    InvalidFilter,
    InvalidIndex,
    InvalidProjection,
    InvalidSort,
    Path,
    Projection,
    Store,
)
from collections_store.codec import Codec
from collections_store.query.cursor import Position, seal
from collections_store.query.matcher import matches
from collections_store.query.parser import FilterParser
from collections_store.query.sort import Sort

KEYS = [
    "'",
    "''||(SELECT 1)||''",
    "'); DROP TABLE cs_1_things; --",
    '"',
    '" || "1" == "1',
    '")) || (1==1',
    "\\",
    "\\'",
    '\\"',
    "\\x27",
    "E'\\x27'",
    "%",
    "%s",
    "%(q0_0)s",
    ":q0_0",
    "__[POSTCOMPILE_id]",
    "?",
    "$",
    "$id",
    "$1",
    "$$",
    "a.b",
    "",
    "0",
    "[0]",
    "{}",
    "{0}",
    "--",
    "/*",
    "🙂\U0010ffff",
    "\n\r\t\x01\x7f",
    "null",
    "".join(random.Random(5).choices("abcdefghijklmnopqrstuvwxyz'\\%:é🙂", k=2000)),
]
SCALARS: list[Any] = [None, True, 0, 1.5, "", "x", "'", "%s", "\\", "\U0010ffff"]


def name_of(key: str) -> str:
    return ascii(key)[:24]


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path_factory.mktemp('hostile') / 'store.db'}") as store:
        yield store


@pytest.fixture(scope="module")
def on_postgresql(module_postgres_backend: Backend) -> Iterator[Store]:
    with Store(module_postgres_backend.url, **module_postgres_backend.options) as store:
        yield store


DATABASES = ["on_sqlite", "on_postgresql"]
IN_TURNS = in_turns(DATABASES, KEYS)
OTHER_TURNS = in_turns(DATABASES[::-1], KEYS)


@pytest.fixture(params=DATABASES)
def lasting(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store on each database; the test fails if anything but `things` changes."""
    store: Store = request.getfixturevalue(request.param)
    store.drop("things")
    store["bystander"].put_many({"1": {"a": 1}, "2": {"a": 2}})
    yield store
    assert [(info.name, info.count) for info in store.collections()] in (
        [("bystander", 2)],
        [("bystander", 2), ("things", store["things"].count())],
    )
    assert store["bystander"].get_many(["1", "2"]) == {"1": {"a": 1}, "2": {"a": 2}}


def on(path: Path, operator: str, operand: Any) -> Filter:
    return Filter(FilterParser(Codec()).operators(path, {operator: operand}, "here"))


def questions_on(path: Path, text: str) -> list[Filter]:
    """Query a field with a hostile string, and with plain values: one operator in 24, all with `--whole-matrix`."""
    step = sampled(24)
    return list(islice(every_question_on(path, text), KEYS.index(text) % step, None, step))


def every_question_on(path: Path, text: str) -> Iterator[Filter]:
    for value in (text, 1, None, True, "x", [text], {text: 1}):
        for operator in ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"):
            yield on(path, operator, value)
    for values in ([text, 1], [None, [text]], [re.compile(re.escape(text))]):
        for operator in ("$in", "$nin", "$all"):
            yield on(path, operator, values)
    yield on(path, "$regex", re.escape(text))
    yield on(path, "$regex", "^" + re.escape(text))
    yield on(path, "$not", {"$regex": "^" + re.escape(text)})
    yield from (on(path, "$exists", there) for there in (True, False))
    yield from (on(path, "$type", type) for type in ("string", "int", ["object", "null"]))
    yield on(path, "$size", 2)
    yield on(path, "$mod", [2, 1])
    yield from (
        on(path, f"$bits{each}", 1) for each in ("AllSet", "AnySet", "AllClear", "AnyClear")
    )
    yield on(path, "$elemMatch", {"$eq": text})
    yield on(path, "$elemMatch", {"$in": [text], "$gte": ""})
    with suppress(InvalidFilter):  # a key that begins with $ is an operator there
        yield on(path, "$elemMatch", {text: 1})
        yield Filter.parse({"$or": [{text: text}, {text: {"$gt": 1}}], "other": 1})
        yield Filter.parse({"$nor": [{text: text}]})
    yield Filter.parse(
        {"$jsonSchema": {"required": [text], "properties": {text: {"enum": [text]}}}}
    )


def bodies_with(key: str) -> Iterator[Any]:
    yield from ({key: value, "other": 1} for value in SCALARS)
    yield from ({key: value, "other": 1} for value in (key, [key, 1], [key], {key: 1}, {key: key}))
    yield from ({key: [{key: key}, {key: 1}]}, {key: []}, {}, key, None, [key, {key: 1}])
    yield {"other": {key: {"x": key}}}


def check(things: Any, ordered: bool, filters: list[Filter], sorts: list[Sort]) -> None:
    """Compare the result with the matcher and `Sort.key`."""
    stored = things.list()
    for number, filter in enumerate(filters):
        right = [d.id for d in stored if matches(filter, d, ordered=ordered)]
        assert [d.id for d in things.find(filter)] == right, filter
        if number % sampled(4) == 0:  # it has the same condition, and takes as long to compile
            assert things.count(filter) == len(right), filter
    for sort in sorts:
        right = [d.id for d in sorted(stored, key=lambda d: sort.key(d, ordered=ordered))]
        assert [d.id for d in things.find(sort=sort)] == right, sort
        page = things.page(sort=sort, limit=7)
        following = things.page(sort=sort, limit=100, after=page.cursor)
        assert [d.id for d in (*page, *following)] == right, sort


def projected(projection: Any, body: Any) -> Any:
    return Projection.parse(projection).apply(Document("target", body), Filter()).body


def make_indexes(things: Any, *options: tuple[Any, dict[str, Any]]) -> int:
    """Create indexes, if the database accepts them; return how many were created."""
    too_long = 0
    for keys, more in options:
        try:
            things.create_index(keys, **more)
        except InvalidIndex as error:
            too_long += "too long for PostgreSQL before 18" in str(error)
    return len(things.indexes()) + too_long


# -- keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lasting", "key"), IN_TURNS, indirect=["lasting"], ids=name_of)
def test_hostile_keys_in_every_operator_sort_and_index(
    lasting: Store, key: str, request: pytest.FixtureRequest
) -> None:
    things, path, deep = lasting["things"], Path(key), Path("other", key, "x")
    things.put_many((str(n), body) for n, body in enumerate(bodies_with(key)))
    ordered = "on_sqlite" in request.node.name
    filters = [
        *questions_on(path, key),
        on(deep, "$eq", key),
        on(Path(key, key), "$gte", key),
    ]
    sorts = [Sort.parse(each) for each in ([path], [(path, -1)], [(deep, -1), (path, 1)])]
    check(things, ordered, filters, sorts)
    before = things.distinct(path), things.distinct(deep, {"other": {"$exists": True}})
    made = make_indexes(
        things,
        (path, {"name": "one"}),
        ([(path, -1), (deep, 1)], {"name": "two"}),
        (Path(key, key), {"arrays": True, "name": "three"}),
        ("other", {"where": on(path, "$gte", key), "name": "four"}),
    )
    assert made >= (0 if ordered and '"' in key else 3)
    check(things, ordered, filters, sorts)
    assert before == (
        things.distinct(path),
        things.distinct(deep, {"other": {"$exists": True}}),
    )
    assert str(things.explain(filters[0], sort=sorts[0]))
    things.put("new", {key: key})
    assert things.remove("new")
    for index in things.indexes():
        assert things.drop_index(index.name)
    check(things, ordered, filters[:3], sorts[:1])


@pytest.mark.parametrize(("lasting", "key"), IN_TURNS, indirect=["lasting"], ids=name_of)
def test_hostile_keys_in_projections(lasting: Store, key: str) -> None:
    things = lasting["things"]
    things.put("target", {key: {key: 1, "x": [key, 2]}, "other": {key: 1}})
    projection: Any
    for projection in ([Path(key)], {Path(key): 0}, [Path("other", key)], {Path(key, "x"): 1}):
        [found] = things.find(projection=projection)
        right = projected(projection, things.get("target"))
        assert found.body == right
    for projection in ([key], {key: 0}, {key: {"$slice": 1}}, {key: {"$elemMatch": {"$gt": 1}}}):
        with suppress(InvalidProjection):
            [found] = things.find(projection=projection)
            right = projected(projection, things.get("target"))
            assert found.body == right


@pytest.mark.parametrize(("lasting", "key"), OTHER_TURNS, indirect=["lasting"], ids=name_of)
def test_hostile_keys_in_unique_indexes(lasting: Store, key: str) -> None:
    things = lasting["things"]
    things.put("1", {key: key})
    try:
        things.create_index([Path(key), Path("other", key)], unique=True, name="only")
    except InvalidIndex as error:
        assert '"' in key or (len(key) > 500 and "before 18" in str(error))
        return
    things.put("2", {key: key + "x"})
    with pytest.raises(DuplicateKey) as caught:
        things.put("3", {key: key})
    assert (caught.value.index, caught.value.id) == ("only", "3")
    assert things.count() == 2
    assert things.delete_many(Filter.parse(Path(key), key)).deleted_count == 1


# -- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("lasting", "text"), IN_TURNS, indirect=["lasting"], ids=name_of)
def test_hostile_values_in_every_operator_and_index(
    lasting: Store, text: str, request: pytest.FixtureRequest
) -> None:
    things, field = lasting["things"], Path("v")
    values = [text, text + "x", [text], [[text]], {"v": text}, "x" + text, *SCALARS]
    things.put_many((str(n), {"v": value, "other": 1}) for n, value in enumerate(values))
    ordered = "on_sqlite" in request.node.name
    filters = [*questions_on(field, text), Filter.parse({"v": text, "other": 1})]
    filters += [Filter.parse({"$id": {each: text}}) for each in ("$eq", "$gt", "$ne", "$lte")]
    filters += [Filter.parse({"$id": {"$in": [text, "1"]}}), Filter.parse({"$body": {"v": text}})]
    sorts = [Sort.parse("v"), Sort.parse({"v": -1, "$id": -1})]
    check(things, ordered, filters, sorts)
    where = {"v": {"$in": [text, text + "x"], "$gte": text}}
    made = make_indexes(
        things,
        ("v", {}),
        ([("other", 1), ("v", -1)], {"where": where}),
        ("v", {"arrays": True, "name": "arrays"}),
        ("other", {"unique": True, "where": {"v": text, "other": {"$gt": 1}}, "name": "unique"}),
    )
    assert made == 4
    check(things, ordered, [*filters, Filter.parse({**where, "other": 1})], sorts)
    assert text in things.distinct("v")
    assert things.delete_one({"v": text}).deleted_count == 1


@pytest.mark.parametrize(
    ("lasting", "text"),
    in_turns(DATABASES, [*KEYS, *UNSTORABLE]),
    indirect=["lasting"],
    ids=name_of,
)
def test_invalid_operands_raise_errors_of_the_library(lasting: Store, text: str) -> None:
    things = lasting["things"]
    things.put("1", {"v": 1})
    for operator in ("$size", "$mod", "$type", "$bitsAllSet", "$elemMatch", "$in", "$all"):
        with pytest.raises(InvalidFilter):
            things.find({"v": {"$eq": 1, operator: text + "?"}})
    for query in (
        {f"${text}": 1},
        {"v": {f"${text}": 1}},
        {"v": {"$eq": 1, text: 1}},
        {"$and": text},
        {"v": {"$regex": "a", "$options": text}},
    ):
        with suppress(InvalidFilter):
            things.find(query)
    for sort in ([(text, 1), (text, -1)], [("v", text)], {text: text}, f"${text}.x"):
        with pytest.raises(InvalidSort):
            things.find(sort=sort)
    for name in (text, text * 200):
        with suppress(InvalidIndex):
            assert things.create_index("v", name=name) == name
            assert things.drop_index(name)
    assert things.drop_index(text) is False
    assert things.get("1") == {"v": 1}


def test_an_index_named_after_an_unprintable_field_can_be_dropped(lasting: Store) -> None:
    things = lasting["things"]
    made = [things.create_index("a\nb"), things.create_index([("x\x7f", -1)], unique=True)]
    for name in (*made, things.create_index("\t", arrays=True)):
        assert not name.isprintable()
        assert (things.drop_index(name), things.drop_index(name)) == (True, False)
    with pytest.raises(InvalidIndex, match="must be a string, got 5"):
        things.drop_index(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", UNSTORABLE, ids=ascii)
def test_unstorable_text_is_rejected_everywhere(lasting: Store, text: str) -> None:
    things = lasting["things"]
    things.put("1", {"v": 1})
    calls: list[Any] = [
        lambda: things.find(sort=text),
        lambda: things.distinct(text),
        lambda: things.find(projection=[text]),
        lambda: things.create_index(text),
        lambda: things.create_index(text, arrays=True),
        lambda: things.create_index("v", where={"v": text}),
        lambda: things.create_index("v", where={text: 1}),
        lambda: things.create_index("v", name=text),
        lambda: things.page(after=text),
        lambda: things.delete_many({"v": text}),
        lambda: things.explain({text: 1}),
    ]
    for call in calls:
        with pytest.raises(CollectionsStoreError):
            call()
    assert things.indexes() == []


# -- cursors ---------------------------------------------------------------------------------


@pytest.fixture
def paged(lasting: Store) -> Any:
    things = lasting["things"]
    things.put_many((str(n), {"n": n, "s": f"text {n}", "kind": n % 2}) for n in range(40))
    things.create_index("n")
    return things


CURSORS = ["", "None", "null", "0", "é", "🙂", "\ud800", "\0", "A" * 100_000, *HOSTILE[:12]]
QUERY: dict[str, Any] = {"filter": {"kind": 1}, "sort": [("n", -1)], "limit": 5}


def refuse(things: Any, cursor: Any, **query: Any) -> None:
    with pytest.raises(InvalidCursor):
        things.page(**{**QUERY, **query}, after=cursor)


def test_a_changed_cursor_is_rejected(paged: Any) -> None:
    cursor = paged.page(**QUERY).cursor
    for position, character in enumerate(cursor):
        for other in {"A", "_", "-", "9", "z", "=", "!", " ", chr(ord(character) ^ 1)} - {
            character
        }:
            refuse(paged, cursor[:position] + other + cursor[position + 1 :])
    raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    for position in range(len(raw)):
        for bit in range(8):
            flipped = raw[:position] + bytes([raw[position] ^ 1 << bit]) + raw[position + 1 :]
            refuse(paged, urlsafe_b64encode(flipped).rstrip(b"=").decode())
    assert len(paged.page(**QUERY, after=cursor)) == 5


def test_a_truncated_or_extended_cursor_is_rejected(paged: Any) -> None:
    cursor = paged.page(**QUERY).cursor
    for length in range(len(cursor)):
        refuse(paged, cursor[:length])
    for more in ("A", "AA", "=", "==", "\n", " ", "!", "\0", cursor, "é"):
        refuse(paged, cursor + more)
        refuse(paged, more + cursor)


@pytest.mark.parametrize(
    ("lasting", "cursor"), in_turns(DATABASES, CURSORS), indirect=["lasting"], ids=name_of
)
def test_invalid_cursors_are_rejected(paged: Any, cursor: str) -> None:
    refuse(paged, cursor)


@pytest.mark.parametrize(
    ("lasting", "cursor"),
    in_turns(DATABASES, [0, 1, False, b"AQ", 1.5, [], {}, ("x",)]),
    indirect=["lasting"],
    ids=repr,
)
def test_a_cursor_is_a_string(paged: Any, cursor: Any) -> None:
    refuse(paged, cursor)


def test_a_cursor_of_another_query_is_rejected(paged: Any, lasting: Store) -> None:
    cursor = paged.page(**QUERY).cursor
    refuse(paged, cursor, sort=[("n", 1)])
    refuse(paged, cursor, sort=None)
    refuse(paged, cursor, sort=[("n", -1), ("s", 1)])
    refuse(paged, cursor, sort="s")
    refuse(paged, cursor, filter={})
    refuse(paged, cursor, filter={"kind": 0})
    refuse(paged, cursor, filter={"kind": 1.0})
    refuse(paged, cursor, filter={"kind": True})
    refuse(paged, cursor, filter={"kind": {"$gte": 1}})
    other = lasting["bystander"]
    refuse(other, cursor)
    page = paged.page(**QUERY, after=cursor, projection=["s"])
    assert [d.body for d in page] == [{"s": f"text {n}"} for n in (29, 27, 25, 23, 21)]


def test_a_cursor_cannot_be_forged(paged: Any) -> None:
    cursor = paged.page(**QUERY).cursor
    raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    filter, sort = Filter.parse(QUERY["filter"]), Sort.parse(QUERY["sort"])
    query = hashlib.sha256(f"{filter!r} {sort!r}".encode()).digest()
    payloads = (b'{"k":[[2,0]],"s":0}', b"{}", b"null", b"[1", b'{"k":[["\'; DROP",1]],"s":1}')
    for payload, format in product(payloads, (b"\x01", b"\x02")):
        for digest in (
            hashlib.sha256(format + query + payload).digest(),
            hashlib.sha256(payload).digest(),
            hmac.new(b"", format + query + payload, hashlib.sha256).digest(),
            raw[1:17],
        ):
            forged = format + digest[:16] + payload
            refuse(paged, urlsafe_b64encode(forged).rstrip(b"=").decode())
    position = Position(((2, 0),), 0)
    for key in ("", "things", "0" * 32):
        refuse(paged, seal(position, key, filter, sort))
    for format in (b"\x01", b"\x03"):
        refuse(paged, urlsafe_b64encode(format + raw[1:]).rstrip(b"=").decode())
