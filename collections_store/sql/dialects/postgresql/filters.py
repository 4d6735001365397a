"""The exact form of filters in PostgreSQL: one jsonpath predicate per condition, bound as a parameter, because a GIN
index over the body serves `body @? $1` at any depth.

jsonpath is lax: `X ? (…)` opens an array once, and a comparison or key within opens the array again: `[[1]]` matches
`@ == 1`. Every test therefore tests the type too, and every key after a filter tests for an object first.
Hence no predicate is ever unknown, and `!` is the complement. Containment (`@>`) is never used: `@>` matches parts of
arrays and objects, but MongoDB compares arrays and objects as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Final, TypeAlias

from .... import codec
from ....expressions.path import is_index
from ....expressions.patterns import Pattern
from ....query.conditions import (
    PLAIN_REGEXES,
    WHOLE_ARRAY_TESTS,
    And,
    Compare,
    Condition,
    Equals,
    Exists,
    Fails,
    Field,
    HasElement,
    HasObject,
    HasSize,
    HasType,
    Kind,
    Matches,
    Modulo,
    Not,
    OneOf,
    Operand,
    Or,
    Passes,
    Test,
    Value,
    scalars_of,
    takes_missing,
)
from ....query.filter import leaves
from ....query.shapes import values_of, with_operands
from ..indexed_form import SIGNS
from ..protocols import Binding, Filters, inner_tests

Keys: TypeAlias = tuple[str | int, ...]
Leaf: TypeAlias = Callable[[str], str]

MAX_INDEXES: Final = 3
"""A path with more keys that are numbers runs in the matcher: the jsonpath more than doubles with each."""
MAX_KEYS: Final = 20
_COMPOSITES: Final = frozenset({"array", "object"})
_TYPES: Final = {
    "string": "string",
    "object": "object",
    "array": "array",
    "bool": "boolean",
    "null": "null",
    "number": "number",
}
_SCALARS: Final[frozenset[Kind]] = frozenset({"null", "boolean", "number", "string"})
_FLAT: Final = 100
_TRUE: Final = "1 == 1"
_FALSE: Final = "1 == 0"
_RANGE: Final = "@ >= -9223372036854775808 && @ < 9223372036854775808"


def is_composite(condition: Condition) -> bool:
    """Return whether a shape compares with a whole array or object: jsonpath cannot."""
    match condition:
        case Field(path, Equals(value)):
            has_index = any(is_index(key) for key in path.keys[1:])
            return not has_index and value.kind in _COMPOSITES
    return False


def is_long(condition: Condition) -> bool:
    """Return whether a shape compares a field with many scalars, to be hashed."""
    match condition:
        case Field(path, OneOf(lists, many=True)):
            has_index = any(is_index(key) for key in path.keys[1:])
            return bool(path.keys) and not has_index and all(each.kind != "null" for each in lists)
    return False


class PostgresFilters(Filters):
    """jsonpath predicates."""

    def can_render(self, condition: Condition) -> bool:
        for keys, _ in inner_tests(condition):
            if len(keys) > MAX_KEYS or sum(map(is_index, keys)) > MAX_INDEXES:
                return False
        if any(map(is_long, leaves(condition))):
            return isinstance(
                condition, Field
            )  # what joins it with others is rendered part by part
        if is_composite(condition):
            return True
        if isinstance(condition, Field) and not condition.path.keys:
            # a filter opens an array at the root: a test of the array as a whole has no jsonpath
            whole = isinstance(condition.test, (*WHOLE_ARRAY_TESTS, HasType))
            return not whole and _can_test(condition.test)
        return _can_path(condition)

    def groups(self, conditions: Sequence[Condition]) -> Sequence[Sequence[int]]:
        """Join the conditions served by the index over bodies, and join the rest. The planner estimates that each of
        several conditions matches a hundredth of the documents, and that a scan of the index is the cheapest scan.
        """
        joined = [n for n, each in enumerate(conditions) if self._can_join(each)]
        groups = (
            [n for n in joined if is_served(conditions[n]) is served] for served in (True, False)
        )
        return [group for group in groups if len(group) > 1]

    def _can_join(self, condition: Condition) -> bool:
        """Return whether a shape can be a part of a jsonpath: a test of the whole body stands alone."""
        whole = isinstance(condition, Field) and not condition.path.keys
        alone = whole or is_composite(condition) or is_long(condition)
        return not alone and self.can_render(condition)

    def binding(self, shape: Condition, name: str, positions: tuple[int, ...]) -> Binding:
        """Return a binding with a single parameter for all values. For scalars, the jsonpath is rendered once, with
        marks in place of the values.
        """
        if not {slot.kind for slot in values_of(shape)} <= _SCALARS:
            return Binding((name,), positions, partial(_parameter_with, shape))
        numbers = count()
        marked = with_operands(shape, lambda slot: Value(slot.kind, f"\0{next(numbers)}\0", None))
        pieces = parameter(marked).split("\0")
        order = list(map(int, pieces[1::2]))

        def filled(values: list[Value]) -> tuple[str]:
            parts = pieces.copy()
            parts[1::2] = [values[number].text for number in order]
            return ("".join(parts),)

        return Binding((name,), positions, filled)


def _parameter_with(shape: Condition, values: list[Value]) -> tuple[str]:
    given = iter(values)
    return (parameter(with_operands(shape, lambda _: next(given))),)


def rendered(body: str, condition: Condition, parameter: str) -> str:
    """Return the SQL of a shape; `parameter` is the parameter of `binding`."""
    if is_long(condition) and isinstance(condition, Field):
        return _among(body, condition, parameter)
    if is_composite(condition) and isinstance(condition, Field):
        return _equals_whole(body, condition, parameter)
    matches = f"{body} @? CAST({parameter} AS jsonpath)"
    if not is_served(condition):
        # for `@?` the planner would cost a scan of the index over bodies that returns every row
        matches = f"jsonb_path_exists({body}, CAST({parameter} AS jsonpath), '{{}}', true)"
    if isinstance(condition, Field) and not condition.path.keys:
        return matches
    if matches_scalar_body(condition):
        return f"(jsonb_typeof({body}) <> 'object' OR {matches})"
    return f"({matches} AND jsonb_typeof({body}) = 'object')"


def _among(body: str, condition: Field, parameter: str) -> str:
    """Look up each value of a document by hash: a jsonpath would try all values in the filter's list."""
    path = f"{path_literal(condition.path.keys)}[*]"
    listed = f"SELECT * FROM jsonb_array_elements(CAST({parameter} AS JSONB))"
    return (
        f"(EXISTS (SELECT 1 FROM jsonb_path_query({body}, '{path}') AS found(value) "
        f"WHERE (found.value IN ({listed})) IS TRUE) AND jsonb_typeof({body}) = 'object')"
    )


def _equals_whole(body: str, condition: Field, parameter: str) -> str:
    path = path_literal(condition.path.keys)
    tests = (
        f"EXISTS (SELECT 1 FROM jsonb_path_query({body}, {found}) AS found(value) "
        f"WHERE found.value = CAST({parameter} AS JSONB))"
        for found in (f"'{path}'", f"'{path}[*]'")
    )
    equals = f"({' OR '.join(tests)})"
    return f"({equals} AND jsonb_typeof({body}) = 'object')" if condition.path.keys else equals


def parameter(condition: Condition) -> str:
    """Return the parameter of a condition: a jsonpath, or the JSON to compare with."""
    match condition:
        case Field(path, Equals(Value() as value)) if is_composite(condition):
            return value.text
        case Field(path, OneOf(lists)) if is_long(condition):
            return f"[{','.join(_text(each)[1:-1] for each in lists)}]"
        case Field(path, test) if not path.keys or _is_filter(path.keys, test):
            return f"${''.join(map(_accessor, path.keys))} ? ({_test(test)})"
    return f"$ ? ({_predicate(condition)})"


def _is_filter(keys: tuple[str, ...], test: Test) -> bool:
    """Return whether the predicate of a field is a filter of the values at the keys, and nothing else: a scan takes a tenth
    longer if the filter stands in an `exists` of another.
    """
    if isinstance(test, WHOLE_ARRAY_TESTS) or takes_missing(test):
        return False
    finds_arrays = isinstance(test, HasType) and "array" in test.types
    return not finds_arrays and not any(map(is_index, keys[1:]))


def matches_scalar_body(condition: Condition) -> bool:
    """Return whether a shape holds for a non-object body."""
    match condition:
        case Field(_, test):
            return takes_missing(test)
        case And(conditions):
            return all(map(matches_scalar_body, conditions))
        case Or(conditions):
            return any(map(matches_scalar_body, conditions))
        case Not(inner):
            return not matches_scalar_body(inner)
    raise AssertionError(condition)


def _can_path(condition: Condition) -> bool:
    every = leaves(condition)
    return all(
        isinstance(each, Field) and each.path.keys and _can_test(each.test) for each in every
    )


def _can_test(test: Test) -> bool:
    match test:
        case Equals(value) | Compare(_, value):
            return value.kind not in _COMPOSITES
        case HasType(types):
            return set(types) <= _TYPES.keys()
        case Matches(pattern):
            return pattern.kind in PLAIN_REGEXES
        case HasElement(tests) | Fails(tests) | Passes(tests):
            return all(map(_can_test, tests))
        case HasObject(condition):
            return _can_path(condition)
    return isinstance(test, OneOf | Exists | HasSize | Modulo)


def _predicate(condition: Condition, *, as_array: bool = False) -> str:
    """Return the predicate over `@`, an object, or an array seen as an object whose keys are positions."""
    match condition:
        case Field(path, test):
            keys: Keys = path.keys
            if as_array and not is_index(path.keys[0]):
                return _TRUE if takes_missing(test) else _FALSE
            if as_array:
                keys = (int(path.keys[0]), *path.keys[1:])
            return _field(keys, test)
        case And(conditions):
            return _joined(" && ", (_predicate(each, as_array=as_array) for each in conditions))
        case Or(conditions):
            return _joined(" || ", (_predicate(each, as_array=as_array) for each in conditions))
        case Not(inner):
            return f"!({_predicate(inner, as_array=as_array)})"
    raise AssertionError(condition)


def _field(keys: Keys, test: Test) -> str:
    if isinstance(test, WHOLE_ARRAY_TESTS):
        return _joined(" || ", _reaches(keys, lambda value: _whole(value, test)))
    tests = list(_reaches(keys, lambda value: f"exists({value} ? ({_test(test)}))", opened=True))
    if isinstance(test, HasType) and "array" in test.types:  # a filter never sees it: it opens it
        tests.extend(_reaches(keys, lambda value: f'{value}.type() == "array"'))
    if takes_missing(test):
        tests.append(_missing(keys))
    return _joined(" || ", tests)


def _reaches(keys: Keys, leaf: Leaf, *, opened: bool = False) -> Iterable[str]:
    """Yield the predicates from `@`, an object, along `keys` to the values tested by `leaf`."""
    *holders, last = map(_accessor, keys)
    holder = "".join(holders)
    value = f"@{last}"
    if not holder:
        yield leaf(value)
    elif opened:
        yield leaf(f"@{holder}{last}")
    else:
        yield f'exists(@{holder} ? (@.type() == "object" && ({leaf(value)})))'
    for depth in range(1, len(keys)):
        if is_index(str(keys[depth])):
            *holders, last = map(_accessor, keys[:depth])
            inside = _in_element(f"@{last}", keys[depth:], leaf, opened)
            holder = "".join(holders)
            yield f'exists(@{holder} ? (@.type() == "object" && {inside}))' if holder else inside


def _in_element(array: str, keys: Keys, leaf: Leaf, opened: bool) -> str:
    """Return the predicate: the element at the index `keys[0]`, followed along the rest. An element where the path
    ends is not opened.
    """
    element, rest = f"{array}[{keys[0]}]", keys[1:]
    if not rest:
        tests = [f'{element}.type() != "array" && {leaf(element)}' if opened else leaf(element)]
    else:
        on = _joined(" || ", _reaches(rest, leaf, opened=opened))
        tests = [
            f'{element}.type() == "object" && exists({element} ? ({on}))',
            f'{element}.type() == "array" && exists({element} ? (@.type() == "object" && {on}))',
        ]
        if is_index(str(rest[0])):
            tests.append(_in_element(element, rest, leaf, opened))
    return f'({array}.type() == "array" && {_joined(" || ", (f"({each})" for each in tests))})'


def _missing(keys: Keys) -> str:
    """Return the predicate over `@`, an object: nothing is at `keys`. An array on the path is opened: an object in the
    array lacks the rest.
    """
    field, rest = f"@{_accessor(keys[0])}", keys[1:]
    if not rest:
        return f"!exists({field})"
    tests = [
        f"!exists({field})",
        f'({field}.type() != "array" && {field}.type() != "object")',
        f'exists({field} ? (@.type() == "object" && {_missing(rest)}))',
    ]
    if is_index(str(rest[0])) and len(rest) > 1:
        tests.append(_missing_in(field, rest))
    return _joined(" || ", tests)


def _missing_in(array: str, keys: Keys) -> str:
    element, rest = f"{array}[{keys[0]}]", keys[1:]
    inner = [f'exists({element} ? (@.type() == "object" && {_missing(rest)}))']
    if is_index(str(rest[0])) and len(rest) > 1:
        inner.append(_missing_in(element, rest))
    return (
        f'({array}.type() == "array" && (({element}.type() == "object" && '
        f"exists({element} ? ({_missing(rest)}))) || "
        f'({element}.type() == "array" && {_joined(" || ", inner)})))'
    )


def _whole(value: str, test: Test) -> str:
    """Return the predicate: the value at an accessor passes as a whole."""
    match test:
        case Exists():
            return f"exists({value})"
        case HasSize(size):
            return f'({value}.type() == "array" && {value}.size() == {_text(size)})'
        case HasElement(tests):
            inside = _joined(" && ", map(_test, tests))
            return f'({value}.type() == "array" && exists({value} ? ({inside})))'
        case HasObject(condition):
            views = [f'(@.type() == "object" && {_predicate(condition)})']
            fields = [each for each in leaves(condition) if isinstance(each, Field)]
            names_positions = any(is_index(each.path.keys[0]) for each in fields)
            if names_positions or matches_scalar_body(condition):
                as_array = _predicate(condition, as_array=True)
                views.append(f'(@.type() == "array" && {as_array})')
            return f'({value}.type() == "array" && exists({value} ? ({" || ".join(views)})))'
    raise AssertionError(test)


def _test(test: Test) -> str:
    """Return the predicate over `@`, a single value."""
    match test:
        case Equals(value):
            return _compares("==", value)
        case OneOf(lists):
            return _joined(
                " || ",
                (_compares("==", Value.of(each)) for one in lists for each in scalars_of(one)),
            )
        case Compare(operator, value):
            return _compares(SIGNS[operator], value)
        case HasType(types):
            return _joined(" || ", (f'@.type() == "{_TYPES[name]}"' for name in types))
        case Matches(Value(value=pattern)):
            return f'(@.type() == "string" && @ like_regex {codec.spell(_regex(pattern))})'
        case Modulo(divisor, remainder):
            d, r = _text(divisor), _text(remainder)
            halves = f"(@ >= 0 && @.floor() % {d} == {r}) || (@ < 0 && @.ceiling() % {d} == {r})"
            return f'(@.type() == "number" && {_RANGE} && ({halves}))'
        case Fails(tests):
            return f"!({_joined(' && ', map(_test, tests))})"
        case Passes(tests):
            return _joined(" || ", map(_test, tests))
        case Exists():
            return _TRUE
    return _whole("@", test)


def _regex(pattern: Pattern) -> str:
    """Return a pattern of `PLAIN_REGEXES` in PostgreSQL's syntax. No option ignores case: the result would depend on
    the locale.
    """
    found = pattern.characters
    assert found is not None
    sets = ("".join(map(_character, each)) for each in found.sets)
    listed = (
        text if len(each) == 1 else f"[{text}]" for each, text in zip(found.sets, sets, strict=True)
    )
    return f"{'^' if found.anchored else ''}{''.join(listed)}"


def _character(character: str) -> str:
    is_plain = character.isalnum() or not character.isascii()
    return character if is_plain else f"\\u{ord(character):04x}"


def _compares(sign: str, value: Operand) -> str:
    return f'(@ {sign} {_text(value)} && @.type() == "{value.kind}")'


def _accessor(key: str | int) -> str:
    return f"[{key}]" if isinstance(key, int) else f".{codec.spell(key)}"


def path_literal(keys: tuple[str, ...]) -> str:
    """Return a jsonpath for the inside of an SQL literal. A percent sign is escaped as in jsonpath: the driver would
    take the sign for a parameter.
    """
    text = "".join(map(_accessor, keys))
    return "$" + text.replace("%", "\\u0025").replace("'", "''")


def _text(value: Operand) -> str:
    assert isinstance(value, Value)
    return value.text


def _joined(operator: str, parts: Iterable[str]) -> str:
    every = list(parts)
    if not every:
        return f"({_TRUE if operator == ' && ' else _FALSE})"
    if len(every) <= _FLAT:
        return f"({operator.join(every)})"
    half = len(every) // 2  # a long chain overflows PostgreSQL's stack
    return f"({_joined(operator, every[:half])}{operator}{_joined(operator, every[half:])})"


def is_served(condition: Condition) -> bool:
    """Return whether the index over bodies finds the documents of a shape: the index has the scalars at the ends of
    paths, but no missing values.
    """
    match condition:
        case Field(path, test):
            return not path.keys or (_finds_scalars(test) and not takes_missing(test))
        case And(conditions):
            return any(map(is_served, conditions))
        case Or(conditions):
            return all(map(is_served, conditions))
    return False


def _finds_scalars(test: Test) -> bool:
    match test:
        case Equals() | OneOf():
            return True
        case HasElement(tests):
            return any(map(_finds_scalars, tests))
        case Passes(tests):
            return all(map(_finds_scalars, tests))
        case HasObject(condition):
            return is_served(condition)
    return False
