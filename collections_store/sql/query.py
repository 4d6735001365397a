"""Compiled statements over the shape of a filter, and the cache of the methods that compile them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import lru_cache, partial, update_wrapper
from itertools import chain
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar

from ..document import now
from ..expressions.classes import value_class
from ..query.conditions import And, Condition
from ..query.filter import Filter, conjuncts
from ..query.shapes import condition_of, values_of
from .dialects.protocols import Binding

P = ParamSpec("P")
R = TypeVar("R")
Implied: TypeAlias = tuple[str | int, ...]
"""The names of the partial indexes whose condition a filter implies, and the numbers of the conditions that an index of
substrings serves.
"""

GuardKind: TypeAlias = Literal["", "row", "column", "apart"]

SHAPES_CACHED: Final = 256


@value_class(eq=True)
class Query:
    """A compiled statement over a filter's shape.

    The matcher decides the conditions at the positions `residual`. `guard`: the array guard is the first column of the
    first row, and the first row always exists; if the guard is true, the rest is wrong. "row": the found rows come
    after the first row. "column": the found rows are in the remaining columns of all rows. "apart": the statement has
    no column of the guard; the query `arrays` is the guard, and both queries must see the same moment.

    A query with `precise` has a guard that looks for an array in any document: `precise` is the same query with a guard
    that looks in matching documents. `met_arrays`: this guard was true once; `precise` is executed from then on.
    """

    sql: str
    bindings: tuple[Binding, ...] = ()
    residual: tuple[int, ...] = ()
    guard: GuardKind = ""
    arrays: Query | None = None
    precise: Query | None = None
    met_arrays: bool = field(default=False, init=False, compare=False, repr=False)
    _as_they_are: tuple[tuple[str, int], ...] = field(init=False, compare=False, repr=False)
    """The parameters that are values of the filter, with the positions of the values."""
    _converted: tuple[Any, ...] = field(init=False, compare=False, repr=False)
    """The other bindings, each once."""

    def __post_init__(self) -> None:
        pairs = (zip(*each[:2], strict=True) for each in self.bindings if each.convert is None)
        object.__setattr__(self, "_as_they_are", tuple(dict(chain.from_iterable(pairs)).items()))
        converted = {each.names: each for each in self.bindings if each.convert is not None}
        object.__setattr__(self, "_converted", tuple(converted.values()))

    def after_arrays(self) -> Query | None:
        """Return the query to execute after the guard was true, from now on; None: the result is wrong."""
        if self.precise is not None:
            object.__setattr__(self, "met_arrays", True)
        return self.precise

    def parameters(self, filter: Filter, others: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the statement's parameters: `others`, with the values of `filter` added."""
        parameters = {} if others is None else others
        parameters.setdefault("now", now())
        if self.bindings:
            if filter.values is not None and not self._converted:  # sooner
                for name, position in self._as_they_are:
                    parameters[name] = filter.values[position]
                return parameters
            values = values_of(filter.condition)
            for name, position in self._as_they_are:
                parameters[name] = values[position].value
            for names, positions, convert in self._converted:
                found = convert([values[position] for position in positions])
                parameters.update(zip(names, found, strict=True))
        return parameters

    def rest(self, filter: Filter) -> Filter:
        """Return the part of `filter` that the matcher must decide."""
        conditions = conjuncts(filter.condition)
        return Filter(And(tuple(conditions[position] for position in self.residual)))


class PerShape(Generic[P, R]):
    """A method that compiles a statement for the shape of a filter. A caller passes the filter. The method runs once
    for each combination of shape, partial indexes implied by the filter, and further arguments.
    """

    def __init__(self, compile: Callable[Concatenate[Any, Condition, Implied, P], R]) -> None:
        self._compile = compile

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, statements: Any, owner: type) -> Callable[Concatenate[Filter, P], R]:
        cached: Any = lru_cache(maxsize=SHAPES_CACHED)(self._of(statements))

        def compiled_for(filter: Filter, /, *args: P.args, **kwargs: P.kwargs) -> R:
            implied = statements.implied(filter, *args) if statements.reads_values else ()
            query: R = cached(filter.plain or filter.shape, implied, *args, **kwargs)
            return query

        statements.__dict__[self._name] = update_wrapper(compiled_for, cached)  # found from now on
        return compiled_for

    def _of(self, statements: Any) -> Callable[..., R]:
        """Return the compiling function; results over a template are shared."""
        if statements.shared is None:
            compile: Any = partial(self._compile, statements)
            return lambda shape, *args, **kwargs: compile(condition_of(shape), *args, **kwargs)
        shared: Any = getattr(statements.shared, self._name)
        on_table: Any = statements.on_table
        return lambda *args, **kwargs: on_table(shared.__wrapped__(*args, **kwargs))
