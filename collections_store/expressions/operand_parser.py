"""The parser of operands: what the operators with a syntax of their own, and stages, parse with."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Self

from ..document import Anonymous
from ..errors import InvalidOperand, shortened
from . import nodes
from .collation import Ordered
from .declared import Operator
from .evaluation import NO_VARIABLES, OperandError, Scope
from .nodes import Constant, Meta, Node, Now, OperatorCall, Reference, evaluate, nodes_of
from .path import MAX_KEYS
from .strings import regex
from .values import MISSING

MAX_NESTING: Final = 100
"""How deep an expression's JSON may be nested; evaluating takes a few calls for each level."""
_VARIABLE: Final = re.compile(r"([a-z]|[^\x00-\x7f])(\w|[^\x00-\x7f])*")
ErrorMaker = Callable[[str, str], Exception]
Names = tuple[str, ...]


class OperandParser(ABC):
    """The base class of `ExpressionParser`; `error` makes the error of a place and a problem."""

    def __init__(self, error: ErrorMaker, variables: frozenset[str] = frozenset()) -> None:
        self.error, self._variables = error, variables
        self.scores: list[str] | None = None
        """The places of `textScore`; None: no `$text` has a score."""
        self.values: Mapping[str, Any] = NO_VARIABLES
        """The values of variables that are constant during a call, `NOW` included."""
        self.ordered: Ordered = True
        """How the operators of constants compare strings."""

    @abstractmethod
    def parse(self, what: Any, place: str) -> Node:
        """Parse an expression."""

    def constant(self, what: Any, place: str) -> Constant:
        """Return the value of an expression of constants: without fields, metadata, `$rand`, and variables from outside
        of the expression, `$$NOW` included, except those of `values`. A missing value is null.
        """
        node = self.parse(what, place)
        if isinstance(node, Constant):
            return node
        varies = self.error(place, f"must be a constant, got {shortened(what)}")
        inner = type(self)(lambda *_: varies, frozenset(self.values))
        inner.values, inner.ordered = self.values, self.ordered
        node = inner.parse(what, place)
        if any(map(self._varies, nodes_of(node))):
            raise varies
        try:
            value = evaluate(node, Scope(Anonymous(None), self.values, ordered=self.ordered))
        except InvalidOperand as error:
            self.refuse(place, f"must be a constant, and has no value: {error}")
        return Constant.of(None if value is MISSING else value)

    def _varies(self, node: Any) -> bool:
        """Return whether a node has another value for another document or at another time."""
        match node:
            case Meta() | Reference("ROOT" | "CURRENT") | OperatorCall("$rand"):
                return True
            case Now():
                return "NOW" not in self.values
        return False

    def check_nesting(self, what: Any, place: str) -> None:
        """Raise the error of JSON that is nested too deep."""
        level = [what]
        for _ in range(MAX_NESTING + 1):
            arrays = [each for each in level if isinstance(each, list)]
            arrays += [list(each.values()) for each in level if isinstance(each, dict)]
            level = [below for each in arrays for below in each]
            if not level:
                return
        self.refuse(place, f"nested deeper than {MAX_NESTING} levels")

    def variables(self, given: Any, place: str) -> tuple[tuple[str, Node], ...]:
        """Parse a document of variables."""
        names = self.variable_names(given, place)
        return tuple([(name, self.field(given, name, place)) for name in names])

    def variable_names(self, given: Any, place: str) -> list[str]:
        """Return the names of a document of variables."""
        if not isinstance(given, dict):
            self.refuse(place, f"must be a document of variables, got {shortened(given)}")
        return [self.variable(name, f"{place}.{name}") for name in given]

    def named(
        self, operand: Any, place: str, required: Names, optional: Names = ()
    ) -> Mapping[str, Any]:
        """Return a document with all required keys, and no keys besides these and the optional ones."""
        known = ", ".join((*required, *optional))
        if not isinstance(operand, Mapping):
            self.refuse(place, f"must be a document of {known}, got {shortened(operand)}")
        for name in required:
            if name not in operand:
                self.refuse(place, f"requires {name}")
        for name in operand:
            if name not in required and name not in optional:
                self.refuse(f"{place}.{name}", f"must be one of {known}")
        return operand

    def refuse(self, place: str, problem: str) -> NoReturn:
        """Raise the error of a place."""
        raise self.error(place, problem)

    def within(self, *names: str) -> Self:
        """Return a parser in which more variables are defined."""
        inner = type(self)(self.error, self._variables | set(names))
        inner.scores, inner.ordered = self.scores, self.ordered
        inner.values = {n: each for n, each in self.values.items() if n not in names}
        return inner

    def each(self, operands: list[Any], place: str) -> tuple[Node, ...]:
        """Parse the elements of a list."""
        return tuple([self.parse(each, f"{place}.{i}") for i, each in enumerate(operands)])

    def field(self, given: Mapping[str, Any], name: str, place: str) -> Node:
        """Parse a field of a document."""
        return self.parse(given[name], f"{place}.{name}")

    def named_call(self, operator: Operator, operand: Any, place: str) -> Node:
        """Parse an operator whose operands have names."""
        operands = self.by_name(operator, operand, place)
        if not operator.recovers:
            return OperatorCall.of(operator, operands)
        others = (
            self.field(operand, each, place) if each in operand else None
            for each in operator.recovers
        )
        return nodes.Recovered(operator.name, operands, operator, *others)

    def operands(self, least: int, most: int | None, operand: Any, place: str) -> tuple[Node, ...]:
        """Parse a list of operands, or a single operand."""
        found = (
            self.each(operand, place)
            if isinstance(operand, list)
            else (self.parse(operand, place),)
        )
        if not least <= len(found) <= (len(found) if most is None else most):
            self.refuse(place, f"takes {_number(least, most)}, got {len(found)}")
        return found

    def by_name(self, operator: Operator, operand: Any, place: str) -> tuple[Node, ...]:
        """Parse a document of operands, optional operands last."""
        names, defaults = operator.names, operator.defaults
        optional = (*names[operator.least :], *operator.recovers)
        given = self.named(operand, place, names[: operator.least], optional)
        pattern = given.get("regex"), given.get("options") or ""
        if all(isinstance(each, str) and not each.startswith("$") for each in pattern):
            self.check(regex, *pattern, place=f"{place}.regex")
        return tuple(
            [
                self.field(given, name, place) if name in given else Constant.of(defaults[name])
                for name in names
                if name in given or name in defaults
            ]
        )

    def check(self, function: Callable[..., Any], *operands: Any, place: str) -> None:
        """Reject constants that a function does not take."""
        try:
            function(*operands)
        except OperandError as error:
            self.refuse(place, error.problem)

    def variable(self, name: Any, place: str) -> str:
        """Return the name of a variable."""
        if name != "CURRENT" and not (isinstance(name, str) and _VARIABLE.fullmatch(name)):
            problem = f"a variable must begin with a lower-case letter, got {shortened(name)}"
            self.refuse(place, problem)
        return str(name)


def check_keys(keys: Sequence[str], place: str, error: ErrorMaker) -> None:
    """Raise the error of keys that are no path in a pipeline."""
    for key in keys:
        if not key or key.startswith("$") or "\0" in key:
            problem = "must be a path without empty keys, NUL, and keys that begin with $"
            raise error(place, f"{problem}, got {shortened('.'.join(keys))}")
    if len(keys) > MAX_KEYS:
        raise error(place, f"a path has at most {MAX_KEYS} keys")


def _number(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least} operands"
    if least == most:
        return f"{least} operand{'s' * (least > 1)}"
    return f"{least} to {most} operands"
