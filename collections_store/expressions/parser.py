"""Expression parser: accepts what MongoDB's server accepts. An error names the path of everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..errors import shortened
from . import nodes
from .language import ABSENT
from .nodes import Constant, Node, OperatorCall, Reference
from .operand_parser import OperandParser, check_keys
from .operators import OPERATORS

SYSTEM_VARIABLES: Final = frozenset({"ROOT", "CURRENT", "REMOVE"})


class ExpressionParser(OperandParser):
    """Parser of expressions in plain JSON; `error` makes the error of a place and a problem."""

    def parse(self, what: Any, place: str) -> Node:
        """Parse an expression, checked by `check_nesting`."""
        match what:
            case str() if what.startswith("$"):
                return self._reference(what, place)
            case list():
                elements = self.each(what, place)
                return _constant(elements) or nodes.ArrayOf(elements)
            case dict():
                return self._object(what, place)
        return Constant.of(what)

    def _reference(self, text: str, place: str) -> Node:
        dotted = text[2:] if text.startswith("$$") else f"CURRENT.{text[1:]}"
        variable, *keys = dotted.split(".")
        check_keys(keys, place, self.error)
        if variable == "NOW":
            return Reference("REMOVE") if keys else nodes.Now()  # a time has no fields
        if variable not in self._variables | SYSTEM_VARIABLES:
            if f"$${variable}" in ABSENT["variables"]:
                self.refuse(place, f"the variable {variable} is not supported")
            self.refuse(place, f"there is no variable {shortened(variable)}")
        return Reference(variable, tuple(keys))

    def _object(self, what: dict[str, Any], place: str) -> Node:
        first = next(iter(what), "")
        if first.startswith("$"):
            if len(what) > 1:
                problem = f"{first} must be the only key, got {shortened(list(what)[1])} beside it"
                self.refuse(place, problem)
            return self._operator(first, what[first], f"{place}.{first}")
        for key in what:
            if key.startswith("$") or "." in key or not key:
                problem = "the name of a field must not be empty, hold a dot, or begin with $"
                self.refuse(f"{place}.{key}", problem)
        fields = [(key, self.field(what, key, place)) for key in what]
        constant = _constant([each for _, each in fields])
        if constant is not None:
            return Constant.of(dict(zip(what, constant.value, strict=True)))
        return nodes.ObjectOf(tuple(fields))

    def _operator(self, name: str, operand: Any, place: str) -> Node:
        operator = OPERATORS.get(name)
        if operator is None:
            known = name in ABSENT["expressions"]
            self.refuse(place, "this operator is not supported" if known else "no such operator")
        if operator.syntax is not None:
            node: Node = operator.syntax(self, operator, operand, place)
            return node
        if operator.names and not (operator.bare and _stands_alone(operand)):
            return self.named_call(operator, operand, place)
        most = 1 if operator.bare else operator.most
        found = self.operands(operator.least, most, operand, place)
        return OperatorCall.of(
            operator, found + tuple(map(Constant.of, operator.defaults.values()))
        )


def _constant(expressions: Sequence[Node]) -> Constant | None:
    """Return an array of constants as a single constant; None: an element is computed."""
    values = [each.value for each in expressions if isinstance(each, Constant)]
    return Constant.of(values) if len(values) == len(expressions) else None


def _stands_alone(operand: Any) -> bool:
    """Return whether an operand is not the document of named operands."""
    return not isinstance(operand, dict) or next(iter(operand), "").startswith("$")
