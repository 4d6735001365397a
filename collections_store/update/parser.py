"""Update parser: what MongoDB's server accepts. An error names the path of everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from ..codec import Codec
from ..errors import InvalidBody, InvalidFilter, InvalidUpdate, cut, shortened
from ..query.conditions import Value
from ..query.parser import FilterParser
from ..query.path import Path
from .changes import (
    NAME,
    ArrayFilter,
    Elements,
    FieldChange,
    parse_path,
    plain_keys,
    written_path,
)
from .operators import OPERATORS, is_condition, parse_condition

Written = dict[str, dict[str | Path, Any]]


def parse_operators(
    what: Mapping[Any, Any], rules: Codec
) -> tuple[tuple[FieldChange, ...], Written]:
    """Return the changes of a document of operators, and the document as JSON."""
    changes: list[FieldChange] = []
    written: Written = {}
    if not str(next(iter(what), "")).startswith("$"):
        example = "{'$set': {'name': 'Ada'}}"
        problem = f"must have operators, such as {example}; use replace_one to replace the body"
        raise InvalidUpdate("", problem)
    for operator, operands in what.items():
        _check_operator(operator, operands)
        written[operator] = {}
        for path, operand in operands.items():
            pieces = parse_path(path, operator)
            key = path if type(path) is str else written_path(path)
            plain, parsed = _operand(operator, operand, f"{operator}.{path}", rules)
            written[operator][key] = plain
            if operator == "$rename":
                changes += _moved(pieces, parsed)
            else:
                changes.append(FieldChange(operator, pieces, parsed))
    return tuple(changes), written


def _check_operator(operator: Any, operands: Any) -> None:
    if operator not in OPERATORS:
        known = ", ".join(OPERATORS)
        raise InvalidUpdate(str(operator), f"no such operator; there are {known}")
    if not isinstance(operands, Mapping):
        example = f"{{'{operator}': {{'field': …}}}}"
        problem = f"must be a document of fields, as in {example}, got {shortened(operands)}"
        raise InvalidUpdate(operator, problem)


def _operand(operator: str, operand: Any, place: str, rules: Codec) -> tuple[Any, Any]:
    """Return an operand as JSON, which nobody shares, and parsed. The condition of a `$pull` is parsed as it is
    written: it may hold regular expressions.
    """
    if operator == "$pull" and is_condition(operand):
        parsed = parse_condition(operand, place, rules)
        return deepcopy(operand), parsed  # it is not nested too deep, then
    try:
        value = Value.of(operand, rules)
    except InvalidBody as error:
        where = f"{place}.{error.path}" if error.path else place
        raise InvalidUpdate(where, error.problem) from error
    parse = OPERATORS[operator].parse
    return value.value, value if parse is None else parse(value, place)


def _moved(path: Any, target: tuple[str, ...]) -> Iterator[FieldChange]:
    """Yield the two changes of a `$rename`: the target takes the value of the source, which goes."""
    place = FieldChange("$rename", path, None).place
    source = plain_keys(path, place)
    if source == target:
        raise InvalidUpdate(place, "the new name must be another one")
    yield FieldChange("$rename", target, source)
    yield FieldChange("$rename", source, None)


# -- array filters -----------------------------------------------------------------------------


def parse_array_filters(what: Any, rules: Codec) -> tuple[ArrayFilter, ...]:
    """Parse a list of filters, each on the elements that one name stands for."""
    if not isinstance(what, list | tuple):
        problem = f"must be a list of filters, got {shortened(what)}"
        raise InvalidUpdate("array_filters", problem)
    found: dict[str, ArrayFilter] = {}
    for number, each in enumerate(what):
        place = f"array_filters.{number}"
        one = _array_filter(each, place, rules)
        if one.name in found:
            problem = f"there is another filter for {shortened(one.name)}: use $and"
            raise InvalidUpdate(place, problem)
        found[one.name] = one
    return tuple(found.values())


def check_names(changes: tuple[FieldChange, ...], filters: tuple[ArrayFilter, ...]) -> None:
    """Raise `InvalidUpdate` unless each `$[name]` has a filter, and each filter is used."""
    unused = {each.name for each in filters}
    names = frozenset(unused)
    for change in changes:
        for piece in change.path:
            if isinstance(piece, Elements) and piece.name:
                if piece.name not in names:
                    problem = f"array_filters has none for {shortened(piece.name)}"
                    raise InvalidUpdate(change.place, problem)
                unused.discard(piece.name)
    for name in sorted(unused):
        raise InvalidUpdate("array_filters", f"no path has {cut(str(Elements(name)))}")


def _array_filter(what: Any, place: str, rules: Codec) -> ArrayFilter:
    if not isinstance(what, Mapping):
        raise InvalidUpdate(place, f"must be a filter document, got {shortened(what)}")
    try:
        condition = FilterParser(rules, within=True).document(what)
    except InvalidFilter as error:
        raise InvalidUpdate(f"{place}.{error.place}".rstrip("."), error.problem) from error
    names = set(_names(what, place))
    if len(names) != 1:
        problem = f"must have one field at its top, got {shortened(sorted(names))}"
        raise InvalidUpdate(place, problem)
    (name,) = names
    if not NAME.fullmatch(name):
        problem = "a name must begin with a lower-case letter and go on with letters and digits"
        raise InvalidUpdate(place, f"{problem}, got {shortened(name)}")
    return ArrayFilter(name, condition)


def _names(what: Mapping[str | Path, Any], place: str) -> Iterator[str]:
    for key, value in what.items():
        if isinstance(key, Path):
            yield from key.keys[:1]
        elif key in {"$and", "$or", "$nor"}:
            for each in value:
                yield from _names(each, place)
        elif not key.startswith("$"):
            yield key.split(".")[0]
        elif key != "$comment":
            raise InvalidUpdate(f"{place}.{key}", "is not for the elements of arrays")
