"""The exact form of filters in SQLite: every value tested with its type, every array opened by `json_each`.

`T` is a value's type (`json_type`), `V` the value (`json_extract`). No test uses V alone: in V true is 1, an array is
JSON text, and a string is more than any number. JSON's null and a missing value are both NULL in V; in T null is
'null', and a missing value is NULL.

Tests beyond SQL are functions in Python (`functions`). Rules:

1. A function takes a single text: the operand of a filter and the text of the database, joined by `||` (`packed`).
2. SQLite reports an exception of a function as "user-defined function raised exception". The exception is stored, and
   raised again unchanged (`raised_within`): Ctrl-C, a cancellation, the limit of a pattern.
3. A function is the `send` of a generator, and the generator continues within a `try`. Python runs signal handlers at
   the first instruction of a function, where nothing catches an exception of a handler.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeAlias, TypeGuard

from .... import codec
from ....expressions import values
from ....expressions.collation import keyed, stored_key
from ....expressions.path import is_index
from ....expressions.patterns import compiled
from ....query.conditions import (
    WHOLE_ARRAY_TESTS,
    And,
    Bits,
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
    Parameter,
    Passes,
    Test,
    Value,
    takes_missing,
)
from ....query.shapes import values_of, with_sql
from ....search.words import words_of
from ..indexed_form import SIGNS
from ..protocols import Binding, Filters, Function, inner_tests

Steps: TypeAlias = tuple[str | int, ...]

MAX_WALK: Final = 5
"""A path with more keys, those within `$elemMatch` included, runs in the matcher: the SQL doubles with each."""
MAX_VALUES: Final = 100
"""A condition with more values runs in the matcher: SQLite's expressions end at a depth of 1,000."""
MAX_NESTING: Final = 15
"""SQL with deeper parentheses runs in the matcher: from 19 on they can overflow the parser of SQLite 3.40 (measured over
576 shapes), and the statement around them has some too."""

_MAX_PATTERN: Final = 1_000
"""Characters of a string or a key up to which a scan first looks for it in the text of a body."""
_PLAIN_KEY: Final = re.compile(rf"[0-9A-Za-z _.:-]{{1,{_MAX_PATTERN}}}").fullmatch
_LITERAL: Final = re.compile(r"'(?:[^']|'')*'")
_NUMBERS: Final = "IN ('integer', 'real')"
_TESTS: Final = (
    *(Equals, OneOf, Compare, HasType, Matches, Modulo, Bits, Exists, HasSize),
    *(HasElement, HasObject, Fails, Passes),
)
"""The tests that `_Writer.test` renders."""
_AS_THEY_ARE: Final[frozenset[Kind]] = frozenset({"null", "number", "string"})
TYPES: Final = {
    "double": "{T} = 'real'",
    "string": "{T} = 'text'",
    "object": "{T} = 'object'",
    "array": "{T} = 'array'",
    "bool": "{T} IN ('true', 'false')",
    "null": "{T} = 'null'",
    "int": "({T} = 'integer' AND {V} BETWEEN -2147483648 AND 2147483647)",
    "long": "({T} = 'integer' AND {V} NOT BETWEEN -2147483648 AND 2147483647)",
    "number": "{T} " + _NUMBERS,
}
_BITS: Final = {
    "$bitsAllSet": "{common} = {mask}",
    "$bitsAllClear": "{common} = 0",
    "$bitsAnySet": "{common} <> 0",
    "$bitsAnyClear": "{common} <> {mask}",
}


class SqliteFilters(Filters):
    """Tests of `json_type` and `json_extract`."""

    def can_render(self, condition: Condition) -> bool:
        """Return whether SQL expresses a shape and SQLite's parser accepts the SQL. SQLite 3.40 cannot address a key
        with a double quote.
        """
        if len(values_of(condition)) > MAX_VALUES:
            return False
        for keys, test in inner_tests(condition):
            if not isinstance(test, _TESTS) or len(keys) > MAX_WALK or any('"' in k for k in keys):
                return False
        sql = rendered("body", condition, (f":p{number}" for number in count()))
        depth = [0]
        for parenthesis in re.findall(r"[()]", _LITERAL.sub("", sql)):
            depth.append(depth[-1] + (1 if parenthesis == "(" else -1))
        return max(depth) <= MAX_NESTING

    def binding(self, shape: Condition, name: str, positions: tuple[int, ...]) -> Binding:
        """Return a binding with a parameter for each value."""
        if {slot.kind for slot in values_of(shape)} <= _AS_THEY_ARE:
            return Binding.as_they_are(positions)
        names = tuple(f"{name}_{number}" for number in range(len(positions)))
        return Binding(names, positions, _converted)


def rendered(
    body: str, condition: Condition, parameters: Iterator[str], *, is_text: bool = True
) -> str:
    """Return the SQL of a shape over the JSON text `body`, or over JSONB."""
    writer = _Writer(body if is_text else None)
    return writer.condition(body, with_sql(condition, lambda _: (next(parameters),)))


def path_literal(steps: Steps) -> str:
    """Return a JSON path as an SQL literal: a string names a key, a number an element of an array."""
    text = "".join(f"[{s}]" if isinstance(s, int) else f".{codec.spell(s)}" for s in steps)
    return "'$" + text.replace("'", "''") + "'"


def _converted(values: list[Value]) -> list[Any]:
    return [_bound(value) for value in values]


def _bound(value: Value) -> Any:
    match value.kind:
        case kind if kind in _AS_THEY_ARE:
            return value.value
        case "plain regex" | "prefix regex":
            return value.value.characters.text
        case "regex" | "cased regex":
            return packed(f"{value.value.options}/{value.value.pattern}")
        case "array" | "object":
            return packed(value.text)
        case "booleans":
            return codec.spell([codec.spell(each) for each in value.value])
    return value.text


class _Writer:
    """Renderer of conditions, of the positions reached by a path, and of tests (`matcher`, rules 1 to 4).

    `body` is the SQL of a JSON text. `done` are the steps in the JSON to the beginning of a path: empty at an object,
    and ending in an index within an array. `stored` is the SQL of the whole body, if the body is text: a search in JSONB would end at the
    first null, a zero byte.
    """

    def __init__(self, stored: str | None) -> None:
        self._stored = stored
        self._aliases = (f"e{number}" for number in count(1))

    def condition(self, body: str, condition: Condition, *, as_array: bool = False) -> str:
        """Render a condition; `as_array`: `body` is an array, seen as an object whose keys are positions."""
        match condition:
            case Field(path, test):
                return self._field(body, path.keys, test, as_array)
            case And(conditions):
                return _joined(
                    " AND ", (self.condition(body, c, as_array=as_array) for c in conditions)
                )
            case Or(conditions):
                return _joined(
                    " OR ", (self.condition(body, c, as_array=as_array) for c in conditions)
                )
            case Not(inner):
                return f"({self.condition(body, inner, as_array=as_array)} IS NOT TRUE)"
        raise AssertionError(condition)

    def _field(self, body: str, keys: Steps, test: Test, as_array: bool) -> str:
        if not keys:
            return _joined(" OR ", self._leaf(body, (), test))
        if as_array and is_index(str(keys[0])):
            keys = (int(keys[0]), *keys[1:])
        elif as_array:
            body = "'{}'"
        along = _joined(" OR ", self._along(body, (), keys, test))
        if not _is_plain(test):
            return along
        necessary = _may_equal(body, keys, test.value)
        if body == self._stored:
            necessary = f"{_may_contain(body, keys[-1], test.value)} AND {necessary}"
        return f"({necessary} AND {along})"

    def _along(self, body: str, done: Steps, rest: Steps, test: Test) -> Iterator[str]:
        yield from self._leaf(body, (*done, *rest), test)
        if takes_missing(test):
            yield _missing(body, done, rest)
        for depth in range(0 if done else 1, len(rest)):
            yield from self._through_array(body, (*done, *rest[:depth]), rest[depth:], test)

    def _leaf(self, body: str, steps: Steps, test: Test) -> Iterator[str]:
        """Yield the tests of the value and, for an array, of the elements."""
        path = path_literal(steps)
        yield self.test(f"json_type({body}, {path})", f"json_extract({body}, {path})", test)
        if not isinstance(test, WHOLE_ARRAY_TESTS):
            element = next(self._aliases)
            inside = self.test(f"{element}.type", f"{element}.value", test)
            yield f"({_is_array(body, path)} AND {_some(body, path, element)} WHERE {inside}))"

    def _through_array(self, body: str, steps: Steps, rest: Steps, test: Test) -> Iterator[str]:
        path, element = path_literal(steps), next(self._aliases)
        inside = _joined(" OR ", self._along(f"{element}.value", (), rest, test))
        some = f"{_some(body, path, element)} WHERE {element}.type = 'object' AND {inside})"
        yield f"({_is_array(body, path)} AND {some})"
        if is_index(str(rest[0])):
            into = self._in_element(body, (*steps, int(rest[0])), rest[1:], test)
            yield f"({_is_array(body, path)} AND {_joined(' OR ', into)})"

    def _in_element(self, body: str, done: Steps, rest: Steps, test: Test) -> Iterator[str]:
        """Yield the tests of an array's element. At the end of the path, an element is not opened."""
        if rest:
            yield from self._along(body, done, rest, test)
        else:
            path = path_literal(done)
            yield self.test(f"json_type({body}, {path})", f"json_extract({body}, {path})", test)

    def test(self, T: str, V: str, test: Test) -> str:  # noqa: N803
        """Render a test of the value V of type T."""
        match test:
            case Equals(value):
                return _equals(T, V, value)
            case OneOf(lists):
                return _joined(" OR ", (_among(T, V, each) for each in lists))
            case Compare(operator, value):
                return _compares(T, V, SIGNS[operator], value)
            case HasType(types):
                return _joined(" OR ", (TYPES[name].format(T=T, V=V) for name in types))
            case Matches(pattern):
                return f"({T} = 'text' AND {_finds(V, pattern)})"
            case Modulo(divisor, remainder):
                divided = f"CAST({V} AS INTEGER) % {_parameter(divisor)} = {_parameter(remainder)}"
                return f"({T} {_NUMBERS} AND {_in_range(V)} AND {divided})"
            case Bits(operator, mask):
                return _bits(T, V, operator, _parameter(mask))
            case Exists():
                return f"({T} IS NOT NULL)"
            case HasSize(size):
                # by CASE: SQLite may leave out the first of two equal terms that AND joins
                length = f"CASE {T} WHEN 'array' THEN json_array_length({V}) END"
                return f"({length} = {_parameter(size)})"
        return self._composed(T, V, test)

    def _composed(self, T: str, V: str, test: Test) -> str:  # noqa: N803
        match test:
            case HasElement(tests):
                element = next(self._aliases)
                every = (self.test(f"{element}.type", f"{element}.value", each) for each in tests)
                return _array_with(T, V, element, _joined(" AND ", every))
            case HasObject(condition):
                element = next(self._aliases)
                inner = f"{element}.value"
                as_object = self.condition(inner, condition)
                as_array = self.condition(inner, condition, as_array=True)
                inside = (
                    f"({element}.type = 'object' AND {as_object}) OR "
                    f"({element}.type = 'array' AND {as_array})"
                )
                return _array_with(T, V, element, inside)
            case Fails(tests):
                return (
                    f"({_joined(' AND ', (self.test(T, V, each) for each in tests))} IS NOT TRUE)"
                )
            case Passes(tests):
                return _joined(" OR ", (self.test(T, V, each) for each in tests))
        raise AssertionError(test)


def _is_plain(test: Test) -> TypeGuard[Equals]:
    return isinstance(test, Equals) and test.value.kind in {"number", "string"}


def _may_equal(body: str, keys: Steps, value: Operand) -> str:
    """Render a necessary test: the value is equal or missing, or begins like the text of an array. The test costs a
    single call of a JSON function instead of three or more.
    """
    found = f"nullif(json_extract({body}, {path_literal(keys)}), {_parameter(value)})"
    return f"ifnull({found} BETWEEN '[' AND '\\', 1)"


def _may_contain(text: str, key: str | int, value: Operand) -> str:
    """Render a necessary test: the text contains the value, if all programs write value and key alike in JSON: a positive
    number of up to five digits, without its fraction (some programs write 1e+05), or a string of plain characters. A
    text with such a number is searched again, for the key and the first digit: small numbers are in most texts. GLOB
    reads 1 KB in a tenth of the time of a JSON function. SQLite computes a pattern once, and refuses a pattern of more
    than 50,000 bytes.
    """
    parameter = _parameter(value)
    if value.kind == "number":
        plain, part = f"{parameter} BETWEEN 1 AND 99999", f"CAST({parameter} AS INTEGER)"
        space = "char(9, 10, 13, 32)"
        keyed = f"'\"{key}\"[:' || {space} || '][[:' || {space} || substr({part}, 1, 1) || ']'"
        patterns = (part, keyed) if _is_plain_key(key) else (part,)
    else:
        plain = (
            f"{parameter} NOT GLOB '*[^0-9A-Za-z _.:-]*' AND length({parameter}) < {_MAX_PATTERN}"
        )
        patterns = (parameter,)
    return " AND ".join(
        f"{text} GLOB CASE WHEN {plain} THEN '*' || {each} || '*' ELSE '*' END" for each in patterns
    )


def _is_plain_key(key: str | int) -> bool:
    """Return whether JSON and GLOB take a key as it is, and the key is no index of an array."""
    return isinstance(key, str) and _PLAIN_KEY(key) is not None and not is_index(key)


def _equals(T: str, V: str, value: Operand) -> str:  # noqa: N803
    match value.kind:
        case "number":  # of all others, only true and false equal a number: 1 and 0
            parameter = _parameter(value)
            return f"({V} = {parameter} AND ({parameter} NOT IN (0, 1) OR {T} {_NUMBERS}))"
        case "string":  # of all others, only arrays and objects equal a text: their own
            parameter = _parameter(value)
            return f"({V} = {parameter} AND ({parameter} NOT GLOB '[[{{]*' OR {T} = 'text'))"
        case "boolean":
            return f"({T} = {_parameter(value)})"
        case "null":
            return f"({T} = 'null')"
    return f"({T} = '{value.kind}' AND collections_store_equal({_parameter(value)} || {V}))"


def _among(T: str, V: str, values: Operand) -> str:  # noqa: N803
    match values.kind:
        case "numbers":
            return f"({V} IN {_listed(values)} AND {T} {_NUMBERS})"
        case "strings":
            return f"({V} IN {_listed(values)} AND {T} = 'text')"
        case "booleans":
            return f"({T} IN {_listed(values)})"
    return f"({T} = 'null')"


def _listed(values: Operand) -> str:
    return f"(SELECT value FROM json_each({_parameter(values)}))"


def _compares(T: str, V: str, sign: str, value: Operand) -> str:  # noqa: N803
    match value.kind:
        case "number" if (
            sign == ">="
        ):  # all texts are above all numbers; true and false are 1 and 0
            parameter = _parameter(value)
            return f"({V} BETWEEN {parameter} AND 9e999 AND ({parameter} > 1 OR {T} {_NUMBERS}))"
        case "number":
            return f"({V} {sign} {_parameter(value)} AND {T} {_NUMBERS})"
        case "string":
            return f"({V} {sign} {_parameter(value)} AND {T} = 'text')"
        case "boolean":
            return f"({V} {sign} ({_parameter(value)} = 'true') AND {T} IN ('true', 'false'))"
    return (
        f"({T} = '{value.kind}' AND collections_store_compare({_parameter(value)} || {V}) {sign} 0)"
    )


def _finds(V: str, pattern: Operand) -> str:  # noqa: N803
    parameter = _parameter(pattern)
    match pattern.kind:
        case "plain regex":
            return f"instr({V}, {parameter}) > 0"
        case "prefix regex":
            return f"substr({V}, 1, length({parameter})) = {parameter}"
    return f"collections_store_found({parameter} || {V})"


def _bits(T: str, V: str, operator: str, mask: str) -> str:  # noqa: N803
    whole = f"CAST({V} AS INTEGER)"
    found = _BITS[operator].format(common=f"({whole} & {mask})", mask=mask)
    return f"({T} {_NUMBERS} AND {_in_range(V)} AND {V} = {whole} AND {found})"


def _in_range(V: str) -> str:  # noqa: N803
    return f"{V} >= -9223372036854775808 AND {V} < 9223372036854775808.0"


def _array_with(T: str, V: str, element: str, inside: str) -> str:  # noqa: N803
    some = f"EXISTS (SELECT 1 FROM json_each({V}) AS {element} WHERE {inside})"
    return f"({T} = 'array' AND {some})"


def _missing(body: str, done: Steps, rest: Steps) -> str:
    """Render a test for a missing value, with no array opened on the path."""
    prefixes = ((*done, *rest[:depth]) for depth in range(1, len(rest)))
    tests = [f"json_type({body}, {path_literal((*done, *rest))}) IS NULL"]
    tests.extend(f"json_type({body}, {path_literal(each)}) IS NOT 'array'" for each in prefixes)
    if done:
        tests.append(f"json_type({body}, {path_literal(done)}) = 'object'")
    return f"({' AND '.join(tests)})"


def _is_array(body: str, path: str) -> str:
    return f"json_type({body}, {path}) = 'array'"


def _some(body: str, path: str, element: str) -> str:
    return f"EXISTS (SELECT 1 FROM json_each({body}, {path}) AS {element}"


def _joined(operator: str, parts: Iterable[str]) -> str:
    every = list(parts)
    if not every:
        return "(1)" if operator == " AND " else "(0 = 1)"  # see `statement.NEVER`
    return f"({operator.join(every)})"


def _parameter(value: Operand) -> str:
    assert isinstance(value, Parameter)
    return value.sql[0]


TextTest: TypeAlias = Callable[[str], Any]
"""A function of the database's text, for one operand."""

_RAISED: Final = "user-defined function raised exception"
_MISSING: Final = object()
KEY: Final = "collections_store_key"
KEYED_JSON: Final = "collections_store_keyed_json"
WORD_COUNT: Final = "collections_store_word_count"
"""The function that counts the words of a text, in the form of FTS5."""


class _Raised(threading.local):
    error: BaseException | None = None


_raised = _Raised()


def packed(text: str) -> str:
    """Return the operand in the form that precedes the database's text."""
    return f"{len(text)}/{text}"


def functions() -> Sequence[Function]:
    """Return name, number of arguments and callback of each function, for a single connection."""
    return [(name, 1, _callback(function)) for name, function in _FUNCTIONS.items()]


def raised_within(error: Exception) -> BaseException | None:
    """Return the exception of a function, if the exception failed a statement in this thread."""
    raised = _raised.error
    _raised.error = None  # even if this statement failed for another reason
    return raised if _RAISED in str(error) else None


def _callback(function: Callable[[str], TextTest]) -> Callable[[str | None], Any]:
    results = _results(function)
    next(results)
    return results.send


def _results(function: Callable[[str], TextTest]) -> Generator[Any, str | None, None]:
    result: Any = None
    test: TextTest
    prefix, test = "/", _decoded  # no argument begins with this prefix
    while True:
        try:
            while True:
                argument = yield result
                if argument is None:
                    result = None
                    continue
                if not argument.startswith(
                    prefix
                ):  # most rows of a statement have the same operand
                    begin = argument.index("/") + 1
                    end = begin + int(argument[: begin - 1])
                    prefix, test = argument[:end], function(argument[begin:end])
                result = test(argument[len(prefix) :])
        except GeneratorExit:
            return
        except BaseException as error:  # noqa: BLE001 - it is raised where the statement was executed
            _raised.error, result = error, _MISSING  # SQLite rejects this result


def _decoded(text: str) -> Any:
    """Return the array or object of a JSON text; `_MISSING` for a scalar or invalid JSON: SQLite evaluates the parts of
    AND in any order, and may call a function before testing the type.
    """
    try:
        found = codec.decode(text)
    except ValueError:
        return _MISSING
    return found if isinstance(found, dict | list) else _MISSING


def _equal(operand: str) -> TextTest:
    value = codec.decode(operand)
    return lambda text: (found := _decoded(text)) is not _MISSING and values.equal(found, value)


def _compare(operand: str) -> TextTest:
    value = codec.decode(operand)
    return lambda text: (
        None if (found := _decoded(text)) is _MISSING else values.compare(found, value)
    )


@lru_cache(maxsize=256)
def _found(operand: str) -> TextTest:
    options, _, pattern = operand.partition("/")
    return compiled(pattern, options).is_found


def _key(operand: str) -> TextTest:
    """Return the function that makes the key of a string in an index under a collation."""
    return stored_key(operand)


def _keyed_json(operand: str) -> TextTest:
    """Return the function that puts keys in place of the strings in the JSON text of an array or object."""
    key = stored_key(operand)
    return lambda text: codec.spell(keyed(codec.decode(text), key))


def _word_count(_: str) -> TextTest:
    return lambda text: _varint(len(words_of(text)))


def _varint(number: int) -> str:
    """Return a number as FTS5 stores it: hexadecimal digits of groups of 7 bits, all but the last with the highest bit."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups)).hex().upper()


_FUNCTIONS: Final[dict[str, Callable[[str], TextTest]]] = {
    "collections_store_equal": _equal,
    "collections_store_compare": _compare,
    "collections_store_found": _found,
    KEY: _key,
    KEYED_JSON: _keyed_json,
    WORD_COUNT: _word_count,
}
