"""Objects, and what a value's type is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...query.values import MISSING, is_number
from .operands import PAIR, POINTER, Unfit, array, is_null, mapping, named, null_for_null, text
from .strings import in_words

_INT: Final = (-(2**31), 2**31 - 1)
_LONG: Final = (-(2**63), 2**63 - 1)
TYPES: Final[dict[Any, str]] = {
    "double": "double", "string": "string", "bool": "bool", "int": "int", "long": "long",
    1: "double", 2: "string", 8: "bool", 16: "int", 18: "long",
}  # fmt: skip
"""What `$convert` converts to, by name and number."""
_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    float: "double",
    str: "string",
    dict: "object",
    list: "array",
}


def merge(*operands: Any) -> dict[str, Any]:
    """`$mergeObjects`: of a single array, its elements."""
    single = len(operands) == 1 and isinstance(operands[0], list)
    merged: dict[str, Any] = {}
    for each in operands[0] if single else operands:
        if not is_null(each):
            merged.update(mapping(each))
    return merged


def merged_into(value: Any, more: list[Any], *, fresh: bool, hold: Callable[[int], None]) -> Any:
    """Return an object with the fields of others: itself, unless it is a `fresh` one that others may hold."""
    if fresh:
        return merge(value, *more)
    for each in more:
        if not is_null(each):
            hold(PAIR // 2 * len(mapping(each)))
            value.update(each)
    return value


def get_field(name: Any, value: Any) -> Any:
    """`$getField`: dots and dollars in the name mean nothing."""
    key = text(name)
    if value is None:
        return None
    return value.get(key, MISSING) if isinstance(value, dict) else MISSING


def set_field(name: Any, value: Any, field: Any) -> Any:
    """`$setField`; what is missing takes the field away."""
    key = text(name)
    if is_null(value):
        return None
    if field is not MISSING:
        return {**mapping(value), key: field}
    return {k: v for k, v in mapping(value).items() if k != key}


def unset_field(name: Any, value: Any) -> Any:
    """`$unsetField`."""
    return set_field(name, value, MISSING)


@null_for_null
def to_object(values: Any) -> dict[str, Any]:
    """`$arrayToObject`: of pairs, or of objects of `k` and `v`; the last of one name stays."""
    as_pairs = isinstance(next(iter(array(values)), None), list)
    return dict(_pair(each, as_pairs) for each in values)


def _pair(value: Any, as_pairs: bool) -> tuple[str, Any]:
    if as_pairs and isinstance(value, list) and len(value) == 2:
        return text(value[0]), value[1]
    if not as_pairs and isinstance(value, dict) and value.keys() == {"k", "v"}:
        return text(value["k"]), value["v"]
    raise Unfit(f"needs pairs, or objects of k and v, and no mixture: {named(value)}", value)


@null_for_null
def to_array(value: Any, *, hold: Callable[[int], None]) -> list[dict[str, Any]]:
    """`$objectToArray`."""
    hold((POINTER + PAIR) * len(mapping(value)))
    return [{"k": key, "v": each} for key, each in mapping(value).items()]


def type_of(value: Any) -> str:
    """`$type`: MongoDB's name, "missing" included."""
    if value is MISSING:
        return "missing"
    if type(value) is int:
        return "int" if _INT[0] <= value <= _INT[1] else "long"
    return _NAMES[type(value)]


# -- conversions -------------------------------------------------------------------------------


def type_named(wanted: Any) -> str:
    """Return the name of a type that is given by name or number; raises `Unfit`."""
    name = None if isinstance(wanted, bool | list | dict) else TYPES.get(wanted)
    if name is None:
        raise Unfit(f"knows the types {', '.join(sorted(set(TYPES.values())))}: {named(wanted)}")
    return name


def convert(value: Any, name: str) -> Any:
    """Return a value that is not null in the type of a name; raises `Unfit`."""
    if isinstance(value, list | dict) and name != "bool":
        raise Unfit(f"cannot make {name} of {named(value)}", value)
    return _CONVERSIONS[name](value)


def _to_bool(value: Any) -> bool:
    return bool(value) if isinstance(value, bool | int | float) else True


def _to_string(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else in_words(value)


def _to_double(value: Any) -> float:
    if isinstance(value, str):
        return float(_parsed(value, float, "eE.+-"))
    return float(value)


def _to_int(value: Any) -> int:
    return _within(value, *_INT)


def _to_long(value: Any) -> int:
    return _within(value, *_LONG)


def _within(value: Any, low: int, high: int) -> int:
    number = _parsed(value, int, "+-") if isinstance(value, str) else value
    if not low <= number < high + 1:
        raise Unfit(f"gives no integer from {low} to {high}: {named(value)}", value)
    return int(number)


def _parsed(value: str, make: Callable[[str], Any], besides: str) -> Any:
    try:
        if value.isascii() and all(each.isdigit() or each in besides for each in value):
            found = make(value[:400])
            if len(value) <= 400 and is_number(found) and abs(found) != float("inf"):
                return found
    except ValueError:
        pass
    raise Unfit(f"cannot read {named(value)} as a number", value) from None


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": _to_bool,
    "string": _to_string,
    "double": _to_double,
    "int": _to_int,
    "long": _to_long,
}
