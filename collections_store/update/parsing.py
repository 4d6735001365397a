"""Updates, read: what MongoDB's server accepts, and an error that names the place for whatever it does
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from .. import codec
from ..codec import Codec
from ..errors import InvalidBody, InvalidFilter, InvalidUpdate, cut, shortened
from ..filter.nesting import check_nesting
from ..filter.parsing import Parser as FilterParser
from ..path import Path
from .actions import Action, ArrayFilter, Arrive, Change, Elements, Leave
from .operands import READERS, is_condition, read_pull
from .paths import NAME, as_written, plain_keys, read_way

OPERATORS: Final = tuple(READERS)


def read_operators(
    what: Mapping[Any, Any], rules: Codec
) -> tuple[tuple[Change, ...], dict[str, dict[str | Path, Any]]]:
    """Return the changes that operators make, and the update as JSON."""
    changes: list[Change] = []
    written: dict[str, dict[str | Path, Any]] = {}
    for operator, operands in _operators(what):
        written[operator] = {}
        for path, operand in operands.items():
            way, place = read_way(path, operator), f"{operator}.{path}"
            plain, action = _read(operator, operand, place, rules)
            written[operator][as_written(path, way)] = plain
            changes.extend(_changes(Change(operator, way, action)))
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


def _changes(change: Change) -> Iterator[Change]:
    """Yield a change, or the two that a `$rename` is."""
    if not isinstance(change.action, Arrive):
        yield change
        return
    source, target = plain_keys(change.way, change.place), change.action.source
    if source == target:
        raise InvalidUpdate(change.place, "the new name must be another one")
    yield Change(change.operator, target, Arrive(source))
    yield Change(change.operator, source, Leave())


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


def check_names(changes: tuple[Change, ...], filters: tuple[ArrayFilter, ...]) -> None:
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
        check_nesting(what)
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
