"""Parser of the filter language: accepts the filters of MongoDB's server; an error names the position of anything
else.

Operators are read into tests (`_tests`), and `on` joins tests with a field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, get_args

from ..codec import Codec, decode
from ..document import microseconds
from ..errors import InvalidBody, InvalidFilter, did_you_mean, shortened
from ..expressions.evaluation import truthy
from ..expressions.language import ABSENT
from ..expressions.parser import ExpressionParser
from ..expressions.path import Path, field_name, parsed
from ..expressions.patterns import compiled, options_of
from ..expressions.patterns.parser import OPTIONS, InvalidPattern
from ..expressions.values import NON_JSON_TYPES, is_number
from ..search.query import check_query
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
    Target,
    Test,
    Text,
    TypeName,
    Value,
    expressions_last,
    holds_text,
    leaves,
    read_target,
)
from .shapes import SCALARS

MAX_LEVELS: Final = 100
"""Documents within documents, those of operators included, values not: MongoDB's limit."""

OPERATORS: Final = frozenset({
    "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$not", "$exists", "$type", "$regex", "$options",
    "$mod", "$all", "$elemMatch", "$size", "$jsonSchema", *get_args(BitsOperator),
})  # fmt: skip
_LOGICAL: Final = frozenset({"$and", "$or", "$nor"})
TOP_LEVEL: Final = _LOGICAL | {"$expr", "$jsonSchema", "$sampleRate", "$text"}
_NEGATIONS: Final = {"$ne": "$eq", "$nin": "$in"}
_COMPARISONS: Final[Mapping[str, Comparison]] = {name: name for name in get_args(Comparison)}
"""The operator itself, for a string that only equals it, as a member of an enumeration does."""
_TOP: Final = "must be at the top, or in $and, $or, $nor: not in $elemMatch"
TEXT_TOP: Final = "must be at the top, or in $and: not in $or, $nor, $not and $elemMatch"
_SPECIAL: Final = {True: ("$", "_id"), False: ("$",)}
"""How keys begin that may name something else than a field, where `_id` is the id and where it is a field."""
_NOT_IN_ARRAYS: Final = "an element of an array has no {}"


def check_equals(field: Any, value: Any) -> None:
    """Raise `InvalidFilter` for operators in place of the value that a field shall equal."""
    if isinstance(value, Mapping) and first_key(value) in OPERATORS:
        filter, name = shortened({str(field): value}), shortened(str(field))
        raise InvalidFilter(
            str(field),
            f"{shortened(value)} holds operators: write find({filter}). A body that holds such a document is "
            f"found by {{{name}: {{'$eq': …}}}}",
        )


def check_levels(levels: int) -> None:
    """Raise `InvalidFilter` for more than `MAX_LEVELS` levels."""
    if levels > MAX_LEVELS:
        raise InvalidFilter("", f"it is nested more than {MAX_LEVELS} levels deep")


def holds_operators(value: Any) -> bool:
    """Return whether a value is a document whose first key starts with `$`: MongoDB's rule for operators."""
    return (type(value) is dict or isinstance(value, Mapping)) and first_key(value).startswith("$")


def first_key(document: Mapping[Any, Any]) -> str:
    """Return the first key of a document if the key is a string: a `Path` always names a field."""
    first = next(iter(document), "")
    return first if isinstance(first, str) else ""


def one_of(scalars: list[Value]) -> OneOf:
    """Return the test of equality with any of the scalars, which are sorted by type."""
    lists = []
    for kind, name in LISTS.items():
        values = [value for value in scalars if value.kind == kind]
        if values:
            lists.append(values[0] if kind == "null" else Value.of_list(name, values))
    return OneOf(tuple(lists), len(scalars) > MAX_INLINE_VALUES)


def all_of(conditions: list[Condition]) -> Condition:
    """Return the conjunction of conditions; `$text` is in no inner conjunction."""
    inner = [each for each in conditions if type(each) is And and holds_text(each)]
    for each in inner:
        conditions.remove(each)
        conditions.extend(each.conditions)
    return conditions[0] if len(conditions) == 1 else And(expressions_last(conditions))


def on(target: Target, test: Any) -> Condition:
    """Return the condition that a field passes a test, or each of a tuple of tests."""
    kind = type(test)
    if kind is tuple:
        return all_of([on(target, each) for each in test])
    if kind is Fails:
        return Not(on(target, test.tests))
    if kind is Passes:
        parts = tuple([on(target, each) for each in test.tests])
        return parts[0] if len(parts) == 1 else Or(parts, single=bool(parts))
    return Field(target, test) if isinstance(target, Path) else Metadata(target, test)


class FilterParser:
    """Parser of filters, with the codec of one store.

    `within` an array, filters have no metadata. `variables` are available to `$expr`. `levels` of documents are around
    the filter. `names_id`: `_id` is the id, not a field.
    """

    __slots__ = ("_codec", "_levels", "_names_id", "_variables", "_within")

    def __init__(
        self,
        codec: Codec,
        *,
        within: bool = False,
        variables: frozenset[str] = frozenset(),
        levels: int = 0,
        names_id: bool = True,
    ) -> None:
        self._codec, self._within, self._variables, self._levels = codec, within, variables, levels
        self._names_id = names_id and not within

    def document(self, document: Any, position: str = "") -> Condition:
        """Read a filter document: every entry must hold."""
        if not isinstance(document, Mapping):
            raise InvalidFilter(position, f"a filter must be a document, got {shortened(document)}")
        self._levels += 1
        check_levels(self._levels)
        conditions = []
        for key, value in document.items():
            name = key if type(key) is str else field_name(key)
            if name != "$comment":
                here = f"{position}.{name}" if position else str(name)
                conditions.append(self._entry(name, value, here))
        self._levels -= 1
        return all_of(conditions)

    def field(self, what: Any, equals: Any, position: str) -> Condition:
        """Read `equals` as a value, also a document of operators."""
        target = self._target(what, position)
        if type(target) is Path and type(equals) in SCALARS:  # as below, in fewer calls
            return Field(target, Equals(self._value(equals, position)))
        return on(target, self._for(target, what)._equal(equals, position))

    def operators(self, what: Any, operators: Mapping[str, Any], position: str) -> Condition:
        """Read operators on one field."""
        target = self._target(what, position)
        return on(target, tuple(self._for(target, what)._tests(operators, position)))

    def any_object(self, what: Any, condition: Condition, position: str) -> Condition:
        """Read `$elemMatch` of a condition on documents."""
        _check_within(condition, position)
        return on(self._target(what, position), HasObject(condition))

    # -- entries of a document ---------------------------------------------------------------

    def _entry(self, key: Any, value: Any, position: str) -> Condition:
        if key in TOP_LEVEL:
            match key:
                case "$expr":
                    return self._expression(value, position)
                case "$jsonSchema":
                    return self._schema(value, position)
                case "$text":
                    return self._words(value, position)
                case "$sampleRate":
                    return self._sample(value, position)
            return self._logical(key, value, position)
        if type(value) not in SCALARS and holds_operators(value):
            return self.operators(key, value, position)
        return self.field(key, value, position)

    def _target(self, key: Any, position: str) -> Target:
        if type(key) is str and not key.startswith(_SPECIAL[self._names_id]):
            return parsed(key)
        target = read_target(key, InvalidFilter, position)
        if self._within and (key == Path() or not isinstance(key, Path)):
            raise InvalidFilter(position, _NOT_IN_ARRAYS.format(str(key).split(".")[0] or "$body"))
        return target

    def _for(self, target: Target, what: Any) -> FilterParser:
        if target == "id" and what == "_id":
            return _IdParser(self._codec, levels=self._levels)
        if isinstance(target, str) and target in TIMES:
            return _TimeParser(self._codec, within=self._within, levels=self._levels)
        return self

    def _logical(self, operator: str, branches: Any, position: str) -> Condition:
        if not isinstance(branches, list | tuple) or not branches:
            raise InvalidFilter(
                position, f"must be a list of one or more filters, got {shortened(branches)}"
            )
        read = [self.document(each, f"{position}.{i}") for i, each in enumerate(branches)]
        if operator == "$and":
            return all_of(read)
        if any(map(holds_text, read)):
            raise InvalidFilter(position, TEXT_TOP)
        some = read[0] if len(read) == 1 else Or(expressions_last(read))
        return some if operator == "$or" else Not(some)

    def _words(self, operand: Any, position: str) -> Condition:
        if self._within:
            raise InvalidFilter(position, TEXT_TOP)
        if not isinstance(operand, Mapping) or set(operand) != {"$search"}:
            problem = f'must be {{"$search": a string}}, got {shortened(operand)}'
            raise InvalidFilter(position, problem)
        query = check_query(operand["$search"])
        return Text(Value("search", query, query))

    def _expression(self, expression: Any, position: str) -> Condition:
        if self._within:
            raise InvalidFilter(position, _TOP)
        try:
            text = self._codec.encode(expression)
        except InvalidBody as error:
            raise _invalid(error, position) from error
        parser, plain = ExpressionParser(InvalidFilter, self._variables), decode(text)
        parser.check_nesting(plain, position)
        return Expression(Value("expression", text, parser.parse(plain, position)))

    def _sample(self, rate: Any, position: str) -> Condition:
        if not is_number(rate) or not 0 <= rate <= 1:
            raise InvalidFilter(position, f"must be a number from 0 to 1, got {shortened(rate)}")
        return self._expression({"$lt": [{"$rand": {}}, rate]}, position)

    def _schema(self, schema: Any, position: str) -> Condition:
        if not isinstance(schema, Mapping):
            raise InvalidFilter(position, f"must be a document, got {shortened(schema)}")
        value = self._value(schema, position)
        return FitsSchema(Value("schema", value.text, json_schema.read(value.value, position)))

    # -- operators ---------------------------------------------------------------------------

    def _tests(
        self, operators: Mapping[str, Any], position: str, *, element: bool = False
    ) -> Iterator[Any]:
        """Yield the tests of a field or an element: tests, and tuples of tests that all apply."""
        self._levels += 1
        check_levels(self._levels)
        for operator, operand in operators.items():
            here = f"{position}.{operator}"
            if operator in _COMPARISONS:
                yield self._compare(_COMPARISONS[operator], operand, here)
            elif operator in _NEGATIONS:
                yield Fails((self._test(_NEGATIONS[operator], operand, operators, here),))
            elif operator == "$not":
                yield self._negated(operand, here, element)
            elif operator == "$all":
                yield from self._all(operand, here, element)
            elif operator == "$exists" and not truthy(operand):
                yield Passes(()) if element else Fails((Exists(),))
            elif operator != "$options":
                yield self._test(operator, operand, operators, here)
            elif "$regex" not in operators:
                raise InvalidFilter(here, "goes with $regex")
        self._levels -= 1

    def _test(
        self, operator: str, operand: Any, siblings: Mapping[str, Any], position: str
    ) -> Test:
        """Read an operator on a value; negations are in `_tests`."""
        match operator:
            case "$eq" if isinstance(operand, re.Pattern):
                problem = "no value equals a regular expression: use $regex, or $not with $regex"
                raise InvalidFilter(position, problem)
            case "$eq":
                return Equals(self._value(operand, position))
            case "$in":
                return self._one_of(operand, position)
            case "$regex" if siblings.get("$options", "") is None:
                raise InvalidFilter(f"{position}.$options", "must be a string, got None")
            case "$regex":
                return Matches(_regex(operand, position, siblings.get("$options")))
            case "$elemMatch":
                return self._element(operand, position)
        reader = READERS.get(operator)
        if reader is None and not str(operator).startswith("$"):
            raise InvalidFilter(position.removeprefix("."), "operators and plain keys do not mix")
        if operator in ABSENT["filters"]:
            raise InvalidFilter(position, "this operator is not supported")
        if reader is None:
            raise InvalidFilter(
                position, f"no such operator{did_you_mean(str(operator), OPERATORS)}"
            )
        return reader(operand, position)

    def _equal(self, value: Any, position: str) -> Test:
        if isinstance(value, re.Pattern):
            return Matches(_regex(value, position))
        return Equals(self._value(value, position))

    def _compare(self, operator: Comparison, operand: Any, position: str) -> Test:
        if isinstance(operand, re.Pattern):
            raise InvalidFilter(position, "a regular expression has no order")
        value = self._value(operand, position)
        if value.kind != "null":
            return Compare(operator, value)
        return Equals(value) if operator in {"$gte", "$lte"} else Passes(())

    def _one_of(self, operand: Any, position: str) -> Test:
        scalars: list[Value] = []
        others: list[Test] = []
        for number, each in enumerate(_list(operand, position)):
            if type(each) in SCALARS:
                scalars.append(self._value(each, position, number))
                continue
            test = self._equal(_no_operators(each, position, number), f"{position}.{number}")
            match test:
                case Equals(Value() as scalar) if scalar.kind in LISTS:
                    scalars.append(scalar)
                case _:
                    others.append(test)
        one = one_of(scalars)
        return one if not others else Passes((*([one] if scalars else []), *others))

    def _negated(self, operand: Any, position: str, element: bool) -> Test:
        if isinstance(operand, re.Pattern):
            return Fails((self._equal(operand, position),))
        if not holds_operators(operand):
            problem = f"must be a document of operators, or a regular expression, got {shortened(operand)}"
            raise InvalidFilter(position, problem)
        return Fails(tuple(self._tests(operand, position, element=element)))

    def _all(self, operand: Any, position: str, element: bool) -> Iterator[Any]:
        wanted = _list(operand, position)
        of_elements = any(map(_is_element, wanted[:1]))
        tests: list[Test] = []
        for number, each in enumerate(wanted):
            here = f"{position}.{number}"
            if not of_elements:
                tests.append(self._equal(_no_operators(each, position, number), here))
            elif _is_element(each) and len(each) == 1:
                tests.append(self._element(each["$elemMatch"], f"{here}.$elemMatch"))
            else:
                raise InvalidFilter(here, "must be $elemMatch, as the first element of $all is")
        if not tests:
            yield Passes(())
        elif element:
            yield from (Passes((test, HasElement((test,)))) for test in tests)
        else:
            yield tuple(tests)

    def _element(self, operand: Any, position: str) -> Test:
        if not isinstance(operand, Mapping):
            raise InvalidFilter(position, f"must be a document, got {shortened(operand)}")
        first = first_key(operand)
        if first.startswith("$") and first not in _LOGICAL:
            return HasElement(tuple(self._tests(operand, position, element=True)))
        inside = FilterParser(self._codec, within=True, levels=self._levels)
        return HasObject(inside.document(operand, position))

    def _value(self, value: Any, position: str, number: int | None = None) -> Value:
        """Read a value, or the value at `number` in a list."""
        try:
            return Value.of(value, self._codec)
        except InvalidBody as error:
            raise _invalid(error, position, number) from error


class _TimeParser(FilterParser):
    """Parser of operators on a time. Datetimes and ISO 8601 strings become microseconds, as in rows."""

    __slots__ = ()

    def _value(self, value: Any, position: str, number: int | None = None) -> Value:
        if not isinstance(value, str | datetime):
            found = super()._value(value, position, number)
            if found.kind in {"null", "number"}:
                return found
            value = found.value
        try:
            time = datetime.fromisoformat(value) if isinstance(value, str) else value
            return Value.of(microseconds(time))
        except (TypeError, ValueError):
            raise InvalidFilter(
                _numbered(position, number),
                "must be a datetime with a time zone, its ISO 8601 text, or microseconds since 1970, "
                f"got {shortened(value)}",
            ) from None


class _IdParser(FilterParser):
    """Parser of operators on `_id`. MongoDB's users compare `_id` with values of any type; here ids are strings."""

    __slots__ = ()

    def _value(self, value: Any, position: str, number: int | None = None) -> Value:
        found = super()._value(value, position, number)
        if found.kind not in {"string", "null"}:
            problem = f"must be a string, as ids are, got {shortened(value)}: for a field of bodies write $body._id"
            raise InvalidFilter(_numbered(position, number), problem)
        return found


def _invalid(error: InvalidBody, position: str, number: int | None = None) -> InvalidFilter:
    position = _numbered(position, number)
    return InvalidFilter(f"{position}.{error.path}" if error.path else position, error.problem)


def _numbered(position: str, number: int | None) -> str:
    return position if number is None else f"{position}.{number}"


def _list(operand: Any, position: str) -> list[Any]:
    if not isinstance(operand, list | tuple):
        raise InvalidFilter(position, f"must be a list, got {shortened(operand)}")
    return list(operand)


def _is_element(value: Any) -> bool:
    return isinstance(value, Mapping) and "$elemMatch" in value


def _no_operators(value: Any, position: str, number: int) -> Any:
    if holds_operators(value):
        raise InvalidFilter(
            f"{position}.{number}", f"must be a value, got operators: {shortened(value)}"
        )
    return value


def _check_within(condition: Condition, position: str) -> None:
    """Raise `InvalidFilter` for a condition that does not apply to elements of an array."""
    for each in leaves(condition):
        match each:
            case Text():
                raise InvalidFilter(f"{position}.$text", TEXT_TOP)
            case Expression():
                raise InvalidFilter(f"{position}.$expr", _TOP)
            case Metadata(name):
                raise InvalidFilter(f"{position}.${name}", _NOT_IN_ARRAYS.format(f"${name}"))
            case Field(Path(keys=())):
                raise InvalidFilter(f"{position}.$body", _NOT_IN_ARRAYS.format("$body"))


# -- operands ----------------------------------------------------------------------------------


def _regex(operand: Any, position: str, options: Any = None) -> Value:
    """Read a regular expression; a compiled one with flags has no `$options`."""
    pattern = operand
    if isinstance(operand, re.Pattern):
        pattern, flags = operand.pattern, options_of(operand)
        if flags and options is not None:
            both = f"{flags!r} of the pattern and $options {shortened(options)}"
            problem = f"must have its options in one place, got {both}"
            raise InvalidFilter(position, problem)
        options = flags if options is None else options
    if not isinstance(pattern, str):
        problem = f"must be a regular expression of text, got {shortened(operand)}"
        raise InvalidFilter(position, problem)
    if "\0" in pattern:
        problem = f"must be a regular expression without NUL characters, got {shortened(operand)}"
        raise InvalidFilter(position, problem)
    options = "" if options is None else options
    if not isinstance(options, str) or not set(options) <= set(OPTIONS):
        known = ", ".join(OPTIONS)
        raise InvalidFilter(position, f"$options must be of {known}, got {shortened(options)}")
    try:
        return Value.of_regex(compiled(pattern, options))
    except InvalidPattern as error:
        raise InvalidFilter(position, error.problem) from None


def _size(operand: Any, position: str) -> Test:
    size = _integer(operand)
    if size is None or not 0 <= size < 2**31:
        problem = f"must be an integer from 0 to {2**31 - 1}, got {shortened(operand)}"
        raise InvalidFilter(position, problem)
    return HasSize(Value.of(size))


def _modulo(operand: Any, position: str) -> Test:
    numbers = operand if isinstance(operand, list | tuple) else []
    if len(numbers) != 2 or not all(is_number(n) and -(2**63) <= n < 2**63 for n in numbers):
        example = "as in [4, 0]"
        problem = (
            f"must be a divisor and a remainder of 64 bits, {example}, got {shortened(operand)}"
        )
        raise InvalidFilter(position, problem)
    divisor, remainder = map(int, numbers)
    if divisor == 0:
        raise InvalidFilter(position, "the divisor must not be 0")
    return Modulo(Value.of(divisor), Value.of(remainder))


_TYPES: Final[dict[str | int, TypeName | None]] = {
    **{name: name for name in get_args(TypeName)},
    1: "double", 2: "string", 3: "object", 4: "array", 8: "bool", 10: "null", 16: "int", 18: "long",
    **dict.fromkeys([*NON_JSON_TYPES, 5, 6, 7, 9, 11, 12, 13, 14, 15, 17, 19, -1, 127]),
}  # fmt: skip
"""MongoDB's names and numbers of types; None: no JSON value has the type."""


def _types(operand: Any, position: str) -> Test:
    types = operand if isinstance(operand, list | tuple) else [operand]
    if not types:
        raise InvalidFilter(position, "must be one or more types, got none")
    found = set()
    for each in types:
        key = _integer(each) if isinstance(each, int | float) else each
        if not isinstance(key, str | int) or key not in _TYPES:
            raise InvalidFilter(position, f"must be a type of MongoDB's, got {shortened(each)}")
        found.add(_TYPES[key])
    names = tuple(sorted(name for name in found if name is not None))
    return HasType(names) if names else Passes(())


def _bits(operator: BitsOperator, operand: Any, position: str) -> Test:
    if not isinstance(operand, list | tuple):
        mask = _integer(operand)
        if mask is None or not 0 <= mask < 2**63:
            problem = f"must be a mask from 0 to 2**63 - 1, or a list of positions, got {shortened(operand)}"
            raise InvalidFilter(position, problem)
        return Bits(operator, Value.of(mask))
    mask = 0
    for each in operand:
        bit = _integer(each)
        if bit is None or not 0 <= bit < 63:
            raise InvalidFilter(position, f"must be positions from 0 to 62, got {shortened(each)}")
        mask |= 1 << bit
    return Bits(operator, Value.of(mask))


READERS: Final[Mapping[str, Callable[[Any, str], Test]]] = {
    "$exists": lambda *_: Exists(),
    "$size": _size,
    "$mod": _modulo,
    "$type": _types,
    **{operator: partial(_bits, operator) for operator in get_args(BitsOperator)},
}
"""The operators that need nothing but their operand."""


def _integer(value: Any) -> int | None:
    return int(value) if is_number(value) and value == value // 1 else None
