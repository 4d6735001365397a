"""Values of memories are restored exactly, and keys of different namespaces never collide."""

import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from backends import Backend
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import sampled

from collections_store import InvalidBody, Store
from collections_store.codec import Codec, decode
from collections_store.memory.encoding import Space, collection_of, from_json, to_json

NAMES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "Etc/GMT+5"]
DAY = 86_400_000_000
OFFSETS = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
FINE_OFFSETS = st.one_of(st.integers(-(10**6), 10**6), st.integers(1 - DAY, DAY - 1)).map(
    lambda n: timezone(timedelta(microseconds=n))
)
ZONES = st.one_of(st.none(), st.sampled_from(NAMES).map(ZoneInfo), OFFSETS, FINE_OFFSETS)
TEXTS = st.one_of(
    st.sampled_from(["", "$", "$$", "$date", "$$date", "$map", "$set", "$integer", "\U0010ffff"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
)
INTEGERS = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30, -(10**400)]),
)


def zoned(value: Any, fold: int) -> Any:
    return value.replace(fold=fold)


MOMENTS = st.builds(
    zoned,
    st.one_of(
        st.datetimes(timezones=ZONES, allow_imaginary=True),
        st.times(timezones=ZONES),
        st.sampled_from([datetime.min, datetime.max, datetime(2026, 10, 25, 2, 30)]),
    ),
    st.integers(0, 1),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    TEXTS,
    INTEGERS,
    st.floats().filter(lambda value: value != 0 or math.copysign(1, value) > 0),
    MOMENTS,
    st.dates(),
    st.timedeltas(),
    st.uuids(),
    st.decimals(),
    st.binary(max_size=8),
)


def hashable(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, OverflowError):  # signalling NaN; times before the minimum
        return False
    return True


KEYS = st.recursive(
    SCALARS.filter(hashable),
    lambda inner: (
        st.frozensets(inner.filter(hashable), max_size=3)
        | st.lists(inner.filter(hashable), max_size=3).map(tuple)
    ),
    max_leaves=4,
).filter(hashable)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(KEYS, max_size=3),
        st.frozensets(KEYS, max_size=3),
        st.dictionaries(TEXTS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=10,
)


def zone(value: tzinfo | None) -> Any:
    return value.key if isinstance(value, ZoneInfo) else value


def exact(value: Any) -> Any:
    """Return a complete representation of a value: `==` does not distinguish all."""
    kind = type(value).__name__
    match value:
        case dict():
            return kind, sorted(((exact(k), exact(each)) for k, each in value.items()), key=repr)
        case list() | tuple():
            return kind, [exact(each) for each in value]
        case set() | frozenset():
            return kind, sorted((exact(each) for each in value), key=repr)
        case datetime() | time():
            return kind, value.replace(tzinfo=None).isoformat(), value.fold, zone(value.tzinfo)
        case int():
            return kind, hex(value)
        case date() | timedelta():
            return kind, value
    return kind, repr(value)


@given(VALUES)
def test_values_are_restored(value: Any) -> None:
    text = Codec().encode(to_json(value))
    assert exact(from_json(decode(text))) == exact(value)


@given(VALUES)
def test_each_value_has_one_json_form(value: Any) -> None:
    json = to_json(value)
    assert to_json(from_json(json)) == json or value != value  # noqa: PLR0124 - nan


def test_integers_have_any_size() -> None:
    """Python limits decimal integers to 4,300 digits, because the conversion is slow."""
    for value in (10**5000, -(10**5000), [10**5000, 1], {10**5000}):
        assert from_json(decode(Codec().encode(to_json(value)))) == value


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_values_are_never_mistaken_for_tags(json: Any) -> None:
    assert from_json(to_json(json)) == json
    assert from_json(to_json(to_json(json))) == to_json(json)


@pytest.fixture(scope="module")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path_factory.mktemp('values') / 'store.db'}") as store:
        yield store


@pytest.fixture(scope="module")
def postgres_store(module_postgres_backend: Backend) -> Iterator[Store]:
    with Store(module_postgres_backend.url, **module_postgres_backend.options) as store:
        yield store


FEW = settings(max_examples=40 // sampled(2))


@given(st.lists(VALUES, min_size=1, max_size=5))
@FEW
def test_values_are_restored_from_sqlite(sqlite_store: Store, values: list[Any]) -> None:
    check_through(sqlite_store, values)


@given(st.lists(VALUES, min_size=1, max_size=5))
@FEW
def test_values_are_restored_from_postgresql(postgres_store: Store, values: list[Any]) -> None:
    check_through(postgres_store, values)


def check_through(store: Store, values: list[Any]) -> None:
    memory = store.memory("values")
    memory.clear()
    memory.put_many({str(number): value for number, value in enumerate(values)})
    found = [entry.value for entry in memory.items()]
    assert [exact(each) for each in found] == [exact(each) for each in values]


@pytest.mark.parametrize("kind", [list, tuple, dict, "key"])
def test_values_nest_as_deep_as_bodies(kind: Any) -> None:
    def within(value: Any) -> Any:
        if kind == "key":
            return {1: value}
        return {"a": value} if kind is dict else kind([value])

    deepest: Any = 0
    levels = 0
    while True:
        deeper = within(deepest)
        try:
            Codec().encode(to_json(deeper))
        except InvalidBody as error:
            assert "200 levels" in str(error)
            break
        deepest, levels = deeper, levels + 1
    assert levels == {tuple: 100, "key": 66}.get(kind, 200)
    assert exact(from_json(decode(Codec().encode(to_json(deepest))))) == exact(deepest)


# -- keys ----------------------------------------------------------------------------------------

PARTS = st.one_of(
    st.sampled_from(
        ["", "a", "b", "ab", "1", "1:a", "1;a", "/", ":", ";", "1:a/", "0", "9", "é", "9" * 95]
    ),
    st.text(":;/019a\ud7ff\ue000\U0010ffff", max_size=4),
)
SPACES = st.lists(st.tuples(st.booleans(), PARTS), max_size=3).map(tuple)
PLACES = st.tuples(SPACES, PARTS)


def space_of(parts: tuple[tuple[bool, str], ...]) -> Space:
    space = Space()
    for is_session, name in parts:
        space = space.session(name) if is_session else space.within(name)
    return space


@given(PLACES, PLACES)
@settings(max_examples=200)
def test_keys_are_encoded_uniquely(first: Any, second: Any) -> None:
    one, two = (space_of(parts).id_of(key) for parts, key in (first, second))
    assert (one == two) == (first == second)
    assert space_of(first[0]).key_of(one) == first[1]


@given(st.text(), st.text())
def test_two_namespaces_never_share_a_collection(first: str, second: str) -> None:
    if first and second:
        assert (collection_of(first) == collection_of(second)) == (first == second)


@given(st.sets(PLACES, min_size=1, max_size=25), st.data())
@settings(FEW, max_examples=60 // sampled(2))
def test_ranges_equal_those_of_a_dict_on_sqlite(
    sqlite_store: Store, entries: set[Any], data: st.DataObject
) -> None:
    check_ranges(sqlite_store, entries, data)


@given(st.sets(PLACES, min_size=1, max_size=25), st.data())
@settings(FEW, max_examples=60 // sampled(2))
def test_ranges_equal_those_of_a_dict_on_postgresql(
    postgres_store: Store, entries: set[Any], data: st.DataObject
) -> None:
    check_ranges(postgres_store, entries, data)


def memory_of(store: Store, parts: tuple[tuple[bool, str], ...]) -> Any:
    memory = store.memory("keys")
    for is_session, name in parts:
        memory = memory.session(name) if is_session else memory.namespace(name)
    return memory


def check_ranges(store: Store, entries: set[Any], data: st.DataObject) -> None:
    store.memory("keys").end()
    for parts, key in entries:
        memory_of(store, parts).put(key, [list(parts), key])
    parts, key = data.draw(st.sampled_from(sorted(entries)))
    memory, prefix = memory_of(store, parts), key[: data.draw(st.integers(0, len(key)))]
    after = data.draw(st.none() | PARTS)
    begin = sorted(k for p, k in entries if p == parts and k.startswith(prefix))
    assert memory.keys(prefix) == begin
    assert memory.keys(prefix, after=after) == [k for k in begin if after is None or k > after]
    assert memory.count(prefix) == len(begin)
    assert memory.clear(prefix) == len(begin)
    left = {(p, k) for p, k in entries if p != parts or k not in begin}
    within = {(p, k) for p, k in left if p[: len(parts)] == parts}
    assert memory.end() == len(within)
    assert store.memory("keys").end() == len(left - within)
