"""Objects, and the types of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...query.values import MISSING, is_number
from .operands import OperandError, is_null, mapping, named, string
from .scope import PAIR, POINTER, Scope, checked
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
    """Return one object, of a single array that of its elements; of fields that come twice, the last."""
    single = len(operands) == 1 and isinstance(operands[0], list)
    merged: dict[str, Any] = {}
    for each in operands[0] if single else operands:
        if not is_null(each):
            merged.update(mapping(each))
    return merged


def updated(scope: Scope, value: dict[str, Any], more: list[Any]) -> dict[str, Any]:
    """Add the fields of objects to an object."""
    for each in more:
        if not is_null(each):
            scope.hold(PAIR // 2 * len(mapping(each)))
            value.update(each)
    return value


def get_field(name: str, value: Any) -> Any:
    """Return a field; dots and dollars in the name mean nothing."""
    if value is None:
        return None
    return value.get(name, MISSING) if isinstance(value, dict) else MISSING


def set_field(name: str, value: Any, field: Any) -> Any:
    """Return the object with a field; a missing value removes the field."""
    if is_null(value):
        return None
    if field is not MISSING:
        return checked({**mapping(value), name: field})
    return {k: v for k, v in mapping(value).items() if k != name}


def unset_field(name: str, value: Any) -> Any:
    """Return the object without a field."""
    return set_field(name, value, MISSING)


def to_object(values: list[Any]) -> dict[str, Any]:
    """Return the object of pairs, or of objects of `k` and `v`; of equal names the last counts."""
    as_pairs = isinstance(next(iter(values), None), list)
    return checked(dict(_pair(each, as_pairs) for each in values))  # type: ignore[no-any-return]


def _pair(value: Any, as_pairs: bool) -> tuple[str, Any]:
    if as_pairs and isinstance(value, list) and len(value) == 2:
        return string(value[0]), value[1]
    if not as_pairs and isinstance(value, dict) and value.keys() == {"k", "v"}:
        return string(value["k"]), value["v"]
    raise OperandError(f"requires all pairs, or all objects of k and v, got {named(value)}", value)


def to_array(scope: Scope, value: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an object of `k` and `v` for each field."""
    scope.hold((POINTER + PAIR) * len(value))
    return checked([{"k": key, "v": each} for key, each in value.items()])  # type: ignore[no-any-return]


def type_of(value: Any) -> str:
    """Return MongoDB's name of the type, or "missing"."""
    if value is MISSING:
        return "missing"
    if type(value) is int:
        return "int" if _INT[0] <= value <= _INT[1] else "long"
    return _NAMES[type(value)]


# -- conversions -------------------------------------------------------------------------------


def type_named(wanted: Any) -> str:
    """Return the type that a name or a number stands for; raises `OperandError`."""
    name = None if isinstance(wanted, bool | list | dict) else TYPES.get(wanted)
    if name is None:
        known = ", ".join(sorted(set(TYPES.values())))
        raise OperandError(f"requires a type of {known}, got {named(wanted)}")
    return name


def convert(value: Any, name: str) -> Any:
    """Return a value that is not null in another type; raises `OperandError`."""
    if isinstance(value, list | dict) and name != "bool":
        raise OperandError(f"cannot convert {named(value)} to {name}", value)
    match name:
        case "bool":
            return bool(value) if isinstance(value, bool | int | float) else True
        case "string":
            return str(value).lower() if isinstance(value, bool) else in_words(value)
        case "double":
            return float(_parsed(value, float, "eE.+-") if isinstance(value, str) else value)
    return _integer(value, *(_INT if name == "int" else _LONG))


def _integer(value: Any, low: int, high: int) -> int:
    number = _parsed(value, int, "+-") if isinstance(value, str) else value
    if not low <= number < high + 1:
        raise OperandError(f"gives no integer from {low} to {high}: {named(value)}", value)
    return int(number)


def _parsed(value: str, make: Callable[[str], Any], besides: str) -> Any:
    try:
        if value.isascii() and all(each.isdigit() or each in besides for each in value):
            found = make(value[:400])
            if len(value) <= 400 and is_number(found) and abs(found) != float("inf"):
                return found
    except ValueError:
        pass
    raise OperandError(f"cannot read {named(value)} as a number", value) from None
