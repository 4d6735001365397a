"""Filters written in Python: `F("age") >= 30` instead of `{"age": {"$gte": 30}}`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..codec import Codec
from ..path import Path
from . import Filter
from .parsing import Parser

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

    def between(self, low: Any, high: Any) -> Filter:
        """At least `low` and at most `high`; of an array, two elements may meet the two bounds."""
        return self._operators({"$gte": low, "$lte": high})

    def contains(self, value: Any) -> Filter:
        """Equal to `value`, or an array with an element that is: what `==` says, in a clearer word."""
        return self._equal(value)

    def contains_all(self, values: Iterable[Any]) -> Filter:
        """An array with all of the values (`$all`)."""
        return self._says("$all", list(values))

    def is_in(self, values: Iterable[Any]) -> Filter:
        """Equal to one of the values (`$in`)."""
        return self._says("$in", list(values))

    def not_in(self, values: Iterable[Any]) -> Filter:
        """Equal to none of the values (`$nin`)."""
        return self._says("$nin", list(values))

    def exists(self, there: bool = True) -> Filter:
        """There, be it null (`$exists`)."""
        return self._says("$exists", there)

    def matches(self, pattern: str | re.Pattern[str], options: str | None = None) -> Filter:
        """A string in which the pattern is found (`$regex`); `options` are of `imsx`."""
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
            return self._says("$elemMatch", what)
        place = f"{self._path}.$elemMatch"
        return Filter(Parser(_RULES).any_object(self._path, what.condition, place))

    def _equal(self, value: object) -> Filter:
        return Filter(Parser(_RULES).field(self._path, value, str(self._path)))

    def _says(self, operator: str, operand: Any) -> Filter:
        return self._operators({operator: operand})

    def _operators(self, operators: Mapping[str, Any]) -> Filter:
        return Filter(Parser(_RULES).operators(self._path, operators, str(self._path)))
