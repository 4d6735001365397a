"""Both walks over the values of a body, in Python and in C, refuse the same bodies; so does the codec with either."""

import enum
import importlib
import math
import sys
import uuid
from collections import OrderedDict
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collections_store import InvalidBody, codec
from collections_store.codec import Codec, walk
from collections_store.codec.walk import MAX_DEPTH, bytes_left_in_python

WALKS = pytest.importorskip("collections_store.codec._walk", reason="built without a compiler")
in_c = WALKS.bytes_left


class Text(str):
    """A string, by inheritance."""

    __slots__ = ()


class Whole(int):
    """An integer, by inheritance."""


class Real(float):
    """A float, by inheritance."""


class Pairs(dict[Any, Any]):
    """A dict, by inheritance."""


class Several(list[Any]):
    """A list, by inheritance."""


class Colour(enum.Enum):
    RED = "red"


class Name(enum.StrEnum):
    ADA = "ada"


class Level(enum.IntEnum):
    LOW = 1


class Forged(int):
    """Claims to be small."""

    def __le__(self, other: object) -> bool:
        return True

    __ge__ = __le__


def cycle() -> list[Any]:
    """Return a list that contains itself."""
    endless: list[Any] = []
    endless.append(endless)
    return endless


def nested(depth: int, *, as_list: bool) -> Any:
    body: Any = 1
    for _ in range(depth):
        body = [body] if as_list else {"a": body}
    return body


def shared(levels: int) -> list[Any]:
    """Return 2**levels lists in one."""
    body: list[Any] = []
    for _ in range(levels):
        body = [body, body]
    return body


ODD: list[Any] = [
    Text("a"), Text(""), Whole(3), Real(0.5), Pairs(a=1), Several([1]), OrderedDict(a=1),
    MappingProxyType({"a": 1}), Colour.RED, Name.ADA, Level.LOW, Forged(2**70), True, False, None,
    2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**400, -(10**400),
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1e15, 1e16, -1e16, math.nextafter(1e16, 0), math.nextafter(-1e16, 0),
    2.0**64, 5e-324, "\0", "a\0b", "\ud800", "\udfff", "\U0010ffff", "\\u0000", "", "x" * 300,
    (), (1,), {1}, frozenset({1}), b"a", bytearray(b"a"), 1j, object, object(), Decimal(1), datetime(2026, 1, 1), uuid.UUID(int=0),
    {1: 2}, {None: 1}, {"\0": 1}, {"\ud800": 1}, {Name.ADA: 1}, {Text("k"): 1}, {(): 1}, {}, [], [[]], [{}],
    cycle(), {"a": cycle()},
    *(nested(depth, as_list=kind) for kind in (True, False) for depth in (MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 5000)),
]  # fmt: skip
SCALARS = st.one_of(
    st.integers(0, len(ODD) - 1).map(lambda position: ODD[position]),
    st.text(),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
)
BODIES = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=5),
        st.dictionaries(st.text(max_size=3), below, max_size=5),
        st.lists(below, max_size=3).map(Several),
        st.lists(below, max_size=3).map(tuple),
    ),
    max_leaves=30,
)
MOST = st.one_of(st.integers(-3, 300), st.sampled_from([16 * 2**20, 2**40, 2**63 - 1, 2**70]))
LARGEST = 2**63 - 1


def check(body: Any, most: int) -> None:
    found, expected = in_c(body, most), bytes_left_in_python(body, most)
    if expected >= 0 and most <= LARGEST:
        assert found == expected
    else:
        assert (found < 0) == (expected < 0)


@pytest.mark.parametrize("position", range(len(ODD)))
def test_each_odd_value(position: int) -> None:
    value = ODD[position]
    for body in (value, [value], {"a": value}, [1, {"b": [value, "c"]}]):
        for most in (-1, 0, 1, 2, 3, 4, 5, 10, 300, 310, 16 * 2**20):
            check(body, most)


def test_the_walk_ends_when_no_byte_is_left() -> None:
    check(shared(60), 10_000)


@given(BODIES, MOST)
@example([1] * 5, 9)
@example([1] * 5, 10)
@example("abc", 2)
def test_any_value(body: Any, most: int) -> None:
    check(body, most)


@given(BODIES, st.sampled_from([0, 10, 100, 16 * 2**20]))
def test_the_codec_writes_and_refuses_the_same_with_either(body: Any, most: int) -> None:
    assert written(in_c, body, most) == written(bytes_left_in_python, body, most)


def written(bytes_left: Any, body: Any, most: int) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "bytes_left", bytes_left)
        try:
            return Codec(most).encode(body)
        except InvalidBody as error:
            return f"{error!r}: {error}"


def test_without_the_compiled_walk_the_one_in_python_is_used(monkeypatch: Any) -> None:
    assert walk.bytes_left is in_c
    monkeypatch.setitem(sys.modules, "collections_store.codec._walk", None)
    try:
        assert importlib.reload(walk).bytes_left is walk.bytes_left_in_python
    finally:
        monkeypatch.undo()
        importlib.reload(walk)


@pytest.mark.parametrize("arguments", [(), (1,), (1, 2, 3), (1, "2"), (1, 2.0)])
def test_wrong_arguments_are_an_error(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        in_c(*arguments)
