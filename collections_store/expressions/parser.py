"""Expression parser: accepts what MongoDB's server accepts. An error names the path of everything else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from ..document import METADATA, NO_TEXT, TEXT_SCORE, Anonymous
from ..errors import InvalidOperand, shortened
from . import nodes
from .evaluation import OperandError, Scope
from .language import ABSENT
from .nodes import Constant, Meta, Node, Now, OperatorCall, Reference, evaluate, nodes_of
from .operators import OPERATORS, Operator
from .path import MAX_KEYS
from .strings import regex, type_named
from .values import MISSING, is_number

MAX_NESTING: Final = 100
"""How deep an expression's JSON may be nested; evaluating takes a few calls for each level."""
MAX_SORTED: Final = 32
"""Fields that `$sortArray` sorts by: as many as `$sort` does."""
SYSTEM_VARIABLES: Final = frozenset({"ROOT", "CURRENT", "REMOVE"})
_VARIABLE: Final = re.compile(r"([a-z]|[^\x00-\x7f])(\w|[^\x00-\x7f])*")
ErrorMaker = Callable[[str, str], Exception]
Names = tuple[str, ...]


class ExpressionParser:
    """Parser of expressions in plain JSON; `error` makes the error of a place and a problem."""

    def __init__(self, error: ErrorMaker, variables: frozenset[str] = frozenset()) -> None:
        self._error, self._variables = error, variables
        self.scores: list[str] | None = None
        """The places of `textScore`; None: no `$text` has a score."""

    def parse(self, what: Any, place: str) -> Node:
        """Parse an expression, checked by `check_nesting`."""
        match what:
            case str() if what.startswith("$"):
                return self._reference(what, place)
            case list():
                elements = self._each(what, place)
                return _constant(elements) or nodes.ArrayOf(elements)
            case dict():
                return self._object(what, place)
        return Constant.of(what)

    def constant(self, what: Any, place: str) -> Constant:
        """Return the value of an expression of constants: without fields, metadata, `$rand`, and variables from outside
        of the expression. A missing value is null.
        """
        node = ExpressionParser(self._error).parse(what, place)
        if isinstance(node, Constant):
            return node
        if any(map(_varies, nodes_of(node))):
            self._refuse(place, f"must be a constant, got {shortened(what)}")
        try:
            value = evaluate(node, Scope(Anonymous(None)))
        except InvalidOperand as error:
            self._refuse(place, f"must be a constant, and has no value: {error}")
        return Constant.of(None if value is MISSING else value)

    def check_nesting(self, what: Any, place: str) -> None:
        """Raise the error of JSON that is nested too deep."""
        level = [what]
        for _ in range(MAX_NESTING + 1):
            arrays = [each for each in level if isinstance(each, list)]
            arrays += [list(each.values()) for each in level if isinstance(each, dict)]
            level = [below for each in arrays for below in each]
            if not level:
                return
        self._refuse(place, f"nested deeper than {MAX_NESTING} levels")

    def variables(self, given: Any, place: str) -> tuple[tuple[str, Node], ...]:
        names = self.variable_names(given, place)
        return tuple([(name, self._field(given, name, place)) for name in names])

    def variable_names(self, given: Any, place: str) -> list[str]:
        """Return the names of a document of variables."""
        if not isinstance(given, dict):
            self._refuse(place, f"must be a document of variables, got {shortened(given)}")
        return [self._variable(name, f"{place}.{name}") for name in given]

    def named(
        self, operand: Any, place: str, required: Names, optional: Names = ()
    ) -> Mapping[str, Any]:
        """Return a document with all required keys, and no keys besides these and the optional ones."""
        known = ", ".join((*required, *optional))
        if not isinstance(operand, Mapping):
            self._refuse(place, f"must be a document of {known}, got {shortened(operand)}")
        for name in required:
            if name not in operand:
                self._refuse(place, f"requires {name}")
        for name in operand:
            if name not in required and name not in optional:
                self._refuse(f"{place}.{name}", f"must be one of {known}")
        return operand

    def _refuse(self, place: str, problem: str) -> NoReturn:
        raise self._error(place, problem)

    def _with(self, *names: str) -> ExpressionParser:
        inner = ExpressionParser(self._error, self._variables | set(names))
        inner.scores = self.scores
        return inner

    def _each(self, operands: list[Any], place: str) -> tuple[Node, ...]:
        return tuple([self.parse(each, f"{place}.{i}") for i, each in enumerate(operands)])

    def _field(self, given: Mapping[str, Any], name: str, place: str) -> Node:
        return self.parse(given[name], f"{place}.{name}")

    def _reference(self, text: str, place: str) -> Node:
        dotted = text[2:] if text.startswith("$$") else f"CURRENT.{text[1:]}"
        variable, *keys = dotted.split(".")
        check_keys(keys, place, self._error)
        if variable == "NOW" and not keys:
            return nodes.Now()
        if variable not in self._variables | SYSTEM_VARIABLES:
            if f"$${variable}" in ABSENT["variables"]:
                self._refuse(place, f"the variable {variable} is not supported")
            self._refuse(place, f"there is no variable {shortened(variable)}")
        return Reference(variable, tuple(keys))

    def _object(self, what: dict[str, Any], place: str) -> Node:
        first = next(iter(what), "")
        if first.startswith("$"):
            if len(what) > 1:
                problem = f"{first} must be the only key, got {shortened(list(what)[1])} beside it"
                self._refuse(place, problem)
            return self._operator(first, what[first], f"{place}.{first}")
        for key in what:
            if key.startswith("$") or "." in key or not key:
                problem = "the name of a field must not be empty, hold a dot, or begin with $"
                self._refuse(f"{place}.{key}", problem)
        fields = [(key, self._field(what, key, place)) for key in what]
        constant = _constant([each for _, each in fields])
        if constant is not None:
            return Constant.of(dict(zip(what, constant.value, strict=True)))
        return nodes.ObjectOf(tuple(fields))

    def _operator(self, name: str, operand: Any, place: str) -> Node:
        if name in READERS:
            return READERS[name](self, name, operand, place)
        operator = OPERATORS.get(name)
        if operator is None:
            known = name in ABSENT["expressions"]
            self._refuse(place, "this operator is not supported" if known else "no such operator")
        if operator.names and not (operator.bare and _stands_alone(operand)):
            return self._named_call(name, operand, place)
        most = 1 if operator.bare else operator.most
        found = self._operands(operator.least, most, operand, place)
        return OperatorCall(name, found + tuple(map(Constant.of, operator.defaults.values())))

    def _named_call(self, name: str, operand: Any, place: str) -> Node:
        """Parse an operator whose operands have names."""
        operator = OPERATORS[name]
        operands = self._by_name(operator, operand, place)
        if not operator.recovers:
            return OperatorCall(name, operands)
        others = (
            self._field(operand, each, place) if each in operand else None
            for each in operator.recovers
        )
        return nodes.Recovered(name, operands, *others)

    def _operands(self, least: int, most: int | None, operand: Any, place: str) -> tuple[Node, ...]:
        """Parse a list of operands, or a single operand."""
        found = (
            self._each(operand, place)
            if isinstance(operand, list)
            else (self.parse(operand, place),)
        )
        if not least <= len(found) <= (len(found) if most is None else most):
            self._refuse(place, f"takes {_number(least, most)}, got {len(found)}")
        return found

    def _by_name(self, operator: Operator, operand: Any, place: str) -> tuple[Node, ...]:
        """Parse a document of operands, optional operands last."""
        names, defaults = operator.names, operator.defaults
        optional = (*names[operator.least :], *operator.recovers)
        given = self.named(operand, place, names[: operator.least], optional)
        pattern = given.get("regex"), given.get("options") or ""
        if all(isinstance(each, str) and not each.startswith("$") for each in pattern):
            self._check(regex, *pattern, place=f"{place}.regex")
        return tuple(
            [
                self._field(given, name, place) if name in given else Constant.of(defaults[name])
                for name in names
                if name in given or name in defaults
            ]
        )

    def _check(self, function: Callable[..., Any], *operands: Any, place: str) -> None:
        """Reject constants that a function does not take."""
        try:
            function(*operands)
        except OperandError as error:
            self._refuse(place, error.problem)

    def _variable(self, name: Any, place: str) -> str:
        if name != "CURRENT" and not (isinstance(name, str) and _VARIABLE.fullmatch(name)):
            problem = f"a variable must begin with a lower-case letter, got {shortened(name)}"
            self._refuse(place, problem)
        return str(name)

    # -- operators with a syntax of their own ------------------------------------------------------

    def _meta(self, name: str, operand: Any, place: str) -> Node:  # noqa: ARG002
        if operand == TEXT_SCORE:
            if self.scores is None:
                self._refuse(place, NO_TEXT)
            self.scores.append(place)
            return nodes.Meta(TEXT_SCORE)
        if operand not in METADATA:
            known = ", ".join(METADATA)
            self._refuse(place, f"must be one of {known}, got {shortened(operand)}")
        return nodes.Meta(operand)

    def _in(self, name: str, operand: Any, place: str) -> Node:
        value, array = operands = self._operands(2, 2, operand, place)
        if isinstance(array, Constant) and isinstance(array.value, list):
            return nodes.InConstant(value, array)
        return OperatorCall(name, operands)

    def _cond(self, name: str, operand: Any, place: str) -> Node:  # noqa: ARG002
        if isinstance(operand, list):
            case, then, default = self._operands(3, 3, operand, place)
        else:
            given = self.named(operand, place, ("if", "then", "else"))
            case, then, default = (self._field(given, n, place) for n in ("if", "then", "else"))
        return nodes.Switch(((case, then),), default)

    def _switch(self, name: str, operand: Any, place: str) -> Node:  # noqa: ARG002
        given = self.named(operand, place, ("branches",), ("default",))
        branches = given["branches"]
        if not isinstance(branches, list) or not branches:
            self._refuse(f"{place}.branches", "must be a list of at least one branch")
        pairs = []
        for i, each in enumerate(branches):
            here = f"{place}.branches.{i}"
            branch = self.named(each, here, ("case", "then"))
            pairs.append((self._field(branch, "case", here), self._field(branch, "then", here)))
        default = self._field(given, "default", place) if "default" in given else None
        return nodes.Switch(tuple(pairs), default)

    def _let(self, name: str, operand: Any, place: str) -> Node:  # noqa: ARG002
        given = self.named(operand, place, ("vars", "in"))
        variables = self.variables(given["vars"], f"{place}.vars")
        inner = self._with(*(each for each, _ in variables))
        return nodes.Let(variables, inner._field(given, "in", place))

    def _map(self, name: str, operand: Any, place: str) -> Node:  # noqa: ARG002
        given = self.named(operand, place, ("input", "in"), ("as",))
        variable = self._variable(given.get("as", "this"), f"{place}.as")
        inside = self._with(variable)._field(given, "in", place)
        return nodes.Map(self._field(given, "input", place), variable, inside)

    def _filter(self, name: str, operand: Any, place: str) -> Node:  # noqa: ARG002
        given = self.named(operand, place, ("input", "cond"), ("as", "limit"))
        variable = self._variable(given.get("as", "this"), f"{place}.as")
        condition = self._with(variable)._field(given, "cond", place)
        limit = self._field(given, "limit", place) if "limit" in given else None
        return nodes.FilterElements(self._field(given, "input", place), variable, condition, limit)

    def _reduce(self, name: str, operand: Any, place: str) -> Node:  # noqa: ARG002
        given = self.named(operand, place, ("input", "initialValue", "in"))
        inside = self._with("value", "this")._field(given, "in", place)
        initial = self._field(given, "initialValue", place)
        return nodes.Reduce(self._field(given, "input", place), initial, inside, _only_adds(inside))

    def _convert(self, name: str, operand: Any, place: str) -> Node:
        found = self._named_call(name, operand, place)
        to = self._field(operand, "to", place)
        if isinstance(to, Constant) and to.value is not None:
            self._check(type_named, to.value, place=f"{place}.to")
        return found

    def _date_from_parts(self, name: str, operand: Any, place: str) -> Node:
        by_week = isinstance(operand, dict) and "isoWeekYear" in operand
        date = ("isoWeekYear", "isoWeek", "isoDayOfWeek") if by_week else ("year", "month", "day")
        others = {"hour": 0, "minute": 0, "second": 0, "millisecond": 0, "timezone": "UTC"}
        given = self.named(operand, place, date[:1], (*date[1:], *others))
        parts = {date[1]: 1, date[2]: 1, **others, **given}
        names = (*date, *others)
        found = (self._field(parts, each, place) for each in names)
        return OperatorCall(name, (Constant.of(by_week), *found))

    def percentile(self, name: str, operand: Any, place: str) -> tuple[Node, tuple[float, ...]]:
        """Parse `$median` or `$percentile`: the input and the points from 0 to 1."""
        points = ("p",) if name == "$percentile" else ()
        given = self.named(operand, place, ("input", *points, "method"))
        if given["method"] != "approximate":
            problem = f"must be 'approximate', got {shortened(given['method'])}"
            self._refuse(f"{place}.method", problem)
        found = given.get("p", [0.5])
        if not isinstance(found, list) or not found or not all(map(_is_point, found)):
            problem = f"must be a list of numbers from 0 to 1, got {shortened(found)}"
            self._refuse(f"{place}.p", problem)
        return self._field(given, "input", place), tuple(found)

    def _percentile(self, name: str, operand: Any, place: str) -> Node:
        value, points = self.percentile(name, operand, place)
        return OperatorCall(name, (value, Constant.of([*points])))

    def _rand(self, name: str, operand: Any, place: str) -> Node:
        if operand not in ({}, []):
            self._refuse(place, f"takes an empty document, got {shortened(operand)}")
        return OperatorCall(name, ())

    def _get_field(self, name: str, operand: Any, place: str) -> Node:
        current: Node = Reference("CURRENT")
        if isinstance(operand, dict) and not str(next(iter(operand), "")).startswith("$"):
            given = self.named(operand, place, ("field", "input"))
            current = self._field(given, "input", place)
            operand, place = given["field"], f"{place}.field"
        field = self.parse(operand, place)
        if isinstance(field, Constant):
            self._check_name(field, place)
        return OperatorCall(name, (field, current))

    def _set_field(self, name: str, operand: Any, place: str) -> Node:
        found = self._by_name(OPERATORS[name], operand, place)
        self._check_name(found[0], f"{place}.field")
        return OperatorCall(name, found)

    def _check_name(self, field: Node, place: str) -> None:
        if not isinstance(field, Constant) or not isinstance(field.value, str):
            problem = "must be the name of a field; one that begins with $ goes in $literal"
            self._refuse(place, problem)

    def _sort_array(self, name: str, operand: Any, place: str) -> Node:
        given = self.named(operand, place, ("input", "sortBy"))
        by, place_of_by = given["sortBy"], f"{place}.sortBy"
        directions = by.values() if isinstance(by, dict) else [by]
        if not directions or any(each not in (1, -1) or each is True for each in directions):
            self._refuse(place_of_by, "must be 1, -1, or a document of fields and these")
        if len(directions) > MAX_SORTED:
            self._refuse(place_of_by, f"must be at most {MAX_SORTED} fields")
        for path in by if isinstance(by, dict) else ():
            if path.startswith("$"):
                problem = "an element of an array has no metadata: the path begins with $"
                self._refuse(f"{place_of_by}.{path}", problem)
            check_keys(path.split("."), f"{place_of_by}.{path}", self._error)
        return OperatorCall(name, (self._field(given, "input", place), Constant.of(by)))

    def _zip(self, name: str, operand: Any, place: str) -> Node:
        given = self.named(operand, place, ("inputs",), ("useLongestLength", "defaults"))
        inputs, longest = given["inputs"], given.get("useLongestLength", False)
        defaults = given.get("defaults")
        if not isinstance(inputs, list) or not inputs:
            self._refuse(f"{place}.inputs", "must be a list of at least one array")
        if not isinstance(longest, bool):
            problem = f"must be true or false, got {shortened(longest)}"
            self._refuse(f"{place}.useLongestLength", problem)
        operands = (self._field(given, "inputs", place), Constant.of(longest))
        if defaults is None:
            return OperatorCall(name, operands)
        if not isinstance(defaults, list) or not longest or len(defaults) != len(inputs):
            problem = "must be a list as long as inputs, with useLongestLength"
            self._refuse(f"{place}.defaults", problem)
        return OperatorCall(name, (*operands, self._field(given, "defaults", place)))


def check_keys(keys: Sequence[str], place: str, error: ErrorMaker) -> None:
    """Raise the error of keys that are no path in a pipeline."""
    for key in keys:
        if not key or key.startswith("$") or "\0" in key:
            problem = "must be a path without empty keys, NUL, and keys that begin with $"
            raise error(place, f"{problem}, got {shortened('.'.join(keys))}")
    if len(keys) > MAX_KEYS:
        raise error(place, f"a path has at most {MAX_KEYS} keys")


def _varies(node: Any) -> bool:
    """Return whether a node has another value for another document or at another time."""
    match node:
        case Meta() | Now() | Reference("ROOT" | "CURRENT") | OperatorCall("$rand"):
            return True
    return False


def _constant(expressions: Sequence[Node]) -> Constant | None:
    """Return an array of constants as a single constant; None: an element is computed."""
    values = [each.value for each in expressions if isinstance(each, Constant)]
    return Constant.of(values) if len(values) == len(expressions) else None


def _only_adds(inside: Node) -> bool:
    """Return whether a `$reduce` uses `$$value` only to add to it."""
    if not isinstance(inside, OperatorCall) or inside.operator not in nodes.IN_PLACE:
        return False
    first, *others = inside.operands or (None,)
    uses = (isinstance(n, Reference) and n.variable == "value" for n in nodes_of((*others,)))
    return first == Reference("value") and len(others) > 0 and not any(uses)


def _is_point(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _stands_alone(operand: Any) -> bool:
    """Return whether an operand is not the document of named operands."""
    return not isinstance(operand, dict) or next(iter(operand), "").startswith("$")


def _number(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least} operands"
    if least == most:
        return f"{least} operand{'s' * (least > 1)}"
    return f"{least} to {most} operands"


READERS: Final[Mapping[str, Callable[[ExpressionParser, Any, Any, str], Node]]] = {
    "$literal": lambda _parser, _name, operand, _place: Constant.of(operand),
    "$meta": ExpressionParser._meta,
    "$and": lambda parser, name, *given: nodes.Logic(name, parser._operands(0, None, *given)),
    "$or": lambda parser, name, *given: nodes.Logic(name, parser._operands(0, None, *given)),
    "$in": ExpressionParser._in,
    "$ifNull": lambda parser, _name, *given: nodes.IfNull(parser._operands(2, None, *given)),
    "$cond": ExpressionParser._cond,
    "$switch": ExpressionParser._switch,
    "$let": ExpressionParser._let,
    "$map": ExpressionParser._map,
    "$filter": ExpressionParser._filter,
    "$reduce": ExpressionParser._reduce,
    "$convert": ExpressionParser._convert,
    "$rand": ExpressionParser._rand,
    "$median": ExpressionParser._percentile,
    "$percentile": ExpressionParser._percentile,
    "$dateFromParts": ExpressionParser._date_from_parts,
    "$getField": ExpressionParser._get_field,
    "$setField": ExpressionParser._set_field,
    "$unsetField": ExpressionParser._set_field,
    "$sortArray": ExpressionParser._sort_array,
    "$zip": ExpressionParser._zip,
}
"""Operators with a syntax of their own; all others are read by their row in `OPERATORS`."""
