"""SQL elements that SQLAlchemy lacks; `Database.register` registers the renderers of each database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.sql.functions import FunctionElement

from ..codec import spell
from ..query.conditions import (
    Condition,
    Field,
    Kind,
    Test,
)
from ..query.shapes import with_sql

Clause: TypeAlias = sa.ColumnElement[Any]
Keys: TypeAlias = tuple[str, ...]
"""The keys from the top of a body to a position in it."""
Parameters: TypeAlias = Sequence[sa.BindParameter[Any]]


class BodyText(FunctionElement[Any]):
    """A stored body as JSON text; `type` decides how the text is read."""

    inherit_cache: bool | None = True

    def __init__(self, body: Clause, type: sa.types.TypeEngine[Any]) -> None:
        self.type = type
        super().__init__(body)


class BodyFromText(FunctionElement[Any]):
    """JSON text as the database stores a body."""

    inherit_cache: bool | None = True
    type: sa.types.TypeEngine[Any] = sa.Text()


class JsonbText(BodyText):
    """`BodyText` of a collection whose bodies SQLite stores as JSONB."""

    inherit_cache: bool | None = True


class JsonbFromText(BodyFromText):
    """`BodyFromText` of a collection with bodies in SQLite's JSONB."""

    inherit_cache: bool | None = True


class KeyedBodyFromText(BodyFromText):
    """`BodyFromText` of a text of `sql.keys.with_keys`."""

    inherit_cache: bool | None = True


class KeysFromText(BodyFromText):
    """The keys in a text of `sql.keys.with_keys`, with a digest of the body."""

    inherit_cache: bool | None = True


class _Element(FunctionElement[Any]):
    """An expression found only in the store's own statements."""

    inherit_cache: bool | None = False
    type: sa.types.TypeEngine[Any] = sa.types.NULLTYPE


class _Predicate(_Element):
    """An expression that is true, false or unknown."""

    type: sa.types.TypeEngine[Any] = sa.Boolean()


class IsNot(_Predicate):
    """A condition is false or unknown: NOT alone leaves NULL unknown."""


class AnyOf(_Predicate):
    """A column is in a list of strings. The list is a single parameter: lists of any length share a statement."""


class AnyInteger(_Predicate):
    """A column is in a list of integers: a single parameter, as of `AnyOf`."""


class TextFits(_Predicate):
    """The text of a body has at most as many bytes as a parameter. White space may count too."""


class ReportedVersion(_Element):
    """A version, reported while a statement computes the version by a database of `StatementCompiler.reported_versions`."""

    type = sa.BigInteger()


class PositionIn(_Element):
    """The position of a string in a text, from 1 on; 0 if the text does not contain the string."""

    type = sa.Integer()


class ListOf(_Element):
    """The parameter `name`: a non-empty list of strings or of integers."""

    parameter: str
    texts: bool

    def __init__(self, name: str, *, texts: bool) -> None:
        super().__init__()
        self.parameter, self.texts = name, texts


class SortPart(_Element):
    """A column for ordering by a field of the body: a part of `Ordering.parts`, never null."""

    keys: Keys
    part: str

    def __init__(self, body: Clause, keys: Keys, part: str) -> None:
        super().__init__(body)
        self.keys, self.part = keys, part


class CollatedPart(SortPart):
    """A `SortPart` with the keys of a collation in place of strings; `key_name` names the keys."""

    def __init__(self, body: Clause, keys: Keys, part: str, key_name: str) -> None:
        super().__init__(body, keys, part)
        self.key_name = key_name


class SortValue(_Element):
    """A parameter to compare with a `SortPart`."""

    def __init__(self, value: Clause, part: str) -> None:
        super().__init__(value)
        self.part = part


class _AtPath(_Element):
    """An expression over the value at the end of keys of objects."""

    def __init__(self, body: Clause, keys: Keys, *others: Clause) -> None:
        super().__init__(body, *others)
        self.keys = keys


class TypeAt(_AtPath):
    """The database's name of the type at the end of a path."""


class ValueText(_AtPath):
    """The value at the end of a path as JSON text; null if the value is missing."""


class Unwound(_AtPath):
    """The array at the end of a path, as `$unwind` reads it: any other value is an array of itself; null for null and a
    missing value.
    """


class Addend(_Element):
    """The integer of a `TypeAt` and a `ValueText`, if the database adds it without rounding or overflow, however many
    there are; null for any other value.
    """


class NumberText(_Element):
    """The `ValueText` of a `TypeAt` and a `ValueText`, if the value is a number but no `Addend`; null for any other
    value.
    """


class OtherText(_Element):
    """The `ValueText` of a `TypeAt` and a `ValueText`, if the value is no `Addend`; null for an `Addend`."""


class WithinLimits(_Element):
    """The `ValueText` of a `TypeAt` and a `ValueText`; for a number clearly between two ascending limits, the lower limit."""

    def __init__(self, kind: Clause, text: Clause, limits: Sequence[float]) -> None:
        super().__init__(kind, text)
        self.limits = limits

    def chosen(self, number: str, text: str) -> str:
        """Return the SQL, of the SQL of the number and of the text."""
        branches = [f"WHEN {number} < {_beside(self.limits[0], 1)} THEN {text}"]
        for low, high in pairwise(self.limits):
            branches += [
                f"WHEN {number} < {_beside(high, -1)} THEN '{spell(low)}'",
                f"WHEN {number} < {_beside(high, 1)} THEN {text}",
            ]
        return f"CASE {' '.join(branches)} ELSE {text} END"


def _beside(limit: float, sign: int) -> str:
    """Return a number further beside a limit than SQL rounds numbers."""
    return repr(limit + sign * (abs(limit) + 1) / 10**9)


class HasInteger(_AtPath, _Predicate):
    """An integer of at most 18 digits is at the end of a path."""


class Increased(_AtPath):
    """The body with the integer of `HasInteger` increased by a parameter of at most 18 digits."""


class ArrayAt(_AtPath, _Predicate):
    """An array is at the end of a path.

    `null_safe`: compare with IS (NOT DISTINCT FROM) in place of =. Otherwise a planner can take the condition of a partial
    index to be implied by a second index with the same test.
    """

    def __init__(self, body: Clause, keys: Keys, *, null_safe: bool = False) -> None:
        super().__init__(body, keys)
        self.null_safe = null_safe


class BodyMatches(_Predicate):
    """The exact form of a condition on a body; `matcher` is the reference for the meaning.

    The dialect chooses the parameters: see `Filters.binding`.
    """

    def __init__(self, body: Clause, condition: Condition, parameters: Parameters) -> None:
        super().__init__(body, *parameters)
        self.condition = condition
        self.is_jsonb: bool = getattr(body.type, "jsonb", False)


class _FieldTest(_Predicate):
    """A test of a field with parameters."""

    def __init__(self, subject: Clause, field: Field, parameters: Parameters = ()) -> None:
        super().__init__(subject, *parameters)
        self.field = field

    def test(self, parameters: Sequence[str], widths: Mapping[Kind, int]) -> Test:
        """Return the test with the parameters in the slots. `widths`: the number of parameters for a kind of value, 1
        by default.
        """
        sql = iter(parameters)
        return with_sql(self.field.test, lambda slot: tuple(islice(sql, widths.get(slot.kind, 1))))


class IndexedTest(_FieldTest):
    """The indexed form of a condition on a field: over the `SortPart`s, right if no array is on the path."""


class CollatedTest(_FieldTest):
    """The indexed form of a condition on a field under a collation: over the `CollatedPart`s. The parameters are keys.

    `keys`: what the `CollatedPart`s are made of.
    """

    def __init__(
        self, subject: Clause, keys: Clause, field: Field, parameters: Parameters, key_name: str
    ) -> None:
        FunctionElement.__init__(self, subject, keys, *parameters)
        self.field, self.key_name = field, key_name


class PartialTest(_FieldTest):
    """A condition of a partial index on a field, in the indexed form with literals."""


class ArrayTest(_Predicate):
    """A test of scalars reached through arrays: a row of the table `index` passes the tests of all `fields`, the first
    fields of the index. `wildcard`: the row has the path of the only field.
    """

    fields: Sequence[Field]
    index: sa.Table
    wildcard: bool

    def __init__(
        self,
        seq: Clause,
        fields: Sequence[Field],
        parameters: Parameters,
        index: sa.Table,
        *,
        wildcard: bool,
    ) -> None:
        super().__init__(seq, *parameters)
        self.fields, self.index, self.wildcard = fields, index, wildcard

    def tests(self, parameters: Sequence[str], widths: Mapping[Kind, int]) -> list[Test]:
        """Return the tests with the parameters in the slots, as `_FieldTest.test` does."""
        sql = iter(parameters)
        return [
            with_sql(field.test, lambda slot: tuple(islice(sql, widths.get(slot.kind, 1))))
            for field in self.fields
        ]
