"""What is asked of a collection: MongoDB's filter language, parsed into frozen values.

A filter has a *shape* and *values*: the shape decides the SQL, and is what compiled statements are
cached under; the values travel as parameters.

Filters written in Python: `F("age") >= 30` instead of `{"age": {"$gte": 30}}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..codec import Codec
from ..errors import InvalidFilter, shortened
from .conditions import (
    And,
    Condition,
    Not,
    Or,
)
from .parser import FilterParser, check_equals, check_levels, check_nesting
from .path import Path
from .printing import to_json
from .shapes import shape_of

EVERYTHING = And(())


@dataclass(frozen=True, slots=True, repr=False)
class Filter:
    """What is asked. Without a condition: every object.

    >>> Filter.parse({"address.city": "Berlin"}) == Filter.parse("address.city", "Berlin")
    True
    >>> print(Filter.parse({"tags": "new", "age": {"$gte": 30, "$lt": 40}}))
    {'tags': 'new', 'age': {'$gte': 30, '$lt': 40}}
    """

    condition: Condition = EVERYTHING
    _shape: Condition | None = field(default=None, init=False, compare=False, repr=False)
    _levels: int = field(default=0, init=False, compare=False, repr=False)

    @property
    def shape(self) -> Condition:
        """The condition with slots in the place of its values."""
        if self._shape is None:
            object.__setattr__(self, "_shape", shape_of(self.condition))
        assert self._shape is not None
        return self._shape

    def __post_init__(self) -> None:
        if not isinstance(self.condition, Condition):
            raise InvalidFilter("", "Filter.parse reads what is asked")

    @classmethod
    def parse(cls, what: Any = None, equals: Any = ..., rules: Codec = Codec()) -> Filter:  # noqa: B008
        """Read the ways a caller may ask; raises `InvalidFilter` naming the place.

        `what` is None (everything), a filter document, a `Filter`, or a field (dotted text or
        `Path`) that `equals` a value.
        """
        if isinstance(what, str | Path):
            if equals is ...:
                raise InvalidFilter(str(what), "what shall the field equal? find(field, value)")
            check_equals(what, equals)
            return cls(FilterParser(rules).field(what, equals, str(what)))
        if equals is not ...:
            raise InvalidFilter(
                "",
                f"a value to equal goes with a field, not {shortened(what)}; the parts of bodies that "
                "are wanted are given as projection=",
            )
        match what:
            case None:
                return cls()
            case Filter():
                return what
            case Mapping():
                check_nesting(what)
                return cls(FilterParser(rules).document(what))
        raise InvalidFilter("", f"a filter is a document or a field, not {shortened(what)}")

    def __and__(self, other: Filter) -> Filter:
        return self._joined(And, conjuncts, other)

    def __or__(self, other: Filter) -> Filter:
        return self._joined(Or, disjuncts, other)

    def __invert__(self) -> Filter:
        inner = self.condition
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
        levels = max(
            each._levels + (not isinstance(each.condition, kind)) for each in (self, other)
        )
        return Filter._nested(kind((*parts(self.condition), *parts(other.condition))), levels)

    @classmethod
    def _nested(cls, condition: Condition, levels: int) -> Filter:
        """Return a filter that is made of others, so many levels deep; raises `InvalidFilter`."""
        check_levels(levels)
        made = cls(condition)
        object.__setattr__(made, "_levels", levels)
        return made

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a filter has no truth value: join filters with &, | and ~ instead of and, or and not, "
            'and write F("n").between(1, 5) instead of 1 <= F("n") <= 5'
        )

    def to_json(self) -> dict[Any, Any]:
        """Return the filter document. A key of it that holds a dot or begins with `$` stands in a `Path`;
        all other fields are text.
        """
        return to_json(self.condition)

    def __str__(self) -> str:
        return str(self.to_json())

    def __repr__(self) -> str:
        return f"Filter({self})"


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions that must all hold."""
    return condition.conditions if isinstance(condition, And) else (condition,)


def disjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions of which one must hold."""
    if isinstance(condition, Or) and not condition.single:
        return condition.conditions
    return (condition,)


_RULES = Codec()


class F:
    """A field of the body, or `$id` and the other metadata, to be compared with something.

    Every comparison is a `Filter`; `&`, `|` and `~` join them.

    >>> print((F("address.city") == "Berlin") & F("age").between(30, 40))
    {'address.city': 'Berlin', 'age': {'$gte': 30, '$lte': 40}}
    >>> print(F("items").any((F("sku") == "a") & (F("count") > 1)) | ~F("paid").exists())
    {'$or': [{'items': {'$elemMatch': {'sku': 'a', 'count': {'$gt': 1}}}}, {'paid': {'$exists': False}}]}
    """

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("_path",)

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path):
            raise InvalidFilter("", f"a field is a string, not {shortened(path)}")
        self._path = path

    def __repr__(self) -> str:
        return f"F({self._path!r})"

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return self._equal(value)

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return self._equal(value).__invert__()

    def __gt__(self, value: Any) -> Filter:
        return self._says("$gt", value)

    def __ge__(self, value: Any) -> Filter:
        return self._says("$gte", value)

    def __lt__(self, value: Any) -> Filter:
        return self._says("$lt", value)

    def __le__(self, value: Any) -> Filter:
        return self._says("$lte", value)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} has no truth value: compare it with a value, or call exists(), and join filters "
            "with &, | and ~ instead of and, or and not"
        )

    def between(self, low: Any, high: Any) -> Filter:
        """At least `low` and at most `high`; of an array, two elements may meet the two bounds."""
        return self._operators({"$gte": low, "$lte": high})

    def contains(self, value: Any) -> Filter:
        """Equal to `value`, or an array with an element that is: what `==` says, in a clearer word."""
        return self._equal(value)

    def contains_all(self, values: Iterable[Any]) -> Filter:
        """An array with all of the values (`$all`)."""
        return self._says("$all", _listed(values, f"{self._path}.$all"))

    def is_in(self, values: Iterable[Any]) -> Filter:
        """Equal to one of the values (`$in`)."""
        return self._says("$in", _listed(values, f"{self._path}.$in"))

    def not_in(self, values: Iterable[Any]) -> Filter:
        """Equal to none of the values (`$nin`)."""
        return self._says("$nin", _listed(values, f"{self._path}.$nin"))

    def exists(self, there: bool = True) -> Filter:
        """There, be it null (`$exists`)."""
        return self._says("$exists", there)

    def matches(self, pattern: str | re.Pattern[str], options: str | None = None) -> Filter:
        """A string in which the pattern is found (`$regex`); `options` are of `imsxu`."""
        chosen = {} if options is None else {"$options": options}
        return self._operators({"$regex": pattern, **chosen})

    def has_type(self, *types: str) -> Filter:
        """Of one of MongoDB's types: "string", "number", "array" … (`$type`)."""
        return self._says("$type", list(types))

    def has_size(self, size: int) -> Filter:
        """An array of that many elements (`$size`)."""
        return self._says("$size", size)

    def modulo(self, divisor: int, remainder: int) -> Filter:
        """A number that divided by `divisor` leaves `remainder` (`$mod`)."""
        return self._says("$mod", [divisor, remainder])

    def any(self, what: Filter | Mapping[str, Any]) -> Filter:
        """An array with one element that meets all of `what` (`$elemMatch`).

        A `Filter` speaks of elements that are objects, a document of operators of the elements
        themselves: `F("scores").any({"$gt": 10, "$lt": 20})`.
        """
        if not isinstance(what, Filter):
            check_nesting({"$elemMatch": what})
            return self._says("$elemMatch", what)
        place = f"{self._path}.$elemMatch"
        inside = FilterParser(_RULES).any_object(self._path, what.condition, place)
        return Filter._nested(inside, what._levels + 1)

    def _equal(self, value: object) -> Filter:
        return Filter(FilterParser(_RULES).field(self._path, value, str(self._path)))

    def _says(self, operator: str, operand: Any) -> Filter:
        return self._operators({operator: operand})

    def _operators(self, operators: Mapping[str, Any]) -> Filter:
        return Filter(FilterParser(_RULES).operators(self._path, operators, str(self._path)))


def _listed(values: Any, place: str) -> list[Any]:
    """Return the values of an iterable; raises `InvalidFilter`, for a single string too."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidFilter(place, f"must be an iterable of values, got {shortened(values)}")
    return list(values)
