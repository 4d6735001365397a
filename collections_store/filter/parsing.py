"""The filter language, read: what MongoDB's server accepts, and an error that names the place for
whatever it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args

from .. import codec, formula, json_schema
from ..codec import Codec
from ..errors import InvalidBody, InvalidFilter, shortened
from ..path import Path
from .conditions import (
    And,
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
    Matches,
    Metadata,
    Not,
    Or,
    Passes,
    Test,
    Value,
)
from .nesting import first_key, holds_operators
from .operands import READERS, of_text, one_of, regex, truthy
from .targets import read_target
from .times import as_time, in_microseconds

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


class Parser:
    """Reads filters under the value rules of one store."""

    def __init__(
        self, rules: Codec, *, within: bool = False, variables: frozenset[str] = frozenset()
    ) -> None:
        self._rules, self._within = rules, within
        """`within` an array: what the store knows of objects has no place there."""
        self._formulas = formula.Parser(InvalidFilter, variables)

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
        self._formulas.check_nesting(plain, place)
        return Expression(Value.of_formula(text, self._formulas.formula(plain, place)))

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
        return HasObject(Parser(self._rules, within=True).document(operand, place))

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
