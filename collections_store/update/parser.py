"""The parts of an update, and their parser: accepts the updates of MongoDB's server; an error names the position of
anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, Final, TypeAlias

from ..aggregation.parser import PipelineParser
from ..aggregation.pipeline import Pipeline
from ..aggregation.table import STAGES, allowed
from ..codec import Codec
from ..document import METADATA
from ..errors import InvalidBody, InvalidFilter, InvalidPipeline, InvalidUpdate, cut, shortened
from ..expressions.classes import value_class
from ..expressions.path import MAX_CACHED, Path, field_name, path_repr
from ..query.conditions import Condition, Value
from ..query.parser import FilterParser, first_key
from .operators import OPERATORS, Pull

_NAME: Final = re.compile(r"[a-z][A-Za-z0-9]*", re.ASCII)
"""The name of an array filter."""
_ELEMENTS: Final = re.compile(r"\$\[(.*)\]", re.DOTALL)
_FILTERS: Final = frozenset({"$and", "$or", "$nor", "$expr", "$jsonSchema", "$comment"})
"""Operators with which a filter begins, not the condition on a value."""


@value_class
class Matched:
    """`$`: the element that matched the filter. `MATCHED` is the only object, so that hashing calls nothing."""

    def __reduce__(self) -> str:
        return "MATCHED"

    def __str__(self) -> str:
        return "$"


@value_class(eq=True)
class Elements:
    """`$[name]`: the elements that match the array filter `name`; `$[]`: all."""

    name: str = ""

    def __str__(self) -> str:
        return f"$[{self.name}]"


Piece: TypeAlias = str | Matched | Elements
UpdatePath: TypeAlias = tuple[Piece, ...]
"""The pieces from the top of a body down to a field or an element."""
MATCHED: Final = Matched()


@value_class(eq=True)
class ArrayFilter:
    """The filter of the elements of `$[name]`; the condition has the element as its field `name`."""

    name: str
    condition: Condition


@value_class(eq=True)
class FieldChange:
    """An operator, its path, and its parsed operand."""

    operator: str
    path: UpdatePath
    operand: Any

    @property
    def position(self) -> str:
        """The operator and the path, as in errors."""
        return f"{self.operator}.{'.'.join(map(str, self.path))}"


# -- paths -------------------------------------------------------------------------------------


def parse_path(path: Any, operator: str) -> UpdatePath:
    """Parse a dotted path, or take the keys of a `Path` as they are; raises `InvalidUpdate`."""
    if isinstance(path, Path):
        if not path.keys:
            problem = "must be a path to a field; use replace_one to replace the body"
            raise InvalidUpdate(operator, problem)
        return path.keys
    if not isinstance(path, str):
        raise InvalidUpdate(operator, f"a path must be a string or a Path, got {shortened(path)}")
    try:
        return _pieces(path)
    except InvalidFilter as error:
        raise InvalidUpdate(f"{operator}.{path}", error.problem) from None


@lru_cache(maxsize=MAX_CACHED)
def _pieces(path: str) -> UpdatePath:
    keys = Path.parse(path).keys
    if not all(keys):
        problem = "a part of the path is empty; the empty key is reached by a Path: Path('a', '')"
        raise InvalidFilter("", problem)
    first, *others = map(_piece, keys)
    if not isinstance(first, str):
        raise InvalidFilter("", f"{cut(str(first))} must follow the path of an array")
    if first == "_id":
        problem = "an update does not change the id, and an upsert takes it from the filter"
        raise InvalidFilter("", f"{problem}. For a key of the body write {cut(path_repr(keys))}")
    if first.startswith("$"):
        problem = "a field at the top must not begin with $"
        if first[1:] in METADATA:
            problem = f"{first} is metadata: an update changes the body only"
        elif first == "$body":
            problem = "name the field alone; replace_one replaces the body"
        raise InvalidFilter("", f"{problem}. For a key of the body write {cut(path_repr(keys))}")
    if others.count(MATCHED) > 1:
        raise InvalidFilter("", "`$` may stand in a path once")
    return first, *others


def _piece(key: str) -> Piece:
    if key == "$":
        return MATCHED
    if not key.startswith("$["):
        return key
    found = _ELEMENTS.fullmatch(key)
    if found is None or (found[1] and not _NAME.fullmatch(found[1])):
        problem = f"must be `$[]` or `$[name]` with a name such as elem1, got {shortened(key)}"
        raise InvalidFilter("", problem)
    return Elements(found[1])


def _written_path(path: str | Path) -> str | Path:
    """Return the string with the same meaning as the path, or the `Path` without such a string."""
    try:
        same = isinstance(path, str) or _pieces(str(path)) == path.keys
    except InvalidFilter:
        return path
    return str(path) if same else path


# -- operators ---------------------------------------------------------------------------------

Written = dict[str, dict[str | Path, Any]]


def parse_operators(
    document: Mapping[Any, Any], codec: Codec
) -> tuple[tuple[FieldChange, ...], Written]:
    """Return the changes of a document of operators, and the document as JSON."""
    changes: list[FieldChange] = []
    written: Written = {}
    if not str(next(iter(document), "")).startswith("$"):
        example = "{'$set': {'name': 'Ada'}}"
        problem = f"must have operators, such as {example}; use replace_one to replace the body"
        raise InvalidUpdate("", problem)
    for operator, operands in document.items():
        if operator not in OPERATORS:
            known = ", ".join(OPERATORS)
            raise InvalidUpdate(str(operator), f"no such operator; there are {known}")
        if not isinstance(operands, Mapping):
            example = f"{{'{operator}': {{'field': …}}}}"
            problem = f"must be a document of fields, as in {example}, got {shortened(operands)}"
            raise InvalidUpdate(operator, problem)
        written[operator] = {}
        for field, operand in operands.items():
            path = field if type(field) is str else field_name(field)
            pieces = parse_path(path, operator)
            key = path if type(path) is str else _written_path(path)
            position = f"{operator}.{path}"
            written[operator][key], parsed = _operand(operator, operand, position, codec)
            if operator == "$rename":
                changes += _renamed(pieces, parsed, position)
            else:
                changes.append(FieldChange(operator, pieces, parsed))
    return tuple(changes), written


def _operand(operator: str, operand: Any, position: str, codec: Codec) -> tuple[Any, Any]:
    """Return an operand as unshared JSON, and parsed. The condition of a `$pull` is parsed as written, because it may
    hold regular expressions.
    """
    if operator == "$pull" and isinstance(operand, Mapping | re.Pattern):
        parsed = _condition(operand, position, codec)
        return deepcopy(operand), parsed  # it is not nested too deep, then
    try:
        value = Value.of(operand, codec)
    except InvalidBody as error:
        where = f"{position}.{error.path}" if error.path else position
        raise InvalidUpdate(where, error.problem) from error
    parse = OPERATORS[operator].parse
    return value.value, value if parse is None else parse(value, position)


def _condition(operand: Any, position: str, codec: Codec) -> Pull:
    """Parse the condition of a `$pull`: operators on elements, or a filter on objects."""
    parser = FilterParser(codec, within=True)
    try:
        if isinstance(operand, re.Pattern):
            return Pull(parser.field("", operand, ""), wrapped=True)
        first = first_key(operand)
        if first.startswith("$") and first not in _FILTERS:
            return Pull(parser.operators("", operand, ""), wrapped=True)
        return Pull(parser.document(operand), wrapped=False)
    except InvalidFilter as error:
        inner = error.place.lstrip(".")
        raise InvalidUpdate(f"{position}.{inner}" if inner else position, error.problem) from error


def _renamed(path: UpdatePath, name: Value, position: str) -> tuple[FieldChange, FieldChange]:
    """Return the two changes of a `$rename`: the target takes the value of the source, which is removed."""
    if name.kind != "string":
        raise InvalidUpdate(position, f"must be the field's new name, got {shortened(name.value)}")
    target = _plain_keys(parse_path(name.value, position), position)
    source = _plain_keys(path, position)
    if source == target:
        raise InvalidUpdate(position, "the new name must be another one")
    return FieldChange("$rename", target, source), FieldChange("$rename", source, None)


def _plain_keys(path: UpdatePath, position: str) -> tuple[str, ...]:
    if any(isinstance(piece, Matched | Elements) for piece in path):
        raise InvalidUpdate(position, "$rename does not take `$`, `$[]` and `$[name]`")
    return tuple(map(str, path))


# -- array filters -----------------------------------------------------------------------------


def parse_array_filters(filters: Any, codec: Codec) -> tuple[ArrayFilter, ...]:
    """Parse a list of array filters, each for the elements of one name."""
    if not isinstance(filters, list | tuple):
        problem = f"must be a list of filters, got {shortened(filters)}"
        raise InvalidUpdate("array_filters", problem)
    found: dict[str, ArrayFilter] = {}
    for number, each in enumerate(filters):
        position = f"array_filters.{number}"
        if not isinstance(each, Mapping):
            raise InvalidUpdate(position, f"must be a filter document, got {shortened(each)}")
        try:
            condition = FilterParser(codec, within=True).document(each)
        except InvalidFilter as error:
            raise InvalidUpdate(f"{position}.{error.place}".rstrip("."), error.problem) from error
        name = _name(each, position)
        if name in found:
            problem = f"there is another filter for {shortened(name)}: use $and"
            raise InvalidUpdate(position, problem)
        found[name] = ArrayFilter(name, condition)
    return tuple(found.values())


def _name(filter: Mapping[str | Path, Any], position: str) -> str:
    names = set(_names(filter, position))
    if len(names) != 1:
        problem = f"must have one field at its top, got {shortened(sorted(names))}"
        raise InvalidUpdate(position, problem)
    (name,) = names
    if not _NAME.fullmatch(name):
        problem = "a name must begin with a lower-case letter and go on with letters and digits"
        raise InvalidUpdate(position, f"{problem}, got {shortened(name)}")
    return name


def _names(filter: Mapping[str | Path, Any], position: str) -> Iterator[str]:
    for field, value in filter.items():
        key = field_name(field)
        if isinstance(key, Path):
            yield from key.keys[:1]
        elif key in {"$and", "$or", "$nor"}:
            for each in value:
                yield from _names(each, position)
        elif not key.startswith("$"):
            yield key.split(".")[0]
        elif key != "$comment":
            raise InvalidUpdate(f"{position}.{key}", "is not for the elements of arrays")


def check_names(changes: tuple[FieldChange, ...], filters: tuple[ArrayFilter, ...]) -> None:
    """Raise `InvalidUpdate` unless each `$[name]` has a filter, and each filter is used."""
    unused = {each.name for each in filters} if filters else set()
    names = frozenset(unused)
    for change in changes:
        for piece in change.path:
            if isinstance(piece, Elements) and piece.name:
                if piece.name not in names:
                    problem = f"array_filters has none for {shortened(piece.name)}"
                    raise InvalidUpdate(change.position, problem)
                unused.discard(piece.name)
    for name in sorted(unused):
        raise InvalidUpdate("array_filters", f"no path has {cut(str(Elements(name)))}")


# -- pipelines ---------------------------------------------------------------------------------


def parse_stages(
    stages: list[Any] | tuple[Any, ...], codec: Codec, variables: frozenset[str]
) -> Pipeline:
    """Parse the stages of an update; raise `InvalidUpdate`."""
    for number, stage in enumerate(stages):
        name = next(iter(stage), None) if isinstance(stage, Mapping) else None
        if isinstance(name, str) and name not in allowed("update"):
            problem = f"a stage of an update must be one of {', '.join(allowed('update'))}"
            raise InvalidUpdate(f"{number}.{name}", problem)
    try:
        return Pipeline(PipelineParser(STAGES, codec, variables).steps(stages))
    except InvalidPipeline as error:
        raise InvalidUpdate(error.place, error.problem) from error
