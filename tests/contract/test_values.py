"""Invalid bodies are rejected on every backend with the path, and nothing is changed."""

import dataclasses
import enum
import math
import tracemalloc
import uuid
from collections import OrderedDict, defaultdict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import InvalidBody, InvalidOption, Store, migrate
from collections_store.codec import Codec
from collections_store.options import Names

pytestmark = pytest.mark.each_backend


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Text(enum.StrEnum):
    A = "a"


@dataclasses.dataclass
class Point:
    x: int = 1


def nested(depth: int) -> Any:
    body: Any = 1
    for _ in range(depth):
        body = [body]
    return body


REFUSED = [
    math.nan,
    math.inf,
    -math.inf,
    2**63,
    -(2**63) - 1,
    10**30,
    datetime(2026, 1, 1, tzinfo=UTC),
    date(2026, 1, 1),
    time(1),
    timedelta(1),
    uuid.UUID(int=1),
    Decimal(1),
    b"bytes",
    bytearray(b"x"),
    (1, 2),
    {1, 2},
    frozenset(),
    1j,
    Colour.RED,
    Number.ONE,
    Text.A,
    Point(),
    object(),
    int,
    "\ud800",
    "a\0",
    {1: "x"},
    {None: "x"},
    {"\0": 1},
    {"\udcff": 1},
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: ascii(value).split(" at 0x")[0][:30])
def test_invalid_values_are_rejected_with_their_path(things: Any, value: Any) -> None:
    things.put("a", "before")
    for body, path in (
        (value, "the body itself|at "),
        ({"list": [0, {"x.y": value}]}, r"list\.1\.x\.y"),
    ):
        with pytest.raises(InvalidBody, match=path) as caught:
            things.put("a", body)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, TypeError)
        with pytest.raises(InvalidBody):
            things.put_many({"b": 1, "c": body}, atomic=True)
    assert [(d.id, d.body, d.version) for d in things.list()] == [("a", "before", 1)]


def test_depth(things: Any) -> None:
    things.put("a", nested(200))
    assert things.get("a") == nested(200)
    with pytest.raises(InvalidBody, match="deeper than 200") as caught:
        things.put("a", {"x": nested(200)})
    assert caught.value.path.startswith("x.0.0.")
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidBody, match="deeper than 200"):
        things.put("a", loop)


def test_size(open_store: Any) -> None:
    things = open_store(max_body=100)["things"]
    things.put("a", "x" * 98)
    with pytest.raises(InvalidBody, match="101 bytes of JSON are more than the limit of 100"):
        things.put("a", "x" * 99)
    with pytest.raises(InvalidBody, match="limit"):
        things.put("a", "é" * 50)


class ListSubclass(list[Any]):
    """A subclass of list."""


@pytest.mark.parametrize("kind", [list, ListSubclass])
def test_size_is_checked_before_encoding(open_store: Any, kind: Any) -> None:
    things = open_store(max_body=2**16)["things"]
    shared: Any = ["x"]
    for _ in range(60):
        shared = kind([shared, shared])
    text = "x" * 2**14
    for body in (shared, {"a": shared}, {"a": kind([text] * 10_000)}):
        tracemalloc.start()
        with pytest.raises(InvalidBody, match="are more than the limit of 65,536"):
            things.put("a", body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * 2**20
    assert not things.exists("a")


@settings(max_examples=40 // sampled(2))
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.text("aä\0\n")
        | st.floats(-9, 9),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
    )
)
def test_the_size_check_counts_exact_bytes(body: Any) -> None:
    size = len(Codec(nul="replace").encode(body).encode())
    assert Codec(max_bytes=size, nul="replace").encode(body)
    with pytest.raises(InvalidBody, match="are more than the limit of"):
        Codec(max_bytes=size - 1, nul="replace").encode(body)


def test_subclasses_of_json_types_are_stored_as_their_base(things: Any) -> None:
    class Special(str):
        __slots__ = ()

    body = {"o": OrderedDict(b=1), "d": defaultdict(int, x=1), "s": Special("t"), Special("k"): 1}
    things.put("a", body)
    assert things.get("a") == {"o": {"b": 1}, "d": {"x": 1}, "s": "t", "k": 1}


def test_a_default_encodes_what_is_not_json(open_store: Any) -> None:
    def default(value: Any) -> Any:
        if isinstance(value, datetime):
            return {"at": value.isoformat()}
        if isinstance(value, tuple | set):
            return sorted(value)
        raise TypeError("no idea")

    things = open_store(default=default)["things"]
    things.put("a", {"when": datetime(2026, 1, 1, tzinfo=UTC), "pair": (2, 1)})
    assert things.get("a") == {"when": {"at": "2026-01-01T00:00:00+00:00"}, "pair": [1, 2]}
    assert things.count("when", datetime(2026, 1, 1, tzinfo=UTC)) == 1
    with pytest.raises(InvalidBody, match="at 'x': Decimal is not JSON: no idea"):
        things.put("a", {"x": Decimal(1)})


def test_an_endless_default_is_rejected(open_store: Any) -> None:
    things = open_store(default=lambda value: [value])["things"]
    with pytest.raises(InvalidBody, match="deeper"):
        things.put("a", Decimal(1))


def test_errors_of_invalid_values_say_what_to_do(things: Any) -> None:
    with pytest.raises(InvalidBody, match="convert it first, or give the store a `default`"):
        things.put("a", {"d": Decimal(1)})
    with pytest.raises(InvalidBody, match="store null or a string"):
        things.put("a", math.nan)
    with pytest.raises(InvalidBody, match="nul='replace'"):
        things.put("a", "\0")
    with pytest.raises(InvalidBody) as caught:
        things.put("a", {"k" * 100_000: {1}})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "options",
    [
        {"busy_timeout": 0},
        {"busy_timeout": "1"},
        {"busy_timeout": 0.0004},
        {"busy_timeout": 2_000_001},
        {"busy_timeout": 10**400},
        {"busy_timeout": math.inf},
        {"busy_timeout": math.nan},
        {"max_body": -1},
        {"pool_size": 0},
        {"pool_size": True},
        {"durability": "none"},
        {"nul": "drop"},
        {"upgrade": True},
        {"default": 1},
        {"prefix": "A-b"},
        {"prefix": ""},
        {"prefix": "p" * 21},
        {"prefix": None},
        {"prefix": 5},
        {"prefix": "cs_1_"},
        {"prefix": "cs_12"},
        {"prefix": "cs_1_a"},
        {"schema": ""},
        {"schema": "100%"},
        {"schema": "x" * 64},
        {"schema": 5},
    ],
    ids=repr,
)
def test_invalid_options_are_named(open_store: Any, options: Any) -> None:
    with pytest.raises(InvalidOption, match=f"option {next(iter(options))}:"):
        open_store(**options)


def test_prefixes_may_contain_digits(open_store: Any) -> None:
    for prefix in ("v2_", "a_b_", "a_1b_", "a1_b2"):
        store = open_store(prefix=prefix)
        store["things"].put(prefix, 1)
        assert [(each.name, each.count) for each in store.collections()] == [("things", 1)]


def test_prefixes_never_share_a_table(open_store: Any) -> None:
    if open_store.backend.is_private:
        pytest.skip("stores in memory have nothing in common")
    stores = [open_store(prefix=prefix) for prefix in ("zz", "zz1", "zz_", "zz1_")]
    for number in range(1, 13):
        for store in stores:
            store.create_collection(f"things_{number}", changes="both")
            things = store[f"things_{number}"]
            things.create_index("tags", arrays=True)
            things.put("a", {"tags": [number]})
    for store in stores:
        assert [each.count for each in store.collections()] == [1] * 12
        assert store["things_11"].explain({"$body": 7}).indexes in {(), ("$body",)}
        store.rename("things_11", "other")
        assert [each.id for each in store["other"].find("tags", 11)] == ["a"]
        assert [each.kind for each in store["other"].watch(after="oldest", timeout=0)] == ["insert"]


def test_tables_of_earlier_versions_keep_their_names(
    shared_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(Names, "documents", lambda names, n, name: f"{names.prefix}{n}_{name}")
        with Store(shared_backend.url, prefix="zz", **shared_backend.options) as store:
            store["things"].put("a", {"n": 1})
            store["things"].create_index("n")
    with Store(shared_backend.url, prefix="zz", **shared_backend.options) as store:
        assert store["things"].find("n", 1)[0].id == "a"
        store["things"].create_index("tags", arrays=True)
        assert [index.physical for index in store["things"].indexes()] == ["zz1$i1", "zz1$i3"]
        store.rename("things", "others")
        assert store.model("others").__table__.name == "zz$2_others"
        assert store["others"].get("a") == {"n": 1}
    options = dict(shared_backend.options)
    url = sa.make_url(shared_backend.url)
    if sharding := options.pop("sharding", None):
        url = url.update_query_dict({"sharding": sharding})
    assert migrate.check(url, prefix="zz", **options) == []


@pytest.mark.parametrize("seconds", [0.001, 1, 2_000_000])
def test_a_busy_timeout(open_store: Any, seconds: float) -> None:
    open_store(busy_timeout=seconds)
