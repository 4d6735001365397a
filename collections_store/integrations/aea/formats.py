"""AEA's formats, read and written without AEA: fields, bodies, and the files of its own SQLite backend.

Fields are paths in SQLite's syntax. AEA stores whatever `json.dumps` accepts: integers of any size (amounts in wei exceed 64 bit), NaN, strings with NUL. Such a
value, or an object with the key `__aea__`, is stored as an object with the only key `__aea__`, whose value is a pair of type and
spelling.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ... import Filter, InvalidBody, InvalidFilter, InvalidId, InvalidOption, Path, Store
from ..sqlite_files import ExternalFile, File, read

Step: TypeAlias = str | int
"""A key; an integer is a position from the end of an array: -1 is the last."""

_STEP: Final = re.compile(r'\.(?:"([^"]*)"|([^.\["][^.\[]*))|\[(\d+)\]|\[#-([1-9]\d*)\]')


def filter_of(field: Any, equals: Any) -> Filter:
    """Return the filter of `find(field, equals)`; raises `InvalidFilter`.

    The field has AEA's syntax: `a.b`, `$.a.b`, `"a.b".c` with a quoted key, `list[0]`, and `list[#-1]`, the last. The
    filter has the store's meaning: 1 is not true, and a list matches by each of its elements, too.

    >>> print(filter_of("$.address.city", "Berlin"))
    {'address.city': 'Berlin'}
    """
    steps, value = read_field(field), encoded(equals)
    if all(isinstance(step, str) for step in steps):
        return Filter.parse({Path(*map(str, steps)): {"$eq": value}})
    found: Any = "$$ROOT"
    for step in steps:
        found = _at(found, step)
    return Filter.parse({"$expr": {"$eq": [found, {"$literal": value}]}})


def read_field(field: Any) -> list[Step]:
    """Return the steps of a path; raises `InvalidFilter`.

    >>> read_field('$.offers[0]."a.b"[#-1]')
    ['offers', '0', 'a.b', -1]
    """
    if not isinstance(field, str):
        raise InvalidFilter(repr(field), "a field must be a string, such as 'address.city'")
    text = field[1:] if field.startswith("$.") else f".{field}"
    steps: list[Step] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise InvalidFilter(field, f"{text[position:]!r} must be a key, [0] or [#-1]")
        quoted, key, index, back = found.groups()
        steps.append(-int(back) if back is not None else quoted or key or index or "")
        position = found.end()
    return steps


def _at(found: Any, step: Step) -> Any:
    """Return the expression of a value's field, or of a position if the value is an array."""
    is_array = {"$isArray": [found]}
    if isinstance(step, int):
        return {"$cond": [is_array, {"$arrayElemAt": [found, step]}, "$$REMOVE"]}
    field = {"$getField": {"field": {"$literal": step}, "input": found}}
    if not step.isdecimal():
        return field
    return {"$cond": [is_array, {"$arrayElemAt": [found, int(step)]}, field]}


MARK: Final = "__aea__"
_MAX_NAME: Final = 200
"""Characters of a collection's name."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_]+", re.ASCII)
_MIN, _MAX = -(2**63), 2**63 - 1


def encoded(value: Any) -> Any:
    """Return the stored body for a body of AEA; raises the errors of `json.dumps`: `TypeError`, `ValueError`.

    >>> encoded({"wei": 10**19, 1: (True, "a")})
    {'wei': {'__aea__': ['int', '10000000000000000000']}, '1': [True, 'a']}
    """
    return _encoded(json.loads(json.dumps(value)))


def decoded(body: Any) -> Any:
    """Return AEA's body for a stored body. Equal strings are the same object: fetchai's `is_self_initiated` compares addresses
    with `is not`.

    >>> decoded(encoded({"wei": 10**19, "rate": float("inf")}))
    {'wei': 10000000000000000000, 'rate': inf}
    """
    if isinstance(body, str):
        return sys.intern(body)
    if isinstance(body, list):
        return [decoded(each) for each in body]
    if not isinstance(body, dict):
        return body
    if body.keys() == {MARK}:
        with suppress(ValueError, TypeError):  # anybody may write such an object
            return _marked(*body[MARK])
    return {sys.intern(key): decoded(value) for key, value in body.items()}


def is_name(name: str) -> bool:
    """Return whether AEA allows a collection's name."""
    return _NAME.fullmatch(name) is not None


def name_of(name: str) -> str:
    """Return the name of the collection in the store, where names are shorter than AEA's may be."""
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[:130]}_{hashlib.sha256(name.encode()).hexdigest()}"


def text_of(id: Any) -> str:
    """Return an id as AEA's own backend stores it; raises `InvalidId`.

    >>> text_of(1), text_of(True), text_of("1")
    ('1', '1', '1')
    """
    if isinstance(id, str):
        return id
    if isinstance(id, int | float):
        return str(int(id) if isinstance(id, bool) else id)
    raise InvalidId(id, f"it is {type(id).__name__}, not a string")


def _encoded(value: Any) -> Any:
    match value:
        case bool() | None:
            return value
        case str():
            return value if is_plain(value) else {MARK: ["text", json.dumps(value)]}
        case int():
            return value if _MIN <= value <= _MAX else {MARK: ["int", str(value)]}
        case float():
            return value if math.isfinite(value) else {MARK: ["float", repr(value)]}
        case list():
            return [_encoded(each) for each in value]
    if MARK in value or not all(map(is_plain, value)):
        pairs = [[_encoded(key), _encoded(each)] for key, each in value.items()]
        return {MARK: ["object", pairs]}
    return {key: _encoded(each) for key, each in value.items()}


def _marked(kind: str, value: Any) -> Any:
    match kind:
        case "int":
            return int(value)
        case "float":
            return float(value)
        case "text":
            return json.loads(value)
        case "object":
            return {decoded(key): decoded(each) for key, each in value}
    raise ValueError(kind)


def is_plain(text: str) -> bool:
    """Return whether a body may hold a string."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


# -- files -----------------------------------------------------------------------------------------

_COLUMNS: Final = ("object_id", "object_body")


def import_aea(
    store: Store, file: File, *, on_error: Callable[[InvalidBody], object] | None = None
) -> dict[str, int]:
    """Copy the collections of an SQLite file of AEA into a store, in one transaction; return the number of documents by
    collection.

    Documents with the same ids are overwritten; the file does not change. Numbers as bodies, which AEA writes and cannot
    read, are imported as stored by SQLite: 12.0 as 12, and beyond 64 bit as a float (numbers within an object are
    exact). Objects without an id, which AEA cannot find, are not imported.

    Raises `DatabaseUnavailable` without a file, `InvalidOption` for a file of another program, and `InvalidBody` for an object
    that is not JSON, or too large; then nothing is imported. `on_error` is called with each such error instead, and the
    object is skipped.

    >>> with Store("sqlite://") as store:
    ...     import_aea(store, "agent.db")
    Traceback (most recent call last):
    ...
    collections_store.errors.DatabaseUnavailable: there is no SQLite file 'agent.db'
    """
    rows = read(file, lambda external: _read(external, file))
    check = store.core.codec.encode_body if on_error else None
    objects = {name: list(_objects(name, some, check, on_error)) for name, some in rows.items()}
    with store.transaction() as tx:
        for name, some in objects.items():
            tx[name_of(name)].put_many(some, atomic=True)
    return {name: len(some) for name, some in objects.items()}


def _read(external: ExternalFile, file: File) -> dict[str, list[tuple[Any, ...]]]:
    tables = external.tables()
    found = [each for each in tables if is_name(each) and external.columns(each) == set(_COLUMNS)]
    if not found:
        names = ", ".join(map(repr, sorted(tables))) or "none"
        problem = f"{str(file)!r} must have tables of AEA; its tables are: {names}"
        raise InvalidOption("file", problem)
    return {name: external.rows(name, *_COLUMNS) for name in found}


def _objects(
    table: str,
    rows: Iterable[tuple[Any, ...]],
    check: Callable[[Any], object] | None,
    on_error: Callable[[InvalidBody], object] | None,
) -> Iterator[tuple[str, Any]]:
    """Yield the objects of rows, except those with an error for `on_error`."""
    for id, text in rows:
        if id is None:
            continue
        try:
            body = encoded(_body(table, id, text))
            if check is not None:
                check(body)
        except InvalidBody as error:
            if on_error is None:
                raise
            is_named = error.path.startswith(f"{table}.{id}")
            on_error(error if is_named else InvalidBody(f"{table}.{id}", error.problem))
            continue
        yield str(id), body


def _body(table: str, id: str, text: Any) -> Any:
    """Return a body; SQLite stored text as a number if the text looks like a number."""
    if isinstance(text, int | float):
        return text
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidBody(f"{table}.{id}", f"the object must be JSON: {error}") from error
