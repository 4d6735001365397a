"""The paths of an update, read: fields, indexes of arrays, `$`, `$[]` and `$[name]`.

What stands behind a field in an update, read into the action that the operator takes.

A reader is given plain JSON. The condition of a `$pull` alone is read from what the caller wrote, because it
may hold regular expressions.

Updates, read: what MongoDB's server accepts, and an error that names the place for whatever it does
not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final, get_args

from .. import codec
from ..codec import Codec
from ..errors import InvalidBody, InvalidFilter, InvalidUpdate, cut, shortened
from ..query.conditions import METADATA, Value
from ..query.parser import FilterParser as FilterParser
from ..query.parser import first_key
from ..query.path import Path, path_repr
from ..query.sort import MAX_FIELDS
from ..query.values import is_number
from .actions import (
    MATCHED,
    Action,
    Add,
    AddToSet,
    ArrayFilter,
    Arrive,
    Assign,
    AtLeast,
    AtMost,
    BitOperator,
    Bitwise,
    Elements,
    FieldChange,
    Leave,
    Matched,
    Multiply,
    Piece,
    Pop,
    Pull,
    PullAll,
    Push,
    PutTime,
    Remove,
    SortElements,
    Way,
)

NAME: Final = re.compile(r"[a-z][A-Za-z0-9]*", re.ASCII)
"""What an array filter can be called."""
_ELEMENTS: Final = re.compile(r"\$\[(.*)\]", re.DOTALL)


def read_way(path: Any, operator: str) -> Way:
    """Read a dotted path, or take a `Path`, whose keys are what they are; raises `InvalidUpdate`."""
    if isinstance(path, Path):
        if not path.keys:
            raise InvalidUpdate(
                operator, "a path to a field, not to the body: replace_one does that"
            )
        return path.keys
    place = f"{operator}.{path}"
    if not isinstance(path, str):
        raise InvalidUpdate(operator, f"a field is a string, not {shortened(path)}")
    way = tuple(_piece(key, place) for key in _keys(path, place))
    _check_top(way[0], path, place)
    if way.count(MATCHED) > 1:
        raise InvalidUpdate(place, "`$` may stand in a path once")
    return way


def as_written(path: str | Path, way: Way) -> str | Path:
    """Return the text that is read as the way of a path, or the path where none is."""
    if isinstance(path, str):
        return path
    try:
        found = read_way(str(path), "")
    except InvalidUpdate:
        return path
    return str(path) if found == way else path


def plain_keys(way: Way, place: str) -> tuple[str, ...]:
    """Return the keys of a path that names no elements; raises `InvalidUpdate` for others."""
    if any(isinstance(piece, Matched | Elements) for piece in way):
        raise InvalidUpdate(place, "$rename does not take `$`, `$[]` and `$[name]`")
    return tuple(map(str, way))


def _keys(path: str, place: str) -> tuple[str, ...]:
    try:
        keys = Path.parse(path).keys
    except InvalidFilter as error:
        raise InvalidUpdate(place, error.problem) from None
    if not all(keys):
        raise InvalidUpdate(
            place, "a part of the path is empty; the empty key is reached by a Path: Path('a', '')"
        )
    return keys


def _piece(key: str, place: str) -> Piece:
    if key == "$":
        return MATCHED
    if not key.startswith("$["):
        return key
    found = _ELEMENTS.fullmatch(key)
    if found is None or (found[1] and not NAME.fullmatch(found[1])):
        raise InvalidUpdate(
            place, f"{shortened(key)} is neither `$[]` nor `$[name]` with a name such as elem1"
        )
    return Elements(found[1])


def _check_top(first: Piece, path: str, place: str) -> None:
    if isinstance(first, Matched | Elements):
        raise InvalidUpdate(place, f"{cut(str(first))} follows the path of an array")
    if not first.startswith("$"):
        return
    name = first[1:]
    if name in METADATA:
        problem = f"{first} is what the store knows of the object: an update changes the body only"
    elif name == "body":
        problem = "name the field alone; replace_one gives another body as a whole"
    else:
        problem = "a field at the top does not begin with $"
    key_of_body = cut(path_repr(path.split(".")))
    raise InvalidUpdate(place, f"{problem}. A key of the body: {key_of_body}")


Reader = Callable[[Any, str], Action]
_CHECKED: Final = Codec(max_bytes=sys.maxsize)
"""For what the caller's rules have let through."""
_PUSH: Final = ("$each", "$position", "$slice", "$sort")
_WHOLE_FILTERS: Final = frozenset({"$and", "$or", "$nor", "$expr", "$jsonSchema", "$comment"})


def _add(operand: Any, place: str) -> Action:
    return Add(_number(operand, place))


def _multiply(operand: Any, place: str) -> Action:
    return Multiply(_number(operand, place))


def _number(operand: Any, place: str) -> Value:
    if not is_number(operand):
        raise InvalidUpdate(place, f"needs a number, not {shortened(operand)}")
    return _value(operand)


def _rename(operand: Any, place: str) -> Action:
    """Read where a field goes; `source` is for the caller to say."""
    if not isinstance(operand, str):
        raise InvalidUpdate(place, f"needs the field's new name, not {shortened(operand)}")
    return Arrive(plain_keys(read_way(operand, place), place))


def _put_time(operand: Any, place: str) -> Action:
    match operand:
        case bool() | {"$type": "date"} if operand in (True, False, {"$type": "date"}):
            return PutTime("date")
        case {"$type": "timestamp"} if len(operand) == 1:
            return PutTime("timestamp")
    raise InvalidUpdate(
        place, "needs true, {'$type': 'date'} (text) or {'$type': 'timestamp'} (microseconds)"
    )


def _push(operand: Any, place: str) -> Action:
    if not isinstance(operand, dict) or not set(operand) & set(_PUSH):
        return Push((_value(operand),))
    if "$each" not in operand:
        raise InvalidUpdate(place, f"{next(iter(operand))} goes with $each")
    for name in operand:
        if name not in _PUSH:
            raise InvalidUpdate(f"{place}.{name}", f"is not one of {', '.join(_PUSH)}")
    whole = {
        name: _whole(operand[name], f"{place}.{name}")
        for name in ("$position", "$slice")
        if name in operand
    }
    sort = _sort(operand["$sort"], f"{place}.$sort") if "$sort" in operand else None
    return Push(
        _values(operand["$each"], f"{place}.$each"),
        whole.get("$position"),
        sort,
        whole.get("$slice"),
    )


def _sort(operand: Any, place: str) -> SortElements:
    if is_number(operand):
        return SortElements((((), _descending(operand, place)),))
    if not isinstance(operand, dict) or not 0 < len(operand) <= MAX_FIELDS:
        raise InvalidUpdate(
            place, f"needs 1 or -1, or 1 to {MAX_FIELDS} fields of the elements with 1 or -1 each"
        )
    return SortElements(
        tuple(
            (_sort_keys(field, f"{place}.{field}"), _descending(direction, f"{place}.{field}"))
            for field, direction in operand.items()
        )
    )


def _sort_keys(field: str, place: str) -> tuple[str, ...]:
    keys = tuple(field.split("."))
    if not all(keys):
        raise InvalidUpdate(place, "a part of the path is empty")
    return keys


def _descending(direction: Any, place: str) -> bool:
    if not is_number(direction) or direction not in (1, -1):
        raise InvalidUpdate(place, f"the direction is 1 or -1, not {shortened(direction)}")
    return bool(direction < 0)


def _add_to_set(operand: Any, place: str) -> Action:
    if not isinstance(operand, dict) or next(iter(operand), "") != "$each":
        return AddToSet((_value(operand),))
    if len(operand) > 1:
        raise InvalidUpdate(f"{place}.{list(operand)[1]}", "does not go with $each of $addToSet")
    return AddToSet(_values(operand["$each"], f"{place}.$each"))


def _pop(operand: Any, place: str) -> Action:
    if not is_number(operand) or operand not in (1, -1):
        raise InvalidUpdate(
            place, f"needs 1 (the last) or -1 (the first), not {shortened(operand)}"
        )
    return Pop(first=operand < 0)


def _pull_all(operand: Any, place: str) -> Action:
    return PullAll(_values(operand, place))


def _bitwise(operand: Any, place: str) -> Action:
    if not isinstance(operand, dict) or not operand:
        raise InvalidUpdate(place, "needs a document such as {'and': 10}")
    steps: list[tuple[BitOperator, int]] = []
    for name, mask in operand.items():
        if name not in get_args(BitOperator):
            raise InvalidUpdate(f"{place}.{name}", "is not one of and, or, xor")
        if type(mask) is not int:
            raise InvalidUpdate(f"{place}.{name}", f"needs an integer, not {shortened(mask)}")
        steps.append((name, mask))
    return Bitwise(tuple(steps))


READERS: Final[Mapping[str, Reader]] = {
    "$set": lambda operand, _: Assign(_value(operand)),
    "$setOnInsert": lambda operand, _: Assign(_value(operand)),
    "$unset": lambda *_: Remove(),
    "$inc": _add,
    "$mul": _multiply,
    "$min": lambda operand, _: AtMost(_value(operand)),
    "$max": lambda operand, _: AtLeast(_value(operand)),
    "$rename": _rename,
    "$currentDate": _put_time,
    "$push": _push,
    "$addToSet": _add_to_set,
    "$pop": _pop,
    "$pull": lambda operand, _: PullAll((_value(operand),)),
    "$pullAll": _pull_all,
    "$bit": _bitwise,
}
"""What reads the operand of an operator; `read_pull` reads a condition."""


def is_condition(operand: Any) -> bool:
    """Return whether `$pull` takes away what meets a condition, not what equals a value."""
    return isinstance(operand, Mapping | re.Pattern)


def read_pull(operand: Any, place: str, rules: Codec) -> Action:
    """Read the condition of a `$pull`: operators on elements, or a filter of those that are objects."""
    try:
        return _pull_condition(operand, FilterParser(rules, within=True))
    except InvalidFilter as error:
        inner = error.place.lstrip(".")
        raise InvalidUpdate(f"{place}.{inner}" if inner else place, error.problem) from error


def _pull_condition(operand: Any, parser: FilterParser) -> Action:
    if isinstance(operand, re.Pattern):
        return Pull(parser.field("", operand, ""), wrapped=True)
    first = first_key(operand)
    if first.startswith("$") and first not in _WHOLE_FILTERS:
        return Pull(parser.operators("", operand, ""), wrapped=True)
    return Pull(parser.document(operand), wrapped=False)


def _value(operand: Any) -> Value:
    return Value.of(operand, _CHECKED)


def _values(operand: Any, place: str) -> tuple[Value, ...]:
    if not isinstance(operand, list):
        raise InvalidUpdate(place, f"needs a list, not {shortened(operand)}")
    return tuple(map(_value, operand))


def _whole(operand: Any, place: str) -> int:
    if not is_number(operand) or operand != operand // 1:
        raise InvalidUpdate(place, f"needs a whole number, not {shortened(operand)}")
    return int(operand)


OPERATORS: Final = tuple(READERS)


def read_operators(
    what: Mapping[Any, Any], rules: Codec
) -> tuple[tuple[FieldChange, ...], dict[str, dict[str | Path, Any]]]:
    """Return the changes that operators make, and the update as JSON."""
    changes: list[FieldChange] = []
    written: dict[str, dict[str | Path, Any]] = {}
    for operator, operands in _operators(what):
        written[operator] = {}
        for path, operand in operands.items():
            way, place = read_way(path, operator), f"{operator}.{path}"
            plain, action = _read(operator, operand, place, rules)
            written[operator][as_written(path, way)] = plain
            changes.extend(_changes(FieldChange(operator, way, action)))
    return tuple(changes), written


def _operators(what: Mapping[Any, Any]) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    if not str(next(iter(what), "")).startswith("$"):
        raise InvalidUpdate(
            "",
            "it must have operators, such as {'$set': {'name': 'Ada'}}; replace_one gives another body as a "
            "whole",
        )
    for operator, operands in what.items():
        if operator not in OPERATORS:
            raise InvalidUpdate(
                str(operator), f"no such operator; there are {', '.join(OPERATORS)}"
            )
        if not isinstance(operands, Mapping):
            example = f"{{'{operator}': {{'field': …}}}}"
            problem = f"needs a document of fields, as in {example}, not {shortened(operands)}"
            raise InvalidUpdate(operator, problem)
        yield operator, operands


def _read(operator: str, operand: Any, place: str, rules: Codec) -> tuple[Any, Action]:
    """Return an operand as JSON that is nobody else's, and what it asks for. The condition of a `$pull`
    may hold what is not JSON.
    """
    if operator == "$pull" and is_condition(operand):
        action = read_pull(operand, place, rules)
        return deepcopy(operand), action
    plain = _plain(operand, place, rules)
    return plain, READERS[operator](plain, place)


def _plain(operand: Any, place: str, rules: Codec) -> Any:
    try:
        return codec.decode(rules.encode(operand))
    except InvalidBody as error:
        where = f"{place}.{error.path}" if error.path else place
        raise InvalidUpdate(where, error.problem) from error


def _changes(change: FieldChange) -> Iterator[FieldChange]:
    """Yield a change, or the two that a `$rename` is."""
    if not isinstance(change.action, Arrive):
        yield change
        return
    source, target = plain_keys(change.way, change.place), change.action.source
    if source == target:
        raise InvalidUpdate(change.place, "the new name must be another one")
    yield FieldChange(change.operator, target, Arrive(source))
    yield FieldChange(change.operator, source, Leave())


# -- array filters -----------------------------------------------------------------------------


def read_array_filters(what: Any, rules: Codec) -> tuple[ArrayFilter, ...]:
    """Read a list of filters, each on the elements that one name stands for."""
    if not isinstance(what, list | tuple):
        raise InvalidUpdate("array_filters", f"needs a list of filters, not {shortened(what)}")
    found: dict[str, ArrayFilter] = {}
    for number, each in enumerate(what):
        place = f"array_filters.{number}"
        one = _array_filter(each, place, rules)
        if one.name in found:
            raise InvalidUpdate(
                place, f"there is another filter for {shortened(one.name)}: use $and"
            )
        found[one.name] = one
    return tuple(found.values())


def check_names(changes: tuple[FieldChange, ...], filters: tuple[ArrayFilter, ...]) -> None:
    """Raise `InvalidUpdate` unless each `$[name]` has a filter, and each filter is used."""
    names = {each.name for each in filters}
    used = set()
    for change in changes:
        for piece in change.way:
            if isinstance(piece, Elements) and piece.name:
                if piece.name not in names:
                    problem = f"array_filters has none for {shortened(piece.name)}"
                    raise InvalidUpdate(change.place, problem)
                used.add(piece.name)
    for name in sorted(names - used):
        raise InvalidUpdate("array_filters", f"no path has {cut(str(Elements(name)))}")


def _array_filter(what: Any, place: str, rules: Codec) -> ArrayFilter:
    if not isinstance(what, Mapping):
        raise InvalidUpdate(place, f"needs a filter document, not {shortened(what)}")
    try:
        condition = FilterParser(rules, within=True).document(what)
    except InvalidFilter as error:
        raise InvalidUpdate(f"{place}.{error.place}".rstrip("."), error.problem) from error
    names = set(_names(what, place))
    if len(names) != 1:
        raise InvalidUpdate(place, f"names one field at its top, not {shortened(sorted(names))}")
    (name,) = names
    if not NAME.fullmatch(name):
        raise InvalidUpdate(
            place,
            f"{shortened(name)}: a name begins with a small letter; letters and digits follow",
        )
    return ArrayFilter(name, condition)


def _names(what: Mapping[str | Path, Any], place: str) -> Iterator[str]:
    for key, value in what.items():
        if key in {"$and", "$or", "$nor"}:
            for each in value:
                yield from _names(each, place)
        elif isinstance(key, Path):
            yield from key.keys[:1]
        elif not key.startswith("$"):
            yield key.split(".")[0]
        elif key != "$comment":
            raise InvalidUpdate(f"{place}.{key}", "is not for the elements of arrays")
