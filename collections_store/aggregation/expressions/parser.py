"""Aggregation expressions, read: what MongoDB's server accepts, and an error that names the place
for whatever it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NoReturn

from ...errors import InvalidFilter, shortened
from ...query.path import MAX_KEYS, Path
from .nodes import (
    METADATA,
    Absent,
    ArrayOf,
    Choice,
    Constant,
    Convert,
    FirstThere,
    Fold,
    Formula,
    Let,
    Logic,
    Map,
    Meta,
    ObjectOf,
    OperatorCall,
    Reference,
    Select,
)
from .objects import type_named
from .operands import Unfit
from .operators import OPERATORS, UNSUPPORTED, Operator
from .strings import read

MAX_NESTING: Final = 100
"""How deep a formula's JSON may be nested; evaluating takes a few calls for each level."""
MAX_SORTED: Final = 32
"""Fields that `$sortArray` sorts by: as many as `$sort` does."""
SYSTEM_VARIABLES: Final = frozenset({"ROOT", "CURRENT", "REMOVE"})
_VARIABLE: Final = re.compile(r"([a-z]|[^\x00-\x7f])(\w|[^\x00-\x7f])*")
_CONVERSIONS: Final = {
    "$toString": "string",
    "$toInt": "int",
    "$toLong": "long",
    "$toDouble": "double",
    "$toBool": "bool",
}
ErrorMaker = Callable[[str, str], Exception]


class ExpressionParser:
    """Reads formulas of plain JSON; `error` makes the error of a place and a problem."""

    def __init__(self, error: ErrorMaker, variables: frozenset[str] = frozenset()) -> None:
        self._error, self._variables = error, variables

    def formula(self, what: Any, place: str) -> Formula:
        """Read an expression; it must not be nested too deep (`check_nesting`)."""
        match what:
            case str() if what.startswith("$"):
                return self._reference(what, place)
            case list():
                elements = self._every(what, place)
                return _constant([*elements]) or ArrayOf(elements)
            case dict():
                return self._object(what, place)
        return Constant.of(what)

    def check_nesting(self, what: Any, place: str) -> None:
        """Raise the error of JSON that is nested too deep."""
        level = [what]
        for _ in range(MAX_NESTING + 1):
            level = [below for each in level for below in _below(each)]
            if not level:
                return
        self._refuse(place, f"nested deeper than {MAX_NESTING} levels")

    def _refuse(self, place: str, problem: str) -> NoReturn:
        raise self._error(place, problem)

    def _with(self, *names: str) -> ExpressionParser:
        return ExpressionParser(self._error, self._variables | set(names))

    def _every(self, operands: list[Any], place: str) -> tuple[Formula, ...]:
        return tuple([self.formula(each, f"{place}.{i}") for i, each in enumerate(operands)])

    def _reference(self, text: str, place: str) -> Formula:
        dotted = text[2:] if text.startswith("$$") else f"CURRENT.{text[1:]}"
        variable, *keys = dotted.split(".")
        if any(not key or key.startswith("$") or "\0" in key for key in keys):
            self._refuse(place, f"{shortened(text)} is no path: a key is empty, or begins with $")
        if len(keys) > MAX_KEYS:
            self._refuse(place, f"a path has at most {MAX_KEYS} keys")
        if variable not in self._variables | SYSTEM_VARIABLES:
            self._refuse(place, f"there is no variable {shortened(variable)}")
        return Absent(given=True) if variable == "REMOVE" else Reference(variable, tuple(keys))

    def _object(self, what: dict[str, Any], place: str) -> Formula:
        first = next(iter(what), "")
        if first.startswith("$"):
            if len(what) > 1:
                self._refuse(
                    place, f"{first} must stand alone, not beside {shortened(list(what)[1])}"
                )
            return self._operator(first, what[first], f"{place}.{first}")
        for key in what:
            if key.startswith("$") or "." in key or not key:
                self._refuse(
                    f"{place}.{key}", "a field's name is not empty, has no dot, and no $ in front"
                )
        fields = [(key, self.formula(each, f"{place}.{key}")) for key, each in what.items()]
        constant = _constant([each for _, each in fields])
        if constant is not None:
            return Constant.of(dict(zip(what, constant.value, strict=True)))
        return ObjectOf(tuple(fields))

    def _operator(self, name: str, operand: Any, place: str) -> Formula:
        reader = _READERS.get(name)
        if reader is not None:
            return reader(self, name, operand, place)
        operator = OPERATORS.get(name)
        if operator is None:
            there = name in UNSUPPORTED
            self._refuse(place, "this operator is not supported" if there else "no such operator")
        if operator.names:
            return self._of_names(name, operator, operand, place)
        return OperatorCall(name, self._operands(operator.least, operator.most, operand, place))

    def _operands(
        self, least: int, most: int | None, operand: Any, place: str
    ) -> tuple[Formula, ...]:
        if not isinstance(operand, list):
            found: tuple[Formula, ...] = (self.formula(operand, place),)
        else:
            found = self._every(operand, place)
        if not least <= len(found) <= (len(found) if most is None else most):
            self._refuse(place, f"takes {_number(least, most)}, not {len(found)}")
        return found

    def _of_names(self, name: str, operator: Operator, operand: Any, place: str) -> Formula:
        required, optional = operator.names[: operator.least], operator.names[operator.least :]
        given = self._named(operand, place, required, optional)
        operands = [
            self.formula(given[each], f"{place}.{each}") if each in given else Absent()
            for each in operator.names
        ]
        if "regex" in given:
            self._check_pattern(given, place)
        return OperatorCall(name, tuple(operands))

    def _named(
        self, operand: Any, place: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        if not isinstance(operand, dict):
            self._refuse(place, f"needs a document of {', '.join((*required, *optional))}")
        for name in required:
            if name not in operand:
                self._refuse(place, f"needs {name}")
        for name in operand:
            if name not in required and name not in optional:
                known = ", ".join((*required, *optional))
                self._refuse(f"{place}.{name}", f"is not one of {known}")
        return operand

    def _check_pattern(self, given: Mapping[str, Any], place: str) -> None:
        pattern, options = given["regex"], given.get("options") or ""
        if all(isinstance(each, str) and not each.startswith("$") for each in (pattern, options)):
            try:
                read(pattern, options)
            except Unfit as error:
                self._refuse(f"{place}.regex", error.problem)

    def _variable(self, name: Any, place: str) -> str:
        if name != "CURRENT" and not (isinstance(name, str) and _VARIABLE.fullmatch(name)):
            self._refuse(place, f"a variable begins with a small letter: {shortened(name)}")
        return str(name)

    # -- operators that read their operands in a way of their own ------------------------------

    def _literal(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        return Constant.of(operand)

    def _meta(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        if operand not in METADATA:
            self._refuse(place, f"{shortened(operand)} is not one of {', '.join(METADATA)}")
        return Meta(operand)

    def _logic(self, name: Any, operand: Any, place: str) -> Formula:
        operator: Literal["$and", "$or"] = name
        return Logic(operator, self._operands(0, None, operand, place))

    def _if_null(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        return FirstThere(self._operands(2, None, operand, place))

    def _cond(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        if isinstance(operand, list):
            case, then, otherwise = self._operands(3, 3, operand, place)
        else:
            names = ("if", "then", "else")
            given = self._named(operand, place, names)
            case, then, otherwise = (self.formula(given[n], f"{place}.{n}") for n in names)
        return Choice(((case, then),), otherwise)

    def _switch(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        given = self._named(operand, place, ("branches",), ("default",))
        branches = given["branches"]
        if not isinstance(branches, list) or not branches:
            self._refuse(f"{place}.branches", "needs a list of branches, with one at least")
        read = tuple(
            [self._branch(each, f"{place}.branches.{i}") for i, each in enumerate(branches)]
        )
        default = self.formula(given["default"], f"{place}.default") if "default" in given else None
        return Choice(read, default)

    def _branch(self, branch: Any, place: str) -> tuple[Formula, Formula]:
        given = self._named(branch, place, ("case", "then"))
        return self.formula(given["case"], f"{place}.case"), self.formula(
            given["then"], f"{place}.then"
        )

    def _let(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        given = self._named(operand, place, ("vars", "in"))
        variables = self.variables(given["vars"], f"{place}.vars")
        inside = self._with(*(each for each, _ in variables))
        return Let(variables, inside.formula(given["in"], f"{place}.in"))

    def variables(self, given: Any, place: str) -> tuple[tuple[str, Formula], ...]:
        """Read a document of variables and what they are."""
        if not isinstance(given, dict):
            self._refuse(place, "needs a document of variables")
        pairs = [
            (self._variable(name, f"{place}.{name}"), self.formula(each, f"{place}.{name}"))
            for name, each in given.items()
        ]
        return tuple(pairs)

    def _map(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        given = self._named(operand, place, ("input", "in"), ("as",))
        variable = self._variable(given.get("as", "this"), f"{place}.as")
        inside = self._with(variable).formula(given["in"], f"{place}.in")
        return Map(self.formula(given["input"], f"{place}.input"), variable, inside)

    def _filter(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        given = self._named(operand, place, ("input", "cond"), ("as", "limit"))
        variable = self._variable(given.get("as", "this"), f"{place}.as")
        condition = self._with(variable).formula(given["cond"], f"{place}.cond")
        limit = self.formula(given["limit"], f"{place}.limit") if "limit" in given else Absent()
        return Select(self.formula(given["input"], f"{place}.input"), variable, condition, limit)

    def _reduce(self, name: str, operand: Any, place: str) -> Formula:  # noqa: ARG002
        given = self._named(operand, place, ("input", "initialValue", "in"))
        inside = self._with("value", "this").formula(given["in"], f"{place}.in")
        initial = self.formula(given["initialValue"], f"{place}.initialValue")
        return Fold(self.formula(given["input"], f"{place}.input"), initial, inside)

    def _convert(self, name: str, operand: Any, place: str) -> Formula:
        given = self._named(operand, place, ("input", "to"), ("onError", "onNull"))
        read = {each: self.formula(given[each], f"{place}.{each}") for each in given}
        self._check_type(read["to"], f"{place}.to")
        return Convert(name, read["input"], read["to"], read.get("onError"), read.get("onNull"))

    def _check_type(self, wanted: Formula, place: str) -> None:
        try:
            if isinstance(wanted, Constant) and wanted.value is not None:
                type_named(wanted.value)
        except Unfit as error:
            self._refuse(place, error.problem)

    def _convert_to(self, name: str, operand: Any, place: str) -> Formula:
        (value,) = self._operands(1, 1, operand, place)
        return Convert(name, value, Constant.of(_CONVERSIONS[name]))

    def _get_field(self, name: str, operand: Any, place: str) -> Formula:
        current: Formula = Reference("CURRENT")
        if isinstance(operand, dict) and not str(next(iter(operand), "")).startswith("$"):
            given = self._named(operand, place, ("field",), ("input",))
            operand, place = given["field"], f"{place}.field"
            if "input" in given:
                current = self.formula(given["input"], f"{place.removesuffix('.field')}.input")
        return OperatorCall(name, (self._field_name(operand, place, computed=True), current))

    def _set_field(self, name: str, operand: Any, place: str) -> Formula:
        names = ("field", "input", "value") if name == "$setField" else ("field", "input")
        given = self._named(operand, place, names)
        field = self._field_name(given["field"], f"{place}.field")
        return OperatorCall(
            name, (field, *(self.formula(given[n], f"{place}.{n}") for n in names[1:]))
        )

    def _field_name(self, what: Any, place: str, *, computed: bool = False) -> Formula:
        found = self.formula(what, place)
        if computed and not isinstance(found, Constant):
            return found
        if not isinstance(found, Constant) or not isinstance(found.value, str):
            self._refuse(place, "needs the name of a field; one that begins with $ in $literal")
        return found

    def _sort_array(self, name: str, operand: Any, place: str) -> Formula:
        given = self._named(operand, place, ("input", "sortBy"))
        by = given["sortBy"]
        directions = by.values() if isinstance(by, dict) else [by]
        if not directions or any(each not in (1, -1) or each is True for each in directions):
            self._refuse(f"{place}.sortBy", "needs 1, -1, or a document of fields and these")
        if len(directions) > MAX_SORTED:
            self._refuse(f"{place}.sortBy", f"more than {MAX_SORTED} fields")
        for path in by if isinstance(by, dict) else ():
            self._check_path(path, f"{place}.sortBy.{path}")
        return OperatorCall(name, (self.formula(given["input"], f"{place}.input"), Constant.of(by)))

    def _check_path(self, dotted: str, place: str) -> None:
        if dotted.startswith("$"):
            self._refuse(place, "an element of an array has no metadata: the path begins with $")
        try:
            Path.parse(dotted)
        except InvalidFilter as error:
            self._refuse(place, error.problem)

    def _zip(self, name: str, operand: Any, place: str) -> Formula:
        given = self._named(operand, place, ("inputs",), ("useLongestLength", "defaults"))
        inputs, longest = given["inputs"], given.get("useLongestLength", False)
        defaults = given.get("defaults")
        if not isinstance(inputs, list) or not inputs:
            self._refuse(f"{place}.inputs", "needs a list of arrays, with one at least")
        if not isinstance(longest, bool):
            self._refuse(f"{place}.useLongestLength", "needs true or false")
        if defaults is not None and (not isinstance(defaults, list) or not longest):
            self._refuse(f"{place}.defaults", "needs a list, and useLongestLength")
        if defaults is not None and len(defaults) != len(inputs):
            self._refuse(f"{place}.defaults", "needs as many as there are inputs")
        fill = Absent() if defaults is None else self.formula(defaults, f"{place}.defaults")
        every = self.formula(inputs, f"{place}.inputs")
        return OperatorCall(name, (every, Constant.of(longest), fill))


def _constant(formulas: list[Formula]) -> Constant | None:
    """Return an array of constants as one; None: something is computed."""
    values = [each.value for each in formulas if isinstance(each, Constant)]
    return Constant.of(values) if len(values) == len(formulas) else None


def _below(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
    return ()


def _number(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least} operands"
    if least == most:
        return f"{least} operand{'s' * (least > 1)}"
    return f"{least} to {most} operands"


_READERS: Final[Mapping[str, Callable[[ExpressionParser, Any, Any, str], Formula]]] = {
    "$literal": ExpressionParser._literal,
    "$meta": ExpressionParser._meta,
    "$and": ExpressionParser._logic,
    "$or": ExpressionParser._logic,
    "$ifNull": ExpressionParser._if_null,
    "$cond": ExpressionParser._cond,
    "$switch": ExpressionParser._switch,
    "$let": ExpressionParser._let,
    "$map": ExpressionParser._map,
    "$filter": ExpressionParser._filter,
    "$reduce": ExpressionParser._reduce,
    "$convert": ExpressionParser._convert,
    **dict.fromkeys(_CONVERSIONS, ExpressionParser._convert_to),
    "$getField": ExpressionParser._get_field,
    "$setField": ExpressionParser._set_field,
    "$unsetField": ExpressionParser._set_field,
    "$sortArray": ExpressionParser._sort_array,
    "$zip": ExpressionParser._zip,
}
