"""What a filter document is made of, seen from outside: which documents hold operators, and how deep it
is, found out without recursion: what reads it is recursive.

Times that filters ask the metadata for: datetimes and texts, as the microseconds that rows keep.

What stands behind an operator, read.

The filter language, read: what MongoDB's server accepts, and an error that names the place for
whatever it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar, get_args

from .. import codec
from ..aggregation.expressions.parser import ExpressionParser as ExpressionParser
from ..codec import Codec
from ..document import microseconds
from ..errors import InvalidBody, InvalidFilter, shortened
from . import json_schema
from .conditions import (
    LISTS,
    MAX_INLINE_VALUES,
    TIMES,
    And,
    Bits,
    BitsOperator,
    Compare,
    Comparison,
    Condition,
    Equals,
    Exists,
    Expression,
    Fails,
    Field,
    FitsSchema,
    HasElement,
    HasObject,
    HasSize,
    HasType,
    Matches,
    Metadata,
    Modulo,
    Not,
    OneOf,
    Or,
    Passes,
    Test,
    TypeName,
    Value,
    read_target,
    scalars_of,
)
from .path import Path
from .patterns.parser import OPTIONS, InvalidPattern
from .patterns.pattern import Pattern, compiled, options_of
from .values import FOREIGN_TYPES

MAX_LEVELS: Final = 100
"""Documents within documents, those of operators included, values not: MongoDB's limit."""

OPERATORS: Final = frozenset(
    f"${name}"
    for name in (
        *(
            "eq",
            "ne",
            "gt",
            "gte",
            "lt",
            "lte",
            "in",
            "nin",
            "not",
            "exists",
            "type",
            "regex",
            "options",
        ),
        *("mod", "all", "elemMatch", "size", "jsonSchema"),
        *("bitsAllSet", "bitsAnySet", "bitsAllClear", "bitsAnyClear"),
    )
)


def check_equals(field: Any, value: Any) -> None:
    """Raise `InvalidFilter` for operators in the place of the one value that a field shall equal."""
    if isinstance(value, Mapping) and first_key(value) in OPERATORS:
        asked, name = shortened({str(field): value}), shortened(str(field))
        raise InvalidFilter(
            str(field),
            f"{shortened(value)} holds operators: write find({asked}). A body that holds such a document is "
            f"found by {{{name}: {{'$eq': …}}}}",
        )


def check_nesting(document: Any) -> None:
    """Raise `InvalidFilter` if there are more levels."""
    level, depth = [document], 0
    while level:
        depth += 1
        check_levels(depth)
        level = [inner for each in level for inner in _inner_values(each)]


def check_levels(levels: int) -> None:
    """Raise `InvalidFilter` if so many levels are too many."""
    if levels > MAX_LEVELS:
        raise InvalidFilter("", f"it is nested more than {MAX_LEVELS} levels deep")


def _inner_values(document: Any) -> Iterator[Any]:
    """Yield the documents of which a filter or a document of operators is made."""
    if not isinstance(document, Mapping):
        return
    for key, value in document.items():
        if key in {"$and", "$or", "$nor", "$all"}:
            yield from value if isinstance(value, list | tuple) else ()
        elif key in {"$not", "$elemMatch"} or holds_operators(value):
            yield value


def holds_operators(value: Any) -> bool:
    """MongoDB's rule: a document whose first key starts with `$` holds operators."""
    return isinstance(value, Mapping) and first_key(value).startswith("$")


def first_key(document: Mapping[Any, Any]) -> str:
    """Return the first key of a document if it is text: a `Path` names a field, whatever is in it."""
    first = next(iter(document), "")
    return first if isinstance(first, str) else ""


def as_time(name: str, test: Test, place: str) -> Test:
    """Let times be asked for as datetimes or ISO 8601 text."""
    if name not in TIMES:
        return test
    match test:
        case Equals(Value() as value):
            return Equals(_time(value, place))
        case Compare(operator, Value() as value):
            return Compare(operator, _time(value, place))
        case OneOf(lists):
            values = [
                Value.of(each) for v in lists if isinstance(v, Value) for each in scalars_of(v)
            ]
            return one_of([_time(each, place) for each in values])
    return test


def in_microseconds(key: str | Path, operand: Any, place: str) -> Any:
    """Replace the datetimes that a metadata field is compared with."""
    if not isinstance(key, str) or key.removeprefix("$") not in TIMES or not key.startswith("$"):
        return operand
    match operand:
        case datetime():
            if operand.tzinfo is None:
                raise InvalidFilter(
                    place, f"{shortened(operand)} is no moment in time without a time zone"
                )
            return microseconds(operand)
        case Mapping():
            return {k: in_microseconds(key, v, f"{place}.{k}") for k, v in operand.items()}
        case list() | tuple():
            return [in_microseconds(key, v, place) for v in operand]
    return operand


def _time(value: Value, place: str) -> Value:
    if value.kind in {"null", "number"}:
        return value
    try:
        return Value.of(microseconds(datetime.fromisoformat(value.value)))
    except (TypeError, ValueError):
        raise InvalidFilter(
            place,
            f"{shortened(value.value)} is no time: give a datetime with a time zone, its ISO 8601 "
            "text, or microseconds since 1970",
        ) from None


_TYPES: Final[dict[str | int, TypeName | None]] = {
    **{name: name for name in get_args(TypeName)},
    1: "double", 2: "string", 3: "object", 4: "array", 8: "bool", 10: "null", 16: "int", 18: "long",
    # types that no JSON value has
    **dict.fromkeys(
        [*FOREIGN_TYPES, 5, 6, 7, 9, 11, 12, 13, 14, 15, 17, 19, -1, 127],
    ),
}  # fmt: skip

_BITS: Final[Mapping[str, BitsOperator]] = {name: name for name in get_args(BitsOperator)}


def regex(operand: Any, siblings: Mapping[str, Any], place: str) -> Pattern:
    """Read `$regex` and its sibling `$options`; raises `InvalidFilter`."""
    options = siblings.get("$options")
    if isinstance(operand, re.Pattern) and options is None:
        return of_text(operand, place)
    pattern = operand.pattern if isinstance(operand, re.Pattern) else operand
    if not isinstance(pattern, str):
        raise InvalidFilter(
            place, f"must be a regular expression of text, got {shortened(operand)}"
        )
    options = "" if options is None else options
    if not isinstance(options, str) or not set(options) <= set(OPTIONS):
        known = ", ".join(OPTIONS)
        raise InvalidFilter(place, f"$options must be of {known}, got {shortened(options)}")
    return _compiled(pattern, options, place)


def of_text(pattern: re.Pattern[Any], place: str) -> Pattern:
    """Return a pattern over text; raises `InvalidFilter` for one over bytes."""
    if isinstance(pattern.pattern, str):
        return _compiled(pattern.pattern, options_of(pattern), place)
    raise InvalidFilter(place, f"must be a regular expression of text, got {shortened(pattern)}")


def _compiled(pattern: str, options: str, place: str) -> Pattern:
    try:
        return compiled(pattern, options)
    except InvalidPattern as error:
        raise InvalidFilter(place, error.problem) from None


def truthy(operand: Any) -> bool:
    """MongoDB's rule: null, false and 0 are false, all else is true."""
    if operand is None or isinstance(operand, bool | int | float):
        return bool(operand)
    return True


def _size(operator: str, operand: Any, place: str) -> Test:  # noqa: ARG001
    if _whole(operand) is None or operand < 0:
        raise InvalidFilter(place, f"{shortened(operand)} is not a whole number from 0 on")
    return HasSize(Value.of(int(operand)))


def _modulo(operator: str, operand: Any, place: str) -> Test:  # noqa: ARG001
    if not isinstance(operand, list | tuple) or len(operand) != 2:
        raise InvalidFilter(place, "needs a divisor and a remainder: [4, 0]")
    numbers = [_truncated(each) for each in operand]
    if numbers[0] is None or numbers[1] is None:
        raise InvalidFilter(place, f"{shortened(operand)} are not two finite 64-bit numbers")
    if numbers[0] == 0:
        raise InvalidFilter(place, "the divisor must not be 0")
    return Modulo(Value.of(numbers[0]), Value.of(numbers[1]))


def _types(operator: str, operand: Any, place: str) -> Test:  # noqa: ARG001
    wanted = operand if isinstance(operand, list | tuple) else [operand]
    if not wanted:
        raise InvalidFilter(place, "needs a type at least")
    found = set()
    for each in wanted:
        key = _whole(each) if isinstance(each, int | float) else each
        if isinstance(each, bool) or not isinstance(key, str | int) or key not in _TYPES:
            raise InvalidFilter(place, f"{shortened(each)} is no type of MongoDB's")
        found.add(_TYPES[key])
    names = tuple(sorted(name for name in found if name is not None))
    return HasType(names) if names else Passes(())


def _bits(operator: str, operand: Any, place: str) -> Test:
    mask = 0
    if isinstance(operand, list | tuple):
        for each in operand:
            position = _whole(each)
            if position is None or not 0 <= position < 63:
                raise InvalidFilter(
                    place, f"{shortened(each)} is not a bit's position from 0 to 62"
                )
            mask |= 1 << position
    else:
        number = _whole(operand)
        if number is None or not 0 <= number < 2**63:
            raise InvalidFilter(place, "needs a mask from 0 to 2**63 - 1, or a list of positions")
        mask = number
    return Bits(_BITS[operator], Value.of(mask))


READERS: Final[Mapping[str, Callable[[str, Any, str], Test]]] = {
    "$size": _size,
    "$mod": _modulo,
    "$type": _types,
    **dict.fromkeys(_BITS, _bits),
}
"""What reads the operand of an operator, for those that need no more than their operand."""


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        return None
    return int(value)


def _truncated(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if -(2**63) <= value < 2**63 else None


def one_of(scalars: list[Value]) -> OneOf:
    """Return the test that a value is among scalars, sorted by type."""
    lists = []
    for kind, name in LISTS.items():
        values = [value for value in scalars if value.kind == kind]
        if values:
            lists.append(values[0] if kind == "null" else Value.of_list(name, values))
    return OneOf(tuple(lists), len(scalars) > MAX_INLINE_VALUES)


T = TypeVar("T")
_LOGICAL: Final = frozenset({"$and", "$or", "$nor"})
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_COMPARISONS: Final[Mapping[str, Comparison]] = {name: name for name in get_args(Comparison)}
"""Of a text that only equals an operator, as a member of an enumeration does, the operator."""
_LATER: Final = frozenset({"$text", "$where"})
_TOP: Final = "stands at the top, or in $and, $or, $nor: not in $elemMatch"
_NOT_THERE: Final = "an element of an array has no {}"


class _Unusual(Exception):
    """It takes care to read this."""


class FilterParser:
    """Reads filters under the value rules of one store."""

    def __init__(
        self, rules: Codec, *, within: bool = False, variables: frozenset[str] = frozenset()
    ) -> None:
        self._rules, self._within = rules, within
        """`within` an array: what the store knows of objects has no place there."""
        self._expressions = ExpressionParser(InvalidFilter, variables)

    def document(self, document: Any, place: str = "") -> Condition:
        """Read a filter document: every entry must hold."""
        if not isinstance(document, Mapping):
            raise InvalidFilter(place, f"a filter is a document, not {shortened(document)}")
        return _all(list(self._entries(document, place)))

    def field(self, what: str | Path, equals: Any, place: str) -> Condition:
        """Read `equals` as a value, whatever it looks like."""
        return self._on(what, self._equal(in_microseconds(what, equals, place), place), place)

    def operators(self, what: str | Path, operators: Mapping[str, Any], place: str) -> Condition:
        """Read operators on one field."""
        operators = in_microseconds(what, operators, place)
        return _all(list(self._operators(what, operators, place)))

    def any_object(self, what: str | Path, condition: Condition, place: str) -> Condition:
        """Read `$elemMatch` of a condition that was read for objects of a collection."""
        _check_within(condition, place)
        return self._on(what, HasObject(condition), place)

    def _entries(self, document: Mapping[Any, Any], place: str) -> Iterator[Condition]:
        for key, value in document.items():
            if (plain := self._plain(key, value)) is not None:
                yield plain
                continue
            if not isinstance(key, str | Path):
                raise InvalidFilter(repr(key), f"a field is a string, not {type(key).__name__}")
            here = _within(place, str(key))
            if key in _LOGICAL:
                yield self._logical(key, value, here)
            elif key == "$expr":
                yield self._expression(value, here)
            elif key != "$comment":
                yield self._entry(key, value, here)

    def _plain(self, key: Any, value: Any) -> Condition | None:
        """Read what is asked most in the fewest steps: scalars of a body's fields, equal or compared; None: read
        it with care.
        """
        if type(key) is not str or key.startswith("$"):
            return None
        try:
            if type(value) in _SCALARS:
                return Field(Path.parse(key), Equals(Value.of(value, self._rules)))
            if type(value) is dict and value:
                return _all(list(self._compared(Path.parse(key), value)))
        except (_Unusual, InvalidBody):
            pass
        return None

    def _compared(self, path: Path, operators: dict[Any, Any]) -> Iterator[Condition]:
        for operator, operand in operators.items():
            if type(operand) not in _SCALARS or operand is None:
                raise _Unusual
            if operator == "$eq":
                yield Field(path, Equals(Value.of(operand, self._rules)))
            elif operator in _COMPARISONS:
                yield Field(path, Compare(_COMPARISONS[operator], Value.of(operand, self._rules)))
            else:
                raise _Unusual

    def _logical(self, key: str | Path, branches: Any, place: str) -> Condition:
        if not isinstance(branches, list | tuple) or not branches:
            raise InvalidFilter(place, "must be a list of filters, with one at least")
        read = tuple(self.document(each, f"{place}.{i}") for i, each in enumerate(branches))
        match key:
            case "$and":
                return _all(list(read))
            case "$or":
                return read[0] if len(read) == 1 else Or(read)
        return Not(read[0] if len(read) == 1 else Or(read))

    def _expression(self, what: Any, place: str) -> Condition:
        if self._within:
            raise InvalidFilter(place, _TOP)
        text = self._checked(self._rules.encode, what, place)
        plain = codec.decode(text)
        self._expressions.check_nesting(plain, place)
        return Expression(Value.of_expression(text, self._expressions.parse(plain, place)))

    def _entry(self, key: str | Path, value: Any, place: str) -> Condition:
        if key in _LATER:
            raise InvalidFilter(place, "this operator is not supported")
        if key == "$jsonSchema":
            return FitsSchema(self._schema(value, place))
        value = in_microseconds(key, value, place)
        if holds_operators(value):
            return _all(list(self._operators(key, value, place)))
        return self._on(key, self._equal(value, place), place)

    def _operators(
        self, key: str | Path, operators: Mapping[str, Any], place: str
    ) -> Iterator[Condition]:
        _check_operators(operators, place)
        for operator, operand in operators.items():
            here = f"{place}.{operator}"
            if operator == "$ne" and isinstance(operand, re.Pattern):
                raise InvalidFilter(here, "a regular expression goes with $not")
            if operator in _NEGATIONS:
                positive = self._on(
                    key, self._test(_NEGATIONS[operator], operand, operators, here), here
                )
                yield Not(positive)
            elif operator == "$not":
                yield Not(self._negated(key, operand, here))
            elif operator == "$all":
                yield self._all_of(key, operand, here)
            elif operator == "$exists":
                there = self._on(key, Exists(), here)
                yield there if truthy(operand) else Not(there)
            elif operator != "$options":
                yield self._on(key, self._test(operator, operand, operators, here), here)

    def _negated(self, key: str | Path, operand: Any, place: str) -> Condition:
        if isinstance(operand, re.Pattern):
            return self._on(key, self._equal(operand, place), place)
        if not holds_operators(operand):
            raise InvalidFilter(place, "needs a document of operators, or a regular expression")
        return _all(list(self._operators(key, operand, place)))

    def _all_of(self, key: str | Path, operand: Any, place: str) -> Condition:
        wanted = _list(operand, place)
        if not wanted:
            return Or(())
        return _all([self._on(key, test, place) for test in self._all_tests(wanted, place)])

    def _all_tests(self, wanted: list[Any], place: str) -> Iterator[Test]:
        elements = [isinstance(each, Mapping) and "$elemMatch" in each for each in wanted]
        for number, each in enumerate(wanted):
            here = f"{place}.{number}"
            if elements[0]:
                if not isinstance(each, Mapping) or set(each) != {"$elemMatch"}:
                    raise InvalidFilter(here, "after one $elemMatch, all must be $elemMatch")
                yield self._element(each["$elemMatch"], f"{here}.$elemMatch")
            elif holds_operators(each):
                raise InvalidFilter(here, "no operators are allowed here")
            else:
                yield self._equal(each, here)

    def _on(self, key: str | Path, test: Test, place: str) -> Condition:
        """Join a path and a test; what only SQL of its own can say stands apart from the start."""
        if isinstance(test, Passes):
            parts = tuple(self._on(key, each, place) for each in test.tests)
            return parts[0] if len(parts) == 1 else Or(parts, single=bool(parts))
        target = read_target(key, InvalidFilter, place)
        if self._within and (key == Path() or (isinstance(key, str) and key.startswith("$"))):
            raise InvalidFilter(place, _NOT_THERE.format(str(key).split(".")[0] or "$body"))
        if isinstance(target, Path):
            return Field(target, test)
        return Metadata(target, as_time(target, test, place))

    def _test(self, operator: str, operand: Any, siblings: Mapping[str, Any], place: str) -> Test:
        """Read a positive operator on one value."""
        match operator:
            case "$eq" if isinstance(operand, re.Pattern):
                raise InvalidFilter(place, "no value equals a regular expression: use $regex")
            case "$eq":
                return self._equal(operand, place)
            case "$gt" | "$gte" | "$lt" | "$lte":
                return self._compare(_COMPARISONS[operator], operand, place)
            case "$in":
                return self._one_of(operand, place)
            case "$regex":
                return Matches(Value.of_regex(regex(operand, siblings, place)))
            case "$elemMatch":
                return self._element(operand, place)
        reader = READERS.get(operator)
        if reader is None:
            raise InvalidFilter(place, "no such operator")
        return reader(operator, operand, place)

    def _equal(self, value: Any, place: str) -> Test:
        if isinstance(value, re.Pattern):
            return Matches(Value.of_regex(of_text(value, place)))
        return Equals(self._value(value, place))

    def _compare(self, operator: Comparison, operand: Any, place: str) -> Test:
        if isinstance(operand, re.Pattern):
            raise InvalidFilter(place, "a regular expression has no order")
        value = self._value(operand, place)
        if value.kind != "null":
            return Compare(operator, value)
        return Equals(value) if operator in {"$gte", "$lte"} else Passes(())

    def _one_of(self, operand: Any, place: str) -> Test:
        scalars: list[Value] = []
        others: list[Test] = []
        for number, each in enumerate(_list(operand, place)):
            here = f"{place}.{number}"
            if holds_operators(each):
                raise InvalidFilter(here, "no operators are allowed here")
            test = self._equal(each, here)
            if (
                isinstance(test, Equals)
                and isinstance(test.value, Value)
                and not isinstance(each, Mapping | list)
            ):
                scalars.append(test.value)
            else:
                others.append(test)
        one = one_of(scalars)
        return one if not others else Passes((*([one] if scalars else []), *others))

    def _element(self, operand: Any, place: str) -> Test:
        if not isinstance(operand, Mapping):
            raise InvalidFilter(place, "needs a document")
        first = first_key(operand)
        if first.startswith("$") and first not in _LOGICAL:
            return HasElement(tuple(self._element_tests(operand, place)))
        return HasObject(FilterParser(self._rules, within=True).document(operand, place))

    def _element_tests(self, operators: Mapping[str, Any], place: str) -> Iterator[Test]:
        _check_operators(operators, place)
        for operator, operand in operators.items():
            here = f"{place}.{operator}"
            if operator in _NEGATIONS:
                yield Fails((self._test(_NEGATIONS[operator], operand, operators, here),))
            elif operator == "$not":
                yield self._element_not(operand, here)
            elif operator == "$all":
                yield from self._element_all(operand, here)
            elif operator == "$exists":
                yield Exists() if truthy(operand) else Passes(())
            elif operator != "$options":
                yield self._test(operator, operand, operators, here)

    def _element_not(self, operand: Any, place: str) -> Test:
        if isinstance(operand, re.Pattern):
            return Fails((self._equal(operand, place),))
        if not holds_operators(operand):
            raise InvalidFilter(place, "needs a document of operators, or a regular expression")
        return Fails(tuple(self._element_tests(operand, place)))

    def _element_all(self, operand: Any, place: str) -> Iterator[Test]:
        wanted = _list(operand, place)
        if not wanted:
            yield Passes(())
        for test in self._all_tests(wanted, place):
            yield Passes((test, HasElement((test,))))

    def _schema(self, schema: Any, place: str) -> Value:
        if not isinstance(schema, Mapping):
            raise InvalidFilter(place, f"needs a document, not {shortened(schema)}")
        value = self._value(schema, place)
        return Value("schema", value.text, json_schema.read(value.value, place))

    def _value(self, value: Any, place: str) -> Value:
        return self._checked(lambda given: Value.of(given, self._rules), value, place)

    def _checked(self, take: Callable[[Any], T], value: Any, place: str) -> T:
        try:
            return take(value)
        except InvalidBody as error:
            where = f"{place}.{error.path}" if error.path else place
            raise InvalidFilter(where, error.problem) from error


_NEGATIONS: Final = {"$ne": "$eq", "$nin": "$in"}


def _check_operators(operators: Mapping[str, Any], place: str) -> None:
    for operator in operators:
        if not str(operator).startswith("$"):
            raise InvalidFilter(
                _within(place, str(operator)), "operators and plain keys do not mix"
            )
    if "$options" in operators and "$regex" not in operators:
        raise InvalidFilter(f"{place}.$options", "goes with $regex")


def _check_within(condition: Condition, place: str) -> None:
    """Check that a condition asks nothing that elements of an array have no answer to."""
    match condition:
        case And(inner) | Or(inner):
            for each in inner:
                _check_within(each, place)
        case Not(inner):
            _check_within(inner, place)
        case Expression():
            raise InvalidFilter(f"{place}.$expr", _TOP)
        case Metadata(name):
            raise InvalidFilter(f"{place}.${name}", _NOT_THERE.format(f"${name}"))
        case Field(Path(keys=())):
            raise InvalidFilter(f"{place}.$body", _NOT_THERE.format("$body"))


def _all(conditions: list[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions))


def _list(operand: Any, place: str) -> list[Any]:
    if not isinstance(operand, list | tuple):
        raise InvalidFilter(place, f"needs a list, not {shortened(operand)}")
    return list(operand)


def _within(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
