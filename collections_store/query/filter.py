"""Filters: MongoDB's filter language as values, and `F`, the same in Python.

`F("age") >= 30` is `{"age": {"$gte": 30}}`. A filter has a *shape* and *values*: the shape decides the SQL and is the
key of the cache of compiled statements; the values are their parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from ..codec import Codec, decode, spell
from ..document import now
from ..errors import InvalidFilter, shortened
from ..expressions.collation import Collation
from ..expressions.evaluation import NO_VARIABLES
from ..expressions.nodes import at_time
from ..expressions.path import FieldLike, NamedField, Path, field_name, path_or_text
from ..expressions.patterns import Pattern, escaped
from ..expressions.values import MISSING
from .conditions import (
    And,
    Bits,
    Collated,
    Compare,
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
    Text,
    Value,
    expressions_last,
    holds_text,
    scalars_of,
    uncollated,
)
from .conditions import leaves as leaves
from .parser import TEXT_TOP, FilterParser, check_equals, check_levels, holds_operators
from .shapes import (
    SCALARS,
    PlainShape,
    collated,
    plain_condition,
    read_plain,
    shape_of,
    simplified,
    with_operands,
)

EVERYTHING = And(())
_CODEC = Codec()


class _Unfrozen:
    """The slots of a `Filter`, without the freezing."""

    __slots__ = ("_condition", "_levels", "_shape", "plain", "values")


_allocate = object.__new__


def _uses(variable: str, condition: Condition) -> bool:
    """Return whether an expression of a condition has a variable; expressions stand under AND, OR and NOT only.
    `variable` is the beginning of the variable in JSON.
    """
    match condition:
        case Field() | Metadata():  # most are
            return False
        case And(conditions) | Or(conditions):
            return any(_uses(variable, each) for each in conditions)
        case Not(inner):
            return _uses(variable, inner)
        case Expression(Value(text=text)):
            return variable in text
    return False


def _at_time(condition: Condition, time: int, variables: Mapping[str, Any]) -> Condition:
    def change(operand: Any) -> Any:
        if operand.kind != "expression":
            return operand
        text = operand.text
        if variables:  # of a filter with other values, no cursor is valid
            literals = {
                name: "$$REMOVE" if value is MISSING else {"$literal": value}
                for name, value in variables.items()
            }
            text = spell({"$let": {"vars": literals, "in": decode(text)}})
        return Value(operand.kind, text, at_time(operand.value, time, variables))

    return with_operands(condition, change)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Filter:
    """A filter. Without a condition it matches every document.

    >>> Filter.parse({"address.city": "Berlin"}) == Filter.parse("address.city", "Berlin")
    True
    >>> print(Filter.parse({"tags": "new", "age": {"$gte": 30, "$lt": 40}}))
    {'tags': 'new', 'age': {'$gte': 30, '$lt': 40}}
    """

    _condition: Condition | None = EVERYTHING
    """None until the first use, if the filter is plain."""
    plain: PlainShape | None = field(default=None, init=False)
    """The shape of a filter that `read_plain` read; None: see `shape`."""
    values: list[Any] | None = field(default=None, init=False)
    """The values of a plain filter, in the order of `values_of`."""
    _shape: Condition | None = field(default=None, init=False)
    _levels: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self._condition, Condition):
            raise InvalidFilter(
                "", f"must be a condition, got {shortened(self._condition)}: use Filter.parse"
            )

    @property
    def condition(self) -> Condition:
        """The condition that documents match."""
        found = self._condition
        if found is None:
            found = plain_condition(self.plain or (), self.values or ())
            object.__setattr__(self, "_condition", found)
        return found

    def __eq__(self, other: object) -> bool:
        return self.condition == other.condition if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.condition)

    @property
    def shape(self) -> Condition:
        """The condition with parameters in place of its values."""
        if self._shape is None:
            object.__setattr__(self, "_shape", shape_of(self.condition))
        assert self._shape is not None
        return self._shape

    @classmethod
    def parse(
        cls,
        what: Any = None,
        equals: Any = ...,
        codec: Codec = _CODEC,
        variables: frozenset[str] = frozenset(),
    ) -> Filter:
        """Read the filter of a caller; raise `InvalidFilter`, which names the position.

        `what` is None (everything), a filter document, a `Filter`, or a field (dotted text or `Path`) that `equals` a
        value. `variables` are those of `let`, whose values `at` adds.
        """
        given = {what: equals} if type(what) is str and type(equals) in SCALARS else what
        if type(given) is dict and (given is not what or equals is ...):
            read = read_plain(given, codec)
            if read is not None:
                made: Any = _allocate(_Unfrozen)  # as `new_document`
                made.plain, made.values = read
                made._condition, made._shape, made._levels = None, None, 0
                made.__class__ = cls
                return made  # type: ignore[no-any-return]
        if equals is ... and (type(what) is dict or isinstance(what, Mapping)):
            return cls(FilterParser(codec, variables=variables).document(what))
        what = what if type(what) is str else field_name(what)
        if isinstance(what, str | Path):
            if equals is ...:
                raise InvalidFilter(str(what), "must have a value to equal: find(field, value)")
            if type(equals) not in SCALARS:
                check_equals(what, equals)
            return cls(FilterParser(codec).field(what, equals, str(what)))
        if equals is not ...:
            raise InvalidFilter(
                "",
                f"a value to equal goes with a field, got {shortened(what)}; the parts of bodies to return "
                "are given as projection=",
            )
        if what is None:
            return cls()
        if isinstance(what, Filter):
            return what
        raise InvalidFilter("", f"a filter must be a document or a field, got {shortened(what)}")

    def at(self, time: int | None = None, variables: Mapping[str, Any] = NO_VARIABLES) -> Filter:
        """Return the filter with `$$NOW` as of a time in microseconds, by default the current time, and with the values
        of `variables`.
        """
        if self.plain or not _uses('"$$' if variables else '"$$NOW"', self.condition):
            return self
        moment = now() if time is None else time
        return Filter(_at_time(self.condition, moment, variables))

    def collated(self, collation: Collation | None) -> Filter:
        """Return the filter under a collation; raises `InvalidFilter` for a `$text`."""
        if collation is None:
            return self
        if holds_text(self.condition):
            raise InvalidFilter(
                "$text", "does not go with a collation: a text index has its own rules"
            )
        return Filter._nested(collated(self.condition, collation), self._levels)

    def simplified(self) -> Filter:
        """Return the filter without the parts of disjunctions that never hold."""
        if self.plain:
            return self
        condition = simplified(self.condition)
        unchanged = condition is self.condition
        return self if unchanged else Filter._nested(condition, self._levels)

    def __and__(self, other: Filter) -> Filter:
        return self._joined(And, conjuncts, other)

    def __or__(self, other: Filter) -> Filter:
        return self._joined(Or, disjuncts, other)

    def __invert__(self) -> Filter:
        inner = self.condition
        if holds_text(inner):
            raise InvalidFilter("$text", TEXT_TOP)
        if isinstance(inner, Not):
            return Filter._nested(inner.condition, self._levels - 1)
        return Filter._nested(Not(inner), self._levels + 1)

    def _joined(
        self, kind: type[And | Or], parts: Callable[[Condition], tuple[Condition, ...]], other: Any
    ) -> Filter:
        if not isinstance(other, Filter):
            raise TypeError(
                f"& and | join filters, got {shortened(other)}: put each comparison in parentheses, "
                '(F("a") == 1) & (F("b") == 2)'
            )
        if kind is Or and (holds_text(self.condition) or holds_text(other.condition)):
            raise InvalidFilter("$text", TEXT_TOP)
        levels = max(
            each._levels + (not isinstance(each.condition, kind)) for each in (self, other)
        )
        joined = expressions_last((*parts(self.condition), *parts(other.condition)))
        return Filter._nested(kind(joined), levels)

    @classmethod
    def _nested(cls, condition: Condition, levels: int) -> Filter:
        check_levels(levels)
        filter = cls(condition)
        object.__setattr__(filter, "_levels", levels)
        return filter

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a filter has no truth value: join filters with &, | and ~ instead of and, or and not, "
            'and write F("n").between(1, 5) instead of 1 <= F("n") <= 5'
        )

    def to_json(self) -> dict[Any, Any]:
        """Return the filter document. Keys are strings; a field whose keys hold a dot or begin with `$` is a `Path`."""
        return to_json(self.condition)

    def shape_text(self) -> str:
        """Return the filter with `?` in place of each value, for logs."""
        return _shape_text(self.shape)

    def __str__(self) -> str:
        return str(self.to_json())

    def __repr__(self) -> str:
        return f"Filter({self})"


@lru_cache(maxsize=256)
def _shape_text(shape: Condition) -> str:
    return str(to_json(with_operands(shape, _anonymous))).replace("'?'", "?")


def _anonymous(operand: Any) -> Value:
    """Return a value that prints as `?`, of the kind of an operand."""
    kind = operand.kind
    if kind.endswith("regex"):
        return Value.of_regex(Pattern("[?]"))
    return Value(kind, '"?"', ["?"] if kind in {"booleans", "numbers", "strings"} else "?")


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions of a conjunction."""
    return condition.conditions if isinstance(condition, And) else (condition,)


def disjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions of a disjunction."""
    if isinstance(condition, Or) and not condition.single:
        return condition.conditions
    return (condition,)


def paths_in(condition: Condition) -> Iterator[Path]:
    """Yield the paths of the fields of a condition."""
    every = map(uncollated, leaves(condition))
    return (path for each in every for path in _paths_of(each))


def _paths_of(condition: Condition) -> Iterator[Path]:
    match condition:
        case Field(path):
            yield path
        case Or(inner):  # a `single` one
            yield from (path for each in inner for path in paths_in(each))


FilterLike: TypeAlias = Filter | Mapping[Any, Any] | FieldLike
"""What `Filter.parse` reads."""


class ComparableField(NamedField):
    """A field of the body, `$id` or other metadata.

    Every comparison is a `Filter`; `&`, `|` and `~` join filters.

    >>> print((F("address.city") == "Berlin") & F("age").between(30, 40))
    {'address.city': 'Berlin', 'age': {'$gte': 30, '$lte': 40}}
    >>> print(F("items").any((F("sku") == "a") & (F("count") > 1)) | ~F("paid").exists())
    {'$or': [{'items': {'$elemMatch': {'sku': 'a', 'count': {'$gt': 1}}}}, {'paid': {'$exists': False}}]}
    """

    __slots__ = ()

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path):
            raise InvalidFilter("", f"a field must be a string, got {shortened(path)}")
        self._path = path

    def __repr__(self) -> str:
        return f"F({self._path!r})"

    def __hash__(self) -> int:  # it is a key of filters, sort orders and updates
        return id(self)

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return self._equal(value)

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return self._equal(value).__invert__()

    def __gt__(self, value: Any) -> Filter:
        return self._operator("$gt", self._value(value))

    def __ge__(self, value: Any) -> Filter:
        return self._operator("$gte", self._value(value))

    def __lt__(self, value: Any) -> Filter:
        return self._operator("$lt", self._value(value))

    def __le__(self, value: Any) -> Filter:
        return self._operator("$lte", self._value(value))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no truth value: compare it with a value, or call exists(), and join filters "
            "with &, | and ~ instead of and, or and not"
        )

    def between(self, low: Any, high: Any) -> Filter:
        """At least `low` and at most `high`; of an array, two elements may meet the two bounds."""
        return self._operators({"$gte": self._value(low), "$lte": self._value(high)})

    def contains(self, value: Any) -> Filter:
        """Equal to `value`, or an array with an equal element: the same as `==`. For a part of a string see `has`."""
        return self._equal(value)

    def has(self, text: str, *, ignore_case: bool = False) -> Filter:
        """A string in which `text` occurs, character by character (`$regex` of the escaped text).

        `ignore_case` compares characters by Unicode's simple case folding: "É" equals "é", "ß" does not equal "ss".
        """
        return self._literal("", text, ignore_case)

    def starts_with(self, text: str, *, ignore_case: bool = False) -> Filter:
        """A string that begins with `text`; see `has`. An index serves it, unless `ignore_case`."""
        return self._literal("^", text, ignore_case)

    def contains_all(self, values: Iterable[Any]) -> Filter:
        """An array with all of the values (`$all`)."""
        return self._operator("$all", self._listed(values, "$all"))

    def is_in(self, values: Iterable[Any]) -> Filter:
        """Equal to a value in `values` (`$in`)."""
        return self._operator("$in", self._listed(values, "$in"))

    def not_in(self, values: Iterable[Any]) -> Filter:
        """Equal to none of the values (`$nin`)."""
        return self._operator("$nin", self._listed(values, "$nin"))

    def exists(self, there: bool = True) -> Filter:
        """Present, be it null (`$exists`)."""
        return self._operator("$exists", there)

    def matches(self, pattern: str | re.Pattern[str], options: str | None = None) -> Filter:
        """A string in which the pattern is found (`$regex`); `options` are of `imsxu`."""
        chosen = {} if options is None else {"$options": options}
        return self._operators({"$regex": pattern, **chosen})

    def has_type(self, *types: str) -> Filter:
        """Of a type of MongoDB's: "string", "number", "array" … (`$type`)."""
        return self._operator("$type", list(types))

    def has_size(self, size: int) -> Filter:
        """An array of `size` elements (`$size`)."""
        return self._operator("$size", size)

    def modulo(self, divisor: int, remainder: int) -> Filter:
        """A number with the `remainder` after division by `divisor` (`$mod`)."""
        return self._operator("$mod", [divisor, remainder])

    def any(self, what: Filter | Mapping[str, Any]) -> Filter:
        """An array with an element for which all of `what` holds (`$elemMatch`).

        A `Filter` applies to elements that are objects, a document of operators to the elements themselves:
        `F("scores").any({"$gt": 10, "$lt": 20})`.
        """
        if not isinstance(what, Filter):
            return self._operator("$elemMatch", what)
        position = f"{self._path}.$elemMatch"
        inside = FilterParser(_CODEC).any_object(self._path, what.condition, position)
        return Filter._nested(inside, what._levels + 1)

    def _literal(self, anchor: str, text: Any, ignore_case: Any) -> Filter:
        if not isinstance(text, str):
            raise InvalidFilter(str(self._path), f"must have a string, got {shortened(text)}")
        if not isinstance(ignore_case, bool):
            problem = f"ignore_case must be True or False, got {shortened(ignore_case)}"
            raise InvalidFilter(str(self._path), problem)
        return self.matches(anchor + escaped(text), "i" if ignore_case else None)

    def _equal(self, value: object) -> Filter:
        return Filter(FilterParser(_CODEC).field(self._path, self._value(value), str(self._path)))

    def _value(self, value: Any) -> Any:
        """Return a value to compare with as JSON."""
        return value

    def _listed(self, values: Any, operator: str) -> list[Any]:
        """Return the values of an iterable; raises `InvalidFilter`, for a single string too."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            position, shown = f"{self._path}.{operator}", shortened(values)
            raise InvalidFilter(position, f"must be an iterable of values, got {shown}")
        return list(map(self._value, values))

    def _operator(self, operator: str, operand: Any) -> Filter:
        return self._operators({operator: operand})

    def _operators(self, operators: Mapping[str, Any]) -> Filter:
        return Filter(FilterParser(_CODEC).operators(self._path, operators, str(self._path)))


# -- filters as documents ----------------------------------------------------------------------


def to_json(condition: Condition) -> dict[Any, Any]:
    """Return the filter document of a condition; keys are strings, or a `Path` that no string names."""
    match condition:
        case Field(test=Equals(Value(value=value))) | Metadata(test=Equals(Value(value=value))):
            return {_name(condition): {"$eq": value} if holds_operators(value) else value}
        case Field(test=test) | Metadata(test=test):
            return {_name(condition): _operators((test,))}
        case Collated(inner):
            return to_json(inner)
        case And(conditions):
            return _together([to_json(each) for each in conditions])
        case FitsSchema(Value(text=text)):
            return {"$jsonSchema": decode(text)}
        case Expression(Value(text=text)):
            return {"$expr": decode(text)}
        case Text(Value(value=query)):
            return {"$text": {"$search": query}}
        case Or(single=True):
            return to_json(condition.as_one())
        case Not(Or(single=True) as inner):
            return to_json(Not(inner.as_one()))
        case Or(()):
            return {"$nor": [{}]}
        case Or(conditions):
            return {"$or": [to_json(each) for each in conditions]}
        case Not(Or(conditions)) if conditions:
            return {"$nor": [to_json(each) for each in conditions]}
        case Not(Field(test=Exists()) | Metadata(test=Exists()) as inner):
            return {_name(inner): {"$exists": False}}
        case Not(Field(test=test) | Metadata(test=test) as inner):
            return {_name(inner): _operator(Fails((test,)))}
        case Not(inner):
            return {"$nor": [to_json(inner)]}
    raise AssertionError(condition)


def _name(field: Field | Metadata) -> str | Path:
    if isinstance(field, Metadata):
        return f"${field.field}"
    if not field.path.keys:
        return "$body"
    return path_or_text(field.path)


def _together(documents: list[dict[Any, Any]]) -> dict[Any, Any]:
    """Join documents in a single document if no key appears twice, else by `$and`."""
    merged: dict[Any, Any] = {}
    for document in documents:
        for key, value in document.items():
            if key not in merged:
                merged[key] = value
                continue
            both = key != "$expr" and holds_operators(merged[key]) and holds_operators(value)
            if not both or merged[key].keys() & value.keys():
                return {"$and": documents}
            merged[key] = {**merged[key], **value}
    return merged


def _operators(tests: tuple[Test, ...]) -> dict[str, Any]:
    """Return the operators of several tests of a value; none replaces another."""
    if Passes(()) in tests:  # no value passes, whatever the other tests are
        return {"$in": []}
    result: dict[str, Any] = {}
    for test in tests:
        operator = _operator(test)
        if "$all" in operator:
            operator["$all"] = [*result.get("$all", []), *operator["$all"]]
        elif operator.keys() & result.keys() and isinstance(test, Fails):
            operator = {"$not": _operators(test.tests)}
        elif operator.keys() & result.keys():
            operator = {"$in": list(_listed_values(test))}
        result.update(operator)
    return result


def _operator(test: Test) -> dict[str, Any]:
    match test:
        case Equals(Value(value=value)):
            return {"$eq": value}
        case Compare(operator, Value(value=value)) | Bits(operator, Value(value=value)):
            return {operator: value}
        case HasType(types):
            return {"$type": list(types)}
        case Matches(Value(value=pattern)):
            options = {"$options": pattern.options} if pattern.options else {}
            return {"$regex": pattern.pattern, **options}
        case Modulo(Value(value=divisor), Value(value=remainder)):
            return {"$mod": [divisor, remainder]}
        case Exists():
            return {"$exists": True}
        case HasSize(Value(value=size)):
            return {"$size": size}
        case HasElement(tests):
            return {"$elemMatch": _operators(tests)}
        case HasObject(condition):
            document = to_json(condition)
            is_schema = next(iter(document), "") == "$jsonSchema"  # which is read as an operator
            return {"$elemMatch": {"$and": [document]} if is_schema else document}
        case Fails((Equals(Value(value=value)),)):
            return {"$ne": value}
        case Fails((OneOf() | Passes() as inner,)) if "$in" in _operator(inner):
            return {"$nin": _operator(inner)["$in"]}
        case Fails(tests):
            return {"$not": _operators(tests)}
        case Passes((Exists() | HasSize() | HasElement() | HasObject() as wanted, HasElement())):
            return {"$all": [_operator(wanted)]}
        case Passes((wanted, HasElement())):
            return {"$all": list(_listed_values(wanted))}
        case OneOf() | Passes():
            return {"$in": list(_listed_values(test))}
    raise AssertionError(test)


def _listed_values(test: Test) -> Iterator[Any]:
    match test:
        case OneOf(lists):
            for one in lists:
                yield from scalars_of(one)
        case Equals(Value(value=value)):
            yield value
        case Matches(Value(value=pattern)):
            yield pattern.for_python()
        case Passes(tests):
            for each in tests:
                yield from _listed_values(each)
